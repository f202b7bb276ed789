//! Compares the rate of TFRC, with feedback on every packet, with its equation and with the
//! capacity of a path.
//!
//! `docs/tfrc.md` compares these tables with those of another implementation. They are golden:
//! update both places after an intended change.

mod tfrc_pipe;

use core::fmt::Write as _;
use core::time::Duration;

use tfrc_pipe::{Flow, Path, SIZE};
use tidegate_core::controller::tfrc::{TfrcConfig, equation};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};

/// Throughput over a path of constant round-trip time that loses packets at random.
///
/// The loss event rate in the equation is loss events divided by packets sent. Both are counts, so
/// it has no bias. The table also has the mean over time of the controller's own estimate. That
/// mean is higher for two reasons: the estimate is the inverse of a variable mean interval, and a
/// flow takes more time per packet while its estimate is high. The equation at this mean is
/// therefore below the sending rate.
#[test]
fn rate_matches_the_equation() {
    let mut table = String::from(HEAD);
    for rtt_ms in [20, 100, 300] {
        for loss in [1e-4, 1e-3, 1e-2, 5e-2] {
            let runs: Vec<Response> = (1..=SEEDS).map(|n| response(rtt_ms, loss, n)).collect();
            let mean = |f: fn(&Response) -> f64| runs.iter().map(f).sum::<f64>() / SEEDS as f64;
            let (rate, events) = (mean(|r| r.rate), mean(|r| r.events));
            let estimate = mean(|r| r.estimate);
            let equation = |p| equation::throughput(1.0, rtt_ms as f64 / 1e3, p);
            let (by_events, by_estimate) = (rate / equation(events), rate / equation(estimate));
            writeln!(
                table,
                "{rtt_ms:6} {loss:6} {rate:9.1} {events:8.6} {estimate:8.6} {by_events:6.3} {by_estimate:6.3}",
            )
            .expect("writing to a string cannot fail");
            assert!(
                (0.85..=1.15).contains(&by_events),
                "{by_events} of the equation\n{table}"
            );
            assert!(
                (0.85..=1.15).contains(&by_estimate),
                "{by_estimate} of the equation\n{table}"
            );
        }
    }
    println!("{table}");
    assert_eq!(table, RESPONSE);
}

/// Fraction of 4 Mb/s that is used at 80 ms with a queue of 100 ms, as a function of random loss.
#[test]
fn random_loss_limits_the_utilisation_of_a_path() {
    let mut table = String::from(
        "
  loss  share    sd   min   max\n",
    );
    for loss in [0.0, 1e-4, 1e-3, 1e-2] {
        let shares: Vec<f64> = (1..=10).map(|seed| share(loss, seed)).collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let squares: f64 = shares.iter().map(|s| (s - mean) * (s - mean)).sum();
        let sd = (squares / (shares.len() - 1) as f64).sqrt();
        let min = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let max = shares.iter().copied().fold(0.0, f64::max);
        writeln!(table, "{loss:6}  {mean:5.3} {sd:5.3} {min:5.3} {max:5.3}")
            .expect("writing to a string cannot fail");
    }
    println!("{table}");
    assert_eq!(table, SHARES);
}

/// The first report after an outage covers a few packets. Their receive rate is their number per
/// round trip. The rate is limited to twice that, or to the rate left by the no-feedback timer.
//= rfc5348-6.2-receive-rate (test)
#[test]
fn first_report_after_an_outage_allows_twice_its_packets() {
    for (secs, rtt_ms) in [1, 5, 30]
        .into_iter()
        .flat_map(|secs| [(secs, 100), (secs, 300)])
    {
        for loss in [1e-4, 1e-3, 1e-2, 5e-2] {
            let rtt = Duration::from_millis(rtt_ms);
            let ends = Time::from_secs(200 + secs);
            let path = Path {
                loss,
                outage: (Time::from_secs(200), ends),
                ..Path::new(rtt)
            };
            let mut flow = Flow::new(&TfrcConfig::default(), path, Seed(secs));
            flow.run_until(ends);
            let (delivered, mut left) = (flow.delivered, flow.controller.target().send);
            while flow.delivered == delivered {
                left = flow.controller.target().send;
                flow.step();
            }
            let came = Bytes(SIZE.get() * (flow.delivered - delivered));
            let (twice, allowed) = (2.0 * (came / rtt).as_f64(), flow.controller.target().send);
            assert!(
                allowed.as_f64() <= 1.001 * twice.max(left.as_f64()),
                "{secs} s, {rtt:?}, {loss}: {came:?} allow {allowed} after {left}"
            );
        }
    }
}

