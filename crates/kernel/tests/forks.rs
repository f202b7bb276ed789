//! An application that forks. Needs the capabilities to load programs.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};
use std::{env, ptr};

use tidegate_kernel::{EventRequest, Events, EventsError, Variable};

/// Counters count each ACK once, even while a forked child has copies of all descriptors. If the
/// child kept the programs attached, earlier and later programs would both count.
#[test]
fn a_child_keeps_no_programs_in_the_kernel() {
    let Some(events) = in_kernel() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let mut acknowledgements = || {
        (&socket).write_all(b"x").unwrap();
        peer.read_exact(&mut [0]).unwrap();
        let guard = Instant::now() + GUARD;
        loop {
            let state = events.probe(&socket).unwrap();
            if state.get(Variable::PacketsOut) == Some(0) {
                let kinds = [Variable::AcksSlowStart, Variable::AcksAvoidance];
                return kinds.map(|v| state.get(v).unwrap()).iter().sum::<u64>();
            }
            assert!(Instant::now() < guard, "{state:?}");
        }
    };
    let first = events.subscribe(&socket, EventRequest::default()).unwrap();
    assert_eq!(acknowledgements(), 1);
    let _child = Child::start();
    events.cancel(first).unwrap();
    assert_eq!(acknowledgements(), 1);
    events.subscribe(&socket, EventRequest::default()).unwrap();
    assert_eq!(acknowledgements(), 2);
}

/// Ends a test that hangs. No result depends on it.
const GUARD: Duration = Duration::from_mins(5);

/// Each source has its own descriptor table, in which the same number may refer to another file.
#[test]
fn sources_that_end_at_the_same_time_close_their_own_descriptors() {
    if in_kernel().is_none() {
        return;
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let events = Events::in_process().unwrap();
                    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                    linger(&socket);
                    events.subscribe(&socket, EventRequest::default()).unwrap();
                    assert!(events.is_serving());
                }
            });
        }
    });
}

/// Makes the close of a socket block for up to a second. No thread waits for it.
fn linger(socket: &TcpStream) {
    let value = libc::linger {
        l_onoff: 1,
        l_linger: 1,
    };
    // SAFETY: the option is whole and passed with its size.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// The source with programs, or `None` if they cannot be loaded and the test is skipped.
fn in_kernel() -> Option<Events> {
    match Events::in_process() {
        Ok(events) => Some(events),
        Err(EventsError::Load(why)) => {
            // SAFETY: takes nothing and touches no memory.
            let root = unsafe { libc::geteuid() } == 0;
            let must = root && env::var_os("TIDEGATE_REQUIRE_NETNS").is_some_and(|v| v == "1");
            assert!(!must, "required by TIDEGATE_REQUIRE_NETNS=1: {why}");
            println!("skipped: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// A forked child that executes no program and waits until this is dropped.
struct Child {
    number: libc::pid_t,
    stay: Option<io::PipeWriter>,
}

impl Child {
    fn start() -> Self {
        let (wait, stay) = io::pipe().unwrap();
        let mut byte = 0_u8;
        // SAFETY: the child makes system calls only. `read` writes one byte of its own memory.
        let number = unsafe {
            let number = libc::fork();
            if number == 0 {
                libc::close(stay.as_raw_fd());
                libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1);
                libc::_exit(0);
            }
            number
        };
        assert!(number > 0, "{}", io::Error::last_os_error());
        Self {
            number,
            stay: Some(stay),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.stay.take());
        // SAFETY: waits for the child and takes no status.
        unsafe { libc::waitpid(self.number, ptr::null_mut(), 0) };
    }
}
