//! TCP keys of scenarios, and the models that support them.

use super::*;
use crate::tcp::modern::{CongestionConfig, Detection};
use crate::traffic::Schedule;

fn with(tcp: &str) -> Result<TcpPlan, ScenarioError> {
    let text = format!(
        "name = \"t\"\nduration = \"60s\"\n[[link]]\nname = \"l\"\n[[flow]]\nname = \"f\"\n\
         path = [\"l\"]\nback = [\"l\"]\n{tcp}\n"
    );
    match parse(&text)?.flows.remove(0).media {
        MediaPlan::Tcp(plan) => Ok(plan),
        other => panic!("{other:?}"),
    }
}

fn plan(keys: &str) -> TcpPlan {
    with(&format!("tcp = {{ kind = {keys} }}")).unwrap()
}

fn fault(flow: &str) -> String {
    with(flow).expect_err(flow).to_string()
}

fn modern(keys: &str) -> modern::Config {
    match plan(keys).sender {
        TcpSender::Modern(config) => *config,
        TcpSender::Classic(config) => panic!("{config:?}"),
    }
}

#[test]
fn missing_keys_have_defaults() {
    assert_eq!(modern("\"cubic\""), modern::Config::default());
    assert_eq!(plan("\"sack\"").socket, None);
    let same = "\"cubic\", recovery = \"rack\", tail_probes = true, hystart = true, pacing = false";
    assert_eq!(modern(same), modern::Config::default());
}

#[test]
fn recovery_and_pacing_are_configurable() {
    let config = modern("\"cubic\", recovery = \"duplicates\", hystart = false, pacing = true");
    assert_eq!(config.detection, Detection::Duplicates);
    assert!(config.pacing && !config.tail_probes);
    let CongestionConfig::Cubic(cubic) = config.congestion else {
        panic!("{config:?}");
    };
    assert_eq!(cubic.hystart, None);
    let config = modern("\"bbr\", tail_probes = false");
    assert_eq!(config.detection, Detection::RackTlp);
    assert!(!config.tail_probes);
}

#[test]
fn slow_start_at_threshold_requires_ns2_model() {
    let grows = |keys| match plan(keys).sender {
        TcpSender::Classic(config) => config.slow_start_at_threshold,
        TcpSender::Modern(config) => panic!("{config:?}"),
    };
    assert!(!grows("\"reno\""));
    assert!(grows("\"reno\", slow_start_at_threshold = true"));
    let error = fault("tcp = { kind = \"cubic\", slow_start_at_threshold = true }");
    assert!(
        error.ends_with(
            "which does not have slow_start_at_threshold; remove it, or choose kind = \"sack\""
        ),
        "{error}"
    );
}

#[test]
fn application_demand_and_socket_buffer() {
    let socket = |keys| plan(keys).socket.unwrap();
    let steps = "\"sack\", demand = [[\"0s\", \"1Mb/s\"], [\"10s\", \"3Mb/s\"]], buffer = \"64kB\"";
    let rates = Schedule {
        first: Rate::kbps(1_000),
        steps: vec![(Time::from_secs(10), Rate::kbps(3_000))],
    };
    let want = SocketPlan {
        demand: Some(rates),
        buffer: Bytes(64_000),
    };
    assert_eq!(socket(steps), want);
    assert_eq!(socket("\"bbr\", demand = \"2Mb/s\"").buffer, Bytes(4 << 20));
    let transfer = plan("\"cubic\", buffer = \"1448B\", limit = \"1MB\"");
    assert_eq!(transfer.socket.unwrap().demand, None);
    assert_eq!(transfer.amount, SourceKind::Bytes(1_000_000));
}

#[test]
fn unsupported_keys_are_rejected() {
    for (flow, message) in [
        (
            "tcp = { kind = \"sack\", recovery = \"rack\" }",
            "tcp: recovery: sack is a TCP model of ns-2, which does not have recovery; remove it, or choose kind = \"cubic\"",
        ),
        (
            "tcp = { kind = \"reno\", pacing = false }",
            "tcp: pacing: reno is a TCP model of ns-2, which does not have pacing; remove it, or choose kind = \"cubic\"",
        ),
        (
            "tcp = { kind = \"bbr\", pacing = false }",
            "tcp: pacing: bbr always paces its segments; remove it, or choose kind = \"cubic\"",
        ),
        (
            "tcp = { kind = \"linux-reno\", hystart = true }",
            "tcp: hystart: HyStart belongs to cubic, and this is linux-reno; remove it, or choose kind = \"cubic\"",
        ),
        (
            "tcp = { kind = \"cubic\", recovery = \"duplicates\", tail_probes = true }",
            "tcp: tail_probes: tail loss probes require RACK (RFC 8985); remove it, or write recovery = \"rack\"",
        ),
        (
            "tcp = { kind = \"cubic\", recovery = \"dupack\" }",
            "tcp: recovery: \"dupack\" is not known here; use \"duplicates\" or \"rack\"",
        ),
        (
            "tcp = { kind = \"cubic\", buffer = \"1000B\" }",
            "tcp: buffer: a socket buffer of 1000 B has no room for a segment, which carries 1448 B; write at least that, as \"64kB\"",
        ),
        (
            "tcp = { kind = \"cubic\", demand = \"1Mb/s\", limit = \"1MB\" }",
            "tcp: demand: with limit, all data is available from the start; write either limit or demand",
        ),
        (
            "tcp = { kind = \"cubic\", demand = \"0b/s\" }",
            "tcp: demand: a flow of rate zero sends nothing; write a rate above zero, as \"2Mb/s\"",
        ),
        (
            "web = { tcp = { kind = \"reno\", buffer = \"64kB\" } }",
            "web: tcp: buffer: a web server sends the requested objects; remove it",
        ),
        (
            "video = {}\ndelay_bound = \"2s\"\ntransport = { mode = \"ioff\", tcp = { kind = \"cubic\", demand = \"1Mb/s\" } }",
            "transport: tcp: demand: the encoder generates the data, and the sender has its own backlog; remove it",
        ),
    ] {
        let error = fault(flow);
        assert!(
            error.ends_with(&format!("flow \"f\": {message}")),
            "{error}"
        );
    }
}

#[test]
fn aliases_of_keys_yield_hints() {
    for (key, hint) in [
        (
            "rack = false",
            "rack: no such key; that is recovery, as recovery = \"rack\" or \"duplicates\", here; the keys here are kind, ",
        ),
        (
            "tlp = false",
            "tlp: no such key; that is tail_probes, true or false, here; ",
        ),
        (
            "mss = \"1448B\"",
            "mss: no such key; that is packet, headers included, ",
        ),
        (
            "rate = \"2Mb/s\"",
            "rate: no such key; that is demand, as demand = \"2Mb/s\", here; ",
        ),
        (
            "hystat = true",
            "hystat: no such key; did you mean \"hystart\"? ",
        ),
        ("hack = true", "hack: no such key; the keys here are kind, "),
    ] {
        let error = fault(&format!("tcp = {{ kind = \"cubic\", {key} }}"));
        assert!(error.contains(hint), "{error}");
    }
}
