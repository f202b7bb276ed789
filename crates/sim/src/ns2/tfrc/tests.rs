//! Step-by-step tests of the RFC 3448 flavour.

use tidegate_core::control::{FlowId, Kind, Observer};
use tidegate_core::controller::rap::StartRule;
use tidegate_core::random::Seed;

use super::*;

const RTT: Duration = Duration::from_millis(100);

/// A flow of 1000-byte packets with a feedback packet per 100 ms.
struct Flow {
    tfrc: Tfrc,
    now: Time,
    seq: u64,
}

impl Flow {
    /// A flow that starts with six packets per round trip, as published.
    fn informed() -> Self {
        let mut flow = Self::new();
        let mut config = flow.tfrc.config.clone();
        config.start = StartRule::InformedPaper;
        let prior = Prior {
            rate: Rate::kbps(480),
            rtt: RTT,
            confidence: 1.0,
        };
        flow.tfrc = Tfrc::new(&config, Time::ZERO, Bytes(1_000), Some(prior));
        flow
    }

    fn new() -> Self {
        let config = Ns2TfrcConfig {
            damping: false,
            ..Ns2TfrcConfig::native()
        };
        Self {
            tfrc: Tfrc::new(&config, Time::ZERO, Bytes(1_000), None),
            now: Time::ZERO,
            seq: 0,
        }
    }

    fn call(&mut self, call: impl FnOnce(&mut Tfrc, &mut Context<'_>, &mut Path)) {
        let mut cx = Context {
            now: self.now,
            rng: &mut Seed(1).stream("tfrc"),
            trace: &mut (),
        };
        call(&mut self.tfrc, &mut cx, &mut Path::unmeasured());
    }

    fn next_timeout(&self) -> Option<(Time, TimerReason)> {
        self.tfrc.next_timeout(&Path::unmeasured())
    }

    /// Sends this number of evenly spaced packets in a round trip. They arrive half a round trip
    /// later, some are lost, and the report is at the end of the round trip.
    fn round(&mut self, packets: u64, lost: &[u64]) {
        let began = self.now;
        let mut outcomes = Vec::new();
        for n in 0..packets {
            self.now = began + RTT * n as u32 / packets as u32;
            let sent = Sent {
                flow: FlowId(0),
                seq: self.seq,
                size: Bytes(1_000),
                kind: Kind::Media,
                app_limited: false,
            };
            let outcome = if lost.contains(&self.seq) {
                Outcome::Lost
            } else {
                Outcome::Received {
                    at: RemoteTime(self.now.as_nanos() + 50_000_000),
                    ecn: Ecn::NotEct,
                }
            };
            outcomes.push(PacketOutcome {
                flow: FlowId(0),
                seq: self.seq,
                size: Bytes(1_000),
                sent: self.now,
                outcome,
            });
            self.seq += 1;
            self.call(|tfrc, cx, path| tfrc.on_sent(cx, &sent, path));
        }
        let hold = self.now.since(began);
        self.now = began + RTT + hold;
        self.call(|tfrc, cx, path| tfrc.on_report(cx, &Report::new(&outcomes).rtt(RTT), path));
        self.now = began + RTT;
    }

    /// Packets per round trip.
    fn window(&self) -> f64 {
        self.tfrc.rate / 10_000.0
    }
}

fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-6
}

#[test]
fn slow_start_begins_with_four_packets_and_is_limited_to_twice_the_receive_rate() {
    let mut flow = Flow::new();
    assert_eq!(flow.tfrc.target().send, Rate::bps(2_400));
    let mut windows = Vec::new();
    for packets in [1, 4, 4, 8, 9] {
        flow.round(packets, &[]);
        windows.push(flow.window());
    }
    // The second report covers a single packet and is not used. The fourth covers 8 packets in
    // 112.5 ms since the previous one, 7.1 per round trip.
    let expected = [4.0, 4.0, 8.0, 14.2, 17.8];
    let mut pairs = windows.iter().zip(expected);
    assert!(pairs.all(|(a, b)| (a - b).abs() < 0.1), "{windows:?}");
    // Less than half of the rate arrived: five packets and one of the previous round. The rate
    // decreases to that.
    flow.round(5, &[]);
    assert!(near(flow.window(), 6.0), "{}", flow.window());
}

#[test]
fn slow_increase_reaches_the_new_rate_within_a_round_trip() {
    let mut flow = Flow::new();
    for packets in [1, 4, 4] {
        flow.round(packets, &[]);
    }
    let before = flow.tfrc.target().send.as_f64() / 80_000.0;
    assert!((before - 8.0).abs() < 0.5, "allowed: {before}");
    let mut rates = Vec::new();
    for _ in 0..9 {
        let seq = flow.seq;
        flow.seq += 1;
        let sent = Sent {
            flow: FlowId(0),
            seq,
            size: Bytes(1_000),
            kind: Kind::Media,
            app_limited: false,
        };
        flow.call(|tfrc, cx, path| tfrc.on_sent(cx, &sent, path));
        rates.push(flow.tfrc.target().send.as_f64() / 80_000.0);
    }
    // Each packet raises the rate by (8 - 4) / 8 packets per round trip.
    assert!(
        (rates[0] - 4.5).abs() < 0.3 && (rates[3] - 6.0).abs() < 0.3,
        "{rates:?}"
    );
    assert!((rates[8] - 8.0).abs() < 0.3, "{rates:?}");
}

