use std::sync::Mutex;

use super::*;
use crate::cast::{Role, Takings};

fn play(name: &str, seeds: u64, tcps: &[Tcp]) -> Figure {
    let entry = ENTRIES.iter().find(|e| e.name == name).unwrap();
    let options = Options {
        world: Arc::new(Simulator),
        nodes: Vec::new(),
        rto_max: None,
        linear: None,
        seeds,
        tcps: tcps.to_vec(),
        threads: 2,
        memory: None,
    };
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
        _ => panic!("{column} of {row:?} is no number"),
    }
}

#[test]
fn names_are_unique_and_all_that_was_promised_is_there() {
    let names: Vec<&str> = ENTRIES.iter().map(|e| e.name).collect();
    let itcp = [
        "fig3", "fig9", "fig10", "fig11", "fig12", "table4", "table5", "table6", "cuts",
    ];
    let abone = ["table5", "table6", "fig6", "fig7", "fig8", "fig9", "fig10"];
    let wanted = itcp.map(|n| format!("itcp/{n}")).into_iter();
    let wanted = wanted.chain(abone.map(|n| format!("abone/{n}")));
    assert_eq!(names, wanted.collect::<Vec<_>>());
}

#[test]
fn the_exact_law_saves_what_the_published_ones_lose() {
    let figure = play("itcp/table4", 2, &[Tcp::LinuxReno]);
    for node in ["princeton.edu", "willab.fi"] {
        for d in ["2", "4", "6"] {
            let at = |mode| [("node", node), ("d s", d), ("mode", mode)];
            let saved = number(&figure, &at("iOPT exact"), "of savable");
            assert!(saved >= 0.995, "{node} {d}: {saved}");
            let classic = number(&figure, &at("Classic"), "accepted");
            // Behind a cut of exactly 3 s to Finland the others' next try is sooner, by luck.
            if node == "princeton.edu" {
                assert!(number(&figure, &at("iOPT exact"), "accepted") >= classic);
            }
            assert!((number(&figure, &at("iOFF"), "accepted") - classic).abs() < 1e-9);
        }
    }
}

#[test]
fn more_bits_are_kept_than_with_a_preset_ratio() {
    let figure = play("itcp/table5", 2, &[Tcp::Cubic]);
    let keeps = figure
        .claims
        .iter()
        .filter(|c| c.text.contains("more than iEXP"));
    assert_eq!(keeps.clone().count(), 12);
    assert!(
        keeps.clone().all(|c| c.holds),
        "{:?}",
        keeps.collect::<Vec<_>>()
    );
}

#[test]
fn every_figure_has_series_claims_and_one_shape() {
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
fn the_same_seeds_give_the_same_numbers() {
    let once = play("abone/fig6", 1, &[Tcp::Bsd]);
    assert_eq!(once, play("abone/fig6", 1, &[Tcp::Bsd]));
}

/// The simulator, until somebody interrupts.
#[derive(Debug, Default)]
struct Interrupted {
    /// After so many runs.
    after: usize,
    played: Mutex<Vec<(String, u64)>>,
    /// How many runs were announced, time by time.
    begun: Mutex<Vec<usize>>,
}

impl World for Interrupted {
    fn name(&self) -> Option<String> {
        Some("a world that ends".to_owned())
    }

    fn begin(&self, jobs: &[Job], at_a_time: usize) {
        assert_eq!(at_a_time, 1);
        self.begun.lock().unwrap().push(jobs.len());
    }

    fn play(&self, job: &Job) -> Result<Option<(Role, Takings)>, PapersError> {
        let mut played = self.played.lock().unwrap();
        if played.len() == self.after {
            return Ok(None);
        }
        played.push((job.label.clone(), job.seed));
        Simulator.play(job)
    }
}

#[test]
fn a_node_that_no_paper_has_is_refused_by_every_entry_with_nodes() {
    let with_nodes = ENTRIES.iter().filter(|entry| entry.has_nodes());
    assert_eq!(with_nodes.clone().count(), ENTRIES.len() - 1);
    for entry in with_nodes {
        let options = Options {
            world: Arc::new(Simulator),
            seeds: 1,
            tcps: Vec::new(),
            nodes: vec!["nosuch".to_owned()],
            rto_max: None,
            linear: None,
            threads: 1,
            memory: None,
        };
        let error = entry.play(&options, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("nosuch"), "{}: {error}", entry.name);
    }
}

#[test]
fn runs_take_turns_and_what_was_played_is_kept() {
    let world = Arc::new(Interrupted {
        after: 5,
        ..Interrupted::default()
    });
    let entry = ENTRIES.iter().find(|e| e.name == "abone/table5").unwrap();
    let options = Options {
        world: Arc::clone(&world) as Arc<dyn World>,
        seeds: 2,
        tcps: vec![Tcp::Cubic],
        nodes: vec!["columbia".to_owned(), "isi".to_owned()],
        rto_max: None,
        linear: None,
        threads: 1,
        memory: None,
    };
    let figure = entry.play(&options, &|_| {}).unwrap();
    assert!(figure.source.ends_with("; played on a world that ends"));
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
    // One run of each is enough for a table; where there is none there is no row.
    let rows = |figure: &Figure| figure.table.as_ref().map_or(0, |table| table.rows.len());
    assert_eq!(rows(&figure), 4 * 3);
    world.played.lock().unwrap().clear();
    let short = Arc::new(Interrupted {
        after: 3,
        ..Interrupted::default()
    });
    let world = short as Arc<dyn World>;
    let figure = entry.play(&Options { world, ..options }, &|_| {}).unwrap();
    assert_eq!(rows(&figure), 3 * 3);
}

#[test]
fn what_is_remembered_is_not_played_again() {
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
        seeds: 2,
        tcps: vec![Tcp::Cubic],
        nodes: vec!["columbia".to_owned(), "isi".to_owned()],
        rto_max: None,
        linear: None,
        threads: 1,
        memory: Some(Arc::default()),
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
    // Another table of the same runs, and the same again.
    play("abone/table6", &on(&endless));
    let again = play("abone/table5", &on(&endless));
    assert_eq!(*endless.begun.lock().unwrap(), [3]);
    assert_eq!(endless.played.lock().unwrap().len(), 3);
    assert_eq!(whole, again);
}
