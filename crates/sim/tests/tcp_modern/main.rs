//! The modern TCP models over links: comparison with other implementations and with formulas, loss
//! recovery, fairness, and invariants.

mod dumbbell;
mod forecast;
mod never;
mod reference;
mod repair;
mod share;
mod wire;

use core::time::Duration;

use tidegate_core::units::Time;
use tidegate_sim::tcp::modern::{Config, CongestionConfig, CubicConfig};
use tidegate_sim::tcp::{SourceConfig, SourceKind};

fn with(congestion: CongestionConfig) -> Config {
    Config {
        congestion,
        ..Config::default()
    }
}

/// CUBIC as in ns-3: without the Reno-friendly region.
fn cubic_alone(fast_convergence: bool) -> CongestionConfig {
    CongestionConfig::Cubic(CubicConfig {
        reno_friendly: false,
        fast_convergence,
        ..CubicConfig::default()
    })
}

fn packets(n: u32) -> SourceConfig {
    SourceConfig {
        kind: SourceKind::Packets(n),
        ..SourceConfig::default()
    }
}

fn endless() -> SourceConfig {
    SourceConfig::default()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}
