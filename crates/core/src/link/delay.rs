//! Propagation delay and jitter.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

use rand_pcg::Pcg64Mcg;

use super::steps::{StepReader, Steps};
use crate::random::unit;
use crate::units::{Time, nanos};

/// Delay variation per packet, added to the propagation delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JitterConfig {
    /// Distribution of the extra delay.
    pub spread: Spread,
    /// Whether a packet may overtake another of its flow. If not, a packet arrives after its
    /// predecessor in the flow by at least its own transmission time (RFC 8868 section 4.5.2). The
    /// RFC counts the starts of transmissions; this model counts the arrivals of the last byte.
    /// Flows do not delay each other, as the RFC has one queue per flow.
    pub reorder: bool,
}

/// A distribution of delays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Normal distribution truncated to 0..=`max` by rejection.
    Normal {
        /// Mean before truncation, up to `max`.
        mean: Duration,
        /// Standard deviation before truncation, above zero.
        deviation: Duration,
        /// The longest delay.
        max: Duration,
    },
    /// Uniform distribution over 0..=`max`.
    Uniform {
        /// The longest delay.
        max: Duration,
    },
}

impl JitterConfig {
    pub(super) fn check(&self) -> Result<(), JitterFault> {
        match self.spread {
            Spread::Normal { mean, max, .. } if mean > max => Err(JitterFault::Mean { mean, max }),
            Spread::Normal { deviation, .. } if deviation.is_zero() => Err(JitterFault::Deviation),
            Spread::Normal { .. } | Spread::Uniform { .. } => Ok(()),
        }
    }
}

/// Jitter parameter out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JitterFault {
    /// The standard deviation is zero.
    #[error("the standard deviation of its jitter is 0: add it to the delay instead")]
    Deviation,
    /// The mean is above the longest delay.
    #[error("the mean of its jitter, {mean:?}, is above the longest, {max:?}: lower it")]
    Mean {
        /// The mean.
        mean: Duration,
        /// The longest delay.
        max: Duration,
    },
}

/// Packets in propagation.
#[derive(Debug)]
pub(super) struct Wire<T> {
    delay: u64,
    variation: Option<StepReader<Duration>>,
    jitter: Option<Jitter>,
    way: Way<T>,
}

#[derive(Debug)]
enum Way<T> {
    /// Constant delay: in order of departure.
    Ordered(VecDeque<(Time, T)>),
    Varied(Mixed<T>),
}

/// Packets in propagation at varying delays, by arrival time.
#[derive(Debug)]
struct Mixed<T> {
    /// The second field is the order of transmission, which breaks ties.
    heap: BinaryHeap<Reverse<(Time, u64, T)>>,
    sent: u64,
    /// Without reordering: the arrival time of the last packet of each flow that may still delay
    /// its next packet.
    last: Option<Vec<(u32, Time)>>,
}

impl<T: Ord> Mixed<T> {
    /// `soonest` is the arrival time at the least delay, `extra` the delay above that and `served`
    /// the transmission time, both in ns.
    fn push(&mut self, flow: u32, soonest: Time, served: u64, extra: u64, packet: T) {
        let mut out = later(soonest, extra);
        if let Some(last) = &mut self.last {
            // Later transmissions begin after the end of this one. An arrival before `soonest`
            // therefore constrains no later packet.
            if let Some((_, before)) = last.iter().find(|(of, _)| *of == flow) {
                out = out.max(later(*before, served));
            }
            last.retain(|(of, at)| *of != flow && *at > soonest);
            last.push((flow, out));
        }
        self.heap.push(Reverse((out, self.sent, packet)));
        self.sent += 1;
    }
}

impl<T: Copy + Ord> Wire<T> {
    /// Empty wire with constant delay.
    pub(super) fn even(delay: Duration) -> Self {
        Self {
            delay: nanos(delay),
            variation: None,
            jitter: None,
            way: Way::Ordered(VecDeque::new()),
        }
    }

    /// Empty wire. `rng` is the random stream of the link. Without jitter, packets of a flow stay in
    /// order while the delay varies.
    pub(super) fn new(
        delay: Duration,
        variation: Option<Steps<Duration>>,
        jitter: Option<JitterConfig>,
        rng: Pcg64Mcg,
    ) -> Self {
        let even = jitter.is_none() && variation.is_none();
        let reorder = jitter.is_some_and(|jitter| jitter.reorder);
        Self {
            delay: nanos(delay),
            variation: variation.map(StepReader::new),
            way: if even {
                Way::Ordered(VecDeque::new())
            } else {
                Way::Varied(Mixed {
                    heap: BinaryHeap::new(),
                    sent: 0,
                    last: (!reorder).then(Vec::new),
                })
            },
            jitter: jitter.map(|config| Jitter {
                spread: config.spread,
                rng,
            }),
        }
    }

