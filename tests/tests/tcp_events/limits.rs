//! Phases: limits of a sender by the network, the application, the send buffer or the receiver.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::mpsc;

use super::*;
use tidegate_core::units::Bytes;
use tidegate_kernel::Phase;

/// A connection over a path without losses, and its events.
struct Limited<'a> {
    events: &'a Events,
    sender: TcpStream,
    receiver: TcpStream,
    _emulator: Emulator,
}

impl<'a> Limited<'a> {
    /// With buffers of the given sizes.
    fn start(events: &'a Events, send: Option<i32>, receive: Option<i32>) -> Self {
        let emulator = Emulator::start(&path(LossConfig::NONE, Vec::new())).unwrap();
        let listen = || TcpListener::bind((Host::B.address(), PORT)).unwrap();
        let listener = emulator.namespace(Host::B).within(listen).unwrap();
        if let Some(room) = receive {
            buffer(&listener, libc::SO_RCVBUF, room);
        }
        let connect = || TcpStream::connect((Host::B.address(), PORT)).unwrap();
        let sender = emulator.namespace(Host::A).within(connect).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        if let Some(room) = send {
            buffer(&sender, libc::SO_SNDBUF, room);
        }
        set_congestion_control(&sender, "reno").unwrap();
        let wanted = EventRequest {
            events: EventSet::NONE.with(EventKind::Phase),
            ..EventRequest::ALL
        };
        events.subscribe(&sender, wanted).unwrap();
        Self {
            events,
            sender,
            receiver,
            _emulator: emulator,
        }
    }

    /// Writes `bytes` bytes at once. The receiver reads at once or after the event of `limit`.
    /// Returns the events up to that one.
    fn send(&self, bytes: usize, limit: Phase, at_once: bool) -> Vec<Event> {
        let (go, wait) = mpsc::channel();
        // Dropping the sender on a failure ends the threads.
        thread::scope(move |scope| {
            scope.spawn(move || (&self.sender).write_all(&vec![0; bytes]).unwrap());
            scope.spawn(move || {
                let _ = wait.recv();
                (&self.receiver).read_exact(&mut vec![0; bytes]).unwrap();
            });
            if at_once {
                go.send(()).unwrap();
            }
            let seen = self.until(limit);
            // An error if the receiver reads already.
            let _ = go.send(());
            seen
        })
    }

    /// All events up to a change to `limit`.
    fn until(&self, limit: Phase) -> Vec<Event> {
        let mut seen: Vec<Event> = Vec::new();
        loop {
            let next = self.events.next(Some(GUARD)).unwrap();
            seen.extend(Some(
                next.unwrap_or_else(|| panic!("no {limit} in {seen:?}")),
            ));
            let last = seen.last().map(|event| event.what);
            if let Some(EventDetails::Phase { to, .. }) = last
                && to == limit
            {
                coherent(&seen);
                return seen;
            }
        }
    }
}

/// Checks that each change starts from the previous phase, is counted, and is at least a
/// millisecond later.
fn coherent(seen: &[Event]) {
    let mut now = None;
    for (number, event) in (1..).zip(seen) {
        let EventDetails::Phase { from, to } = event.what else {
            panic!("{event:?}");
        };
        assert_eq!(from, now, "{seen:?}");
        assert_ne!(from, Some(to), "{seen:?}");
        now = Some(to);
        assert_eq!(event.state.get(Variable::PhaseChanges), Some(number));
    }
    let least = Duration::from_millis(1);
    assert!(seen.windows(2).all(|w| w[1].time >= w[0].time + least));
}

fn buffer(socket: &impl std::os::fd::AsFd, which: libc::c_int, room: i32) {
    // SAFETY: the size is initialised and passed with its size.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            which,
            (&raw const room).cast(),
            4,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Requests with one reply at a time leave the window mostly empty.
#[test]
fn a_slow_application_limits_the_sender() {
    judged_in_lab("limits::a_slow_application_limits_the_sender", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        let limited = Limited::start(&events, None, None);
        for _ in 0..3 {
            (&limited.sender).write_all(&[0; 1_000]).unwrap();
            (&limited.receiver).read_exact(&mut [0; 1_000]).unwrap();
        }
        let seen = limited.until(Phase::Application);
        let state = &seen.last().unwrap().state;
        assert_eq!(state.unsent(), Some(Bytes(0)), "{seen:?}");
        assert!(state.unacknowledged() < state.cwnd(), "{seen:?}");
    });
}

/// More data than fits into the window.
#[test]
fn a_full_window_is_limited_by_the_network() {
    judged_in_lab("limits::a_full_window_is_limited_by_the_network", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        let limited = Limited::start(&events, None, None);
        let seen = limited.send(1_000_000, Phase::Network, true);
        let state = &seen.last().unwrap().state;
        assert!(state.unsent() > Some(Bytes(0)), "{seen:?}");
    });
}

/// All data of the send buffer is in flight, and the window allows more.
#[test]
fn a_small_send_buffer_limits_the_sender() {
    judged_in_lab("limits::a_small_send_buffer_limits_the_sender", || {
        let Some((events, _alone)) = in_kernel() else {
            return;
        };
        let limited = Limited::start(&events, Some(4_096), None);
        let seen = limited.send(2_000_000, Phase::SendBuffer, true);
        let state = &seen.last().unwrap().state;
        assert_eq!(state.get(Variable::SendBuffer), Some(8_192));
        assert!(state.unacknowledged() < state.cwnd(), "{seen:?}");
    });
}

/// The receiver reads after the sender has reported this limit.
#[test]
fn a_receiver_that_does_not_read_limits_the_sender() {
    judged_in_lab(
        "limits::a_receiver_that_does_not_read_limits_the_sender",
        || {
            let Some((events, _alone)) = in_kernel() else {
                return;
            };
            let limited = Limited::start(&events, None, Some(8_192));
            let seen = limited.send(200_000, Phase::Receiver, false);
            let state = &seen.last().unwrap().state;
            assert!(state.unsent() > Some(Bytes(0)), "{seen:?}");
            let window = state.get(Variable::SendWindow).unwrap();
            let mss = state.get(Variable::Mss).unwrap();
            let out = state.unacknowledged().unwrap().get();
            assert!(window < out + mss, "{seen:?}");
        },
    );
}
