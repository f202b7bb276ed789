use core::time::Duration;

use tidegate_core::controller::rap::RapConfig;
use tidegate_core::controller::tfrc::TfrcConfig;
use tidegate_core::link::QueueConfig;

use super::*;
use crate::scenario::RatePlan;

/// Twelve lines, then the sweep.
const BASE: &str = r#"name = "base"
duration = "30s"
[[link]]
name = "up"
rate = [["0s", "4Mb/s"], ["20s", "1Mb/s"]]
queue = { red = { min = "5 packets", max = "20 packets", limit = "60 packets" } }
[[link]]
name = "down"
[[flow]]
name = "a"
path = ["up"]
back = ["down"]
control = "tfrc"
bulk = { packet = "1200B" }
[sweep]
"#;

fn parse(sweep: &str) -> Result<Sweep, ScenarioError> {
    Sweep::parse("f.toml", &format!("{BASE}{sweep}"), &|name| match name {
        "t.mahi" => Ok("1\n2\n".to_owned()),
        _ => Err("no such file".to_owned()),
    })
}

fn fault(sweep: &str) -> String {
    parse(sweep).unwrap_err().to_string()
}

#[test]
fn the_last_axis_is_the_fastest() {
    let sweep = parse(
        "seeds = 3\n\"link.up.delay\" = [\"10ms\", \"50ms\"]\nduration = [\"25s\", \"1min\", \"90s\"]",
    )
    .unwrap();
    assert_eq!(sweep.seeds, [Seed(1), Seed(2), Seed(3)]);
    assert_eq!(sweep.runs(), 18);
    let keys: Vec<&str> = sweep.axes.iter().map(|axis| axis.key.as_str()).collect();
    assert_eq!(keys, ["link.up.delay", "duration"]);
    assert_eq!(sweep.axes[1].values, ["25s", "1min", "90s"]);
    let point = |i: usize| {
        let scenario = &sweep.points[i].scenario;
        (
            scenario.links[0].delay.as_millis(),
            scenario.duration.as_secs(),
        )
    };
    let points: Vec<_> = (0..6).map(point).collect();
    assert_eq!(
        points,
        [(10, 25), (10, 60), (10, 90), (50, 25), (50, 60), (50, 90)]
    );
    assert_eq!(sweep.points[4].values, ["50ms", "1min"]);
    assert_eq!(sweep.base.links[0].delay, Duration::ZERO);
}

/// Reading only the base scenario reports errors of the sweep too, except for those of
/// combinations.
#[test]
fn errors_of_the_sweep_are_errors_of_the_file() {
    let base = |sweep: &str| {
        let text = format!("{BASE}{sweep}");
        crate::scenario::Scenario::parse("f.toml", &text, &|_| Err("none".to_owned()))
    };
    for sweep in [
        "\"flow.b.start\" = [\"1s\"]",
        "\"link.up.dealy\" = [\"1ms\"]",
        "\"link.up.delay\" = [\"1ms\", \"2m\"]",
        "duration = [\"25s\"]\n\"link.up.loss\" = [0.1, 2]",
        "seeds = \"many\"",
        "",
    ] {
        let error = base(sweep).expect_err(sweep);
        assert_eq!(error.to_string(), fault(sweep), "{sweep}");
    }
    let one = "\"flow.b.start\" = [\"1s\"]";
    assert_eq!(
        base(one).unwrap_err().to_string(),
        "f.toml:16: sweep: flow.b.start: there is no flow \"b\"; use \"a\""
    );
    // The base ends at 30 s, and every point later.
    let together = "\"flow.a.stop\" = [\"35s\", \"40s\"]\nduration = [\"50s\", \"40s\"]";
    assert!(base(together).is_ok());
}

