//! Division of the bandwidth of an application among its flows, by water-filling.

use crate::units::Rate;

/// Needs of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowNeeds {
    /// Lowest useful rate.
    pub floor: Rate,
    /// Highest useful rate. Counts as the floor if it is lower.
    pub ceiling: Rate,
    /// Weight for [`Division::Weighted`]. Negative numbers and NaN count as zero.
    pub weight: f64,
    /// Priority: higher numbers first. Floors and [`Division::Priority`] follow it.
    pub priority: u8,
}

impl FlowNeeds {
    /// A flow without limits, of weight one and lowest priority.
    pub fn any() -> Self {
        Self {
            floor: Rate::ZERO,
            ceiling: Rate::MAX,
            weight: 1.0,
            priority: 0,
        }
    }
}

/// Divides bandwidth among flows. Applications can implement their own; closures do as well.
pub trait Allocator {
    /// The rate of each flow, in the order of `flows`. The sum should be at most `total`.
    fn allocate(&mut self, total: Rate, flows: &[FlowNeeds]) -> Vec<Rate>;
}

impl<F: FnMut(Rate, &[FlowNeeds]) -> Vec<Rate>> Allocator for F {
    fn allocate(&mut self, total: Rate, flows: &[FlowNeeds]) -> Vec<Rate> {
        self(total, flows)
    }
}

/// Rule of division above the floors. Floors are satisfied first, in the order of priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Division {
    /// Rates are equal, except for flows at their floor or ceiling.
    #[default]
    Equal,
    /// A flow gets nothing above its floor until all of higher priority are at their ceilings.
    /// Rates are equal within a priority.
    Priority,
    /// Rates are proportional to the weights, except for flows at their floor or ceiling.
    Weighted,
}

impl Allocator for Division {
    fn allocate(&mut self, total: Rate, flows: &[FlowNeeds]) -> Vec<Rate> {
        let mut rates = vec![0.0; flows.len()];
        let mut rest = total.as_f64();
        let mut classes: Vec<u8> = flows.iter().map(|flow| flow.priority).collect();
        classes.sort_unstable_by(|a, b| b.cmp(a));
        classes.dedup();
        for class in &classes {
            let floors = |flow: &FlowNeeds| (flow.priority == *class).then_some(flow.floor);
            rest = fill(&mut rates, rest, flows, floors, |_| 1.0);
        }
        let weight = |flow: &FlowNeeds| match self {
            Self::Equal | Self::Priority => 1.0,
            Self::Weighted => flow.weight,
        };
        let ceiling = |flow: &FlowNeeds| flow.ceiling.max(flow.floor);
        if *self == Self::Priority {
            for class in &classes {
                let limit = |flow: &FlowNeeds| (flow.priority == *class).then(|| ceiling(flow));
                rest = fill(&mut rates, rest, flows, limit, weight);
            }
        } else {
            fill(&mut rates, rest, flows, |flow| Some(ceiling(flow)), weight);
        }
        // Rounded down, so that the sum does not exceed the total.
        rates.iter().map(|rate| Rate::bps(*rate as u64)).collect()
    }
}

