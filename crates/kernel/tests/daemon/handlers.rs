//! Callbacks, programs, signals and probes.

use std::io::Read as _;
use std::os::fd::FromRawFd as _;

use super::*;

#[test]
fn handlers_programs_and_signals_are_served() {
    let Some(daemon) = Daemon::start("handlers", ANYTHING) else {
        return;
    };
    let handlers = Handlers::start(Events::connect(&daemon.path).unwrap()).unwrap();
    let seen: Arc<Mutex<Vec<EventDetails>>> = Arc::default();
    let reports: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&reports);
    handlers.on_report(move |report| sink.lock().unwrap().push(report.to_string()));
    let (socket, peer) = connection();
    let its = Arc::clone(&seen);
    let call = Handler::Call(Box::new(move |event| its.lock().unwrap().push(event.what)));
    handlers.bind(&socket, states(), call).unwrap();
    // A program that writes its arguments, one that fails, one that hangs, and one that does not
    // exist.
    let notes = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tware.txt");
    let _ = fs::remove_file(&notes);
    let script = format!(
        "echo \"$1 $2 $3 $TIDEGATE_EVENT $TIDEGATE_CWND\" $(readlink /proc/self/fd/3) >> {}",
        notes.display()
    );
    let shell = |script: &str| Executable {
        arguments: vec!["-c".into(), script.into(), "tware".into()],
        limit: GUARD,
        ..Executable::new("/bin/sh")
    };
    let hangs = Executable {
        limit: Duration::from_millis(300),
        ..shell("sleep 600")
    };
    let writer = Handler::Run(shell(&script));
    handlers.bind(&socket, states(), writer).unwrap();
    for program in [shell("exit 7"), hangs, Executable::new("/no/such/program")] {
        let ends = EventRequest {
            events: EventSet::NONE,
            variables: VariableSet::ALL,
        };
        handlers.bind(&socket, ends, Handler::Run(program)).unwrap();
    }
    let signalled = Arc::new(Events::connect(&daemon.path).unwrap());
    signalled.subscribe(&socket, states()).unwrap();
    let shut = || socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(wait_for_signal(&signalled, shut), libc::SIGIO);
    assert!(signalled.try_next().is_some());
    // The program starts while the socket is open, and inherits it.
    let guard = Instant::now() + GUARD;
    while !fs::read_to_string(&notes).is_ok_and(|n| n.ends_with('\n')) {
        assert!(Instant::now() < guard, "the program wrote nothing");
        thread::yield_now();
    }
    drop((socket, peer));
    while reports.lock().unwrap().len() < 3 {
        assert!(Instant::now() < guard, "{:?}", reports.lock().unwrap());
        thread::yield_now();
    }
    let reports = reports.lock().unwrap().join("\n");
    for word in [
        "failed (exit status: 7)",
        "killed after 300 ms",
        "/no/such/program",
    ] {
        assert!(reports.contains(word), "{reports}");
    }
    assert_eq!(seen.lock().unwrap().last(), Some(&EventDetails::Ended));
    let note = fs::read_to_string(&notes).unwrap();
    let words: Vec<&str> = note.split_whitespace().collect();
    assert_eq!((words[0], words[1], words[3]), ("3", "state", "state"));
    assert!(words[2].parse::<u64>().is_ok_and(|ns| ns > 0), "{note}");
    assert!(words[4].parse::<u64>().is_ok_and(|cwnd| cwnd > 0), "{note}");
    assert!(words[5].starts_with("socket:"), "{note}");
}

/// In a separate process, whose standard input becomes another file.
#[test]
fn a_program_inherits_its_socket_from_any_descriptor() {
    if descriptors::is_parent("handlers::a_program_inherits_its_socket_from_any_descriptor") {
        return;
    }
    let handlers = Handlers::start(Events::unprivileged().unwrap()).unwrap();
    let (socket, mut peer) = connection();
    // SAFETY: both are open, and no other code uses the second.
    assert_eq!(unsafe { libc::dup2(socket.as_raw_fd(), 0) }, 0);
    let echo = Executable {
        arguments: vec!["-c".into(), "echo here >&$1".into(), "tware".into()],
        ..Executable::new("/bin/sh")
    };
    handlers
        .bind(io::stdin(), states(), Handler::Run(echo))
        .unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    peer.set_read_timeout(Some(GUARD)).unwrap();
    let mut said = [0; 5];
    peer.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"here\n");
}

