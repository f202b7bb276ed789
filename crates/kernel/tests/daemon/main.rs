//! The daemon with well-behaved and with hostile clients. Needs the capabilities to load programs.

mod crowd;
mod descriptors;
mod handlers;
mod locked;
mod many;
mod service;
mod trust;

use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs, mem};

use service::{Daemon, spawn};
use tidegate_kernel::{
    Event, EventDetails, EventKind, EventRequest, EventSet, Events, EventsError, Executable,
    Handler, Handlers, Policy, Server, Signals, TcpState, Variable, VariableSet,
};

/// Both ends of a connection over the loopback interface.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Causes three changes of state per round: closed, opening, open. The caller keeps the other end,
/// whose close would be one more.
fn flap(socket: &TcpStream, listener: &TcpListener, times: usize) -> TcpStream {
    let (unspecified, mut peer) = ([0_u8; 16], None);
    // SAFETY: an address is integers, for which zero is a value; both are passed with their sizes.
    unsafe {
        let mut to: libc::sockaddr_in = mem::zeroed();
        to.sin_family = libc::AF_INET as u16;
        to.sin_port = listener.local_addr().unwrap().port().to_be();
        to.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
        for _ in 0..times {
            let fd = socket.as_raw_fd();
            assert_eq!(libc::connect(fd, unspecified.as_ptr().cast(), 16), 0);
            assert_eq!(libc::connect(fd, (&raw const to).cast(), 16), 0);
            peer = Some(listener.accept().unwrap().0);
        }
    }
    peer.unwrap()
}

/// The next event.
fn next(events: &Events) -> Event {
    let next = events.next(Some(GUARD)).unwrap();
    next.expect("an event is available")
}

/// Ends a test that hangs. No result depends on it.
const GUARD: Duration = Duration::from_mins(5);

/// Reports that a test is skipped. If `TIDEGATE_REQUIRE_NETNS` is 1 and the user is root it fails
/// instead.
fn skip(test: &str, why: &str) {
    // SAFETY: takes nothing and touches no memory.
    let root = unsafe { libc::geteuid() } == 0;
    let required = root && env::var_os("TIDEGATE_REQUIRE_NETNS").is_some_and(|v| v == "1");
    assert!(!required, "required by TIDEGATE_REQUIRE_NETNS=1: {why}");
    // Not through the test harness, which hides the output of a test that passes.
    let mut terminal = io::stderr();
    writeln!(terminal, "skipped {test}: {why}").unwrap();
}

fn states() -> EventRequest {
    EventRequest {
        events: EventSet::NONE.with(EventKind::State),
        variables: VariableSet::ALL,
    }
}

const ANYTHING: &str = "[[allow]]\neverybody = true\nevents = ['all']\nvariables = ['all']\n";

#[test]
fn several_subscribers_to_several_sockets_get_their_events() {
    let Some(daemon) = Daemon::start("several", ANYTHING) else {
        return;
    };
    let [one, two] = [(); 2].map(|()| Events::connect(&daemon.path).unwrap());
    let ((a, a_peer), (b, b_peer)) = (connection(), connection());
    let a_one = one.subscribe(&a, states()).unwrap();
    let b_one = one.subscribe(&b, EventRequest::default()).unwrap();
    let a_two = two.subscribe(&a, states()).unwrap();
    let again = two.subscribe(&a, states()).unwrap();
    two.cancel(a_two).unwrap();
    assert!(matches!(two.cancel(a_two), Err(EventsError::Refused(_))));
    drop((a_peer, b_peer));
    drop((a, b));
    let mut events_seen: Vec<_> = Vec::new();
    let mut ended = 0;
    while ended < 2 {
        let event = next(&one);
        ended += usize::from(event.what == EventDetails::Ended);
        events_seen.push((event.subscription, event.what.kind()));
    }
    assert!(events_seen.contains(&(a_one, EventKind::State)));
    // Only the end, which every subscriber receives.
    let of_b: Vec<_> = events_seen.iter().filter(|(id, _)| *id == b_one).collect();
    assert_eq!(of_b, [&(b_one, EventKind::Ended)]);
    // An event of another socket follows all of those.
    let (last, last_peer) = connection();
    let last_id = two.subscribe(&last, EventRequest::default()).unwrap();
    drop((last, last_peer));
    let events_seen = std::iter::from_fn(|| Some(next(&two).subscription));
    let events_seen: Vec<_> = events_seen.take_while(|id| *id != last_id).collect();
    assert!(!events_seen.is_empty() && events_seen.iter().all(|id| *id == again));
}

