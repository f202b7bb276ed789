//! Acceptance of peers: a receiver whose sender restarts, and a sender before its first packet.

use core::time::Duration;

use tidegate_core::control::{Context, Ecn};
use tidegate_core::controller::fixed::Fixed;
use tidegate_core::endpoint::{Datagram, Endpoint as _, Input};
use tidegate_core::media::Encoded;
use tidegate_core::random::Seed;
use tidegate_core::session::config::{
    MEDIA_TYPE, REPAIR_TYPE, ReceiverConfig, SenderConfig, Streams,
};
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::session::sender::MediaSender;
use tidegate_core::trace::{Event, FeedbackFault};
use tidegate_core::units::{Rate, Time};
use tidegate_core::wire::ntp::{Ntp, NtpShort};
use tidegate_core::wire::rtcp::{self, Cname, Pli, ReportBlock, Rtcp, SenderInfo};
use tidegate_core::wire::rtp::RtpHeader;
use tidegate_core::wire::rtx::RtxPayload;

#[test]
fn a_restarted_sender_is_accepted_and_its_losses_are_repaired() {
    // The numbers of the second stream precede those of the first under any unwrapping.
    let mut harness = Harness::new();
    harness.frame(0, header(1, 60_000, 0xf000_0000), true);
    harness.frame(33, header(1, 60_001, 0xf000_0bb8), false);
    assert_eq!(harness.decodable(), 2);

    // While the first sender is active, another SSRC is rejected.
    harness.frame(60, header(2, 100, 5), true);
    assert_eq!((harness.decodable(), harness.receiver.rejected()), (0, 1));

    // A single packet is in probation.
    harness.frame(3_000, header(2, 101, 5), true);
    assert_eq!(harness.decodable(), 0);
    harness.frame(3_033, header(2, 102, 3_005), false);
    harness.frame(3_100, header(2, 104, 9_005), false);
    assert_eq!(harness.decodable(), 2, "the third frame is missing");
    harness.repair(3_120, header(12, 7, 6_005), 103);
    assert_eq!(harness.decodable(), 2);
    assert_eq!(harness.receiver.rejected(), 1);
}

#[test]
fn after_a_bye_another_sender_is_accepted_at_once() {
    let mut harness = Harness::new();
    harness.frame(0, header(1, 500, 90_000), true);
    harness.frame(0, header(1, 501, 90_000 + 3_000), false);
    let mut bye = Vec::new();
    rtcp::emit_bye(&[1], None, &mut bye);
    harness.deliver(100, &bye);
    harness.frame(200, header(2, 9, 17), true);
    harness.frame(233, header(2, 10, 3_017), false);
    assert_eq!(harness.decodable(), 4);
    assert!(!harness.receiver.has_ended());
}

/// A sender that pauses sends sender reports alone.
#[test]
fn sender_reports_of_the_source_show_that_the_sender_runs() {
    let mut harness = Harness::new();
    harness.frame(0, header(1, 500, 90_000), true);
    harness.frame(33, header(1, 501, 93_000), false);
    let media = Some(Time::from_millis(10_033));
    assert_eq!(harness.receiver.last_life(), media);
    harness.sender_report(5_000, 2);
    harness.sender_report(6_000, 2);
    assert_eq!(harness.receiver.last_life(), media, "another source");
    harness.sender_report(7_000, 1);
    harness.sender_report(31_000, 1);
    let report = Some(Time::from_millis(41_000));
    assert_eq!(harness.receiver.last_life(), report);
    assert_eq!(harness.receiver.last_arrival(), media);
    // The source is silent: its reports do not keep another one out.
    harness.frame(31_100, header(2, 9, 17), true);
    harness.frame(31_133, header(2, 10, 3_017), false);
    assert_eq!(harness.decodable(), 4);
}

/// No stream has begun: the receiver waits for it without a limit.
#[test]
fn sender_reports_before_the_first_media_begin_no_stream() {
    let mut harness = Harness::new();
    harness.sender_report(0, 1);
    harness.sender_report(1_000, 1);
    assert_eq!(harness.receiver.last_life(), None);
}

