//! Executes a program for each event (the T-ware of the papers).
//!
//! The program is a child of the application and has its rights. Its arguments are the configured
//! ones, the descriptor of the socket, which it inherits (`-` if the socket is closed), the name of
//! the event and its time in nanoseconds on `CLOCK_MONOTONIC`. The environment has the same and the
//! state: `TIDEGATE_SOCKET`, `TIDEGATE_EVENT`, `TIDEGATE_TIME`, `TIDEGATE_DETAILS`, and one
//! variable for each readable variable of the connection, such as `TIDEGATE_CWND`.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::event::{Event, EventKind};
use crate::system::{by_number, check, cookie};

/// A program to be started for each event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments before those of the event.
    pub arguments: Vec<String>,
    /// A program that runs longer is killed.
    pub limit: Duration,
    /// Limit of programs that run at once, counted over all events.
    pub at_once: usize,
}

impl Executable {
    /// This program, limited to 5 s and to 8 at once.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            limit: Duration::from_secs(5),
            at_once: 8,
        }
    }
}

/// A failed program.
#[derive(Debug)]
pub struct Report {
    /// Path of the program.
    pub program: PathBuf,
    /// The event for which it was to run.
    pub event: EventKind,
    /// The failure.
    pub fault: Fault,
}

/// The failure of a program.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It ended with an error.
    Failed(ExitStatus),
    /// It cannot be started.
    NotStarted(io::Error),
    /// It was not started, since this many programs run already.
    TooMany(usize),
    /// It ran longer than this limit and was killed.
    TooSlow(Duration),
    /// The system does not report its exit status to this library. Reported once for each program.
    Unknown(io::Error),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}: ", self.program.display(), self.event)?;
        match &self.fault {
            Fault::Failed(status) => write!(f, "the program failed ({status}): see its output"),
            Fault::NotStarted(e) if e.raw_os_error() == Some(libc::ENOEXEC) => write!(
                f,
                "the program cannot be started ({e}): begin a script with #!, and use executables of this architecture"
            ),
            Fault::NotStarted(e) => write!(
                f,
                "the program cannot be started ({e}): check its path and permissions"
            ),
            Fault::TooMany(many) => write!(
                f,
                "not started, because {many} programs run already: make it faster, or raise `at_once`"
            ),
            Fault::TooSlow(limit) => write!(
                f,
                "killed after {} ms: make it faster, or raise its time limit (`limit`, in C `limit_ms`)",
                limit.as_millis()
            ),
            Fault::Unknown(e) => write!(
                f,
                "the exit status is not available ({e}), which is reported once: do not ignore SIGCHLD in this process, and do not wait for children of other modules"
            ),
        }
    }
}

/// A socket of the application, by its descriptor. The descriptor may be closed or reused later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketRef {
    fd: RawFd,
    /// `SO_COOKIE` of the socket, which identifies it among sockets with the same descriptor.
    cookie: u64,
}

impl SocketRef {
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            fd: socket.as_raw_fd(),
            cookie: cookie(socket)?,
        })
    }

    /// A duplicate for a program; `None` if the descriptor is no longer the socket's. The number of
    /// the duplicate is [`SOCKET`] or above: 0 to 2 are replaced in the program, and files that are
    /// opened to start the program cannot take [`SOCKET`] then.
    fn duplicate(self) -> io::Result<Option<OwnedFd>> {
        let Some(socket) = by_number(self.fd).filter(|&socket| self.is(socket)) else {
            return Ok(None);
        };
        match fcntl_dupfd_cloexec(socket, SOCKET) {
            Ok(copy) => Ok(Some(copy).filter(|copy| self.is(copy.as_fd()))),
            // The application has closed it in between.
            Err(Errno::BADF) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn is(self, socket: BorrowedFd<'_>) -> bool {
        cookie(socket).is_ok_and(|c| c == self.cookie)
    }
}

/// The running programs.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    running: Vec<Running>,
    /// Programs for which [`Fault::Unknown`] was reported.
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
    /// Starts a program for an event, or reports why it cannot be started.
    pub(crate) fn start(
        &mut self,
        executable: &Executable,
        event: &Event,
        socket: SocketRef,
        now: Instant,
    ) -> Option<Report> {
        let kind = event.what.kind();
        let start = || {
            let socket = socket.duplicate()?;
            command(executable, event, socket).spawn()
        };
        let fault = if self.running.len() >= executable.at_once {
            Fault::TooMany(self.running.len())
        } else {
            match start() {
                Ok(child) => {
                    self.running.push(Running {
                        child,
                        program: executable.program.clone(),
                        event: kind,
                        since: now,
                        limit: executable.limit,
                    });
                    return None;
                }
                Err(e) => Fault::NotStarted(e),
            }
        };
        Some(Report {
            program: executable.program.clone(),
            event: kind,
            fault,
        })
    }

    /// Whether any program runs.
    pub(crate) fn is_active(&self) -> bool {
        !self.running.is_empty()
    }

    /// Collects programs that have ended and kills those over their limit.
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
                // Another part of the process waits for all children, or SIGCHLD is ignored.
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
            // If another part of the process has waited for the child its number may be reused.
            if matches!(running.child.try_wait(), Ok(None)) {
                running.kill();
            }
        }
    }
}

