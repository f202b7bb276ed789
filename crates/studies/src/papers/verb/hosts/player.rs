//! A player on another host, over one connection of ssh: its input is the player's life, its errors
//! are what the player says, and its output brings the run folder back.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use tidegate_core::units::Time;

use super::list::Host;
use super::remote_process::{heard, last};
use tidegate_console::context::LiveContext;

/// How to run ssh: the program and its own options.
#[derive(Clone, Debug)]
pub(super) struct Ssh(Vec<String>);

impl Ssh {
    /// Splits a command at spaces.
    pub(super) fn new(command: &str) -> Result<Self> {
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        ensure!(
            !words.is_empty(),
            "an empty --ssh runs nothing: leave it out, or write it as \"ssh -i KEY\""
        );
        Ok(Self(words))
    }

    /// A command that runs `script` with `sh` there. It is not of our process group, so that a
    /// Ctrl-C at the terminal leaves it to us.
    pub(super) fn command(&self, host: &Host, script: &str, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.0[0]);
        // Of an option that comes twice ssh takes the first.
        for option in ALWAYS {
            command.args(["-o", option]);
        }
        command.args(&self.0[1..]);
        for option in DEFAULTS {
            command.args(["-o", option]);
        }
        command.arg("-T");
        if let Some(port) = host.ssh_port {
            command.args(["-p", &port.to_string()]);
        }
        let mut remote = format!("exec sh -c {} tidegate", quoted(script));
        for argument in arguments {
            remote.push(' ');
            remote.push_str(&quoted(argument));
        }
        command.arg(&host.login).arg(remote);
        command.process_group(0);
        command
    }

    /// Whether a player of this version can be started there. Not if somebody ended it.
    ///
    /// # Errors
    /// Says why not, and the mend.
    pub(super) fn check(&self, host: &Host, around: &LiveContext) -> Result<bool> {
        let arguments = [host.tidegate.clone(), version()];
        let mut command = self.command(host, CHECK, &arguments);
        let pipes = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = pipes.stderr(Stdio::piped()).spawn();
        let mut child = child.with_context(|| self.missing())?;
        let end = around.clock.now() + START;
        let status = loop {
            if let Some(status) = child.try_wait().context("ssh cannot be waited for")? {
                break status;
            }
            let asked = around.interrupts.count() > 0;
            if asked || around.clock.now() >= end {
                // It may have ended this moment.
                let _ = child.kill();
                child.wait().context("ssh cannot be waited for")?;
                ensure!(
                    asked,
                    "{}: nothing came of `{} --version` within {} s: see whether the host hangs",
                    host.name,
                    host.tidegate,
                    START.as_secs()
                );
                return Ok(false);
            }
            thread::sleep(MOMENT);
        };
        let mut said = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_string(&mut said).unwrap_or_default();
        }
        let said: Vec<String> = said.lines().map(str::to_owned).collect();
        failure(host, status, &said)?;
        Ok(true)
    }

    fn missing(&self) -> String {
        format!("cannot run {}: install OpenSSH's client", self.0[0])
    }
}

/// A player that was started and not yet fetched.
#[derive(Debug)]
pub(super) struct Player {
    ssh: Child,
    tar: Child,
    /// Once it is closed the player ends.
    life: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Vec<String>,
    log: File,
}

/// What a player was heard of.
#[derive(Debug)]
enum Heard {
    Said(String),
    Ended,
    Nothing,
}

