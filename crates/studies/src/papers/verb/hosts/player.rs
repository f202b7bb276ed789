//! A player on another host, over one ssh connection. Closing standard input ends the player,
//! standard error has its messages, and standard output transfers the run folder back.

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
use super::remote_process::{last, receive_lines};
use tidegate_console::context::LiveContext;
use tidegate_console::exit::EnvironmentError;

/// The ssh program and its options.
#[derive(Clone, Debug)]
pub(super) struct Ssh(Vec<String>);

impl Ssh {
    /// Splits a command at spaces.
    pub(super) fn new(command: &str) -> Result<Self> {
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        ensure!(
            !words.is_empty(),
            "empty --ssh: remove it, or use a command such as \"ssh -i KEY\""
        );
        Ok(Self(words))
    }

    /// A command that runs `script` with `sh` on the host. It has its own process group, so that
    /// Ctrl-C at the terminal does not signal it and this process ends it.
    pub(super) fn command(&self, host: &Host, script: &str, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.0[0]);
        // ssh uses the first value of an option that is given twice.
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

    /// Whether a player of this version can be started on the host. False after Ctrl-C.
    ///
    /// # Errors
    /// The player cannot be started: the cause and the fix.
    pub(super) fn check(&self, host: &Host, around: &LiveContext) -> Result<bool> {
        let arguments = [host.tidegate.clone(), version()];
        let mut command = self.command(host, CHECK, &arguments);
        let pipes = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = pipes.stderr(Stdio::piped()).spawn();
        let child = child.with_context(|| self.missing());
        let mut child = child.map_err(EnvironmentError::of)?;
        let end = around.clock.now() + START;
        let status = loop {
            if let Some(status) = child.try_wait().context("cannot wait for ssh")? {
                break status;
            }
            let interrupted = around.interrupts.count() > 0;
            if interrupted || around.clock.now() >= end {
                // It may just have exited.
                let _ = child.kill();
                child.wait().context("cannot wait for ssh")?;
                ensure!(
                    interrupted,
                    EnvironmentError::new(format_args!(
                        "{}: no reply from `{} --version` within {} s: check whether the host \
                         responds",
                        host.name,
                        host.tidegate,
                        START.as_secs()
                    ))
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
        format!("cannot run {}: install the OpenSSH client", self.0[0])
    }
}

/// A running player.
#[derive(Debug)]
pub(super) struct Player {
    ssh: Child,
    tar: Child,
    /// Standard input. Closing it ends the player.
    life: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Vec<String>,
    log: File,
}

/// Next message of a player.
#[derive(Debug)]
enum Received {
    Said(String),
    Ended,
    Nothing,
}

impl Player {
    /// Starts `tidegate recv` with `arguments`. Its run folder is transferred to `dir`/player, and
    /// its messages to `dir`/player.log.
    ///
    /// # Errors
    /// A program is missing on this host, or `dir` cannot be written.
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
            bail!("internal error: {} has no pipes", ssh.0[0]);
        };
        let tar = Command::new("tar")
            .args(["-xof", "-", "-C"])
            .arg(dir)
            .stdin(stdout)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let lines = receive_lines(stderr);
        let life = child.stdin.take();
        Ok(Self {
            ssh: child,
            tar: tar.context("cannot run tar, which unpacks the run folder: install it")?,
            life,
            lines,
            said: Vec::new(),
            log,
        })
    }

    /// Waits until the player listens, and returns its port. None after Ctrl-C.
    ///
    /// # Errors
    /// The player does not start, or not in time: the cause and the fix.
    pub(super) fn port(&mut self, host: &Host, around: &LiveContext) -> Result<Option<u16>> {
        let end = around.clock.now() + START;
        while around.clock.now() < end {
            match self.receive() {
                Received::Said(line) => {
                    let port = line.split_once(WAITS);
                    if let Some(port) = port.and_then(|(_, port)| port.trim().parse().ok()) {
                        return Ok(Some(port));
                    }
                }
                Received::Ended => {
                    let status = self.ssh.wait().context("cannot wait for ssh")?;
                    failure(host, status, &self.said)?;
                    bail!(
                        "{}: the player exited before it listened; see player.log",
                        host.name
                    );
                }
                Received::Nothing => {}
            }
            if around.interrupts.count() > 0 {
                return Ok(None);
            }
        }
        bail!(
            "{}: the player did not start within {} s: check whether the host responds",
            host.name,
            START.as_secs()
        )
    }

    /// Ends the player at `end` if it has not exited, waits for its run folder, and returns the
    /// path of the folder.
    ///
    /// # Errors
    /// The player has failed, or the folder is not transferred: the cause and the fix.
    pub(super) fn fetch(
        mut self,
        host: &Host,
        dir: &Path,
        around: &LiveContext,
        end: Time,
    ) -> Result<PathBuf> {
        let mut deadline = end;
        loop {
            match self.receive() {
                Received::Ended => break,
                Received::Nothing if around.clock.now() >= deadline + GRACE => {
                    bail!(
                        "{}: the player does not exit and the connection hangs: check for a process \
                         `tidegate recv` on the host",
                        host.name
                    );
                }
                Received::Said(_) | Received::Nothing => {}
            }
            let now = around.clock.now();
            if self.life.is_some() && (now >= end || around.interrupts.count() > 0) {
                deadline = now.min(end);
                self.life = None;
            }
        }
        let status = self.ssh.wait().context("cannot wait for ssh")?;
        let unpacked = self.tar.wait().context("cannot wait for tar")?;
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
            "{}: the run folder was not transferred: {}; the login shell on the host must not write \
             to standard output",
            host.name,
            why.lines().next().unwrap_or("tar is missing on the host")
        )
    }

