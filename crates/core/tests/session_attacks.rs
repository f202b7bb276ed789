//! Sender and receiver under forged packets. The attacker knows what the comments of each test
//! state: nothing, the address of a port, or the packets of the session.

use core::time::Duration;
use std::collections::VecDeque;

use tidegate_core::control::{Algorithm as _, Context, Demand, Ecn, Start};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::endpoint::{Datagram, Endpoint as _, Input};
use tidegate_core::media::Encoded;
use tidegate_core::random::Seed;
use tidegate_core::session::config::{
    FeedbackMode, MEDIA_TYPE, REPAIR_TYPE, ReceiverConfig, SenderConfig, Streams,
};
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::session::sender::MediaSender;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::ccfb::{CcfbBuilder, Received};
use tidegate_core::wire::ntp::Ntp;
use tidegate_core::wire::rtcp::{self, Cname, ReportBlock};
use tidegate_core::wire::rtp::{RtpHeader, RtpPacket};

/// Reports without a block about this stream, with timestamps from a minute behind to hours ahead.
/// The attacker knows nothing.
#[test]
fn reports_about_nothing_change_nothing() {
    let quiet = Session::new().run(10, |_| ());
    let attacked = Session::new().run(10, |session| {
        for (n, seconds) in [(0, 3_600), (1, 60), (2, 36_000)] {
            let mut out = Vec::new();
            let at = Time::from_secs(seconds);
            let mut builder = CcfbBuilder::new(1_000 + n, at, &mut out);
            if n == 1 {
                let packet = Some(Received { ecn: Ecn::Ce, at });
                builder.block(0xdead_beef, 5, [packet]).unwrap();
            }
            builder.finish(EPOCH);
            session.send_to_sender(&out);
        }
    });
    assert_eq!(attacked.media, quiet.media);
    assert_eq!(attacked.frames, quiet.frames);
}

/// Empty blocks about this stream, dated from the future. The attacker knows the SSRC.
#[test]
fn empty_blocks_change_nothing() {
    let quiet = Session::new().run(10, |_| ());
    let attacked = Session::new().run(10, |session| {
        let (mut out, at) = (Vec::new(), Time::from_secs(10_000));
        let mut builder = CcfbBuilder::new(RECEIVER, at, &mut out);
        builder.block(MEDIA, session.newest, []).unwrap();
        builder.finish(EPOCH);
        session.send_to_sender(&out);
    });
    assert_eq!(attacked.media, quiet.media);
}

/// A receiver that is replaced by one whose clock is a minute behind, without any attacker.
#[test]
fn receiver_with_another_clock_is_believed() {
    for shift in [-60_i64, 60, 40_000] {
        let mut session = Session::new();
        session.run_to(5_000, |_| ());
        let before = session.media;
        session.receiver = receiver(FeedbackMode::PerPacket, 8, shift);
        session.run_to(6_000, |_| ());
        let middle = session.media;
        session.run_to(10_000, |_| ());
        let rate = (session.media - middle) / 4;
        assert!(rate * 10 >= before / 5 * 9, "{shift} s: {rate} B/s");
    }
}

/// A receiver with receiver reports only gets the same rate before and after a pause of a minute,
/// without any attacker.
#[test]
fn a_pause_is_no_sign_of_a_slow_path() {
    let mut session = Session::with(FeedbackMode::ReceiverReports);
    session.run_to(42_000, |_| ());
    let before = session.sender.status().target.media;
    session.sender.pause_capture();
    session.run_to(102_000, |_| ());
    session.sender.resume_capture(session.now);
    for second in 103..120 {
        session.run_to(second * 1_000, |_| ());
        let after = session.sender.status().target.media;
        assert!(
            after >= before.scale(3, 4),
            "{before:?}, {after:?} at {second} s"
        );
    }
}

