//! `tidegate events serve` as a process. What takes root is skipped without it, and says so.

#[expect(dead_code, reason = "the other tests use the rest")]
mod party;

#[expect(dead_code, reason = "the streams' tests use the rest")]
mod daemon;

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{fs, io, thread};

use daemon::{ANYTHING, Daemon, is_without_rights, socket};
use party::{Ended, GUARD, Party, Scratch, text};
use tidegate_kernel::{Events, EventsError, Happening, Wanted};

/// A reader who has gone is no failure, a disk that is full is one.
#[test]
fn a_verdict_on_a_policy_that_cannot_be_written_is_no_panic() {
    let scratch = Scratch::new("check-unwritten");
    let file = scratch.path("policy.toml");
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = io::pipe().unwrap();
    drop(reader);
    let check = |policy: &str, out: Stdio| {
        fs::write(&file, policy).unwrap();
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
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("cannot write standard output"), "{said}");
    }
}

/// Checks a policy, which is given as bytes.
fn check(test: &str, policy: &[u8]) -> Ended {
    let scratch = Scratch::new(test);
    let file = scratch.path("policy.toml");
    fs::write(&file, policy).unwrap();
    Party::tidegate(&format!("events serve --check --policy {}", text(&file))).ends()
}

#[test]
fn a_policy_that_is_right_is_called_so() {
    let ended = check("check-right", ANYTHING.as_bytes());
    assert_eq!(ended.status.code(), Some(0), "{}", ended.said);
    assert_eq!(ended.output, "the policy is valid\n");
    assert_eq!(ended.said, "");
}

#[test]
fn a_policy_that_is_hardly_meant_can_be_used_and_is_not_called_right() {
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
fn a_policy_that_is_wrong_is_refused_with_line_and_mend() {
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
    Party::tidegate("events serve --check --policy /nosuch/policy.toml")
        .ends()
        .failed_with("name a file that exists");
    // Of the command line, as clap has it.
    let ended = Party::tidegate("events serve --check").ends();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.said);
}

/// Two ends of a connection over the loopback.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Subscribes to a socket, closes it, and hears of that.
fn hear_of_an_end(at: &Path) -> Events {
    let events = Events::connect(at).unwrap();
    let (socket, peer) = connection();
    events.subscribe(&socket, events.allowed()).unwrap();
    drop((socket, peer));
    loop {
        let event = events.next(Some(GUARD)).unwrap();
        if event.unwrap().what == Happening::Ended {
            return events;
        }
    }
}

#[test]
fn a_client_is_served_until_ctrl_c_and_hears_of_that() {
    let Some(mut daemon) = Daemon::start("serve", ANYTHING, "") else {
        return;
    };
    let events = hear_of_an_end(&daemon.socket());
    daemon.party.says("connects");
    daemon.interrupted();
    let end = events.next(Some(GUARD));
    assert!(matches!(end, Err(EventsError::Gone)), "{end:?}");
}

/// The client is the program, too: it writes to a listener of ours.
#[test]
fn watch_sees_a_transfer_through_the_daemon() {
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
    let watched = Party::tidegate(&format!(
        "events watch --source daemon --socket {} --to 127.0.0.1:{port} --for 300ms --json",
        text(&socket)
    ))
    .ends();
    watched.succeeded();
    swallow.join().unwrap();
    let phases = watched.output.lines().filter(|l| l.contains("phase"));
    assert!(phases.count() > 0, "{}", watched.output);
    assert!(watched.said.contains(" 0 dropped"), "{}", watched.said);
    daemon.interrupted();
}

