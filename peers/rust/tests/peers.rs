//! Peers on small scenarios.
//!
//! pion's is played when `TIDEGATE_PION` names its program, as `scripts/peers --check` does.

use std::path::PathBuf;

use tidegate_core::random::Seed;
use tidegate_peers::call::FIRST_RATE;
use tidegate_peers::peer::Peer;
use tidegate_peers::play::{self, Options, PlayError};
use tidegate_peers::result::{FlowOutcome, Outcome, table};
use tidegate_sim::scenario::Scenario;

const LINKS: &str = r#"
name = "small"
duration = "30s"

[[link]]
name = "there"
rate = [["0s", "2Mb/s"], ["20s", "1Mb/s"]]
delay = "20ms"
queue = { droptail = "50kB" }

[[link]]
name = "back"
delay = "20ms"
"#;

const CALL: &str = r#"
[[flow]]
name = "call"
path = ["there"]
back = ["back"]
control = "tfrc"
video = {}
delay_bound = "400ms"
"#;

fn scenario(text: &str) -> Scenario {
    let none = |name: &str| Err(format!("there is no {name}"));
    Scenario::parse("small.toml", text, &none).unwrap()
}

fn options() -> Options {
    Options {
        seed: Seed(1),
        first_rate: FIRST_RATE,
        pion: std::env::var_os("TIDEGATE_PION").map(PathBuf::from),
    }
}

fn peers() -> Vec<Peer> {
    let there = |peer: &Peer| *peer != Peer::PionGcc || options().pion.is_some();
    Peer::ALL.into_iter().filter(there).collect()
}

fn run(text: &str, peer: Peer) -> Outcome {
    play::scenario(&scenario(text), peer, &options()).unwrap()
}

fn refusal(text: &str, peer: Peer) -> String {
    let refused = play::scenario(&scenario(text), peer, &options());
    refused.unwrap_err().to_string()
}

/// The mean of a curve from second `from` to second `to`.
fn mean(curve: &[u64], from: usize, to: usize) -> f64 {
    let bins = &curve[from * 5..to * 5];
    bins.iter().sum::<u64>() as f64 / bins.len() as f64
}

#[test]
fn each_fills_the_link_and_follows_it_down() {
    for peer in peers() {
        let outcome = run(&format!("{LINKS}{CALL}"), peer);
        let FlowOutcome {
            control, curves, ..
        } = &outcome.flows[0];
        assert_eq!(control, peer.name());
        let before = mean(&curves.rate_bps, 15, 20);
        let after = mean(&curves.rate_bps, 25, 30);
        assert!((0.9e6..=2.01e6).contains(&before), "{control}: {before}");
        assert!((0.6e6..=1.01e6).contains(&after), "{control}: {after}");
        // Propagation, transmission of a full packet at 2 Mb/s, at most a full queue.
        let delays = curves.delay_ms[75..100].iter().flatten();
        for delay in delays {
            assert!((24.0..=226.0).contains(delay), "{control}: {delay} ms");
        }
    }
}

#[test]
fn a_run_is_the_same_again() {
    let lossy = LINKS.replace("delay", "loss = \"1%\"\ndelay");
    for peer in peers() {
        let text = format!("{lossy}{CALL}")
            .replace("30s", "8s")
            .replace("20s", "4s");
        assert_eq!(run(&text, peer), run(&text, peer));
    }
}

#[test]
fn flows_keep_their_times_and_background_its_rate() {
    let late = CALL.replace("call", "late") + "start = \"10s\"\nstop = \"20s\"\n";
    let other = "[[flow]]\nname = \"other\"\npath = [\"there\"]\nback = [\"back\"]\n\
                 control = { fixed = \"300kb/s\" }\nbulk = { packet = \"1200B\" }\n";
    for peer in peers() {
        let outcome = run(&format!("{LINKS}{CALL}{late}{other}"), peer);
        let [call, late, other] = outcome.flows.as_slice() else {
            panic!("{} flows", outcome.flows.len());
        };
        assert!(mean(&late.curves.sent_bps, 0, 10).abs() < 1.0);
        assert!(mean(&late.curves.sent_bps, 10, 20) > 1e5);
        assert!(mean(&late.curves.sent_bps, 20, 30).abs() < 1.0);
        assert!(mean(&call.curves.sent_bps, 25, 30) > 1e5);
        assert_eq!(other.control, "fixed");
        let sent = mean(&other.curves.sent_bps, 5, 30);
        assert!((2.9e5..3.1e5).contains(&sent), "{sent}");
    }
}

