//! What TFRC does at start, in silence, when idle and when data-limited (RFC 5348 section 4).

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{
    Algorithm, Change, Cx, Demand, Ecn, Fate, FlowId, Kind, Measured, Observer, Outcome,
    RateController, Report, Sent, Start, Why,
};
use tidegate_core::controller::tfrc::{PacketSize, TfrcConfig, equation};
use tidegate_core::random::Seed;
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Rate, RemoteTime, Time};

/// A controller and the packets that it was told of.
struct Rig {
    controller: Box<dyn RateController>,
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

    /// A rig that has its first round-trip sample.
    fn warm() -> Self {
        let mut rig = Self::new(&TfrcConfig::default());
        rig.send(1, Duration::ZERO);
        rig.report(RTT, &[]);
        rig
    }

    /// Sends `rate` packets a second for a round trip, then reports on them; `lost` counts from
    /// the first of them.
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
            Fate {
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
        let fates: Vec<Fate> = self.out.drain(..).map(fate).collect();
        let report = Report::new(&fates).rtt(rtt);
        self.with(|controller, cx| controller.on_report(cx, &report));
    }

    /// Waits for the no-feedback timer.
    fn expire(&mut self) {
        let (at, why) = self.controller.next_timeout().expect("the timer is set");
        assert_eq!(why, Why::Silence);
        self.now = at;
        self.with(|controller, cx| controller.on_timeout(cx));
    }

