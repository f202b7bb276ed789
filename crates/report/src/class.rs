//! Metrics of flows by class: of a single flow its own, of a group the mean and the spread.

use std::collections::BTreeMap;

use tidegate_record::Summary;
use tidegate_record::metrics::FlowSummary;

/// A single flow or a group of flows.
#[derive(Clone, Debug)]
pub struct Class<'a> {
    /// Flows of the class; never empty.
    pub members: Vec<&'a FlowSummary>,
}

/// Classes in the order of the summary; a class has the place of its first member.
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
    /// Name of the flow or of the group.
    pub fn class(&self) -> &'a str {
        &self.members[0].class
    }

    /// Its rate control.
    pub fn control(&self) -> &'a str {
        &self.members[0].control
    }

    /// Mean over the members that have the metric.
    pub fn mean(&self, value: impl Fn(&FlowSummary) -> Option<f64>) -> Option<f64> {
        self.spread(value).map(|spread| spread.mean)
    }

    /// Sum over the members that have the metric; `None` if no member has it.
    pub fn sum(&self, value: impl Fn(&FlowSummary) -> Option<u64>) -> Option<u64> {
        self.members
            .iter()
            .filter_map(|flow| value(flow))
            .reduce(|a, b| a + b)
    }

    /// Mean and extremes over the members that have the metric.
    pub fn spread(&self, value: impl Fn(&FlowSummary) -> Option<f64>) -> Option<Spread> {
        let values: Vec<f64> = self.members.iter().filter_map(|flow| value(flow)).collect();
        Spread::of(&values)
    }
}

/// Mean, minimum and maximum of a set of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Mean of the values.
    pub mean: f64,
    /// Minimum.
    pub least: f64,
    /// Maximum.
    pub most: f64,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// `None` if there are no values.
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
