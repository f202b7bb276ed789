//! The parent's side: starts, uses and replaces decoder processes.

use core::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use tidegate_core::media::Codec;

use super::child;
use super::filter::picture_bytes;
use super::protocol::{Output, Reply, ReplyError, Request};
use crate::native::Outcome;
use crate::picture::{Picture, Size};

/// What separates a decoder from the program that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Nothing: it decodes in the same process.
    None,
    /// A process with a memory limit. The kernel or the machine has no filters of system calls.
    Process,
    /// A process with a memory limit and a filter of system calls.
    Sandbox,
}

/// Path of the running program, for [`DecoderConfig::program`](crate::DecoderConfig::program). It
/// stays valid if the file is replaced.
pub fn this_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// A decoder process, which is replaced when it fails.
pub(crate) struct DecoderProcess {
    program: PathBuf,
    codec: Codec,
    max: Size,
    running: Option<Running>,
    isolation: Isolation,
    /// Time of the last start, or attempt.
    started: Instant,
}

/// Kills the process on drop.
struct Running {
    child: Child,
    socket: UnixStream,
    pictures: File,
}

impl DecoderProcess {
    /// Starts a process and waits until it is ready.
    pub(crate) fn start(program: PathBuf, codec: Codec, max: Size) -> Result<Self, ProcessFailure> {
        let (running, isolation) = Running::start(&program, codec, max)?;
        Ok(Self {
            program,
            codec,
            max,
            running: Some(running),
            isolation,
            started: Instant::now(),
        })
    }

    pub(crate) const fn isolation(&self) -> Isolation {
        self.isolation
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    /// Decodes one access unit, and copies its picture to `slot`. After a failure another process
    /// starts, at most every [`RESTART_INTERVAL`]; access units until then have no picture.
    pub(crate) fn decode(
        &mut self,
        unit: &[u8],
        slot: &mut Option<Picture>,
    ) -> Result<Outcome, ProcessFailure> {
        let running = match &mut self.running {
            Some(running) => running,
            None if self.started.elapsed() < RESTART_INTERVAL || unit.is_empty() => {
                return Ok(Outcome::Nothing);
            }
            none => {
                self.started = Instant::now();
                let (running, isolation) = Running::start(&self.program, self.codec, self.max)?;
                self.isolation = isolation;
                none.insert(running)
            }
        };
        let decoded = running.decode(unit, self.max, slot);
        decoded.map_err(|failure| self.fail(failure))
    }

    pub(crate) fn reset(&mut self) {
        if let Some(running) = &mut self.running
            && let Err(failure) = running.send(&Request::Reset.emit(), deadline())
        {
            self.fail(failure);
        }
    }

    /// Ends the process after a failure, and returns the cause: the status of a process that ended
    /// by itself.
    fn fail(&mut self, failure: ProcessFailure) -> ProcessFailure {
        let Some(running) = &mut self.running else {
            return failure;
        };
        let status = match failure {
            ProcessFailure::Socket(_) => running.end().ok(),
            _ => None,
        };
        self.running = None;
        status.map_or(failure, ProcessFailure::Ended)
    }
}

impl Running {
    fn start(program: &Path, codec: Codec, max: Size) -> Result<(Self, Isolation), ProcessFailure> {
        let failed = |e: io::Error| ProcessFailure::Start(e.kind());
        let pictures = memory_file(picture_bytes(max)).map_err(failed)?;
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg0(child::NAME).args(child::arguments(codec, max));
        // A key of the terminal, such as Ctrl-C, must not end the decoder before its user.
        command.process_group(0).env_clear();
        if let Some(path) = std::env::var_os(LIBRARY_PATH) {
            command.env(LIBRARY_PATH, path);
        }
        command.stdin(OwnedFd::from(theirs));
        command.stdout(pictures.try_clone().map_err(failed)?);
        let child = command.stderr(Stdio::null()).spawn().map_err(failed)?;
        // The command has the other copy of the child's socket: without it the end of the child
        // closes the connection.
        drop(command);
        let mut running = Self {
            child,
            socket,
            pictures,
        };
        match running.receive(max, deadline()) {
            Ok(Reply::Ready { filtered: true }) => Ok((running, Isolation::Sandbox)),
            Ok(Reply::Ready { filtered: false }) => Ok((running, Isolation::Process)),
            Ok(other) => Err(unexpected(other)),
            Err(ProcessFailure::Socket(kind)) => Err(running
                .end()
                .map_or(ProcessFailure::Socket(kind), ProcessFailure::Ended)),
            Err(failure) => Err(failure),
        }
    }