#[test]
fn paths_address_tables_and_lists_and_may_share_values() {
    let sweep = parse(
        "seeds = [4, 2]\n\"link.up.queue.red.max\" = [\"40 packets\"]\n\"link.up.rate.1.1\" = [\"2Mb/s\"]\n\"link.up.delay, link.down.delay\" = [\"7ms\"]",
    )
    .unwrap();
    assert_eq!(sweep.seeds, [Seed(4), Seed(2)]);
    let links = &sweep.points[0].scenario.links;
    let Some(QueueConfig::Red(red)) = &links[0].queue else {
        panic!("{:?}", links[0].queue);
    };
    assert!((red.max_threshold - 40.0).abs() < 1e-9, "{red:?}");
    let Some(RatePlan::Steps(steps)) = &links[0].rate else {
        panic!("{:?}", links[0].rate);
    };
    assert_eq!(steps[1].1.as_bps(), 2_000_000);
    assert!(
        links
            .iter()
            .all(|link| link.delay == Duration::from_millis(7))
    );
}

#[test]
fn values_may_be_tables_and_missing_tables_are_created() {
    let control = "\"flow.a.control\" = [\"rap\", { tfrc = {\n damping = true } }]";
    let sweep = parse(control).unwrap();
    assert_eq!(
        sweep.axes[0].values,
        ["rap", "{ tfrc = { damping = true } }"]
    );
    assert_eq!(sweep.seeds, [Seed(1)]);
    let control = |i: usize| sweep.points[i].scenario.flows[0].control.clone().unwrap();
    let damped = TfrcConfig {
        damping: true,
        ..TfrcConfig::default()
    };
    assert_eq!(control(0), RapConfig::default().into());
    assert_eq!(control(1), damped.into());
    let sweep = parse("\"flow.a.access.delay\" = [\"3ms\"]").unwrap();
    let access = sweep.points[0].scenario.flows[0].access.as_ref().unwrap();
    assert_eq!(access.delay, Duration::from_millis(3));
    let whole = "\"flow.a.control\" = [{ tfrc = {} }]\n\"flow.a.control.tfrc.damping\" = [true]";
    assert_eq!(parse(whole).unwrap().points.len(), 1);
}

#[test]
fn files_are_read_once_and_have_a_checksum() {
    let sweep = parse("\"link.up.rate\" = [{ trace = \"t.mahi\" }]\nduration = [\"21s\", \"22s\"]");
    let sweep = sweep.unwrap();
    assert_eq!(sweep.files, [("t.mahi".to_owned(), fnv("1\n2\n"))]);
    // The test vector of RFC 9923.
    assert_eq!(fnv("foobar"), 0x8594_4171_f739_67e8);
}

