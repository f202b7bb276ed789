//! SIGHUP of `tidegate events serve` reads the policy again. Skipped without root, with a message.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

#[expect(dead_code, reason = "the other tests use the rest")]
mod daemon;

use std::net::{TcpListener, TcpStream};

use daemon::{ANYTHING, Daemon, chmod, policy_file};
use program::GUARD;
use tidegate_kernel::{EventDetails, EventRequest, Events, EventsError, Variable, VariableSet};

const STATE: &str = "[[allow]]\neverybody = true\nevents = ['timeout']\nvariables = ['srtt']\n";

/// Both ends of a connection over the loopback interface.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Writes the policy, sends SIGHUP, and waits for a line.
fn reload(daemon: &mut Daemon, policy: &str, line: &str) -> String {
    policy_file(&daemon.scratch, policy);
    hang_up(daemon, line)
}

fn hang_up(daemon: &mut Daemon, line: &str) -> String {
    let id = libc::pid_t::try_from(daemon.program.id()).unwrap();
    // SAFETY: a system call that takes numbers. The child has not been waited for, so the id is its
    // own.
    assert_eq!(unsafe { libc::kill(id, libc::SIGHUP) }, 0);
    daemon.program.wait_for_line(line)
}

const READ: &str = "is read again and applies";
const KEPT: &str = "the policy is unchanged: ";

#[test]
fn standing_subscriptions_lose_what_a_new_policy_does_not_allow() {
    let Some(mut daemon) = Daemon::start("narrow", ANYTHING, "") else {
        return;
    };
    let events = Events::connect(&daemon.socket()).unwrap();
    let (socket, peer) = connection();
    let id = events.subscribe(&socket, EventRequest::ALL).unwrap();
    reload(&mut daemon, STATE, READ);
    // New requests of a client that was connected before.
    let error = events.subscribe(&socket, EventRequest::ALL).unwrap_err();
    let EventsError::Refused(why) = error else {
        panic!("{error}");
    };
    assert!(why.contains("does not allow this user the events"), "{why}");
    // Without the reload the changes of state precede the end.
    drop((socket, peer));
    let event = events.next(Some(GUARD)).unwrap().unwrap();
    assert_eq!((event.subscription, event.what), (id, EventDetails::Ended));
    let known: Vec<_> = event.state.known().iter().map(Variable::name).collect();
    assert!(known.iter().all(|name| *name == "srtt"), "{known:?}");
    // A policy that allows more again gives the next requests more.
    reload(&mut daemon, ANYTHING, READ);
    let (socket, peer) = connection();
    events.subscribe(&socket, EventRequest::ALL).unwrap();
    drop((socket, peer));
    let event = events.next(Some(GUARD)).unwrap().unwrap();
    assert_ne!(event.what, EventDetails::Ended);
    assert_ne!(event.state.known(), VariableSet::NONE);
    daemon.interrupted();
}

#[test]
fn an_invalid_policy_keeps_the_old_one() {
    let Some(mut daemon) = Daemon::start("kept", ANYTHING, "") else {
        return;
    };
    let events = Events::connect(&daemon.socket()).unwrap();
    let (socket, _peer) = connection();
    let line = reload(&mut daemon, "[limits]\nclients = 0\n", KEPT);
    assert!(line.contains("line 2: limits.clients = 0"), "{line}");
    events.subscribe(&socket, EventRequest::ALL).unwrap();
    // Others may have written to it.
    let file = policy_file(&daemon.scratch, STATE);
    chmod(&file, 0o666);
    let line = hang_up(&mut daemon, KEPT);
    assert!(line.contains("write to the file"), "{line}");
    events.subscribe(&socket, EventRequest::ALL).unwrap();
    chmod(&file, 0o644);
    hang_up(&mut daemon, READ);
    assert!(events.subscribe(&socket, EventRequest::ALL).is_err());
    daemon.interrupted();
}

#[test]
fn clients_without_any_right_are_disconnected() {
    let Some(mut daemon) = Daemon::start("barred", ANYTHING, "") else {
        return;
    };
    let events = Events::connect(&daemon.socket()).unwrap();
    reload(
        &mut daemon,
        "",
        "leaves: the new policy allows this user nothing",
    );
    let end = events.next(Some(GUARD));
    assert!(matches!(end, Err(EventsError::DaemonGone)), "{end:?}");
    let error = Events::connect(&daemon.socket()).unwrap_err();
    assert!(matches!(error, EventsError::NotPermitted), "{error}");
    daemon.interrupted();
}

#[test]
fn limits_of_a_new_policy_apply_apart_from_the_sizes_of_maps() {
    let Some(mut daemon) = Daemon::start("relimited", ANYTHING, "") else {
        return;
    };
    let events = Events::connect(&daemon.socket()).unwrap();
    let (socket, _peer) = connection();
    let one = format!("{ANYTHING}[limits]\nsubscriptions-per-client = 1\nclients = 8\n");
    reload(
        &mut daemon,
        &one,
        "limits.clients and limits.subscriptions keep their values",
    );
    events.subscribe(&socket, EventRequest::ALL).unwrap();
    let why = events.subscribe(&socket, EventRequest::ALL).unwrap_err();
    assert!(why.to_string().contains("1 subscriptions already"), "{why}");
    daemon.interrupted();
}

/// The terminal of a daemon may be closed.
#[test]
fn a_daemon_without_a_policy_file_survives_a_hangup() {
    if daemon::is_without_rights("hangup") {
        return;
    }
    let scratch = program::Scratch::new("hangup");
    let socket = daemon::socket(&scratch);
    let line = format!("events serve --socket {}", program::text(&socket));
    let mut program = program::Program::tidegate(&line);
    program.wait_for_line("events: serving at");
    let mut daemon = Daemon { scratch, program };
    hang_up(&mut daemon, "SIGHUP: there is no policy file");
    Events::connect(&daemon.socket()).unwrap();
    daemon.interrupted();
}
