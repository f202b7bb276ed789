//! TFRC at start, without feedback, when idle and when data-limited (RFC 5348 section 4).

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{
    Algorithm, Change, Context, Demand, Ecn, FlowId, Kind, Measured, Observer, Outcome,
    PacketOutcome, RateControl, Report, Sent, Start, TimerReason,
};
use tidegate_core::controller::tfrc::{PacketSize, TfrcConfig, equation};
use tidegate_core::random::Seed;
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time};

/// A controller and its packets in flight.
struct Rig {
    controller: RateControl,
    trace: Vec<(Time, Event)>,
    rng: Pcg64Mcg,
    now: Time,
    out: Vec<(u64, Time)>,
    seq: u64,
    app_limited: bool,
    size: Bytes,
}

impl Rig {
    fn new(config: &TfrcConfig) -> Self {
        let demand = Demand {
            floor: Rate::ZERO,
            ceiling: Rate::MAX,
            shares: 1,
        };
        Self {
            controller: config.start(&Start::new(Time::ZERO, SIZE, demand)),
            trace: Vec::new(),
            rng: Seed(1).stream("rig"),
            now: Time::ZERO,
            out: Vec::new(),
            seq: 0,
            app_limited: false,
            size: SIZE,
        }
    }

    /// A rig with a first round-trip sample.
    fn warm() -> Self {
        let mut rig = Self::new(&TfrcConfig::default());
        rig.send(1, Duration::ZERO);
        rig.report(RTT, &[]);
        rig
    }

    /// Sends `rate` packets per second for a round trip, then reports on them. `lost` are indices
    /// into these packets.
    fn round(&mut self, rate: u64, lost: &[u64]) {
        let packets = rate / 10;
        let first = self.seq;
        self.send(packets, RTT / packets as u32);
        let lost: Vec<u64> = lost.iter().map(|i| first + i).collect();
        self.report(RTT, &lost);
    }

    fn send(&mut self, packets: u64, spacing: Duration) {
        for _ in 0..packets {
            let packet = Sent {
                flow: FlowId(0),
                seq: self.seq,
                size: self.size,
                kind: Kind::Media,
                app_limited: self.app_limited,
            };
            self.with(|controller, cx| controller.on_sent(cx, &packet));
            self.out.push((self.seq, self.now));
            self.seq += 1;
            self.now += spacing;
        }
    }

    fn report(&mut self, rtt: Duration, lost: &[u64]) {
        self.report_as(rtt, lost, Outcome::Lost);
    }

    fn report_as(&mut self, rtt: Duration, picked: &[u64], outcome: Outcome) {
        let size = self.size;
        let fate = |(seq, sent): (u64, Time)| {
            let arrived = Outcome::Received {
                at: RemoteTime(sent.as_nanos()),
                ecn: Ecn::Ect0,
            };
            PacketOutcome {
                flow: FlowId(0),
                seq,
                size,
                sent,
                outcome: if picked.contains(&seq) {
                    outcome
                } else {
                    arrived
                },
            }
        };
        let outcomes: Vec<PacketOutcome> = self.out.drain(..).map(fate).collect();
        let report = Report::new(&outcomes).rtt(rtt);
        self.with(|controller, cx| controller.on_report(cx, &report));
    }

    /// Advances to the expiry of the no-feedback timer.
    fn expire(&mut self) {
        let (at, why) = self.controller.next_timeout().expect("the timer is set");
        assert_eq!(why, TimerReason::Silence);
        self.now = at;
        self.with(RateControl::on_timeout);
    }

