//! Retransmission time-outs that do not double.
//!
//! No option asks Linux for that, but two of its rules together give it. When the retransmission
//! timer is set after a time-out, it runs no longer than until the *user timeout* has passed since the
//! first retransmission (`tcp_clamp_rto_to_user_timeout`, Linux 4.19). And when it runs out, the
//! connection is given up if the user timeout has passed by then. So a thread sets the user timeout a
//! moment before the timer runs out, to when it is to run out after that, and takes it back as soon as
//! it has: each time-out then finds the length that was meant for the next one, and none finds that it
//! has passed.
//!
//! A thread that is kept from running for a sixth of a second at just that moment, and so over the next
//! time-out, loses the connection. It does nothing else, so that neither an encoder nor a disk can keep
//! it, and goes before ordinary threads where it may; a machine that stands still in the middle of an
//! outage can keep it, or a quota of processor time. Where it was kept for a shorter time lately, it
//! lets time-outs double.

mod schedule;

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use super::socket::{PATIENCE, TCP_RTO_MAX_MS, set};
use crate::netns::check;
use crate::realtime;
use schedule::{Glance, LATE, Order, Schedule};

/// Keeps the time-outs of one socket as they are, for as long as this lives.
#[derive(Debug)]
pub(super) struct LinearTimeouts {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread knows, for others. Times are in nanoseconds since `epoch`.
#[derive(Debug)]
struct Shared {
    epoch: Instant,
    stop: AtomicBool,
    /// When the timer runs out next; zero while it has not yet.
    next: AtomicU64,
    /// From then to the next.
    gap: AtomicU64,
}

impl LinearTimeouts {
    /// # Errors
    /// The socket is none, or the system gives no thread.
    pub(super) fn start(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let socket = socket.try_clone_to_owned()?;
        let usual = get(socket.as_raw_fd(), libc::TCP_USER_TIMEOUT)?;
        let rto_max = get(socket.as_raw_fd(), TCP_RTO_MAX_MS).ok();
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            stop: AtomicBool::new(false),
            next: AtomicU64::new(0),
            gap: AtomicU64::new(0),
        });
        let own = Arc::clone(&shared);
        let keeper = Keeper {
            socket,
            usual,
            rto_max,
        };
        let keeper = move || keeper.run(&own);
        let thread = thread::Builder::new().name("time-outs".to_owned());
        Ok(Self {
            shared,
            thread: Some(thread.spawn(keeper)?),
        })
    }

    /// How long until the timer runs out next, once it has; as far as is known.
    pub(super) fn until_next(&self) -> Option<Duration> {
        let next = self.shared.next.load(Ordering::Relaxed);
        let gap = self.shared.gap.load(Ordering::Relaxed).max(1);
        let now = self.shared.now().as_nanos() as u64;
        // Timers are late, and who asks may have heard of a time-out sooner than the thread.
        let late = LATE.as_nanos() as u64;
        let missed = now.saturating_sub(next + late).div_ceil(gap);
        (next > 0).then(|| Duration::from_nanos((next + missed * gap).saturating_sub(now)))
    }
}

impl Drop for LinearTimeouts {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It cannot fail but by a panic, which has been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }
}

/// The thread.
struct Keeper {
    socket: OwnedFd,
    /// The user timeout that the socket had before, in milliseconds; zero for the system's.
    usual: u32,
    /// Its longest time-out, in milliseconds; none on a kernel that has no such option.
    rto_max: Option<u32>,
}

impl Keeper {
    fn run(&self, shared: &Shared) {
        // Not to be granted it is no reason to do without.
        let _ = realtime::ask(PRIORITY);
        let mut schedule = Schedule::default();
        let mut asked_for = shared.now();
        while !shared.stop.load(Ordering::Relaxed) {
            let late = shared.now().saturating_sub(asked_for);
            let Ok(glance) = self.glance(shared, late) else {
                break;
            };
            if let Some(order) = schedule.on_glance(&glance) {
                self.obey(order);
                self.cap(schedule.is_on().then(|| schedule.base()));
            }
            let next = schedule.next().map_or(0, |at| at.as_nanos() as u64);
            shared.next.store(next, Ordering::Relaxed);
            let gap = schedule.gap().as_nanos() as u64;
            shared.gap.store(gap, Ordering::Relaxed);
            let now = shared.now();
            asked_for = schedule.wake(now);
            thread::park_timeout(asked_for.saturating_sub(now));
        }
        self.obey(Order::Restore);
        self.cap(None);
    }

    fn glance(&self, shared: &Shared, late: Duration) -> io::Result<Glance> {
        // SAFETY: numbers all, for which zero is valid.
        let mut info: libc::tcp_info = unsafe { mem::zeroed() };
        let mut size = mem::size_of_val(&info) as libc::socklen_t;
        // Before, so that nothing was sent again between this and the look.
        let at = shared.now();
        // SAFETY: `info` is passed with its size.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut size,
            )
        })?;
        let since_sent = Duration::from_millis(info.tcpi_last_data_sent.into());
        Ok(Glance {
            at,
            late,
            clean: info.tcpi_ca_state == OPEN && info.tcpi_retrans == 0,
            in_a_row: info.tcpi_retransmits,
            sent_again: info.tcpi_total_retrans,
            rto: Duration::from_micros(info.tcpi_rto.into()),
            sent: at.saturating_sub(since_sent),
        })
    }

    /// A socket that takes no option any more is gone, which the next glance shows.
    fn obey(&self, order: Order) {
        // Without any limit the system's patience would be that of the longest time-out of
        // [`cap`](Self::cap), 14.4 s.
        let longest = if self.usual == 0 {
            PATIENCE
        } else {
            self.usual
        };
        let ms = match order {
            Order::Restore => self.usual,
            Order::TakeBack => longest,
            Order::Limit(span) => {
                u32::try_from(span.as_millis()).map_or(longest, |ms| ms.min(longest))
            }
        };
        let _ = set(
            self.socket.as_raw_fd(),
            libc::TCP_USER_TIMEOUT,
            &ms.to_ne_bytes(),
        );
    }

    /// Behind all this the kernel's own time-out goes on doubling, up to two minutes, and is what counts
    /// if the thread comes too late once. Where it can be told to stop at a second, or at `base` if that
    /// is longer, it is; without a base it is as it was.
    fn cap(&self, base: Option<Duration>) {
        let Some(usual) = self.rto_max else {
            return;
        };
        let least = base.map(|base| u32::try_from(base.as_millis()).unwrap_or(usual));
        let ms = least.map_or(usual, |ms| ms.max(SHORTEST_CAP).min(usual));
        let _ = set(self.socket.as_raw_fd(), TCP_RTO_MAX_MS, &ms.to_ne_bytes());
    }
}

fn get(fd: RawFd, option: libc::c_int) -> io::Result<u32> {
    let mut value = 0_u32;
    let mut size = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is passed with its size.
    check(unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            option,
            (&raw mut value).cast(),
            &raw mut size,
        )
    })?;
    Ok(value)
}

/// `TCP_CA_Open` of the kernel: nothing is missing.
const OPEN: u8 = 0;
/// Above ordinary threads, below all others with real-time priority.
const PRIORITY: libc::c_int = 1;
/// The least that the kernel takes, in milliseconds.
const SHORTEST_CAP: u32 = 1_000;

#[cfg(test)]
mod tests;
