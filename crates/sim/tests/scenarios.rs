//! The scenario files of the repository, and all examples of their documentation.

use std::path::{Path, PathBuf};

use tidegate_sim::scenario::{Scenario, Sweep};
use tidegate_sim::topology;

#[path = "../examples/cellular_trace.rs"]
#[expect(dead_code, reason = "an example has a main function")]
mod cellular_trace;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn all_scenario_files_are_valid() {
    let seen = valid_scenarios("scenarios");
    assert_eq!(
        seen,
        [
            "cellular",
            "demo",
            "demo-losses",
            "l4s",
            "lossy",
            "mixed",
            "outage",
            "rcs-satellite",
            "rcs-shares",
            "rcs-video",
            "red-ecn",
            "steady",
            "sweep-l4s",
            "sweep-queue",
            "tfrc-alone",
            "video-tcp",
            "video-tcp-fades",
            "video-tcp-narrow",
            "video-tcp-recurring",
            "video-tcp-rto"
        ]
    );
    let seen = valid_scenarios("scenarios/field");
    let text = std::fs::read_to_string(root().join("docs/field.md")).unwrap();
    for name in &seen {
        let file = root().join(format!("scenarios/field/{name}.toml"));
        let sweep = Sweep::load(&file, &tidegate_sim::controllers())
            .unwrap_or_else(|error| panic!("{error}"));
        let senders = &sweep.base.baselines;
        let senders: Vec<&str> = senders.iter().map(|sender| sender.name.as_str()).collect();
        // Ten seeds, and ten with a priority queue.
        let has_priority = ["geo", "geo-half", "leo"].contains(&name.as_str());
        let runs = if has_priority { 20 } else { 10 };
        assert_eq!(
            (sweep.runs(), &senders[..]),
            (runs, &["tfrc", "rap", "rcs", "tcp"][..])
        );
        let links = [
            format!("../scenarios/field/{name}.toml"),
            format!("img/field-{name}.png"),
        ];
        for link in links {
            assert!(text.contains(&link), "{name}: {link}");
            assert!(root().join("docs").join(&link).exists(), "{link}");
        }
    }
    assert_eq!(seen.len(), 9, "{seen:?}");
    // The other scenarios of the benchmark are embedded in the program.
    let file = root().join("scenarios/bench/kernel-tcp.toml");
    let sweep =
        Sweep::load(&file, &tidegate_sim::controllers()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sweep.runs(), 30);
}

/// Names of the scenarios of a folder, which are valid and have expectations.
fn valid_scenarios(folder: &str) -> Vec<String> {
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "toml") {
            continue;
        }
        let plan = Scenario::load(&path, &tidegate_sim::controllers())
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            path.file_stem().unwrap(),
            plan.name.as_str(),
            "name and file"
        );
        assert!(
            !plan.about.is_empty() && !plan.expect.is_empty(),
            "{}",
            plan.name
        );
        assert!(topology::network(&plan, &topology::flow_instances(&plan, plan.seed)).is_ok());
        seen.push(plan.name);
    }
    seen.sort();
    seen
}

#[test]
fn cellular_trace_equals_the_output_of_its_example() {
    let file = std::fs::read_to_string(root().join("scenarios/traces/cellular.mahi")).unwrap();
    assert!(
        file == cellular_trace::cellular_trace(),
        "run the example cellular_trace again"
    );
}

