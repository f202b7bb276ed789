//! A sender with an untrusted encoder and an untrusted peer.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use rand_pcg::Pcg64Mcg;

use super::{EPOCH, MAX_DEADLINES, MAX_WAKES, MEDIA, PEER, REPAIR, Story, cx, name, ssrc};
use tidegate_core::control::{
    Algorithm, Change, Context, Demand, Ecn, Kind, RateControl, RateController, Report, Sent,
    Start, Summary, Target, TimerReason,
};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::fixed::FixedConfig;
use tidegate_core::controller::rcs::RcsConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::controller::tide::TideConfig;
use tidegate_core::delay_bound::PlannerConfig;
use tidegate_core::endpoint::{Datagram, Endpoint as _, Input, OVERHEAD};
use tidegate_core::media::{EncodeError, Encoded, FrameOrder};
use tidegate_core::path::Path;
use tidegate_core::random::Seed;
use tidegate_core::session::config::{SenderConfig, Streams};
use tidegate_core::session::sender::MediaSender;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::ccfb::{CcfbBuilder, Received};
use tidegate_core::wire::ntp::NtpShort;
use tidegate_core::wire::rtcp::{self, ArrivedDscp, ReportBlock};
use tidegate_core::wire::rtp::RtpPacket;
use tidegate_core::wire::twcc::{Ticks, emit_twcc};

/// A sender with an untrusted encoder and an untrusted peer.
pub fn sender(data: &[u8]) {
    let mut story = Story::new(data);
    let mut scene = SenderScene::new(&mut story);
    while !story.is_over() {
        scene.act(&mut story);
        scene.settle();
    }
    scene.recover();
    scene.sender.stop_capture();
    // The circuit breaker may have to trip first, and its timeout may have to expire.
    (0..3).for_each(|_| scene.pass(Duration::from_mins(1)));
    let bounded = scene.config.delay_bound.is_some();
    assert!(
        !bounded || scene.sender.is_done(),
        "the sender does not finish"
    );
    let (mut frames, mut packets) = (Vec::new(), Vec::new());
    scene.sender.finish_rows(&mut frames, &mut packets);
    let contract = scene.contract();
    assert_eq!(packets.len() as u64, contract.next + contract.dummies);
}

