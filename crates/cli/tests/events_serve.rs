//! `tidegate events serve` as a process. Tests that need root are skipped without it, with a
//! message.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

#[expect(dead_code, reason = "the streams' tests use the rest")]
mod daemon;

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{fs, io, thread};

use daemon::{ANYTHING, Daemon, chmod, is_without_rights, policy_file, socket};
use program::{GUARD, Program, ProgramResult, Scratch, text};
use tidegate_kernel::{EventDetails, EventRequest, Events, EventsError};

/// A closed pipe is no error, a full disk is one.
#[test]
fn write_errors_of_check_cause_no_panic() {
    let scratch = Scratch::new("check-unwritten");
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = io::pipe().unwrap();
    drop(reader);
    let check = |policy: &str, out: Stdio| {
        let file = policy_file(&scratch, policy);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["events", "serve", "--check", "--policy", text(&file)]);
        let ended = command.stdout(out).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        (ended.status.code(), said)
    };
    for policy in [ANYTHING, ""] {
        let closed = closed.try_clone().unwrap();
        assert_eq!(check(policy, closed.into()), (Some(0), String::new()));
        let (code, said) = check(policy, full().into());
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains("cannot write standard output"), "{said}");
    }
}

/// Checks a policy.
fn check(test: &str, policy: &[u8]) -> ProgramResult {
    let scratch = Scratch::new(test);
    let file = policy_file(&scratch, policy);
    Program::tidegate(&format!("events serve --check --policy {}", text(&file))).wait()
}

#[test]
fn a_valid_policy_is_confirmed() {
    let ended = check("check-right", ANYTHING.as_bytes());
    assert_eq!(ended.status.code(), Some(0), "{}", ended.said);
    assert_eq!(ended.output, "the policy is valid\n");
    assert_eq!(ended.said, "");
}

#[test]
fn a_policy_that_allows_nothing_is_usable_with_a_warning() {
    for (policy, word) in [
        ("", "the policy allows nothing"),
        ("# rules will come\n[limits]\nclients = 4\n", "add a rule"),
        ("[[allow]]\nusers = [0]\n", "rule 1 allows nothing"),
        (
            "[[allow]]\nusers = [0]\nevents = ['ended']\n",
            "but the end of a connection",
        ),
    ] {
        let ended = check("check-empty", policy.as_bytes());
        assert_eq!(ended.status.code(), Some(0), "{}", ended.said);
        let output = &ended.output;
        assert!(
            output.contains(word) && !output.contains("right"),
            "{output}"
        );
    }
}

#[test]
fn an_invalid_policy_is_rejected_with_line_and_fix() {
    for (policy, words) in [
        (
            &b"[[allow]]\neverybody = 'yes'\n"[..],
            ["line 2", "true or false, without quotes"],
        ),
        (
            b"[limits]\nclients = 2\nclients-per-user = 3\n",
            ["line 3", "from 1 to 2"],
        ),
        (
            b"[[allow]]\nusers = [0]\nevents = ['rto']\n",
            ["line 3", "timeout"],
        ),
        (b"# f\xfcr\n", ["line 1", "UTF-8"]),
    ] {
        let ended = check("check-wrong", policy);
        assert_eq!(ended.output, "");
        for word in words {
            ended.failed_with(word);
        }
        ended.failed_with("policy.toml is wrong");
    }
    Program::tidegate("events serve --check --policy /nosuch/policy.toml")
        .wait()
        .failed_with("name a file that exists");
    // A usage error of clap.
    let ended = Program::tidegate("events serve --check").wait();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.said);
}

#[test]
fn a_policy_that_others_can_write_is_rejected() {
    let scratch = Scratch::new("check-exposed");
    let file = policy_file(&scratch, ANYTHING);
    chmod(&file, 0o666);
    let line = format!("events serve --check --policy {}", text(&file));
    let ended = Program::tidegate(&line).wait();
    assert_eq!(ended.output, "");
    ended.failed_with("other users could change the policy");
    ended.failed_with(&format!("chmod go-w {}", text(&file)));
}