/// As `tidegate events watch | head -1` has it: that is no failure, and nothing to talk of.
#[test]
fn watch_ends_without_a_word_when_nobody_reads_it_any_more() {
    for form in ["", "--json"] {
        let sink = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = sink.local_addr().unwrap().port();
        let swallow = thread::spawn(move || {
            let mut from = sink.accept().unwrap().0;
            // Until the program has closed its end, or is gone.
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
        assert!(!said.contains(" dropped"), "it went on: {said}");
        for word in ["panicked", "pipe"] {
            assert!(!said.contains(word), "{said}");
        }
        swallow.join().unwrap();
    }
}

/// What would be ignored in silence.
#[test]
fn options_of_another_path_or_source_are_refused() {
    for option in [
        "--rate 1Mb/s",
        "--delay 5ms",
        "--queue 9kB",
        "--loss 1%",
        "--outage 1s+1s",
        "--seed 2",
    ] {
        let ended = Party::tidegate(&format!("events watch --to 127.0.0.1:9 {option}")).ends();
        // Of the command line, as clap has it.
        assert_eq!(ended.status.code(), Some(2), "{}", ended.said);
        let name = option.split(' ').next().unwrap();
        for word in ["cannot be used with", "--to", name] {
            assert!(ended.said.contains(word), "{option}: {}", ended.said);
        }
    }
    for source in ["in-process", "unprivileged"] {
        let line = "events watch --to 127.0.0.1:9 --socket /nosuch/x --source";
        Party::tidegate(&format!("{line} {source}"))
            .ends()
            .failed_with(
                "--socket requires --source daemon or auto: leave it out, or choose one of these",
            );
    }
}

#[test]
fn quiet_says_nothing_of_clients() {
    let Some(daemon) = Daemon::start("quiet", ANYTHING, "--quiet") else {
        return;
    };
    hear_of_an_end(&daemon.socket());
    let ended = daemon.interrupted();
    let lines: Vec<&str> = ended.said.lines().collect();
    assert!(lines[0].starts_with("events: serving at"), "{}", ended.said);
    assert!(lines[1].starts_with("events: stopping"), "{}", ended.said);
    assert_eq!(lines.len(), 2, "{}", ended.said);
}

/// Of each thread of a process: user, and capabilities as the kernel writes them.
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

/// The only child of a process.
fn child(process: u32) -> u32 {
    let numbers = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    let is_its = |number: &u32| {
        let status = fs::read_to_string(format!("/proc/{number}/status"));
        status.is_ok_and(|s| s.lines().any(|l| l == format!("PPid:\t{process}")))
    };
    let children: Vec<u32> = numbers.filter(is_its).collect();
    assert_eq!(children.len(), 1, "{children:?}");
    children[0]
}

/// Alone, with a client that has a ring and subscriptions, and after it: all threads may make maps
/// if they wake that up, and nothing else, nor could what they start.
#[test]
fn another_user_serves_with_one_capability_that_sleeps() {
    let Some(daemon) = Daemon::start("user", ANYTHING, "--user nobody") else {
        return;
    };
    let (process, socket) = (daemon.party.id(), daemon.socket());
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
    // The process that removes the files of root stays root, and has no capability.
    let cleanup = child(process);
    for thread in rights(cleanup) {
        assert_eq!(thread["Name"], "tg-cleanup");
        assert_eq!(thread["Uid"], "0");
        for none in ["CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"] {
            assert_eq!(thread[none], "0000000000000000", "{none} of cleanup");
        }
    }
    let held = fs::read_dir(format!("/proc/{cleanup}/fd")).unwrap();
    assert_eq!(held.count(), 1);
    let events = Events::connect(&socket).unwrap();
    let (ours, peer) = connection();
    events.subscribe(&ours, Wanted::ALL).unwrap();
    // An answer: what went before is over.
    events.subscribe(&ours, Wanted::default()).unwrap();
    see("with a client");
    drop((events, ours, peer));
    hear_of_an_end(&socket);
    see("after a client");
    daemon.interrupted();
}

/// Users have numbers, by which policies know them too; those of containers often have nothing else.
#[test]
fn another_user_can_be_given_by_number() {
    for (user, uid, gid) in [
        ("65534", "65534", "65534"),
        ("4000000001:4000000002", "4000000001", "4000000002"),
    ] {
        let Some(daemon) = Daemon::start("number", ANYTHING, &format!("--user {user}")) else {
            return;
        };
        for thread in rights(daemon.party.id()) {
            assert_eq!((thread["Uid"].as_str(), thread["Gid"].as_str()), (uid, gid));
        }
        hear_of_an_end(&daemon.socket());
        daemon.interrupted();
    }
}

/// Also what another user may not remove, and when nobody is left to say so.
#[test]
fn a_daemon_that_is_killed_leaves_nothing_behind() {
    let Some(daemon) = Daemon::start("killed", ANYTHING, "--user nobody") else {
        return;
    };
    let made = daemon.scratch.path("made");
    assert!(made.exists());
    daemon.party.kill();
    let guard = Instant::now() + GUARD;
    while made.exists() {
        assert!(Instant::now() < guard, "folders stayed behind");
        thread::yield_now();
    }
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let Some(daemon) = Daemon::start("start", ANYTHING, "") else {
        return;
    };
    let socket = daemon.socket();
    let socket = text(&socket);
    let second = Party::tidegate(&format!("events serve --socket {socket}")).ends();
    second.failed_with("another daemon serves at");
    second.failed_with("choose another --socket");
    let other = daemon.scratch.path("other/events.sock");
    let other = text(&other);
    // The last is what the system takes for "as before".
    for user in ["nosuchuser", "4294967295"] {
        Party::tidegate(&format!("events serve --socket {other} --user {user}"))
            .ends()
            .failed_with(&format!("there is no user `{user}`"));
    }
    Party::tidegate(&format!("events serve --socket {other} --user 4000000001"))
        .ends()
        .failed_with("give the group, too, as --user 4000000001:GID");
    assert!(!daemon.scratch.path("other").exists());
    daemon.interrupted();
}

/// As when a disk is full, and when whoever read the log has gone.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
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
        hear_of_an_end(&socket);
        daemon.terminated();
    }
}