struct SenderScene {
    sender: MediaSender,
    config: SenderConfig,
    contract: Arc<Mutex<Contract>>,
    rng: Pcg64Mcg,
    now: Time,
    /// Selects the results of the encoder.
    manner: u8,
    encoder_failed: bool,
    /// Next sequence number of each stream.
    next: [Option<u16>; 4],
    sent: VecDeque<(u32, u16, Time)>,
    /// Transport-wide sequence numbers of the last packets, and their departure.
    transport: VecDeque<(u16, Time)>,
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
        config.transport_cc = choice & 32 != 0;
        config.log = true;
        let algorithm = match (choice & 16, choice & 64) {
            (0, 0) if size & 1 == 0 => ControllerConfig::from(TfrcConfig::default()),
            (0, 0) => ControllerConfig::from(TideConfig::default()),
            (0, _) => ControllerConfig::from(RcsConfig {
                target: (choice & 128 != 0).then_some(Rate::MAX),
                ..RcsConfig::default()
            }),
            _ => ControllerConfig::from(FixedConfig {
                rate: Rate::kbps(20_000),
            }),
        };
        let demand = Demand {
            floor: config.rates.0,
            ceiling: config.rates.1,
            shares: 1,
        };
        let start = Start::new(Time::ZERO, config.packet_size, demand);
        let inner = algorithm.start(&start);
        let contract = Arc::new(Mutex::new(Contract::default()));
        let uses_dummies = inner.uses_dummies();
        let watched = Watched {
            inner,
            contract: Arc::clone(&contract),
        };
        let control = RateControl::new(watched, &start);
        let control = if uses_dummies {
            control.with_dummies()
        } else {
            control
        };
        let mut rng = Seed(1).stream("fuzz");
        let planner = PlannerConfig::new(config.rates.0, config.rates.1);
        Self {
            sender: MediaSender::new(config.clone(), control, Some(planner), &mut rng),
            config,
            contract,
            rng,
            now: Time::from_secs(1),
            manner: 0,
            encoder_failed: false,
            next: [None; 4],
            sent: VecDeque::new(),
            transport: VecDeque::new(),
        }
    }

    fn act(&mut self, story: &mut Story<'_>) {
        let mut out = Vec::new();
        match story.byte() % 12 {
            0 => self.pass(story.span()),
            1 => {
                // Exactly the requested time.
                if let Some((at, _)) = self.timer() {
                    self.now = self.now.max(at.min(self.now + Duration::from_secs(30)));
                }
            }
            2 => {
                let len = usize::from(story.byte());
                out.extend_from_slice(story.take(len));
            }
            3 if self.config.transport_cc => self.transport_feedback(story, &mut out),
            3 | 4 => self.valid_feedback(story, &mut out),
            5 => self.false_feedback(story, &mut out),
            6 => self.report(story, &mut out),
            7 => {
                self.report(story, &mut out);
                self.valid_feedback(story, &mut out);
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
            10 => {
                self.manner = story.byte();
                self.encoder_failed |= self.manner == 0xff;
            }
            _ => {
                let seqs: Vec<_> = self.sent.iter().rev().map(|(_, seq, _)| *seq).collect();
                let lost = seqs.into_iter().take(usize::from(story.byte()));
                rtcp::emit_nack(PEER, MEDIA, lost, &mut out);
            }
        }
        if !out.is_empty() {
            let datagram = Datagram {
                ecn: Ecn::NotEct,
                dscp: 0,
                payload: &out,
            };
            let mut cx = cx(self.now, &mut self.rng);
            self.sender.handle(&mut cx, Input::Datagram(datagram));
        }
    }

    /// Honest feedback brings the stream back: within [`RECOVERY`], or after the pause of the
    /// circuit breaker if it has tripped.
    fn recover(&mut self) {
        if self.config.one_way || self.encoder_failed {
            return;
        }
        self.manner = 0;
        self.answer(RECOVERY);
        if self.sender.status().stopped {
            self.answer(BREAKER_PAUSE);
        }
        let before = self.contract().next;
        self.answer(Duration::from_secs(2));
        assert!(
            self.sender.is_done() || self.contract().next > before,
            "honest feedback does not bring the stream back"
        );
    }

    /// Reports every packet as received, and every second a round trip of [`HOP`].
    fn answer(&mut self, span: Duration) {
        let (end, mut next_report) = (self.now + span, self.now);
        while self.now < end {
            let mut out = Vec::new();
            if self.now >= next_report {
                next_report = self.now + Duration::from_secs(1);
                let block = ReportBlock {
                    ssrc: MEDIA,
                    highest_sequence: (self.now.as_nanos() >> 20) as u32,
                    last_sr: EPOCH.at(self.now.before(HOP)).middle(),
                    ..ReportBlock::default()
                };
                rtcp::emit_receiver_report(PEER, &[block], &mut out);
            }
            let mut builder = CcfbBuilder::new(PEER, self.now, &mut out);
            for stream in ssrcs(self.config.streams) {
                let mut of_stream = self.sent.iter().filter(|(ssrc, ..)| *ssrc == stream);
                let first = of_stream.clone().next().map(|(_, seq, _)| *seq);
                let ecn = Ecn::NotEct;
                let lines = of_stream
                    .by_ref()
                    .map(|&(.., at)| Some(Received { ecn, at }));
                if let Some(first) = first {
                    let _ = builder.block(stream, first, lines.collect::<Vec<_>>());
                }
            }
            builder.finish(EPOCH);
            let mut cx = cx(self.now, &mut self.rng);
            let (ecn, payload) = (Ecn::NotEct, &out[..]);
            self.sender.handle(
                &mut cx,
                Input::Datagram(Datagram {
                    ecn,
                    dscp: 0,
                    payload,
                }),
            );
            self.pass(Duration::from_millis(25));
        }
    }

    /// Feedback on recent packets, of which the data selects the arrived ones, and the DSCP of probes.
    fn valid_feedback(&self, story: &mut Story<'_>, out: &mut Vec<u8>) {
        let mut builder = CcfbBuilder::new(PEER, self.now, out);
        let most = usize::from(story.byte());
        for stream in ssrcs(self.config.streams) {
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
        if most & 1 == 1 {
            let report = ArrivedDscp {
                sender: PEER,
                media: self.config.streams.probe_ssrc,
                sent: story.byte() & 1,
                arrived: story.byte() & 1,
            };
            report.emit(out);
        }
    }

    /// Transport-wide feedback on recent packets or, for some of the data, on arbitrary ones.
    fn transport_feedback(&self, story: &mut Story<'_>, out: &mut Vec<u8>) {
        let (most, shift) = (usize::from(story.byte()), u16::from(story.byte() / 16));
        let lines: Vec<_> = self.transport.iter().collect();
        let lines = &lines[lines.len().saturating_sub(most)..];
        let Some((begin, _)) = lines.first() else {
            return;
        };
        let reports = lines.iter().map(|(_, at)| {
            let ticks = (at.as_nanos() / Ticks::NANOS) as i64;
            (story.byte() & 3 != 0).then_some(Ticks(ticks))
        });
        let reports: Vec<_> = reports.collect();
        let place = (begin.wrapping_add(shift), story.byte());
        let _ = emit_twcc((PEER, ssrc(story)), place, &reports, out);
    }

    /// Feedback on arbitrary packets, with an arbitrary time.
    fn false_feedback(&self, story: &mut Story<'_>, out: &mut Vec<u8>) {
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

    /// Lets `span` pass. Handles deadlines on time, up to a limit.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..MAX_DEADLINES {
            self.settle();
            match self.timer() {
                Some((at, _)) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
        }
        self.now = end;
        self.settle();
    }

    /// The next timer. All output was fetched before.
    fn timer(&mut self) -> Option<(Time, TimerReason)> {
        let mut cx = cx(self.now, &mut self.rng);
        let output = self.sender.poll(&mut cx, &mut Vec::new());
        assert_eq!(output.transmit(), None);
        output.timer()
    }

    /// Handles all timers that are due, and output.
    fn settle(&mut self) {
        self.turn();
        let mut wakes = 0;
        while let Some((_, why)) = self.timer().filter(|t| t.0 <= self.now) {
            wakes += 1;
            assert!(wakes <= MAX_WAKES, "{why:?} wakes endlessly");
            self.sender
                .handle(&mut cx(self.now, &mut self.rng), Input::Timeout);
            self.turn();
        }
        let held = self.sender.held();
        assert!(held.packets <= 32_768 && held.repairs <= 34_000, "{held:?}");
        assert!(held.kept <= 240 && held.datagrams == 0, "{held:?}");
        assert!(held.captures <= 61 && held.probes < 32_768, "{held:?}");
        assert!(held.backlog <= Bytes(17 << 20), "{held:?}");
        assert_eq!(held.in_flight, self.contract().bytes);
    }

    fn turn(&mut self) {
        let mut cx = cx(self.now, &mut self.rng);
        while let Some(order) = self.sender.poll_order(&mut cx) {
            self.sender
                .on_encoded(self.now, encode(&order, self.manner));
        }
        let mut buffer = Vec::new();
        for count in 0.. {
            assert!(count < MAX_PACKETS, "endless packets");
            buffer.clear();
            let sent = self.sender.poll(&mut cx, &mut buffer).transmit();
            if sent.is_none() {
                assert!(buffer.is_empty());
                break;
            }
            if rtcp::is_rtcp(&buffer) {
                assert_eq!(rtcp::form(&buffer), Ok(rtcp::Form::Compound));
                continue;
            }
            assert!(Bytes(buffer.len() as u64) + OVERHEAD <= self.config.packet_size);
            let packet = RtpPacket::new_checked(&buffer).expect("the sender emits valid packets");
            let element = packet.extension().and_then(|e| e.elements().next());
            let header = packet.header();
            let is_probe = header.ssrc == self.config.streams.probe_ssrc;
            assert_eq!(element.is_some(), self.config.transport_cc && !is_probe);
            if let Some((_, &[high, low])) = element {
                let number = u16::from_be_bytes([high, low]);
                self.transport.push_back((number, self.now));
                if self.transport.len() > 1_024 {
                    self.transport.pop_front();
                }
            }
            let streams = ssrcs(self.config.streams);
            let stream = streams.iter().position(|ssrc| *ssrc == header.ssrc);
            let stream = stream.expect("packets of this session only");
            assert!(!packet.payload().is_empty());
            let expected = self.next[stream].unwrap_or(header.sequence);
            assert_eq!(header.sequence, expected, "a gap in the sequence numbers");
            self.next[stream] = Some(header.sequence.wrapping_add(1));
            self.sent.push_back((header.ssrc, header.sequence, cx.now));
            self.sent.drain(..self.sent.len().saturating_sub(512));
        }
    }

    fn contract(&self) -> std::sync::MutexGuard<'_, Contract> {
        let lock = self.contract.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The SSRCs of the session, that of probes last.
fn ssrcs(streams: Streams) -> [u32; 4] {
    let [media, repair, parity] = streams.ssrcs();
    [media, repair, parity, streams.probe_ssrc]
}

/// Frames of various kinds, selected by `manner`.
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
        leading: false,
        data,
        quality: None,
    })
}