/// Both ends of a connection over the loopback interface.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Subscribes to a socket, closes it, and waits for the event.
fn observe_an_end(at: &Path) -> Events {
    let events = Events::connect(at).unwrap();
    let (socket, peer) = connection();
    events.subscribe(&socket, events.allowed()).unwrap();
    drop((socket, peer));
    loop {
        let event = events.next(Some(GUARD)).unwrap();
        if event.unwrap().what == EventDetails::Ended {
            return events;
        }
    }
}

#[test]
fn a_client_is_served_until_ctrl_c_and_notified() {
    let Some(mut daemon) = Daemon::start("serve", ANYTHING, "") else {
        return;
    };
    let events = observe_an_end(&daemon.socket());
    daemon.program.wait_for_line("connects");
    daemon.interrupted();
    let end = events.next(Some(GUARD));
    assert!(matches!(end, Err(EventsError::DaemonGone)), "{end:?}");
}

/// The client is the program as well: it writes to a listener of this test.
#[test]
fn watch_observes_a_transfer_through_the_daemon() {
    let Some(daemon) = Daemon::start("watch", ANYTHING, "") else {
        return;
    };
    let sink = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = sink.local_addr().unwrap().port();
    let swallow = thread::spawn(move || {
        let mut from = sink.accept().unwrap().0;
        // Until the program has closed its end.
        let _ = io::copy(&mut from, &mut io::sink());
    });
    let socket = daemon.socket();
    let watched = Program::tidegate(&format!(
        "events watch --source daemon --socket {} --to 127.0.0.1:{port} --for 300ms --json",
        text(&socket)
    ))
    .wait();
    watched.succeeded();
    swallow.join().unwrap();
    let phases = watched.output.lines().filter(|l| l.contains("phase"));
    assert!(phases.count() > 0, "{}", watched.output);
    assert!(watched.said.contains(" 0 dropped"), "{}", watched.said);
    daemon.interrupted();
}

/// As in `tidegate events watch | head -1`: no error and no message.
#[test]
fn watch_ends_silently_when_its_output_is_closed() {
    for form in ["", "--json"] {
        let sink = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = sink.local_addr().unwrap().port();
        let swallow = thread::spawn(move || {
            let mut from = sink.accept().unwrap().0;
            // Until the program has closed its end or exited.
            let _ = io::copy(&mut from, &mut io::sink());
        });
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["events", "watch", "--source", "unprivileged", "--for", "2s"])
            .args(["--to", &format!("127.0.0.1:{port}")])
            .args(form.split_whitespace())
            .stdout(writer);
        let watched = command.output().unwrap();
        let said = String::from_utf8_lossy(&watched.stderr);
        assert_eq!(watched.status.code(), Some(0), "{said}");
        assert!(!said.contains(" dropped"), "it continued: {said}");
        for word in ["panicked", "pipe"] {
            assert!(!said.contains(word), "{said}");
        }
        swallow.join().unwrap();
    }
}

/// Options that would otherwise be ignored silently.
#[test]
fn options_of_another_path_or_source_are_rejected() {
    for option in [
        "--rate 1Mb/s",
        "--delay 5ms",
        "--queue 9kB",
        "--loss 1%",
        "--outage 1s+1s",
        "--seed 2",
    ] {
        let ended = Program::tidegate(&format!("events watch --to 127.0.0.1:9 {option}")).wait();
        // A usage error of clap.
        assert_eq!(ended.status.code(), Some(2), "{}", ended.said);
        let name = option.split(' ').next().unwrap();
        for word in ["cannot be used with", "--to", name] {
            assert!(ended.said.contains(word), "{option}: {}", ended.said);
        }
    }
    for source in ["in-process", "unprivileged"] {
        let line = "events watch --to 127.0.0.1:9 --socket /nosuch/x --source";
        Program::tidegate(&format!("{line} {source}"))
            .wait()
            .failed_with(
                "--socket requires --source daemon or auto: leave it out, or choose one of these",
            );
    }
}

