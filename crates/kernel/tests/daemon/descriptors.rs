//! The daemon without descriptors. Each test runs in a separate process, since the limit is per
//! process.

use super::crowd::{answer, hand_over, lingering, numbers, reply};
use std::process::Stdio;

use super::*;

#[test]
fn without_descriptors_the_daemon_pauses_and_logs_it() {
    if is_parent("descriptors::without_descriptors_the_daemon_pauses_and_logs_it") {
        return;
    }
    let Some(daemon) = Daemon::start("descriptors", ANYTHING) else {
        return;
    };
    // The reply implies that the daemon is idle.
    let early = Events::connect(&daemon.path).unwrap();
    // SAFETY: takes numbers and touches no memory.
    let late = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0) };
    let usual = allow_descriptors(3);
    let late = connect_raw(late, &daemon.path);
    // A daemon that does not pause would use the processor all the time. Processor time excludes
    // the time of other programs.
    let before = processor_time();
    assert_eq!(answer(&late, Duration::from_millis(1_500)), None);
    let spent = processor_time().saturating_sub(before);
    assert!(spent < Duration::from_millis(300), "{spent:?}");
    allow_descriptors(usual);
    let nonsense = b"xyz";
    // SAFETY: sends three bytes.
    let sent = unsafe { libc::send(late.as_raw_fd(), nonsense.as_ptr().cast(), 3, 0) };
    assert_eq!(sent, 3);
    // The client is accepted after the pause, and disconnected.
    assert_eq!(answer(&late, GUARD), Some(0));
    drop(early);
    let log = daemon.wait();
    let lines = log
        .iter()
        .filter(|l| l.contains("no client can be accepted"));
    assert_eq!(lines.count(), 1, "{log:?}");
}

/// The message with the socket is sent, and the socket is discarded.
#[test]
fn without_descriptors_a_subscription_is_refused_with_the_fix() {
    if is_parent("descriptors::without_descriptors_a_subscription_is_refused_with_the_fix") {
        return;
    }
    let Some(daemon) = Daemon::start("lost_descriptors", ANYTHING) else {
        return;
    };
    let events = Events::connect(&daemon.path).unwrap();
    let (socket, _peer) = connection();
    events.subscribe(&socket, states()).unwrap();
    let usual = allow_descriptors(3);
    let refusal = events.subscribe(&socket, states()).unwrap_err();
    allow_descriptors(usual);
    let text = refusal.to_string();
    assert!(matches!(refusal, EventsError::Refused(_)), "{text}");
    assert!(
        text.contains("no descriptor left") && text.contains("LimitNOFILE"),
        "{text}"
    );
    assert!(daemon.logged("no descriptor left"));
    events.subscribe(&socket, states()).unwrap();
}

/// At every step of the start.
#[test]
fn without_descriptors_programs_are_not_loaded_and_the_limit_is_named() {
    if is_parent("descriptors::without_descriptors_programs_are_not_loaded_and_the_limit_is_named")
    {
        return;
    }
    if let Err(why) = Events::in_process() {
        return skip("in-process", &why.to_string());
    }
    let usual = allow_descriptors(3);
    for many in 4..64 {
        let events = Events::in_process();
        allow_descriptors(many);
        let Err(why) = events else { continue };
        let text = why.to_string();
        assert!(text.contains("limit of open files"), "below {many}: {text}");
    }
    // The daemon raises its limit.
    let policy = Policy::root_only();
    let limit = policy.limits().clients;
    allow_descriptors(8);
    Server::new(policy, |_| ()).unwrap();
    assert!(allow_descriptors(usual) > limit.into());
}

