//! Does TFRC, through reports per packet, send what its equation says?

mod tfrc_pipe;

use core::fmt::Write as _;
use core::time::Duration;

use tfrc_pipe::{Flow, Path, SIZE};
use tidegate_core::controller::tfrc::{TfrcConfig, equation};
use tidegate_core::random::Seed;
use tidegate_core::units::Time;

/// One line of the table.
struct Response {
    /// Packets a second.
    rate: f64,
    /// Loss events over packets, both counted by the harness.
    events: f64,
    /// Mean over time of the controller's own estimate.
    estimate: f64,
}

fn response(rtt_ms: u64, loss: f64, events: u64) -> Response {
    let rtt = Duration::from_millis(rtt_ms);
    let path = Path {
        loss,
        ..Path::new(rtt)
    };
    let mut flow = Flow::new(&TfrcConfig::default(), path, Seed(1));
    while flow.events < WARM_UP {
        flow.step();
    }
    let (began, packets) = (flow.now, flow.packets);
    let (mut sum, mut time, mut sampled) = (0.0, 0.0, flow.now);
    while flow.events < WARM_UP + events {
        flow.trace.clear();
        let p = flow.controller.summary().loss_event_rate;
        flow.step();
        let dt = flow.now.since(sampled).as_secs_f64();
        sum += p * dt;
        time += dt;
        sampled = flow.now;
    }
    let sent = (flow.packets - packets) as f64;
    Response {
        rate: sent / flow.now.since(began).as_secs_f64(),
        events: events as f64 / sent,
        estimate: sum / time,
    }
}

#[test]
fn the_rate_is_that_of_the_equation() {
    let mut table = String::new();
    for rtt_ms in [20, 100, 300] {
        for (loss, events) in [(1e-4, 500), (1e-3, 500), (1e-2, 1_000), (5e-2, 1_000)] {
            let r = response(rtt_ms, loss, events);
            let equation = |p| equation::throughput(1.0, rtt_ms as f64 / 1e3, p);
            writeln!(
                table,
                "{rtt_ms:4} {loss:6} {:8.1} {:9.6} {:9.6} {:5.3} {:5.3} {:5.3}",
                r.rate,
                r.events,
                r.estimate,
                r.rate / equation(r.events),
                r.rate / equation(r.estimate),
                r.rate / equation(loss)
            )
            .unwrap();
        }
    }
    println!("{table}");
    let _ = (SIZE, Time::ZERO);
}

const WARM_UP: u64 = 30;