#[test]
fn quiet_logs_no_clients() {
    let Some(daemon) = Daemon::start("quiet", ANYTHING, "--quiet") else {
        return;
    };
    observe_an_end(&daemon.socket());
    let ended = daemon.interrupted();
    let lines: Vec<&str> = ended.said.lines().collect();
    assert!(lines[0].starts_with("events: serving at"), "{}", ended.said);
    assert!(lines[1].starts_with("events: stopping"), "{}", ended.said);
    assert_eq!(lines.len(), 2, "{}", ended.said);
}

/// Status values of each thread of a process: user, and capabilities in the kernel's notation.
fn rights(process: u32) -> Vec<BTreeMap<String, String>> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let statuses = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")));
    // A thread may have ended meanwhile.
    let statuses = statuses.filter_map(Result::ok);
    let read = |status: String| {
        let lines = status.lines().filter_map(|line| line.split_once(':'));
        let values = lines.map(|(name, value)| {
            let first = value.split_whitespace().next().unwrap_or_default();
            (name.to_owned(), first.to_owned())
        });
        values.collect()
    };
    statuses.map(read).collect()
}

/// Before, during and after a client with a ring and subscriptions: all threads have `CAP_BPF` in
/// the permitted set only. Child processes cannot acquire more.
#[test]
fn another_user_serves_with_one_inactive_capability() {
    let Some(daemon) = Daemon::start("user", ANYTHING, "--user nobody") else {
        return;
    };
    let (process, socket) = (daemon.program.id(), daemon.socket());
    let see = |phase: &str| {
        let threads = rights(process);
        assert!(!threads.is_empty());
        for thread in threads {
            let is = |name: &str| thread[name].as_str();
            // CAP_BPF is number 39.
            assert_eq!(is("CapPrm"), format!("{:016x}", 1_u64 << 39), "{phase}");
            for none in ["CapEff", "CapBnd", "CapInh", "CapAmb"] {
                assert_eq!(is(none), "0000000000000000", "{none} {phase}");
            }
            assert_eq!((is("Uid"), is("NoNewPrivs")), ("65534", "1"), "{phase}");
        }
    };
    see("alone");
    let events = Events::connect(&socket).unwrap();
    let (ours, peer) = connection();
    events.subscribe(&ours, EventRequest::ALL).unwrap();
    // Its reply implies that earlier requests are complete.
    events.subscribe(&ours, EventRequest::default()).unwrap();
    see("with a client");
    drop((events, ours, peer));
    observe_an_end(&socket);
    see("after a client");
    daemon.interrupted_as_another_user();
}

/// Users have numbers, which policies accept too. Users of containers often have no name.
#[test]
fn another_user_can_be_given_by_number() {
    for (user, uid, gid) in [
        ("65534", "65534", "65534"),
        ("4000000001:4000000002", "4000000001", "4000000002"),
    ] {
        let Some(daemon) = Daemon::start("number", ANYTHING, &format!("--user {user}")) else {
            return;
        };
        for thread in rights(daemon.program.id()) {
            assert_eq!((thread["Uid"].as_str(), thread["Gid"].as_str()), (uid, gid));
        }
        observe_an_end(&daemon.socket());
        daemon.interrupted_as_another_user();
    }
}

/// The socket that a killed daemon leaves behind, and one that another user may not remove.
#[test]
fn a_socket_without_a_daemon_is_replaced() {
    let Some(daemon) = Daemon::start("killed", ANYTHING, "") else {
        return;
    };
    let (socket, policy) = (daemon.socket(), daemon.scratch.path("policy.toml"));
    daemon.program.kill();
    for _ in 0..2 {
        assert!(socket.exists());
        let line = format!("--socket {} --policy {}", text(&socket), text(&policy));
        let mut next = Program::tidegate(&format!("events serve --user nobody {line}"));
        next.wait_for_line("events: serving at");
        observe_an_end(&socket);
        next.interrupt();
        next.wait().succeeded();
    }
}

