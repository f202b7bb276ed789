//! Paths with drawn properties.

use core::time::Duration;

use tidegate_core::link::{DropTailConfig, JitterConfig, LossConfig, QueueConfig, Spread};
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::{Bytes, Rate};
use tidegate_sim::scenario::{RatePlan, Scenario};

/// `base` with the properties of the path of this number: 1 to 50 Mb/s, a round trip of 20 to 700 ms, and
/// a queue of 20 to 500 ms, which are uniform in their logarithms; losses of 0 to 5 %, uniform, or none
/// in every fourth path; and in every second path a jitter of up to 10 ms that keeps the order.
pub(super) fn path(base: &Scenario, number: u64) -> Scenario {
    let mut rng = Seed(number).stream("bench/path");
    let mut between = |low: f64, high: f64| low * libm::pow(high / low, unit(&mut rng));
    let rate = Rate::kbps(between(1_000.0, 50_000.0) as u64);
    let one_way = Duration::from_secs_f64(between(0.02, 0.7) / 2.0);
    let queue = rate.as_f64() / 8.0 * between(0.02, 0.5);
    let (loss, jitter) = (0.05 * unit(&mut rng), 0.01 * unit(&mut rng));
    let mut scenario = base.clone();
    for link in &mut scenario.links {
        match link.name.as_str() {
            "bottleneck" => {
                link.rate = Some(RatePlan::Fixed(rate));
                // A queue holds a few packets at least.
                let bytes = Bytes(queue.max(6_000.0) as u64);
                link.queue = Some(QueueConfig::DropTail(DropTailConfig::bytes(bytes)));
            }
            name => {
                link.delay = one_way;
                if name == "up" && !number.is_multiple_of(4) {
                    link.loss = LossConfig::Bernoulli(loss);
                }
                if name == "up" && number.is_multiple_of(2) {
                    link.jitter = Some(JitterConfig {
                        spread: Spread::Uniform {
                            max: Duration::from_secs_f64(jitter),
                        },
                        reorder: false,
                    });
                }
            }
        }
    }
    scenario
}
