//! Synthetic days, for tests and benchmarks: clouds of several kinds of access, and sessions.

use std::time::Duration;

use tidegate_core::random::{Seed, unit};

use crate::trajectory::{BINS, Trajectory};
use crate::visit::{Visit, VisitSample, visits};
use crate::wall_time::WallTime;

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

/// What decides the rate of a session in a [`World`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct World {
    /// Name in tables.
    pub name: &'static str,
    /// Standard deviation between networks, in octaves.
    pub networks: f64,
    /// Rates of the access lines that clients have, in Mb/s, equally frequent; empty if clients do not
    /// differ by their line.
    pub lines: &'static [f64],
    /// Standard deviation of the state of a network from hour to hour.
    pub hours: f64,
    /// Standard deviation between sessions of a client.
    pub sessions: f64,
    /// Fall at 21:00 UTC in octaves.
    pub peak: f64,
    /// Share of networks whose rate falls to a quarter at noon of the third day.
    pub regime: f64,
    /// Share of sessions that have 1.5 Mb/s to send at most.
    pub limited: f64,
}

/// Worlds of different structure.
pub const WORLDS: [World; 6] = [
    World {
        name: "access lines",
        networks: 0.3,
        lines: &[8.0, 25.0, 100.0],
        hours: 0.1,
        sessions: 0.2,
        peak: 0.5,
        regime: 0.0,
        limited: 0.0,
    },
    World {
        name: "shared uplinks",
        networks: 1.5,
        lines: &[],
        hours: 0.5,
        sessions: 0.2,
        peak: 1.0,
        regime: 0.0,
        limited: 0.0,
    },
    World {
        name: "cells",
        networks: 0.4,
        lines: &[],
        hours: 0.3,
        sessions: 1.2,
        peak: 0.8,
        regime: 0.0,
        limited: 0.0,
    },
    World {
        name: "changes of regime",
        networks: 0.8,
        lines: &[],
        hours: 0.2,
        sessions: 0.4,
        peak: 0.0,
        regime: 0.5,
        limited: 0.0,
    },
    World {
        name: "limited sessions",
        networks: 1.0,
        lines: &[],
        hours: 0.2,
        sessions: 0.3,
        peak: 0.0,
        regime: 0.0,
        limited: 0.4,
    },
    World {
        name: "no structure",
        networks: 0.0,
        lines: &[],
        hours: 0.0,
        sessions: 1.0,
        peak: 0.0,
        regime: 0.0,
        limited: 0.0,
    },
];

/// A minute of a session in a [`World`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionMinute {
    /// Seconds since the begin of the first day.
    pub second: u64,
    /// Index of the network.
    pub network: usize,
    /// Index of the client in its network.
    pub client: usize,
    /// Rate in b/s.
    pub bps: f64,
    /// Rate that the path has.
    pub path_bps: f64,
    /// The session had no more to send.
    pub is_limited: bool,
}

impl World {
    /// The visits of these sessions from 1970 on, as they are seen, and as the paths would have them
    /// without the limit of the sessions.
    pub fn visits(&self, seed: Seed, networks: usize, days: u64) -> [Vec<Visit>; 2] {
        let minutes = self.sessions(seed, networks, days);
        let of = |is_truth: bool| {
            let sample = |minute: &SessionMinute| VisitSample {
                client: (100 * minute.network + minute.client) as i64,
                cloud: minute.network as i64,
                at: WallTime::of_day(0).after(Duration::from_secs(minute.second)),
                value: libm::log2(if is_truth {
                    minute.path_bps
                } else {
                    minute.bps
                }),
                is_limited: minute.is_limited && !is_truth,
            };
            visits(minutes.iter().map(sample))
        };
        [of(false), of(true)]
    }

    /// Sessions of `days` days, in order of time: `networks` of 2 to 12 clients that have about three
    /// sessions a day, of one to ten minutes, from their first day on.
    pub fn sessions(&self, seed: Seed, networks: usize, days: u64) -> Vec<SessionMinute> {
        let mut rng = seed.stream("knowledge/world");
        let mut all = Vec::new();
        for network in 0..networks {
            let level = 22.5 + self.networks * normal(&mut rng);
            let changes = unit(&mut rng) < self.regime;
            let hours: Vec<f64> = {
                let mut state = 0.0;
                let next = |_| {
                    state = 0.8 * state + 0.6 * self.hours * normal(&mut rng);
                    state
                };
                (0..24 * days).map(next).collect()
            };
            let first_day = 0.8 * unit(&mut rng);
            let clients = 2 + (11.0 * unit(&mut rng)) as usize;
            for client in 0..clients {
                let line = match self.lines {
                    [] => None,
                    lines => Some(lines[(unit(&mut rng) * lines.len() as f64) as usize]),
                };
                // Of a network and of its clients.
                let first = first_day.max(unit(&mut rng));
                for _ in 0..3 * days {
                    let share = first + (1.0 - first) * unit(&mut rng);
                    let begin = (share * (86_400 * days) as f64) as u64;
                    let minutes = 1 + (10.0 * unit(&mut rng)) as u64;
                    let own = self.sessions * normal(&mut rng);
                    let is_short = unit(&mut rng) < self.limited;
                    for second in (0..minutes).map(|minute| begin + 60 * minute) {
                        let hour = (second / 3_600).min(24 * days - 1) as usize;
                        let apart = ((second / 3_600 % 24) as f64 - 21.0).abs();
                        let peak = self.peak * libm::exp(-apart.min(24.0 - apart) / 2.0);
                        let fall = if changes && second > 216_000 {
                            2.0
                        } else {
                            0.0
                        };
                        let base = line
                            .map_or(level, |mbps| libm::log2(1e6 * mbps) + 0.3 * (level - 22.5));
                        let rate = base + hours[hour] + own - peak - fall + 0.05 * normal(&mut rng);
                        let bps = libm::exp2(rate);
                        let most = if is_short { 1.5e6 } else { f64::MAX };
                        all.push(SessionMinute {
                            second,
                            network,
                            client,
                            bps: bps.min(most),
                            path_bps: bps,
                            is_limited: bps > most,
                        });
                    }
                }
            }
        }
        all.sort_by_key(|minute| (minute.second, minute.network, minute.client));
        all
    }
}
