use super::*;
use crate::control::{Demand, FlowId, Kind, PacketOutcome};
use crate::random::Seed;
use crate::units::RemoteTime;

/// RAP on a path of 100 ms, with packets of 1000 bytes and a report per packet.
struct Path {
    rap: RateControl,
    now: Time,
    events: Vec<(Time, Event)>,
    seq: u64,
}

impl Path {
    fn new(config: &RapConfig) -> Self {
        Self::with(config, None)
    }

    fn with(config: &RapConfig, prior: Option<Prior>) -> Self {
        let demand = Demand {
            floor: Rate::ZERO,
            ceiling: Rate::MAX,
            shares: 1,
        };
        let mut start = Start::new(Time::ZERO, Bytes(1_000), demand);
        start.prior = prior;
        Self {
            rap: config.start(&start),
            now: Time::ZERO,
            events: Vec::new(),
            seq: 0,
        }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut RateControl, &mut Context<'_>) -> T) -> T {
        let mut cx = Context {
            now: self.now,
            rng: &mut Seed(1).stream("rap"),
            trace: &mut self.events,
        };
        call(&mut self.rap, &mut cx)
    }

    fn send(&mut self) -> u64 {
        let packet = Sent {
            flow: FlowId(0),
            seq: self.seq,
            size: Bytes(1_000),
            kind: Kind::Media,
            app_limited: false,
        };
        self.seq += 1;
        self.call(|rap, cx| rap.on_sent(cx, &packet));
        packet.seq
    }

    fn tell(&mut self, seq: u64, outcome: Outcome) {
        let fate = PacketOutcome {
            flow: FlowId(0),
            seq,
            size: Bytes(1_000),
            sent: self.now.before(RTT),
            outcome,
        };
        let report = Report::new(core::slice::from_ref(&fate));
        let report = match outcome {
            Outcome::Lost => report,
            Outcome::Received { .. } => report.rtt(RTT),
        };
        self.call(|rap, cx| rap.on_report(cx, &report));
    }

    /// Advances the time and runs expired timers.
    fn wait(&mut self, span: Duration) {
        let until = self.now + span;
        while let Some((at, _)) = self.rap.next_timeout().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            self.call(RateControl::on_timeout);
        }
        self.now = until;
    }

    /// Packets per round trip.
    fn window(&self) -> f64 {
        self.rap.target().send.as_f64() / 8_000.0 * 0.1
    }

    /// A path on which one packet was acknowledged.
    fn started(config: &RapConfig) -> Self {
        let mut path = Self::new(config);
        path.send();
        path.wait(RTT);
        path.tell(0, ARRIVED);
        path
    }
}

fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-4
}

#[test]
fn first_report_allows_a_packet_per_round_trip() {
    let mut path = Path::new(&RapConfig::per_packet());
    assert!(near(path.window(), 0.05), "a packet in two seconds");
    path.send();
    path.wait(RTT);
    path.tell(0, ARRIVED);
    assert!(near(path.window(), 1.0), "{}", path.window());
}

#[test]
fn an_informed_start_begins_with_the_window_of_the_prior() {
    let config = RapConfig {
        start: StartRule::InformedPaper,
        ..RapConfig::per_packet()
    };
    // 60 kB/s and a round-trip time of 100 ms: correct, 3 times too high, 3 times too low, and less than
    // a packet.
    for (kbps, window) in [(480, 6.0), (1_440, 18.0), (160, 2.0), (8, 1.0)] {
        let prior = Prior {
            rate: Rate::kbps(kbps),
            rtt: RTT,
            confidence: 1.0,
        };
        let mut path = Path::with(&config, Some(prior));
        assert!(near(path.window(), window), "{kbps}: {}", path.window());
        let first: Vec<u64> = (0..window as u64).map(|_| path.send()).collect();
        path.wait(RTT);
        for seq in first {
            path.tell(seq, ARRIVED);
        }
        // Congestion avoidance: one packet more in each round trip.
        assert!(
            near(path.window(), window + 1.0),
            "{kbps}: {}",
            path.window()
        );
        // A loss: the window is halved.
        let lost = path.send();
        path.tell(lost, Outcome::Lost);
        assert!(
            near(path.window(), 0.5 * (window + 1.0)),
            "{kbps}: {}",
            path.window()
        );
    }
    // Without a prior, or by default, one packet per round trip follows the first report.
    assert!(near(Path::new(&config).window(), 0.05));
}

#[test]
fn the_round_trip_time_of_the_path_replaces_that_of_the_prior() {
    let config = RapConfig {
        start: StartRule::InformedPaper,
        ..RapConfig::per_packet()
    };
    let prior = Prior {
        rate: Rate::kbps(960),
        rtt: RTT / 2,
        confidence: 1.0,
    };
    let mut path = Path::with(&config, Some(prior));
    // Six packets in the 50 ms of the prior, and six in those 100 ms of the path.
    assert!(near(path.window(), 12.0), "{}", path.window());
    let first = path.send();
    path.now += RTT;
    path.tell(first, ARRIVED);
    assert!(near(path.window(), 6.0), "{}", path.window());
}

