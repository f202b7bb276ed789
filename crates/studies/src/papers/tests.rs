use std::sync::Mutex;

use tidegate_core::units::Rate;

use super::*;
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};

/// In the simulator, with the model.
pub(super) fn options(seeds: u64, tcps: &[Tcp], nodes: &[&str]) -> Options {
    Options {
        world: Arc::new(Simulator::new(Arc::new(NoVideoSource))),
        encoder: Some(Encoder::Model),
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        rto_max: None,
        linear: None,
        bottleneck: Bottleneck::default(),
        bursts: None,
        seeds,
        tcps: tcps.to_vec(),
        threads: 2,
        memory: Arc::default(),
    }
}

fn play(name: &str, seeds: u64, tcps: &[Tcp]) -> Figure {
    let entry = ENTRIES.iter().find(|e| e.name == name).unwrap();
    let options = options(seeds, tcps, &[]);
    entry
        .play(&options, &|_| {})
        .unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn number(figure: &Figure, row: &[(&str, &str)], column: &str) -> f64 {
    let table = figure.table.as_ref().unwrap();
    let place = |name: &str| table.columns.iter().position(|c| c == name).unwrap();
    let is = |cells: &&Vec<Cell>| {
        row.iter().all(|(name, value)| match &cells[place(name)] {
            Cell::Text(text) => text == value,
            Cell::Number(n) => value.parse() == Ok(*n),
            Cell::Empty => false,
        })
    };
    let cells = table
        .rows
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("{row:?}"));
    match cells[place(column)] {
        Cell::Number(n) => n,
        _ => panic!("{column} of {row:?} is not a number"),
    }
}

#[test]
fn names_of_entries_are_unique_and_complete() {
    let names: Vec<&str> = ENTRIES.iter().map(|e| e.name).collect();
    let itcp = [
        "table1", "table2", "table3", "fig3", "fig5", "fig9", "fig10", "fig11", "fig12", "table4",
        "table5", "table6", "cuts",
    ];
    let abone = ["table5", "table6", "fig6", "fig7", "fig8", "fig9", "fig10"];
    let wanted = itcp.map(|n| format!("itcp/{n}")).into_iter();
    let wanted = wanted.chain(abone.map(|n| format!("abone/{n}")));
    assert_eq!(names, wanted.collect::<Vec<_>>());
}

#[test]
fn exact_law_saves_all_savable_frames() {
    let figure = play("itcp/table4", 2, &[Tcp::LinuxReno]);
    for node in ["princeton.edu", "willab.fi"] {
        for d in ["2", "4", "6"] {
            let at = |mode| [("node", node), ("d s", d), ("mode", mode)];
            let saved = number(&figure, &at("iOPT exact"), "of savable");
            assert!(saved >= 0.995, "{node} {d}: {saved}");
            let classic = number(&figure, &at("Classic"), "accepted");
            assert!(number(&figure, &at("iOPT exact"), "accepted") >= classic);
            assert!((number(&figure, &at("iOFF"), "accepted") - classic).abs() < 1e-9);
        }
    }
    let claims = figure.claims.iter();
    let means = claims.filter(|c| c.text.contains("in the mean over nodes and d"));
    // With doubled and with linear timeouts.
    assert_eq!(means.clone().count(), 8);
    assert!(means.clone().all(|c| c.holds == Some(true)), "{means:?}");
}

#[test]
fn exact_law_keeps_more_bits_than_iexp() {
    let figure = play("itcp/table5", 2, &[Tcp::Cubic]);
    let keeps = figure
        .claims
        .iter()
        .filter(|c| c.text.contains("more bits in time than iEXP"));
    assert_eq!(keeps.clone().count(), 24);
    assert!(
        keeps.clone().all(|c| c.holds == Some(true)),
        "{:?}",
        keeps.collect::<Vec<_>>()
    );
}

#[test]
fn every_figure_has_series_claims_and_notes() {
    for entry in ENTRIES
        .iter()
        .filter(|e| !e.name.starts_with("itcp/table4"))
    {
        let figure = play(entry.name, 1, &[Tcp::Bsd]);
        assert!(
            !figure.series.is_empty() && !figure.claims.is_empty(),
            "{}",
            entry.name
        );
        assert!(!figure.notes.is_empty(), "{}", entry.name);
        for series in &figure.series {
            let fine = |p: &Point| p.lo <= p.y && p.y <= p.hi && p.n >= 1 && p.x.is_finite();
            assert!(
                series.points.iter().all(fine),
                "{} {}",
                entry.name,
                series.name
            );
        }
        if let Some(table) = &figure.table {
            let columns = table.columns.len();
            assert!(
                table.rows.iter().all(|row| row.len() == columns),
                "{}",
                entry.name
            );
        }
        let json = serde_json::to_value(&figure).unwrap();
        for key in ["name", "source", "series", "table", "claims"] {
            assert!(json.get(key).is_some(), "{} {key}", entry.name);
        }
    }
}

