//! BYE packets of senders and receivers, and the end of sessions without a receiver.

use core::time::Duration;

use tidegate_core::control::{Context, Ecn};
use tidegate_core::controller::fixed::Fixed;
use tidegate_core::endpoint::{Datagram, Endpoint as _, Input, Output};
use tidegate_core::media::Encoded;
use tidegate_core::random::Seed;
use tidegate_core::session::config::{FeedbackMode, ReceiverConfig, SenderConfig, Streams};
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::session::sender::{MediaSender, SenderFailure};
use tidegate_core::trace::{BreakerCause, Event};
use tidegate_core::units::{Rate, Time};
use tidegate_core::wire::rtcp::{self, Cname, ReportBlock, Rtcp};

//= rfc3550-6.3.7-silent (test)
#[test]
fn a_receiver_that_has_sent_nothing_leaves_without_a_bye() {
    let mut receiver = receiver(9);
    receiver.close();
    let mut rng = Seed(1).stream("receiver");
    let mut cx = Context {
        now: Time::from_secs(1),
        rng: &mut rng,
        trace: &mut (),
    };
    let before = receiver.poll(&mut cx, &mut Vec::new());
    assert!(before.timer().is_some());
    receiver.handle(&mut cx, Input::Timeout);
    assert_eq!(receiver.poll(&mut cx, &mut Vec::new()), Output::Done(None));
}

/// The compound packet has a report, a CNAME and the BYE (RFC 3550 section 6.1).
//= rfc3550-6.3.7-bye (test)
#[test]
fn a_leaving_receiver_sends_one_bye() {
    let mut pair = Pair::new();
    pair.run_to(2_000);
    pair.sent.clear();
    pair.receiver.close();
    pair.run_to(2_200);
    assert!(pair.receiver_is_done());
    let byes: Vec<_> = pair
        .sent
        .iter()
        .filter(|sent| bye_ssrcs(sent) == [9])
        .collect();
    assert_eq!(byes.len(), 1);
    assert_eq!(pair.sent.last(), Some(byes[0]));
    assert!(rtcp::form(byes[0]).is_ok());
    let first = rtcp::packets(byes[0]).next();
    assert!(
        matches!(first, Some(Ok(Rtcp::ReceiverReport(_)))),
        "{first:?}"
    );
}

/// No media is sent after the BYE of the receiver. Another receiver restarts the stream. A BYE of
/// an unknown SSRC is ignored.
//= rfc3550-6.6-leaves (test)
#[test]
fn a_bye_stops_the_sender_and_the_next_receiver_restarts_it() {
    let mut pair = Pair::new();
    pair.run_to(2_000);
    let mut unknown = Vec::new();
    rtcp::emit_bye(&[77], None, &mut unknown);
    pair.deliver_to_sender(&unknown);
    assert!(!pair.sender.status().stopped);
    pair.receiver.close();
    pair.run_to(2_300);
    assert!(pair.sender.status().left);
    let frames = pair.media;
    pair.run_to(6_000);
    assert_eq!(pair.media, frames, "media after the receiver's BYE");
    pair.receiver = receiver(10);
    pair.run_to(8_000);
    assert!(!pair.sender.status().stopped);
    assert!(pair.media > frames);
    let count = |event: Event| pair.trace.iter().filter(|(_, e)| *e == event).count();
    let cause = BreakerCause::Goodbye;
    assert_eq!(count(Event::BreakerTripped { cause }), 1);
    assert_eq!(count(Event::BreakerResumed), 1);
}

/// A receiver with per-packet feedback leaves, and one with a report every 5 s answers: it gets every
/// frame between its reports.
#[test]
fn another_kind_of_receiver_may_follow() {
    let mut pair = Pair::new();
    pair.run_to(2_000);
    pair.receiver.close();
    pair.run_to(3_000);
    assert!(pair.sender.status().left);
    pair.trace.clear();
    let name = Cname::new("receiver@example").unwrap();
    let mut config = ReceiverConfig::new(10, name, Duration::from_millis(400));
    config.feedback = FeedbackMode::ReceiverReports;
    pair.receiver = MediaReceiver::new(config);
    pair.run_to(10_000);
    assert!(!pair.sender.status().stopped);
    for second in 11..40 {
        let before = pair.media;
        pair.run_to(second * 1_000);
        let frames = pair.media - before;
        assert!(frames >= 28, "{frames} frames in second {second}");
    }
    let count = |event: Event| pair.trace.iter().filter(|(_, e)| *e == event).count();
    assert_eq!(count(Event::BlackoutBegan), 0);
    assert!(pair.sender.status().reports_only);
    assert_eq!(count(Event::BreakerResumed), 1);
}

