//! Pictures of a run: stored in the run folder, and embedded in its report.

mod command;

use std::fs;

use command::{folder, text, tidegate};
use tidegate_record::{PictureKind, RunReader};

/// The capacity falls from 2 Mb/s to 300 kb/s for two seconds.
const SCENARIO: &str = r#"
name = "fall"
about = "a fall of the capacity, for pictures"
duration = "6s"
seed = 1

[[link]]
name = "up"
rate = [["0s", "2Mb/s"], ["2s", "300kb/s"], ["4s", "2Mb/s"]]
delay = "20ms"
queue = { droptail = "30kB" }

[[link]]
name = "down"
delay = "20ms"

[[flow]]
name = "tidegate"
path = ["up"]
back = ["down"]
control = "tfrc"
video = { size = "160x96", fps = 30, encoder = "x264", floor = "50kb/s", ceiling = "2Mb/s" }
delay_bound = "300ms"

[[baseline]]
name = "fixed"
of = "tidegate"
rate = "1Mb/s"
"#;

#[test]
fn pictures_show_the_screen_at_three_moments() {
    let dir = folder("report-pictures");
    fs::write(dir.join("fall.toml"), SCENARIO).unwrap();
    let out = tidegate(&["sim", "run", "fall.toml", "--out", "run"], &dir);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let run = RunReader::load(dir.join("run")).unwrap();
    let frames = [30, 90, 150];
    for flow in &run.flows {
        let of = |kind| {
            let pictures = flow.pictures.iter().filter(move |p| p.kind == kind);
            pictures.collect::<Vec<_>>()
        };
        for kind in [PictureKind::Camera, PictureKind::Shown] {
            let pictures = of(kind);
            let at: Vec<u64> = pictures.iter().map(|picture| picture.frame).collect();
            assert_eq!(at, frames, "{} {kind:?}", flow.info.name);
            let is_jpeg = |bytes: &[u8]| bytes.starts_with(&[0xff, 0xd8, 0xff]);
            assert!(pictures.iter().all(|picture| is_jpeg(&picture.jpeg)));
        }
    }
    // All flows have the same camera. In the fall, the fixed rate freezes.
    let [own, fixed] = &run.flows[..] else {
        panic!("two flows")
    };
    let cameras = |flow: &tidegate_record::FlowRun| {
        let pictures = flow.pictures.iter();
        let cameras = pictures.filter(|picture| picture.kind == PictureKind::Camera);
        cameras.cloned().collect::<Vec<_>>()
    };
    assert_eq!(cameras(own), cameras(fixed));
    let shown = |flow: &tidegate_record::FlowRun| {
        let mut rows = flow.shown.iter();
        rows.find(|row| row.frame == 90).unwrap().on_time
    };
    assert!(shown(own) && !shown(fixed));

    let page = fs::read_to_string(dir.join("run/report.html")).unwrap();
    // The camera and two flows, three times.
    assert_eq!(page.matches("<img ").count(), 9);
    assert!(page.contains("late: picture of "), "of the fixed rate");
}
