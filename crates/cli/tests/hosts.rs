//! `tidegate papers hosts` with an ssh server on the loopback interface and temporary keys.

mod calm;
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use calm::judged;
use program::{Program, Scratch, text};
use serde_json::Value;
use tidegate_record::RunReader;

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// Reports a skipped test on standard error, since the test harness captures the output of passing
/// tests. Fails instead with `TIDEGATE_REQUIRE_SSHD=1`.
fn skip(test: &str, why: &str) {
    let required = env::var_os("TIDEGATE_REQUIRE_SSHD").is_some_and(|v| v == "1");
    assert!(!required, "an ssh server is required: {why}");
    let mut terminal = io::stderr();
    writeln!(terminal, "skipped {test}: {why}").unwrap();
}

/// An ssh server that is stopped at the end of the test.
struct Server {
    scratch: Scratch,
    user: String,
    port: u16,
    _sshd: Program,
}

impl Server {
    /// `None`, with a message, if this machine has no sshd or root cannot start it.
    fn start(test: &str) -> Option<Self> {
        let sshd = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"];
        let Some(sshd) = sshd.into_iter().find(|path| Path::new(path).exists()) else {
            skip(test, "sshd is not installed (package openssh-server)");
            return None;
        };
        let (user, is_root) = (
            run_command("id", &["-un"]),
            run_command("id", &["-u"]) == "0",
        );
        let unshared = Command::new("unshare").args(["--mount", "true"]).output();
        if is_root && !unshared.is_ok_and(|output| output.status.success()) {
            skip(
                test,
                "root's sshd needs /run/sshd, and no mount namespace is available for it",
            );
            return None;
        }
        let scratch = Scratch::new(test);
        fs::create_dir(scratch.path("tmp")).unwrap();
        for key in ["host", "user"] {
            let file = scratch.path(key);
            run_command(
                "ssh-keygen",
                &["-q", "-t", "ed25519", "-N", "", "-f", text(&file)],
            );
        }
        let port = free_port();
        let public = fs::read_to_string(scratch.path("host.pub")).unwrap();
        fs::write(
            scratch.path("known"),
            format!("[127.0.0.1]:{port} {public}"),
        )
        .unwrap();
        let dir = scratch.path("");
        let dir = text(&dir).trim_end_matches('/');
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {dir}/host\nPidFile none\n\
             AuthorizedKeysFile {dir}/user.pub\nStrictModes no\nUsePAM no\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nSetEnv TMPDIR={dir}/tmp\n"
        );
        let file = scratch.path("sshd_config");
        fs::write(&file, config).unwrap();
        let mut command = if is_root {
            // In its own mount namespace, so that no folder remains on this machine.
            let mut command = Command::new("unshare");
            let script = "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec \"$@\"";
            command.args(["--mount", "sh", "-c", script, "sh", sshd]);
            command
        } else {
            Command::new(sshd)
        };
        let mut sshd = Program::start(command.args(["-D", "-e", "-f", text(&file)]));
        sshd.wait_for_line("Server listening");
        Some(Self {
            scratch,
            user,
            port,
            _sshd: sshd,
        })
    }

    fn host(&self, options: &str) -> String {
        let (user, port) = (&self.user, self.port);
        format!("{user}@127.0.0.1:{port},{options}")
    }

    fn out(&self) -> PathBuf {
        self.scratch.path("out")
    }

    /// Runs with small pictures.
    fn play(&self, hosts: &[String], options: &str) -> Program {
        let file = |name| self.scratch.path(name).display().to_string();
        let ssh = format!(
            "ssh -F none -i {} -o IdentitiesOnly=yes -o IdentityAgent=none \
             -o StrictHostKeyChecking=yes -o UserKnownHostsFile={}",
            file("user"),
            file("known")
        );
        let mut command = Command::new(TIDEGATE);
        command.args(["papers", "hosts", "--json", "--ssh", &ssh, "--out"]);
        command.arg(self.out()).args(options.split_whitespace());
        command.args([
            "--mode",
            "classic",
            "--mode",
            "iopt --events-from unprivileged",
        ]);
        command.args(hosts);
        command.args("-- --size 320x180 --preset ultrafast --rate 1Mb/s".split(' '));
        Program::start(&mut command)
    }

    /// Asserts that players have removed their temporary files.
    fn assert_clean(&self) {
        let left = fs::read_dir(self.scratch.path("tmp")).unwrap();
        assert_eq!(left.count(), 0);
    }
}

fn run_command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn modes_alternate_and_failed_hosts_are_named() {
    judged("modes_alternate_and_failed_hosts_are_named", modes_in_turn);
}

