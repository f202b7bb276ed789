//! Conditions of the runs: outages, transports, bottlenecks, and the claims that depend on them.

use std::sync::Mutex;

use tidegate_core::units::Rate;
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};

use super::super::*;
use super::{options, play};

/// Options with two outages, the second one longer, to one node.
fn other_cuts() -> Options {
    let s = Duration::from_secs;
    Options {
        bursts: Some(OutageSchedule::new(vec![s(1), s(5)], s(7)).unwrap()),
        ..options(1, &[Tcp::Cubic], &["princeton"])
    }
}

#[test]
fn published_values_are_omitted_with_other_outages() {
    let options = other_cuts();
    let of_paper = Options {
        bursts: Some(OutageSchedule::published()),
        ..options.clone()
    };
    let itcp = ENTRIES.iter().filter(|entry| entry.accepts_bursts());
    for entry in itcp.filter(|entry| entry.longest_cut().is_none()) {
        let figure = entry.play(&options, &|_| {}).unwrap();
        let name = entry.name;
        assert!(
            figure.claims.iter().all(|c| c.published.is_none()),
            "{name}"
        );
        let about = |text: &str| text.contains("1 s, 5 s with 7 s before each");
        assert!(about(&figure.source), "{name}: {}", figure.source);
        assert!(figure.notes.iter().any(|note| about(note)), "{name}");
        let published = entry.play(&of_paper, &|_| {}).unwrap();
        assert_ne!(figure.series, published.series, "{name}");
        assert!(!about(&published.source), "{name}");
        let (Some(ours), Some(theirs)) = (figure.table, published.table) else {
            continue;
        };
        assert!(!ours.columns.iter().any(|c| c == PUBLISHED), "{name}");
        let columns = ours.columns.len();
        assert!(ours.rows.iter().all(|row| row.len() == columns), "{name}");
        let kept: Vec<&String> = theirs.columns.iter().filter(|c| *c != PUBLISHED).collect();
        assert_eq!(ours.columns.iter().collect::<Vec<_>>(), kept, "{name}");
    }
}

/// Testbed that records jobs and runs none.
#[derive(Debug, Default)]
struct JobRecorder(Mutex<Vec<Job>>);

impl Testbed for JobRecorder {
    fn name(&self) -> Option<String> {
        None
    }

    fn begin(&self, jobs: &[Job], _: usize) {
        self.0.lock().unwrap().extend_from_slice(jobs);
    }

    fn play(&self, _: &Job) -> Result<Option<(FlowInstance, FlowResult)>, PapersError> {
        Ok(None)
    }
}

#[test]
fn outages_have_the_requested_times_and_lengths() {
    let recorder = Arc::new(JobRecorder::default());
    let options = Options {
        world: Arc::clone(&recorder) as Arc<dyn Testbed>,
        ..other_cuts()
    };
    for name in ["itcp/table4", "itcp/cuts"] {
        let entry = ENTRIES.iter().find(|e| e.name == name).unwrap();
        entry.play(&options, &|_| {}).unwrap();
    }
    let jobs = recorder.0.lock().unwrap();
    let cuts = |job: &Job| -> Vec<(u64, u64)> {
        let outages = job.scenario.links.iter().flat_map(|link| &link.outages);
        let ms = |at: tidegate_core::units::Time| at.as_nanos() / 1_000_000;
        outages
            .map(|outage| (ms(outage.from), ms(outage.to)))
            .collect()
    };
    assert_eq!(cuts(&jobs[0]), [(7_000, 8_000), (15_000, 20_000)]);
    assert!(
        jobs[0].label.ends_with("-1000ms-5000ms-every-7000ms"),
        "{}",
        jobs[0].label
    );
    // itcp/cuts varies the lengths itself.
    let first = jobs.iter().find(|job| cuts(job).len() == 3).unwrap();
    let alike = [(7_000, 8_900), (15_900, 17_800), (24_800, 26_700)];
    assert_eq!(cuts(first), alike);
}

/// Options with a lower rate and twice the queue.
fn other_path() -> Options {
    Options {
        bottleneck: Bottleneck::new(Rate::kbps(4_500), 2.0).unwrap(),
        ..options(3, &[Tcp::Bsd], &[])
    }
}

#[test]
fn duplicate_tcps_are_ignored() {
    let once = play("itcp/fig3", 1, &[Tcp::Bsd]);
    assert_eq!(play("itcp/fig3", 1, &[Tcp::Bsd, Tcp::Bsd]), once);
}

