//! Handlers that modify their own registrations. Unprivileged, so that the tests run everywhere.

use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tidegate_kernel::{
    EventDetails, EventKind, EventRequest, EventSet, Events, Executable, Handler, Handlers,
};

fn handlers() -> Arc<Handlers> {
    Arc::new(Handlers::start(Events::unprivileged().unwrap()).unwrap())
}

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

fn states() -> EventRequest {
    EventRequest {
        events: EventSet::NONE.with(EventKind::State),
        ..EventRequest::default()
    }
}

fn shut(stream: &TcpStream) {
    stream.shutdown(std::net::Shutdown::Write).unwrap();
}

/// The next message. A deadlock ends in a time-out instead.
fn next<T>(from: &Receiver<T>) -> T {
    from.recv_timeout(GUARD).unwrap()
}

#[test]
fn a_handler_binds_cancels_and_sets_callbacks() {
    let handlers = handlers();
    let (socket, _peer) = connection();
    let (other, its_peer) = connection();
    let other = Arc::new(other);
    let (send, receive) = mpsc::channel();
    let (send_end, receive_end) = mpsc::channel();
    let (inner, kept) = (Arc::downgrade(&handlers), Arc::clone(&other));
    let call = Handler::Call(Box::new(move |event| {
        let handlers = inner.upgrade().unwrap();
        handlers.on_report(|_| ());
        handlers.on_end(|_| ());
        let send_end = send_end.clone();
        let again = Handler::Call(Box::new(move |event| send_end.send(event.what).unwrap()));
        let bound = handlers.bind(&*kept, states(), again).unwrap();
        handlers.change(event.subscription, states()).unwrap();
        handlers.cancel(event.subscription).unwrap();
        let is_gone = handlers.cancel(event.subscription).is_err();
        send.send((event.what.kind(), bound, is_gone)).unwrap();
    }));
    handlers.bind(&socket, states(), call).unwrap();
    shut(&socket);
    let (kind, _, is_gone) = next(&receive);
    assert_eq!((kind, is_gone), (EventKind::State, true));
    // The new binding is served, and the cancelled one is not.
    shut(&other);
    assert!(matches!(next(&receive_end), EventDetails::State { .. }));
    drop((socket, other, its_peer));
    let end = receive.recv_timeout(GUARD);
    assert_eq!(end, Err(RecvTimeoutError::Disconnected), "it was cancelled");
}

#[test]
fn a_slow_handler_delays_neither_other_threads_nor_programs() {
    let handlers = handlers();
    let (socket, _peer) = connection();
    let (other, _its_peer) = connection();
    let (report, reports) = mpsc::channel();
    handlers.on_report(move |r| report.send(r.to_string()).unwrap());
    let hangs = Executable {
        arguments: vec!["-c".into(), "sleep 600".into()],
        limit: Duration::from_millis(100),
        ..Executable::new("/bin/sh")
    };
    handlers
        .bind(&socket, states(), Handler::Run(hangs))
        .unwrap();
    let (begin, begun) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let slow = Handler::Call(Box::new(move |_| {
        begin.send(()).unwrap();
        wait.recv().unwrap();
    }));
    let slow = handlers.bind(&socket, states(), slow).unwrap();
    shut(&socket);
    next(&begun);
    let id = handlers
        .bind(&other, states(), Handler::Call(Box::new(|_| ())))
        .unwrap();
    handlers.cancel(id).unwrap();
    handlers.cancel(slow).unwrap();
    let killed = next(&reports);
    assert!(killed.contains("killed after 100 ms"), "{killed}");
    // The message names the limit in Rust and in C.
    assert!(killed.contains("`limit`, in C `limit_ms`"), "{killed}");
    go.send(()).unwrap();
}

/// A handler may be the last owner of its handlers.
#[test]
fn handlers_may_be_dropped_by_a_handler() {
    let handlers = handlers();
    let (socket, _peer) = connection();
    let (send, receive) = mpsc::channel();
    let place = Arc::new(Mutex::new(None));
    let its_place: Weak<Mutex<Option<Arc<Handlers>>>> = Arc::downgrade(&place);
    let call = Handler::Call(Box::new(move |_| {
        drop(its_place.upgrade().unwrap().lock().unwrap().take());
        send.send(()).unwrap();
    }));
    handlers.bind(&socket, states(), call).unwrap();
    let watch = Arc::downgrade(&handlers);
    *place.lock().unwrap() = Some(handlers);
    shut(&socket);
    next(&receive);
    assert!(watch.upgrade().is_none());
    // The handler is dropped with its thread.
    let end = Instant::now() + GUARD;
    while receive.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
        assert!(Instant::now() < end, "the thread does not end");
        std::thread::yield_now();
    }
}

/// Ends a test that hangs. No result depends on it.
const GUARD: Duration = Duration::from_mins(5);