    fn with(&mut self, call: impl FnOnce(&mut dyn RateController, &mut Cx<'_>)) {
        let mut cx = Cx {
            now: self.now,
            rng: &mut self.rng,
            trace: &mut self.trace,
        };
        call(&mut *self.controller, &mut cx);
    }

    /// Packets of the nominal size a second.
    fn rate(&self) -> f64 {
        self.controller.target().send.as_f64() / 8.0 / SIZE.get() as f64
    }

    #[track_caller]
    fn assert_rate(&self, packets: f64) {
        let rate = self.rate();
        assert!(
            (rate / packets - 1.0).abs() < 0.001,
            "{rate} packets a second, not {packets}"
        );
    }
}

//= rfc5348-4.2-first-rate (test)
//= rfc5348-4.2-initial-rate (test)
//= rfc5348-4.2-initial-window (test)
//= rfc5348-4.3-slow-start (test)
#[test]
fn it_starts_with_a_packet_a_second_then_a_window_then_doubles() {
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
    // A report each quarter of a round trip does not double four times.
    for _ in 0..4 {
        rig.send(5, RTT / 20);
        rig.report(RTT, &[]);
    }
    rig.assert_rate(320.0);
}

//= rfc5348-4.3-twice-received (test)
#[test]
fn slow_start_goes_to_twice_what_arrives() {
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
fn without_an_answer_it_halves_after_two_seconds() {
    let mut rig = Rig::new(&TfrcConfig::default());
    rig.send(1, Duration::ZERO);
    let first = rig.controller.next_timeout();
    assert_eq!(first, Some((Time::from_secs(2), Why::Silence)));
    rig.expire();
    rig.assert_rate(0.5);
    // A timer that wakes early changes nothing.
    rig.with(|controller, cx| controller.on_timeout(cx));
    rig.assert_rate(0.5);
}

//= rfc5348-4.3-rto (test)
//= rfc5348-4.3-restart-timer (test)
//= rfc5348-4.4-restart-timer (test)
#[test]
fn the_timer_waits_four_round_trips_or_two_packets() {
    let mut rig = Rig::warm();
    let wait = |rig: &Rig| rig.controller.next_timeout().expect("set").0.since(rig.now);
    // Four packets a round trip: four round trips are longer.
    assert_eq!(wait(&rig), RTT * 4);
    rig.send(1, Duration::ZERO);
    for _ in 0..4 {
        rig.expire();
        rig.send(1, Duration::ZERO);
    }
    // 40 packets a second, halved four times: two packets take 800 ms.
    rig.assert_rate(2.5);
    assert_eq!(wait(&rig), Duration::from_millis(800));
}

/// Reports each 50 ms must not look like silence on a path of 5 ms.
#[test]
fn the_timer_waits_for_four_reports_on_a_short_path() {
    let mut rig = Rig::new(&TfrcConfig::default());
    rig.send(1, Duration::ZERO);
    rig.report(Duration::from_millis(5), &[]);
    let (at, _) = rig.controller.next_timeout().expect("set");
    assert_eq!(at.since(rig.now), Duration::from_millis(200));
}

//= rfc5348-4.4-no-loss (test)
//= rfc5348-4.3-least-rate (test)
#[test]
fn silence_before_any_loss_halves_the_rate_down_to_a_packet_in_64_seconds() {
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

/// What left before a cut arrives late, all of it: a sign of life, but no reason for more.
#[test]
fn a_late_report_does_not_undo_a_cut() {
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
fn silence_after_a_loss_halves_what_limited_the_rate() {
    let mut rig = Rig::warm();
    for _ in 0..5 {
        rig.round(200, &[]);
    }
    rig.round(200, &[10]);
    // The equation limits: 200 packets a second are received, so 400 would be allowed.
    let fair = rig.rate();
    assert!(fair < 350.0, "{fair}");
    rig.send(1, Duration::ZERO);
    rig.expire();
    rig.assert_rate(fair / 2.0);
    // Now twice the receive rate limits, which the first silence set to a quarter of the fair
    // rate; a second one halves that.
    rig.send(1, Duration::ZERO);
    rig.expire();
    rig.assert_rate(fair / 4.0);
}

/// Nothing gets through for a while, and nothing is lost. The first packet behind it is one per round trip:
/// twice that is allowed, or what the silence left.
//= rfc5348-6.2-receive-rate (test)
#[test]
fn one_packet_after_a_silence_allows_two_per_round_trip() {
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
fn an_idle_sender_keeps_a_modest_rate_and_loses_a_high_one() {
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
    // Four packets a round trip is the least that silence takes from an idle sender: a receive
    // rate below it is left alone, and twice that rate may be sent.
    assert!(rig.rate() < half && rig.rate() >= 40.0, "{}", rig.rate());
}

//= rfc5348-4.3-data-limited (test)
//= rfc5348-8.2.1-data-limited (test)
#[test]
fn a_data_limited_sender_keeps_what_it_has_earned() {
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
    // One packet with more behind it, and the interval shows what the path carried.
    rig.app_limited = false;
    for _ in 0..3 {
        rig.round(50, &[]);
    }
    rig.assert_rate(100.0);
}

//= rfc5348-4.3-data-limited-loss (test)
#[test]
fn a_loss_while_data_limited_takes_the_credit_away() {
    let mut rig = Rig::warm();
    for _ in 0..100 {
        rig.round(200, &[]);
    }
    rig.app_limited = true;
    rig.round(50, &[2]);
    // The entry of 200 is halved, 0.85 times 50 is less, and the limit is the set and not twice
    // the set. The equation would allow the 200 of before.
    rig.assert_rate(100.0);
}

//= rfc5348-6.3.1-first-interval (test)
//= rfc5348-4.3-equation-rate (test)
#[test]
fn the_first_loss_leaves_the_rate_that_was_received() {
    let mut rig = Rig::warm();
    for _ in 0..10 {
        rig.round(200, &[]);
    }
    rig.round(400, &[0]);
    // Received: 39 in 100 ms. The open interval of 40 packets is shorter than the one made up.
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
fn a_stream_whose_first_packet_is_lost_goes_on_at_half_a_packet_a_round_trip() {
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
fn a_longer_round_trip_lowers_the_rate_at_once_only_when_damped() {
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
fn reports_that_are_feedback_packets_are_not_gathered() {
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
        // R grows while the receiver still reports at the round trip that it was told before.
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
fn the_size_of_a_packet_is_the_mean_unless_told_otherwise() {
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
    // Four packets of 250 bytes, or of the nominal 1000, in 100 ms.
    let mean = run(PacketSize::Mean);
    assert!((mean - 10.0).abs() < 0.01, "{mean}");
    let nominal = run(PacketSize::Nominal);
    assert!((nominal - 40.0).abs() < 0.01, "{nominal}");
}

//= rfc5348-7-sender-rate (test)
#[test]
fn an_observer_that_measures_is_believed() {
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
    let nonsense = Measured {
        loss_event_rate: f64::NAN,
        ..measured
    };
    rig.send(20, RTT / 20);
    let report = Report::default().rtt(RTT).measured(nonsense);
    rig.with(|controller, cx| controller.on_report(cx, &report));
    assert!(rig.rate().is_finite());
}

#[test]
fn a_new_path_is_a_new_start() {
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
