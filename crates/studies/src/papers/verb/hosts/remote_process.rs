//! A program that works beside a run, here or on another host. Its input is its life: it ends when that
//! is closed, also because this process is gone. Its errors are what it says.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use tidegate_console::context::LiveContext;

/// A helper that was started and not yet ended.
#[derive(Debug)]
pub(super) struct RemoteProcess {
    /// In messages, as "capture on far".
    name: String,
    child: Child,
    /// Once it is closed the helper ends.
    life: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Vec<String>,
    log: File,
}

impl RemoteProcess {
    /// Starts a command whose output goes to `output`, and what it says to `log`.
    ///
    /// # Errors
    /// The program is missing, or the log cannot be written.
    pub(super) fn start(
        name: String,
        mut command: Command,
        output: Stdio,
        log: &Path,
    ) -> Result<Self> {
        let file = File::create(log).with_context(|| log.display().to_string())?;
        let program = command.get_program().to_string_lossy().into_owned();
        let pipes = command.stdin(Stdio::piped()).stdout(output);
        let child = pipes.stderr(Stdio::piped()).spawn();
        let mut child =
            child.with_context(|| format!("{name}: cannot run {program}: install it"))?;
        let Some(stderr) = child.stderr.take() else {
            bail!("{name}: {program} has no pipes");
        };
        let lines = heard(stderr);
        let life = child.stdin.take();
        Ok(Self {
            name,
            child,
            life,
            lines,
            said: Vec::new(),
            log: file,
        })
    }

    /// Waits until it says `words`, and returns what stands behind them; none if somebody interrupts.
    ///
    /// # Errors
    /// It ends before, or does not say so in time; the message has what it said last.
    pub(super) fn says(&mut self, words: &str, around: &LiveContext) -> Result<Option<String>> {
        let end = Instant::now() + START;
        while Instant::now() < end {
            match self.lines.recv_timeout(MOMENT) {
                Ok(line) => {
                    self.keep(&line);
                    if let Some((_, rest)) = line.split_once(words) {
                        return Ok(Some(rest.trim().to_owned()));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => bail!("{}: {}", self.name, self.last()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if around.interrupts.count() > 0 {
                return Ok(None);
            }
        }
        bail!(
            "{}: nothing came of it within {} s; {}",
            self.name,
            START.as_secs(),
            self.last()
        )
    }

    /// Ends it, waits until it has ended, and returns all that it said.
    ///
    /// # Errors
    /// It failed, or does not end.
    pub(super) fn end(mut self) -> Result<Vec<String>> {
        self.life = None;
        let end = Instant::now() + GRACE;
        loop {
            match self.lines.recv_timeout(MOMENT) {
                Ok(line) => self.keep(&line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if Instant::now() >= end => {
                    bail!("{}: it does not end; {}", self.name, self.last());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let status = self.child.wait();
        let status = status.with_context(|| format!("{}: it cannot be waited for", self.name))?;
        if !status.success() {
            bail!("{}: {}", self.name, self.last());
        }
        Ok(std::mem::take(&mut self.said))
    }

    fn keep(&mut self, line: &str) {
        // The log is for people, and the run is worth more than it.
        let _ = writeln!(self.log, "{line}");
        self.said.push(line.to_owned());
    }

    fn last(&self) -> &str {
        last(&self.said)
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        // What it started ends when its life does. One that has ended cannot be killed, nor waited for.
        self.life = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a program, as it says them.
pub(super) fn heard(stderr: ChildStderr) -> Receiver<String> {
    let (says, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if says.send(line.trim_end().to_owned()).is_err() {
                return;
            }
        }
    });
    lines
}

/// What a program said last, which is most often why it ended.
pub(super) fn last(said: &[String]) -> &str {
    let line = said.iter().rev().find(|line| !line.is_empty());
    line.map_or("it says nothing", |line| {
        line.trim_start_matches("tidegate: ")
    })
}

/// A script of `sh` here, with arguments. It is not of our process group, so that a Ctrl-C at the
/// terminal leaves it to us.
pub(super) fn here(script: &str, arguments: &[String]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "tidegate"]).args(arguments);
    command.process_group(0);
    command
}

const MOMENT: Duration = Duration::from_millis(50);
/// For a login and the start of a program.
const START: Duration = Duration::from_secs(30);
/// For what is left to be written, and to come back.
const GRACE: Duration = Duration::from_secs(30);
