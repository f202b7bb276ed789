//! T-ware as a program that is started once per event.
//!
//! It runs as a child of the application, with the application's rights. Its arguments are those
//! that were configured, and then the descriptor of the socket, which it inherits (`-` if it is
//! closed already), the event's name and its time in nanoseconds on `CLOCK_MONOTONIC`. The same and
//! the state are in its environment: `TIDEGATE_SOCKET`, `TIDEGATE_EVENT`, `TIDEGATE_TIME`,
//! `TIDEGATE_DETAILS`, and `TIDEGATE_CWND` and so on for each variable that may be read.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, io};

use crate::event::{Event, EventKind};
use crate::system::{cookie, owned};

/// A program to be started for each event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Which.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<String>,
    /// One that takes longer is killed.
    pub limit: Duration,
    /// When so many of all programs run, no more is started.
    pub at_once: usize,
}

impl Executable {
    /// This program, for at most 5 s, and at most 8 at once.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            limit: Duration::from_secs(5),
            at_once: 8,
        }
    }
}

/// What went wrong with a program.
#[derive(Debug)]
pub struct Report {
    /// Which.
    pub program: PathBuf,
    /// For which event.
    pub event: EventKind,
    /// What.
    pub fault: Fault,
}

/// What can go wrong with a program.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It ended with an error.
    Failed(ExitStatus),
    /// It cannot be started.
    NotStarted(io::Error),
    /// Too many run already, so it was not started.
    TooMany(usize),
    /// It took too long and was killed.
    TooSlow(Duration),
    /// Nobody tells this library how it ended. Said once of each program.
    Unknown(io::Error),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}: ", self.program.display(), self.event)?;
        match &self.fault {
            Fault::Failed(status) => write!(f, "it failed ({status}); see what it wrote"),
            Fault::NotStarted(e) if e.raw_os_error() == Some(libc::ENOEXEC) => write!(
                f,
                "it cannot be started ({e}); begin a script with #!, and take programs of this machine"
            ),
            Fault::NotStarted(e) => write!(f, "it cannot be started ({e}); check path and rights"),
            Fault::TooMany(many) => write!(
                f,
                "not started, because {many} run already: make it faster, or raise `at_once`"
            ),
            Fault::TooSlow(limit) => write!(
                f,
                "killed after {} ms: make it faster, or give it more time (`limit`, in C `limit_ms`)",
                limit.as_millis()
            ),
            Fault::Unknown(e) => write!(
                f,
                "how it ends cannot be known ({e}), which is said once: have this process neither ignore SIGCHLD nor wait for children that are not its own"
            ),
        }
    }
}

/// A socket of the application, by its descriptor, which may be closed or another file's by now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketRef {
    fd: RawFd,
    /// Of the socket, which tells it from another one with the same descriptor.
    cookie: u64,
}

impl SocketRef {
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            fd: socket.as_raw_fd(),
            cookie: cookie(socket)?,
        })
    }

    /// A copy for a program, if the descriptor is still the socket's. It lies beyond the standard three,
    /// which a program gets others of, and at its place if that is free: nothing that is opened to
    /// start the program can be there then.
    fn copy(self) -> io::Result<Option<OwnedFd>> {
        // SAFETY: it is only passed to the kernel, and the cookie tells whether it is the same.
        let socket = unsafe { BorrowedFd::borrow_raw(self.fd) };
        if !self.is(socket) {
            return Ok(None);
        }
        // SAFETY: takes numbers and touches no memory.
        match owned(unsafe { libc::fcntl(self.fd, libc::F_DUPFD_CLOEXEC, SOCKET) }) {
            Ok(copy) => Ok(Some(copy).filter(|copy| self.is(copy.as_fd()))),
            // It was closed in between.
            Err(e) if e.raw_os_error() == Some(libc::EBADF) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn is(self, socket: BorrowedFd<'_>) -> bool {
        cookie(socket).is_ok_and(|c| c == self.cookie)
    }
}

/// Those that run.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    running: Vec<Running>,
    /// Those of which it was said that their ends are not known.
    unknown: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    program: PathBuf,
    event: EventKind,
    since: Instant,
    limit: Duration,
}