/// Raises the rates of the flows that have a limit to a common level times their weights, as far as
/// `rest` lasts. Returns the remainder.
fn fill(
    rates: &mut [f64],
    rest: f64,
    flows: &[FlowNeeds],
    limit: impl Fn(&FlowNeeds) -> Option<Rate>,
    weight: impl Fn(&FlowNeeds) -> f64,
) -> f64 {
    let mut open: Vec<(usize, f64, f64)> = Vec::new();
    for (n, flow) in flows.iter().enumerate() {
        let weight = weight(flow);
        if let Some(limit) = limit(flow)
            && weight > 0.0
        {
            open.push((n, limit.as_f64(), weight));
        }
    }
    // Levels at which a flow begins to rise or stops. Between two of them the demand is linear.
    let mut levels: Vec<f64> = Vec::with_capacity(2 * open.len());
    for (n, limit, weight) in &open {
        levels.push(rates[*n] / weight);
        levels.push(limit.max(rates[*n]) / weight);
    }
    levels.sort_unstable_by(f64::total_cmp);
    let at = |n: usize, limit: f64, weight: f64, level: f64| {
        (level * weight).clamp(rates[n], limit.max(rates[n]))
    };
    let used = |level: f64| -> f64 {
        let each = open.iter();
        each.map(|(n, limit, weight)| at(*n, *limit, *weight, level) - rates[*n])
            .sum()
    };
    let Some(first) = levels.iter().position(|level| used(*level) >= rest) else {
        let all = used(levels.last().copied().unwrap_or(0.0));
        for (n, limit, _) in &open {
            rates[*n] = limit.max(rates[*n]);
        }
        return (rest - all).max(0.0);
    };
    let (low, high) = (levels[first.saturating_sub(1)], levels[first]);
    let (before, after) = (used(low), used(high));
    let part = if after > before {
        ((rest - before) / (after - before)).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let level = low + part * (high - low);
    let new: Vec<(usize, f64)> = open
        .iter()
        .map(|(n, limit, weight)| (*n, at(*n, *limit, *weight, level)))
        .collect();
    for (n, rate) in new {
        rates[n] = rate;
    }
    0.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn needs(floor: u64, ceiling: u64, weight: f64, priority: u8) -> FlowNeeds {
        FlowNeeds {
            floor: Rate::kbps(floor),
            ceiling: Rate::kbps(ceiling),
            weight,
            priority,
        }
    }

    fn kbps(mut division: impl Allocator, total: u64, flows: &[FlowNeeds]) -> Vec<u64> {
        let rates = division.allocate(Rate::kbps(total), flows);
        rates
            .iter()
            .map(|rate| (rate.as_bps() + 500) / 1_000)
            .collect()
    }

    #[test]
    fn equal_division_respects_floors_and_ceilings() {
        let flows = [
            needs(0, 9_000, 1.0, 0),
            needs(500, 9_000, 1.0, 0),
            needs(0, 100, 1.0, 0),
        ];
        assert_eq!(kbps(Division::Equal, 900, &flows), [300, 500, 100]);
        assert_eq!(kbps(Division::Equal, 2_100, &flows), [1_000, 1_000, 100]);
        assert_eq!(kbps(Division::Equal, 90_000, &flows), [9_000, 9_000, 100]);
        assert_eq!(kbps(Division::Equal, 250, &flows), [0, 250, 0]);
        assert!(kbps(Division::Equal, 250, &[]).is_empty());
    }

    #[test]
    fn weighted_division_is_proportional() {
        let flows = [
            needs(0, 9_000, 3.0, 0),
            needs(0, 9_000, 1.0, 0),
            needs(0, 50, 1.0, 0),
            needs(0, 9_000, f64::NAN, 0),
        ];
        assert_eq!(kbps(Division::Weighted, 1_050, &flows), [750, 250, 50, 0]);
    }

    #[test]
    fn priorities_are_strict_above_the_floors() {
        let flows = [
            needs(100, 1_000, 1.0, 1),
            needs(200, 2_000, 1.0, 7),
            needs(200, 2_000, 1.0, 7),
        ];
        assert_eq!(kbps(Division::Priority, 3_000, &flows), [100, 1_450, 1_450]);
        assert_eq!(kbps(Division::Priority, 4_600, &flows), [600, 2_000, 2_000]);
        // Floors of low priority are the last.
        assert_eq!(kbps(Division::Priority, 450, &flows), [50, 200, 200]);
    }

    #[test]
    fn application_has_an_allocator_of_its_own() {
        let first = |total: Rate, flows: &[FlowNeeds]| {
            let mut rates = vec![Rate::ZERO; flows.len()];
            rates[0] = total;
            rates
        };
        assert_eq!(
            kbps(first, 30, &[FlowNeeds::any(), FlowNeeds::any()]),
            [30, 0]
        );
    }

    proptest! {
        #[test]
        fn all_bandwidth_is_used_within_the_limits(
            total in 0_u64..100_000,
            flows in proptest::collection::vec((0_u64..5_000, 0_u64..20_000, 0.1_f64..10.0, 0_u8..3), 1..12),
            division in prop_oneof![Just(Division::Equal), Just(Division::Priority), Just(Division::Weighted)],
        ) {
            let flows: Vec<FlowNeeds> =
                flows.iter().map(|(floor, above, weight, priority)| needs(*floor, floor + above, *weight, *priority)).collect();
            let mut division = division;
            let rates = division.allocate(Rate::kbps(total), &flows);
            let sum: u64 = rates.iter().map(|rate| rate.as_bps()).sum();
            let most: u64 = flows.iter().map(|flow| flow.ceiling.as_bps()).sum();
            let wanted = most.min(total * 1_000);
            prop_assert!(sum <= wanted && wanted - sum <= flows.len() as u64 + 1, "{sum} of {wanted}");
            for (rate, flow) in rates.iter().zip(&flows) {
                prop_assert!(*rate <= flow.ceiling);
            }
            let floors: u64 = flows.iter().map(|flow| flow.floor.as_bps()).sum();
            if floors <= total * 1_000 {
                for (rate, flow) in rates.iter().zip(&flows) {
                    prop_assert!(rate.as_bps() + 1 >= flow.floor.as_bps());
                }
            }
        }
    }
}
