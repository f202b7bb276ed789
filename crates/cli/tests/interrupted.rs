//! Ctrl-C in long commands: one line about the kept results, exit code 130, and no partial results
//! on standard output.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use command::{folder, text, tidegate};
use program::{GUARD, Program, ProgramResult};
use skip::is_without_lab;
use tidegate_record::RunReader;

mod command;
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;
mod skip;

#[test]
fn an_interrupted_simulation_keeps_the_earlier_run_only() {
    let dir = folder("interrupted-sim");
    let (long, out) = (scenario(&dir, "long", "24h", 2), dir.join("runs/long"));
    let command = format!("sim run {} --json --out {}", long, out.display());
    let ended = interrupted(&command);
    assert_eq!(
        ended.said,
        "interrupted in the run of long, seed 1: no results are kept"
    );
    assert!(!dir.join("runs").exists(), "empty folders are left");

    let short = scenario(&dir, "short", "2s", 2);
    let place = out.display().to_string();
    let whole = tidegate(
        &["sim", "run", &short, "--no-report", "--out", &place],
        &dir,
    );
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    let manifest = || fs::read(out.join("manifest.json")).unwrap();
    let before = manifest();
    let ended = interrupted(&command);
    assert!(
        ended.said.ends_with(&format!("kept; {place} is unchanged")),
        "{}",
        ended.said
    );
    assert_eq!(manifest(), before);
}

#[test]
fn interrupted_comparisons_keep_no_results() {
    let dir = folder("interrupted-comparisons");
    let out = dir.join("out");
    let ended = interrupted(&format!(
        "sim rmcat --seeds 1000 --json --out {}",
        out.display()
    ));
    assert!(ended.said.starts_with("interrupted in the comparison"));
    assert!(ended.said.ends_with("no results are kept"));
    assert!(!out.exists());
    let ended = interrupted("sim bench --seeds 1000 --json");
    assert!(
        ended.said.ends_with("no results are kept"),
        "{}",
        ended.said
    );
    let ended = interrupted(&format!("sim validate --json --out {}", out.display()));
    assert!(!out.exists());
    assert!(
        ended.said.ends_with("no results are kept"),
        "{}",
        ended.said
    );
    let ended = interrupted(&format!(
        "papers run itcp/table4 --seeds 1000 --json --out {}",
        out.display()
    ));
    assert_eq!(
        ended.said,
        "interrupted in itcp/table4: no figure or table is complete"
    );
    assert!(!out.exists());
}

#[test]
fn an_interrupted_sweep_keeps_completed_runs() {
    let dir = folder("interrupted-sweep");
    let long = scenario(&dir, "long", "24h", 2);
    let sweep = "[sweep]\nseeds = 4\n\"link.up.delay\" = [\"10ms\", \"20ms\"]\n";
    fs::write(&long, fs::read_to_string(&long).unwrap() + sweep).unwrap();
    let out = dir.join("out");
    let ended = interrupted(&format!("sim sweep {long} --json --out {}", out.display()));
    let last = ended.said.lines().last();
    let words = "interrupted after 0 of 8 runs; run the same command again to continue";
    assert_eq!(last, Some(words), "{}", ended.said);
}

#[test]
fn the_lab_keeps_results_until_the_interrupt() {
    if is_without_lab("the_lab_keeps_results_until_the_interrupt") {
        return;
    }
    let dir = folder("interrupted-lab");
    let packets = scenario(&dir, "long", "1000s", 1);
    // Ctrl-C comes before the connection is established.
    let video = dir.join("video.toml").display().to_string();
    let over_tcp = "name = \"video\"\nduration = \"100s\"\n\
                    [[link]]\nname = \"up\"\ndelay = \"50ms\"\n\
                    [[link]]\nname = \"down\"\ndelay = \"50ms\"\n\
                    [[flow]]\nname = \"u\"\npath = [\"up\"]\nback = [\"down\"]\n\
                    video = { size = \"176x120\", fps = 10 }\ndelay_bound = \"1s\"\n\
                    transport = { tcp = \"cubic\", mode = \"classic\" }\n";
    fs::write(&video, over_tcp).unwrap();
    for (name, scenario) in [("packets", packets), ("video", video)] {
        let out = dir.join(name);
        let command = format!(
            "lab run {scenario} --json --no-report --out {}",
            out.display()
        );
        let mut lab = Program::tidegate(&command);
        lab.wait_for_line("running u in real time");
        lab.interrupt();
        let ended = cut(lab.wait());
        let words = format!(
            "interrupted in the run of u: later results are missing; the results so far are in {}",
            out.display()
        );
        assert!(ended.said.contains(&words), "{}", ended.said);
        let manifest = fs::read_to_string(out.join("manifest.json")).unwrap();
        assert!(manifest.contains("interrupted in the run of u"));
    }
}

