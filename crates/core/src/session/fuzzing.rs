//! Bodies of the fuzz targets of the session, shared by the fuzzer (`fuzz/`), by the replay of its
//! corpora (`tests/tests/corpora.rs`) and by property tests.
//!
//! Any bytes are read as a story: time passes, an encoder answers well or badly, and a peer says
//! what is true, what is false, or nonsense. What must hold whatever happens is asserted on the way.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use rand_pcg::Pcg64Mcg;

use super::config::{FeedbackMode, MEDIA_TYPE, REPAIR_TYPE, ReceiverConfig, SenderConfig, Streams};
use super::receiver::MediaReceiver;
use super::sender::MediaSender;
use crate::control::{
    Algorithm, Change, Cx, Demand, Ecn, RateController, Report, Sent, Start, Summary, Target, Why,
};
use crate::controller::ControllerConfig;
use crate::endpoint::{Datagram, Endpoint, OVERHEAD};
use crate::media::{EncodeError, Encoded, FrameOrder};
use crate::promise::PlannerConfig;
use crate::random::Seed;
use crate::units::{Bytes, Rate, Time};
use crate::wire::ccfb::{CcfbBuilder, Received};
use crate::wire::fuzzing::Target as FuzzTarget;
use crate::wire::ntp::{Ntp, NtpShort};
use crate::wire::rtcp::{self, Cname, ReportBlock, Rtcp, SenderInfo};
use crate::wire::rtp::{RtpHeader, RtpPacket};
use crate::wire::rtx::RtxPayload;

/// All targets.
pub const TARGETS: [FuzzTarget; 2] = [
    FuzzTarget {
        name: "receiver",
        run: receiver,
    },
    FuzzTarget {
        name: "sender",
        run: sender,
    },
];

/// A sender whose encoder and whose peer are not to be trusted.
pub fn sender(data: &[u8]) {
    let mut story = Story { rest: data };
    let mut scene = SenderScene::new(&mut story);
    while !story.is_over() {
        scene.act(&mut story);
        scene.settle();
    }
    scene.sender.stop_capture();
    scene.pass(Duration::from_secs(60));
    let bounded = scene.config.delay_bound.is_some();
    assert!(!bounded || scene.sender.is_done(), "no end");
    let (mut frames, mut packets) = (Vec::new(), Vec::new());
    scene.sender.finish_rows(&mut frames, &mut packets);
    assert_eq!(packets.len() as u64, scene.contract().next);
}

/// A receiver whose peer is not to be trusted.
pub fn receiver(data: &[u8]) {
    let mut story = Story { rest: data };
    let mut scene = ReceiverScene::new(&mut story);
    while !story.is_over() {
        scene.act(&mut story);
        scene.settle();
    }
    scene.receiver.finish();
    scene.watch_frames();
}

/// Bytes to draw decisions from; zeros behind their end.
struct Story<'a> {
    rest: &'a [u8],
}

impl<'a> Story<'a> {
    fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from(self.byte()) << 8 | u16::from(self.byte())
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Milliseconds mostly, half an hour rarely.
    fn span(&mut self) -> Duration {
        let n = u64::from(self.byte());
        Duration::from_millis(match n {
            0..=199 => n,
            200..=239 => (n - 199) * 100,
            240..=253 => (n - 239) * 3_000,
            _ => n * 7_000,
        })
    }
}

struct SenderScene {
    sender: MediaSender,
    config: SenderConfig,
    contract: Arc<Mutex<Contract>>,
    rng: Pcg64Mcg,
    now: Time,
    /// How the encoder answers.
    manner: u8,
    /// The next sequence number of each stream that left.
    next: [Option<u16>; 2],
    sent: VecDeque<(u32, u16, Time)>,
}

