//! Prints how good the predictions of starts are in synthetic worlds, ten seeds each, beside simpler ones:
//! `cargo run --release -p tidegate-knowledge --example worlds`.

use tidegate_core::random::Seed;
use tidegate_knowledge::WallTime;
use tidegate_knowledge::evaluate::{Known, Rule, Score, evaluate_with};
use tidegate_knowledge::synthetic::WORLDS;

fn main() {
    for world in &WORLDS {
        let scores = (0..SEEDS).map(|seed| {
            let [seen, truths] = world.visits(Seed(1_000 + seed), 60, DAYS);
            let from = WallTime::of_day(DAYS as u32 - 1);
            evaluate_with(&seen, from, &|index| Some(truths[index].value))
        });
        let scores: Vec<Score> = scores.flatten().collect();
        println!(
            "{}, loss in octaves (least and most of {SEEDS} seeds), starts within 90 %",
            world.name
        );
        for known in Known::ALL {
            for rule in Rule::EACH {
                row(&scores, known, rule);
            }
        }
    }
}

fn row(scores: &[Score], known: Known, rule: Rule) {
    let wanted = |score: &&Score| score.known == known && score.rule == rule;
    let all: Vec<&Score> = scores.iter().filter(wanted).collect();
    let starts: usize = all.iter().map(|score| score.starts).sum();
    if starts == 0 {
        return;
    }
    let mean = |value: &dyn Fn(&Score) -> f64| {
        let sum: f64 = all
            .iter()
            .map(|score| score.starts as f64 * value(score))
            .sum();
        sum / starts as f64
    };
    let least = all.iter().map(|score| score.loss).fold(f64::MAX, f64::min);
    let most = all.iter().map(|score| score.loss).fold(0.0, f64::max);
    println!(
        "  {:8} {:24} {starts:6}  {:.4} ({least:.4} to {most:.4})  {:.1} %",
        known.name(),
        rule.name(),
        mean(&|score| score.loss),
        100.0 * mean(&|score| score.within[2]),
    );
}

const SEEDS: u64 = 10;
const DAYS: u64 = 4;
