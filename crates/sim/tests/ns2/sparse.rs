//! Controllers with reports on many packets, every 25 ms as over RTP, compared with the same
//! controllers with the reports of their specifications.

use core::time::Duration;

use tidegate_core::control::Algorithm as _;
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::link::{LinkConfig, LossConfig};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_sim::model_flow::{ReceiverConfig, Reporting, SenderConfig, ends};
use tidegate_sim::ns2::tfrc::Ns2TfrcConfig;

use crate::lab::{Lab, link, start};

#[test]
fn sparse_reports_hardly_reduce_throughput() {
    for (name, control) in [
        ("RAP", ControllerConfig::from(RapConfig::default())),
        ("RFC 5348", TfrcConfig::default().into()),
        ("RFC 3448", Ns2TfrcConfig::default().into()),
    ] {
        println!("{name}\nrtt_ms  loss  sparse    own  ratio  (packets per second)");
        for (delay, loss) in [(10, 0.01), (50, 0.0), (50, 0.001), (50, 0.01), (150, 0.003)] {
            let mean = |own| {
                (1..=3)
                    .map(|seed| rate(&control, own, delay, loss, seed))
                    .sum::<f64>()
                    / 3.0
            };
            let (sparse, own) = (mean(false), mean(true));
            let ratio = sparse / own;
            println!(
                "{:6} {loss:5} {sparse:7.1} {own:6.1} {ratio:6.3}",
                2 * delay
            );
            assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
        }
    }
}

/// Packets per second over 8 Mb/s, from 10 s to 70 s; with the algorithm's `own` reports or sparse
/// ones.
fn rate(control: &ControllerConfig, own: bool, delay: u64, loss: f64, seed: u64) -> f64 {
    let delay = Duration::from_millis(delay);
    let there = LinkConfig {
        loss: LossConfig::Bernoulli(loss),
        ..link(Rate::kbps(8_000), delay, 51)
    };
    let back = LinkConfig {
        delay,
        ..LinkConfig::default()
    };
    let mut lab = Lab::new(vec![("there", there), ("back", back)], &[&[0], &[1]], seed);
    let size = Bytes(1_200);
    let sparse = ReceiverConfig {
        reporting: Reporting::Every(Duration::from_millis(25)),
        ..ReceiverConfig::tfrc()
    };
    let (sender, receiver) = if own {
        ends(control.properties(), size)
    } else {
        (SenderConfig::new(size), sparse)
    };
    let mut start = start(&sender);
    start.report_interval = own.then_some(Duration::ZERO);
    let controller = control.start(&start);
    lab.add(sender, controller, receiver, [0, 1]);
    lab.run(Time::from_secs(10));
    let before = lab.flows[0].receiver.packets();
    lab.run(Time::from_secs(70));
    (lab.flows[0].receiver.packets() - before) as f64 / 60.0
}