impl SenderScene {
    fn new(story: &mut Story<'_>) -> Self {
        let (choice, size) = (story.byte(), story.byte());
        let mut config = SenderConfig::new(Streams::with_ssrcs(MEDIA, REPAIR), name());
        config.epoch = EPOCH;
        config.packet_size = Bytes(100 + u64::from(size) * 6);
        config.delay_bound = (choice & 1 == 0).then_some(Duration::from_millis(300));
        config.one_way = choice & 6 == 6;
        config.retransmit = choice & 8 == 0;
        config.log = true;
        let algorithm = match choice & 16 {
            0 => ControllerConfig::default(),
            _ => ControllerConfig::Fixed {
                rate: Rate::kbps(20_000),
            },
        };
        let demand = Demand {
            floor: config.rates.0,
            ceiling: config.rates.1,
            shares: 1,
        };
        let inner = algorithm.start(&Start::new(Time::ZERO, config.packet_size, demand));
        let contract = Arc::new(Mutex::new(Contract::default()));
        let watched = Box::new(Watched {
            inner,
            contract: Arc::clone(&contract),
        });
        let mut rng = Seed(1).stream("fuzz");
        let planner = PlannerConfig::new(config.rates.0, config.rates.1);
        Self {
            sender: MediaSender::new(config.clone(), watched, Some(planner), &mut rng),
            config,
            contract,
            rng,
            now: Time::from_secs(1),
            manner: 0,
            next: [None; 2],
            sent: VecDeque::new(),
        }
    }

    fn act(&mut self, story: &mut Story<'_>) {
        let mut out = Vec::new();
        match story.byte() % 12 {
            0 => self.pass(story.span()),
            1 => {
                // To the very moment that was asked for.
                if let Some((at, _)) = self.sender.next_timeout() {
                    self.now = self.now.max(at.min(self.now + Duration::from_secs(30)));
                }
            }
            2 => {
                let len = usize::from(story.byte());
                out.extend_from_slice(story.take(len));
            }
            3 | 4 => self.tell_truth(story, &mut out),
            5 => self.lie(story, &mut out),
            6 => self.report(story, &mut out),
            7 => {
                self.report(story, &mut out);
                self.tell_truth(story, &mut out);
            }
            8 => {
                let (ssrc, first) = (ssrc(story), story.word());
                let lost = (0..story.word() % 600).map(|i| first.wrapping_add(i));
                rtcp::emit_nack(PEER, ssrc, lost, &mut out);
            }
            9 => rtcp::Pli {
                sender: PEER,
                media: ssrc(story),
            }
            .emit(&mut out),
            10 => self.manner = story.byte(),
            _ => {
                let seqs: Vec<_> = self.sent.iter().rev().map(|(_, seq, _)| *seq).collect();
                let lost = seqs.into_iter().take(usize::from(story.byte()));
                rtcp::emit_nack(PEER, MEDIA, lost, &mut out);
            }
        }
        if !out.is_empty() {
            let datagram = Datagram {
                ecn: Ecn::NotEct,
                payload: &out,
            };
            let mut cx = cx(self.now, &mut self.rng);
            self.sender.on_datagram(&mut cx, datagram);
        }
    }

    /// Feedback on what was sent last, of which the story says what arrived.
    fn tell_truth(&self, story: &mut Story<'_>, out: &mut Vec<u8>) {
        let mut builder = CcfbBuilder::new(PEER, self.now, out);
        let most = usize::from(story.byte());
        for stream in [MEDIA, REPAIR] {
            let of_stream = self.sent.iter().filter(|(ssrc, ..)| *ssrc == stream);
            let lines: Vec<_> = of_stream.collect();
            let lines = &lines[lines.len().saturating_sub(most)..];
            let Some((_, begin, _)) = lines.first() else {
                continue;
            };
            let (mut bits, mut left) = (0, 0);
            let lines = lines.iter().map(|(.., at)| {
                if left == 0 {
                    (bits, left) = (story.byte(), 8);
                }
                let arrived = bits & 1 == 0;
                (bits, left) = (bits >> 1, left - 1);
                let ecn = if bits & 3 == 3 { Ecn::Ce } else { Ecn::Ect0 };
                arrived.then_some(Received { ecn, at: *at })
            });
            let _ = builder.block(stream, *begin, lines);
        }
        builder.finish(EPOCH);
    }