impl Programs {
    /// Starts a program for an event, or says why not.
    pub(crate) fn start(
        &mut self,
        what: &Executable,
        event: &Event,
        socket: SocketRef,
        now: Instant,
    ) -> Option<Report> {
        let kind = event.what.kind();
        let fault = if self.running.len() >= what.at_once {
            Fault::TooMany(self.running.len())
        } else {
            let started = socket
                .copy()
                .and_then(|socket| command(what, event, socket).spawn());
            match started {
                Ok(child) => {
                    self.running.push(Running {
                        child,
                        program: what.program.clone(),
                        event: kind,
                        since: now,
                        limit: what.limit,
                    });
                    return None;
                }
                Err(e) => Fault::NotStarted(e),
            }
        };
        Some(Report {
            program: what.program.clone(),
            event: kind,
            fault,
        })
    }

    /// Whether there are any.
    pub(crate) fn is_active(&self) -> bool {
        !self.running.is_empty()
    }

    /// Lets go of those that have ended and kills those that take too long.
    pub(crate) fn reap(&mut self, now: Instant) -> Vec<Report> {
        let mut reports = Vec::new();
        self.running.retain_mut(|running| {
            let fault = match running.child.try_wait() {
                Ok(Some(status)) if status.success() => return false,
                Ok(Some(status)) => Fault::Failed(status),
                Ok(None) if now.duration_since(running.since) < running.limit => return true,
                Ok(None) => {
                    running.kill();
                    Fault::TooSlow(running.limit)
                }
                // Somebody else waits for the children of this process, or the system is told that
                // nobody does.
                Err(_) if !self.unknown.insert(running.program.clone()) => return false,
                Err(e) => Fault::Unknown(e),
            };
            reports.push(Report {
                program: running.program.clone(),
                event: running.event,
                fault,
            });
            false
        });
        reports
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for running in &mut self.running {
            // Of one that was waited for elsewhere the number may be another's.
            if matches!(running.child.try_wait(), Ok(None)) {
                running.kill();
            }
        }
    }
}

impl Running {
    /// With what it has started, as far as that is in its process group.
    fn kill(&mut self) {
        // SAFETY: takes numbers and touches no memory. The child is not waited for yet, so its
        // number is nobody else's.
        unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
        // It may have gone to another group. One that has ended is beyond it.
        let _ = self.child.kill();
        // It is dead, or as good as; then this returns at once.
        let _ = self.child.wait();
    }
}

