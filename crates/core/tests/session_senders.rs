//! A receiver of streams as other senders make them: headers, limits of access units, padding.

use core::time::Duration;

use tidegate_core::control::{Context, Ecn};
use tidegate_core::endpoint::{Datagram, Endpoint as _, Input};
use tidegate_core::random::Seed;
use tidegate_core::session::config::{FeedbackMode, MEDIA_TYPE, ReceiverConfig};
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::units::Time;
use tidegate_core::wire::rtcp::{self, Cname, Rtcp};
use tidegate_core::wire::rtp::RtpHeader;

#[test]
fn header_parts_and_padding_change_nothing() {
    type Change = fn(&mut Sender);
    let changes: [Change; 4] = [
        |_| (),
        |sender| sender.padding = 17,
        |sender| (sender.csrcs, sender.extension) = (3, 4),
        |sender| sender.padding_only = true,
    ];
    for (case, change) in changes.into_iter().enumerate() {
        let mut sender = Sender::new();
        change(&mut sender);
        let mut receiver = Receiver::new();
        for n in 0..180 {
            sender.frame(&mut receiver, n);
        }
        let (whole, lost) = receiver.frames();
        assert_eq!((whole.len(), lost), (180, 0), "case {case}");
        assert!(whole.into_iter().eq(0..180), "case {case}");
    }
}

/// Presentation times of pictures in decoding order, two B pictures between each two others.
#[test]
fn pictures_arrive_in_decoding_order() {
    let (mut sender, mut receiver) = (Sender::new(), Receiver::new());
    let order = |n: u64| match n {
        0 => 0,
        n if n % 3 == 1 => n + 2,
        n => n - 1,
    };
    for n in 0..121 {
        sender.picture(&mut receiver, n, order(n));
    }
    let (whole, lost) = receiver.frames();
    assert_eq!(lost, 0);
    assert!(whole.into_iter().eq((0..121).map(order)));
}

/// Encoders and senders that restart: with numbers or timestamps of their own, or with all.
#[test]
fn a_restart_loses_no_frame() {
    type Change = fn(&mut Sender);
    let restarts: [(Change, u64); 7] = [
        // Two frames, half a second, an hour back; an hour ahead.
        (|sender| sender.offset = 0_u32.wrapping_sub(6_000), 400),
        (|sender| sender.offset = 0_u32.wrapping_sub(45_000), 400),
        (
            |sender| sender.offset = 0_u32.wrapping_sub(324_000_000),
            400,
        ),
        (|sender| sender.offset = 324_000_000, 400),
        (|sender| (sender.seq, sender.offset) = (40_000, 7), 400),
        // Numbers of packets that are not that late, at the time of the next frame.
        (|sender| sender.seq = sender.seq.wrapping_sub(110), 400),
        (
            |sender| (sender.ssrc, sender.seq, sender.offset) = (8, 7, 7),
            3_000,
        ),
    ];
    for (case, (restart, bound)) in restarts.into_iter().enumerate() {
        let (mut sender, mut receiver) = (Sender::new(), Receiver::new());
        let (mut whole, mut longest) = (0, Duration::ZERO);
        let mut last = receiver.now;
        for n in 0..180 {
            if n == 60 {
                restart(&mut sender);
            }
            sender.frame(&mut receiver, n);
            let new = receiver.frames();
            assert_eq!(new.1, 0, "case {case}, frame {n}");
            whole += new.0.len();
            if !new.0.is_empty() {
                longest = longest.max(receiver.now.since(last));
                last = receiver.now;
            }
        }
        assert_eq!(whole, 180, "case {case}");
        assert_eq!(receiver.receiver.rejected(), 0, "case {case}");
        assert_eq!(receiver.receiver.counts(), (360, 0), "case {case}");
        assert!(
            longest <= Duration::from_millis(bound),
            "case {case}: {longest:?}"
        );
    }
}

/// Two sources at a time: the second one has to wait, and gets nothing of the stream.
#[test]
fn a_source_beside_the_stream_is_no_restart() {
    let (mut own, mut other, mut receiver) = (Sender::new(), Sender::new(), Receiver::new());
    other.ssrc = 8;
    for n in 0..180 {
        // Three frames per second each.
        own.picture(&mut receiver, n, 10 * n);
        receiver.now += Duration::from_millis(267);
        other.picture(&mut receiver, n, 10 * n);
    }
    let (whole, lost) = receiver.frames();
    assert_eq!((whole.len(), lost), (180, 0));
    assert!(receiver.receiver.rejected() >= 360);
}

/// A sender that takes key frame requests but no reports on packets gets compound packets with a
/// picture loss indication, until its key frame comes.
#[test]
fn a_key_frame_is_requested_after_a_loss() {
    for (feedback, is_asked) in [
        (FeedbackMode::KeyRequests, true),
        (FeedbackMode::ReceiverReports, false),
    ] {
        let (mut sender, mut receiver) = (Sender::new(), Receiver::with(feedback));
        let mut requests = Vec::new();
        for n in 0..90 {
            sender.seq += u16::from(n == 5);
            // A key frame in frame 60 only.
            let payload: [&[u8]; 2] = match n {
                0 | 60 => [SETS, &[0x65, 0x88, 1]],
                _ => [&[0x41, 0x88, 1], &[0x41, 0x20, 1]],
            };
            sender.packet(&mut receiver, n, false, payload[0]);
            sender.packet(&mut receiver, n, true, payload[1]);
            receiver.now += Duration::from_millis(33);
            for packet in receiver.packets() {
                assert!(rtcp::form(&packet).is_ok());
                let kinds: Vec<_> = rtcp::packets(&packet).flatten().collect();
                let begins = matches!(kinds[0], Rtcp::ReceiverReport(_));
                assert!(begins && matches!(kinds[1], Rtcp::Sdes(_)), "compound");
                for kind in &kinds[2..] {
                    assert!(matches!(kind, Rtcp::Pli(pli) if pli.media == 9), "{kind:?}");
                    requests.push(n);
                }
            }
        }
        assert_eq!(!requests.is_empty(), is_asked, "{requests:?}");
        if is_asked {
            // The loss is given up after 400 ms; requests are 300 ms apart.
            assert!((12..20).contains(&requests[0]), "{requests:?}");
            assert!((4..=5).contains(&requests.len()), "{requests:?}");
            assert!(*requests.last().unwrap() < 61, "{requests:?}");
        }
    }
}