/// An outage of five seconds each way, on a path with a loss in a thousand.
#[test]
fn rate_falls_in_an_outage_and_recovers() {
    let ends = Time::from_secs(105);
    let mut recovery = Vec::new();
    for seed in 1..=10 {
        let path = Path {
            loss: 1e-3,
            outage: (Time::from_secs(100), ends),
            ..Path::new(Duration::from_millis(100))
        };
        let mut flow = Flow::new(&TfrcConfig::default(), path, Seed(seed));
        flow.run_until(Time::from_secs(50));
        let before = flow.packets;
        flow.run_until(Time::from_secs(100));
        let usual = (flow.packets - before) as f64 / 50.0;
        let sent = flow.packets;
        flow.run_until(ends);
        let during = (flow.packets - sent) as f64;
        // Halved every 400 ms: about 0.4 s * (1 + 1/2 + 1/4 ..) of the usual rate.
        assert!(
            during < 2.0 * usual,
            "{during} packets during the outage, {usual} per second before"
        );
        let low = flow.controller.target().send;
        assert!(low.as_f64() < usual * SIZE.bits() as f64 / 50.0, "{low}");
        while flow.controller.target().send.as_f64() < usual * SIZE.bits() as f64 / 2.0 {
            flow.step();
            assert!(flow.now < Time::from_secs(300), "no recovery");
        }
        recovery.push(flow.now.since(ends).as_secs_f64());
    }
    let mean = recovery.iter().sum::<f64>() / recovery.len() as f64;
    println!("half of the usual rate after {mean:.1} s: {recovery:.1?}");
    assert!(mean < 60.0);
}

/// Values of one row of the table.
struct Response {
    /// Packets per second.
    rate: f64,
    /// Loss events divided by packets, both counted outside of the controller.
    events: f64,
    /// Mean over time of the controller's own estimate.
    estimate: f64,
}

fn response(rtt_ms: u64, loss: f64, seed: u64) -> Response {
    let path = Path {
        loss,
        ..Path::new(Duration::from_millis(rtt_ms))
    };
    let mut flow = Flow::new(&TfrcConfig::default(), path, Seed(seed));
    while flow.events < WARM_UP {
        flow.step();
    }
    let (began, packets) = (flow.now, flow.packets);
    let mut estimate = 0.0;
    while flow.events < WARM_UP + EVENTS {
        flow.trace.clear();
        let (p, since) = (flow.controller.summary().loss_event_rate, flow.now);
        flow.step();
        estimate += p * flow.now.since(since).as_secs_f64();
    }
    let (sent, lasted) = ((flow.packets - packets) as f64, flow.now.since(began));
    Response {
        rate: sent / lasted.as_secs_f64(),
        events: EVENTS as f64 / sent,
        estimate: estimate / lasted.as_secs_f64(),
    }
}

/// Delivered fraction of the capacity, from 20 s to 120 s.
fn share(loss: f64, seed: u64) -> f64 {
    let capacity = Rate::kbps(4_000);
    let path = Path {
        loss,
        capacity,
        queue: Duration::from_millis(100),
        ..Path::new(Duration::from_millis(80))
    };
    let mut flow = Flow::new(&TfrcConfig::default(), path, Seed(seed));
    flow.run_until(Time::from_secs(20));
    let before = flow.delivered;
    flow.run_until(Time::from_secs(120));
    let bits = (flow.delivered - before) * SIZE.bits();
    bits as f64 / (capacity.as_f64() * 100.0)
}

const WARM_UP: u64 = 30;
const EVENTS: u64 = 500;
const SEEDS: u64 = 3;

const HEAD: &str = "
rtt_ms   loss packets/s   events estimate /events /estim\n";
const RESPONSE: &str = "
rtt_ms   loss packets/s   events estimate /events /estim
    20 0.0001    6299.1 0.000098 0.000107  1.019  1.066
    20  0.001    1975.6 0.000987 0.001084  1.022  1.072
    20   0.01     604.9 0.008975 0.009803  1.012  1.065
    20   0.05     218.9 0.040645 0.044955  0.998  1.085
   100 0.0001    1259.6 0.000098 0.000107  1.019  1.066
   100  0.001     394.9 0.000987 0.001085  1.022  1.072
   100   0.01     120.9 0.008972 0.009821  1.010  1.065
   100   0.05      43.7 0.040562 0.045084  0.994  1.084
   300 0.0001     419.8 0.000098 0.000107  1.019  1.066
   300  0.001     131.6 0.000987 0.001086  1.021  1.072
   300   0.01      40.3 0.008972 0.009836  1.010  1.065
   300   0.05      14.5 0.040548 0.045163  0.993  1.085
";
const SHARES: &str = "
  loss  share    sd   min   max
     0  0.990 0.000 0.990 0.990
0.0001  0.991 0.002 0.987 0.993
 0.001  0.906 0.035 0.841 0.946
  0.01  0.294 0.017 0.268 0.321
";
