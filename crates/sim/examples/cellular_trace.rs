//! Writes `scenarios/traces/cellular.mahi`: 30 seconds of a synthetic mobile downlink, one delivery
//! time per line in milliseconds.
//!
//! ```text
//! cargo run -p tidegate-sim --example cellular_trace > scenarios/traces/cellular.mahi
//! ```
//!
//! The trace is not recorded. The mean rate varies between 0.5 and 6 Mb/s, drops to a tenth for
//! fractions of a second a few times (shadowing, handover), and the scheduler serves in turns of a
//! few milliseconds. Only `+ - * /` are used, so that the file is identical on all machines.

use tidegate_core::random::{Seed, unit};

fn main() {
    print!("{}", cellular_trace());
}

/// The whole file.
pub(crate) fn cellular_trace() -> String {
    let mut rng = Seed(2024).stream("cellular");
    let mut moments = Vec::new();
    let (mut mbps, mut fade, mut turn) = (2.5_f64, 0_u32, 0_u32);
    let mut credit = 0.0;
    for ms in 1..=LENGTH_MS {
        if ms % 100 == 0 {
            // A step of at most a tenth up or down, with a drift to the middle.
            let step = 1.0 + 0.3 * (unit(&mut rng) - 0.5) + 0.01 * (2.5 - mbps);
            mbps = (mbps * step).clamp(0.5, 6.0);
            if fade == 0 && unit(&mut rng) < 0.015 {
                fade = 200 + (unit(&mut rng) * 400.0) as u32;
            }
        }
        let depth = if fade > 0 { 0.1 } else { 1.0 };
        fade = fade.saturating_sub(1);
        credit += mbps * depth * 1_000.0 / OPPORTUNITY_BITS;
        if turn == 0 {
            for _ in 0..credit as u32 {
                moments.push(ms);
            }
            credit -= f64::from(credit as u32);
            turn = 1 + (unit(&mut rng) * 8.0) as u32;
        }
        turn -= 1;
    }
    // The last line is the period.
    moments.push(LENGTH_MS);
    moments
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join("\n")
        + "\n"
}

const LENGTH_MS: u32 = 30_000;
const OPPORTUNITY_BITS: f64 = 12_000.0;
