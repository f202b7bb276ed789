#![expect(clippy::float_cmp, reason = "these rates are exact")]

use std::collections::VecDeque;

use super::*;
use crate::control::{Demand, FlowId, Prior};
use crate::random::Seed;
use crate::units::RemoteTime;

/// RCS on a path without queue, with packets of 1,000 bytes and a report per packet after half a
/// round trip each way.
struct Path {
    rcs: RateControl,
    now: Time,
    events: Vec<(Time, Event)>,
    next: u64,
    credit: u64,
    due: Time,
    last: Option<Time>,
    rate: Rate,
    /// Reports on their way: arrival, packet, outcome.
    reports: VecDeque<(Time, u64, Time, bool)>,
    sent: Vec<(Kind, Time)>,
    /// Whether the path delivers a packet of this kind and number, sent at this time.
    delivers: fn(Kind, u64, Time) -> bool,
}

impl Path {
    fn new(config: &RcsConfig, delivers: fn(Kind, u64, Time) -> bool) -> Self {
        let demand = Demand {
            floor: Rate::ZERO,
            ceiling: rate(S0),
            shares: 1,
        };
        Self {
            rcs: config.start(&Start::new(Time::ZERO, Bytes(1_000), demand)),
            now: Time::ZERO,
            events: Vec::new(),
            next: 0,
            credit: 0,
            due: Time::ZERO,
            last: None,
            rate: Rate::ZERO,
            reports: VecDeque::new(),
            sent: Vec::new(),
            delivers,
        }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut RateControl, &mut Context<'_>) -> T) -> T {
        let mut cx = Context {
            now: self.now,
            rng: &mut Seed(1).stream("rcs"),
            trace: &mut self.events,
        };
        call(&mut self.rcs, &mut cx)
    }

    fn send(&mut self) {
        let target = self.rcs.target();
        self.credit += target.filler.as_bps();
        let kind = if self.credit >= target.send.as_bps() {
            self.credit -= target.send.as_bps();
            Kind::Dummy
        } else {
            Kind::Media
        };
        let packet = Sent {
            flow: FlowId(0),
            seq: self.next,
            size: Bytes(1_000),
            kind,
            app_limited: false,
        };
        self.next += 1;
        self.sent.push((kind, self.now));
        let arrives = (self.delivers)(kind, packet.seq, self.now);
        self.reports
            .push_back((self.now + RTT, packet.seq, self.now, arrives));
        self.call(|rcs, cx| rcs.on_sent(cx, &packet));
        self.last = Some(self.now);
    }

    /// A loss is reported with the third later packet that arrives.
    fn report(&mut self) {
        let (_, seq, sent, arrives) = self.reports.pop_front().unwrap();
        let mut packets = Vec::new();
        if arrives {
            let outcome = |seq, sent, outcome| PacketOutcome {
                flow: FlowId(0),
                seq,
                size: Bytes(1_000),
                sent,
                outcome,
            };
            if let Some(lost) = seq.checked_sub(3)
                && let (kind, left) = self.sent[lost as usize]
                && !(self.delivers)(kind, lost, left)
            {
                packets.push(outcome(lost, left, Outcome::Lost));
            }
            let received = Outcome::Received {
                at: RemoteTime(self.now.as_nanos()),
                ecn: Ecn::NotEct,
            };
            packets.push(outcome(seq, sent, received));
            let is_dummy =
                |packet: &PacketOutcome| matches!(self.sent[packet.seq as usize], (Kind::Dummy, _));
            let (dummies, packets): (Vec<_>, Vec<_>) = packets.into_iter().partition(is_dummy);
            let mut report = Report::new(&packets).dummies(&dummies);
            report.rtt = (!packets.is_empty()).then_some(RTT);
            self.call(|rcs, cx| rcs.on_report(cx, &report));
        }
    }

    fn run_until(&mut self, end: Time) {
        loop {
            let target = self.rcs.target();
            if target.send != self.rate {
                self.rate = target.send;
                self.credit = 0;
                let gap = gap(target.send);
                self.due = self.last.map_or(self.now, |last| last + gap).max(self.now);
            }
            let timeout = self.rcs.next_timeout().map_or(Time::FAR, |(at, _)| at);
            let report = self.reports.front().map_or(Time::FAR, |report| report.0);
            let due = if target.send == Rate::ZERO {
                Time::FAR
            } else {
                self.due
            };
            let at = timeout.min(report).min(due);
            if at > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(at);
            if timeout <= at {
                self.call(RateControl::on_timeout);
            } else if report <= at {
                self.report();
            } else {
                self.send();
                self.due = self.now + gap(self.rate);
            }
        }
    }