#[test]
fn start_errors_of_the_daemon_name_the_reason() {
    let Some(daemon) = Daemon::start("start", ANYTHING, "") else {
        return;
    };
    let socket = daemon.socket();
    let socket = text(&socket);
    let second = Program::tidegate(&format!("events serve --socket {socket}")).wait();
    second.failed_with("another daemon serves at");
    second.failed_with("choose another --socket");
    let other = daemon.scratch.path("other/events.sock");
    let other = text(&other);
    // The last number means "unchanged" to the kernel.
    for user in ["nosuchuser", "4294967295"] {
        Program::tidegate(&format!("events serve --socket {other} --user {user}"))
            .wait()
            .failed_with(&format!("there is no user `{user}`"));
    }
    Program::tidegate(&format!("events serve --socket {other} --user 4000000001"))
        .wait()
        .failed_with("give the group, too, as --user 4000000001:GID");
    assert!(!daemon.scratch.path("other").exists());
    let open = daemon.scratch.path("open");
    fs::create_dir(&open).unwrap();
    chmod(&open, 0o777);
    let open = text(&open);
    Program::tidegate(&format!("events serve --socket {open}/events.sock"))
        .wait()
        .failed_with(&format!(
            "other users can write to the folder {open} (mode 0777)"
        ));
    daemon.interrupted();
}

/// Any user may connect, whatever the umask of the daemon.
#[test]
fn the_umask_of_the_daemon_does_not_matter() {
    use std::os::unix::fs::PermissionsExt as _;
    if is_without_rights("umask") {
        return;
    }
    let scratch = Scratch::new("umask");
    let socket = socket(&scratch);
    let mut command = serve(&socket);
    // SAFETY: takes a number, in a child that has one thread.
    unsafe {
        command.pre_exec(|| {
            libc::umask(0o077);
            Ok(())
        });
    }
    let mut daemon = Program::start(&mut command);
    daemon.wait_for_line("events: serving at");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&socket), 0o666);
    assert_eq!(mode(socket.parent().unwrap()), 0o755);
    daemon.interrupt();
    daemon.wait().succeeded();
}

/// As with a full disk, and with a closed pipe.
#[test]
fn write_errors_of_the_log_are_ignored() {
    if is_without_rights("unwritten") {
        return;
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = io::pipe().unwrap();
    drop(reader);
    for log in [Stdio::from(full), closed.into()] {
        let scratch = Scratch::new("unwritten");
        let socket = socket(&scratch);
        let daemon = Logging::start(&socket, log);
        let guard = Instant::now() + GUARD;
        while let Err(why) = Events::connect(&socket) {
            assert!(Instant::now() < guard, "{why}");
            thread::yield_now();
        }
        observe_an_end(&socket);
        daemon.terminated();
    }
}

/// As with a stopped terminal, or a pipe without a reader.
#[test]
fn a_blocked_log_does_not_block_clients() {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::fd::AsRawFd as _;
    if is_without_rights("unread") {
        return;
    }
    let scratch = Scratch::new("unread");
    let socket = socket(&scratch);
    let (reader, mut writer) = io::pipe().unwrap();
    let daemon = Logging::start(&socket, writer.try_clone().unwrap().into());
    let (mut reader, mut line) = (BufReader::new(reader), String::new());
    while !line.contains("only root may subscribe") {
        line.clear();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0);
    }
    // SAFETY: takes numbers and touches no memory.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![b'-'; size as usize]).unwrap();
    // Each client is logged at its start and end, and is served.
    for _ in 0..4 {
        observe_an_end(&socket);
    }
    daemon.terminated();
}