/// Copies of the receiver's reports, stamped 0.55 s ahead, each just after its original. The attacker sees
/// the packets.
#[test]
fn reports_stamped_ahead_change_nothing() {
    let quiet = Session::new().run(20, |_| ());
    let (mut last, mut waiting, mut forged) = (Time::ZERO, VecDeque::new(), 0);
    let attacked = Session::new().run(20, |session| {
        let newest = session.path[1].back().filter(|(at, _)| *at > last);
        let is_attack = (5_000..5_500).contains(&(session.now.as_nanos() / 1_000_000));
        if let Some((at, report)) = newest.filter(|_| is_attack) {
            last = *at;
            if let Some(stamped) = stamped_ahead(report) {
                waiting.push_back((*at, stamped));
            }
        }
        while waiting.front().is_some_and(|(at, _)| *at < session.now) {
            let (_, report) = waiting.pop_front().unwrap();
            session.send_to_sender(&report);
            forged += 1;
        }
    });
    assert!(forged >= 15, "{forged}");
    assert_eq!(attacked.media, quiet.media);
    assert_eq!(attacked.frames, quiet.frames);
}

/// A datagram that ends with congestion control feedback, with a timestamp of 0.55 s later.
fn stamped_ahead(report: &[u8]) -> Option<Vec<u8>> {
    let is_feedback = |packet| matches!(packet, Ok(rtcp::Rtcp::Ccfb(_)));
    let last = rtcp::packets(report).last()?;
    let (start, stamp) = report.split_last_chunk::<4>()?;
    let stamp = u32::from_be_bytes(*stamp).wrapping_add(36_045);
    is_feedback(last).then(|| [start, &stamp.to_be_bytes()].concat())
}

/// CE marks on packets that were sent as Not-ECT. The attacker is a router, or an observer.
#[test]
fn ce_marks_without_ect_are_no_congestion() {
    let quiet = Session::new().run(10, |_| ());
    let mut session = Session::new();
    session.mark = true;
    let marked = session.run(10, |_| ());
    assert_eq!(marked.media, quiet.media);
}

/// Receiver reports of 90 % loss, every millisecond. The attacker knows the session.
#[test]
fn loss_counts_do_not_affect_a_peer_with_per_packet_feedback() {
    let quiet = Session::new().run(20, |_| ());
    let attacked = Session::new().run(20, |session| {
        let block = forged_block(u32::from(session.newest));
        let mut out = Vec::new();
        rtcp::emit_receiver_report(RECEIVER, &[block], &mut out);
        session.send_to_sender(&out);
    });
    assert_eq!(attacked.media, quiet.media);
    assert_eq!(attacked.frames, quiet.frames);
}

/// Receiver reports about packets that were never sent, to the sender of a peer with receiver
/// reports only. The attacker knows the SSRC.
#[test]
fn reports_about_packets_never_sent_change_nothing() {
    let quiet = Session::with(FeedbackMode::ReceiverReports).run(20, |_| ());
    let attacked = Session::with(FeedbackMode::ReceiverReports).run(20, |session| {
        let block = forged_block(u32::from(session.newest) + 2_000);
        let mut out = Vec::new();
        rtcp::emit_receiver_report(RECEIVER, &[block], &mut out);
        session.send_to_sender(&out);
    });
    assert_eq!(attacked.media, quiet.media);
}

fn forged_block(highest_sequence: u32) -> ReportBlock {
    ReportBlock {
        ssrc: MEDIA,
        fraction_lost: 230,
        cumulative_lost: 1 << 20,
        highest_sequence,
        ..ReportBlock::default()
    }
}

/// NACKs of all recent packets, every millisecond. The attacker knows the session.
#[test]
fn nacks_are_not_amplified() {
    for feedback in [FeedbackMode::PerPacket, FeedbackMode::ReceiverReports] {
        let mut session = Session::with(feedback);
        session.run_to(12_000, |session| {
            let mut out = Vec::new();
            let recent = (0..64).map(|back| session.newest.wrapping_sub(back));
            rtcp::emit_nack(RECEIVER, MEDIA, recent, &mut out);
            session.send_to_sender(&out);
        });
        let (media, repairs) = (session.media, session.repairs);
        assert!(repairs * 4 <= media + 4 * 9_600, "{repairs} of {media}");
        // Only requests before the first feedback are granted.
        let most = if feedback == FeedbackMode::PerPacket {
            9_600
        } else {
            u64::MAX
        };
        assert!(repairs <= most, "{repairs}");
    }
}