    /// Feedback on anything, from any time.
    fn lie(&self, story: &mut Story<'_>, out: &mut Vec<u8>) {
        let at = match story.byte() % 4 {
            0 => self.now + story.span(),
            1 => self.now.before(story.span()),
            _ => self.now,
        };
        let mut builder = CcfbBuilder::new(PEER, at, out);
        for _ in 0..story.byte() % 4 {
            let newest = self.next[0].unwrap_or(0);
            let begin = newest.wrapping_sub(story.word() % 512);
            let (ssrc, count, ago) = (ssrc(story), story.word() >> 2, story.span());
            let line = Received {
                ecn: Ecn::from_bits(story.byte()),
                at: at.before(ago),
            };
            let every = u16::from(story.byte()) + 1;
            let lines = (0..count).map(|i| i.is_multiple_of(every).then_some(line));
            let _ = builder.block(ssrc, begin, lines);
        }
        builder.finish(EPOCH);
    }

    fn report(&self, story: &mut Story<'_>, out: &mut Vec<u8>) {
        let choice = story.byte();
        let delay = story.span();
        let blocks = (0..=choice % 3).map(|_| ReportBlock {
            ssrc: ssrc(story),
            fraction_lost: story.byte(),
            cumulative_lost: -1,
            highest_sequence: u32::from(story.word()),
            jitter: 7,
            last_sr: match choice & 8 {
                0 => EPOCH.at(self.now.before(delay + HOP)).middle(),
                _ => NtpShort(u32::from(story.word()) << 16),
            },
            delay_since_last_sr: NtpShort::from_span(delay),
        });
        let blocks: Vec<_> = blocks.collect();
        rtcp::emit_receiver_report(PEER, &blocks, out);
    }

    /// Lets `span` pass with every deadline kept, to at most so many of them.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..MOST_DEADLINES {
            self.settle();
            match self.sender.next_timeout() {
                Some((at, _)) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
        }
        self.now = end;
        self.settle();
    }

    /// Brings the sender to rest at this moment.
    fn settle(&mut self) {
        self.turn();
        let mut wakes = 0;
        while let Some((_, why)) = self.sender.next_timeout().filter(|t| t.0 <= self.now) {
            wakes += 1;
            assert!(wakes <= MOST_WAKES, "{why:?} wakes without end");
            self.sender.on_timeout(&mut cx(self.now, &mut self.rng));
            self.turn();
        }
        let held = self.sender.held();
        assert!(held.packets <= 32_768 && held.repairs <= 34_000, "{held:?}");
        assert!(held.kept <= 240 && held.datagrams == 0, "{held:?}");
        assert!(held.captures <= 61, "{held:?}");
        assert!(held.backlog <= Bytes(17 << 20), "{held:?}");
        let out: u64 = self.contract().out.values().map(|p| p.size.get()).sum();
        assert_eq!(held.in_flight, Bytes(out));
    }

    fn turn(&mut self) {
        let mut cx = cx(self.now, &mut self.rng);
        while let Some(order) = self.sender.poll_order(&mut cx) {
            self.sender.on_encoded(encode(&order, self.manner));
        }
        let mut buffer = Vec::new();
        for count in 0.. {
            assert!(count < MOST_PACKETS, "packets without end");
            buffer.clear();
            let sent = self.sender.poll_transmit(&mut cx, &mut buffer);
            if sent.is_none() {
                assert!(buffer.is_empty());
                break;
            }
            if rtcp::is_rtcp(&buffer) {
                assert_eq!(rtcp::form(&buffer), Ok(rtcp::Form::Compound));
                continue;
            }
            assert!(Bytes(buffer.len() as u64) + OVERHEAD <= self.config.packet_size);
            let packet = RtpPacket::new_checked(&buffer).expect("we made it");
            let header = packet.header();
            let repair = usize::from(header.ssrc == REPAIR);
            assert!([MEDIA, REPAIR].contains(&header.ssrc) && !packet.payload().is_empty());
            let expected = self.next[repair].unwrap_or(header.sequence);
            assert_eq!(header.sequence, expected, "a hole in the sequence numbers");
            self.next[repair] = Some(header.sequence.wrapping_add(1));
            self.sent.push_back((header.ssrc, header.sequence, cx.now));
            self.sent.drain(..self.sent.len().saturating_sub(512));
        }
    }

    fn contract(&self) -> std::sync::MutexGuard<'_, Contract> {
        let lock = self.contract.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frames of any kind, as `manner` says.