    /// Propagation delay, the minimum over all packets.
    pub(super) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay)
    }

    /// Jitter of the next packet, in ns. Called once per packet, lost packets included, so
    /// that a loss does not shift the random numbers of other packets.
    #[inline]
    pub(super) fn draw(&mut self) -> u64 {
        self.jitter.as_mut().map_or(0, Jitter::draw)
    }

    /// Sends a packet at `at`, no earlier than its predecessor. For a wire with constant delay only.
    #[inline]
    pub(super) fn send(&mut self, at: Time, packet: T) {
        self.push(at, 0, 0, || 0, packet);
    }

    /// Sends a packet at `at` with its jitter `drawn`, in ns. Its transmission took `served` ns and
    /// began after its predecessor was sent. `flow` is called with varying delay only.
    #[inline]
    pub(super) fn push(
        &mut self,
        at: Time,
        served: u64,
        drawn: u64,
        flow: impl FnOnce() -> u32,
        packet: T,
    ) {
        let soonest = later(at, self.delay);
        match &mut self.way {
            Way::Ordered(list) => list.push_back((soonest, packet)),
            Way::Varied(mixed) => {
                let variation = self.variation.as_mut().map(|steps| nanos(steps.at(at)));
                let extra = drawn.saturating_add(variation.unwrap_or(0));
                mixed.push(flow(), soonest, served, extra, packet);
            }
        }
    }

    #[inline]
    pub(super) fn pop(&mut self, now: Time) -> Option<(Time, T)> {
        match &mut self.way {
            Way::Ordered(list) => list.pop_front_if(|(at, _)| *at <= now),
            Way::Varied(Mixed { heap, .. }) => {
                let Reverse((at, _, packet)) = *heap.peek().filter(|next| next.0.0 <= now)?;
                heap.pop();
                Some((at, packet))
            }
        }
    }

    /// Lower bound of the next arrival, given that the next packet is sent at `next`.
    #[inline]
    pub(super) fn next_departure(&self, next: Option<Time>) -> Option<Time> {
        match &self.way {
            Way::Ordered(list) => match list.front() {
                Some((at, _)) => Some(*at),
                None => next.map(|at| later(at, self.delay)),
            },
            Way::Varied(Mixed { heap, .. }) => {
                let next = next.map(|at| later(at, self.delay));
                let first = heap.peek().map(|first| first.0.0);
                first.into_iter().chain(next).min()
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Jitter {
    spread: Spread,
    rng: Pcg64Mcg,
}

impl Jitter {
    fn draw(&mut self) -> u64 {
        match self.spread {
            Spread::Uniform { max } => (unit(&mut self.rng) * nanos(max) as f64) as u64,
            Spread::Normal {
                mean,
                deviation,
                max,
            } => {
                let (mean, max) = (nanos(mean) as f64, nanos(max) as f64);
                self.normal(mean, nanos(deviation) as f64, max) as u64
            }
        }
    }

    /// Rejection sampling: from the normal distribution if it is narrow, from the uniform one if it
    /// is wide. With a mean within the range, either accepts more than 40 % of the samples.
    fn normal(&mut self, mean: f64, deviation: f64, max: f64) -> f64 {
        loop {
            let (a, b) = (unit(&mut self.rng), unit(&mut self.rng));
            if 3.0 * deviation > max {
                let off = (a * max - mean) / deviation;
                if b < libm::exp(-0.5 * off * off) {
                    return a * max;
                }
            } else {
                // Box and Muller (1958). `1 - a` is above zero.
                let length = (-2.0 * libm::log(1.0 - a)).sqrt();
                let x = mean + deviation * length * libm::cos(core::f64::consts::TAU * b);
                if (0.0..=max).contains(&x) {
                    return x;
                }
            }
        }
    }
}

fn later(at: Time, nanos: u64) -> Time {
    Time::from_nanos(at.as_nanos().saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Mean and standard deviation of 100,000 samples in ms; asserts that none exceeds `max`.
    fn moments(spread: Spread, max: Duration) -> (f64, f64) {
        let mut jitter = Jitter {
            spread,
            rng: Seed(1).stream("link/l/jitter"),
        };
        let draws: Vec<_> = (0..100_000).map(|_| jitter.draw()).collect();
        assert!(draws.iter().all(|x| *x <= nanos(max)));
        let mean = draws.iter().sum::<u64>() as f64 / 1e5;
        let variance = draws
            .iter()
            .map(|x| (*x as f64 - mean) * (*x as f64 - mean));
        (mean / 1e6, (variance.sum::<f64>() / 1e5).sqrt() / 1e6)
    }

    fn close(ours: (f64, f64), expected: (f64, f64)) {
        let off = |a: f64, b: f64| (a / b - 1.0).abs();
        assert!(
            off(ours.0, expected.0) < 0.01 && off(ours.1, expected.1) < 0.01,
            "{ours:?} {expected:?}"
        );
    }

    #[test]
    fn delays_follow_the_configured_distribution() {
        close(
            moments(Spread::Uniform { max: ms(12) }, ms(12)),
            (6.0, 12.0 / 12_f64.sqrt()),
        );
        let normal = |mean, deviation, max| {
            let spread = Spread::Normal {
                mean: ms(mean),
                deviation: ms(deviation),
                max: ms(max),
            };
            moments(spread, ms(max))
        };
        close(normal(50, 10, 100), (50.0, 10.0));
        // Half-normal distribution: its mean is the deviation times sqrt(2/pi).
        let half = (2.0 / core::f64::consts::PI).sqrt();
        close(
            normal(0, 10, 100),
            (10.0 * half, 10.0 * (1.0 - half * half).sqrt()),
        );
        // A normal distribution much wider than the range is nearly uniform.
        close(normal(1, 1_000, 12), (6.0, 12.0 / 12_f64.sqrt()));
    }

    /// Transmission time: 0.7 ms for odd packets, zero for even ones.
    fn served(i: u32) -> u64 {
        u64::from(i % 2) * 700_000
    }

    /// A wire with a delay of 5 ms.
    fn wire(jitter: JitterConfig) -> Wire<u32> {
        Wire::new(ms(5), None, Some(jitter), Seed(1).stream("link/l/jitter"))
    }

    fn arrivals(reorder: bool) -> Vec<(Time, u32)> {
        let jitter = JitterConfig {
            spread: Spread::Uniform { max: ms(10) },
            reorder,
        };
        let mut wire = wire(jitter);
        for i in 0..100 {
            let drawn = wire.draw();
            wire.push(
                Time::from_millis(u64::from(i)),
                served(i),
                drawn,
                || i % 3,
                i,
            );
        }
        let mut out = vec![];
        while let Some(at) = wire.next_departure(None) {
            assert_eq!(wire.pop(Time::from_nanos(at.as_nanos() - 1)), None);
            out.extend(wire.pop(at));
        }
        out
    }

    #[test]
    fn packets_of_a_flow_overtake_only_with_reorder() {
        let (kept, shuffled) = (arrivals(false), arrivals(true));
        assert!(kept.is_sorted() && shuffled.is_sorted());
        // Packets of other flows may be overtaken in either case.
        assert!(!kept.is_sorted_by_key(|(_, i)| *i));
        for flow in 0..3 {
            let of = |all: &[(Time, u32)]| -> Vec<_> {
                all.iter().copied().filter(|(_, i)| i % 3 == flow).collect()
            };
            let (kept, mut own) = (of(&kept), of(&shuffled));
            assert!(kept.is_sorted_by_key(|(_, i)| *i) && !own.is_sorted_by_key(|(_, i)| *i));
            // The same random numbers: without reordering, a packet arrives at its own time, or
            // behind its predecessor at the spacing of the bottleneck.
            own.sort_by_key(|(_, i)| *i);
            let mut before = Time::ZERO;
            for ((own, i), (kept, _)) in own.iter().zip(&kept) {
                let soonest = later(before, served(*i));
                assert_eq!(*kept, soonest.max(*own));
                before = *kept;
            }
        }
    }

    #[test]
    fn order_holds_after_the_predecessor_was_popped() {
        let jitter = JitterConfig {
            spread: Spread::Uniform { max: ms(10) },
            reorder: false,
        };
        let mut wire = wire(jitter);
        wire.push(Time::ZERO, 0, 4_000_000, || 7, 0);
        let first = Time::from_millis(9);
        assert_eq!(wire.pop(first), Some((first, 0)));
        wire.push(Time::from_micros(4_100), 700_000, 0, || 7, 1);
        assert_eq!(wire.next_departure(None), Some(Time::from_micros(9_700)));
    }

    #[test]
    fn a_packet_in_transmission_may_arrive_before_one_in_propagation() {
        let jitter = JitterConfig {
            spread: Spread::Uniform { max: ms(10) },
            reorder: true,
        };
        let mut wire = wire(jitter);
        wire.push(Time::ZERO, 0, 9_000_000, || 0, 0);
        assert_eq!(wire.next_departure(None), Some(Time::from_millis(14)));
        let next = wire.next_departure(Some(Time::from_millis(2)));
        assert_eq!(next, Some(Time::from_millis(7)));
    }

    /// The delay rises by 20 ms at 10 ms and falls again at 12 ms.
    #[test]
    fn a_falling_delay_keeps_the_order_of_a_flow() {
        let (at, none) = (Time::from_millis, Duration::ZERO);
        let steps = [(at(0), none), (at(10), ms(20)), (at(12), none)];
        let steps = Steps::new(&steps).unwrap();
        let rng = Seed(1).stream("link/l/jitter");
        let mut wire = Wire::new(ms(5), Some(steps), None, rng);
        for (id, (sent, flow)) in [(9, 0), (10, 0), (11, 1), (12, 0), (13, 0), (13, 2), (40, 0)]
            .into_iter()
            .enumerate()
        {
            let drawn = wire.draw();
            wire.push(at(sent), 1_000_000, drawn, || flow, id);
        }
        let arrived: Vec<_> = std::iter::from_fn(|| wire.pop(Time::FAR)).collect();
        let arrived: Vec<_> = arrived.iter().map(|(out, id)| (*id, *out)).collect();
        let expected = [
            (0, 14),
            (5, 18),
            (1, 35),
            (2, 36),
            (3, 36),
            (4, 37),
            (6, 45),
        ];
        assert_eq!(arrived, expected.map(|(id, out)| (id, at(out))));
    }
}