impl Running {
    /// Kills the program with its process group.
    fn kill(&mut self) {
        // The child has not been waited for, so its number is not reused. The call fails if all
        // processes of the group have ended.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        // The child may have left its group. The call fails if the child has ended.
        let _ = self.child.kill();
        // The child has received SIGKILL, so this returns soon.
        let _ = self.child.wait();
    }
}

fn command(executable: &Executable, event: &Event, socket: Option<OwnedFd>) -> Command {
    let name = event.what.kind().name();
    let time = event.time.as_nanos().to_string();
    let (first, second) = event.what.details();
    let number = socket.as_ref().map_or("-".into(), |_| SOCKET.to_string());
    let mut command = Command::new(&executable.program);
    command
        .args(&executable.arguments)
        .args([&number, name, &time])
        .env("TIDEGATE_SOCKET", &number)
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
    // Also without a socket: with a hook the standard library executes the program itself, without
    // one it uses posix_spawn, which also runs scripts without an interpreter line.
    let pass_socket = move || {
        let Some(socket) = &socket else {
            return Ok(());
        };
        // The copy that dup2 makes has no close-on-exec flag. dup2 onto itself changes nothing, so
        // the flag has to be cleared then.
        if socket.as_raw_fd() == SOCKET {
            return Ok(fcntl_setfd(socket, FdFlags::empty())?);
        }
        // SAFETY: takes numbers and touches no memory. The child executes a program next, so it does
        // not use an owner of the number that is replaced.
        check(unsafe { libc::dup2(socket.as_raw_fd(), SOCKET) }).map(drop)
    };
    // SAFETY: the hook makes one system call between fork and exec.
    unsafe { command.pre_exec(pass_socket) };
    command
}

/// The descriptor of the socket in the program.
const SOCKET: RawFd = 3;

#[cfg(test)]
mod tests {
    use std::{env, fs, thread};

    use super::*;
    use crate::event::{EventDetails, SubscriptionId};
    use crate::scm_rights;
    use crate::system::local_pair;
    use crate::variables::Snapshot;

    fn ended() -> Event {
        Event {
            time: Duration::ZERO,
            subscription: SubscriptionId(1),
            number: 1,
            what: EventDetails::Ended,
            state: Snapshot::new(),
        }
    }

    #[test]
    fn a_script_without_an_interpreter_line_runs_with_and_without_a_socket_alike() {
        let script = env::temp_dir().join(format!("tg-{}-script", std::process::id()));
        // Another process writes the script. Children of other tests could have copies of a
        // descriptor of this process that is open for writing, and the script could not be executed
        // then.
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
            // The time stands still, so the program is not killed.
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

    /// The test executes itself as a program that joins the group of its parent and then reads its
    /// socket until that is closed.
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
        // The program writes a byte when it has left its group.
        let read = scm_rights::receive(other.as_fd(), &mut byte).unwrap();
        assert_eq!(read.length, 1);
        assert!(programs.reap(now + program.limit / 2).is_empty());
        // The call returns when the program has ended, which it does not do by itself.
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
