//! Event queue of a thread: readable descriptors, an event of other threads, a timer.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::{io, mem, ptr};

use tidegate_core::units::Time;

use crate::clock::Clock;
use crate::netns::check;

#[derive(Debug)]
pub(crate) struct Events {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Expiry of the timer, if set.
    armed: Option<Time>,
    event: Arc<OwnedFd>,
    clock: Clock,
    /// Room for all descriptors, so that one call of `epoll_wait` reports all that are readable.
    batch: Vec<libc::epoll_event>,
}

/// Pending events. Reused for every wait, which avoids allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    sources: Vec<usize>,
    woken: bool,
}

impl Ready {
    /// Readable sources, each once, in any order, and those of [`Events::watch`].
    pub(crate) fn sources(&self) -> &[usize] {
        &self.sources
    }

    /// Whether another thread has signalled the event.
    pub(crate) fn woken(&self) -> bool {
        self.woken
    }
}

impl Events {
    /// Watches sources until they are closed.
    pub(crate) fn new<'a>(
        sources: impl Iterator<Item = BorrowedFd<'a>>,
        event: &Arc<OwnedFd>,
        clock: Clock,
    ) -> io::Result<Self> {
        // SAFETY: takes an integer and accesses no memory.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: takes integers and accesses no memory.
        let timer = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        let mut watched = 0;
        for source in sources {
            watch(&epoll, source, libc::EPOLLIN as u32, watched)?;
            watched += 1;
        }
        watch(&epoll, event.as_fd(), libc::EPOLLIN as u32, WOKEN)?;
        // Edge-triggered, so the timer need not be read.
        let edge = (libc::EPOLLIN | libc::EPOLLET) as u32;
        watch(&epoll, timer.as_fd(), edge, TIMER)?;
        Ok(Self {
            epoll,
            timer,
            armed: None,
            event: Arc::clone(event),
            clock,
            batch: vec![NOTHING; watched as usize + OTHERS],
        })
    }

    /// Watches a further source until it is closed. It is reported as `index`, once when it becomes
    /// readable or writable and then only after a read or a write would have blocked.
    pub(crate) fn watch(&mut self, source: BorrowedFd<'_>, index: usize) -> io::Result<()> {
        let events = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32;
        watch(&self.epoll, source, events, index as u64)?;
        if self.batch.len() < index + 1 + OTHERS {
            self.batch.resize(index + 1 + OTHERS, NOTHING);
        }
        Ok(())
    }

    /// Sleeps until an event, at most until `at`.
    pub(crate) fn wait(&mut self, at: Time, ready: &mut Ready) -> io::Result<()> {
        if at <= self.clock.now() {
            return self.look(0, ready);
        }
        self.arm(at)?;
        self.look(-1, ready)
    }

    /// Returns pending events without sleeping.
    pub(crate) fn poll(&mut self, ready: &mut Ready) -> io::Result<()> {
        self.look(0, ready)
    }

    fn look(&mut self, timeout: libc::c_int, ready: &mut Ready) -> io::Result<()> {
        // SAFETY: writes at most `batch.len()` entries to `batch`.
        let count = check(unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.batch.as_mut_ptr(),
                self.batch.len() as libc::c_int,
                timeout,
            )
        });
        let count = match count {
            Ok(count) => count as usize,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
            Err(e) => return Err(e),
        };
        ready.sources.clear();
        ready.woken = false;
        for event in &self.batch[..count] {
            match event.u64 {
                WOKEN => ready.woken = true,
                TIMER => {}
                source => ready.sources.push(source as usize),
            }
        }
        if ready.woken {
            clear(self.event.as_raw_fd());
        }
        Ok(())
    }

    /// Sets the timer. If `at` has just passed, the timer fires immediately.
    fn arm(&mut self, at: Time) -> io::Result<()> {
        if self.armed == Some(at) {
            return Ok(());
        }
        let since_boot = self.clock.to_monotonic(at);
        let spec = libc::itimerspec {
            // SAFETY: a timespec consists of integers, for which zero is valid. Zero: no interval.
            it_interval: unsafe { mem::zeroed() },
            // Later than the boot time, so it is not zero, which would disarm the timer.
            it_value: timespec(since_boot),
        };
        // SAFETY: `spec` is initialised, and the old setting is not requested.
        check(unsafe {
            libc::timerfd_settime(
                self.timer.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const spec,
                ptr::null_mut(),
            )
        })?;
        self.armed = Some(at);
        Ok(())
    }
}