#[test]
fn a_subscription_can_be_changed_and_has_a_tally() {
    let Some(daemon) = Daemon::start("changed", ANYTHING) else {
        return;
    };
    let events = Events::connect(&daemon.path).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let first = listener.accept().unwrap();
    let id = events.subscribe(&socket, EventRequest::default()).unwrap();
    let second = flap(&socket, &listener, 5);
    assert_eq!(events.try_next(), None);
    events.change(id, states()).unwrap();
    let third = flap(&socket, &listener, 5);
    assert_eq!(events.tally(id).unwrap().events, 15);
    let seen: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
    let numbers: Vec<u64> = seen.iter().map(|e| e.number).collect();
    assert_eq!(numbers, (1..=15).collect::<Vec<_>>());
    let closed = TcpState::Closed;
    let ups = seen
        .iter()
        .filter(|e| matches!(e.what, EventDetails::State { to, .. } if to != closed));
    assert_eq!(ups.count(), 10);
    assert!(seen.iter().all(|e| e.state.get(Variable::Mss).is_some()));
    assert_eq!(
        events.probe(&socket).unwrap().get(Variable::Duplicates),
        Some(0)
    );
    drop((first, second, third));
}

#[test]
fn counters_stop_with_the_last_subscription() {
    let Some(daemon) = Daemon::start("counted", ANYTHING) else {
        return;
    };
    let events = Events::connect(&daemon.path).unwrap();
    let (socket, _peer) = connection();
    let acknowledgements = || {
        (&socket).write_all(b"more").unwrap();
        let guard = Instant::now() + GUARD;
        loop {
            let state = events.probe(&socket).unwrap();
            if state.unacknowledged().unwrap().get() == 0 {
                let kinds = [Variable::AcksSlowStart, Variable::AcksAvoidance];
                return kinds.map(|v| state.get(v).unwrap()).iter().sum::<u64>();
            }
            assert!(Instant::now() < guard, "{state:?}");
        }
    };
    let one = events.subscribe(&socket, EventRequest::default()).unwrap();
    let two = events.subscribe(&socket, EventRequest::default()).unwrap();
    assert_eq!([acknowledgements(), acknowledgements()], [1, 2]);
    events.cancel(one).unwrap();
    assert_eq!(acknowledgements(), 3);
    events.cancel(two).unwrap();
    assert_eq!([acknowledgements(), acknowledgements()], [3, 3]);
    events.subscribe(&socket, EventRequest::default()).unwrap();
    assert_eq!(acknowledgements(), 4);
}

#[test]
fn a_client_that_does_not_read_loses_its_own_events_and_knows_how_many() {
    let Some(daemon) = Daemon::start("slow", ANYTHING) else {
        return;
    };
    let slow = Events::connect_with(&daemon.path, 4_096).unwrap();
    let other = Events::connect(&daemon.path).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let first = listener.accept().unwrap();
    let id = slow.subscribe(&socket, states()).unwrap();
    let same = other.subscribe(&socket, states()).unwrap();
    let second = flap(&socket, &listener, 100);
    let tally = slow.tally(id).unwrap();
    assert_eq!(tally.events, 300);
    let read = std::iter::from_fn(|| slow.try_next()).count() as u64;
    assert!(
        read > 0 && read + tally.lost == tally.events,
        "{read} {tally:?}"
    );
    // The ring has room again, and the numbers have a gap.
    let third = flap(&socket, &listener, 1);
    let next = slow.try_next().unwrap();
    assert_eq!(next.number, 301);
    assert_eq!(other.tally(same).unwrap().lost, 0);
    assert_eq!(std::iter::from_fn(|| other.try_next()).count(), 303);
    drop((first, second, third));
}

