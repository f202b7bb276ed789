//! Moments of a run at which the pictures of its flows are compared.

use core::fmt;
use core::time::Duration;

use tidegate_core::units::{Rate, Time};

use crate::manifest::{FlowInfo, LinkInfo, Manifest};

/// A moment, chosen from the capacity of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A second before the longest time with the lowest capacity.
    BeforeFall,
    /// In the middle of that time.
    Fallen,
    /// A second after it.
    Returned,
    /// A second before the longest outage, on a path of otherwise constant capacity.
    BeforeOutage,
    /// In the middle of that outage.
    Outage,
    /// A second after it.
    AfterOutage,
    /// A quarter, half or three quarters of a run of constant capacity.
    Steady,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeFall => "Before the capacity falls",
            Self::Fallen => "At the lowest capacity",
            Self::Returned => "After the capacity has returned",
            Self::BeforeOutage => "Before the outage",
            Self::Outage => "In the outage",
            Self::AfterOutage => "After the outage",
            Self::Steady => "At a constant capacity",
        })
    }
}

impl Manifest {
    /// Moments at which the pictures of `flow` are compared, in order of time, at most three.
    /// Moments before the start or after the end of the run are left out.
    pub fn moments(&self, flow: &FlowInfo) -> Vec<(Moment, Time)> {
        let path = &flow.way.path;
        let named = |link: &&LinkInfo| path.is_empty() || path.contains(&link.name);
        let links: Vec<&LinkInfo> = self.links.iter().filter(named).collect();
        let end = self.duration.min(LONGEST);
        if let Some(span) = lowest(&links, end) {
            let kinds = [Moment::BeforeFall, Moment::Fallen, Moment::Returned];
            return around(kinds, span, end);
        }
        let outages = links.iter().flat_map(|link| &link.outages);
        let begun = outages.filter(|outage| outage.from < Time::ZERO + end);
        if let Some(outage) = begun.max_by_key(|outage| outage.length()) {
            let kinds = [Moment::BeforeOutage, Moment::Outage, Moment::AfterOutage];
            return around(kinds, (outage.from, outage.to), end);
        }
        let quarters = [1, 2, 3].map(|quarter| Time::ZERO + end * quarter / 4);
        quarters.map(|at| (Moment::Steady, at)).to_vec()
    }
}

/// Longest time in which the mean capacity of the path, without outages, is near its minimum.
/// `None` if the capacity hardly varies.
fn lowest(links: &[&LinkInfo], end: Duration) -> Option<(Time, Time)> {
    let count = (end.as_millis() / WINDOW.as_millis()) as u32;
    let at = |number: u32| Time::ZERO + WINDOW * number;
    let rates: Vec<f64> = (0..count)
        .map(|i| mean(links, at(i)))
        .collect::<Option<_>>()?;
    let least = rates.iter().copied().reduce(f64::min)?;
    let most = rates.iter().copied().reduce(f64::max)?;
    if most - least < SMALL * most {
        return None;
    }
    let edge = least + SMALL * (most - least);
    let low = |number: &u32| rates[*number as usize] <= edge;
    let (mut longest, mut from) = ((0, 0), 0);
    while from < count {
        let to = (from..count).find(|number| !low(number)).unwrap_or(count);
        if to - from > longest.1 - longest.0 {
            longest = (from, to);
        }
        from = to + 1;
    }
    Some((at(longest.0), at(longest.1)))
}

/// Mean capacity of the path in a window from `from` on, in b/s; `None` without a limit.
fn mean(links: &[&LinkInfo], from: Time) -> Option<f64> {
    let at = |part: u32| {
        let at = from + WINDOW * part / PARTS;
        let rates = links.iter().filter_map(|link| link.nominal_capacity_at(at));
        rates.min().map(Rate::as_f64)
    };
    let sum: f64 = (0..PARTS).map(at).sum::<Option<f64>>()?;
    Some(sum / f64::from(PARTS))
}

fn around(kinds: [Moment; 3], (from, to): (Time, Time), end: Duration) -> Vec<(Moment, Time)> {
    let before =
        (from >= Time::ZERO + MARGIN).then(|| Time::ZERO + from.since(Time::ZERO + MARGIN));
    let last = Time::ZERO + end;
    let middle = from + to.min(last).since(from) / 2;
    let after = Some(to + MARGIN).filter(|at| *at < last);
    let times = [before, Some(middle), after];
    let all = kinds.into_iter().zip(times);
    all.filter_map(|(kind, at)| Some((kind, at?))).collect()
}

/// A capacity that varies within a window counts with its mean.
const WINDOW: Duration = Duration::from_millis(500);
/// Samples of the capacity per window.
const PARTS: u32 = 10;
/// Distance of the outer moments from the time between them.
const MARGIN: Duration = Duration::from_secs(1);
/// Share of a range that counts as equal.
const SMALL: f64 = 0.1;
/// The capacity is examined up to here: a day has 172,800 windows.
const LONGEST: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use tidegate_core::units::Bytes;

    use super::*;
    use crate::manifest::{CapacityStep, Span, World};

    fn at(capacity: &[(u64, u64)], outages: &[(u64, u64)]) -> Vec<(Moment, u64)> {
        let mut manifest = Manifest::new(World::Sim, "m", Duration::from_mins(1));
        manifest.links.push(LinkInfo {
            name: "up".to_owned(),
            capacity: capacity
                .iter()
                .map(|(from, kbps)| CapacityStep {
                    from: Time::from_secs(*from),
                    rate: Some(Rate::kbps(*kbps)),
                })
                .collect(),
            queue: String::new(),
            delay: Duration::ZERO,
            loss: 0.0,
            outages: outages
                .iter()
                .map(|(from, to)| Span {
                    from: Time::from_secs(*from),
                    to: Time::from_secs(*to),
                })
                .collect(),
        });
        let flow = FlowInfo {
            floor: Bytes(1) / Duration::from_secs(1),
            one_clock: true,
            ..FlowInfo::new("f".to_owned(), "f")
        };
        let moments = manifest.moments(&flow).into_iter();
        moments
            .map(|(moment, at)| (moment, at.since(Time::ZERO).as_millis() as u64))
            .collect()
    }

    #[test]
    fn the_deepest_fall_is_chosen() {
        use Moment::{BeforeFall, Fallen, Returned};
        let steps = [(0, 4_000), (20, 1_000), (40, 3_000)];
        let demo = at(&steps, &[(50, 52)]);
        assert_eq!(
            demo,
            [(BeforeFall, 19_000), (Fallen, 30_000), (Returned, 41_000)]
        );
        // A fall until the end of the run has no return, and one at its begin nothing before it.
        let last = at(&[(0, 4_000), (20, 1_000)], &[]);
        assert_eq!(last, [(BeforeFall, 19_000), (Fallen, 40_000)]);
        let first = at(&[(0, 1_000), (20, 4_000)], &[]);
        assert_eq!(first, [(Fallen, 10_000), (Returned, 21_000)]);
    }

    #[test]
    fn constant_capacity_has_outages_or_quarters() {
        use Moment::{AfterOutage, BeforeOutage, Outage, Steady};
        let outages = at(&[(0, 4_000)], &[(10, 11), (30, 34)]);
        assert_eq!(
            outages,
            [
                (BeforeOutage, 29_000),
                (Outage, 32_000),
                (AfterOutage, 35_000)
            ]
        );
        let steady = at(&[(0, 4_000)], &[]);
        assert_eq!(steady, [15_000, 30_000, 45_000].map(|at| (Steady, at)));
    }
}