#[test]
fn a_sender_without_a_receiver_ends() {
    let mut pair = Pair::new();
    pair.run_to(2_000);
    pair.receiver.close();
    pair.run_to(22_100);
    assert!(!pair.sender.is_done());
    pair.run_to(22_500);
    assert!(pair.sender.is_done());
    let failure = SenderFailure::ReceiverGone(BreakerCause::Goodbye);
    assert_eq!(pair.sender.failure(), Some(failure));
}

/// Forged BYEs, of the receiver's SSRC and of one that a forged report has introduced.
#[test]
fn a_bye_is_disproved_by_feedback() {
    let mut pair = Pair::new();
    pair.run_to(2_000);
    let block = ReportBlock {
        ssrc: 1,
        ..ReportBlock::default()
    };
    let mut forged = Vec::new();
    rtcp::emit_receiver_report(77, &[block], &mut forged);
    rtcp::emit_bye(&[77, 9], None, &mut forged);
    let mut media = pair.media;
    for second in 3..8 {
        pair.deliver_to_sender(&forged);
        pair.run_to(second * 1_000);
        assert!(pair.media >= media + 28, "{} frames", pair.media - media);
        media = pair.media;
    }
    assert!(!pair.sender.status().stopped);
}

#[test]
fn a_receiver_ends_after_a_bye_unless_media_continues() {
    let mut pair = Pair::new();
    pair.run_to(2_000);
    let mut bye = Vec::new();
    rtcp::emit_bye(&[1], None, &mut bye);
    pair.deliver_to_receiver(&bye);
    pair.run_to(4_000);
    assert!(!pair.receiver.has_ended());
    pair.sender.close();
    pair.run_to(4_400);
    assert!(!pair.receiver.has_ended());
    pair.run_to(4_600);
    assert!(pair.receiver.has_ended() && pair.receiver_is_done());
}

#[test]
fn a_receiver_ends_although_two_byes_are_lost() {
    let mut pair = Pair::new();
    pair.run_to(2_000);
    pair.lost_byes = 2;
    pair.sender.close();
    pair.run_to(2_090);
    assert!(!pair.sender.is_done());
    pair.run_to(2_700);
    assert!(pair.sender.is_done() && pair.receiver_is_done());
}

/// Reports that no packet arrives trip the circuit breaker. Between the BYEs of a complete stream they
/// are of no effect.
#[test]
fn reports_between_byes_do_not_reopen_a_session() {
    let mut report = Vec::new();
    let block = ReportBlock {
        ssrc: 1,
        ..ReportBlock::default()
    };
    rtcp::emit_receiver_report(77, &[block], &mut report);
    let play = |second: u64| {
        let mut pair = Pair::new();
        pair.is_mute = true;
        for now in 1..second {
            pair.run_to(now * 1_000);
            pair.deliver_to_sender(&report);
        }
        pair.run_to(second * 1_000 - 5);
        pair
    };
    let trips = |second: &u64| {
        let mut pair = play(*second);
        pair.run_to(*second * 1_000);
        pair.deliver_to_sender(&report);
        pair.sender.status().stopped
    };
    let second = (1..60).find(trips).unwrap();
    let mut pair = play(second);
    pair.sender.close();
    pair.run_to(second * 1_000);
    pair.deliver_to_sender(&report);
    pair.run_to(second * 1_000 + 200);
    assert!(pair.sender.is_done());
    assert_eq!(pair.sender.failure(), None);
}