/// A sender with a key frame per second, of two packets per frame.
struct Sender {
    ssrc: u32,
    seq: u16,
    /// Offset of the timestamps.
    offset: u32,
    csrcs: u8,
    /// Words of the header extension; zero without one.
    extension: u16,
    padding: u8,
    /// A packet of padding after each tenth frame.
    padding_only: bool,
}

impl Sender {
    fn new() -> Self {
        Self {
            ssrc: 9,
            seq: 65_500,
            offset: 0,
            csrcs: 0,
            extension: 0,
            padding: 0,
            padding_only: false,
        }
    }

    fn frame(&mut self, receiver: &mut Receiver, n: u64) {
        self.picture(receiver, n, n);
        if self.padding_only && n % 10 == 9 {
            let before = core::mem::replace(&mut self.padding, 200);
            self.packet(receiver, n, false, &[]);
            self.padding = before;
        }
    }

    fn picture(&mut self, receiver: &mut Receiver, n: u64, presented: u64) {
        if n.is_multiple_of(30) {
            self.packet(receiver, presented, false, SETS);
            self.packet(receiver, presented, true, &[0x65, 0x88, 1]);
        } else {
            self.packet(receiver, presented, false, &[0x41, 0x88, 1]);
            self.packet(receiver, presented, true, &[0x41, 0x20, 1]);
        }
        receiver.now += Duration::from_millis(33);
    }

    fn packet(&mut self, receiver: &mut Receiver, time: u64, marker: bool, payload: &[u8]) {
        let header = RtpHeader {
            payload_type: MEDIA_TYPE,
            sequence: self.seq,
            timestamp: 4_294_960_000_u32
                .wrapping_add(time as u32 * STEP)
                .wrapping_add(self.offset),
            ssrc: self.ssrc,
            marker,
        };
        self.seq = self.seq.wrapping_add(1);
        let mut out = Vec::new();
        header.emit(&mut out);
        out[0] |= self.csrcs;
        out.extend((0..self.csrcs).flat_map(|csrc| [0xc0, 0, 0, csrc]));
        if self.extension > 0 {
            out[0] |= 0x10;
            out.extend([0xbe, 0xde]);
            out.extend(self.extension.to_be_bytes());
            out.extend((0..self.extension).flat_map(|_| [0x10, 0xaa, 0, 0]));
        }
        out.extend(payload);
        if self.padding > 0 {
            out[0] |= 0x20;
            out.extend((1..self.padding).map(|_| 0));
            out.push(self.padding);
        }
        receiver.deliver(&out);
    }
}

struct Receiver {
    receiver: MediaReceiver,
    now: Time,
}

impl Receiver {
    fn new() -> Self {
        Self::with(FeedbackMode::PerPacket)
    }

    fn with(feedback: FeedbackMode) -> Self {
        let name = Cname::new("receiver@example").unwrap();
        let mut config = ReceiverConfig::new(3, name, Duration::from_millis(400));
        config.feedback = feedback;
        Self {
            receiver: MediaReceiver::new(config),
            now: Time::from_secs(5),
        }
    }

    fn deliver(&mut self, payload: &[u8]) {
        let mut rng = Seed(1).stream("receiver");
        let mut cx = Context {
            now: self.now,
            rng: &mut rng,
            trace: &mut (),
        };
        let ecn = Ecn::NotEct;
        self.receiver.handle(&mut cx, Input::Timeout);
        self.receiver.handle(
            &mut cx,
            Input::Datagram(Datagram {
                ecn,
                dscp: 0,
                payload,
            }),
        );
    }

    /// Datagrams that the receiver sends.
    fn packets(&mut self) -> Vec<Vec<u8>> {
        let mut rng = Seed(1).stream("receiver");
        let mut cx = Context {
            now: self.now,
            rng: &mut rng,
            trace: &mut (),
        };
        self.receiver.handle(&mut cx, Input::Timeout);
        let mut packets = Vec::new();
        let mut packet = Vec::new();
        while self
            .receiver
            .poll(&mut cx, &mut packet)
            .transmit()
            .is_some()
        {
            packets.push(std::mem::take(&mut packet));
        }
        packets
    }

    /// Presentation numbers of the whole frames so far, and the number of others.
    fn frames(&mut self) -> (Vec<u64>, usize) {
        let (mut whole, mut lost) = (Vec::new(), 0);
        let first = (1 << 32) + 4_294_960_000;
        while let Some(frame) = self.receiver.poll_frame() {
            if frame.complete.is_some() {
                whole.push(frame.timestamp.wrapping_sub(first) / u64::from(STEP));
            } else {
                lost += 1;
            }
        }
        (whole, lost)
    }
}

/// A sequence and a picture parameter set in one packet.
const SETS: &[u8] = &[0x78, 0, 4, 0x67, 0x42, 0, 0x1f, 0, 2, 0x68, 0xce];
/// Ticks between two frames.
const STEP: u32 = 3_000;