/// State of the guarantees that a controller can rely on, see [`RateController`].
#[derive(Debug, Default)]
struct Contract {
    now: Time,
    next: u64,
    /// Sent packets without a reported fate.
    out: BTreeMap<u64, Sent>,
    /// Sum of their sizes.
    bytes: Bytes,
    /// Number of dummy packets, and those among them without a reported arrival.
    dummies: u64,
    dummies_out: BTreeSet<u64>,
}

impl Contract {
    fn take(&mut self, seq: u64) -> Option<Sent> {
        let sent = self.out.remove(&seq)?;
        self.bytes -= sent.size;
        Some(sent)
    }
}

/// A controller that asserts these guarantees.
#[derive(Debug)]
struct Watched {
    inner: RateControl,
    contract: Arc<Mutex<Contract>>,
}

impl Watched {
    fn check(&self, now: Time, check: impl FnOnce(&mut Contract)) {
        let lock = self.contract.lock();
        let mut contract = lock.unwrap_or_else(PoisonError::into_inner);
        assert!(now >= contract.now, "time runs backwards");
        contract.now = now;
        check(&mut contract);
    }
}

impl RateController for Watched {
    fn on_sent(&mut self, cx: &mut Context<'_>, packet: &Sent, _: &mut Path) {
        self.check(cx.now, |contract| {
            if packet.kind == Kind::Dummy {
                contract.dummies += 1;
                assert!(contract.dummies_out.insert(packet.seq));
                return;
            }
            assert_eq!(packet.seq, contract.next);
            contract.next += 1;
            contract.out.insert(packet.seq, *packet);
            contract.bytes += packet.size;
            if packet.seq >= 32_768 {
                // Packets that the sender has forgotten are not reported.
                contract.take(packet.seq - 32_768);
            }
        });
        self.inner.on_sent(cx, packet);
    }

