//! `tidegate papers hosts` over a path with outages and cross traffic: two network namespaces,
//! connected by a veth pair, and a script instead of ssh.

mod calm;
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;
mod skip;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use calm::judged;
use program::{Program, ProgramResult, Scratch, text};
use serde_json::Value;
use tidegate_core::units::Time;
use tidegate_record::RunReader;

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");
/// A mode that subscribes to events without responding to them.
const MODE: &str = "ioff --events-from unprivileged";
const NEAR: &str = "10.9.8.1";
const FAR: &str = "10.9.8.2";
/// Name of the injector's device for that address.
const DEVICE: &str = "tide0a090802";

/// Two hosts, removed at the end of the test.
struct Hosts {
    scratch: Scratch,
    /// Command prefix to enter the sending host.
    enter: Vec<String>,
    _near: Program,
    _far: Program,
}

impl Hosts {
    /// `None`, with a message, if namespaces are unavailable.
    fn start(test: &str) -> Option<Self> {
        if skip::is_without_lab(test) {
            return None;
        }
        let is_root = run_command("id", &["-u"]) == "0";
        let user: &[&str] = if is_root {
            &[]
        } else {
            &["--user", "--map-root-user"]
        };
        let hold = "ip link set lo up && echo pid $$ >&2 && exec sleep 600";
        let mut command = Command::new("unshare");
        command.args(user).args(["--net", "sh", "-c", hold]);
        let (near, pid) = held(&mut command);
        let mut enter = vec![
            "nsenter".to_owned(),
            format!("--target={pid}"),
            "--net".to_owned(),
        ];
        if !is_root {
            enter.extend(["--user", "--preserve-credentials"].map(str::to_owned));
        }
        let inside = |words: &[&str]| {
            let mut command = Command::new(&enter[0]);
            command.args(&enter[1..]).args(words);
            command
        };
        let (far, pid) = held(&mut inside(&["unshare", "--net", "sh", "-c", hold]));
        let wire = format!(
            "there='nsenter --target={pid} --net'; set -e
             ip link add wire type veth peer name wire netns {pid}
             ip addr add {NEAR}/24 dev wire; ip link set wire up
             $there ip addr add {FAR}/24 dev wire; $there ip link set wire up"
        );
        let wired = inside(&["sh", "-c", &wire]).output().unwrap();
        assert!(wired.status.success(), "{wired:?}");
        let scratch = Scratch::new(test);
        fs::create_dir(scratch.path("tmp")).unwrap();
        let tmp = scratch.path("tmp");
        let ssh = format!(
            "#!/bin/sh\nwhile test $# -gt 2; do shift; done\n\
             export TMPDIR={} SSH_CONNECTION='{NEAR} 1 {FAR} 22'\n\
             case $1 in far) exec nsenter --target={pid} --net sh -c \"$2\" ;; esac\n\
             exec sh -c \"$2\"\n",
            text(&tmp)
        );
        script(&scratch, "ssh", &ssh);
        // Prints its arguments instead of packets.
        let dump = "#!/bin/sh\ntrap 'kill $!; exit 0' TERM\necho \"$@\"\nsleep 600 & \
                    echo 'tcpdump: listening on any' >&2\nwait\n";
        script(&scratch, "tcpdump", dump);
        Some(Self {
            scratch,
            enter,
            _near: near,
            _far: far,
        })
    }

