//! Socket activation: the daemon serves at a socket that is passed as descriptor 3. Tests that need
//! root are skipped without it, with a message.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::{env, fs, io, mem};

use tidegate_kernel::{EventDetails, Events};

/// Whether this process may not load the programs; prints a message then. With
/// `TIDEGATE_REQUIRE_NETNS=1`, a test run by root fails instead.
fn is_without_rights(test: &str) -> bool {
    let Err(why) = Events::in_process() else {
        return false;
    };
    // SAFETY: takes nothing and touches no memory.
    let root = unsafe { libc::geteuid() } == 0;
    let required = root && env::var_os("TIDEGATE_REQUIRE_NETNS").is_some_and(|v| v == "1");
    assert!(!required, "required by TIDEGATE_REQUIRE_NETNS=1: {why}");
    // Written to standard error directly: the test harness captures the output of passing tests.
    let mut terminal = io::stderr();
    writeln!(terminal, "skipped {test}: {why}").unwrap();
    true
}

/// A temporary folder that only this user can write.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = env::temp_dir().join(format!("tgd-{}-{test}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A local socket of a type that listens at a path.
fn listening(path: &Path, kind: i32) -> OwnedFd {
    use std::os::unix::ffi::OsStrExt as _;
    // SAFETY: an address is integers, for which zero is a value; it is passed with its size. The
    // socket has no other owner.
    unsafe {
        let mut address: libc::sockaddr_un = mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, &from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
            *to = from as libc::c_char;
        }
        let socket = libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0);
        let size = mem::size_of_val(&address) as libc::socklen_t;
        assert_eq!(libc::bind(socket, (&raw const address).cast(), size), 0);
        assert_eq!(libc::listen(socket, 8), 0);
        OwnedFd::from_raw_fd(socket)
    }
}

/// A daemon. It is killed, by its id, if the test ends first.
struct Daemon {
    child: Child,
    log: BufReader<ChildStderr>,
    seen: String,
}

impl Daemon {
    /// Starts the daemon with a socket as descriptor 3, and with these values of `LISTEN_FDS` and of
    /// `LISTEN_PID` (in a shell, where `$$` is its process).
    fn start(socket: &OwnedFd, many: &str, process: &str, options: &[&str]) -> Self {
        let program = env!("CARGO_BIN_EXE_tidegate-eventsd");
        let script = format!("LISTEN_FDS={many} LISTEN_PID={process} exec \"$0\" \"$@\"");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script, program]).args(options);
        let fd = socket.as_raw_fd();
        // SAFETY: a system call that takes numbers, in a child that has one thread. Descriptor 3 of
        // the child has no other use: those of Rust are closed at exec.
        unsafe {
            command.pre_exec(move || match libc::dup2(fd, 3) {
                -1 => Err(io::Error::last_os_error()),
                // The same number keeps its flag.
                _ if fd == 3 && libc::fcntl(3, libc::F_SETFD, 0) == -1 => {
                    Err(io::Error::last_os_error())
                }
                _ => Ok(()),
            });
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let seen = String::new();
        Self { child, log, seen }
    }

    /// Waits for a line of the log with these words.
    fn logs(&mut self, words: &str) {
        loop {
            let mut line = String::new();
            let read = self.log.read_line(&mut line).unwrap();
            self.seen += &line;
            assert_ne!(read, 0, "no \"{words}\" in:\n{}", self.seen);
            if line.contains(words) {
                return;
            }
        }
    }

    fn signal(&self, signal: i32) {
        let id = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: takes numbers. The child has not been waited for, so the id is its own.
        assert_eq!(unsafe { libc::kill(id, signal) }, 0);
    }

    fn status(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended, and been waited for, already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As a service that is started at the first connection, stopped, and started again.
#[test]
fn a_passed_socket_is_served_and_stays() {
    if is_without_rights("activation") {
        return;
    }
    let folder = Folder::new("passed");
    let path = folder.0.join("events.sock");
    let socket = listening(&path, libc::SOCK_SEQPACKET);
    for _ in 0..2 {
        let mut daemon = Daemon::start(&socket, "1", "$$", &["--user", "nobody"]);
        daemon.logs(&format!("serving at {}", path.display()));
        let events = Events::connect(&path).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        events.subscribe(&ours, events.allowed()).unwrap();
        drop((ours, listener));
        while events.next(None).unwrap().unwrap().what != EventDetails::Ended {}
        // All threads are restricted (`SECCOMP_MODE_FILTER`).
        let threads = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
        for thread in threads {
            let status = thread.unwrap().path().join("status");
            // A thread may have ended meanwhile.
            if let Ok(status) = fs::read_to_string(status) {
                assert!(status.contains("Seccomp:\t2\n"), "{status}");
            }
        }
        daemon.signal(libc::SIGTERM);
        assert_eq!(daemon.status(), Some(0), "{}", daemon.seen);
        // It belongs to the service manager.
        assert!(path.exists());
    }
}

#[test]
fn variables_of_another_process_are_ignored() {
    if is_without_rights("variables") {
        return;
    }
    let folder = Folder::new("others");
    let socket = listening(&folder.0.join("other.sock"), libc::SOCK_SEQPACKET);
    let path = folder.0.join("events.sock");
    let mut daemon = Daemon::start(&socket, "1", "1", &["--socket", path.to_str().unwrap()]);
    daemon.logs(&format!("serving at {}", path.display()));
    daemon.signal(libc::SIGTERM);
    assert_eq!(daemon.status(), Some(0), "{}", daemon.seen);
    assert!(!path.exists());
}

#[test]
fn other_descriptors_are_refused_with_the_fix() {
    if is_without_rights("descriptors") {
        return;
    }
    let folder = Folder::new("wrong");
    let stream = listening(&folder.0.join("stream"), libc::SOCK_STREAM);
    let right = listening(&folder.0.join("right"), libc::SOCK_SEQPACKET);
    for (socket, many, options, words) in [
        (
            &stream,
            "1",
            &[][..],
            "not a listening local socket of type SOCK_SEQPACKET",
        ),
        (
            &right,
            "2",
            &[],
            "passes 2 sockets: write one ListenSequentialPacket=",
        ),
        (
            &right,
            "1",
            &["--socket", "/run/x"],
            "so --socket /run/x has no effect: omit it",
        ),
    ] {
        let mut daemon = Daemon::start(socket, many, "$$", options);
        daemon.logs(words);
        assert_eq!(daemon.status(), Some(2), "{}", daemon.seen);
    }
}