fn encode(order: &FrameOrder, manner: u8) -> Result<Encoded, EncodeError> {
    let size = usize::from(manner >> 3) * 300;
    let mut data = vec![0, 0, 0, 1, if order.key { 0x65 } else { 0x41 }, 0x88];
    data.resize(6 + size, 0x5a);
    match manner & 7 {
        4 => data.clear(),
        5 => data.truncate(4),
        6 => data[..4].fill(0xff),
        7 if manner == 0xff => return Err(EncodeError::Codec("broken".into())),
        7 => data[4] = 0x1f,
        _ => {}
    }
    Ok(Encoded {
        frame: order.frame,
        captured: order.captured,
        key: order.key || manner & 7 == 3,
        data,
        quality: None,
    })
}

/// What a controller was promised, see [`RateController`].
#[derive(Debug, Default)]
struct Contract {
    now: Time,
    next: u64,
    /// Sent, without a fate so far.
    out: BTreeMap<u64, Sent>,
}

/// A controller that sees to it that promises are kept.
#[derive(Debug)]
struct Watched {
    inner: Box<dyn RateController>,
    contract: Arc<Mutex<Contract>>,
}

impl Watched {
    fn check(&self, now: Time, check: impl FnOnce(&mut Contract)) {
        let lock = self.contract.lock();
        let mut contract = lock.unwrap_or_else(PoisonError::into_inner);
        assert!(now >= contract.now, "time goes back");
        contract.now = now;
        check(&mut contract);
    }
}

impl RateController for Watched {
    fn on_sent(&mut self, cx: &mut Cx<'_>, packet: &Sent) {
        self.check(cx.now, |contract| {
            assert_eq!(packet.seq, contract.next);
            contract.next += 1;
            contract.out.insert(packet.seq, *packet);
            if contract.out.len() > 32_768 {
                contract.out.pop_first();
            }
        });
        self.inner.on_sent(cx, packet);
    }

    fn on_report(&mut self, cx: &mut Cx<'_>, report: &Report<'_>) {
        self.check(cx.now, |contract| {
            let mut last = None;
            for fate in report.fates {
                assert!(last < Some(fate.seq), "not in the order of sending");
                last = Some(fate.seq);
                let sent = contract.out.remove(&fate.seq);
                assert_eq!(sent.map(|s| s.size), Some(fate.size), "a second fate");
                assert!(fate.sent <= cx.now);
            }
        });
        self.inner.on_report(cx, report);
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        self.check(cx.now, |_| {});
        self.inner.on_timeout(cx);
    }

    fn on_change(&mut self, cx: &mut Cx<'_>, change: &Change) {
        self.check(cx.now, |contract| {
            if let Change::Path { .. } = change {
                // Nothing is said any more of what was sent on the old path.
                contract.out.clear();
            }
        });
        self.inner.on_change(cx, change);
    }

    fn target(&self) -> Target {
        self.inner.target()
    }

    fn next_timeout(&self) -> Option<(Time, Why)> {
        self.inner.next_timeout()
    }

    fn summary(&self) -> Summary {
        self.inner.summary()
    }
}

struct ReceiverScene {
    receiver: MediaReceiver,
    rng: Pcg64Mcg,
    now: Time,
    seq: u16,
    timestamp: u32,
    last_out: Option<u64>,
    decodable: bool,
    restarts: u64,
}