fn command(what: &Executable, event: &Event, socket: Option<OwnedFd>) -> Command {
    let name = event.what.kind().name();
    let time = event.time.as_nanos().to_string();
    let (first, second) = event.what.details();
    let place = socket.as_ref().map_or("-".into(), |_| SOCKET.to_string());
    let mut command = Command::new(&what.program);
    command
        .args(&what.arguments)
        .args([&place, name, &time])
        .env("TIDEGATE_SOCKET", &place)
        .env("TIDEGATE_EVENT", name)
        .env("TIDEGATE_TIME", &time)
        .env("TIDEGATE_DETAILS", format!("{first} {second}"))
        .stdin(Stdio::null())
        .process_group(0);
    for variable in event.state.known().iter() {
        let name = format!("TIDEGATE_{}", variable.name().to_uppercase());
        let value = event.state.get(variable).unwrap_or_default();
        command.env(name, value.to_string());
    }
    // Also where there is no socket: with it the system's library starts programs in one way, and
    // without it in another one, which runs other files.
    let hand_on = move || {
        let Some(socket) = socket.as_ref().map(AsRawFd::as_raw_fd) else {
            return Ok(());
        };
        // A copy does not close when the program starts; a descriptor that is there already has to
        // be told.
        // SAFETY: these take numbers and touch no memory.
        let result = unsafe {
            if socket == SOCKET {
                libc::fcntl(socket, libc::F_SETFD, 0)
            } else {
                libc::dup2(socket, SOCKET)
            }
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec it only makes a system call.
    unsafe { command.pre_exec(hand_on) };
    command
}

/// The descriptor that a program finds its socket at.
const SOCKET: RawFd = 3;

#[cfg(test)]
mod tests {
    use std::{env, fs, thread};

    use super::*;
    use crate::event::{Happening, SubscriptionId};
    use crate::scm_rights;
    use crate::system::local_pair;
    use crate::variables::Snapshot;

    fn ended() -> Event {
        Event {
            time: Duration::ZERO,
            subscription: SubscriptionId(1),
            number: 1,
            what: Happening::Ended,
            state: Snapshot::new(),
        }
    }

    /// With its socket and without.
    #[test]
    fn a_script_without_an_interpreter_line_runs_with_and_without_a_socket_alike() {
        let script = env::temp_dir().join(format!("tg-{}-script", std::process::id()));
        // Another process writes it: what this one had open for writing could not be started while
        // the children of other tests have copies of that.
        let write = format!("echo 'exit 7' >{0}; chmod +x {0}", script.display());
        let wrote = Command::new("/bin/sh").args(["-c", &write]).status();
        assert!(wrote.unwrap().success());
        let [socket, other] = local_pair().unwrap();
        let [open, closed] = [&socket, &other].map(|s| SocketRef::of(s.as_fd()).unwrap());
        drop(other);
        let program = Executable::new(&script);
        let now = Instant::now();
        let outcome = |socket| {
            let mut programs = Programs::default();
            if let Some(report) = programs.start(&program, &ended(), socket, now) {
                return report.to_string();
            }
            // No time passes, so it is not killed however long it takes.
            loop {
                if let Some(report) = programs.reap(now).pop() {
                    return report.to_string();
                }
                thread::yield_now();
            }
        };
        assert_eq!(outcome(open), outcome(closed));
        fs::remove_file(script).unwrap();
    }

    /// This very test, as a program that goes to its parent's group and then reads its socket for ever.
    #[test]
    fn a_program_that_leaves_its_process_group_is_killed_too() {
        let mut byte = [0_u8];
        if env::var_os("TIDEGATE_EVENT").is_some() {
            // SAFETY: these take numbers and touch no memory but one byte.
            unsafe {
                let left = libc::setpgid(0, libc::getpgid(libc::getppid()));
                assert_eq!(left, 0);
                assert_eq!(libc::write(SOCKET, byte.as_ptr().cast(), 1), 1);
                libc::read(SOCKET, byte.as_mut_ptr().cast(), 1);
            }
            return;
        }
        let [socket, other] = local_pair().unwrap();
        let program = Executable {
            arguments: vec![
                "--exact".into(),
                "exec_handler::tests::a_program_that_leaves_its_process_group_is_killed_too".into(),
            ],
            ..Executable::new(env::current_exe().unwrap())
        };
        let mut programs = Programs::default();
        let place = SocketRef::of(socket.as_fd()).unwrap();
        let now = Instant::now();
        assert!(programs.start(&program, &ended(), place, now).is_none());
        // It has left its group then.
        let read = scm_rights::receive(other.as_fd(), &mut byte).unwrap();
        assert_eq!(read.length, 1);
        assert!(programs.reap(now + program.limit / 2).is_empty());
        // This returns when the program has ended, which it does not by itself.
        let report = programs.reap(now + program.limit).pop().unwrap();
        let report = report.to_string();
        assert!(report.contains("killed after 5000 ms"), "{report}");
    }

    #[test]
    fn an_executable_of_no_known_format_is_reported_with_the_fix() {
        let report = Report {
            program: "notes".into(),
            event: EventKind::Ended,
            fault: Fault::NotStarted(io::Error::from_raw_os_error(libc::ENOEXEC)),
        };
        let text = report.to_string();
        assert!(text.contains("begin a script with #!"), "{text}");
    }
}