#[test]
fn rate_grows_by_a_packet_per_used_round_trip() {
    let mut path = Path::started(&RapConfig::per_packet());
    // The first increase is two seconds after the start, the default round-trip time.
    path.wait(Duration::from_millis(1_901));
    assert!(near(path.window(), 2.0), "{}", path.window());
    for (sent, window) in [(1, 3.0), (2, 4.0), (1, 4.0), (0, 4.0)] {
        for _ in 0..sent {
            let seq = path.send();
            path.tell(seq, ARRIVED);
        }
        path.wait(RTT);
        assert!(
            near(path.window(), window),
            "{} after {sent}",
            path.window()
        );
    }
    assert_eq!(path.rap.next_timeout(), None, "an idle flow has no timer");
}

#[test]
fn a_loss_halves_the_rate_once_per_flight() {
    let mut path = Path::started(&RapConfig::per_packet());
    let seqs: Vec<u64> = (0..8).map(|_| path.send()).collect();
    path.tell(seqs[0], Outcome::Lost);
    assert!(near(path.window(), 0.5), "{}", path.window());
    path.tell(seqs[1], Outcome::Lost);
    path.tell(seqs[7], Outcome::Lost);
    assert!(near(path.window(), 0.5), "one event");
    let after = path.send();
    path.tell(after, Outcome::Lost);
    assert!(near(path.window(), 0.25), "{}", path.window());
    path.tell(after, Outcome::Lost);
    path.tell(77, Outcome::Lost);
    assert!(near(path.window(), 0.25), "reported twice, and never sent");
    let summary = path.rap.summary();
    assert!(near(summary.loss_event_rate, 1.0 / (0.75 * 9.0 + 0.25)));
    assert_eq!(summary.min_rtt, Some(RTT));
}

#[test]
fn a_mark_is_a_loss_event() {
    let mut path = Path::started(&RapConfig::per_packet());
    let seq = path.send();
    let marked = Outcome::Received {
        at: RemoteTime(0),
        ecn: Ecn::Ce,
    };
    path.tell(seq, marked);
    assert!(near(path.window(), 0.5), "{}", path.window());
    assert_eq!(path.rap.summary().lost, 0);
}

#[test]
fn packet_without_a_report_is_lost_after_the_timeout() {
    // 1.2 round trips plus the report interval.
    for (config, timeout) in [(RapConfig::per_packet(), 120), (RapConfig::default(), 170)] {
        let mut path = Path::started(&config);
        path.send();
        path.wait(Duration::from_millis(timeout - 1));
        path.send();
        assert!(near(path.window(), 1.0), "{}", path.window());
        path.wait(Duration::from_millis(1));
        path.send();
        assert!(near(path.window(), 0.5), "detected before the next packet");
    }
    let mut path = Path::started(&RapConfig::per_packet());
    path.send();
    path.wait(Duration::from_millis(250));
    assert!(near(path.window(), 0.5), "detected without a next packet");
    assert!(matches!(
        path.events[..],
        [
            ..,
            (_, Event::LossEvent { .. }),
            (_, Event::RateChanged { .. })
        ]
    ));
}

#[test]
fn gap_is_limited() {
    let mut path = Path::started(&RapConfig::per_packet());
    for _ in 0..100 {
        let seq = path.send();
        path.tell(seq, Outcome::Lost);
    }
    assert_eq!(path.rap.target().send, Rate::bps(125), "1000 bytes in 64 s");
}

#[test]
fn fine_grain_adaptation_follows_the_queue() {
    let config = RapConfig {
        fine_grain: true,
        ..RapConfig::per_packet()
    };
    let mut path = Path::started(&config);
    let seq = path.send();
    let slow = Duration::from_millis(200);
    let fate = PacketOutcome {
        flow: FlowId(0),
        seq,
        size: Bytes(1_000),
        sent: path.now,
        outcome: ARRIVED,
    };
    let report = Report::new(core::slice::from_ref(&fate)).rtt(slow);
    path.call(|rap, cx| rap.on_report(cx, &report));
    // Short-term 190 ms, long-term 101 ms.
    assert!(near(path.window(), 101.0 / 190.0), "{}", path.window());
}

#[test]
fn new_path_resets_the_state() {
    let mut path = Path::started(&RapConfig::per_packet());
    let change = Change::Path {
        packet_size: Bytes(500),
        prior: None,
    };
    path.call(|rap, cx| rap.on_change(cx, &change));
    assert_eq!(path.rap.target().send, Rate::bps(2_000));
    assert_eq!(path.rap.summary(), Summary::new(Rate::bps(2_000)));
}

const RTT: Duration = Duration::from_millis(100);
const ARRIVED: Outcome = Outcome::Received {
    at: RemoteTime(0),
    ecn: Ecn::NotEct,
};
