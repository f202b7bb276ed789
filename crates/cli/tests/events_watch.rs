//! `tidegate events watch`: its end, and completeness of its output. Tests that need root are
//! skipped without it, with a message.

#[expect(dead_code, reason = "the streams' tests use the rest")]
mod daemon;
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;
mod skip;

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{fs, mem, thread};

use daemon::is_without_rights;
use program::{GUARD, Program, ProgramResult, Scratch, text};
use skip::is_without_lab;

/// A peer, and the option to connect to it.
fn peer() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("--to {}", listener.local_addr().unwrap());
    (listener, to)
}

fn watch(options: &str) -> Program {
    Program::tidegate(&format!("events watch {options}"))
}

/// Accepts the transfer of `events watch` and reads one byte of it.
fn begun(listener: &TcpListener) -> TcpStream {
    let mut stream = listener.accept().unwrap().0;
    stream.read_exact(&mut [0]).unwrap();
    stream
}

fn assert_summary(ended: &ProgramResult) {
    ended.succeeded();
    assert!(ended.said.contains(" written in "), "{}", ended.said);
}

#[test]
fn it_ends_in_time_over_a_slow_or_stalled_connection() {
    for rate in ["", "--send 1b/s", "--send 8Mb/s"] {
        let (listener, to) = peer();
        let watched = watch(&format!("{to} --source unprivileged --for 300ms {rate}"));
        let stream = begun(&listener);
        assert_summary(&watched.wait());
        drop(stream);
    }
}

#[test]
fn it_ends_in_time_over_a_dead_path() {
    if is_without_lab("it_ends_in_time_over_a_dead_path") {
        return;
    }
    let path = "--source unprivileged --delay 1ms --for 500ms";
    assert_summary(&watch(&format!("{path} --outage 200ms+1h")).wait());
    let never = watch(&format!("{path} --loss 100%")).wait();
    never.failed_with("no connection within 500ms: give a longer --for");
}

/// During a write, and during a wait of hours for the next one.
#[test]
fn a_signal_ends_a_stalled_transfer() {
    for (signal, rate) in [
        (libc::SIGINT, ""),
        (libc::SIGTERM, ""),
        (libc::SIGINT, "--send 1b/s"),
        (libc::SIGTERM, "--send 1b/s"),
    ] {
        let (listener, to) = peer();
        let watched = watch(&format!("{to} --source unprivileged --for 1h {rate}"));
        let stream = begun(&listener);
        send(signal, watched.id());
        assert_summary(&watched.wait());
        drop(stream);
    }
}

#[test]
fn a_signal_ends_an_attempt_to_connect() {
    if is_without_lab("a_signal_ends_an_attempt_to_connect") {
        return;
    }
    let watched = watch("--source unprivileged --loss 100% --for 1h");
    watched.catches_sigint();
    watched.interrupt();
    let ended = watched.wait();
    assert_eq!(ended.status.code(), Some(130), "{}", ended.said);
    assert!(ended.said.contains("before the connection was established"));
}

/// While it waits for the reply of a daemon that sends none.
#[test]
fn the_second_signal_kills_the_process() {
    let scratch = Scratch::new("second");
    let path = scratch.path("mute.sock");
    let mute = listen(text(&path));
    let (_listener, to) = peer();
    let watched = watch(&format!("{to} --source daemon --socket {}", text(&path)));
    let request = accept(&mute);
    let mut byte = 0_u8;
    // SAFETY: takes at most one byte.
    let got = unsafe { libc::recv(raw(&request), (&raw mut byte).cast(), 1, 0) };
    assert_eq!(got, 1);
    watched.catches_sigint();
    watched.interrupt();
    // Two pending signals would be merged into one.
    let status = format!("/proc/{}/status", watched.id());
    let guard = Instant::now() + GUARD;
    while caught(&fs::read_to_string(&status).unwrap()) & (1 << (libc::SIGINT - 1)) != 0 {
        assert!(
            Instant::now() < guard,
            "the handler for SIGINT is still installed"
        );
        thread::yield_now();
    }
    watched.interrupt();
    let ended = watched.wait();
    assert_eq!(ended.status.signal(), Some(libc::SIGINT), "{}", ended.said);
}

/// Including events that occur while the reader is slow.
#[test]
fn all_observed_events_are_printed() {
    if is_without_rights("all_observed_events_are_printed") {
        return;
    }
    let (listener, to) = peer();
    let (mut reader, mut writer) = io::pipe().unwrap();
    fill(&mut writer);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(["events", "watch", "--source", "in-process", "--json"])
        .args(["--for", "300ms"])
        .args(to.split(' '))
        .stdout(writer)
        .stderr(Stdio::piped());
    let mut child = Killed(command.spawn().unwrap());
    drop(command);
    let mut stream = begun(&listener);
    let swallow = thread::spawn(move || io::copy(&mut stream, &mut io::sink()));
    // The writer thread has no name, like the main thread.
    let guard = Instant::now() + GUARD;
    while nameless(child.0.id()) > 1 {
        assert!(Instant::now() < guard, "the transfer does not end");
        thread::yield_now();
    }
    let mut printed = String::new();
    reader.read_to_string(&mut printed).unwrap();
    let mut said = String::new();
    let mut errors = child.0.stderr.take().unwrap();
    errors.read_to_string(&mut said).unwrap();
    assert!(child.0.wait().unwrap().success(), "{said}");
    let printed = printed.lines().filter(|line| line.starts_with('{')).count();
    assert!(printed > 1, "{said}");
    let words = format!("events: {printed} of {printed} seen, 0 dropped");
    assert!(said.contains(&words), "{words}:\n{said}");
    swallow.join().unwrap().unwrap();
}