    fn on_report(&mut self, cx: &mut Context<'_>, report: &Report<'_>, _: &mut Path) {
        self.check(cx.now, |contract| {
            let mut last = None;
            for fate in report.packets {
                assert!(last < Some(fate.seq), "outcomes are not in sending order");
                last = Some(fate.seq);
                let sent = contract.take(fate.seq);
                assert_eq!(
                    sent.map(|s| s.size),
                    Some(fate.size),
                    "a second fate for a packet"
                );
                assert!(fate.sent <= cx.now);
            }
            for dummy in report.dummies {
                assert!(contract.dummies_out.remove(&dummy.seq), "{dummy:?}");
                assert!(dummy.outcome.is_received() && dummy.sent <= cx.now);
            }
        });
        self.inner.on_report(cx, report);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>, _: &mut Path) {
        self.check(cx.now, |_| {});
        self.inner.on_timeout(cx);
    }

    fn on_change(&mut self, cx: &mut Context<'_>, change: &Change, _: &mut Path) {
        self.check(cx.now, |contract| {
            if let Change::Path { .. } = change {
                // Packets of the old path are no longer reported.
                (contract.out, contract.bytes) = Default::default();
            }
        });
        self.inner.on_change(cx, change);
    }

    fn target(&self) -> Target {
        *self.inner.target()
    }

    fn next_timeout(&self, _: &Path) -> Option<(Time, TimerReason)> {
        self.inner.next_timeout()
    }

    fn summary(&self, _: &Path) -> Summary {
        self.inner.summary()
    }
}

const HOP: Duration = Duration::from_millis(40);
const RECOVERY: Duration = Duration::from_secs(3);
/// Pause after a trip for congestion (RFC 8083 leaves it open), and the probes after it.
const BREAKER_PAUSE: Duration = Duration::from_secs(45);

/// Limit at one time: a second of frames of 10 kB in packets of 100 bytes.
const MAX_PACKETS: u32 = 30_000;