fn modes_in_turn() {
    let Some(server) = Server::start("hosts") else {
        return;
    };
    let old = server.scratch.path("old");
    fs::write(&old, "#!/bin/sh\necho tidegate 0.0.1\n").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let taken_port = taken.local_addr().unwrap().port();
    let hosts = [
        server.host("name=bare,tidegate=/nowhere/tidegate"),
        server.host(&format!("name=old,tidegate={}", text(&old))),
        format!("127.0.0.1:{},name=away", free_port()),
        server.host(&format!(
            "name=busy,to=127.0.0.1:{taken_port},tidegate={TIDEGATE}"
        )),
        server.host(&format!("name=good,to=127.0.0.1:0,tidegate={TIDEGATE}")),
    ];
    let ended = server.play(&hosts, "--duration 600ms --runs 2").wait();
    for words in [
        "bare: cannot run /nowhere/tidegate on the host",
        "old on the host is \"tidegate 0.0.1\", this program is",
        "away: ssh cannot log in: ",
        &format!("busy: port {taken_port} is in use on the host"),
        "busy: no more runs to this host",
    ] {
        ended.failed_with(words);
    }
    let results: Value = serde_json::from_str(&ended.output).unwrap();
    assert_eq!(results["failed"].as_array().unwrap().len(), 4);
    let runs = results["runs"].as_array().unwrap();
    let order: Vec<&str> = runs
        .iter()
        .map(|run| run["mode"].as_str().unwrap())
        .collect();
    let iopt = "iopt --events-from unprivileged";
    assert_eq!(order, ["classic", iopt, "classic", iopt]);
    for run in runs {
        assert_eq!(run["frames"]["made"], 18, "{run}");
        // A busy encoder skips some frames; on the loopback interface none is late.
        assert!(run["frames"]["in_time"].as_u64().unwrap() >= 9, "{run}");
        assert!(run["delay_ms"]["max"].as_f64().unwrap() > 0.0, "{run}");
        assert_eq!(run["cut_short"], false);
        let dir = Path::new(run["dir"].as_str().unwrap());
        assert!(dir.starts_with(server.out().join("good")));
        for side in ["sender", "player"] {
            assert!(RunReader::load(dir.join(side)).unwrap().summary.is_some());
        }
        let log = fs::read_to_string(dir.join("player.log")).unwrap();
        assert!(log.contains("whole frames in"), "{log}");
    }
    assert_eq!(results["name"], "hosts");
    assert!(results["source"].is_string());
    assert_eq!(results["claims"].as_array().unwrap().len(), 0);
    let table = &results["table"];
    let columns = table["columns"].as_array().unwrap().len();
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(
        rows.iter()
            .all(|row| row.as_array().unwrap().len() == columns)
    );
    for (number, mode) in ["classic", iopt].into_iter().enumerate() {
        let series = &results["series"][number];
        assert_eq!(series["name"], mode);
        assert_eq!(series["points"][0]["n"], 2, "{series}");
    }
    server.assert_clean();
}

#[test]
fn ctrl_c_ends_the_player_and_keeps_the_results() {
    let Some(server) = Server::start("hosts-interrupt") else {
        return;
    };
    let host = server.host(&format!("name=good,to=127.0.0.1:0,tidegate={TIDEGATE}"));
    let mut play = server.play(&[host], "--duration 60s");
    play.wait_for_line(" of 1.00 Mb/s");
    play.interrupt();
    let ended = play.wait();
    let results: Value = serde_json::from_str(&ended.was_interrupted().output).unwrap();
    let kept = "interrupted: 1 of 4 runs are kept in";
    assert!(ended.said.contains(kept), "{}", ended.said);
    assert_eq!(results["interrupted"], true);
    assert_eq!(results["runs"][0]["cut_short"], true, "{results}");
    assert!(
        results["runs"][0]["frames"]["came"].as_u64().unwrap() > 0,
        "{results}"
    );
    assert!(results["table"]["rows"].as_array().unwrap().is_empty());
    let player = server.out().join("good/classic-1/player");
    assert!(RunReader::load(player).unwrap().summary.is_some());
    server.assert_clean();
}

#[test]
fn a_run_ends_at_its_time_limit() {
    let Some(server) = Server::start("hosts-limit") else {
        return;
    };
    let host = server.host(&format!("name=good,to=127.0.0.1:0,tidegate={TIDEGATE}"));
    let ended = server
        .play(&[host], "--duration 60s --limit 1s --runs 1")
        .wait();
    let results: Value = serde_json::from_str(&ended.succeeded().output).unwrap();
    assert_eq!(results["runs"].as_array().unwrap().len(), 2);
    for run in results["runs"].as_array().unwrap() {
        assert_eq!(run["note"], "given up after 1 s", "{run}");
        assert!(run["frames"]["came"].as_u64().unwrap() > 0, "{run}");
    }
    server.assert_clean();
}