/// If the standard descriptors are closed, files that are opened to start a program take their
/// numbers and that of the socket. Their data must not go into the stream.
#[test]
fn a_missing_program_writes_nothing_to_the_socket() {
    if descriptors::is_parent("handlers::a_missing_program_writes_nothing_to_the_socket") {
        return;
    }
    // SAFETY: takes numbers and touches no memory.
    let copy = |fd| unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 100) };
    let (ours, mut peer) = connection();
    // SAFETY: the descriptor is new, so it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(copy(ours.as_raw_fd())) };
    drop(ours);
    // Number 3 stays occupied until then.
    // SAFETY: takes numbers and touches no memory.
    assert_eq!(unsafe { libc::dup2(0, 3) }, 3);
    let handlers = Handlers::start(Events::unprivileged().unwrap()).unwrap();
    let (report, reports) = mpsc::channel();
    handlers.on_report(move |r| report.send(r.to_string()).unwrap());
    // A thread that has reported an event opens no more files.
    let (other, its_peer) = connection();
    let (sender, receiver) = mpsc::channel();
    let call = Handler::Call(Box::new(move |event| sender.send(event.what).unwrap()));
    handlers
        .bind(&other, EventRequest::default(), call)
        .unwrap();
    drop((other, its_peer));
    let end = receiver.recv_timeout(GUARD);
    assert_eq!(end, Ok(EventDetails::Ended));
    let missing = Handler::Run(Executable::new("/no/such/program"));
    handlers.bind(&socket, states(), missing).unwrap();
    let kept = [0, 2].map(|fd| (fd, copy(fd)));
    for fd in [0, 2, 3] {
        // SAFETY: no code uses them until they are restored.
        assert_eq!(unsafe { libc::close(fd) }, 0);
    }
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    let result = reports.recv_timeout(GUARD);
    for (fd, copy) in kept {
        // SAFETY: the copy is open.
        assert_eq!(unsafe { libc::dup2(copy, fd) }, fd);
    }
    assert!(result.unwrap().contains("cannot be started"));
    drop((handlers, socket));
    let mut said = Vec::new();
    peer.read_to_end(&mut said).unwrap();
    assert!(said.is_empty(), "{said:?}");
}

/// The policy of events applies to probes as well.
#[test]
fn the_policy_holds_for_probes() {
    let policy = "[[allow]]\neverybody = true\nevents = ['all']\nvariables = ['paper', 'rate']\n";
    let Some(daemon) = Daemon::start("probes", policy) else {
        return;
    };
    let events = Events::connect(&daemon.path).unwrap();
    let (socket, _peer) = connection();
    let allowed = events.allowed();
    events.subscribe(&socket, allowed).unwrap();
    let state = events.probe(&socket).unwrap();
    assert_eq!(state.known(), state.known().and(allowed.variables));
    assert_eq!(state.get(Variable::MinRtt), None);
    assert!(state.get(Variable::Cwnd).is_some_and(|cwnd| cwnd > 0));
    // The sequence numbers count from zero.
    assert!(state.get(Variable::SndUna).is_some());
    assert_eq!(state.initial_sequence(), None);
    let log = daemon.wait();
    let refused = log.iter().any(|l| l.contains("refused"));
    assert!(!refused, "counters were requested");
}

/// Programs that hang are still killed afterwards.
#[test]
fn handlers_and_signals_report_the_end_of_the_daemon() {
    let Some(daemon) = Daemon::start("goodbye", ANYTHING) else {
        return;
    };
    let handlers = Handlers::start(Events::connect(&daemon.path).unwrap()).unwrap();
    let (end, ended) = mpsc::channel();
    let its_end = end.clone();
    handlers.on_end(move |why| its_end.send(why.to_string()).unwrap());
    let (report, reports) = mpsc::channel();
    handlers.on_report(move |r| report.send(r.to_string()).unwrap());
    let (socket, _peer) = connection();
    let hangs = Executable {
        arguments: vec!["-c".into(), "sleep 600".into()],
        limit: Duration::from_millis(500),
        ..Executable::new("/bin/sh")
    };
    handlers
        .bind(&socket, states(), Handler::Run(hangs))
        .unwrap();
    let (begin, begun) = mpsc::channel();
    let call = Handler::Call(Box::new(move |_| begin.send(()).unwrap()));
    handlers.bind(&socket, states(), call).unwrap();
    let events = Arc::new(Events::connect(&daemon.path).unwrap());
    assert!(handlers.are_serving() && events.is_serving());
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    begun.recv_timeout(GUARD).unwrap();
    assert_eq!(wait_for_signal(&events, || drop(daemon)), libc::SIGIO);
    assert!(!events.is_serving());
    assert!(matches!(
        events.next(Some(Duration::ZERO)),
        Err(EventsError::DaemonGone)
    ));
    let why = ended.recv_timeout(GUARD).unwrap();
    assert!(why.contains("daemon is gone"), "{why}");
    assert!(!handlers.are_serving());
    // A later callback is called, too.
    handlers.on_end(move |why| end.send(why.to_string()).unwrap());
    assert_eq!(ended.try_recv(), Ok(why));
    let killed = reports.recv_timeout(GUARD).unwrap();
    assert!(killed.contains("killed after 500 ms"), "{killed}");
}

/// Takes the signal with `sigtimedwait`, as the programs of the papers do.
fn wait_for_signal(events: &Arc<Events>, cause: impl FnOnce()) -> i32 {
    // SAFETY: the set and the time are initialised before use.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGIO);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        let signals = Signals::to_this_thread(Arc::clone(events), libc::SIGIO).unwrap();
        cause();
        let limit = libc::timespec {
            tv_sec: GUARD.as_secs() as libc::time_t,
            tv_nsec: 0,
        };
        let signal = libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const limit);
        drop(signals);
        signal
    }
}