impl Player {
    /// Starts `tidegate recv` with `arguments`. Its run folder will come to `dir`/player, and what
    /// it says to `dir`/player.log.
    ///
    /// # Errors
    /// When a program is missing here, or `dir` cannot be written.
    pub(super) fn start(ssh: &Ssh, host: &Host, arguments: &[String], dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        forget(&dir.join(FOLDER))?;
        let log = dir.join("player.log");
        let log = File::create(&log).with_context(|| log.display().to_string())?;
        let mut all = vec![host.tidegate.clone(), version()];
        all.extend_from_slice(arguments);
        let mut command = ssh.command(host, &format!("{CHECK}; {PLAY}"), &all);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = pipes.stderr(Stdio::piped()).spawn();
        let mut child = child.with_context(|| ssh.missing())?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            bail!("{} has no pipes", ssh.0[0]);
        };
        let tar = Command::new("tar")
            .args(["-xof", "-", "-C"])
            .arg(dir)
            .stdin(stdout)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let lines = heard(stderr);
        let life = child.stdin.take();
        Ok(Self {
            ssh: child,
            tar: tar.context("cannot run tar, which unpacks what players send: install it")?,
            life,
            lines,
            said: Vec::new(),
            log,
        })
    }

    /// Waits for the player to wait, and returns the port that it waits at; none if somebody ended
    /// it.
    ///
    /// # Errors
    /// When it cannot be started there, or not in time: why, and the mend.
    pub(super) fn port(&mut self, host: &Host, around: &LiveContext) -> Result<Option<u16>> {
        let end = around.clock.now() + START;
        while around.clock.now() < end {
            match self.hear() {
                Heard::Said(line) => {
                    let port = line.split_once(WAITS);
                    if let Some(port) = port.and_then(|(_, port)| port.trim().parse().ok()) {
                        return Ok(Some(port));
                    }
                }
                Heard::Ended => {
                    let status = self.ssh.wait().context("ssh cannot be waited for")?;
                    failure(host, status, &self.said)?;
                    bail!(
                        "{}: the player ended before it began; see player.log",
                        host.name
                    );
                }
                Heard::Nothing => {}
            }
            if around.interrupts.count() > 0 {
                return Ok(None);
            }
        }
        bail!(
            "{}: the player was not there within {} s: see whether the host hangs",
            host.name,
            START.as_secs()
        )
    }

    /// Ends the player, if it has not ended, and waits for its folder until `end` and then some.
    /// The answer is where that is.
    ///
    /// # Errors
    /// When the player failed, or nothing came back: why, and the mend.
    pub(super) fn fetch(
        mut self,
        host: &Host,
        dir: &Path,
        around: &LiveContext,
        end: Time,
    ) -> Result<PathBuf> {
        let mut hurry = end;
        loop {
            match self.hear() {
                Heard::Ended => break,
                Heard::Nothing if around.clock.now() >= hurry + GRACE => {
                    bail!(
                        "{}: the player does not end and the connection hangs: look there for \
                         `tidegate recv`",
                        host.name
                    );
                }
                Heard::Said(_) | Heard::Nothing => {}
            }
            let now = around.clock.now();
            if self.life.is_some() && (now >= end || around.interrupts.count() > 0) {
                hurry = now.min(end);
                self.life = None;
            }
        }
        let status = self.ssh.wait().context("ssh cannot be waited for")?;
        let unpacked = self.tar.wait().context("tar cannot be waited for")?;
        let folder = dir.join(FOLDER);
        if folder.join("manifest.json").exists() && unpacked.success() {
            return Ok(folder);
        }
        failure(host, status, &self.said)?;
        let mut why = String::new();
        if let Some(mut stderr) = self.tar.stderr.take() {
            stderr.read_to_string(&mut why).unwrap_or_default();
        }
        bail!(
            "{}: the run folder did not come back: {}; the shell there may not write to standard \
             output of itself",
            host.name,
            why.lines().next().unwrap_or("tar is missing there")
        )
    }

    /// A line, or the end, or nothing for a moment.
    fn hear(&mut self) -> Heard {
        match self.lines.recv_timeout(MOMENT) {
            Ok(line) => {
                // The log is for people, and the run is worth more than it.
                let _ = writeln!(self.log, "{line}");
                self.said.push(line.clone());
                Heard::Said(line)
            }
            Err(RecvTimeoutError::Disconnected) => Heard::Ended,
            // What it started may keep its standard error open.
            Err(RecvTimeoutError::Timeout) => match self.ssh.try_wait() {
                Ok(Some(_)) => Heard::Ended,
                Ok(None) | Err(_) => Heard::Nothing,
            },
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // The player ends when the connection does. What has ended already cannot be killed.
        self.life = None;
        for child in [&mut self.ssh, &mut self.tar] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Why nothing came of it, with host, cause and mend.
fn failure(host: &Host, status: ExitStatus, said: &[String]) -> Result<()> {
    let last = last(said);
    let (name, path) = (&host.name, &host.tidegate);
    let error = match status.code() {
        Some(0) => return Ok(()),
        Some(SSH_FAILED) if said.iter().any(|line| line.contains(WAITS)) => anyhow!(
            "{name}: ssh lost its connection, and the player's folder with it: {last}; see whether \
             the path is dead"
        ),
        Some(SSH_FAILED) => anyhow!(
            "{name}: ssh cannot log in: {last}; see that `ssh {}{}` does without asking",
            host.ssh_port
                .map_or(String::new(), |port| format!("-p {port} ")),
            host.login
        ),
        Some(NO_PROGRAM) => anyhow!(
            "{name}: there is no {path} there ({last}): install it, or say where it is with \
             \",tidegate=PATH\""
        ),
        Some(OTHER_VERSION) => anyhow!(
            "{name}: {path} there is \"{last}\" and ours is \"{}\": install the same there",
            version()
        ),
        _ if said.iter().any(|line| is_taken(line)) => anyhow!(
            "{name}: port {} is taken there: end what listens, or choose another one with \
             \",to=ADDRESS:PORT\" (0 for one that is free)",
            host.port
        ),
        _ => anyhow!("{name}: the player failed: {last}"),
    };
    Err(error)
}

/// What a player says when another program has its port.
fn is_taken(line: &str) -> bool {
    line.contains("cannot listen at") && line.contains("in use")
}

/// An earlier run goes; anything else that is called so stays, and the run is refused.
fn forget(folder: &Path) -> Result<()> {
    let name = folder.display();
    if !folder.exists() {
        return Ok(());
    }
    ensure!(
        folder.join("manifest.json").exists(),
        "{name} holds something else than a run: choose another --out"
    );
    fs::remove_dir_all(folder).with_context(|| name.to_string())
}

/// As `tidegate --version` says.
pub(super) fn version() -> String {
    format!("tidegate {}", env!("CARGO_PKG_VERSION"))
}

/// One word for any shell that knows single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The folder with the run there, and here.
const FOLDER: &str = "player";
/// What a player says when it can be streamed to, before the port.
const WAITS: &str = "waiting for a stream at port ";
/// As ssh ends when it is its own failure.
const SSH_FAILED: i32 = 255;
const NO_PROGRAM: i32 = 81;
const OTHER_VERSION: i32 = 82;
/// `$1` is the program there, `$2` what it has to say of its version.
pub(super) const CHECK: &str = "t=$1; have=$(\"$t\" --version 2>&1); \
    case $? in 0) ;; *) echo \"$have\" >&2; exit 81 ;; esac; \
    test \"$have\" = \"$2\" || { echo \"$have\" >&2; exit 82; }";
/// The rest is for the player. It is ended when its life, the standard input, is over; SIGINT would
/// be ignored by what a shell runs in the background. The last command sends what there is.
const PLAY: &str = "shift 2; d=$(mktemp -d) || exit 83; exec 3<&0; \
    \"$t\" recv --run \"$d/player\" \"$@\" </dev/null >/dev/null 3<&- & p=$!; \
    { read -r x; kill -TERM $p; } <&3 >/dev/null 2>&1 & w=$!; \
    wait $p; r=$?; kill $w 2>/dev/null; \
    test -d \"$d/player\" && tar -C \"$d\" -cf - player; \
    rm -rf \"$d\"; exit $r";
/// Nobody is there to answer; a master in the background would keep our pipes open; and forwarded
/// ports may be taken by another ssh of the user.
const ALWAYS: [&str; 3] = [
    "BatchMode=yes",
    "ControlMaster=no",
    "ClearAllForwardings=yes",
];
/// For options that the user did not give: a host that is not there is given up, also later.
const DEFAULTS: [&str; 3] = [
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
];
const MOMENT: Duration = Duration::from_millis(50);
/// For a login and the start of a program.
const START: Duration = Duration::from_secs(30);
/// For the player to write its folder, and for that to come back.
const GRACE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_reach_the_other_shell_as_they_are() {
        let host: Host = "ann@h:22".parse().unwrap();
        let ssh = Ssh::new("ssh -i key").unwrap();
        let words = ["it's", "$HOME `x` \"y\"", "", "a\\b"].map(str::to_owned);
        let command = ssh.command(&host, "printf '<%s>' \"$@\"", &words);
        let arguments: Vec<_> = command.get_args().map(|a| a.to_str().unwrap()).collect();
        let options = arguments.join(" ");
        assert!(options.starts_with("-o BatchMode=yes "), "{options}");
        // What the user says comes before what else holds.
        let at = |words: &str| options.find(words).unwrap();
        assert!(at("-i key") < at("ConnectTimeout"));
        assert_eq!(arguments[arguments.len() - 2], "ann@h");
        // What sshd gives to the shell of the account.
        let remote = arguments.last().unwrap();
        let output = Command::new("sh").args(["-c", remote]).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(told, "<it's><$HOME `x` \"y\"><><a\\b>");
        assert!(Ssh::new(" ").is_err());
    }

    #[test]
    fn a_folder_of_somebody_else_stays() {
        let dir = std::env::temp_dir().join(format!("tidegate-forget-{}", std::process::id()));
        let folder = dir.join(FOLDER);
        fs::create_dir_all(&folder).unwrap();
        assert!(forget(&folder).is_err());
        fs::write(folder.join("manifest.json"), "{}").unwrap();
        forget(&folder).unwrap();
        assert!(!folder.exists());
        fs::remove_dir_all(dir).unwrap();
    }
}
