//! Closing what clients have handed over, which may take as long as they please.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
        let shared = QUEUE.with(Arc::clone);
        let its = Arc::clone(&shared);
        let mut queue = lock(&shared);
        let room = queue.threads < MOST_THREADS;
        let new = || thread::Builder::new().name(NAME.into());
        if room && new().spawn(move || work(&its)).is_ok() {
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

fn work(shared: &Mutex<Queue>) {
    loop {
        let mut queue = lock(shared);
        let Some(fd) = queue.waiting.pop_front() else {
            queue.threads -= 1;
            return;
        };
        drop(queue);
        drop(fd);
    }
}

/// Descriptors to be closed, and the threads that do it.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<OwnedFd>,
    threads: u32,
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Of the thread of a server, and of those that it starts: servers in one process may each have
    /// descriptors of their own, and a number is another file's in those of another.
    static QUEUE: Arc<Mutex<Queue>> = Arc::default();
}
const MOST_THREADS: u32 = 16;
/// Messages that wait in a socket: the sender's buffer has room for some 280.
const MOST_QUEUED: u32 = 512;
const NAME: &str = "tg-close";