#[test]
fn a_full_disk_is_an_error() {
    let (listener, to) = peer();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    command
        .args(["events", "watch", "--source", "unprivileged", "--for", "1h"])
        .args(to.split(' '))
        .stdout(full);
    let swallow = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        // It writes until the other end closes the connection.
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("cannot write standard output"), "{said}");
    swallow.join().unwrap();
}

#[test]
fn invalid_options_are_rejected_with_the_fix() {
    for (options, word) in [
        ("--send 0b/s", "leave --send out"),
        ("--for -1s", "\"-1s\" is negative"),
        ("--rate -1Mb/s", "\"-1Mb/s\" is negative"),
        ("--delay -1ms", "\"-1ms\" is negative"),
        ("--send -1b/s", "\"-1b/s\" is negative"),
        ("--for --json", "a value is required for '--for <TIME>'"),
    ] {
        let ended = watch(options).wait();
        // A usage error of clap.
        assert_eq!(ended.status.code(), Some(2), "{}", ended.said);
        assert!(ended.said.contains(word), "{options}: {}", ended.said);
    }
    for to in ["localhost", "127.0.0.1"] {
        let ended = watch(&format!("--to {to}")).wait();
        ended.failed_with("has no port: give it as HOST:PORT");
    }
}

#[test]
fn an_absent_daemon_at_a_given_socket_is_reported() {
    let (listener, to) = peer();
    let watched = watch(&format!("{to} --socket /nosuch/typo.sock --for 100ms"));
    let mut stream = begun(&listener);
    let _ = io::copy(&mut stream, &mut io::sink());
    let ended = watched.wait();
    assert_summary(&ended);
    let word = "no event daemon answers at /nosuch/typo.sock";
    assert!(ended.said.contains(word), "{}", ended.said);
}

/// Some shell scripts set a variable to an empty string instead of unsetting it.
#[test]
fn an_empty_socket_path_is_ignored() {
    let (_listener, to) = peer();
    let mut command = daemon::client(&format!("events watch --source daemon {to}"), "".as_ref());
    let ended = Program::start(&mut command).wait();
    ended.failed_with("at /run/tidegate/events.sock");
}

fn send(signal: libc::c_int, process: u32) {
    let process = libc::pid_t::try_from(process).unwrap();
    // SAFETY: a system call that takes numbers. The child has not been waited for, so the id is its
    // own.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

/// Bit mask of the signals for which a process has handlers.
fn caught(status: &str) -> u64 {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    u64::from_str_radix(caught.unwrap().trim(), 16).unwrap()
}

/// Number of threads with the name of the program.
fn nameless(process: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")));
    // A thread may have ended meanwhile.
    let is_its = |name: &String| name.trim() == "tidegate";
    names.filter_map(Result::ok).filter(is_its).count()
}

/// Fills a pipe completely.
fn fill(pipe: &mut io::PipeWriter) {
    // SAFETY: takes numbers and touches no memory.
    let size = unsafe { libc::fcntl(raw(pipe), libc::F_GETPIPE_SZ) };
    let lines = vec![b'\n'; usize::try_from(size).unwrap()];
    pipe.write_all(&lines).unwrap();
}

fn raw(fd: &impl std::os::fd::AsRawFd) -> i32 {
    fd.as_raw_fd()
}

/// A local socket like the daemon's, without replies.
fn listen(path: &str) -> OwnedFd {
    // SAFETY: an address is integers, for which zero is a value; it is passed with its size. The
    // socket has no other owner.
    unsafe {
        let mut address: libc::sockaddr_un = mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
            *to = from as libc::c_char;
        }
        let size = mem::size_of_val(&address) as u32;
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
        assert_eq!(libc::bind(socket, (&raw const address).cast(), size), 0);
        assert_eq!(libc::listen(socket, 1), 0);
        OwnedFd::from_raw_fd(socket)
    }
}

fn accept(listener: &OwnedFd) -> OwnedFd {
    // SAFETY: no address is requested; the socket has no other owner.
    unsafe {
        let (no_address, no_size) = (std::ptr::null_mut(), std::ptr::null_mut());
        let socket = libc::accept(raw(listener), no_address, no_size);
        assert!(socket >= 0);
        OwnedFd::from_raw_fd(socket)
    }
}

/// A child that is killed, by its id, if the test ends first.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The child may have ended, and been waited for, already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