#[test]
fn datagrams_before_the_first_sender_report_are_rejected() {
    let name = Cname::new("sender@example").unwrap();
    let config = SenderConfig::new(Streams::with_ssrcs(1, 2), name);
    let mut rng = Seed(1).stream("sender");
    let fixed = Fixed::new(Rate::kbps(500)).into();
    let mut sender = MediaSender::new(config, fixed, None, &mut rng);
    let mut report = Vec::new();
    rtcp::emit_receiver_report(3, &[], &mut report);
    let (mut trace, now) = (Vec::new(), Time::from_secs(5));
    let mut cx = Context {
        now,
        rng: &mut rng,
        trace: &mut trace,
    };
    let datagram = Datagram {
        ecn: Ecn::NotEct,
        dscp: 0,
        payload: &report,
    };
    sender.handle(&mut cx, Input::Datagram(datagram));
    sender.handle(&mut cx, Input::Timeout);
    let mut greeting = Vec::new();
    assert!(sender.poll(&mut cx, &mut greeting).transmit().is_some());
    assert!(rtcp::is_rtcp(&greeting));
    let cause = FeedbackFault::UnknownSource;
    assert_eq!(trace, [(now, Event::FeedbackRejected { cause })]);
}

const EMPTY: ReportBlock = ReportBlock {
    ssrc: 0,
    fraction_lost: 0,
    cumulative_lost: 0,
    highest_sequence: 0,
    jitter: 0,
    last_sr: NtpShort(0),
    delay_since_last_sr: NtpShort(0),
};

/// Three intervals of five seconds without a report trip the circuit breaker, unless the peer sends
/// other feedback. A peer that has never reported is not stopped.
//= rfc8083-5-reduced (test)
//= rfc8083-4.1-other-streams (test)
#[test]
fn any_feedback_prevents_an_rtcp_timeout() {
    let trips = |answers: bool, request: fn(&mut Vec<u8>)| {
        let name = Cname::new("sender@example").unwrap();
        let mut config = SenderConfig::new(Streams::with_ssrcs(1, 2), name);
        config.delay_bound = None;
        config.epoch = Ntp(1 << 40);
        let answer = ReportBlock {
            ssrc: 1,
            last_sr: config.epoch.at(Time::ZERO).middle(),
            ..EMPTY
        };
        let mut rng = Seed(1).stream("sender");
        let fixed = Fixed::new(Rate::kbps(500)).into();
        let mut sender = MediaSender::new(config, fixed, None, &mut rng);
        let (mut trace, mut packet) = (Vec::new(), Vec::new());
        request(&mut packet);
        for ms in (0..20_000).step_by(100) {
            let mut cx = Context {
                now: Time::from_millis(ms),
                rng: &mut rng,
                trace: &mut trace,
            };
            sender.handle(&mut cx, Input::Timeout);
            if ms == 100 && answers {
                let mut report = Vec::new();
                rtcp::emit_receiver_report(9, &[answer], &mut report);
                let (ecn, payload) = (Ecn::NotEct, &report[..]);
                sender.handle(
                    &mut cx,
                    Input::Datagram(Datagram {
                        ecn,
                        dscp: 0,
                        payload,
                    }),
                );
            }
            if ms == 10_000 {
                let (ecn, payload) = (Ecn::NotEct, &packet[..]);
                sender.handle(
                    &mut cx,
                    Input::Datagram(Datagram {
                        ecn,
                        dscp: 0,
                        payload,
                    }),
                );
            }
            if let Some(order) = sender.poll_order(&mut cx) {
                let encoded = Encoded {
                    frame: order.frame,
                    captured: order.captured,
                    key: true,
                    leading: false,
                    data: vec![0, 0, 0, 1, 0x65, 0x88],
                    quality: None,
                };
                sender.on_encoded(cx.now, Ok(encoded));
            }
            while sender.poll(&mut cx, &mut Vec::new()).transmit().is_some() {}
        }
        let tripped = |e: &Event| matches!(e, Event::BreakerTripped { .. });
        trace.iter().find(|(_, e)| tripped(e)).map(|(at, _)| *at)
    };
    assert_eq!(trips(false, |_| ()), None);
    assert_eq!(trips(true, |_| ()), Some(Time::from_millis(15_100)));
    assert_eq!(trips(true, |out| rtcp::emit_nack(9, 1, [5], out)), None);
    let pli = |out: &mut Vec<u8>| {
        Pli {
            sender: 9,
            media: 1,
        }
        .emit(out);
    };
    assert_eq!(trips(true, pli), None);
    let report_on_repairs = |out: &mut Vec<u8>| {
        let block = ReportBlock { ssrc: 2, ..EMPTY };
        rtcp::emit_receiver_report(9, &[block], out);
    };
    assert_eq!(trips(true, report_on_repairs), None);
}