    /// State, data packets per second and `wdsn` at a change of the state.
    fn states(&self) -> Vec<(f64, ControllerState, f64, i64)> {
        let states = self.events.iter().filter_map(|(at, event)| match event {
            Event::StateChanged {
                state,
                rate,
                reserve,
            } => Some((seconds(*at), *state, packets(*rate), *reserve)),
            _ => None,
        });
        states.collect()
    }

    fn media(&self) -> f64 {
        packets(self.rcs.target().media)
    }
}

fn seconds(at: Time) -> f64 {
    at.as_nanos() as f64 / 1e9
}

fn rate(packets: u64) -> Rate {
    Rate::bps(packets * 8_000)
}

fn packets(rate: Rate) -> f64 {
    rate.as_f64() / 8_000.0
}

fn gap(send: Rate) -> Duration {
    Duration::from_secs_f64(8_000.0 / send.as_f64().max(1.0))
}

/// The paper's figures have 22 packets per second and 550 ms. With these values all intervals are
/// whole: a round trip has 10 packets.
const RTT: Duration = Duration::from_millis(500);
const S0: u64 = 20;
/// A data packet that is sent in Steady.
const LOST: u64 = 90;

fn config() -> RcsConfig {
    RcsConfig {
        rtt: Some(RTT),
        ..RcsConfig::default()
    }
}

#[test]
fn initial_finds_the_rate_of_the_path_in_two_round_trips() {
    // The path takes every second dummy packet: 10 packets per second are available.
    let mut path = Path::new(&config(), |_, seq, _| seq.is_multiple_of(2));
    path.run_until(Time::from_millis(499));
    assert_eq!(path.rcs.target().filler, rate(S0));
    path.run_until(Time::from_millis(999));
    assert_eq!(path.rcs.target().send, Rate::ZERO);
    let sent = path.next;
    path.run_until(Time::from_millis(1_000));
    assert_eq!(sent, 10);
    // 5 of 10 reports, each a packet per round trip.
    let (at, state, rate, reserve) = path.states()[0];
    assert_eq!(
        (at, state, rate, reserve),
        (1.0, ControllerState::Steady, 10.0, -1)
    );
}

#[test]
fn without_a_configured_round_trip_time_the_first_packet_measures_it() {
    let mut path = Path::new(&RcsConfig::default(), |_, _, _| true);
    path.run_until(Time::from_millis(2_000));
    let states = path.states();
    assert_eq!((states[0].0, states[0].1), (0.5, ControllerState::Initial));
    assert_eq!((states[1].0, states[1].1), (1.5, ControllerState::Steady));
    assert_eq!(states[1].2, 20.0);
}

/// Figure 11: state, rate and `wdsn` at t0, t1, t2 and t3.
#[test]
fn after_a_link_error_the_rate_is_back_two_round_trips_later() {
    // It leaves at 5 s, and the third later packet has its report at 5.65 s.
    let lost = |_, seq, _| seq != LOST;
    let mut path = Path::new(&config(), lost);
    path.run_until(Time::from_millis(5_640));
    assert_eq!(path.sent[LOST as usize], (Kind::Media, Time::from_secs(5)));
    assert_eq!(path.media(), 20.0);
    path.run_until(Time::from_millis(8_000));
    let states = path.states();
    let [.., (t0, detected, halved, wdsn), (t1, steady, kept, left)] = states[..] else {
        panic!("{states:?}");
    };
    assert_eq!(
        (detected, halved, wdsn),
        (ControllerState::Detected, 10.0, 5)
    );
    assert_eq!((steady, kept, left), (ControllerState::Steady, 10.0, 5));
    assert_eq!((t0, t1), (5.65, 6.15));
    // At t2, SRTT / 2 after t1, wdsn is used up; at t3, SRTT after t1, the rate is back.
    let at = |ms: f64| Time::from_nanos(((t1 + ms / 1e3) * 1e9) as u64);
    let mut path = Path::new(&config(), lost);
    path.run_until(at(240.0));
    assert_eq!(path.media(), 10.0);
    path.run_until(at(350.0));
    assert!((12.0..18.0).contains(&path.media()), "{}", path.media());
    path.run_until(at(510.0));
    assert_eq!(path.media(), 20.0);
    let dummies = path.sent[10..].iter().filter(|sent| sent.0 == Kind::Dummy);
    assert_eq!(dummies.count(), 10, "SRTT * S0");
}