/// A receiver with receiver reports only gets a packet again that it misses, after its reports as
/// before them.
#[test]
fn a_request_between_receiver_reports_is_granted() {
    let mut session = Session::with(FeedbackMode::ReceiverReports);
    session.run_to(12_000, |_| ());
    assert!(session.sender.status().reports_only);
    for second in 12..20 {
        let before = session.repairs;
        let mut out = Vec::new();
        rtcp::emit_nack(RECEIVER, MEDIA, [session.newest], &mut out);
        session.send_to_sender(&out);
        session.run_to(second * 1_000 + 1_000, |_| ());
        assert!(session.repairs > before, "{second} s");
    }
}

/// One packet with a far sequence number or timestamp, or 200 of them in sequence, with the SSRC of
/// the stream. The attacker knows the session.
#[test]
fn stray_packets_do_not_blind_the_receiver() {
    for (packets, sequence, timestamp) in [
        (1, 0, 900_000),
        (1, 0, 0x7fff_0000),
        (1, 20_000, 0),
        (200, 20_000, 900_000),
        (200, 40_000, 0x8000_0000),
        (200, 0, 0x4000_0000),
    ] {
        let mut session = Session::new();
        session.run_to(3_000, |_| ());
        for n in 0..packets {
            let (newest, shown) = (session.newest, session.timestamp);
            let header = RtpHeader {
                payload_type: MEDIA_TYPE,
                sequence: newest.wrapping_add(sequence + n),
                timestamp: shown.wrapping_add(timestamp),
                ssrc: MEDIA,
                marker: true,
            };
            session.send_to_receiver(&packet(header, KEY_FRAME));
        }
        session.run_to(3_500, |_| ());
        let before = session.frames;
        session.run_to(5_500, |_| ());
        let frames = session.frames - before;
        let case = format!("{packets} packets, {sequence} and {timestamp} ahead");
        assert!(frames >= 45, "{case}: {frames} frames");
    }
}

/// An encoder that restarts: the same SSRC, and sequence numbers and timestamps from elsewhere.
#[test]
fn encoder_restart_is_followed() {
    let mut receiver = receiver(FeedbackMode::PerPacket, RECEIVER, 0);
    let mut rng = Seed(1).stream("receiver");
    let (mut frames, mut requested) = (0, false);
    for n in 0..180_u32 {
        let (sequence, timestamp) = match n {
            0..90 => (n, n * 3_000),
            _ => (30_000 + n, 0x9000_0000 + n * 3_000),
        };
        let header = RtpHeader {
            payload_type: MEDIA_TYPE,
            sequence: sequence as u16,
            timestamp,
            ssrc: MEDIA,
            marker: true,
        };
        // A key frame at the start, and as soon as one is requested.
        let payload = if n == 0 || core::mem::take(&mut requested) {
            KEY_FRAME
        } else {
            DELTA_FRAME
        };
        let mut cx = Context {
            now: Time::from_millis(1_000 + u64::from(n) * 33),
            rng: &mut rng,
            trace: &mut (),
        };
        receiver.handle(&mut cx, Input::Timeout);
        receiver.handle(&mut cx, Input::Datagram(datagram(&packet(header, payload))));
        let mut out = Vec::new();
        while receiver.poll(&mut cx, &mut out).transmit().is_some() {
            let is_pli = |p| matches!(p, Ok(rtcp::Rtcp::Pli(_)));
            requested |= rtcp::packets(&out).any(is_pli);
            out.clear();
        }
        let decodable = |frame: &Option<_>| frame.is_some();
        let fetched = core::iter::from_fn(|| receiver.poll_frame());
        frames += fetched.filter(|f| decodable(&f.complete)).count();
    }
    assert!(frames >= 160, "{frames}");
}