/// SIGTERM completes the folder, as Ctrl-C does. After SIGKILL it has all but the last second.
#[test]
fn a_killed_run_in_the_lab_leaves_what_was_played() {
    if is_without_lab("a_killed_run_in_the_lab_leaves_what_was_played") {
        return;
    }
    let dir = folder("killed-lab");
    let scenario = dir.join("video.toml").display().to_string();
    let over_rtp = "name = \"video\"\nduration = \"1000s\"\n\
                    [[link]]\nname = \"up\"\nrate = \"2Mb/s\"\ndelay = \"20ms\"\n\
                    queue = { droptail = \"60kB\" }\n\
                    [[link]]\nname = \"down\"\ndelay = \"20ms\"\n\
                    [[flow]]\nname = \"u\"\npath = [\"up\"]\nback = [\"down\"]\n\
                    control = \"tfrc\"\nvideo = { size = \"176x120\", fps = 30, encoder = \"model\" }\n\
                    delay_bound = \"400ms\"\n";
    fs::write(&scenario, over_rtp).unwrap();
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        let out = dir.join(format!("after-{signal}"));
        let command = format!("lab run {scenario} --no-report --out {}", out.display());
        let mut lab = Program::tidegate(&command);
        lab.wait_for_line("running u in real time");
        let table = |name: &str| {
            let table = fs::read_to_string(out.join("flows/u").join(name));
            table.map_or(0, |text| text.lines().count())
        };
        let end = Instant::now() + GUARD;
        while table("frames-received.csv") < 3 || table("packets.csv") < 2 {
            assert!(Instant::now() < end, "no row has been written");
            thread::yield_now();
        }
        let sent = table("frames-sent.csv");
        lab.signal(signal);
        let ended = lab.wait();
        let run = RunReader::load(&out).unwrap();
        let flow = run.flow("u").unwrap();
        assert!(flow.sent.len() + 1 >= sent && flow.received.len() >= 2);
        assert!(!flow.packets.is_empty());
        if signal == libc::SIGTERM {
            assert_eq!(ended.status.code(), Some(130), "{}", ended.said);
            assert!(run.summary.is_some() && !run.links.is_empty());
        } else {
            let note = run
                .manifest
                .notes
                .iter()
                .any(|note| note.contains("was killed"));
            assert!(note, "{:?}", run.manifest.notes);
        }
        let report = tidegate(&["report", out.to_str().unwrap()], &dir);
        assert!(report.status.success(), "{}", text(&report.stderr));
    }
}

#[test]
fn a_killed_simulation_leaves_no_folder() {
    let dir = folder("killed-sim");
    let long = scenario(&dir, "long", "24h", 2);
    let out = dir.join("out");
    let program = Program::tidegate(&format!("sim run {long} --out {}", out.display()));
    program.catches_sigint();
    program.kill();
    assert!(!out.exists());
    let short = scenario(&dir, "short", "2s", 2);
    let args = ["sim", "run", &short, "--no-report", "--out", "out"];
    let whole = tidegate(&args, &dir);
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    assert!(!dir.join(".out.part").exists());
}

/// Result of a command that is interrupted as soon as it catches SIGINT.
fn interrupted(arguments: &str) -> ProgramResult {
    let program = Program::tidegate(arguments);
    program.catches_sigint();
    program.interrupt();
    cut(program.wait())
}

fn cut(ended: ProgramResult) -> ProgramResult {
    assert_eq!(ended.status.code(), Some(130), "{}", ended.said);
    assert_eq!(ended.output, "");
    ended
}

/// Writes a scenario with a packet flow over one link. With a single flow each packet is logged; a
/// log of 24 hours exceeds the memory, so that long scenarios have several flows.
fn scenario(dir: &Path, name: &str, duration: &str, flows: u32) -> String {
    let file = dir.join(format!("{name}.toml"));
    let text = format!(
        "name = \"{name}\"\nduration = \"{duration}\"\n[[link]]\nname = \"up\"\n[[link]]\n\
         name = \"down\"\n[[flow]]\nname = \"u\"\ncount = {flows}\npath = [\"up\"]\nback = [\"down\"]\n\
         udp = {{ rate = \"100Mb/s\" }}\n"
    );
    fs::write(&file, text).unwrap();
    file.display().to_string()
}
