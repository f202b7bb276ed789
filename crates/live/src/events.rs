//! Event queue of a thread: readable descriptors, an event of other threads, a timer.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::io::{Errno, read, write};
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tidegate_core::units::Time;

use crate::clock::Clock;

#[derive(Debug)]
pub(crate) struct Events {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Expiry of the timer, if set.
    armed: Option<Time>,
    event: Arc<OwnedFd>,
    clock: Clock,
    /// Number of descriptors in the queue but the timer.
    watched: usize,
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
    /// Watches sources until they are closed. They are reported as their index.
    pub(crate) fn new<'a>(
        sources: impl Iterator<Item = BorrowedFd<'a>>,
        event: &Arc<OwnedFd>,
        clock: Clock,
    ) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let mut events = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            armed: None,
            event: Arc::clone(event),
            clock,
            watched: 0,
        };
        for (index, source) in sources.enumerate() {
            events.watch_input(source, index)?;
        }
        events.add(event.as_fd(), WOKEN, epoll::EventFlags::IN)?;
        // Edge-triggered, so the timer need not be read.
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(TIMER);
        epoll::add(&events.epoll, &events.timer, data, edge)?;
        Ok(events)
    }

    /// Watches a further source until it is closed. It is reported as `index` while it is readable.
    pub(crate) fn watch_input(&mut self, source: BorrowedFd<'_>, index: usize) -> io::Result<()> {
        self.add(source, index as u64, epoll::EventFlags::IN)
    }

    /// Watches a further source until it is closed. It is reported as `index`, once when it becomes
    /// readable or writable and then only after a read or a write would have blocked.
    pub(crate) fn watch(&mut self, source: BorrowedFd<'_>, index: usize) -> io::Result<()> {
        use epoll::EventFlags as Flags;
        self.add(source, index as u64, Flags::IN | Flags::OUT | Flags::ET)
    }

    /// Reports a source of [`watch_input`](Self::watch_input) also while it is writable, or no longer.
    pub(crate) fn await_room(
        &self,
        source: BorrowedFd<'_>,
        index: usize,
        awaits: bool,
    ) -> io::Result<()> {
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, awaits);
        let data = epoll::EventData::new_u64(index as u64);
        Ok(epoll::modify(&self.epoll, source, data, flags)?)
    }

    /// Ends the watch of a source that remains open.
    pub(crate) fn forget(&mut self, source: BorrowedFd<'_>) {
        // A descriptor that is not watched need not be forgotten.
        if epoll::delete(&self.epoll, source).is_ok() {
            self.watched = self.watched.saturating_sub(1);
        }
    }

    fn add(
        &mut self,
        source: BorrowedFd<'_>,
        token: u64,
        flags: epoll::EventFlags,
    ) -> io::Result<()> {
        epoll::add(&self.epoll, source, epoll::EventData::new_u64(token), flags)?;
        self.watched += 1;
        Ok(())
    }

    /// Sleeps until an event, at most until `at`.
    pub(crate) fn wait(&mut self, at: Time, ready: &mut Ready) -> io::Result<()> {
        if at <= self.clock.now() {
            return self.poll(ready);
        }
        self.arm(at)?;
        self.look(None, ready)
    }

    /// Returns pending events without sleeping.
    pub(crate) fn poll(&mut self, ready: &mut Ready) -> io::Result<()> {
        self.look(Some(&timespec(Duration::ZERO)), ready)
    }

    fn look(&mut self, timeout: Option<&Timespec>, ready: &mut Ready) -> io::Result<()> {
        // Room for all, so that one call reports all that are readable. An event of rustix may hold a
        // pointer, so it cannot be kept in a structure that moves between threads.
        let mut batch = Vec::with_capacity(self.watched + TIMERS);
        match epoll::wait(&self.epoll, spare_capacity(&mut batch), timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        ready.sources.clear();
        ready.woken = false;
        for event in &batch {
            match event.data.u64() {
                WOKEN => ready.woken = true,
                TIMER => {}
                source => ready.sources.push(source as usize),
            }
        }
        if ready.woken {
            clear(self.event.as_fd());
        }
        Ok(())
    }

    /// Sets the timer. If `at` has just passed, the timer fires immediately.
    fn arm(&mut self, at: Time) -> io::Result<()> {
        if self.armed == Some(at) {
            return Ok(());
        }
        let spec = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            // Later than the boot time, so it is not zero, which would disarm the timer.
            it_value: timespec(self.clock.to_monotonic(at)),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        self.armed = Some(at);
        Ok(())
    }
}

/// Sleeps until `at`; only a signal interrupts the sleep, and the caller polls again.
pub(crate) fn sleep_until(clock: Clock, at: Time) {
    let until = timespec(clock.to_monotonic(at));
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
}

/// Creates an eventfd, which wakes the threads that poll it.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Ok(rustix::event::eventfd(0, flags)?)
}

/// Signals an eventfd. Async-signal-safe.
pub(crate) fn ring(event: BorrowedFd<'_>) {
    // A full counter is readable as well.
    let _ = write(event, &1_u64.to_ne_bytes());
}

pub(crate) fn clear(event: BorrowedFd<'_>) {
    // The call fails if the counter is zero already.
    let _ = read(event, &mut [0_u8; 8]);
}

fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: span.as_secs() as i64,
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}

/// Token of the event; tokens of sources are their indices.
const WOKEN: u64 = u64::MAX - 1;
/// Token of the timer.
const TIMER: u64 = u64::MAX;
const TIMERS: usize = 1;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

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

        ring(bell.as_fd());
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
            ring(source.as_fd());
        }
        ring(bell.as_fd());
        assert_eq!(look(), ((0..300).collect(), true));
        for source in &sources[1..299] {
            clear(source.as_fd());
        }
        assert_eq!(look(), (vec![0, 299], false));
    }
}
