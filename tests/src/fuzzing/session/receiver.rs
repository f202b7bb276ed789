//! A receiver with an untrusted peer.

use core::time::Duration;

use rand_pcg::Pcg64Mcg;

use super::{MAX_DEADLINES, MAX_WAKES, MEDIA, PEER, REPAIR, Story, cx, name, ssrc};
use tidegate_core::control::{Ecn, TimerReason};
use tidegate_core::endpoint::{Datagram, Endpoint as _, Input};
use tidegate_core::random::Seed;
use tidegate_core::session::config::{
    FeedbackMode, MEDIA_TYPE, PARITY_TYPE, PROBE_TYPE, REPAIR_TYPE, ReceiverConfig,
};
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::units::Time;
use tidegate_core::wire::ntp::Ntp;
use tidegate_core::wire::parity::{Block, Parity};
use tidegate_core::wire::rtcp::{self, Rtcp, SenderInfo};
use tidegate_core::wire::rtp::RtpHeader;
use tidegate_core::wire::rtx::RtxPayload;

/// A receiver with an untrusted peer.
pub fn receiver(data: &[u8]) {
    let mut story = Story::new(data);
    let mut scene = ReceiverScene::new(&mut story);
    while !story.is_over() {
        scene.act(&mut story);
        scene.settle();
    }
    scene.recover();
    scene.receiver.finish();
    scene.watch_frames();
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
    key_requested: bool,
    conceals: bool,
}

impl ReceiverScene {
    fn new(story: &mut Story<'_>) -> Self {
        let mut config = ReceiverConfig::new(PEER, name(), Duration::from_millis(300));
        let choice = story.byte();
        config.feedback = match choice & 3 {
            1 => FeedbackMode::ReceiverReports,
            3 => FeedbackMode::KeyRequests,
            _ => FeedbackMode::PerPacket,
        };
        config.conceal = choice & 4 == 4;
        Self {
            conceals: config.conceal,
            receiver: MediaReceiver::new(config),
            rng: Seed(1).stream("fuzz"),
            now: Time::from_secs(1),
            seq: story.word(),
            timestamp: u32::from(story.word()) << 16,
            last_out: None,
            decodable: false,
            restarts: 0,
            key_requested: false,
        }
    }

    fn act(&mut self, story: &mut Story<'_>) {
        match story.byte() % 9 {
            0 => self.pass(story.span()),
            1 => {
                if let Some((at, _)) = self.timer() {
                    self.now = self.now.max(at.min(self.now + Duration::from_secs(30)));
                }
            }
            2 => {
                let len = usize::from(story.byte());
                self.deliver(story.take(len), Ecn::NotEct);
            }
            3 => self.jump(story),
            4 => self.sender_reports(story),
            5 => self.receiver.on_decoder_trouble(self.now),
            _ => self.frames(story),
        }
    }

    /// A frame of an honest sender is shown within [`RECOVERY`], whatever came before.
    fn recover(&mut self) {
        let (end, first) = (self.now + RECOVERY, self.timestamp);
        let (mut shown, mut last_key) = (false, None);
        while self.now < end {
            let due = last_key.is_none_or(|at| self.now.since(at) >= Duration::from_secs(1));
            if due || core::mem::take(&mut self.key_requested) {
                last_key = Some(self.now);
            }
            let key = last_key == Some(self.now);
            let header = RtpHeader {
                payload_type: MEDIA_TYPE,
                sequence: self.seq,
                timestamp: self.timestamp,
                ssrc: MEDIA,
                marker: true,
            };
            let payload = if key { KEY_FRAME } else { &[0x41, 0x88, 0, 0] };
            self.packet(header, payload, Ecn::NotEct);
            let since = |timestamp: u64| (timestamp as u32).wrapping_sub(first);
            let is_honest = self.last_out.is_some_and(|at| since(at) < 60 * 90_000);
            shown |= self.decodable && is_honest;
            self.seq = self.seq.wrapping_add(1);
            self.timestamp = self.timestamp.wrapping_add(3_000);
            self.pass(Duration::from_millis(33));
        }
        assert!(shown, "the stream of an honest sender is not shown");
    }

    /// One packet with arbitrary numbers.
    fn jump(&mut self, story: &mut Story<'_>) {
        let choice = story.byte();
        let header = RtpHeader {
            payload_type: match (choice >> 7, choice & 1) {
                (1, 1) => PROBE_TYPE,
                (1, _) => PARITY_TYPE,
                (_, 0) => MEDIA_TYPE,
                _ => REPAIR_TYPE,
            },
            sequence: self.seq.wrapping_add(story.word()),
            timestamp: self.timestamp.wrapping_add(u32::from(story.word()) << 16),
            ssrc: ssrc(story),
            marker: choice & 2 == 2,
        };
        let len = usize::from(story.byte());
        let ecn = Ecn::from_bits(choice >> 2);
        if header.payload_type == PARITY_TYPE {
            let block = Block {
                first: self.seq.wrapping_sub(u16::from(story.byte())),
                media: story.byte() % 130,
                parity: story.byte() % 34,
            };
            let index = story.byte() % 34;
            let shard = story.take(len);
            let mut payload = Vec::new();
            Parity {
                block,
                index,
                shard,
            }
            .emit(&mut payload);
            return self.packet(header, &payload, ecn);
        }
        self.packet(header, story.take(len), ecn);
    }

