//! A background process of a run, on this host or on another one. It exits when its standard input
//! is closed, also by the end of this process. Its messages are on standard error.

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

/// A running background process.
#[derive(Debug)]
pub(super) struct RemoteProcess {
    /// Prefix of messages, such as "capture on far".
    name: String,
    child: Child,
    /// Standard input. Closing it ends the process.
    life: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Vec<String>,
    log: File,
}

impl RemoteProcess {
    /// Starts a command with standard output to `output` and messages to `log`.
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
            bail!("{name}: internal error: {program} has no pipes");
        };
        let lines = receive_lines(stderr);
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

    /// Waits for a message with `words`, and returns the text after them. None after Ctrl-C.
    ///
    /// # Errors
    /// The process exits, or the message does not arrive in time. The error has the last message.
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
            "{}: not ready within {} s; {}",
            self.name,
            START.as_secs(),
            self.last()
        )
    }

    /// Ends the process, waits for its exit, and returns all its messages.
    ///
    /// # Errors
    /// The process fails or does not exit.
    pub(super) fn end(mut self) -> Result<Vec<String>> {
        self.life = None;
        let end = Instant::now() + GRACE;
        loop {
            match self.lines.recv_timeout(MOMENT) {
                Ok(line) => self.keep(&line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if Instant::now() >= end => {
                    bail!("{}: the process does not exit; {}", self.name, self.last());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let status = self.child.wait();
        let status =
            status.with_context(|| format!("{}: cannot wait for the process", self.name))?;
        if !status.success() {
            bail!("{}: {}", self.name, self.last());
        }
        Ok(std::mem::take(&mut self.said))
    }

    fn keep(&mut self, line: &str) {
        // A failure to write the log must not end the run.
        let _ = writeln!(self.log, "{line}");
        self.said.push(line.to_owned());
    }

    fn last(&self) -> &str {
        last(&self.said)
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        // Its child processes exit at the end of standard input. Errors mean that it has exited.
        self.life = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Receives the lines of a program's standard error.
pub(super) fn receive_lines(stderr: ChildStderr) -> Receiver<String> {
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

/// The last message of a program, which is usually the reason of its exit.
pub(super) fn last(said: &[String]) -> &str {
    let line = said.iter().rev().find(|line| !line.is_empty());
    line.map_or("no message", |line| line.trim_start_matches("tidegate: "))
}

/// A script of `sh` on this host, with arguments. It has its own process group, so that Ctrl-C at
/// the terminal does not signal it and this process ends it.
pub(super) fn here(script: &str, arguments: &[String]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "tidegate"]).args(arguments);
    command.process_group(0);
    command
}

const MOMENT: Duration = Duration::from_millis(50);
/// Time-out of the login and the start of the program.
const START: Duration = Duration::from_secs(30);
/// Time-out of writing and transferring the remaining output.
const GRACE: Duration = Duration::from_secs(30);
