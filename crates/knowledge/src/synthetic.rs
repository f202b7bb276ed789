//! Synthetic days, for tests and benchmarks: clouds of several kinds of access, and sessions.

use tidegate_core::random::{Seed, unit};

use crate::trajectory::{BINS, Trajectory};

/// A kind of access network: its rate over the day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// Base-two logarithm of the rate in b/s outside of the busy hours.
    pub level: f64,
    /// Fall in the busiest hour, in octaves.
    pub fall: f64,
    /// The busiest bin of the day.
    pub busiest: usize,
}

/// Six kinds, from 1 to 50 Mb/s, some busy in the evening, some at noon, some never.
pub const KINDS: [Kind; 6] = [
    Kind {
        level: 20.0,
        fall: 0.0,
        busiest: 0,
    },
    Kind {
        level: 21.5,
        fall: 1.5,
        busiest: 252,
    },
    Kind {
        level: 21.5,
        fall: 1.5,
        busiest: 144,
    },
    Kind {
        level: 23.0,
        fall: 0.3,
        busiest: 252,
    },
    Kind {
        level: 24.2,
        fall: 1.0,
        busiest: 240,
    },
    Kind {
        level: 25.6,
        fall: 0.0,
        busiest: 0,
    },
];

impl Kind {
    /// Base-two logarithm of the mean rate at a time of the day in bins.
    pub fn at(&self, bin: f64) -> f64 {
        let distance = (bin - self.busiest as f64).abs();
        let distance = distance.min(BINS as f64 - distance);
        // The busy time lasts about four hours.
        let share = libm::exp(-(distance / 36.0) * (distance / 36.0));
        self.level - self.fall * share
    }
}

/// Clouds of random kinds, with each bin missing with a probability of `missing`. Returns the
/// trajectories and the index of the kind of each.
pub fn clouds(seed: Seed, count: usize, missing: f64) -> (Vec<Trajectory>, Vec<usize>) {
    let mut rng = seed.stream("knowledge/clouds");
    let kinds: Vec<usize> = (0..count)
        .map(|_| (unit(&mut rng) * KINDS.len() as f64) as usize)
        .collect();
    let trajectory = |kind: &usize| {
        let own = 0.2 * normal(&mut rng);
        let mut trajectory = Trajectory::missing();
        for bin in 0..BINS {
            let value = KINDS[*kind].at(bin as f64) + own + 0.4 * normal(&mut rng);
            if unit(&mut rng) >= missing {
                trajectory.set(bin, value as f32);
            }
        }
        if trajectory.present() == 0 {
            trajectory.set(0, KINDS[*kind].at(0.0) as f32);
        }
        trajectory
    };
    let trajectories = kinds.iter().map(trajectory).collect();
    (trajectories, kinds)
}

/// Settings of [`series`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Process {
    /// Standard deviation of the slow component, in octaves.
    pub slow: f64,
    /// Correlation of the slow component between two samples.
    pub memory: f64,
    /// Standard deviation of independent noise, in octaves.
    pub noise: f64,
    /// Probability per sample of a jump of the level, by up to two octaves.
    pub jumps: f64,
}

/// Base-two logarithms of rates of consecutive samples: an autoregressive process with noise, and
/// with jumps if there are any.
pub fn series(seed: Seed, count: usize, process: Process) -> Vec<f64> {
    let mut rng = seed.stream("knowledge/series");
    let mut level = 22.0;
    let mut slow = process.slow * normal(&mut rng);
    let fresh = process.slow * (1.0 - process.memory * process.memory).sqrt();
    let next = |_| {
        if unit(&mut rng) < process.jumps {
            level += 4.0 * unit(&mut rng) - 2.0;
            level = f64::clamp(level, 18.0, 26.0);
        }
        slow = process.memory * slow + fresh * normal(&mut rng);
        level + slow + process.noise * normal(&mut rng)
    };
    (0..count).map(next).collect()
}

/// About a standard normal number: the sum of twelve uniform ones.
pub fn normal(rng: &mut dyn rand_core::Rng) -> f64 {
    (0..12).map(|_| unit(rng)).sum::<f64>() - 6.0
}