/// Sender and receiver, joined by a path without delay or loss.
struct Pair {
    now: Time,
    rng: rand_pcg::Pcg64Mcg,
    sender: MediaSender,
    receiver: MediaReceiver,
    trace: Vec<(Time, Event)>,
    /// Packets sent by the receiver.
    sent: Vec<Vec<u8>>,
    /// Number of media packets sent.
    media: u64,
    /// Number of BYEs of the sender that the path will lose.
    lost_byes: u8,
    /// Whether the path loses all packets of the receiver.
    is_mute: bool,
}

impl Pair {
    fn new() -> Self {
        let mut rng = Seed(1).stream("session");
        let name = Cname::new("sender@example").unwrap();
        let config = SenderConfig::new(Streams::with_ssrcs(1, 2), name);
        let fixed = Fixed::new(Rate::kbps(500)).into();
        Self {
            now: Time::ZERO,
            sender: MediaSender::new(config, fixed, None, &mut rng),
            rng,
            receiver: receiver(9),
            trace: Vec::new(),
            sent: Vec::new(),
            media: 0,
            lost_byes: 0,
            is_mute: false,
        }
    }

    /// Runs in steps of 5 ms.
    fn run_to(&mut self, ms: u64) {
        while self.now < Time::from_millis(ms) {
            self.now += Duration::from_millis(5);
            self.step();
        }
    }

    fn step(&mut self) {
        let mut cx = Context {
            now: self.now,
            rng: &mut self.rng,
            trace: &mut self.trace,
        };
        self.sender.handle(&mut cx, Input::Timeout);
        if let Some(order) = self.sender.poll_order(&mut cx) {
            let encoded = Encoded {
                frame: order.frame,
                captured: order.captured,
                key: order.key,
                leading: false,
                data: vec![0, 0, 0, 1, 0x65, 0x88],
                quality: None,
            };
            self.sender.on_encoded(cx.now, Ok(encoded));
        }
        let mut buffer = Vec::new();
        while self.sender.poll(&mut cx, &mut buffer).transmit().is_some() {
            self.media += u64::from(!rtcp::is_rtcp(&buffer));
            if self.lost_byes > 0 && rtcp::is_rtcp(&buffer) && !bye_ssrcs(&buffer).is_empty() {
                self.lost_byes -= 1;
            } else {
                self.receiver
                    .handle(&mut cx, Input::Datagram(datagram(&buffer)));
            }
            buffer.clear();
        }
        self.receiver.handle(&mut cx, Input::Timeout);
        while self
            .receiver
            .poll(&mut cx, &mut buffer)
            .transmit()
            .is_some()
        {
            if !self.is_mute {
                self.sender
                    .handle(&mut cx, Input::Datagram(datagram(&buffer)));
            }
            self.sent.push(std::mem::take(&mut buffer));
        }
    }

    fn receiver_is_done(&mut self) -> bool {
        let mut cx = Context {
            now: self.now,
            rng: &mut self.rng,
            trace: &mut self.trace,
        };
        self.receiver.poll(&mut cx, &mut Vec::new()).is_done()
    }

    fn deliver_to_receiver(&mut self, packet: &[u8]) {
        let mut cx = Context {
            now: self.now,
            rng: &mut self.rng,
            trace: &mut self.trace,
        };
        self.receiver
            .handle(&mut cx, Input::Datagram(datagram(packet)));
    }

    fn deliver_to_sender(&mut self, packet: &[u8]) {
        let mut cx = Context {
            now: self.now,
            rng: &mut self.rng,
            trace: &mut self.trace,
        };
        self.sender
            .handle(&mut cx, Input::Datagram(datagram(packet)));
    }
}

fn receiver(ssrc: u32) -> MediaReceiver {
    let name = Cname::new("receiver@example").unwrap();
    MediaReceiver::new(ReceiverConfig::new(ssrc, name, Duration::from_millis(400)))
}

fn datagram(payload: &[u8]) -> Datagram<'_> {
    Datagram {
        ecn: Ecn::NotEct,
        dscp: 0,
        payload,
    }
}

/// SSRCs in the BYE of this compound packet.
fn bye_ssrcs(sent: &[u8]) -> Vec<u32> {
    let ssrcs = rtcp::packets(sent).flatten().map(|packet| match packet {
        Rtcp::Bye(bye) => bye.ssrcs().collect(),
        _ => Vec::new(),
    });
    ssrcs.flatten().collect()
}
