//! Acknowledgements and luck for the tests of congestion controls.

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::random::Seed;
use tidegate_core::units::Time;

use super::congestion::{Acked, Phase, RateSample};
use super::rate::{Sampler, Stamp};

/// Of `n` segments in sequence, when the window limits the sender and nothing is amiss.
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

pub(super) fn luck() -> Pcg64Mcg {
    Seed(1).stream("agent")
}

/// Of a segment that leaves `ms` after the beginning.
pub(super) fn stamp(ms: u64) -> Stamp {
    let mut stamp = Sampler::new().stamp(Time::from_millis(ms), false);
    // In these tests no two segments leave within a millisecond.
    stamp.order = ms + 1;
    stamp
}
