//! What a thread sleeps on: descriptors to read from, an event of other threads, a timer.

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
    /// When the timer fires, if it has not fired yet.
    armed: Option<Time>,
    event: Arc<OwnedFd>,
    clock: Clock,
    /// Room for all that is watched: what a look does not name has nothing to read.
    batch: Vec<libc::epoll_event>,
}

/// What has happened. Used again for every look, so that none allocates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    sources: Vec<usize>,
    woken: bool,
}

impl Ready {
    /// Which sources have something to read, each once, in any order.
    pub(crate) fn sources(&self) -> &[usize] {
        &self.sources
    }

    /// Whether another thread rang.
    pub(crate) fn woken(&self) -> bool {
        self.woken
    }
}

impl Events {
    /// Watches sources, which stay open as long as this.
    pub(crate) fn new<'a>(
        sources: impl Iterator<Item = BorrowedFd<'a>>,
        event: &Arc<OwnedFd>,
        clock: Clock,
    ) -> io::Result<Self> {
        // SAFETY: takes a number and touches no memory.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: takes numbers and touches no memory.
        let timer = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        let mut watched = 0;
        for source in sources {
            watch(&epoll, source, libc::EPOLLIN as u32, watched)?;
            watched += 1;
        }
        watch(&epoll, event.as_fd(), libc::EPOLLIN as u32, WOKEN)?;
        // By edge, so that nobody has to read the timer.
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

    /// Sleeps until something happens, at the longest until `at`, and says what.
    pub(crate) fn wait(&mut self, at: Time, ready: &mut Ready) -> io::Result<()> {
        if at <= self.clock.now() {
            return self.look(0, ready);
        }
        self.arm(at)?;
        self.look(-1, ready)
    }

    /// Says what has happened already.
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
            hush(self.event.as_raw_fd());
        }
        Ok(())
    }

    /// `at` lies ahead, or did a moment ago: then the timer fires at once.
    fn arm(&mut self, at: Time) -> io::Result<()> {
        if self.armed == Some(at) {
            return Ok(());
        }
        let since_boot = self.clock.to_monotonic(at);
        let spec = libc::itimerspec {
            // SAFETY: a timespec is integers, for which zero is a value: fire once.
            it_interval: unsafe { mem::zeroed() },
            // After `now`, so this is not the zero that would disarm the timer.
            it_value: timespec(since_boot),
        };
        // SAFETY: `spec` is whole, and the old setting is not asked for.
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

/// Sleeps until `at`, whatever happens but a signal.
pub(crate) fn sleep_until(clock: Clock, at: Time) {
    let until = timespec(clock.to_monotonic(at));
    // SAFETY: `until` is whole, and what is left is not asked for. Who is woken too early by a
    // signal is told what any other waking tells: look again.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            ptr::null_mut(),
        )
    };
}

/// A counter that wakes whoever sleeps on it.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers and touches no memory.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Wakes. Safe in a signal handler.
pub(crate) fn ring(event: RawFd) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: reads the eight bytes of `one`. If the counter is full, it wakes anyway.
    unsafe { libc::write(event, one.as_ptr().cast(), one.len()) };
}

pub(crate) fn hush(event: RawFd) {
    let mut count = [0_u8; 8];
    // SAFETY: writes eight bytes to `count`. If it fails there was nothing to hush.
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
    // SAFETY: `event` is whole, and both descriptors are open.
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
    // SAFETY: after the check this is a descriptor that the kernel has just made for us.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Tokens of the event queue; those of sources are their indices.
const WOKEN: u64 = u64::MAX - 1;
const TIMER: u64 = u64::MAX;
/// How many are no sources.
const OTHERS: usize = 2;
const NOTHING: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    #[test]
    fn sources_bells_and_moments_wake() {
        let clock = Clock::start();
        let bell = Arc::new(eventfd().unwrap());
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let sources = sockets.iter().map(std::os::fd::AsFd::as_fd);
        let mut events = Events::new(sources, &bell, clock).unwrap();
        // What was there before is forgotten by each look.
        let mut ready = Ready {
            sources: vec![7],
            woken: true,
        };
        events.poll(&mut ready).unwrap();
        assert_eq!(ready, Ready::default());

        ring(bell.as_raw_fd());
        events.wait(Time::FAR, &mut ready).unwrap();
        assert!(ready.woken());
        // The bell is heard once, and the timer that was set for the end of time is set anew.
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
        // As long as it is not read.
        events.poll(&mut ready).unwrap();
        assert_eq!(ready.sources(), [1]);

        let at = clock.now() + Duration::from_millis(1);
        sleep_until(clock, at);
        assert!(clock.now() >= at);
    }

    #[test]
    fn one_look_names_all_of_many_sources() {
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
            hush(source.as_raw_fd());
        }
        assert_eq!(look(), (vec![0, 299], false));
    }
}