/// The ring has no room for the event of the end either.
#[test]
fn the_tally_can_be_read_after_the_end() {
    let Some(daemon) = Daemon::start("after", ANYTHING) else {
        return;
    };
    let slow = Events::connect_with(&daemon.path, 4_096).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let first = listener.accept().unwrap();
    let id = slow.subscribe(&socket, states()).unwrap();
    let second = flap(&socket, &listener, 100);
    drop((socket, first, second));
    // Until the daemon has forgotten the subscription.
    let guard = Instant::now() + GUARD;
    while slow.change(id, states()).is_ok() {
        assert!(Instant::now() < guard);
        thread::yield_now();
    }
    let tally = slow.tally(id).unwrap();
    let read = std::iter::from_fn(|| slow.try_next()).count() as u64;
    assert!(tally.lost > 0 && tally.events > 300, "{tally:?}");
    assert_eq!(read + tally.lost, tally.events);
    // It can be read once.
    assert!(slow.tally(id).is_err());
}

#[test]
fn the_policy_is_kept_and_refusals_are_logged() {
    let policy = "[[allow]]\nusers = [0]\nevents = ['state']\nvariables = ['window']\n";
    let Some(daemon) = Daemon::start("policy", policy) else {
        return;
    };
    let events = Events::connect(&daemon.path).unwrap();
    let (socket, peer) = connection();
    let refuse = |wanted| match events.subscribe(&socket, wanted) {
        Err(EventsError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    let timeouts = EventSet::NONE.with(EventKind::Timeout);
    let why = refuse(EventRequest {
        events: timeouts,
        variables: VariableSet::NONE,
    });
    assert!(why.contains("timeout"), "{why}");
    let why = refuse(states());
    assert!(why.contains("srtt") && !why.contains("cwnd"), "{why}");
    assert!(daemon.logged("does not allow this user the events timeout"));
    let wanted = EventRequest {
        events: EventSet::NONE.with(EventKind::State),
        ..events.allowed()
    };
    let id = events.subscribe(&socket, wanted).unwrap();
    let why = events.change(id, states()).unwrap_err().to_string();
    assert!(why.contains("srtt"), "{why}");
    drop((socket, peer));
    let event = next(&events);
    assert!(event.state.get(Variable::Cwnd).is_some());
    assert_eq!(event.state.get(Variable::Srtt), None);
    // It is not in the memory shared with the kernel either.
    assert!(!format!("{:?}", event.state).contains("srtt"));
    let other = as_nobody(|| Events::connect(&daemon.path).unwrap_err());
    assert!(matches!(other, EventsError::NotPermitted), "{other}");
}

/// Runs `job` on a thread of user 65534 without capabilities.
fn as_nobody<T: Send>(job: impl FnOnce() -> T + Send) -> T {
    let change = || {
        // The system calls change this thread only, unlike the functions of the C library.
        // SAFETY: these take numbers, and no groups.
        unsafe {
            let none = std::ptr::null::<u32>();
            assert_eq!(libc::syscall(libc::SYS_setgroups, 0, none), 0);
            for call in [libc::SYS_setresgid, libc::SYS_setresuid] {
                assert_eq!(libc::syscall(call, NOBODY, NOBODY, NOBODY), 0);
            }
        }
        job()
    };
    thread::scope(|scope| scope.spawn(change).join().unwrap())
}

#[test]
fn without_capabilities_the_error_names_them_and_the_unprivileged_mode_works() {
    let Some(daemon) = Daemon::start("rights", ANYTHING) else {
        return;
    };
    as_nobody(|| {
        let error = Events::in_process().unwrap_err().to_string();
        assert!(error.contains("CAP_BPF and CAP_PERFMON"), "{error}");
        // The daemon serves this user.
        let (socket, peer) = connection();
        let events = Events::connect(&daemon.path).unwrap();
        events.subscribe(&socket, EventRequest::ALL).unwrap();
        assert!(events.from_kernel() && events.limited_events().is_empty());
        let weak = Events::unprivileged().unwrap();
        let wanted = EventRequest {
            events: EventSet::ALL,
            ..weak.allowed()
        };
        weak.subscribe(&socket, wanted).unwrap();
        assert!(!weak.from_kernel() && !weak.limited_events().is_empty());
        drop((socket, peer));
        for events in [events, weak] {
            let mut last = next(&events);
            while last.what != EventDetails::Ended {
                last = next(&events);
            }
        }
    });
}

#[test]
fn slots_of_closed_sockets_are_reused() {
    let policy = format!("[limits]\nsubscriptions = 8\n{ANYTHING}");
    let Some(daemon) = Daemon::start("places", &policy) else {
        return;
    };
    let events = Events::connect(&daemon.path).unwrap();
    let guard = Instant::now() + GUARD;
    for _ in 0..2 {
        let sockets: Vec<_> = (0..8).map(|_| connection()).collect();
        for (socket, _) in &sockets {
            // During the cooldown of the slots of the round before.
            while let Err(error) = events.subscribe(socket, EventRequest::default()) {
                assert!(
                    error.to_string().contains("limits.subscriptions"),
                    "{error}"
                );
                assert!(Instant::now() < guard, "{error}");
                thread::yield_now();
            }
        }
        let one_more = events.subscribe(&sockets[0].0, EventRequest::default());
        assert!(one_more.is_err());
    }
}

const NOBODY: libc::c_long = 65_534;

#[test]
fn clients_that_crash_flood_or_send_garbage_harm_no_other() {
    let policy = format!("[limits]\nrequests-per-second = 200\nsubscriptions = 64\n{ANYTHING}");
    let Some(daemon) = Daemon::start("harm", &policy) else {
        return;
    };
    let good = Events::connect(&daemon.path).unwrap();
    let (socket, peer) = connection();
    let id = good.subscribe(&socket, states()).unwrap();
    // A client that sends garbage is disconnected.
    let bad = raw_client(&daemon.path);
    // SAFETY: sends three bytes.
    let sent = unsafe { libc::send(bad.as_raw_fd(), c"xyz".as_ptr().cast(), 3, 0) };
    assert_eq!(sent, 3);
    let mut byte = 0_u8;
    // SAFETY: takes at most one byte.
    let got = unsafe { libc::recv(bad.as_raw_fd(), (&raw mut byte).cast(), 1, 0) };
    assert_eq!(got, 0);
    assert!(daemon.logged("its message is not a valid request"));
    // A flood is delayed, and served in the end.
    let flooder = Events::connect(&daemon.path).unwrap();
    let flooded = flooder.subscribe(&socket, states()).unwrap();
    let start = Instant::now();
    for _ in 0..300 {
        flooder.tally(flooded).unwrap();
    }
    // 198 of the first 200 requests were left; the others are served at 200 per second.
    assert!(
        start.elapsed() >= Duration::from_millis(450),
        "{:?}",
        start.elapsed()
    );
    // After many crashes all slots are free again.
    for _ in 0..3 {
        let many: Vec<_> = (0..8)
            .map(|_| Events::connect(&daemon.path).unwrap())
            .collect();
        let (socket, _peer) = connection();
        let ids: Vec<_> = many
            .iter()
            .map(|e| e.subscribe(&socket, states()))
            .collect();
        assert!(ids.iter().all(Result::is_ok), "{ids:?}");
        let ninth = good.subscribe(&socket, states()).unwrap_err();
        assert!(ninth.to_string().contains("eight subscribers"), "{ninth}");
    }
    drop(peer);
    drop(socket);
    let event = next(&good);
    assert_eq!(event.subscription, id);
}

fn raw_client(path: &Path) -> OwnedFd {
    // SAFETY: takes numbers and touches no memory.
    connect_raw(
        unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0) },
        path,
    )
}