    /// Waits briefly for a line or the end.
    fn receive(&mut self) -> Received {
        match self.lines.recv_timeout(MOMENT) {
            Ok(line) => {
                // A failure to write the log must not end the run.
                let _ = writeln!(self.log, "{line}");
                self.said.push(line.clone());
                Received::Said(line)
            }
            Err(RecvTimeoutError::Disconnected) => Received::Ended,
            // A child process of the player may keep its standard error open.
            Err(RecvTimeoutError::Timeout) => match self.ssh.try_wait() {
                Ok(Some(_)) => Received::Ended,
                Ok(None) | Err(_) => Received::Nothing,
            },
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // The player exits with the connection. Errors mean that the process has exited.
        self.life = None;
        for child in [&mut self.ssh, &mut self.tar] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Error of a player by its exit status, with host, cause and fix.
fn failure(host: &Host, status: ExitStatus, said: &[String]) -> Result<()> {
    let last = last(said);
    let (name, path) = (&host.name, &host.tidegate);
    let error = match status.code() {
        Some(0) => return Ok(()),
        Some(SSH_FAILED) if said.iter().any(|line| line.contains(WAITS)) => anyhow!(
            "{name}: the ssh connection was lost before the player's run folder was transferred: \
             {last}; check the path"
        ),
        Some(SSH_FAILED) => anyhow!(
            "{name}: ssh cannot log in: {last}; check that `ssh {}{}` works without a prompt",
            host.ssh_port
                .map_or(String::new(), |port| format!("-p {port} ")),
            host.login
        ),
        Some(NO_PROGRAM) => anyhow!(
            "{name}: cannot run {path} on the host ({last}): install it, or set its path with \
             \",tidegate=PATH\""
        ),
        Some(OTHER_VERSION) => anyhow!(
            "{name}: {path} on the host is \"{last}\", this program is \"{}\": install the same version",
            version()
        ),
        _ if said.iter().any(|line| is_taken(line)) => anyhow!(
            "{name}: port {} is in use on the host: end the process that listens, or choose another \
             port with \",to=ADDRESS:PORT\" (0 for a free one)",
            host.port
        ),
        _ => anyhow!("{name}: the player failed: {last}"),
    };
    Err(EnvironmentError::of(error).into())
}

/// Whether the line is the message of `tidegate recv` that another process has its port.
fn is_taken(line: &str) -> bool {
    line.contains("cannot listen at") && line.contains("in use")
}

/// Removes the folder of an earlier run. A folder of this name that is not a run is an error.
fn forget(folder: &Path) -> Result<()> {
    let name = folder.display();
    if !folder.exists() {
        return Ok(());
    }
    ensure!(
        folder.join("manifest.json").exists(),
        "{name} is not a run folder: choose another --out"
    );
    fs::remove_dir_all(folder).with_context(|| name.to_string())
}

/// Output of `tidegate --version`.
pub(super) fn version() -> String {
    format!("tidegate {}", env!("CARGO_PKG_VERSION"))
}

/// Quotes one word for POSIX shells.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Name of the run folder on both hosts.
const FOLDER: &str = "player";
/// Message of a player that listens, before the port.
const WAITS: &str = "waiting for a stream at port ";
/// Exit status of ssh for its own errors.
const SSH_FAILED: i32 = 255;
const NO_PROGRAM: i32 = 81;
const OTHER_VERSION: i32 = 82;
/// Script that checks the program. `$1` is its path, `$2` its required version.
pub(super) const CHECK: &str = "t=$1; have=$(\"$t\" --version 2>&1); \
    case $? in 0) ;; *) echo \"$have\" >&2; exit 81 ;; esac; \
    test \"$have\" = \"$2\" || { echo \"$have\" >&2; exit 82; }";
/// Script that runs the player with the other arguments. The end of standard input ends the player,
/// by SIGTERM because a shell's background processes ignore SIGINT. The last command transfers the
/// run folder.
const PLAY: &str = "shift 2; d=$(mktemp -d) || exit 83; exec 3<&0; \
    \"$t\" recv --run \"$d/player\" \"$@\" </dev/null >/dev/null 3<&- & p=$!; \
    { read -r x; kill -TERM $p; } <&3 >/dev/null 2>&1 & w=$!; \
    wait $p; r=$?; kill $w 2>/dev/null; \
    test -d \"$d/player\" && tar -C \"$d\" -cf - player; \
    rm -rf \"$d\"; exit $r";
/// Options of ssh that the user cannot override. Prompts have no terminal, a background master
/// would keep the pipes open, and forwarded ports may be in use by another ssh of the user.
const ALWAYS: [&str; 3] = [
    "BatchMode=yes",
    "ControlMaster=no",
    "ClearAllForwardings=yes",
];
/// Defaults of ssh options: time-outs for an unreachable host, also after the login.
const DEFAULTS: [&str; 3] = [
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
];
const MOMENT: Duration = Duration::from_millis(50);
/// Time-out of the login and the start of the program.
const START: Duration = Duration::from_secs(30);
/// Time-out of writing and transferring the run folder.
const GRACE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_for_the_remote_shell() {
        let host: Host = "ann@h:22".parse().unwrap();
        let ssh = Ssh::new("ssh -i key").unwrap();
        let words = ["it's", "$HOME `x` \"y\"", "", "a\\b"].map(str::to_owned);
        let command = ssh.command(&host, "printf '<%s>' \"$@\"", &words);
        let arguments: Vec<_> = command.get_args().map(|a| a.to_str().unwrap()).collect();
        let options = arguments.join(" ");
        assert!(options.starts_with("-o BatchMode=yes "), "{options}");
        // Options of the user precede the defaults.
        let at = |words: &str| options.find(words).unwrap();
        assert!(at("-i key") < at("ConnectTimeout"));
        assert_eq!(arguments[arguments.len() - 2], "ann@h");
        // sshd passes this string to the account's shell.
        let remote = arguments.last().unwrap();
        let output = Command::new("sh").args(["-c", remote]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed, "<it's><$HOME `x` \"y\"><><a\\b>");
        assert!(Ssh::new(" ").is_err());
    }

    #[test]
    fn folder_without_a_run_is_not_removed() {
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