/// Fenced blocks of `docs/scenarios.md`: whole files, and parts that replace keys of this file.
#[test]
fn all_documented_examples_are_valid() {
    let text = std::fs::read_to_string(root().join("docs/scenarios.md")).unwrap();
    let mut kinds = Vec::new();
    for example in text.split("```toml").skip(1) {
        let (kind, rest) = example.split_once('\n').unwrap();
        let (body, _) = rest.split_once("```").unwrap();
        let file = match kind.trim() {
            "" => body.to_owned(),
            "head" => whole(body, LINK, FLOW, BASELINE),
            "link" => whole("", body, FLOW, BASELINE),
            "flow" => {
                let missing = FLOW.lines().filter(|line| {
                    let key = line.split(' ').next().unwrap();
                    !body.lines().any(|line| line.starts_with(key))
                });
                whole(
                    "",
                    LINK,
                    &(missing.collect::<Vec<_>>().join("\n") + "\n" + body),
                    BASELINE,
                )
            }
            "flow-bulk" => whole("", LINK, FLOW, BASELINE) + FRIEND + CONTROL + body,
            "flow-own" => whole("", LINK, FLOW, BASELINE) + FRIEND + body,
            "flow-cp" => {
                let points = "[[aggregation]]\nname = \"sites\"\n";
                whole("", LINK, FLOW, BASELINE) + points + FRIEND + body
            }
            "baseline" => whole("", LINK, FLOW, body),
            other => panic!("unknown kind of example: {other:?}"),
        };
        let open = |name: &str| {
            let path = root().join("scenarios").join(name);
            std::fs::read_to_string(path).map_err(|error| error.to_string())
        };
        let plan = Scenario::parse("example", &file, &open);
        assert!(plan.is_ok(), "{}\n{file}", plan.unwrap_err());
        kinds.push(kind.trim());
    }
    assert!(kinds.len() >= 12, "{kinds:?}");
}

#[test]
fn all_keys_of_controllers_are_documented() {
    let text = std::fs::read_to_string(root().join("docs/scenarios.md")).unwrap();
    for entry in tidegate_sim::controllers().iter() {
        if entry.example.is_some() {
            assert!(text.contains(&format!("control = {{ {} = ", entry.name)));
            continue;
        }
        let head = format!("| key of `{}` |", entry.name);
        let (_, rest) = text.split_once(&head).expect(entry.name);
        let (table, _) = rest.split_once("\n\n").unwrap();
        let keys = table.lines().skip(2).flat_map(|row| {
            let (keys, _) = row[1..].split_once('|').unwrap();
            keys.split(',').map(|key| key.trim().trim_matches('`'))
        });
        let mut keys: Vec<&str> = keys.collect();
        let mut known = entry.keys().to_vec();
        keys.sort_unstable();
        known.sort_unstable();
        assert_eq!(keys, known, "{}", entry.name);
    }
}