#[test]
fn other_traffic_is_played_as_it_is() {
    let way = "path = [\"there\"]\nback = [\"back\"]\n";
    let others = format!(
        "[[flow]]\nname = \"tcp\"\ncount = 2\naccess = {{ delay = [\"1ms\", \"5ms\"] }}\n{way}\
         tcp = {{ kind = \"cubic\" }}\n\
         [[flow]]\nname = \"udp\"\n{way}udp = {{ rate = \"200kb/s\" }}\n\
         [[flow]]\nname = \"web\"\n{way}web = {{ load = \"200kb/s\" }}\n"
    );
    for peer in peers() {
        let outcome = run(&format!("{LINKS}{CALL}{others}"), peer);
        let flows = outcome.flows.iter();
        let names: Vec<(&str, &str)> = flows
            .map(|flow| (flow.name.as_str(), flow.control.as_str()))
            .collect();
        let expected = [
            ("call", peer.name()),
            ("tcp-1", "cubic"),
            ("tcp-2", "cubic"),
            ("udp", "udp"),
            ("web", "web"),
        ];
        assert_eq!(names, expected);
        let way = outcome.flows[1].propagation_ms;
        assert!((21.0..=25.0).contains(&way), "{way}");
        let rates: Vec<f64> = outcome
            .flows
            .iter()
            .map(|flow| mean(&flow.curves.rate_bps, 5, 20))
            .collect();
        let [call, first, second, udp, web] = rates.as_slice() else {
            panic!("{rates:?}");
        };
        assert!(*call > 5e4 && first + second > 2e5, "{rates:?}");
        assert!((1.6e5..2.1e5).contains(udp) && *web > 1e3, "{rates:?}");
        // Nothing is counted twice: together they do not carry more than the link.
        assert!((1.5e6..2.01e6).contains(&rates.iter().sum()), "{rates:?}");
    }
}

#[test]
fn what_a_peer_cannot_do_is_refused() {
    let video = |line: &str| format!("{LINKS}{CALL}{line}\n");
    assert_eq!(
        refusal(&video("ecn = true"), Peer::Str0mGcc),
        "flow \"call\": str0m-gcc does not answer marks: set ecn = false or choose another peer"
    );
    let fixed = video("").replace("\"tfrc\"", "{ fixed = \"1Mb/s\" }");
    assert_eq!(
        refusal(&fixed, Peer::Str0mGcc),
        "no flow has a controller that a peer could replace: give one control = \"tfrc\""
    );
    let both = format!(
        "{LINKS}{CALL}{}",
        fixed.replace(LINKS, "").replace("call", "b")
    );
    assert_eq!(
        refusal(
            &both.replace("video = {}", "video = { encoder = \"x264\" }"),
            Peer::Str0mGcc
        ),
        "flow \"b\": background video is modelled here: set encoder = \"model\""
    );
    let bulk = CALL.replace(
        "video = {}\ndelay_bound = \"400ms\"",
        "bulk = { packet = \"500B\" }",
    );
    let limited = bulk.replace("\"500B\"", "\"1200B\", limit = \"1MB\"");
    assert_eq!(
        refusal(&format!("{LINKS}{limited}"), Peer::Str0mGcc),
        "flow \"call\": peers always have more to send, and hold nothing back: remove limit"
    );
    assert_eq!(
        refusal(&format!("{LINKS}{bulk}"), Peer::Str0mGcc),
        "flow \"call\": peers choose their packets, of about 1200 bytes: \
         set packet = \"1200B\" instead of 500"
    );
}

#[test]
fn without_its_program_there_is_no_pion() {
    let at = |pion: Option<&str>| {
        let options = Options {
            pion: pion.map(PathBuf::from),
            ..options()
        };
        let played = play::scenario(
            &scenario(&format!("{LINKS}{CALL}")),
            Peer::PionGcc,
            &options,
        );
        match played {
            Err(PlayError::Library(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(at(None).starts_with("pion runs in a program of its own"));
    let missing = at(Some("/nowhere/pion-gcc"));
    assert!(missing.starts_with("/nowhere/pion-gcc: "), "{missing}");
    assert!(missing.ends_with("built by scripts/peers?"), "{missing}");
}

#[test]
fn results_survive_their_file() {
    let text = format!("{LINKS}{CALL}")
        .replace("30s", "6s")
        .replace("20s", "4s");
    let outcome = run(&text, Peer::Str0mGcc);
    assert_eq!(outcome.file_name(), "small.str0m-gcc.json");
    let written = serde_json::to_string(&outcome).unwrap();
    let read: Outcome = serde_json::from_str(&written).unwrap();
    assert_eq!(read, outcome);
    let table = table(&[read]);
    assert!(table.contains("| small | call | str0m-gcc | "), "{table}");
    assert_eq!(outcome.flows[0].curves.rate_bps.len(), 30);
}