#[test]
fn events_of_table_6_have_their_published_values() {
    let figure = play("itcp/table6", 1, &[Tcp::Bsd]);
    let table = figure.table.as_ref().unwrap();
    let papers: Vec<usize> = (0..table.columns.len())
        .filter(|n| table.columns[*n] == "paper")
        .collect();
    let published = |node: &str, d: f64| -> Vec<(Cell, Cell)> {
        let wanted = [Cell::from(node), Cell::from(d), Cell::from("iOPT paper")];
        let rows = table.rows.iter().filter(|row| row[1..4] == wanted);
        rows.map(|row| (row[papers[0]].clone(), row[papers[1]].clone()))
            .collect()
    };
    let finland = [
        (1_443_311.0, 15.685_62),
        (1_292_875.0, 14.048_08),
        (1_309_004.0, 14.226_61),
    ];
    let finland = finland.map(|(rate, lasts)| (Cell::from(rate), Cell::from(lasts)));
    assert_eq!(published("willab.fi", 2.0), finland);
    let princeton = [
        (186_117.0, 0.573_669),
        (173_629.0, 0.525_55),
        (172_046.0, 0.539_606),
    ];
    let princeton = princeton.map(|(rate, lasts)| (Cell::from(rate), Cell::from(lasts)));
    assert_eq!(published("princeton.edu", 6.0), princeton);
    assert_eq!(
        published("isi.edu", 2.0),
        vec![(Cell::Empty, Cell::Empty); 3]
    );
    // The claim is computed from the values of the table.
    let rate = |d: &str, event: &str| {
        let at = [
            ("node", "willab.fi"),
            ("d s", d),
            ("law", "iOPT paper"),
            ("event", event),
        ];
        number(&figure, &at, "h_best b/s")
    };
    let sum = |d| {
        ["e1", "e2", "e3"]
            .map(|event| rate(d, event))
            .iter()
            .sum::<f64>()
    };
    let mut claims = figure.claims.iter();
    let claim = claims.find(|c| c.text.contains("willab.fi")).unwrap();
    assert!((claim.ours.unwrap() - sum("6") / sum("2")).abs() < 1e-6);
}

/// Whether the series is a scatter plot, whose points may have equal x.
fn is_scatter(series: &Series) -> bool {
    (series.x_unit.as_str(), series.y_unit.as_str()) == ("s", "dB")
}

#[test]
fn names_are_unique_with_two_tcps() {
    let options = options(1, &[Tcp::Bsd, Tcp::Cubic], &["princeton"]);
    for entry in ENTRIES.iter().filter(|entry| !entry.tcps().is_empty()) {
        let figure = entry.play(&options, &|_| {}).unwrap();
        let unique = |mut names: Vec<String>, what: &str| {
            names.sort();
            let twice = names.windows(2).find(|two| two[0] == two[1]);
            assert_eq!(twice, None, "{what} of {}", entry.name);
        };
        let names = figure.series.iter().map(|s| s.name.clone());
        unique(names.collect(), "series");
        let claims = figure.claims.iter().map(|c| c.text.clone());
        unique(claims.collect(), "claims");
        for series in figure.series.iter().filter(|s| !is_scatter(s)) {
            let places = series.points.iter().map(|p| p.x.to_string());
            unique(places.collect(), &series.name);
        }
        let tcps = ["bsd ", "bsd:", "cubic ", "cubic:"];
        let series = figure.series.iter().map(|s| &s.name);
        for text in series.chain(figure.claims.iter().map(|c| &c.text)) {
            let named = tcps.iter().any(|tcp| text.starts_with(tcp));
            assert!(named, "{} {text}", entry.name);
        }
    }
}

#[test]
fn bars_of_one_node_have_its_published_values() {
    let options = options(1, &[Tcp::Cubic], &["princeton"]);
    let entry = ENTRIES.iter().find(|e| e.name == "abone/fig6").unwrap();
    let figure = entry.play(&options, &|_| {}).unwrap();
    let mut claims = figure.claims.iter();
    let bits = claims.find(|c| c.text.contains("bits per frame")).unwrap();
    let published = bits.published.unwrap();
    assert!(
        (published - 50_332.0 / 54_673.0).abs() < 1e-9,
        "{published}"
    );
}

#[test]
fn equal_seeds_give_equal_figures() {
    let once = play("abone/fig6", 1, &[Tcp::Bsd]);
    assert_eq!(once, play("abone/fig6", 1, &[Tcp::Bsd]));
}

/// Simulator that is interrupted.
#[derive(Debug, Default)]
struct Interrupted {
    /// Number of runs before the interruption.
    after: usize,
    played: Mutex<Vec<(String, u64)>>,
    /// Number of announced runs of each call.
    begun: Mutex<Vec<usize>>,
}

impl World for Interrupted {
    fn name(&self) -> Option<String> {
        Some("an interrupted testbed".to_owned())
    }