#[test]
fn documented_sweeps_are_valid() {
    let file = root().join("scenarios/sweep-queue.toml");
    let sweep =
        Sweep::load(&file, &tidegate_sim::controllers()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((sweep.points.len(), sweep.runs()), (8, 40));

    let sweep = Sweep::load(
        &root().join("scenarios/sweep-l4s.toml"),
        &tidegate_sim::controllers(),
    );
    assert_eq!(sweep.unwrap_or_else(|error| panic!("{error}")).runs(), 150);

    let text = std::fs::read_to_string(root().join("docs/sweeps.md")).unwrap();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let sweep = Sweep::parse("depth.toml", example, &|_| Err(String::new()));
    assert_eq!(sweep.unwrap().runs(), 30);
    for (from, to, wanted) in [
        (
            "up.delay",
            "up.dealy",
            "depth.toml:25: sweep: link: dealy: no such key",
        ),
        (
            "[\"10ms\", \"50ms\"]",
            "[\"10ms\"]\nstart = [1]",
            "depth.toml:26: sweep: start: no such key",
        ),
    ] {
        let changed = example.replacen(from, to, 1);
        let error = Sweep::parse("depth.toml", &changed, &|_| Err(String::new())).unwrap_err();
        assert!(error.to_string().starts_with(wanted), "{error}");
    }
}

#[test]
fn documentation_lists_all_keys() {
    let text = std::fs::read_to_string(root().join("docs/scenarios.md")).unwrap();
    let file = whole("nonsense = 1", LINK, FLOW, BASELINE);
    for (place, from, to) in [
        ("head", "nonsense = 1", ""),
        ("link", LINK, "nonsense = 1\n"),
        ("flow", "control = \"tfrc\"", "nonsense = 1"),
        ("video", "video = {", "video = { nonsense = 1,"),
        ("tfrc", "\"tfrc\"", "{ tfrc = { nonsense = 1 } }"),
        ("red", "droptail = \"60kB\"", "red = { nonsense = 1 }"),
        ("codel", "droptail = \"60kB\"", "codel = { nonsense = 1 }"),
        (
            "fq_codel",
            "droptail = \"60kB\"",
            "fq_codel = { nonsense = 1 }",
        ),
        (
            "dualpi2",
            "droptail = \"60kB\"",
            "dualpi2 = { nonsense = 1 }",
        ),
        ("queue", "droptail = \"60kB\"", "nonsense = 1"),
        ("jitter", LINK, "jitter = { nonsense = 1 }\n"),
        ("loss", LINK, "loss = { nonsense = 1 }\n"),
        ("outage", LINK, "outage = [{ nonsense = 1 }]\n"),
        ("trace", "rate = \"4Mb/s\"", "rate = { nonsense = 1 }"),
        ("tide", "\"tfrc\"", "{ tide = { nonsense = 1 } }"),
        (
            "bulk",
            "video = { fps = 30 }\ndelay_bound = \"400ms\"",
            "bulk = { nonsense = 1 }",
        ),
        ("tcp", FLOW, "tcp = { nonsense = 1 }\n"),
        ("udp", FLOW, "udp = { nonsense = 1 }\n"),
        (
            "spacing",
            FLOW,
            "udp = { rate = \"1Mb/s\", spacing = { nonsense = 1 } }\n",
        ),
        ("web", FLOW, "web = { nonsense = 1 }\n"),
        ("access", FLOW, "access = { nonsense = 1 }\n"),
        ("rap", "\"tfrc\"", "{ rap = { nonsense = 1 } }"),
        ("rcs", "\"tfrc\"", "{ rcs = { nonsense = 1 } }"),
        ("pause", "fps = 30", "pause = [{ nonsense = 1 }]"),
        ("encoder", "fps = 30", "encoder = { nonsense = 1 }"),
        ("baseline", BASELINE, "nonsense = 1\n"),
    ] {
        let file = match place {
            "head" => file.clone(),
            _ => whole("", LINK, FLOW, BASELINE).replace(from, to),
        };
        let error = Scenario::parse("f", &file, &|_| Err(String::new())).unwrap_err();
        let error = error.to_string();
        let (_, keys) = error
            .split_once("he keys here are ")
            .unwrap_or_else(|| panic!("{error}"));
        for key in keys.split(", ") {
            let named = [format!("`{key}`"), format!("`[[{key}]]`")];
            assert!(
                named.iter().any(|name| text.contains(name)),
                "{place}: {key}"
            );
        }
    }
    for controller in tidegate_sim::controllers().iter() {
        let name = controller.name;
        let named = [format!("`\"{name}\"`"), format!("{{ {name} = ")];
        assert!(named.iter().any(|name| text.contains(name)), "{name}");
    }
}

fn whole(head: &str, link: &str, flow: &str, baseline: &str) -> String {
    format!(
        "name = \"example\"\nduration = \"30s\"\n{head}\n\
         [[link]]\nname = \"uplink\"\n{link}\n\
         [[link]]\nname = \"downlink\"\n\
         [[flow]]\nname = \"tidegate\"\npath = [\"uplink\"]\nback = [\"downlink\"]\n{flow}\n\
         [[baseline]]\nname = \"fixed\"\nof = \"tidegate\"\n{baseline}\n"
    )
}

const LINK: &str = "rate = \"4Mb/s\"\nqueue = { droptail = \"60kB\" }\n";
const FLOW: &str = "control = \"tfrc\"\nvideo = { fps = 30 }\ndelay_bound = \"400ms\"\n";
const BASELINE: &str = "rate = \"mean\"\n";
const FRIEND: &str = "[[flow]]\nname = \"friend\"\npath = [\"uplink\"]\nback = [\"downlink\"]\n";
const CONTROL: &str = "control = \"tfrc\"\n";
