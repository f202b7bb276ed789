//! Figures of the papers that need a codec, which the simulator's crate lacks.

mod command;

use command::{folder, text, tidegate};
use serde_json::Value;

/// Runs one entry at `node`, with further options.
fn play(entry: &str, node: &str, options: &[&str]) -> Value {
    let dir = folder(&format!(
        "papers-{}{}",
        entry.replace('/', "-"),
        options.join("")
    ));
    let fixed = [
        "papers", "run", entry, "--node", node, "--seeds", "1", "--json", "--out", ".",
    ];
    let ran = tidegate(&[&fixed, options].concat(), &dir);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// Y, U and V of the row of `run`.
fn planes(figure: &Value, run: &str) -> [f64; 3] {
    let rows = figure["table"]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row[2] == run).unwrap();
    [3, 4, 5].map(|column| row[column].as_f64().unwrap())
}

#[test]
fn psnr_of_the_report_is_of_mpeg_2_and_relative_to_the_variance() {
    let [y, u, v] = planes(&play("abone/table6", "columbia", &[]), "R1");
    // Published at this node: 21.78, 10.46 and 10.87. Chroma varies less than luma.
    assert!((25.0..40.0).contains(&y), "{y}");
    assert!(y - u > 6.0 && y - v > 6.0 && u > 5.0, "{y} {u} {v}");
    let model = ["--encoder", "model"];
    let [y, u, v] = planes(&play("abone/table6", "columbia", &model), "R1");
    assert!(
        (u - y - 3.0).abs() < 1e-3 && (v - y - 3.5).abs() < 1e-3,
        "{y} {u} {v}"
    );
}

#[test]
fn mpeg_2_follows_target_changes_by_events() {
    let figure = play("itcp/fig10", "willab", &[]);
    let claims = figure["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 2, "{claims:?}");
    assert!(
        claims.iter().all(|claim| claim["holds"] == true),
        "{claims:?}"
    );
    let source = figure["source"].as_str().unwrap();
    assert!(!source.contains("video by"), "{source}");
}

/// `--strict` changes the exit code only. The files of an entry have its table and each run.
#[test]
fn failed_claims_are_an_error_if_strict_and_files_have_every_run() {
    let dir = folder("papers-strict");
    let run = |line: &str, code: i32, parts: &[&str]| {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = tidegate(
            &[&["papers", "run", "--out", "."], &words[..]].concat(),
            &dir,
        );
        assert_eq!(ran.status.code(), Some(code), "{}", text(&ran.stderr));
        let printed = text(&ran.stdout);
        for part in parts {
            assert!(printed.contains(part), "no {part:?} in\n{printed}");
        }
    };
    let verdicts = [
        "FAILS           paper: at the rate of the law",
        "by construction exact: at the rate of the law",
        "claims, and published values within their tolerance:",
    ];
    run("itcp/fig3 itcp/fig5", 0, &verdicts);
    run("itcp/fig3 itcp/fig5 --strict", 1, &verdicts);
    run("itcp/fig3 --strict", 0, &["claims: 2 hold\n"]);
    let distance = ["distance        bsd: share of accepted frames: "];
    let table = "itcp/table4 --node princeton --tcp bsd --seeds 2";
    run(table, 0, &distance);
    let rows = |name: &str| {
        let file = std::fs::read_to_string(dir.join(name)).unwrap();
        file.lines().count() - 1
    };
    // Three bounds, six modes, two seeds.
    assert_eq!(rows("itcp-table4.csv"), 18);
    assert_eq!(rows("itcp-table4-runs.csv"), 36);
    assert!(rows("itcp-fig5-series.csv") > 100);
}

#[test]
fn the_laws_answer_for_given_parameters() {
    let dir = folder("papers-law");
    let ran = tidegate(
        &[
            "papers", "law", "--m", "100000", "--q", "0B", "--d", "2s", "--json",
        ],
        &dir,
    );
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let laws: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let number = |law: &str, key: &str| laws[law]["answer"][key].as_f64().unwrap();
    // Equation (8), and 2md.
    assert!((number("paper", "h_best_bps") - 482_842.7).abs() < 0.1);
    assert!((number("exact", "h_best_bps") - 400_000.0).abs() < 0.1);
    assert!((number("exact", "largest_delay_s") - 2.0).abs() < 1e-6);
    let without = tidegate(&["papers", "law", "--d", "2s"], &dir);
    assert_eq!(without.status.code(), Some(2));
    assert!(
        text(&without.stderr).contains("give m as --m"),
        "{}",
        text(&without.stderr)
    );
}