/// Sleeps until `at`; only a signal interrupts the sleep.
pub(crate) fn sleep_until(clock: Clock, at: Time) {
    let until = timespec(clock.to_monotonic(at));
    // SAFETY: `until` is initialised, and the remaining time is not requested. After an early
    // wake-up by a signal the caller polls again.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            ptr::null_mut(),
        )
    };
}

/// Creates an eventfd, which wakes the threads that poll it.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes integers and accesses no memory.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Signals an eventfd. Async-signal-safe.
pub(crate) fn ring(event: RawFd) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: reads the eight bytes of `one`. A full counter is readable as well.
    unsafe { libc::write(event, one.as_ptr().cast(), one.len()) };
}

pub(crate) fn clear(event: RawFd) {
    let mut count = [0_u8; 8];
    // SAFETY: writes eight bytes to `count`. The call fails if the counter is zero already.
    unsafe { libc::read(event, count.as_mut_ptr().cast(), count.len()) };
}

fn timespec(since_boot: std::time::Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: since_boot.as_secs() as libc::time_t,
        tv_nsec: i64::from(since_boot.subsec_nanos()),
    }
}

fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>, events: u32, token: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: token };
    // SAFETY: `event` is initialised, and both descriptors are open.
    check(unsafe {
        libc::epoll_ctl(
            epoll.as_raw_fd(),
            libc::EPOLL_CTL_ADD,
            fd.as_raw_fd(),
            &raw mut event,
        )
    })
    .map(drop)
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: after the check this is a new descriptor without another owner.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Token of the event; tokens of sources are their indices.
const WOKEN: u64 = u64::MAX - 1;
/// Token of the timer.
const TIMER: u64 = u64::MAX;
/// Number of descriptors that are not sources.
const OTHERS: usize = 2;
const NOTHING: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    #[test]
    fn sources_event_and_timer_wake() {
        let clock = Clock::start();
        let bell = Arc::new(eventfd().unwrap());
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let sources = sockets.iter().map(std::os::fd::AsFd::as_fd);
        let mut events = Events::new(sources, &bell, clock).unwrap();
        // Each call replaces the previous events.
        let mut ready = Ready {
            sources: vec![7],
            woken: true,
        };
        events.poll(&mut ready).unwrap();
        assert_eq!(ready, Ready::default());

        ring(bell.as_raw_fd());
        events.wait(Time::FAR, &mut ready).unwrap();
        assert!(ready.woken());
        // The event is reported once, and the timer set to the far future is set again.
        for ms in [3, 2, 4] {
            let at = clock.now() + Duration::from_millis(ms);
            while clock.now() < at {
                events.wait(at, &mut ready).unwrap();
                assert_eq!(ready, Ready::default());
            }
        }
        events.wait(clock.now(), &mut ready).unwrap();
        assert_eq!(ready, Ready::default());

        let to = sockets[1].local_addr().unwrap();
        sockets[0].send_to(&[1], to).unwrap();
        events.wait(Time::FAR, &mut ready).unwrap();
        assert_eq!(ready.sources(), [1]);
        assert!(!ready.woken());
        // A source is reported until it is read.
        events.poll(&mut ready).unwrap();
        assert_eq!(ready.sources(), [1]);

        let at = clock.now() + Duration::from_millis(1);
        sleep_until(clock, at);
        assert!(clock.now() >= at);
    }

    #[test]
    fn one_poll_reports_all_of_many_sources() {
        let clock = Clock::start();
        let bell = Arc::new(eventfd().unwrap());
        let sources: Vec<OwnedFd> = (0..300).map(|_| eventfd().unwrap()).collect();
        let watched = sources.iter().map(std::os::fd::AsFd::as_fd);
        let mut events = Events::new(watched, &bell, clock).unwrap();
        let mut ready = Ready::default();
        let mut look = || {
            events.poll(&mut ready).unwrap();
            let mut named = ready.sources().to_vec();
            named.sort_unstable();
            (named, ready.woken())
        };
        for source in &sources {
            ring(source.as_raw_fd());
        }
        ring(bell.as_raw_fd());
        assert_eq!(look(), ((0..300).collect(), true));
        for source in &sources[1..299] {
            clear(source.as_raw_fd());
        }
        assert_eq!(look(), (vec![0, 299], false));
    }
}