    /// A command on the sending host.
    fn near(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.enter[0]);
        command.args(&self.enter[1..]).args(words);
        let path = std::env::var("PATH").unwrap();
        let own = self.scratch.path("");
        command.env(
            "PATH",
            format!("{}:{path}", text(&own).trim_end_matches('/')),
        );
        command
    }

    /// One run to a player on the host `far`.
    fn play(&self, before: &[&str], to: &str, options: &str) -> Program {
        let (ssh, out) = (self.scratch.path("ssh"), self.scratch.path("out"));
        let mut words = before.to_vec();
        words.extend([
            TIDEGATE, "papers", "hosts", "--json", "--mode", MODE, "--runs", "1",
        ]);
        words.extend(["--ssh", text(&ssh), "--out", text(&out)]);
        words.extend(options.split_whitespace());
        let host = format!("{to},tidegate={TIDEGATE}");
        words.push(&host);
        words.extend("-- --size 320x180 --preset ultrafast --rate 1Mb/s".split(' '));
        Program::start(&mut self.near(&words))
    }

    /// Routes of the sending host to the player's address.
    fn routes(&self) -> String {
        let output = self.near(&["ip", "route", "show", FAR]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    /// Index of the injector's device, which is not reused.
    fn device(&self) -> String {
        let words = ["ip", "-oneline", "link", "show", "dev", DEVICE];
        let output = self.near(&words).output();
        let line = String::from_utf8(output.unwrap().stdout).unwrap();
        line.split_once(':').unwrap().0.to_owned()
    }
}

/// A host: its process, and the pid by which it is entered.
fn held(command: &mut Command) -> (Program, u32) {
    let mut holder = Program::start(command);
    let line = holder.wait_for_line("pid ");
    let pid = line.trim_start_matches("pid ").parse().unwrap();
    (holder, pid)
}

fn script(scratch: &Scratch, name: &str, text: &str) {
    let path = scratch.path(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn run_command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn results(ended: &ProgramResult) -> Value {
    serde_json::from_str(&ended.output).unwrap()
}

#[test]
fn a_run_has_cuts_cross_traffic_and_captures() {
    judged(
        "a_run_has_cuts_cross_traffic_and_captures",
        a_run_that_is_cut,
    );
}

fn a_run_that_is_cut() {
    let Some(hosts) = Hosts::start("hosts-paths") else {
        return;
    };
    let options = format!(
        "--duration 5s --cut 1s,500ms --gap 1s --capture \
         --cross far,name=back,rate=2Mb/s,to=sender,tidegate={TIDEGATE} \
         --cross near,name=along,rate=1Mb/s,on=20ms,off=20ms,tidegate={TIDEGATE}"
    );
    let ended = hosts.play(&[], &format!("far,to={FAR}:0"), &options).wait();
    let results = results(ended.succeeded());
    let run = &results["runs"][0];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{run}"));
    let cuts: Vec<(f64, f64)> = run["cuts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cut| (number(&cut["at_s"]), number(&cut["lasts_s"])))
        .collect();
    assert_eq!(cuts.len(), 2, "{run}");
    for ((at, lasts), (wanted, length)) in cuts.iter().zip([(1.0, 1.0), (3.0, 0.5)]) {
        assert!(*at >= wanted && *lasts >= length, "{cuts:?}");
    }
    assert_eq!(hosts.routes(), "");
    // Packets sent during an outage are lost, which causes TCP events.
    assert!(number(&run["events"]) >= 2.0, "{run}");
    // No frame arrives while the route is removed.
    let dir = hosts
        .scratch
        .path("out/far/ioff-events-from-unprivileged-1");
    let seen = RunReader::load(dir.join("player")).unwrap();
    let came = seen.flows[0]
        .received
        .iter()
        .filter_map(|frame| frame.complete);
    let mut came: Vec<f64> = came.map(Time::as_secs_f64).collect();
    came.sort_by(f64::total_cmp);
    let mut gaps: Vec<f64> = came.windows(2).map(|two| two[1] - two[0]).collect();
    gaps.sort_by(f64::total_cmp);
    let longest = &gaps[gaps.len() - 2..];
    assert!(
        longest[0] > 0.45 && longest[1] > 0.95,
        "{longest:?} of {cuts:?}"
    );

    let cross = run["cross"].as_array().unwrap();
    let [back, along] = &cross[..] else {
        panic!("{run}")
    };
    assert_eq!(
        (&back["host"], &back["to"]),
        (&"back".into(), &"sender".into())
    );
    assert_eq!(
        (&along["host"], &along["to"]),
        (&"along".into(), &"player".into())
    );
    let packets = |cross: &Value| [number(&cross["sent"]), number(&cross["received"])];
    // 2 Mb/s are 167 packets a second, for at least five seconds.
    let [sent, received] = packets(back);
    assert!(sent > 700.0 && received > 0.5 * sent, "{back}");
    // From the host whose route is removed.
    let [sent, received] = packets(along);
    assert!(received > 0.0 && received < 0.9 * sent, "{along}");
    for log in [
        "cross-back-sent.log",
        "cross-back-counted.log",
        "cross-along-sent.log",
    ] {
        assert!(
            fs::read_to_string(dir.join(log))
                .unwrap()
                .contains(" packets, "),
            "{log}"
        );
    }

    assert_eq!(run["captures"].as_array().unwrap().len(), 2, "{run}");
    for side in ["sender", "player"] {
        let capture = fs::read_to_string(dir.join(side).with_extension("pcap")).unwrap();
        assert!(
            capture.contains("tcp port ") && !capture.contains("port 0"),
            "{capture}"
        );
    }
    assert_eq!(fs::read_dir(hosts.scratch.path("tmp")).unwrap().count(), 0);
}

/// Waits for the removal of a device and its route. The kernel reports some removals repeatedly.
fn deleted(devices: &mut Program, number: &str) {
    devices.wait_for_line(&format!("Deleted {number}: {DEVICE}"));
}

#[test]
fn the_route_is_back_after_ctrl_c_and_when_the_process_is_killed() {
    let Some(hosts) = Hosts::start("hosts-killed") else {
        return;
    };
    let watch = ["sh", "-c", "exec ip monitor link >&2"];
    let mut devices = Program::start(&mut hosts.near(&watch));
    let options = "--duration 60s --cut 50s --gap 500ms";
    let to = format!("far,to={FAR}:0");
    let mut play = hosts.play(&[], &to, options);
    play.wait_for_line("is cut for 50 s");
    assert!(hosts.routes().contains(FAR));
    let first = hosts.device();
    play.interrupt();
    let results = results(play.wait().was_interrupted());
    assert_eq!(
        results["runs"][0]["cuts"].as_array().unwrap().len(),
        1,
        "{results}"
    );
    assert_eq!(hosts.routes(), "");
    deleted(&mut devices, &first);

    let mut play = hosts.play(&[], &to, options);
    play.wait_for_line("is cut for 50 s");
    assert!(hosts.routes().contains(FAR));
    let second = hosts.device();
    assert_ne!(second, first);
    play.kill();
    deleted(&mut devices, &second);
    assert_eq!(hosts.routes(), "");
}

#[test]
fn impossible_cuts_are_rejected_before_the_first_run() {
    let Some(hosts) = Hosts::start("hosts-rights") else {
        return;
    };
    let cut = "--duration 5s --cut 1s --gap 1s";
    let far = format!("far,to={FAR}:0");
    let without = [
        "setpriv",
        "--bounding-set=-net_admin",
        "--inh-caps=-net_admin",
    ];
    let ended = hosts.play(&without, &far, cut).wait();
    ended.failed_with("with CAP_NET_ADMIN, or give --injector a command");
    assert!(!hosts.scratch.path("out/far").exists());
    let ended = hosts.play(&[], &format!("near,to={NEAR}:0"), cut).wait();
    ended.failed_with("10.9.8.1 is a local address, which needs no route");
    let ended = hosts.play(&[], &far, "--duration 5s --cut 1s").wait();
    ended.failed_with("the video ends after 5 s");
    let cross = format!("--duration 5s --cross far,rate=1Mb/s,tidegate={TIDEGATE}x");
    let ended = hosts.play(&[], &far, &cross).wait();
    ended.failed_with("cross traffic: far: cannot run ");
    // A device and a route that an earlier run has left are removed first.
    let left = format!(
        "for type in dummy ifb; do ip link add {DEVICE} type $type && break; done
         ip link set {DEVICE} up && ip route add {FAR} dev {DEVICE}"
    );
    assert!(hosts.near(&["sh", "-c", &left]).status().unwrap().success());
    let cut = "--duration 900ms --cut 100ms --gap 300ms";
    hosts.play(&[], &far, cut).wait().succeeded();
}