/// As a terminal that is held, or a pipe that nobody empties.
#[test]
fn whoever_stops_reading_the_log_keeps_nobody_waiting() {
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
    // Each comes with a line, goes with one, and is served.
    for _ in 0..4 {
        hear_of_an_end(&socket);
    }
    daemon.terminated();
}

/// A daemon that logs to what a test has made.
struct Logging(Child);

impl Logging {
    fn start(socket: &Path, log: Stdio) -> Self {
        Self(serve(socket).stderr(log).spawn().unwrap())
    }

    /// SIGTERM, after which it ends without an error.
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
            assert!(Instant::now() < guard, "it does not end");
            thread::yield_now();
        };
        assert_eq!(status.code(), Some(0));
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // It may have ended, and been waited for, already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where they run out while it starts, and what it does about that itself.
#[test]
fn without_descriptors_it_names_the_limit() {
    if is_without_rights("limits") {
        return;
    }
    let scratch = Scratch::new("limits");
    let socket = socket(&scratch);
    let limited = |soft: u64, hard: u64| {
        let mut command = serve(&socket);
        // SAFETY: a system call with a limit that is whole, in a child that has one thread.
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
        Party::start(&mut command)
    };
    for most in [4, 8, 12, 16, 20] {
        let ended = limited(most, most).ends();
        ended.failed_with("raise its limit of open files (ulimit -n, LimitNOFILE=)");
    }
    let mut raised = limited(8, 256);
    raised.says("events: serving at");
    raised.interrupt();
    raised.ends().succeeded();
}

#[test]
fn without_capabilities_it_says_which() {
    if is_without_rights("capabilities") {
        return;
    }
    let scratch = Scratch::new("capabilities");
    let socket = socket(&scratch);
    let mut command = serve(&socket);
    // SAFETY: system calls that take numbers, in a child that has one thread.
    unsafe {
        command.pre_exec(|| {
            // Of all capabilities the kernel may have: a program gets none that is not bounded.
            for number in 0..64 {
                libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0);
            }
            Ok(())
        });
    }
    let ended = Party::start(&mut command).ends();
    ended.failed_with("run as root or with CAP_BPF and CAP_PERFMON");
    assert!(!scratch.path("made").exists());
}

/// In a mount namespace of its own, where nothing is at the place of the kernel's types.
#[test]
fn without_types_of_the_kernel_it_says_how_to_have_them() {
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
    let ended = Party::start(&mut command).ends();
    ended.failed_with("the kernel does not tell its types (/sys/kernel/btf/vmlinux");
    ended.failed_with("CONFIG_DEBUG_INFO_BTF=y");
    assert!(!scratch.path("made").exists());
}

fn serve(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["events", "serve", "--socket", text(socket)]);
    command
}
