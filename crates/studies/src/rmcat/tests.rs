use core::time::Duration;

use super::view::fairness::{jain, percentile, ratio};
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::tfrc::TfrcConfig;

use super::*;

fn case(id: &str) -> &'static Case {
    Case::named(id).unwrap()
}

/// Synthetic outcome of `case` in which each flow has `rate(name, fair share, bin)`, 70 ms of
/// delay and 1 % of loss.
fn synthetic(case: &Case, rate: impl Fn(&str, f64, usize) -> f64) -> (Scenario, Outcome) {
    let scenario = case.scenario().unwrap();
    let shares = Shares::of(&scenario, Duration::from_millis(200));
    let flows = shares
        .names
        .iter()
        .zip(&shares.shares)
        .map(|(name, shares)| {
            let bins = shares.iter().enumerate();
            let rates: Vec<u64> = bins
                .map(|(bin, fair)| rate(name, *fair, bin) as u64)
                .collect();
            FlowOutcome {
                name: name.clone(),
                bins_ms: 200,
                sent_bps: rates.clone(),
                delay_ms: vec![Some(70.0); rates.len()],
                loss: vec![Some(0.01); rates.len()],
                rate_bps: rates,
                frames_lost: None,
            }
        });
    let outcome = Outcome {
        scenario: scenario.name.clone(),
        control: "made".to_owned(),
        library: String::new(),
        seed: 1,
        source: Source::Video,
        flows: flows.collect(),
    };
    (scenario, outcome)
}

fn near(value: Option<f64>, wanted: f64) -> bool {
    value.is_some_and(|value| (value - wanted).abs() < 1e-3 * wanted.abs().max(1.0))
}

#[test]
fn every_case_has_a_valid_topology() {
    for case in &CASES {
        let scenario = case.scenario().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenario.name, case.scenario_name());
        assert!(scenario.flows.iter().any(|flow| is_media(&flow.name)));
        let roles = tidegate_sim::topology::flow_instances(&scenario, Seed(1));
        assert!(tidegate_sim::topology::network(&scenario, &roles).is_ok());
        for link in case.bottlenecks {
            let known = scenario.links.iter().find(|known| known.name == *link);
            assert!(
                known.is_some_and(|link| link.rate.is_some()),
                "{case}: {link}"
            );
        }
        assert!(!case.limits.is_empty());
    }
}

#[test]
fn fair_share_passes_all_limits() {
    for case in CASES.iter().filter(|case| case.id.starts_with(['5', '6'])) {
        let (scenario, outcome) = synthetic(case, |_, fair, _| fair);
        let scores = score(case, &scenario, &outcome);
        for verdict in judge(case, &scores) {
            assert!(verdict.holds, "{case}: {verdict:?}");
        }
        let (followed, changes) = scores.converged();
        assert!(
            changes > 0 && followed == changes,
            "{case}: {followed} of {changes}"
        );
        assert!(near(scores.convergence_s(), 0.0), "{case}");
    }
}

//= rfc8867-4.1-metrics (test)
#[test]
fn scores_match_the_time_series() {
    let five_one = case("5.1");
    let (scenario, outcome) = synthetic(five_one, |_, fair, _| 0.5 * fair);
    let scores = score(five_one, &scenario, &outcome);
    assert!(near(scores.utilisation, 0.5) && near(scores.least, 0.5));
    assert!(near(scores.queueing_p95_ms, 20.0) && near(scores.loss, 0.01));
    assert_eq!((scores.jain, scores.share), (None, None));
    assert_eq!(scores.converged(), (0, 4));
    let moments: Vec<f64> = scores.changes.iter().map(|change| change.at_s).collect();
    assert_eq!(moments, [0.0, 40.0, 60.0, 80.0]);
    // Minus 36 kb/s of audio, and at most 1.04 of the encoder's maximum rate:
    // (35 * 0.964 + 20 * 1.56 + 20 * 0.564 + 19 * 0.964) / 94 = 1.0057 Mb/s from 5 s on.
    assert!((scores.flows[0].rate_bps / 0.5 - 1_005_702.0).abs() < 10.0);
    // (35 + 20 * 1.596 / 2.5 + 20 + 19) / 94 of the capacity is usable.
    assert!(near(scores.sent_of_capacity, 0.5 * 86.768 / 94.0));
    assert!(near(scores.variation, 0.0) && near(scores.swings_per_min, 0.0));
    let judged = judge(five_one, &scores);
    let failed: Vec<Metric> = judged
        .iter()
        .filter(|v| !v.holds)
        .map(|v| v.metric)
        .collect();
    assert_eq!(failed, [Metric::Utilisation]);
}

