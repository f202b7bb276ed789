//! Retransmission timeouts without exponential back-off.
//!
//! Linux has no option for this, but two rules of the *user timeout* make it possible. After a
//! timeout, the retransmission timer expires at the latest when the user timeout has passed since
//! the first retransmission (`tcp_clamp_rto_to_user_timeout`, Linux 4.19). If the user timeout has
//! passed when the timer expires, the kernel closes the connection. A thread therefore sets the
//! user timeout shortly before each expiry, to the time of the following expiry, and resets it
//! right after. Each expiry then uses the value intended for the next timer, and the user timeout
//! has never passed.
//!
//! If the thread is not scheduled for a sixth of a second at that time, and thus until after the
//! next expiry, the connection is lost. The thread has no other work, so neither an encoder nor a
//! disk delays it, and it runs with real-time priority if permitted. It can still be delayed by a
//! suspended machine or a CPU quota. After a shorter delay it lets timeouts double for a while.

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
use schedule::{LATE, Schedule, StateSample, UserTimeoutChange};

/// Keeps the timeouts of one socket linear until dropped.
#[derive(Debug)]
pub(super) struct LinearTimeouts {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State shared with the thread. Times are in ns since `epoch`.
#[derive(Debug)]
struct Shared {
    epoch: Instant,
    stop: AtomicBool,
    /// Next expiry of the retransmission timer; zero before the first timeout.
    next: AtomicU64,
    /// Time from that expiry to the following one.
    gap: AtomicU64,
}

impl LinearTimeouts {
    /// Starts the thread.
    ///
    /// # Errors
    /// The descriptor is not a TCP socket, or no thread can be created.
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
        let keeper = TimeoutThread {
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

    /// Time to the next expiry of the timer, after the first timeout, if known.
    pub(super) fn until_next(&self) -> Option<Duration> {
        let next = self.shared.next.load(Ordering::Relaxed);
        let gap = self.shared.gap.load(Ordering::Relaxed).max(1);
        let now = self.shared.now().as_nanos() as u64;
        // Timers are late, and the caller may have observed a timeout before the thread did.
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
            // An error is a panic, whose message has been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }
}

/// State of the thread.
struct TimeoutThread {
    socket: OwnedFd,
    /// Original user timeout of the socket in ms; zero for the default of the system.
    usual: u32,
    /// Original maximum timeout in ms; `None` if the kernel lacks the option.
    rto_max: Option<u32>,
}

impl TimeoutThread {
    fn run(&self, shared: &Shared) {
        // Linear timeouts also work without real-time priority.
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
        self.obey(UserTimeoutChange::Restore);
        self.cap(None);
    }

    fn glance(&self, shared: &Shared, late: Duration) -> io::Result<StateSample> {
        // SAFETY: a tcp_info consists of integers, for which zero is valid.
        let mut info: libc::tcp_info = unsafe { mem::zeroed() };
        let mut size = mem::size_of_val(&info) as libc::socklen_t;
        // Read before the state, so that no retransmission falls between the two.
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
        Ok(StateSample {
            at,
            late,
            clean: info.tcpi_ca_state == OPEN && info.tcpi_retrans == 0,
            in_a_row: info.tcpi_retransmits,
            sent_again: info.tcpi_total_retrans,
            rto: Duration::from_micros(info.tcpi_rto.into()),
            sent: at.saturating_sub(since_sent),
        })
    }

    /// Sets the user timeout. An error means that the socket is closed, which the next
    /// [`glance`](Self::glance) detects.
    fn obey(&self, order: UserTimeoutChange) {
        // Without a user timeout, the maximum timeout of [`cap`](Self::cap) would limit the
        // connection to 14.4 s.
        let longest = if self.usual == 0 {
            PATIENCE
        } else {
            self.usual
        };
        let ms = match order {
            UserTimeoutChange::Restore => self.usual,
            UserTimeoutChange::Lift => longest,
            UserTimeoutChange::Limit(span) => {
                u32::try_from(span.as_millis()).map_or(longest, |ms| ms.min(longest))
            }
        };
        let _ = set(
            self.socket.as_raw_fd(),
            libc::TCP_USER_TIMEOUT,
            &ms.to_ne_bytes(),
        );
    }

    /// Limits the back-off of the kernel to one second, or to `base` if that is longer. Without
    /// `base` the original maximum is restored. The kernel's own timeout continues to double up to
    /// two minutes, and applies if the thread is late once.
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

/// `TCP_CA_Open` of the kernel: no loss recovery.
const OPEN: u8 = 0;
/// Above ordinary threads, below all other real-time threads.
const PRIORITY: libc::c_int = 1;
/// Minimum of `TCP_RTO_MAX_MS` in the kernel, in ms.
const SHORTEST_CAP: u32 = 1_000;

#[cfg(test)]
mod tests;