    fn begin(&self, jobs: &[Job], at_a_time: usize) {
        assert_eq!(at_a_time, 1);
        self.begun.lock().unwrap().push(jobs.len());
    }

    fn play(&self, job: &Job) -> Result<Option<(FlowInstance, FlowResult)>, PapersError> {
        let mut played = self.played.lock().unwrap();
        if played.len() == self.after {
            return Ok(None);
        }
        played.push((job.label.clone(), job.seed));
        Simulator::new(Arc::new(NoVideoSource)).play(job)
    }
}

#[test]
fn unknown_node_is_rejected_by_every_entry_with_nodes() {
    let with_nodes = ENTRIES.iter().filter(|entry| entry.has_nodes());
    assert_eq!(with_nodes.clone().count(), ENTRIES.len() - 3);
    for entry in with_nodes {
        let options = options(1, &[], &["nosuch"]);
        let error = entry.play(&options, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("nosuch"), "{}: {error}", entry.name);
    }
}

#[test]
fn runs_are_ordered_by_seed_and_interrupted_runs_are_kept() {
    let world = Arc::new(Interrupted {
        after: 5,
        ..Interrupted::default()
    });
    let entry = ENTRIES.iter().find(|e| e.name == "abone/table5").unwrap();
    let options = Options {
        world: Arc::clone(&world) as Arc<dyn World>,
        threads: 1,
        ..options(2, &[Tcp::Cubic], &["columbia", "isi"])
    };
    let figure = entry.play(&options, &|_| {}).unwrap();
    assert!(
        figure
            .source
            .ends_with("; played on an interrupted testbed")
    );
    assert_eq!(*world.begun.lock().unwrap(), [8]);
    let played = world.played.lock().unwrap();
    let expected = [
        ("cubic-columbia-sym-on", 1),
        ("cubic-columbia-sym-off", 1),
        ("cubic-isi-sym-on", 1),
        ("cubic-isi-sym-off", 1),
        ("cubic-columbia-sym-on", 2),
    ];
    assert_eq!(
        *played,
        expected.map(|(label, seed)| (label.to_owned(), seed))
    );
    drop(played);
    // A group needs one run for a row in the table.
    let rows = |figure: &Figure| figure.table.as_ref().map_or(0, |table| table.rows.len());
    assert_eq!(rows(&figure), 4 * 3);
    world.played.lock().unwrap().clear();
    let short = Arc::new(Interrupted {
        after: 3,
        ..Interrupted::default()
    });
    let world = short as Arc<dyn World>;
    let memory = Arc::default();
    let uncached = Options {
        world,
        memory,
        ..options
    };
    let figure = entry.play(&uncached, &|_| {}).unwrap();
    assert_eq!(rows(&figure), 3 * 3);
}

#[test]
fn cached_runs_are_not_repeated() {
    let world = Arc::new(Interrupted {
        after: 5,
        ..Interrupted::default()
    });
    let endless = Arc::new(Interrupted {
        after: usize::MAX,
        ..Interrupted::default()
    });
    let options = Options {
        world: Arc::clone(&world) as Arc<dyn World>,
        threads: 1,
        ..options(2, &[Tcp::Cubic], &["columbia", "isi"])
    };
    let play = |name: &str, options: &Options| {
        let entry = ENTRIES.iter().find(|e| e.name == name).unwrap();
        entry.play(options, &|_| {}).unwrap()
    };
    play("abone/table5", &options);
    let on = |world: &Arc<Interrupted>| Options {
        world: Arc::clone(world) as Arc<dyn World>,
        ..options.clone()
    };
    let whole = play("abone/table5", &on(&endless));
    assert_eq!(world.played.lock().unwrap().len(), 5);
    assert_eq!(*endless.begun.lock().unwrap(), [3]);
    // Another table with the same runs, and the first table again.
    play("abone/table6", &on(&endless));
    let again = play("abone/table5", &on(&endless));
    assert_eq!(*endless.begun.lock().unwrap(), [3]);
    assert_eq!(endless.played.lock().unwrap().len(), 3);
    assert_eq!(whole, again);
}

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
    let itcp = ENTRIES.iter().filter(|entry| entry.takes_bursts());
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

impl World for JobRecorder {
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
        world: Arc::clone(&recorder) as Arc<dyn World>,
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
        world: Arc::clone(&recorder) as Arc<dyn World>,
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
        world: Arc::clone(&recorder) as Arc<dyn World>,
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
    let held: Vec<bool> = directions.map(|c| c.holds == Some(true)).collect();
    assert_eq!(held.len(), 8);
    // The number of events is not what was published: 1 to 2 per run.
    let events = figure
        .distances
        .iter()
        .find(|d| d.quantity == "bsd events")
        .unwrap();
    assert!(events.median > 1.0, "{events:?}");
    assert!(held.iter().filter(|held| **held).count() >= 6, "{held:?}");
}