#[test]
fn first_loss_ends_slow_start_at_the_receive_rate() {
    let mut flow = Flow::new();
    for packets in [1, 4, 4, 8] {
        flow.round(packets, &[]);
    }
    flow.round(16, &[30]);
    // 15 of 16 packets arrived. The precision of the inverse is 5 %.
    assert!((14.0..=16.8).contains(&flow.window()), "{}", flow.window());
    assert!(flow.tfrc.summary(&Path::unmeasured()).loss_event_rate > 0.0);
}

#[test]
fn after_slow_start_the_rate_grows_by_a_packet_per_round_trip() {
    let mut flow = Flow::new();
    for packets in [1, 4, 4, 8] {
        flow.round(packets, &[]);
    }
    flow.round(16, &[20]);
    let mut last = flow.window();
    for _ in 0..40 {
        flow.round(16, &[]);
        let window = flow.window();
        assert!(window <= last + 1.000_001, "{window} after {last}");
        last = window;
    }
    assert!(last > 20.0, "{last}");
}

#[test]
fn no_feedback_timer_halves_the_rate_after_two_round_trips() {
    let mut flow = Flow::new();
    flow.round(1, &[]);
    flow.round(4, &[]);
    let (before, reported) = (flow.window(), flow.now + Duration::from_millis(75));
    let (at, why) = flow.next_timeout().expect("a timer");
    assert_eq!((at, why), (reported + 2 * RTT, TimerReason::Silence));
    flow.now = at;
    flow.call(RateController::on_timeout);
    assert!(near(flow.window(), before / 2.0), "{}", flow.window());
    assert_eq!(flow.next_timeout().map(|next| next.0), Some(at + 2 * RTT));
}

#[test]
fn an_idle_sender_keeps_its_initial_window() {
    let mut flow = Flow::new();
    flow.round(1, &[]);
    flow.round(4, &[]);
    flow.tfrc.limited.now = true;
    for _ in 0..3 {
        flow.now = flow.next_timeout().expect("a timer").0;
        flow.call(RateController::on_timeout);
    }
    assert!(near(flow.window(), 4.0), "{}", flow.window());
}

#[test]
fn external_measurement_is_used_unchanged() {
    let mut flow = Flow::new();
    flow.round(1, &[]);
    let measured = Measured {
        by: Observer::AggregationPoint,
        receive_rate: Rate::kbps(8_000),
        loss_event_rate: 0.01,
    };
    flow.now += RTT;
    let report = Report::default().measured(measured).rtt(RTT);
    flow.call(|tfrc, cx, path| tfrc.on_report(cx, &report, path));
    // sqrt(0.02/3) = 0.08165; 3 * sqrt(0.00375) = 0.18371 times 0.3 s * 0.01 * 1.0032 is
    // 0.000553: 1 / (0.1 * 0.08165 + 0.000553) = 114.7 packets a second.
    assert!((flow.window() - 11.47).abs() < 0.01, "{}", flow.window());
}

#[test]
fn an_informed_start_sends_at_the_predicted_rate_and_then_avoids_congestion() {
    let mut flow = Flow::informed();
    assert!((flow.window() - 6.0).abs() < 1e-9);
    flow.round(6, &[]);
    assert!((flow.window() - 6.0).abs() < 1e-9, "{}", flow.window());
    assert!(flow.tfrc.losses.is_empty());
    // The first loss event rate, after two round trips.
    flow.round(6, &[]);
    assert!((flow.window() - 6.0).abs() < 0.01, "{}", flow.window());
    assert!(!flow.tfrc.losses.is_empty());
    for _ in 0..20 {
        let before = flow.window();
        flow.round(before as u64, &[]);
        assert!(flow.window() <= before + 1.01, "{before} {}", flow.window());
    }
    assert!(flow.window() > 6.0, "{}", flow.window());
}

#[test]
fn an_informed_start_with_an_early_loss_takes_the_mean_of_fair_and_received_rate() {
    let mut flow = Flow::informed();
    flow.round(6, &[3]);
    // One loss in four packets; before the second report the predicted rate is the received one.
    let fair = flow.tfrc.equation(0.1).rate(0.25);
    let expected = 0.5 * (fair + 60_000.0);
    assert!(
        (flow.tfrc.rate - expected).abs() < 1.0,
        "{}",
        flow.tfrc.rate
    );
    assert_eq!(flow.tfrc.informed, Informed::TooHigh);
    // The fair rate of a loss in ever more packets becomes the higher one.
    for _ in 0..40 {
        flow.round((flow.window() as u64).max(1), &[]);
    }
    assert_eq!(flow.tfrc.informed, Informed::Over);
}

#[test]
fn slow_start_continues_from_a_validated_rate() {
    let validated = Change::Validated {
        rate: Rate::kbps(480),
    };
    let mut flow = Flow::new();
    flow.round(1, &[]);
    flow.call(|tfrc, cx, path| tfrc.on_change(cx, &validated, path));
    assert!((flow.window() - 6.0).abs() < 1e-9, "{}", flow.window());
    // After a loss the equation decides.
    let mut flow = Flow::new();
    for _ in 0..3 {
        flow.round(4, &[]);
    }
    let lost = flow.seq;
    flow.round(4, &[lost]);
    let before = flow.window();
    flow.call(|tfrc, cx, path| tfrc.on_change(cx, &validated, path));
    assert!((flow.window() - before).abs() < 1e-9, "{}", flow.window());
}
