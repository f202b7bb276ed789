use tidegate_core::random::Seed;

use super::*;
use crate::evaluate::{Known, Rule, evaluate_with};
use crate::synthetic::WORLDS;

/// Loss of known clients' starts relative to the best simple rule, and starts within the interval of 90 %.
/// `--example worlds` has more seeds.
#[test]
fn worlds_are_predicted_better_than_by_simple_rules() {
    for (world, limit) in WORLDS.iter().zip(LIMITS) {
        let [seen, truths] = world.visits(Seed(1_000), 30, 3);
        let truth = |index: usize| Some(truths[index].value);
        let scores = evaluate_with(&seen, WallTime::of_day(2), &truth);
        let of = |rule: Rule| {
            let wanted = |score: &&crate::evaluate::Score| {
                score.known == Known::Client && score.rule == rule
            };
            scores.iter().find(wanted).expect("there are such starts")
        };
        let simple = [Rule::Network, Rule::Client, Rule::All].map(|rule| of(rule).loss);
        let best = simple.into_iter().fold(f64::MAX, f64::min);
        let found = of(Rule::Hierarchy);
        let (ratio, within) = (found.loss / best, found.within[2]);
        assert!(ratio < limit, "{}: {ratio}", world.name);
        assert!((0.8..0.96).contains(&within), "{}: {within}", world.name);
    }
}

/// By world. Where networks have no structure, the quantiles of all are the best prediction. Half of the
/// networks of the fourth world fall to a quarter during the stretch that is predicted.
const LIMITS: [f64; WORLDS.len()] = [1.05, 0.92, 1.05, 1.15, 0.5, 1.06];
