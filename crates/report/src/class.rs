//! The numbers of flows by class: of one flow its own, of several their mean and spread.

use std::collections::BTreeMap;

use tidegate_sim::run::Summary;
use tidegate_sim::run::metrics::FlowSummary;

/// A flow, or several of a kind.
#[derive(Clone, Debug)]
pub struct Class<'a> {
    /// Never empty.
    pub members: Vec<&'a FlowSummary>,
}

/// In the order of the summary, a class where its first member is.
pub fn classes(summary: &Summary) -> Vec<Class<'_>> {
    let mut classes: Vec<Class<'_>> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for flow in &summary.flows {
        let place = *places.entry(&flow.class).or_insert(classes.len());
        match classes.get_mut(place) {
            Some(class) => class.members.push(flow),
            None => classes.push(Class {
                members: vec![flow],
            }),
        }
    }
    classes
}

impl<'a> Class<'a> {
    /// Of the flow, or what several have in common; a flow by itself has its own name as class.
    pub fn class(&self) -> &'a str {
        &self.members[0].class
    }

    /// Its rate control.
    pub fn control(&self) -> &'a str {
        &self.members[0].control
    }

    /// The mean over those members that have the number.
    pub fn mean(&self, value: impl Fn(&FlowSummary) -> Option<f64>) -> Option<f64> {
        self.spread(value).map(|spread| spread.mean)
    }

    /// The sum over those members that have the number; none if nobody has.
    pub fn sum(&self, value: impl Fn(&FlowSummary) -> Option<u64>) -> Option<u64> {
        self.members
            .iter()
            .filter_map(|flow| value(flow))
            .reduce(|a, b| a + b)
    }

    /// Mean and extremes over those members that have the number.
    pub fn spread(&self, value: impl Fn(&FlowSummary) -> Option<f64>) -> Option<Spread> {
        let values: Vec<f64> = self.members.iter().filter_map(|flow| value(flow)).collect();
        Spread::of(&values)
    }
}

/// Mean, least and most of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Mean of the values.
    pub mean: f64,
    /// The least.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// `None` of no numbers.
    pub fn of(values: &[f64]) -> Option<Self> {
        let least = values.iter().copied().reduce(f64::min)?;
        Some(Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            least,
            most: values.iter().copied().fold(least, f64::max),
            count: values.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_a_class_are_one() {
        let flow = |name: &str, class: &str, rate: Option<f64>| FlowSummary {
            name: name.to_owned(),
            class: class.to_owned(),
            rate_bps: rate,
            ..FlowSummary::default()
        };
        let summary = Summary {
            flows: vec![
                flow("web-1", "web", Some(1.0)),
                flow("call", "call", Some(9.0)),
                flow("web-2", "web", Some(4.0)),
                flow("web-3", "web", None),
            ],
            ..Summary::default()
        };
        let classes = classes(&summary);
        let names: Vec<&str> = classes.iter().map(Class::class).collect();
        assert_eq!(names, ["web", "call"]);
        assert_eq!(classes[0].members.len(), 3);
        let expected = Spread {
            mean: 2.5,
            least: 1.0,
            most: 4.0,
            count: 2,
        };
        assert_eq!(classes[0].spread(|flow| flow.rate_bps), Some(expected));
        assert_eq!(classes[0].sum(|flow| flow.freezes), None);
    }
}
