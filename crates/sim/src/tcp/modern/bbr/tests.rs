use super::super::congestion::RateSample;
use super::super::testing::{acked, rng};
use super::*;

/// An ideal path of `per_second` segments and `rtt_ms`, in steps of round trips: segments of one
/// round trip are acknowledged in the next, at the rate of the path.
struct Pipe {
    bbr: Bbr,
    window: Window,
    now: Time,
    total: u64,
    per_second: f64,
    rtt_ms: u64,
}

impl Pipe {
    fn new(per_second: f64, rtt_ms: u64) -> Self {
        Self {
            bbr: Bbr::new(BbrConfig::default(), Bytes(1_250), 10),
            window: Window::new(10, 1 << 20),
            now: Time::ZERO,
            total: 0,
            per_second,
            rtt_ms,
        }
    }

    fn round(&mut self) {
        let rtt = Duration::from_millis(self.rtt_ms);
        let sent_at = self.total;
        let wanted = self.bbr.pacing / self.bbr.packet_bits * rtt.as_secs_f64();
        let flight = wanted.min(f64::from(self.window.cwnd())).max(1.0);
        let carried = flight.min(self.per_second * rtt.as_secs_f64()) as u32;
        for i in 1..=carried.max(1) {
            self.total += 1;
            let ack = Acked {
                now: self.now + rtt * i / carried.max(1),
                srtt: rtt,
                rtt: Some(rtt),
                total: self.total,
                in_flight: flight as u32,
                prior_in_flight: flight as u32,
                rate: RateSample {
                    prior: sent_at,
                    delivered: u64::from(carried.max(1)),
                    interval: rtt,
                    app_limited: false,
                },
                ..acked(1)
            };
            self.bbr.on_ack(&ack, &mut self.window, &mut rng());
        }
        self.now += rtt;
    }
}

#[test]
fn finds_the_rate_and_settles_on_a_window_of_two_products() {
    let mut pipe = Pipe::new(1_000.0, 100);
    for _ in 0..8 {
        pipe.round();
    }
    assert!(
        pipe.bbr.full.reached || pipe.bbr.mode == BbrMode::Startup,
        "{pipe:?}",
        pipe = pipe.bbr
    );
    for _ in 0..30 {
        pipe.round();
    }
    assert_eq!(pipe.bbr.mode, BbrMode::ProbeBandwidth);
    let bandwidth = pipe.bbr.bandwidth().as_f64();
    assert!((bandwidth - 1e7).abs() < 2e5, "{bandwidth}");
    // 200 segments, three bursts of two, rounding up to even, two in the probing phase.
    let cwnd = pipe.window.cwnd();
    assert!((200..=200 + 12).contains(&cwnd), "{cwnd}");
}

#[test]
fn the_cycle_has_a_mean_of_one() {
    assert!((CYCLE.iter().sum::<f64>() / 8.0 - 1.0).abs() < 1e-12);
}

#[test]
fn probes_the_round_trip_every_ten_seconds() {
    let mut pipe = Pipe::new(1_000.0, 100);
    // An old minimum of 50 ms, below the round trip of the path.
    pipe.rtt_ms = 50;
    for _ in 0..20 {
        pipe.round();
    }
    pipe.rtt_ms = 100;
    let mut probes = 0;
    let mut last = pipe.bbr.mode;
    for _ in 0..400 {
        pipe.round();
        probes += u32::from(pipe.bbr.mode == BbrMode::ProbeRtt && last != BbrMode::ProbeRtt);
        last = pipe.bbr.mode;
    }
    // 40 s; a sample equal to the minimum does not renew it.
    assert!((3..=4).contains(&probes), "{probes}");
    assert_eq!(pipe.bbr.min_rtt(), Some(Duration::from_millis(100)));
}

#[test]
fn window_is_restored_after_recovery() {
    let mut pipe = Pipe::new(1_000.0, 100);
    for _ in 0..40 {
        pipe.round();
    }
    let before = pipe.window.cwnd();
    pipe.bbr.on_congestion(pipe.now, Signal::Loss, &pipe.window);
    let ack = |phase, lost| Acked {
        now: pipe.now,
        phase,
        lost,
        in_flight: 100,
        total: pipe.total,
        ..acked(1)
    };
    let (lossy, healed) = (ack(Phase::Recovery, 3), ack(Phase::Open, 0));
    pipe.bbr.on_ack(&lossy, &mut pipe.window, &mut rng());
    assert_eq!(pipe.window.cwnd(), 101);
    pipe.bbr.on_ack(&healed, &mut pipe.window, &mut rng());
    assert!(pipe.window.cwnd() >= before - 8, "{}", pipe.window.cwnd());
}