#[test]
fn convergence_is_timed_from_the_change() {
    let five_one = case("5.1");
    // Converges 3 s after the change at 40 s, and never after that at 60 s.
    let (scenario, outcome) = synthetic(five_one, |_, fair, bin| match bin {
        200..215 => 1e6,
        300..400 => 1.3 * fair,
        _ => fair,
    });
    let scores = score(five_one, &scenario, &outcome);
    let times: Vec<Option<f64>> = scores.changes.iter().map(|change| change.after_s).collect();
    assert_eq!(times.len(), 4);
    // The mean over a second converges a fraction of a second after the rate.
    assert!(
        times[1].is_some_and(|after| (3.0..=3.8).contains(&after)),
        "{times:?}"
    );
    assert_eq!((times[0], times[2], times[3]), (Some(0.0), None, Some(0.0)));
}

#[test]
fn unfairness_and_starvation_are_measured() {
    let five_four = case("5.4");
    let (scenario, outcome) = synthetic(five_four, |name, fair, _| match name {
        "media-3" => 0.1 * fair,
        _ => fair,
    });
    let scores = score(five_four, &scenario, &outcome);
    assert!(near(scores.least, 0.1));
    // (1 + 1 + 0.1)^2 / (3 * (1 + 1 + 0.01)).
    assert!(near(scores.jain, 4.41 / 6.03) && near(scores.ratio, 0.1));
    // All three are active from 40 s to 119 s; the first 10 s are not counted.
    let windows: Vec<(u64, usize)> = scores
        .fairness
        .iter()
        .map(|over| (over.window_s, over.windows))
        .collect();
    assert_eq!(windows, [(1, 69), (5, 13), (20, 3)]);
    let alike = |over: &Fairness| near(Some(over.middle), 0.1) && near(Some(over.worst), 0.1);
    assert!(scores.fairness.iter().all(alike));
    let five_six = case("5.6");
    let (scenario, outcome) = synthetic(five_six, |name, fair, _| match name {
        "media" => 0.2 * fair,
        "tcp" => 1.8 * fair,
        _ => fair,
    });
    let scores = score(five_six, &scenario, &outcome);
    assert!(near(scores.share, 0.2 / 1.8) && near(scores.utilisation, 1.0));
}

/// Alternating seconds at 1/3 and 5/3 of the share have a deviation of 2/3 of the mean. One second
/// at 2.4 times the mean and two seconds at 0.3 of it are 40 swings per minute.
#[test]
fn variation_and_swings_are_measured() {
    let five_four = case("5.4");
    let of = |pattern: &[f64]| {
        let (scenario, outcome) = synthetic(five_four, |_, fair, bin| {
            pattern[bin / 5 % pattern.len()] * fair
        });
        score(five_four, &scenario, &outcome)
    };
    let mild = of(&[1.0 / 3.0, 5.0 / 3.0]);
    // In spans of an odd number of seconds, one rate has a second more.
    let variation = mild.variation.unwrap();
    assert!((variation - 2.0 / 3.0).abs() < 0.02, "{variation}");
    assert!(near(mild.swings_per_min, 0.0));
    let wild = of(&[2.4, 0.3, 0.3]).swings_per_min.unwrap();
    assert!((wild - 40.0).abs() < 2.0, "{wild}");
}