    fn with(&mut self, call: impl FnOnce(&mut RateControl, &mut Context<'_>)) {
        let mut cx = Context {
            now: self.now,
            rng: &mut self.rng,
            trace: &mut self.trace,
        };
        call(&mut self.controller, &mut cx);
    }

    /// Rate in packets of the nominal size per second.
    fn rate(&self) -> f64 {
        self.controller.target().send.as_f64() / 8.0 / SIZE.get() as f64
    }

    #[track_caller]
    fn assert_rate(&self, packets: f64) {
        let rate = self.rate();
        assert!(
            (rate / packets - 1.0).abs() < 0.001,
            "{rate} packets per second instead of {packets}"
        );
    }
}

//= rfc5348-4.2-first-rate (test)
//= rfc5348-4.2-initial-rate (test)
//= rfc5348-4.2-initial-window (test)
//= rfc5348-4.3-slow-start (test)
#[test]
fn slow_start_begins_with_a_packet_per_second_then_a_window_then_doubles() {
    let mut rig = Rig::new(&TfrcConfig::default());
    assert_eq!(rig.controller.next_timeout(), None, "nothing was sent");
    rig.assert_rate(1.0);
    rig.send(1, Duration::ZERO);
    rig.report(RTT, &[]);
    // min(4 * 1000, max(2 * 1000, 4380)) bytes in 100 ms.
    rig.assert_rate(40.0);
    rig.round(40, &[]);
    rig.assert_rate(80.0);
    rig.round(80, &[]);
    rig.assert_rate(160.0);
    // A report per quarter of a round trip does not double the rate four times.
    for _ in 0..4 {
        rig.send(5, RTT / 20);
        rig.report(RTT, &[]);
    }
    rig.assert_rate(320.0);
}

//= rfc5348-4.3-twice-received (test)
#[test]
fn slow_start_is_limited_to_twice_the_receive_rate() {
    let mut rig = Rig::warm();
    for _ in 0..10 {
        rig.round(200, &[]);
    }
    // The last packet of a round leaves a gap before the first of the next: 20 packets in 100 ms.
    rig.assert_rate(400.0);
}

//= rfc5348-4.2-first-timer (test)
//= rfc5348-4.4-no-rtt (test)
#[test]
fn rate_halves_after_two_seconds_without_feedback() {
    let mut rig = Rig::new(&TfrcConfig::default());
    rig.send(1, Duration::ZERO);
    let first = rig.controller.next_timeout();
    assert_eq!(first, Some((Time::from_secs(2), TimerReason::Silence)));
    rig.expire();
    rig.assert_rate(0.5);
    // A call before the deadline has no effect.
    rig.with(RateControl::on_timeout);
    rig.assert_rate(0.5);
}

//= rfc5348-4.3-rto (test)
//= rfc5348-4.3-restart-timer (test)
//= rfc5348-4.4-restart-timer (test)
#[test]
fn no_feedback_timer_lasts_four_round_trips_or_two_packets() {
    let mut rig = Rig::warm();
    let wait = |rig: &Rig| rig.controller.next_timeout().expect("set").0.since(rig.now);
    // At four packets per round trip, four round trips are longer.
    assert_eq!(wait(&rig), RTT * 4);
    rig.send(1, Duration::ZERO);
    for _ in 0..4 {
        rig.expire();
        rig.send(1, Duration::ZERO);
    }
    // At 40 packets per second, halved four times, two packets take 800 ms.
    rig.assert_rate(2.5);
    assert_eq!(wait(&rig), Duration::from_millis(800));
}

/// Reports every 50 ms must not expire the timer on a path of 5 ms.
#[test]
fn no_feedback_timer_lasts_four_reports_on_a_short_path() {
    let mut rig = Rig::new(&TfrcConfig::default());
    rig.send(1, Duration::ZERO);
    rig.report(Duration::from_millis(5), &[]);
    let (at, _) = rig.controller.next_timeout().expect("set");
    assert_eq!(at.since(rig.now), Duration::from_millis(200));
}

//= rfc5348-4.4-no-loss (test)
//= rfc5348-4.3-least-rate (test)
#[test]
fn timer_before_any_loss_halves_the_rate_down_to_a_packet_in_64_seconds() {
    let mut rig = Rig::warm();
    rig.round(40, &[]);
    rig.assert_rate(80.0);
    rig.send(1, Duration::ZERO);
    rig.expire();
    rig.assert_rate(40.0);
    let halved = rig
        .trace
        .iter()
        .any(|(_, e)| matches!(e, Event::NoFeedback { .. }));
    assert!(halved);
    for _ in 0..20 {
        rig.send(1, Duration::ZERO);
        rig.expire();
    }
    rig.assert_rate(1.0 / 64.0);
}

/// All packets sent before a rate reduction arrive late. They restart the timer, but do not raise
/// the rate.
#[test]
fn late_report_does_not_undo_a_rate_reduction() {
    let mut rig = Rig::warm();
    for _ in 0..10 {
        rig.round(200, &[]);
    }
    rig.send(20, RTT / 20);
    rig.expire();
    rig.assert_rate(200.0);
    rig.now += RTT;
    rig.report(RTT, &[]);
    rig.assert_rate(200.0);
    let (at, _) = rig.controller.next_timeout().expect("set");
    assert_eq!(at, rig.now + RTT * 4);
    rig.round(200, &[]);
    rig.assert_rate(400.0);
}

//= rfc5348-4.4-equation-limited (test)
//= rfc5348-4.4-receive-limited (test)
//= rfc5348-4.4-update-limits (test)
#[test]
fn timer_after_a_loss_halves_the_limit_of_the_rate() {
    let mut rig = Rig::warm();
    for _ in 0..5 {
        rig.round(200, &[]);
    }
    rig.round(200, &[10]);
    // The equation limits the rate: 200 packets per second are received, which allows 400.
    let fair = rig.rate();
    assert!(fair < 350.0, "{fair}");
    rig.send(1, Duration::ZERO);
    rig.expire();
    rig.assert_rate(fair / 2.0);
    // Now twice the receive rate is the limit. The first expiry set the receive rate to a quarter
    // of the fair rate, and the second one halves the limit.
    rig.send(1, Duration::ZERO);
    rig.expire();
    rig.assert_rate(fair / 4.0);
}

/// An outage without loss. The first packet after it counts as one per round trip. The allowed rate
/// is twice that, or the rate left by the no-feedback timer.
//= rfc5348-6.2-receive-rate (test)
#[test]
fn one_packet_after_an_outage_allows_two_per_round_trip() {
    for secs in [1, 5, 30] {
        for rate in [100, 200, 1_000, 5_000] {
            let mut rig = Rig::warm();
            while rig.rate() < rate as f64 {
                rig.round(rig.rate() as u64, &[]);
            }
            rig.round(rate, &[rate / 20]);
            let ends = rig.now + Duration::from_secs(secs);
            rig.send(1, Duration::ZERO);
            while rig.now < ends {
                rig.expire();
                rig.send(1, Duration::ZERO);
            }
            let left = rig.rate();
            rig.now += RTT;
            rig.report(RTT, &[]);
            rig.assert_rate(left.max(20.0));
        }
    }
}

//= rfc5348-4.4-idle (test)
#[test]
fn idle_sender_keeps_a_low_rate_and_halves_a_high_one() {
    let mut rig = Rig::warm();
    rig.expire();
    rig.expire();
    rig.assert_rate(40.0);
    for _ in 0..3 {
        rig.round(160, &[]);
    }
    rig.assert_rate(320.0);
    for expected in [160.0, 80.0, 40.0, 40.0] {
        rig.expire();
        rig.assert_rate(expected);
    }

    let mut rig = Rig::warm();
    for _ in 0..5 {
        rig.round(200, &[]);
    }
    rig.round(200, &[10]);
    rig.expire();
    let half = rig.rate();
    for _ in 0..10 {
        rig.expire();
    }
    // The timer does not reduce the rate of an idle sender while the receive rate is below four
    // packets per round trip, and twice the receive rate is allowed.
    assert!(rig.rate() < half && rig.rate() >= 40.0, "{}", rig.rate());
}

//= rfc5348-4.3-data-limited (test)
//= rfc5348-8.2.1-data-limited (test)
#[test]
fn data_limited_sender_keeps_its_rate() {
    let mut rig = Rig::warm();
    for _ in 0..10 {
        rig.round(200, &[]);
    }
    rig.assert_rate(400.0);
    rig.app_limited = true;
    for _ in 0..10 {
        rig.round(50, &[]);
    }
    rig.assert_rate(400.0);
    // If more data waits behind one packet, the interval is not data-limited.
    rig.app_limited = false;
    for _ in 0..3 {
        rig.round(50, &[]);
    }
    rig.assert_rate(100.0);
}

//= rfc5348-4.3-data-limited-loss (test)
#[test]
fn loss_while_data_limited_reduces_the_rate() {
    let mut rig = Rig::warm();
    for _ in 0..100 {
        rig.round(200, &[]);
    }
    rig.app_limited = true;
    rig.round(50, &[2]);
    // The entry of 200 is halved, and 0.85 times 50 is less. The limit is the set and not twice the
    // set. The equation would allow the previous 200.
    rig.assert_rate(100.0);
}

//= rfc5348-6.3.1-first-interval (test)
//= rfc5348-4.3-equation-rate (test)
#[test]
fn first_loss_reduces_the_rate_to_the_receive_rate() {
    let mut rig = Rig::warm();
    for _ in 0..10 {
        rig.round(200, &[]);
    }
    rig.round(400, &[0]);
    // 39 packets are received in 100 ms. The open interval of 40 packets is shorter than the
    // synthetic one.
    let rate = rig.rate();
    assert!((190.0..=420.0).contains(&rate), "{rate}");
    let p = rig.controller.summary().loss_event_rate;
    let fair = equation::throughput(SIZE.get() as f64, 0.1, p) / SIZE.get() as f64;
    rig.assert_rate(fair);
    let ended = rig
        .trace
        .iter()
        .filter(|(_, e)| matches!(e, Event::SlowStartEnded { .. }));
    assert_eq!(ended.count(), 1);
    let events = rig
        .trace
        .iter()
        .filter(|(_, e)| matches!(e, Event::LossEvent { .. }));
    assert_eq!(events.count(), 1);
}

//= rfc5348-6.3.1-first-packet (test)
#[test]
fn stream_with_a_lost_first_packet_continues_at_half_a_packet_per_round_trip() {
    let mut rig = Rig::new(&TfrcConfig::default());
    rig.send(3, Duration::ZERO);
    rig.report(RTT, &[0]);
    rig.assert_rate(5.0);
}

//= rfc5348-5.1-ecn (test)
#[test]
fn a_mark_is_a_loss_event() {
    let run = |outcome| {
        let mut rig = Rig::warm();
        for _ in 0..10 {
            rig.round(200, &[]);
        }
        let first = rig.seq;
        rig.send(20, RTT / 20);
        rig.report_as(RTT, &[first + 5], outcome);
        rig.controller.summary()
    };
    let marked = run(Outcome::Received {
        at: RemoteTime(1_000_000_000),
        ecn: Ecn::Ce,
    });
    let lost = run(Outcome::Lost);
    assert!(marked.loss_event_rate > 0.0);
    let difference = marked.loss_event_rate / lost.loss_event_rate - 1.0;
    assert!(difference.abs() < 0.1, "{difference}");
    assert_eq!((marked.lost, lost.lost), (0, 1));
}

//= rfc5348-4.3-rtt (test)
//= rfc5348-4.5-damping (test)
#[test]
fn longer_round_trip_lowers_the_rate_at_once_only_with_damping() {
    let run = |damping| {
        let mut rig = Rig::new(&TfrcConfig {
            damping,
            ..TfrcConfig::default()
        });
        rig.send(1, Duration::ZERO);
        rig.report(RTT, &[]);
        for lost in [&[][..], &[], &[5], &[], &[]] {
            rig.round(200, lost);
        }
        let before = (rig.rate(), rig.controller.summary().loss_event_rate);
        rig.send(20, RTT / 20);
        rig.report(RTT * 4, &[]);
        (before, rig.rate())
    };
    // R becomes 0.9 * 100 + 0.1 * 400 = 130 ms.
    let ((before, p), after) = run(false);
    assert!(after < before && after > before / 1.4, "{before} {after}");
    let ((_, same), damped) = run(true);
    assert!((p - same).abs() < 1e-12);
    // R_sqmean is 0.9 * sqrt(0.1) + 0.1 * sqrt(0.4) = 0.3479, sqrt(R_sample) is 0.6325.
    assert!((damped / after - 0.55).abs() < 0.01, "{damped} {after}");
}

//= rfc5348-4.3-rtt (test)
#[test]
fn feedback_packets_are_not_combined_into_rounds() {
    let second_report_counts = |report_interval| {
        let mut rig = Rig::new(&TfrcConfig {
            report_interval,
            ..TfrcConfig::default()
        });
        rig.send(1, Duration::ZERO);
        rig.report(RTT, &[]);
        for lost in [&[][..], &[], &[5], &[]] {
            rig.round(200, lost);
        }
        // R grows while the receiver still reports at the previous round-trip time.
        rig.send(20, RTT / 20);
        rig.report(RTT * 4, &[]);
        let before = rig.rate();
        rig.send(20, RTT / 20);
        rig.report(RTT * 4, &[]);
        rig.rate() < 0.9 * before
    };
    assert!(second_report_counts(Duration::ZERO));
    assert!(!second_report_counts(Duration::from_millis(50)));
}

//= rfc5348-4.1-size (test)
#[test]
fn packet_size_is_the_mean_by_default() {
    let run = |packet_size| {
        let mut rig = Rig::new(&TfrcConfig {
            packet_size,
            ..TfrcConfig::default()
        });
        rig.size = Bytes(250);
        rig.send(1_000, Duration::from_millis(1));
        rig.report(RTT, &[]);
        rig.rate()
    };
    // Four packets of 250 bytes, or of the nominal 1000 bytes, in 100 ms.
    let mean = run(PacketSize::Mean);
    assert!((mean - 10.0).abs() < 0.01, "{mean}");
    let nominal = run(PacketSize::Nominal);
    assert!((nominal - 40.0).abs() < 0.01, "{nominal}");
}

//= rfc5348-7-sender-rate (test)
#[test]
fn external_measurement_replaces_the_own_estimate() {
    let mut rig = Rig::warm();
    rig.send(20, RTT / 20);
    let measured = Measured {
        by: Observer::Receiver,
        receive_rate: Rate::kbps(1_600),
        loss_event_rate: 0.01,
    };
    let report = Report::default().rtt(RTT).measured(measured);
    rig.with(|controller, cx| controller.on_report(cx, &report));
    let fair = equation::throughput(1.0, 0.1, 0.01);
    rig.assert_rate(fair);
    let invalid = Measured {
        loss_event_rate: f64::NAN,
        ..measured
    };
    rig.send(20, RTT / 20);
    let report = Report::default().rtt(RTT).measured(invalid);
    rig.with(|controller, cx| controller.on_report(cx, &report));
    assert!(rig.rate().is_finite());
}

#[test]
fn new_path_resets_the_controller() {
    let mut rig = Rig::warm();
    rig.round(40, &[3]);
    let change = Change::Path {
        packet_size: SIZE,
        prior: None,
    };
    rig.with(|controller, cx| controller.on_change(cx, &change));
    rig.assert_rate(1.0);
    assert_eq!(rig.controller.next_timeout(), None);
    let (_, last) = rig.trace.last().expect("the rate changed");
    assert!(matches!(last, Event::RateChanged { to, .. } if *to == Rate::kbps(8)));
}

const RTT: Duration = Duration::from_millis(100);
const SIZE: Bytes = Bytes(1_000);