#[test]
fn errors_name_line_and_fix() {
    for (sweep, wanted) in [
        (
            "",
            "f.toml:15: sweep: is missing; add, for example, [sweep] with seeds",
        ),
        (
            "\"link.up.dealy\" = [\"10ms\"]",
            "f.toml:16: sweep: link: dealy: no such key; did you mean \"delay\"?",
        ),
        (
            "seeds = 2\n\"durration\" = [\"10s\"]",
            "f.toml:17: sweep: durration: no such key; did you mean \"duration\"?",
        ),
        (
            "\"link.uphill.delay\" = [\"10ms\"]",
            "f.toml:16: sweep: link.uphill.delay: there is no link \"uphill\"; use \"up\" or \"down\"",
        ),
        (
            "\"flow.b.count\" = [1]",
            "f.toml:16: sweep: flow.b.count: there is no flow \"b\"; use \"a\"",
        ),
        (
            "\"baseline.b.rate\" = [1]",
            "there is no baseline \"b\", nor any other",
        ),
        (
            "\"flow.a\" = [1]",
            "sweep: flow.a: \"flow.a\" names no key of a flow; write \"flow.NAME.KEY\"",
        ),
        ("\"flow.a..x\" = [1]", "\"flow.a..x\" is not a valid path"),
        (
            "\"link.up.delay, link.up.delay\" = [\"1ms\"]",
            "f.toml:16: sweep: link.up.delay, link.up.delay: \"link.up.delay\" occurs twice; list it once",
        ),
        (
            "wat = [1]",
            "f.toml:16: sweep: wat: no such key; the keys here are name",
        ),
        (
            "\"link.up.delay\" = []",
            "f.toml:16: sweep: link.up.delay: it has no values; write at least one",
        ),
        (
            "\"link.up.delay\" = \"10ms\"",
            "is a text; write a path in quotes and a list of values",
        ),
        (
            "link.up.delay = [\"10ms\"]",
            "f.toml:16: sweep: link: \"link\" names no key of a link",
        ),
        (
            "\"link.up.delay\" = [\n\"10ms\",\n5]",
            "f.toml:18: sweep: link \"up\": delay: is a bare number; write a time span",
        ),
        (
            "\"link.up.delay\" = [\"1ms\", \"1ms\"]",
            "the value 1ms occurs twice; remove one",
        ),
        (
            "\"flow.a.count\" = [0]",
            "f.toml:16: sweep: flow \"a\": count: 0 is out of range",
        ),
        (
            "\"flow.a.control.tfrc.damping\" = [true]",
            "\"control\" is a text, and has no key \"tfrc\"; write it as a table",
        ),
        (
            "\"link.up.rate.2.0\" = [\"1s\"]",
            "\"rate\" is a list of 2, and has no \"2\"",
        ),
        (
            "seeds = 0",
            "f.toml:16: sweep: seeds: 0 is out of range; write a whole number from 1",
        ),
        (
            "seeds = []",
            "f.toml:16: sweep: seeds: the list of seeds is empty; write seeds = 20",
        ),
        ("seeds = [1, 1]", "the seed 1 occurs twice"),
        ("seeds = \"20\"", "is a text; write a whole number"),
        (
            "seed = [1]",
            "f.toml:16: sweep: seed: \"seed\" cannot be swept; write seeds = 20",
        ),
        ("name = [\"x\"]", "the name of the scenario cannot be swept"),
        (
            "\"link.up.delay\" = [\"1ms\"]\n\"link.down.delay, link.up.delay\" = [\"2ms\"]",
            "f.toml:17: sweep: link.down.delay, link.up.delay: \"link.up.delay\" is swept in line 16 already",
        ),
        (
            "\"flow.a.control.tfrc.damping\" = [true]\n\"flow.a.control\" = [\"rap\"]",
            "f.toml:17: sweep: flow.a.control: \"flow.a.control\" is swept in line 16 already",
        ),
    ] {
        let fault = fault(sweep);
        assert!(fault.contains(wanted), "{sweep}\n{fault}\n{wanted}");
    }
}

#[test]
fn errors_of_one_point_name_the_point() {
    for (sweep, wanted) in [
        // Valid alone, but not with the rest of the file, where the error is detected.
        (
            "\"duration\" = [\"30s\", \"15s\"]",
            "f.toml:5: sweep, with duration = 15s: link \"up\": rate: ",
        ),
        (
            "\"link.up.queue.red.min\" = [\"4 packets\", \"9 packets\"]\n\"link.up.queue.red.max\" = [\"8 packets\"]",
            "sweep, with link.up.queue.red.min = 9 packets, link.up.queue.red.max = 8 packets: ",
        ),
    ] {
        let fault = fault(sweep);
        assert!(fault.contains(wanted), "{sweep}\n{fault}\n{wanted}");
    }
}

#[test]
fn too_many_points_are_refused_before_they_are_read() {
    let counts: Vec<String> = (1..=200).map(|n| n.to_string()).collect();
    let counts = counts.join(",");
    let sweep = format!("\"flow.a.count\" = [{counts}]\nx = [{counts}]");
    assert!(fault(&sweep).starts_with("f.toml:17: sweep: x: the sweep has more than 10000 points"));
}

#[test]
fn file_without_sweep_is_rejected_with_example() {
    let text = BASE.replace("[sweep]\n", "");
    let error = Sweep::parse("f.toml", &text, &|_| Err(String::new())).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("f.toml: sweep: is missing; add"),
        "{error}"
    );
}

#[test]
fn base_scenario_ignores_the_sweep() {
    let text = format!("{BASE}seeds = 2\n\"link.up.delay\" = [\"10ms\"]\n");
    let none = &|_: &str| Err(String::new());
    let plain = Scenario::parse("f.toml", &BASE.replace("[sweep]\n", ""), none).unwrap();
    assert_eq!(Scenario::parse("f.toml", &text, none).unwrap(), plain);
    let error = Scenario::parse(
        "f.toml",
        &format!("sweep = 3\n{BASE}").replace("[sweep]\n", ""),
        none,
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("write a table, [sweep]")
    );
}