/// Figure 13: half of the dummy packets are lost, too.
#[test]
fn after_congestion_the_rate_stays_halved_and_grows_by_a_packet_per_round_trip() {
    // Two dummy packets follow each data packet.
    let lost = |kind, seq: u64, _| match kind {
        Kind::Media => seq != LOST,
        // None in Initial.
        _ => seq < 10 || seq.is_multiple_of(3),
    };
    let mut path = Path::new(&config(), lost);
    path.run_until(Time::from_millis(8_000));
    let states = path.states();
    let &(t1, state, kept, _) = states.last().unwrap();
    assert_eq!((state, kept), (ControllerState::Steady, 10.0));
    let mut path = Path::new(&config(), lost);
    for round in 0..3 {
        let at = t1 + 0.5 * f64::from(round) + 0.49;
        path.run_until(Time::from_nanos((at * 1e9) as u64));
        // A packet per round trip is two packets per second.
        assert!(
            (path.media() - 10.0 - 2.0 * f64::from(round)).abs() < 1e-6,
            "{round}"
        );
    }
}

/// Figure 15: no packet arrives for two round trips.
#[test]
fn after_a_signal_loss_the_rate_is_back_a_round_trip_later() {
    const GONE: u64 = 5_000;
    const BACK: u64 = 6_500;
    let delivers = |_, _, sent: Time| !(GONE..BACK).contains(&(sent.as_nanos() / 1_000_000));
    let mut path = Path::new(&config(), delivers);
    path.run_until(Time::from_millis(10_000));
    let states = path.states();
    let steady = states.len() - 1;
    let [detected, backoff, back] = states[steady - 2..] else {
        panic!("{states:?}");
    };
    assert_eq!(
        (detected.1, detected.2, detected.3),
        (ControllerState::Detected, 10.0, 5)
    );
    assert_eq!(
        (backoff.1, backoff.2, backoff.3),
        (ControllerState::Backoff, 10.0, 0)
    );
    assert_eq!((back.1, back.2, back.3), (ControllerState::Steady, 10.0, 0));
    // The first packet after the interruption has its report a round trip later.
    assert!((7.0..7.1).contains(&back.0), "{states:?}");
    let mut path = Path::new(&config(), delivers);
    path.run_until(Time::from_nanos(((back.0 + 0.55) * 1e9) as u64));
    assert_eq!(path.media(), 20.0);
    // Without Backoff each round trip halves the rate.
    let without = RcsConfig {
        backoff: false,
        ..config()
    };
    let mut path = Path::new(&without, |_, _, sent: Time| {
        !(5_000..11_000).contains(&(sent.as_nanos() / 1_000_000))
    });
    path.run_until(Time::from_millis(11_450));
    assert!(path.media() < 6.0, "{}", path.media());
}

#[test]
fn a_long_signal_loss_leads_back_to_initial() {
    use ControllerState::{Backoff, Detected, Initial, Steady};

    let short = RcsConfig {
        backoff_timeout: Duration::from_secs(2),
        ..config()
    };
    let gone = |_, _, sent: Time| sent < Time::from_secs(5) || sent > Time::from_secs(20);
    let mut path = Path::new(&short, gone);
    path.run_until(Time::from_secs(30));
    let states: Vec<_> = path.states().iter().map(|state| state.1).collect();
    assert_eq!(states[..5], [Steady, Detected, Backoff, Initial, Steady]);
    assert_eq!(path.media(), 20.0);
}

#[test]
fn extreme_targets_and_round_trips_stay_in_bounds() {
    let start = |ceiling, rtt| {
        let demand = Demand {
            floor: Rate::ZERO,
            ceiling,
            shares: 1,
        };
        let prior = Prior {
            rate: Rate::MAX,
            rtt,
            confidence: 1.0,
        };
        let start = Start::new(Time::ZERO, Bytes(1_000), demand).prior(prior);
        *RcsConfig::default().start(&start).target()
    };
    assert_eq!(start(Rate::ZERO, RTT).send, Rate::bps(4_000));
    assert_eq!(start(Rate::MAX, Duration::ZERO).send, MAX_TARGET);
    assert_eq!(start(rate(5), Duration::MAX).send, rate(5));
}
