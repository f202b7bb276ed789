//! Delay bound on paths with jitter: a call uses the capacity and meets the bound.

use core::time::Duration;

use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::random::Seed;
use tidegate_sim::scenario::Scenario;
use tidegate_studies::rmcat::{self, Case, Source};

/// Regression test. Before the controller distinguished jitter from a queue, such a call stayed at
/// about half of the capacity, or fell to its minimum rate permanently.
#[test]
fn call_on_a_path_with_jitter_uses_the_capacity() {
    println!("Mb/s   jitter   seed   used   delay p95");
    for capacity in [1.0, 2.0, 4.0] {
        for jitter in [0, 10, 30] {
            for seed in 1..=3 {
                let scenario = path(capacity, jitter);
                let outcome = rmcat::play(&scenario, "tfrc", Seed(seed)).unwrap();
                let flow = outcome.flow("media").unwrap();
                let bins = |at: Duration| (at.as_millis() / u128::from(flow.bins_ms)) as usize;
                let late = bins(Duration::from_secs(10));
                let rates = &flow.rate_bps[late..bins(scenario.duration)];
                let used = rates.iter().sum::<u64>() as f64 / rates.len() as f64 / (capacity * 1e6);
                let mut delays: Vec<f64> =
                    flow.delay_ms[late..].iter().flatten().copied().collect();
                delays.sort_by(f64::total_cmp);
                let delay = delays[delays.len() * 95 / 100];
                println!("{capacity:4}   {jitter:3} ms   {seed:4}   {used:.3}   {delay:6.1} ms");
                assert!(
                    used > 0.65,
                    "{capacity} Mb/s, {jitter} ms, seed {seed}: {used}"
                );
                // Propagation, the longest jitter, and a queue of a third of the bound.
                let most = 50.0 + f64::from(jitter) + 130.0;
                assert!(
                    delay < most,
                    "{capacity} Mb/s, {jitter} ms, seed {seed}: {delay} ms"
                );
            }
        }
    }
}

/// RFC 8867 section 5.4: three calls that start 20 s apart, at 3.5 Mb/s, with jitter. The shares of
/// a single run are random, so the limits apply to the mean of ten runs.
#[test]
fn calls_on_a_path_with_jitter_share_it() {
    let case = Case::named("5.4").unwrap();
    let control = ControllerConfig::from(TfrcConfig::default());
    let scenario = case.scenario_with(&control, Source::Video).unwrap();
    let verdicts = (1..=10).map(|seed| {
        let outcome = rmcat::play(&scenario, "tfrc", Seed(seed)).unwrap();
        rmcat::judge(case, &rmcat::score(case, &scenario, &outcome))
    });
    let verdicts: Vec<_> = verdicts.collect();
    for (index, limit) in verdicts[0].iter().enumerate() {
        let values: Vec<f64> = verdicts
            .iter()
            .map(|run| run[index].measured.unwrap())
            .collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        println!("{:?} {mean:.3} of {values:.3?}", limit.metric);
        assert!(limit.bound.holds(mean), "{limit:?}: {values:?}");
    }
}

/// One call, a queue of 300 ms, a round trip of 100 ms, and jitter of at most `jitter` ms each way.
fn path(capacity: f64, jitter: u32) -> Scenario {
    let jitter_key = match jitter {
        0 => String::new(),
        _ => format!(
            "jitter = {{ mean = \"{}ms\", deviation = \"{}us\", max = \"{jitter}ms\" }}",
            jitter / 2,
            1_000 * jitter / 6
        ),
    };
    let text = format!(
        r#"
name = "jitter"
about = "A call"
duration = "40s"

[[link]]
name = "there"
rate = "{capacity}Mb/s"
delay = "50ms"
{jitter_key}
queue = {{ droptail = "{}B" }}

[[link]]
name = "back"
delay = "50ms"
{jitter_key}

[[flow]]
name = "media"
path = ["there"]
back = ["back"]
control = "tfrc"
video = {{ floor = "150kb/s", ceiling = "8Mb/s" }}
delay_bound = "400ms"
"#,
        (capacity * 1e6 * 0.3 / 8.0) as u64
    );
    Scenario::parse("jitter.toml", &text, &|_| Err("no traces".to_owned())).unwrap()
}