#[test]
fn a_claim_whose_subject_does_not_occur_has_no_event() {
    // Outages without a timeout: no frame is late in any mode.
    let ms = core::time::Duration::from_millis;
    let options = Options {
        bursts: Some(OutageSchedule::new(vec![ms(100)], ms(10_000)).unwrap()),
        ..options(1, &[Tcp::Cubic], &["princeton"])
    };
    let entry = ENTRIES.iter().find(|e| e.name == "itcp/fig9").unwrap();
    let figure = entry.play(&options, &|_| {}).unwrap();
    let late = figure
        .claims
        .iter()
        .find(|c| c.text.contains("1 s late"))
        .unwrap();
    assert_eq!((late.holds, late.ours), (None, None));
    assert_eq!(late.verdict(), "no event");
}

/// The published values are in the text, and the tables say how far they are.
#[test]
fn tables_state_their_distance_to_the_published_values() {
    for name in [
        "itcp/table2",
        "itcp/table4",
        "itcp/table5",
        "itcp/table6",
        "abone/table5",
        "abone/table6",
    ] {
        let figure = play(name, 1, &[Tcp::Bsd]);
        assert!(!figure.distances.is_empty(), "{name}");
        for distance in &figure.distances {
            assert!(distance.within <= distance.values && distance.values > 0);
            let claim = distance.claim();
            assert!(figure.claims.contains(&claim), "{name}: {}", claim.text);
        }
    }
}

/// All modes have the same timeouts, and tables compare both growths.
#[test]
fn both_growths_of_timeouts_are_played_for_every_mode() {
    let recorder = Arc::new(JobRecorder::default());
    let options = Options {
        world: Arc::clone(&recorder) as Arc<dyn Testbed>,
        ..options(1, &[Tcp::Bsd, Tcp::Cubic], &["willab"])
    };
    let entry = ENTRIES.iter().find(|e| e.name == "itcp/table4").unwrap();
    entry.play(&options, &|_| {}).unwrap();
    let jobs = recorder.0.lock().unwrap();
    let linear = jobs
        .iter()
        .filter(|job| job.text.contains("rto_backoff = \"linear\""));
    // Three bounds and six modes, for bsd, cubic and cubic with linear timeouts.
    assert_eq!((jobs.len(), linear.count()), (3 * 18, 18));
    let fixed = Options {
        linear: Some(true),
        ..options.clone()
    };
    assert_eq!(fixed.stacks(true).len(), 2);
    assert_eq!(options.stacks(false).len(), 2);
}

#[test]
fn bottleneck_is_the_requested_one() {
    let recorder = Arc::new(JobRecorder::default());
    let options = Options {
        world: Arc::clone(&recorder) as Arc<dyn Testbed>,
        nodes: vec!["princeton".to_owned()],
        ..other_path()
    };
    for name in ["itcp/table4", "abone/table5"] {
        let entry = ENTRIES.iter().find(|e| e.name == name).unwrap();
        let figure = entry.play(&options, &|_| {}).unwrap();
        let path = "4.5 Mb/s with 2 bandwidth-delay products of queue";
        assert!(figure.source.ends_with(path), "{}", figure.source);
        let about = |text: &String| text.contains(path);
        assert!(figure.notes.iter().any(about), "{:?}", figure.notes);
        let usual = |text: &String| text.contains("10 Mb/s");
        assert!(!figure.notes.iter().any(usual), "{:?}", figure.notes);
    }
    for job in recorder.0.lock().unwrap().iter() {
        assert!(job.label.ends_with("-4500000bps-2bdp"), "{}", job.label);
        // 40 ms at 4.5 Mb/s, twice.
        assert!(job.text.contains("rate = \"4500000b/s\""), "{}", job.text);
        assert!(job.text.contains("droptail = \"45000B\""), "{}", job.text);
    }
    assert!(Bottleneck::new(Rate::kbps(99), 1.0).is_err());
    for queue in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(Bottleneck::new(Rate::kbps(1_000), queue).is_err());
    }
}

/// With less spare rate, symbiosis changes every parameter in the published direction.
#[test]
fn over_a_narrow_path_symbiosis_has_the_published_effects() {
    let options = Options {
        bottleneck: Bottleneck::new(Rate::kbps(4_500), 1.0).unwrap(),
        ..other_path()
    };
    let entry = ENTRIES.iter().find(|e| e.name == "abone/table5").unwrap();
    let figure = entry.play(&options, &|_| {}).unwrap();
    let directions = figure
        .claims
        .iter()
        .filter(|c| c.text.contains("published direction"));
    // Too few seeds for an interval: the changes themselves are on the published side.
    let change = |c: &Claim| (c.ours.unwrap() - 1.0) / (c.published.unwrap() - 1.0);
    let changes: Vec<f64> = directions.map(change).collect();
    assert_eq!(changes.len(), 8);
    // The number of events is not what was published: 1 to 2 per run.
    let events = figure
        .distances
        .iter()
        .find(|d| d.quantity == "bsd events")
        .unwrap();
    assert!(events.median > 1.0, "{events:?}");
    assert!(
        changes.iter().filter(|change| **change > 0.1).count() >= 6,
        "{changes:?}"
    );
}