/// A stranger sends media with an SSRC of its own while the owner is silent, and goes on when the
/// owner is back.
#[test]
fn owner_has_precedence_over_a_stranger() {
    let mut session = Session::new();
    session.run_to(3_000, |_| ());
    session.cut = true;
    let stranger = |session: &mut Session, n: u32| {
        let header = RtpHeader {
            payload_type: MEDIA_TYPE,
            sequence: n as u16,
            timestamp: n * 90,
            ssrc: 666,
            marker: true,
        };
        session.send_to_receiver(&packet(header, KEY_FRAME));
    };
    let mut n = 0;
    session.run_to(6_000, |session| {
        n += 1;
        stranger(session, n);
    });
    session.cut = false;
    session.run_to(7_500, |session| {
        n += 1;
        stranger(session, n);
    });
    let before = session.owned;
    session.run_to(9_500, |session| {
        n += 1;
        stranger(session, n);
    });
    let frames = session.owned - before;
    assert!(frames >= 55, "{frames} frames of the owner");
}

/// Sender and receiver on a path of 20 ms each way and 4 Mb/s, with an attacker.
struct Session {
    now: Time,
    sender: MediaSender,
    receiver: MediaReceiver,
    rng: rand_pcg::Pcg64Mcg,
    /// Packets on the path, with their arrival times: to the receiver, and to the sender.
    path: [VecDeque<(Time, Vec<u8>)>; 2],
    /// All media arrives with a CE mark.
    mark: bool,
    /// The path to the receiver is cut.
    cut: bool,
    /// Newest sequence number and timestamp of the sender.
    newest: u16,
    timestamp: u32,
    /// Bytes sent.
    media: u64,
    repairs: u64,
    /// Decodable frames, and those with the length of the sender's.
    frames: u64,
    owned: u64,
}

impl Session {
    fn new() -> Self {
        Self::with(FeedbackMode::PerPacket)
    }

    fn with(feedback: FeedbackMode) -> Self {
        let name = Cname::new("sender@example").unwrap();
        let mut config = SenderConfig::new(Streams::with_ssrcs(MEDIA, MEDIA + 1), name);
        config.epoch = EPOCH;
        config.rates = (Rate::kbps(150), Rate::kbps(3_000));
        config.delay_bound = Some(Duration::from_millis(400));
        let demand = Demand {
            floor: config.rates.0,
            ceiling: config.rates.1,
            shares: 1,
        };
        let start = Start::new(Time::ZERO, config.packet_size, demand);
        let controller = ControllerConfig::default().start(&start);
        let mut rng = Seed(1).stream("attack");
        Self {
            now: Time::ZERO,
            sender: MediaSender::new(config, controller, None, &mut rng),
            receiver: receiver(feedback, RECEIVER, 0),
            rng,
            path: Default::default(),
            mark: false,
            cut: false,
            newest: 0,
            timestamp: 0,
            media: 0,
            repairs: 0,
            frames: 0,
            owned: 0,
        }
    }

    fn run(mut self, seconds: u64, attack: impl FnMut(&mut Self)) -> Self {
        self.run_to(seconds * 1_000, attack);
        self
    }

    /// Runs in steps of 1 ms to `end` in ms, with one call of `attack` per step.
    fn run_to(&mut self, end: u64, mut attack: impl FnMut(&mut Self)) {
        while self.now < Time::from_millis(end) {
            self.now += Duration::from_millis(1);
            self.step();
            attack(self);
        }
    }

