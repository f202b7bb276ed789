//! Acknowledgements and random streams for tests of congestion controls.

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::random::Seed;
use tidegate_core::units::Time;

use super::congestion::{Acked, Phase, RateSample};
use super::rate::{Sampler, Stamp};

/// An acknowledgement of `n` segments in sequence, while the window limits the sender and there is
/// no loss.
pub(super) fn acked(n: u32) -> Acked {
    Acked {
        now: Time::ZERO,
        phase: Phase::Open,
        una: 0,
        next: 0,
        acked: n,
        delivered: n,
        marked: 0,
        lost: 0,
        prior_in_flight: 0,
        in_flight: 0,
        rtt: None,
        delayed: false,
        srtt: Duration::ZERO,
        total: 0,
        rate: RateSample::default(),
        window_limited: true,
    }
}

pub(super) fn rng() -> Pcg64Mcg {
    Seed(1).stream("agent")
}

/// Stamp of a segment that is sent `ms` after the start.
pub(super) fn stamp(ms: u64) -> Stamp {
    let mut stamp = Sampler::new().stamp(Time::from_millis(ms), false);
    // In these tests, segments leave at least a millisecond apart.
    stamp.order = ms + 1;
    stamp
}