    /// Packets of a valid sender, with losses and reordering.
    fn frames(&mut self, story: &mut Story<'_>) {
        let (count, losses) = (story.byte() % 40, story.byte());
        let key = story.byte() & 1 == 0;
        for i in 0..count {
            let (first, last) = (i % 3 == 0, i % 3 == 2 || i + 1 == count);
            let unit = if key && i < 3 { 0x65 } else { 0x41 };
            let slice = [unit, if first { 0x88 } else { 0x10 }, 0, i];
            let payload = if key && i == 0 { KEY_FRAME } else { &slice };
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
                0 => self.packet(header, payload, Ecn::Ect0),
                // Lost; every second one is retransmitted.
                _ if i % 2 == 0 => {
                    let mut repair = Vec::new();
                    let original_sequence = header.sequence;
                    RtxPayload {
                        original_sequence,
                        payload,
                    }
                    .emit(&mut repair);
                    (header.payload_type, header.ssrc) = (REPAIR_TYPE, REPAIR);
                    self.packet(header, &repair, Ecn::Ect0);
                }
                _ => {}
            }
        }
    }

    fn sender_reports(&mut self, story: &mut Story<'_>) {
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
        self.receiver.handle(
            &mut cx,
            Input::Datagram(Datagram {
                ecn,
                dscp: 0,
                payload,
            }),
        );
        self.settle();
    }

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
    }

    /// The next timer. All output was fetched before.
    fn timer(&mut self) -> Option<(Time, TimerReason)> {
        let mut cx = cx(self.now, &mut self.rng);
        let output = self.receiver.poll(&mut cx, &mut Vec::new());
        assert_eq!(output.transmit(), None);
        output.timer()
    }

    /// Handles all timers that are due, and output.
    fn settle(&mut self) {
        self.drain();
        let mut wakes = 0;
        while let Some((_, why)) = self.timer().filter(|t| t.0 <= self.now) {
            wakes += 1;
            assert!(wakes <= MAX_WAKES, "{why:?} wakes endlessly");
            self.receiver
                .handle(&mut cx(self.now, &mut self.rng), Input::Timeout);
            self.drain();
        }
        let held = self.receiver.held();
        assert!(
            held.packets <= 4_097 && held.arrivals <= 3 * 4_096,
            "{held:?}"
        );
        assert!(held.bytes <= (16 << 20) + 65_536, "{held:?}");
        self.watch_frames();
    }

    fn drain(&mut self) {
        let mut buffer = Vec::new();
        for count in 0.. {
            assert!(count < MAX_WAKES, "endless packets");
            buffer.clear();
            let mut cx = cx(self.now, &mut self.rng);
            if self
                .receiver
                .poll(&mut cx, &mut buffer)
                .transmit()
                .is_none()
            {
                return;
            }
            assert!(buffer.len() <= 2_500, "{}", buffer.len());
            assert!(rtcp::form(&buffer).is_ok());
            for packet in rtcp::packets(&buffer).flatten() {
                match packet {
                    Rtcp::Ccfb(ccfb) => assert!(ccfb.blocks().all(|b| b.len() <= 500)),
                    Rtcp::Nack(nack) => assert!(nack.lost().count() <= 64),
                    Rtcp::Pli(_) => self.key_requested = true,
                    _ => {}
                }
            }
        }
    }

    /// Only decodable frames have a completion time.
    fn watch_frames(&mut self) {
        let restarts = self.receiver.held().restarts;
        if restarts > self.restarts {
            // The rest of one stream and the beginning of another.
            let last = core::iter::from_fn(|| self.receiver.poll_frame()).last();
            self.decodable = last.is_some_and(|frame| frame.complete.is_some());
            self.last_out = None;
            self.restarts = restarts;
        }
        while let Some(frame) = self.receiver.poll_frame() {
            self.last_out = Some(frame.timestamp);
            let whole = frame.complete.is_some();
            let has_data = !frame.data.is_empty();
            assert!(if whole {
                has_data
            } else {
                self.conceals || !has_data
            });
            assert!(
                !whole || frame.key || self.decodable,
                "the reference frame is missing"
            );
            self.decodable = whole;
        }
    }
}

/// Two seconds until a silent or foreign source may be replaced, and a key frame.
const RECOVERY: Duration = Duration::from_secs(4);
/// Parameter sets and the first slice of an IDR picture, aggregated.
const KEY_FRAME: &[u8] = &[0x78, 0, 2, 0x67, 0x42, 0, 2, 0x68, 0xce, 0, 2, 0x65, 0x88];