#[test]
fn shares_are_max_min_fair() {
    let at = |scenario: &Scenario, name: &str, second: usize, wanted: f64| {
        let shares = Shares::of(scenario, Duration::from_millis(200));
        let share = shares.flow(name)[5 * second];
        assert!((share - wanted).abs() < 2.0, "{name}: {share}");
    };
    let two = case("6.3").scenario().unwrap();
    // Minus 36 kb/s for the audio of each flow, the second link gives 0.714 Mb/s to each of two
    // flows. The first link leaves 1.214 Mb/s for its own flow.
    at(&two, "media-long", 60, 714e3);
    at(&two, "media-second", 60, 714e3);
    at(&two, "media-first", 60, 1_214e3);
    at(&two, "audio-first", 60, 36e3);
    let paused = case("5.8");
    let calls = paused.scenario().unwrap();
    at(&calls, "media-2", 50, 0.0);
    // The encoder's maximum rate with headers, which is less than the equal share.
    at(&calls, "media-3", 50, 1_560e3);
    let alone = paused.scenario_sending(Source::Greedy).unwrap();
    at(&alone, "media-2", 50, 0.0);
    at(&alone, "media-3", 50, 0.5 * (3_500e3 - 3.0 * 36e3));
    at(
        &case("wifi-wired").scenario().unwrap(),
        "media-up",
        90,
        500e3,
    );
    let shares = Shares::of(&calls, Duration::from_millis(200));
    assert!(shares.flow("unknown").is_empty());
}

#[test]
fn jain_ratio_and_percentiles() {
    assert!((jain(&[1.0, 1.0]) - 1.0).abs() < 1e-12);
    assert!((jain(&[1.0, 0.0]) - 0.5).abs() < 1e-12);
    assert!((ratio(&[2.0, 0.5, 1.0]) - 0.25).abs() < 1e-12);
    assert!(ratio(&[0.0, 0.0]).abs() < 1e-12);
    let values = [(1.0, 1.0), (2.0, 8.0), (9.0, 1.0)];
    assert_eq!(percentile(&values, 0.5), Some(2.0));
    assert_eq!(percentile(&values, 0.95), Some(9.0));
    assert_eq!(percentile(&[], 0.5), None);
}

#[test]
fn runs_are_reproducible_and_pauses_send_no_media() {
    let mut scenario = case("5.8")
        .scenario_with(
            &ControllerConfig::from(TfrcConfig::default()),
            Source::Video,
        )
        .unwrap();
    scenario.duration = Duration::from_secs(64);
    scenario.measure.1 = scenario.duration;
    scenario.flows.retain(|flow| flow.name == "media-2");
    scenario.flows[0].stop = scenario.duration;
    let outcome = play(&scenario, "tfrc", Seed(1)).unwrap();
    let rates = &outcome.flow("media-2").unwrap().rate_bps;
    // Sender reports continue.
    let in_pause = rates[206..299].iter().max().unwrap();
    assert!(*in_pause < 20_000, "{in_pause}");
    let before: u64 = rates[150..200].iter().sum::<u64>() / 50;
    let after: u64 = rates[305..315].iter().sum::<u64>() / 10;
    assert!(before > 500_000 && after > 100_000, "{before} {after}");
    assert_eq!(outcome.flows[0].frames_lost, Some(0.0));
    assert_eq!(play(&scenario, "tfrc", Seed(1)).unwrap(), outcome);
}

#[test]
fn outcomes_of_peers_can_be_parsed() {
    let text = r#"{"scenario":"rmcat-5-1","control":"pion-gcc","library":"x 1","seed":2,
        "duration_ms":400,"flows":[{"name":"media","control":"pion-gcc","start_ms":0,"stop_ms":400,
        "propagation_ms":50.0,"bins_ms":200,"sent_bps":[1000,2000],"rate_bps":[900,1900],
        "delay_ms":[51.5,null],"loss":[0.0,null],"summary":{"rate_bps":1400}}]}"#;
    let outcome: Outcome = serde_json::from_str(text).unwrap();
    assert_eq!(outcome.file_name(), "rmcat-5-1.pion-gcc.json");
    assert_eq!(outcome.flows[0].delay_ms, [Some(51.5), None]);
    let least = r#"{"scenario":"s","control":"c","flows":[{"name":"a","bins_ms":200,
        "rate_bps":[1],"delay_ms":[1.0],"loss":[0.0]}]}"#;
    assert!(serde_json::from_str::<Outcome>(least).is_ok());
}
