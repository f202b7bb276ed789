//! Closing what clients have handed over, which may take as long as they please.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::passing;
use crate::system::{option, set_option};

/// A descriptor that a client has handed over, to be closed soon: until then it stays open even if
/// its owner closes it. The daemon never waits for that.
#[derive(Debug)]
pub(super) struct Handed(Option<OwnedFd>);

impl Handed {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(Some(fd))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("it is there until the drop").as_fd()
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let Some(fd) = self.0.take() else { return };
        let internet = is_internet(fd.as_fd());
        if internet && !lingers(fd.as_fd()) {
            return;
        }
        let mut queue = queue();
        let room = queue.threads < MOST_THREADS;
        if room && thread::Builder::new().name(NAME.into()).spawn(work).is_ok() {
            queue.threads += 1;
            queue.waiting.push_back(fd);
        } else if internet {
            // Nobody in his senses hands over so many at once: these do not linger.
            drop(queue);
            let at_once = libc::linger {
                l_onoff: 0,
                l_linger: 0,
            };
            let _ = set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &at_once);
        } else {
            // For the next thread that has time.
            queue.waiting.push_back(fd);
        }
    }
}

/// Closes a client's socket. What waits in it may hold descriptors too, which the system would
/// close with it.
pub(super) fn hang_up(socket: OwnedFd) {
    // SAFETY: takes numbers and touches no memory.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RD) };
    // A message may be empty, which looks like the end; this is more than a queue holds.
    for _ in 0..MOST_QUEUED {
        match passing::receive(socket.as_fd(), &mut [0]) {
            Ok(received) => received.along.into_iter().map(Handed::new).for_each(drop),
            Err(_) => break,
        }
    }
    drop(Handed::new(socket));
}

/// Whether it is a socket of the internet, which waits for its own data only. A local one may hold
/// others, and a file system may do as it likes.
fn is_internet(fd: BorrowedFd<'_>) -> bool {
    let domain = option::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_DOMAIN);
    matches!(domain, Ok(libc::AF_INET | libc::AF_INET6))
}

/// Whether closing waits as long as the owner of a socket said, if he has closed it meanwhile.
fn lingers(fd: BorrowedFd<'_>) -> bool {
    let linger = option::<libc::linger>(fd, libc::SOL_SOCKET, libc::SO_LINGER);
    linger.map_or(true, |l| l.l_onoff != 0 && l.l_linger > 0)
}

fn work() {
    loop {
        let mut queue = queue();
        let Some(fd) = queue.waiting.pop_front() else {
            queue.threads -= 1;
            return;
        };
        drop(queue);
        drop(fd);
    }
}

/// Descriptors to be closed, and the threads that do it.
struct Queue {
    waiting: VecDeque<OwnedFd>,
    threads: u32,
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    waiting: VecDeque::new(),
    threads: 0,
});
const MOST_THREADS: u32 = 16;
/// Messages that wait in a socket: the sender's buffer has room for some 280.
const MOST_QUEUED: u32 = 512;
const NAME: &str = "tg-close";
