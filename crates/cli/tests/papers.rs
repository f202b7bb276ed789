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