/// The close of a discarded descriptor takes as long as its owner has set.
#[test]
fn without_descriptors_the_daemon_does_not_wait_for_a_close() {
    if is_parent("descriptors::without_descriptors_the_daemon_does_not_wait_for_a_close") {
        return;
    }
    let policy = format!("[limits]\nrequests-per-second = 1\n{ANYTHING}");
    let Some(daemon) = Daemon::start_alone("roomless", &policy) else {
        return;
    };
    let good = Events::connect(&daemon.path).unwrap();
    let (socket, _peer) = connection();
    let id = good.subscribe(&socket, states()).unwrap();
    let bad = raw_client(&daemon.path);
    let (hangs, peer) = lingering();
    // The rate limit delays the next message by a second. Our copy is closed meanwhile.
    assert!(hand_over(&bad, TALLY, &[]));
    assert!(answer(&bad, GUARD).is_some_and(|length| length > 0));
    assert!(hand_over(&bad, TALLY, &numbers(&[hangs])));
    // poll(2) accepts no more descriptors than the limit.
    let usual = allow_descriptors(8);
    let refusal = reply(&bad, GUARD).expect("the refusal is sent at once");
    assert!(refusal.contains("no descriptor left"), "{refusal}");
    // Requests without descriptors are served.
    good.change(id, EventRequest::default()).unwrap();
    allow_descriptors(usual);
    assert!(hand_over(&bad, TALLY, &[]));
    drop(peer);
    let message = reply(&bad, GUARD).expect("the client is served again");
    assert!(message.contains("`open`"), "{message}");
}

/// With any number of clients: beyond the limit their descriptors are not received.
#[test]
fn one_user_does_not_fill_the_descriptor_table() {
    if is_parent("descriptors::one_user_does_not_fill_the_descriptor_table") {
        return;
    }
    let policy = format!("[limits]\nrequests-per-second = 1\n{ANYTHING}");
    let Some(daemon) = Daemon::start_alone("table", &policy) else {
        return;
    };
    let first = raw_client(&daemon.path);
    let (hangs, _peer) = lingering();
    assert!(hand_over(&first, TALLY, &[]));
    assert!(answer(&first, GUARD).is_some_and(|length| length > 0));
    assert!(hand_over(&first, TALLY, &numbers(&[hangs])));
    // The reply comes after the close has hung for two seconds.
    assert!(answer(&first, GUARD).is_some_and(|length| length > 0));
    let nothing = fs::File::open("/dev/null").unwrap();
    let clients: Vec<_> = (0..8).map(|_| raw_client(&daemon.path)).collect();
    for client in &clients {
        assert!(hand_over(client, TALLY, &[]));
        assert!(answer(client, GUARD).is_some_and(|length| length > 0));
        // The client is admitted by now.
        assert!(hand_over(client, TALLY, &[nothing.as_raw_fd(); 253]));
    }
    let is_disconnected = |client: &&OwnedFd| answer(client, GUARD) == Some(0);
    assert_eq!(clients.iter().filter(is_disconnected).count(), 5);
    // A full queue, one message more, the clients, and the daemon's own descriptors.
    let open = descriptors_of("tg-close");
    assert!((760..512 + 253 + 60).contains(&open), "{open}");
}

/// Number of descriptors of a thread with this name.
fn descriptors_of(name: &str) -> usize {
    let has_name = |task: &PathBuf| {
        let its = fs::read_to_string(task.join("comm"));
        its.is_ok_and(|its| its.trim() == name)
    };
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let task = tasks.map(|task| task.unwrap().path()).find(has_name);
    fs::read_dir(task.unwrap().join("fd")).unwrap().count()
}

const TALLY: &[u8] = br#"{"request":"tally","id":1}"#;

/// Whether this is the parent process, in which the test has run in a child.
pub(super) fn is_parent(test: &str) -> bool {
    if env::var_os(AT).is_some() {
        return false;
    }
    let mut child = Command::new(env::current_exe().unwrap());
    let child = child.args(["--exact", test, "--nocapture"]);
    let child = child.env(AT, "itself");
    let child = spawn(child.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let ran = child.wait_with_output().unwrap();
    let lines = [ran.stdout, ran.stderr].concat();
    let lines = String::from_utf8_lossy(&lines);
    // A wrong name would run no test and pass.
    assert!(
        ran.status.success() && lines.contains("1 passed"),
        "{lines}"
    );
    true
}

/// Sets the limit of descriptors of this process and returns the old one. Open descriptors stay
/// open.
pub(super) fn allow_descriptors(many: libc::rlim_t) -> libc::rlim_t {
    // SAFETY: the limit is whole.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = mem::replace(&mut limit.rlim_cur, many);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

/// Processor time of this process.
fn processor_time() -> Duration {
    // SAFETY: a timespec is two integers, for which zero is a value, and a valid place.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