impl ReceiverScene {
    fn new(story: &mut Story<'_>) -> Self {
        let mut config = ReceiverConfig::new(PEER, name(), Duration::from_millis(300));
        if story.byte() & 1 == 1 {
            config.feedback = FeedbackMode::ReportsOnly;
        }
        Self {
            receiver: MediaReceiver::new(config),
            rng: Seed(1).stream("fuzz"),
            now: Time::from_secs(1),
            seq: story.word(),
            timestamp: u32::from(story.word()) << 16,
            last_out: None,
            decodable: false,
            restarts: 0,
        }
    }

    fn act(&mut self, story: &mut Story<'_>) {
        match story.byte() % 9 {
            0 => self.pass(story.span()),
            1 => {
                if let Some((at, _)) = self.receiver.next_timeout() {
                    self.now = self.now.max(at.min(self.now + Duration::from_secs(30)));
                }
            }
            2 => {
                let len = usize::from(story.byte());
                self.deliver(story.take(len), Ecn::NotEct);
            }
            3 => self.jump(story),
            4 => self.sender_speaks(story),
            5 => self.receiver.on_decoder_trouble(self.now),
            _ => self.frames(story),
        }
    }

    /// One packet with numbers from anywhere.
    fn jump(&mut self, story: &mut Story<'_>) {
        let choice = story.byte();
        let header = RtpHeader {
            payload_type: if choice & 1 == 0 {
                MEDIA_TYPE
            } else {
                REPAIR_TYPE
            },
            sequence: self.seq.wrapping_add(story.word()),
            timestamp: self.timestamp.wrapping_add(u32::from(story.word()) << 16),
            ssrc: ssrc(story),
            marker: choice & 2 == 2,
        };
        let len = usize::from(story.byte());
        let payload = story.take(len);
        self.packet(header, payload, Ecn::from_bits(choice >> 2));
    }

    /// What a good sender sends, less what the story takes away, and out of order as it says.
    fn frames(&mut self, story: &mut Story<'_>) {
        let (count, losses) = (story.byte() % 40, story.byte());
        let key = story.byte() & 1 == 0;
        for i in 0..count {
            let (first, last) = (i % 3 == 0, i % 3 == 2 || i + 1 == count);
            let unit = if key && i < 3 { 0x67 } else { 0x41 };
            let payload = [unit, if first { 0x88 } else { 0x10 }, 0, i];
            let mut header = RtpHeader {
                payload_type: MEDIA_TYPE,
                sequence: self.seq,
                timestamp: self.timestamp,
                ssrc: MEDIA,
                marker: last,
            };
            self.seq = self.seq.wrapping_add(1);
            if last {
                self.timestamp = self.timestamp.wrapping_add(3_000);
                self.now += Duration::from_millis(33);
            }
            match losses >> (i % 8) & 1 {
                0 => self.packet(header, &payload, Ecn::Ect0),
                // Lost; every other one is sent again.
                _ if i % 2 == 0 => {
                    let mut repair = Vec::new();
                    let original_sequence = header.sequence;
                    RtxPayload {
                        original_sequence,
                        payload: &payload,
                    }
                    .emit(&mut repair);
                    (header.payload_type, header.ssrc) = (REPAIR_TYPE, REPAIR);
                    self.packet(header, &repair, Ecn::Ect0);
                }
                _ => {}
            }
        }
    }

    fn sender_speaks(&mut self, story: &mut Story<'_>) {
        let mut out = Vec::new();
        if story.byte().is_multiple_of(8) {
            rtcp::emit_bye(&[ssrc(story)], None, &mut out);
        } else {
            SenderInfo {
                ssrc: ssrc(story),
                ntp: Ntp(u64::from(story.word()) << 32),
                rtp_timestamp: self.timestamp,
                packets: 1,
                octets: 1,
            }
            .emit(&[], &mut out);
        }
        self.deliver(&out, Ecn::NotEct);
    }

    fn packet(&mut self, header: RtpHeader, payload: &[u8], ecn: Ecn) {
        let mut out = Vec::with_capacity(RtpHeader::LEN + payload.len());
        header.emit(&mut out);
        out.extend_from_slice(payload);
        self.deliver(&out, ecn);
    }