    fn step(&mut self) {
        let now = self.now;
        let arrived = |path: &mut VecDeque<(Time, Vec<u8>)>| {
            let due = path.front().is_some_and(|(at, _)| *at <= now);
            due.then(|| path.pop_front()).flatten()
        };
        while let Some((_, packet)) = arrived(&mut self.path[0]) {
            self.send_to_receiver(&packet);
        }
        while let Some((_, packet)) = arrived(&mut self.path[1]) {
            self.send_to_sender(&packet);
        }
        let mut cx = Context {
            now,
            rng: &mut self.rng,
            trace: &mut (),
        };
        self.sender.handle(&mut cx, Input::Timeout);
        while let Some(order) = self.sender.poll_order(&mut cx) {
            let size = order.rate * Duration::from_millis(33);
            let mut data = vec![0, 0, 0, 1, if order.key { 0x65 } else { 0x61 }, 0x88];
            data.resize(size.get().max(100) as usize, 0xff);
            if order.key {
                data.splice(0..0, [0, 0, 0, 1, 0x67, 0x42, 0, 0, 0, 1, 0x68, 0xce]);
            }
            let encoded = Encoded {
                frame: order.frame,
                captured: order.captured,
                key: order.key,
                leading: false,
                data,
                quality: None,
            };
            self.sender.on_encoded(now, Ok(encoded));
        }
        let mut out = Vec::new();
        while self.sender.poll(&mut cx, &mut out).transmit().is_some() {
            if let Ok(packet) = RtpPacket::new_checked(&out)
                && !rtcp::is_rtcp(&out)
            {
                let header = packet.header();
                if header.payload_type == REPAIR_TYPE {
                    self.repairs += out.len() as u64;
                } else {
                    self.media += out.len() as u64;
                    (self.newest, self.timestamp) = (header.sequence, header.timestamp);
                }
            }
            if !self.cut {
                let busy = self.path[0].back().map_or(now, |(at, _)| *at);
                let gap = Bytes(out.len() as u64) / Rate::kbps(4_000);
                let at = (now + DELAY).max(busy + gap);
                self.path[0].push_back((at, out.clone()));
            }
            out.clear();
        }
        self.receiver.handle(&mut cx, Input::Timeout);
        while self.receiver.poll(&mut cx, &mut out).transmit().is_some() {
            self.path[1].push_back((now + DELAY, core::mem::take(&mut out)));
        }
        while let Some(frame) = self.receiver.poll_frame() {
            if frame.complete.is_some() {
                self.frames += 1;
                self.owned += u64::from(frame.data.len() > 50);
            }
        }
    }

    fn send_to_sender(&mut self, packet: &[u8]) {
        let mut cx = Context {
            now: self.now,
            rng: &mut self.rng,
            trace: &mut (),
        };
        self.sender
            .handle(&mut cx, Input::Datagram(datagram(packet)));
    }

    fn send_to_receiver(&mut self, packet: &[u8]) {
        let mut cx = Context {
            now: self.now,
            rng: &mut self.rng,
            trace: &mut (),
        };
        let ecn = if self.mark { Ecn::Ce } else { Ecn::NotEct };
        let payload = packet;
        self.receiver.handle(
            &mut cx,
            Input::Datagram(Datagram {
                ecn,
                dscp: 0,
                payload,
            }),
        );
    }
}

/// A receiver whose clock differs by `shift` seconds.
fn receiver(feedback: FeedbackMode, ssrc: u32, shift: i64) -> MediaReceiver {
    let name = Cname::new("receiver@example").unwrap();
    let mut config = ReceiverConfig::new(ssrc, name, Duration::from_millis(400));
    config.feedback = feedback;
    config.epoch = Ntp(EPOCH.0.wrapping_add_signed(shift << 32));
    MediaReceiver::new(config)
}

fn packet(header: RtpHeader, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    header.emit(&mut out);
    out.extend_from_slice(payload);
    out
}

fn datagram(payload: &[u8]) -> Datagram<'_> {
    Datagram {
        ecn: Ecn::NotEct,
        dscp: 0,
        payload,
    }
}

const MEDIA: u32 = 0x1234_5678;
const RECEIVER: u32 = 7;
const EPOCH: Ntp = Ntp(0xe800_0000_0000_0000);
const DELAY: Duration = Duration::from_millis(20);
/// Parameter sets and a slice in one packet; a slice alone.
const KEY_FRAME: &[u8] = &[0x78, 0, 2, 0x67, 0x42, 0, 2, 0x68, 0xce, 0, 2, 0x65, 0x88];
const DELTA_FRAME: &[u8] = &[0x61, 0x88];