//= rfc8083-4.1-report-interval (test)
#[test]
fn receiver_reports_are_at_most_five_seconds_apart() {
    let mut harness = Harness::new();
    let (mut at, mut last) = (0, None);
    for frame in 0..200 {
        harness.frame(at, header(1, frame, u32::from(frame) * 3_000), frame == 0);
        at += 33;
        while let Some(packet) = harness.next_packet(at) {
            if rtcp::packets(&packet).flatten().any(|p| is_report(&p)) {
                assert!(at - last.unwrap_or(0) <= 5_000);
                last = Some(at);
            }
        }
    }
    assert!(last.is_some_and(|last| at - last <= 5_000));
}

fn is_report(packet: &Rtcp<'_>) -> bool {
    matches!(packet, Rtcp::ReceiverReport(_))
}

struct Harness {
    receiver: MediaReceiver,
}

impl Harness {
    fn new() -> Self {
        let name = Cname::new("receiver@example").unwrap();
        let config = ReceiverConfig::new(3, name, Duration::from_millis(400));
        Self {
            receiver: MediaReceiver::new(config),
        }
    }

    /// Delivers a frame of one packet.
    fn frame(&mut self, ms: u64, header: RtpHeader, key: bool) {
        let mut out = Vec::new();
        header.emit(&mut out);
        out.extend_from_slice(payload(key));
        self.deliver(ms, &out);
    }

    fn sender_report(&mut self, ms: u64, ssrc: u32) {
        let mut out = Vec::new();
        let info = SenderInfo {
            ssrc,
            ntp: Ntp(1 << 40).at(Time::from_millis(ms)),
            rtp_timestamp: 0,
            packets: 2,
            octets: 20,
        };
        info.emit(&[], &mut out);
        rtcp::emit_sdes(ssrc, &Cname::new("sender@example").unwrap(), &mut out);
        self.deliver(ms, &out);
    }

    fn repair(&mut self, ms: u64, header: RtpHeader, original_sequence: u16) {
        let mut out = Vec::new();
        RtpHeader {
            payload_type: REPAIR_TYPE,
            ..header
        }
        .emit(&mut out);
        RtxPayload {
            original_sequence,
            payload: payload(false),
        }
        .emit(&mut out);
        self.deliver(ms, &out);
    }

    fn deliver(&mut self, ms: u64, payload: &[u8]) {
        let mut rng = Seed(1).stream("receiver");
        let mut cx = Context {
            now: Time::from_millis(10_000 + ms),
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

    /// The next datagram that the receiver sends.
    fn next_packet(&mut self, ms: u64) -> Option<Vec<u8>> {
        let (mut rng, mut out) = (Seed(1).stream("receiver"), Vec::new());
        let mut cx = Context {
            now: Time::from_millis(10_000 + ms),
            rng: &mut rng,
            trace: &mut (),
        };
        self.receiver.handle(&mut cx, Input::Timeout);
        let packet = self.receiver.poll(&mut cx, &mut out).transmit();
        packet.map(|_| out)
    }

    /// Number of decodable frames since the last call.
    fn decodable(&mut self) -> usize {
        let frames = core::iter::from_fn(|| self.receiver.poll_frame());
        frames.filter(|frame| frame.complete.is_some()).count()
    }
}

fn header(ssrc: u32, sequence: u16, timestamp: u32) -> RtpHeader {
    RtpHeader {
        payload_type: MEDIA_TYPE,
        sequence,
        timestamp,
        ssrc,
        marker: true,
    }
}

/// Parameter sets with a slice, or a slice alone.
fn payload(key: bool) -> &'static [u8] {
    if key {
        &[0x78, 0, 2, 0x67, 0x42, 0, 2, 0x68, 0xce, 0, 2, 0x65, 0x88]
    } else {
        &[0x61, 0x88]
    }
}