    fn deliver(&mut self, payload: &[u8], ecn: Ecn) {
        let mut cx = cx(self.now, &mut self.rng);
        self.receiver
            .on_datagram(&mut cx, Datagram { ecn, payload });
        self.settle();
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..MOST_DEADLINES {
            self.settle();
            match self.receiver.next_timeout() {
                Some((at, _)) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
        }
        self.now = end;
    }

    /// Brings the receiver to rest at this moment.
    fn settle(&mut self) {
        self.drain();
        let mut wakes = 0;
        while let Some((_, why)) = self.receiver.next_timeout().filter(|t| t.0 <= self.now) {
            wakes += 1;
            assert!(wakes <= MOST_WAKES, "{why:?} wakes without end");
            self.receiver.on_timeout(&mut cx(self.now, &mut self.rng));
            self.drain();
        }
        let held = self.receiver.held();
        assert!(
            held.packets <= 4_097 && held.arrivals <= 2 * 4_096,
            "{held:?}"
        );
        assert!(held.bytes <= (16 << 20) + 65_536, "{held:?}");
        self.watch_frames();
    }

    fn drain(&mut self) {
        let mut buffer = Vec::new();
        for count in 0.. {
            assert!(count < MOST_WAKES, "packets without end");
            buffer.clear();
            let mut cx = cx(self.now, &mut self.rng);
            if self.receiver.poll_transmit(&mut cx, &mut buffer).is_none() {
                return;
            }
            assert!(buffer.len() <= 2_500, "{}", buffer.len());
            assert!(rtcp::form(&buffer).is_ok());
            for packet in rtcp::packets(&buffer).flatten() {
                match packet {
                    Rtcp::Ccfb(ccfb) => assert!(ccfb.blocks().all(|b| b.len() <= 500)),
                    Rtcp::Nack(nack) => assert!(nack.lost().count() <= 64),
                    _ => {}
                }
            }
        }
    }

    /// Frames come in order, and only those that can be decoded have a time.
    fn watch_frames(&mut self) {
        let restarts = self.receiver.held().restarts;
        if restarts > self.restarts {
            // What is left of one stream and the beginning of another.
            let last = core::iter::from_fn(|| self.receiver.poll_frame()).last();
            self.decodable = last.is_some_and(|frame| frame.complete.is_some());
            self.last_out = None;
            self.restarts = restarts;
        }
        while let Some(frame) = self.receiver.poll_frame() {
            assert!(self.last_out < Some(frame.timestamp), "out of order");
            self.last_out = Some(frame.timestamp);
            let whole = frame.complete.is_some();
            assert_eq!(whole, !frame.data.is_empty());
            assert!(!whole || frame.key || self.decodable, "nothing to refer to");
            self.decodable = whole;
        }
    }
}

fn cx<'a>(now: Time, rng: &'a mut Pcg64Mcg) -> Cx<'a> {
    // A value of no size: nothing is leaked.
    let trace = Box::leak(Box::new(()));
    Cx { now, rng, trace }
}

fn name() -> Cname {
    Cname::new("fuzz@example").expect("a good name")
}

/// One of ours mostly.
fn ssrc(story: &mut Story<'_>) -> u32 {
    match story.byte() {
        0..=160 => MEDIA,
        161..=240 => REPAIR,
        other => u32::from(other),
    }
}

const MEDIA: u32 = 0x6d65_6469;
const REPAIR: u32 = 0x7265_7061;
const PEER: u32 = 0x7065_6572;
/// 2023, so that the middle of a time stamp is never zero.
const EPOCH: Ntp = Ntp(0xe8_00_00_00_0000_0000);
const HOP: Duration = Duration::from_millis(40);
/// At one moment. Several timers may fall on one moment, and one may set another.
const MOST_WAKES: u32 = 16;
/// At one moment: what a second of frames of 10 kB becomes in packets of 100 bytes.
const MOST_PACKETS: u32 = 30_000;
/// In one span: some seconds at 30 frames per second.
const MOST_DEADLINES: u32 = 3_000;
