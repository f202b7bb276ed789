//! The program as a child process, with waits for lines of its output.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, fs, process};

use tidegate_record::{Run, RunReader};

/// A running program. It is killed, by its id, if the test ends first.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    output: Option<JoinHandle<String>>,
}

/// Result of a program.
pub(crate) struct ProgramResult {
    pub(crate) status: ExitStatus,
    /// Standard error.
    pub(crate) said: String,
    /// Standard output.
    pub(crate) output: String,
}

impl Program {
    /// Starts `tidegate` with the arguments, separated by spaces.
    pub(crate) fn tidegate(arguments: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(arguments.split_whitespace());
        Self::start(&mut command)
    }

    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (outbox, lines) = channel();
        let errors = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                if outbox.send(line).is_err() {
                    return;
                }
            }
        });
        let mut stdout = child.stdout.take().unwrap();
        let output = thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        Self {
            child,
            lines,
            seen: Vec::new(),
            output: Some(output),
        }
    }

    /// Waits for a line that contains `words`.
    pub(crate) fn wait_for_line(&mut self, words: &str) -> String {
        let line = self.line_within(words, GUARD);
        line.unwrap_or_else(|| panic!("no \"{words}\" in:\n{}", self.seen.join("\n")))
    }

    /// Waits for a line that contains `words`, at most for `span`.
    pub(crate) fn line_within(&mut self, words: &str, span: Duration) -> Option<String> {
        let end = Instant::now() + span;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).ok()?;
            self.seen.push(line.clone());
            if line.contains(words) {
                return Some(line);
            }
        }
    }

    /// Waits for a line that contains `before` and parses the number that follows it.
    pub(crate) fn number(&mut self, before: &str) -> u16 {
        let line = self.wait_for_line(before);
        let (_, rest) = line.split_once(before).unwrap();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }

    /// Waits until the program has installed its handler for SIGINT.
    pub(crate) fn catches_sigint(&self) {
        let status = format!("/proc/{}/status", self.child.id());
        let end = Instant::now() + GUARD;
        loop {
            let text = fs::read_to_string(&status).unwrap();
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.unwrap_or("0").trim(), 16).unwrap();
            if caught & (1 << (libc::SIGINT - 1)) != 0 {
                return;
            }
            assert!(Instant::now() < end, "no handler for SIGINT was installed");
            thread::yield_now();
        }
    }

    /// Process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn interrupt(&self) {
        self.signal(libc::SIGINT);
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: libc::c_int) {
        let id = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: a system call that takes numbers. The child has not been waited for, so the
        // id is its own.
        assert_eq!(unsafe { libc::kill(id, signal) }, 0);
    }

    /// Kills the program with SIGKILL, without BYE or flushed files.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end of the program.
    pub(crate) fn wait(mut self) -> ProgramResult {
        let end = Instant::now() + GUARD;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => self.seen.push(line),
                // The program has closed its standard error.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the program does not end:\n{}", self.seen.join("\n"));
                }
            }
        }
        ProgramResult {
            status: self.child.wait().unwrap(),
            said: self.seen.join("\n"),
            output: self.output.take().unwrap().join().unwrap(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program may have ended, and been waited for, already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An even port with a free port above it, for RTCP. It is below those that the system gives to sockets
/// without a port, and no other test of this process gets it.
pub(crate) fn free_pair() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    loop {
        let low = NEXT.fetch_add(2, Ordering::Relaxed);
        let free = [low, low + 1].map(|port| UdpSocket::bind(("127.0.0.1", port)));
        if free.iter().all(Result::is_ok) {
            return low;
        }
    }
}

impl ProgramResult {
    /// Frames per second in the last progress line of a receiver.
    pub(crate) fn frames_per_second(&self) -> u32 {
        let lines = self.said.lines().rev();
        let rates = lines.filter_map(|line| line.split_once(" frames/s")?.0.rsplit(' ').next());
        // The last line may be of a second in which the stream ended.
        let rates = rates.take(2).map(|rate| rate.parse().unwrap());
        let most = rates.max();
        most.unwrap_or_else(|| panic!("no rate in:\n{}", self.said))
    }

    /// Number of whole frames in the last message of a receiver.
    pub(crate) fn whole_frames(&self) -> u32 {
        let (_, rest) = self.said.split_once("\nreceived ").unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    }

    pub(crate) fn succeeded(&self) -> &Self {
        assert!(self.status.success(), "{}\n{}", self.status, self.said);
        self
    }

    pub(crate) fn was_interrupted(&self) -> &Self {
        assert_eq!(self.status.code(), Some(130), "{}", self.said);
        self
    }

    /// The exit code is that of invalid input or of the environment.
    pub(crate) fn failed_with(&self, words: &str) -> &Self {
        let code = self.status.code();
        assert!(matches!(code, Some(2 | 3)), "{code:?}: {}", self.said);
        assert!(
            self.said.contains(words),
            "no \"{words}\" in:\n{}",
            self.said
        );
        self
    }
}

/// A temporary folder, removed at the end of the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let dir = env::temp_dir().join(format!("tidegate-{test}-{}", process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A player of a stream over TCP, at a free port.
pub(crate) fn player(options: &str) -> (Program, u16) {
    // A threshold that no frame exceeds on a busy machine.
    let options = format!("--listen 127.0.0.1:0 --discard-threshold 30s {options}");
    let mut player = Program::tidegate(&format!("recv --transport tcp {options}"));
    let port = player.number("waiting for a stream at port ");
    (player, port)
}

/// Option of a sender to this port.
pub(crate) fn to(port: u16) -> String {
    format!("--to 127.0.0.1:{port}")
}

/// Reads a run folder.
pub(crate) fn load(dir: &Path) -> Run {
    RunReader::load(dir).unwrap()
}

/// Path as an argument. Temporary folders have no spaces in their names here.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Ends a test that hangs. No result depends on it.
pub(crate) const GUARD: Duration = Duration::from_mins(5);