/// Connects a local socket and takes its ownership.
fn connect_raw(fd: i32, path: &Path) -> OwnedFd {
    use std::os::fd::FromRawFd as _;
    let (to, size) = local_address(path);
    // SAFETY: the address is whole and passed with its size.
    unsafe {
        assert_eq!(libc::connect(fd, (&raw const to).cast(), size), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// The address of a local socket, and its size.
fn local_address(path: &Path) -> (libc::sockaddr_un, u32) {
    use std::os::unix::ffi::OsStrExt as _;
    // SAFETY: an address is integers, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let bytes = path.as_os_str().as_bytes();
    for (to, &from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    (address, mem::size_of_val(&address) as u32)
}

#[test]
fn clients_see_the_end_of_the_daemon() {
    let Some(daemon) = Daemon::start("end", ANYTHING) else {
        return;
    };
    let path = daemon.path.clone();
    let events = Events::connect(&path).unwrap();
    let (socket, _peer) = connection();
    events.subscribe(&socket, states()).unwrap();
    let second = Server::new(Policy::root_only(), |_| ())
        .unwrap()
        .listen(&path);
    assert!(
        second
            .unwrap_err()
            .to_string()
            .contains("another daemon serves")
    );
    drop(daemon);
    let end = events.next(Some(GUARD));
    assert!(matches!(end, Err(EventsError::DaemonGone)), "{end:?}");
    assert!(matches!(
        events.subscribe(&socket, states()),
        Err(EventsError::DaemonGone)
    ));
    let nobody = Events::connect(&path).unwrap_err().to_string();
    assert!(nobody.contains("tidegate events serve"), "{nobody}");
}

#[test]
fn events_can_be_awaited() {
    let Some(daemon) = Daemon::start("awaited", ANYTHING) else {
        return;
    };
    let events = Arc::new(Events::connect(&daemon.path).unwrap());
    let (socket, peer) = connection();
    events.subscribe(&socket, EventRequest::default()).unwrap();
    let mut stream = tidegate_kernel::EventStream::new(Arc::clone(&events)).unwrap();
    let closer = thread::spawn(move || drop((peer, socket)));
    let event = block_on(stream.next()).unwrap();
    assert_eq!(event.what, EventDetails::Ended);
    closer.join().unwrap();
}

/// A minimal executor.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        thread::park();
    }
}

/// In a separate process, since dropping privileges cannot be undone.
#[test]
fn rings_can_be_created_after_privileges_are_dropped() {
    if env::var_os(AT).is_none() {
        let mut child = Command::new(env::current_exe().unwrap());
        let name = "rings_can_be_created_after_privileges_are_dropped";
        let child = child
            .args(["--exact", name, "--nocapture"])
            .env(AT, "itself");
        assert!(spawn(child).wait().unwrap().success());
        return;
    }
    let mut server = match Server::new(Policy::everybody(), |_| ()) {
        Ok(server) => server,
        Err(why) => return skip("privileges", &why.to_string()),
    };
    let path = env::temp_dir().join(format!("tg-{}-privileges.sock", std::process::id()));
    server.listen(&path).unwrap();
    let (stop, mut stopper) = io::pipe().unwrap();
    let its_path = path.clone();
    let client = thread::spawn(move || {
        let events = Events::connect(&its_path).unwrap();
        let (socket, peer) = connection();
        events.subscribe(&socket, EventRequest::default()).unwrap();
        drop((socket, peer));
        let end = next(&events);
        assert_eq!(end.what, EventDetails::Ended);
        stopper.write_all(b"!").unwrap();
    });
    server.drop_privileges(Some("nobody")).unwrap();
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    // CAP_BPF is number 39.
    assert_eq!(line("CapPrm:"), format!("{:016x}", 1_u64 << 39));
    for empty in ["CapEff:", "CapBnd:", "CapInh:", "CapAmb:"] {
        assert_eq!(line(empty), "0000000000000000", "{empty}");
    }
    assert_eq!(line("NoNewPrivs:"), "1");
    assert_ne!(line("Uid:"), "0");
    server.run(stop.as_fd()).unwrap();
    client.join().unwrap();
    drop(server);
    let _ = fs::remove_file(path);
}

/// Set in the child process of a test.
const AT: &str = "TIDEGATE_TEST_EVENTS_AT";

/// The refusal arrives even if the daemon closes the connection before it reads the request.
#[test]
fn a_client_beyond_the_limit_gets_the_reason() {
    let policy = format!("[limits]\nclients = 2\n{ANYTHING}");
    let Some(daemon) = Daemon::start("full", &policy) else {
        return;
    };
    let two = [0, 1].map(|_| Events::connect(&daemon.path).unwrap());
    for _ in 0..200 {
        let error = Events::connect(&daemon.path).unwrap_err().to_string();
        assert!(error.contains("raise limits.clients"), "{error}");
    }
    drop(two);
}