/// A daemon with a given file for its log.
struct Logging(Child);

impl Logging {
    fn start(socket: &Path, log: Stdio) -> Self {
        Self(serve(socket).stderr(log).spawn().unwrap())
    }

    /// Sends SIGTERM and asserts a clean exit.
    fn terminated(mut self) {
        let id = libc::pid_t::try_from(self.0.id()).unwrap();
        // SAFETY: a system call that takes numbers. The child has not been waited for, so the id is
        // its own.
        assert_eq!(unsafe { libc::kill(id, libc::SIGTERM) }, 0);
        let guard = Instant::now() + GUARD;
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < guard, "the daemon does not end");
            thread::yield_now();
        };
        assert_eq!(status.code(), Some(0));
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // The child may have ended, and been waited for, already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Descriptors run out at various points of the start. The daemon raises its soft limit itself.
#[test]
fn a_shortage_of_descriptors_is_reported_with_the_limit() {
    if is_without_rights("limits") {
        return;
    }
    let scratch = Scratch::new("limits");
    let socket = socket(&scratch);
    let limited = |soft: u64, hard: u64| {
        let mut command = serve(&socket);
        // SAFETY: a system call with an initialised limit, in a child that has one thread.
        unsafe {
            command.pre_exec(move || {
                let limit = libc::rlimit {
                    rlim_cur: soft,
                    rlim_max: hard,
                };
                match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        Program::start(&mut command)
    };
    for most in [4, 8, 12, 16, 20] {
        let ended = limited(most, most).wait();
        ended.failed_with("raise its limit of open files (ulimit -n, LimitNOFILE=)");
    }
    let mut raised = limited(8, 256);
    raised.wait_for_line("events: serving at");
    raised.interrupt();
    raised.wait().succeeded();
}

#[test]
fn missing_capabilities_are_named() {
    if is_without_rights("capabilities") {
        return;
    }
    let scratch = Scratch::new("capabilities");
    let socket = socket(&scratch);
    let mut command = serve(&socket);
    // SAFETY: system calls that take numbers, in a child that has one thread.
    unsafe {
        command.pre_exec(|| {
            // All capability numbers: a program receives no capability outside of the bounding set.
            for number in 0..64 {
                libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0);
            }
            Ok(())
        });
    }
    let ended = Program::start(&mut command).wait();
    ended.failed_with("run as root or with CAP_BPF and CAP_PERFMON");
    assert!(!scratch.path("made").exists());
}

/// In its own mount namespace, in which /sys/kernel/btf is empty.
#[test]
fn missing_btf_is_reported_with_the_fix() {
    if is_without_rights("types") {
        return;
    }
    let scratch = Scratch::new("types");
    let mut command = serve(&socket(&scratch));
    // SAFETY: system calls that take numbers and names that end with zero, in a child that has one
    // thread.
    unsafe {
        command.pre_exec(|| {
            let done = |result: i32| {
                let failed = result == -1;
                failed.then(io::Error::last_os_error).map_or(Ok(()), Err)
            };
            let (none, root, btf) = (c"none".as_ptr(), c"/".as_ptr(), c"/sys/kernel/btf".as_ptr());
            let flags = libc::MS_REC | libc::MS_PRIVATE;
            let (nothing, tmpfs) = (std::ptr::null(), c"tmpfs".as_ptr());
            done(libc::unshare(libc::CLONE_NEWNS))?;
            done(libc::mount(none, root, nothing, flags, nothing.cast()))?;
            done(libc::mount(none, btf, tmpfs, 0, nothing.cast()))
        });
    }
    let ended = Program::start(&mut command).wait();
    ended.failed_with("the type information of the kernel is unavailable (/sys/kernel/btf/vmlinux");
    ended.failed_with("CONFIG_DEBUG_INFO_BTF=y");
    assert!(!scratch.path("made").exists());
}

fn serve(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["events", "serve", "--socket", text(socket)]);
    command
}