    fn decode(
        &mut self,
        unit: &[u8],
        max: Size,
        slot: &mut Option<Picture>,
    ) -> Result<Outcome, ProcessFailure> {
        let until = deadline();
        let len = unit.len() as u32;
        self.send(&Request::Decode { len }.emit(), until)?;
        self.send(unit, until)?;
        let (Output { size, .. }, outcome) = match self.receive(max, until)? {
            Reply::Nothing => return Ok(Outcome::Nothing),
            Reply::Delayed => return Ok(Outcome::Delayed),
            Reply::Whole(output) => (output, Outcome::Whole(output)),
            Reply::Damaged(output) => (output, Outcome::Damaged(output)),
            other @ Reply::Ready { .. } => return Err(unexpected(other)),
        };
        let picture = Picture::resized(slot, size);
        // A mapping would show writes of the child during the copy, which Rust does not allow for
        // borrowed memory.
        let read = self.pictures.read_exact_at(picture.as_i420_mut(), 0);
        read.map_err(|e| ProcessFailure::Socket(e.kind()))?;
        Ok(outcome)
    }

    fn send(&mut self, mut bytes: &[u8], until: Instant) -> Result<(), ProcessFailure> {
        while !bytes.is_empty() {
            self.socket
                .set_write_timeout(Some(remaining(until)?))
                .map_err(|e| socket_failure(&e))?;
            match self.socket.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(socket_failure(&e)),
            }
        }
        Ok(())
    }

    fn receive(&mut self, max: Size, until: Instant) -> Result<Reply, ProcessFailure> {
        let mut reply = [0; Reply::LEN];
        let mut filled = 0;
        while filled < reply.len() {
            self.socket
                .set_read_timeout(Some(remaining(until)?))
                .map_err(|e| socket_failure(&e))?;
            match self.socket.read(&mut reply[filled..]) {
                Ok(0) => return Err(ProcessFailure::Socket(io::ErrorKind::UnexpectedEof)),
                Ok(more) => filled += more,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(socket_failure(&e)),
            }
        }
        Reply::parse(reply, max).map_err(ProcessFailure::Reply)
    }

    /// Ends the process. The status is its own if it ended before.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // Killing an exited process fails without harm.
        let _ = self.child.kill();
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.end();
    }
}

/// A file in memory of a fixed length. Pages exist once they are written.
fn memory_file(len: u64) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("tidegate-pictures", flags)?);
    file.set_len(len)?;
    let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}

fn deadline() -> Instant {
    Instant::now() + REPLY_TIMEOUT
}

fn remaining(until: Instant) -> Result<Duration, ProcessFailure> {
    let left = until.saturating_duration_since(Instant::now());
    // A timeout of zero would be none.
    if left.is_zero() {
        Err(ProcessFailure::TimedOut)
    } else {
        Ok(left)
    }
}

fn socket_failure(error: &io::Error) -> ProcessFailure {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ProcessFailure::TimedOut,
        kind => ProcessFailure::Socket(kind),
    }
}

fn unexpected(reply: Reply) -> ProcessFailure {
    ProcessFailure::Reply(ReplyError {
        kind: reply.emit()[0],
        width: 0,
        height: 0,
    })
}

/// Failure of a decoder process, which has been ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessFailure {
    /// It ended by itself or was killed.
    Ended(ExitStatus),
    /// It sent an invalid reply.
    Reply(ReplyError),
    /// The connection to it failed.
    Socket(io::ErrorKind),
    /// It could not be executed.
    Start(io::ErrorKind),
    /// It did not reply in time.
    TimedOut,
}

impl fmt::Display for ProcessFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // `ExitStatus` is displayed as "signal: 31 (SIGSYS)".
            Self::Ended(status) => write!(f, "the decoder process ended ({status})"),
            Self::Reply(error) => write!(f, "the decoder process sent an {error}"),
            Self::Socket(kind) => {
                write!(f, "the connection to the decoder process failed ({kind})")
            }
            Self::Start(kind) => write!(f, "the decoder process cannot be executed ({kind})"),
            Self::TimedOut => write!(
                f,
                "the decoder process did not answer in {} s",
                REPLY_TIMEOUT.as_secs()
            ),
        }
    }
}

impl core::error::Error for ProcessFailure {}

/// A picture takes milliseconds, and 0.1 s at 8,192x4,352; a loaded machine needs some more.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// A start takes 50 ms of processor time, so a stream that ends every process costs a tenth of a
/// core.
const RESTART_INTERVAL: Duration = Duration::from_millis(500);
/// Where the dynamic linker finds an FFmpeg outside of the system's folders.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
