//! The loop of the emulator: one thread, two TUN devices, one timer.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{io, mem, ptr};

use tidegate_core::link::{LinkId, Network, Packet as _, RouteId};
use tidegate_core::units::{Time, nanos};

use super::MTU;
use super::frame::Frame;
use super::report::{Arrival, Departure, EmulatorLog, EmulatorReport, Recorder};
use super::timing::Lateness;
use crate::clock::Clock;
use crate::netns::check;
use crate::tun::Tun;

/// One side: its device, and the route of what comes out of it.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) tun: Tun,
    pub(super) route: RouteId,
}

#[derive(Debug)]
pub(super) struct Engine {
    ports: [Port; 2],
    network: Network<Frame>,
    clock: Clock,
    end: Time,
    epoll: OwnedFd,
    timer: Timer,
    /// Epoll forgets descriptors that nobody holds open.
    _stop: Arc<OwnedFd>,
    recorder: Recorder,
    lateness: Lateness,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    packets: u64,
    delivered: u64,
    ignored: u64,
    write_failures: u64,
}

/// What an engine cannot know of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    pub(super) clock: Clock,
    /// When it stops by itself.
    pub(super) end: Time,
    /// Entries per log.
    pub(super) log: usize,
}

impl Engine {
    pub(super) fn new(
        ports: [Port; 2],
        network: Network<Frame>,
        stop: Arc<OwnedFd>,
        conditions: Conditions,
    ) -> io::Result<Self> {
        // SAFETY: takes a number and touches no memory.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let timer = Timer::new(conditions.clock)?;
        let level = libc::EPOLLIN as u32;
        watch(&epoll, ports[0].tun.as_fd(), level, SIDE_A)?;
        watch(&epoll, ports[1].tun.as_fd(), level, SIDE_B)?;
        watch(&epoll, stop.as_fd(), level, STOP)?;
        // By edge, so that nobody has to read the timer.
        let edge = (libc::EPOLLIN | libc::EPOLLET) as u32;
        watch(&epoll, timer.fd.as_fd(), edge, TIMER)?;
        Ok(Self {
            ports,
            network,
            clock: conditions.clock,
            end: conditions.end,
            epoll,
            timer,
            _stop: stop,
            recorder: Recorder::new(conditions.log),
            lateness: Lateness::new(),
            counts: Counts::default(),
        })
    }

    /// Runs until it is told to stop or time is over. The report lacks `overruns`, which count
    /// against `kept_up` as well.
    pub(super) fn run(mut self, tolerance: Duration) -> io::Result<Finished> {
        let realtime_priority = ask_for_realtime();
        // SAFETY: an epoll_event is integers, for which zero is a value.
        let mut events: [libc::epoll_event; 4] = unsafe { mem::zeroed() };
        loop {
            let next = self.depart()?;
            let now = self.clock.now();
            if now >= self.end {
                break;
            }
            self.timer
                .arm(next.map_or(self.end, |next| next.min(self.end)))?;
            let ready = self.wait(&mut events)?;
            let ready = &events[..ready];
            if ready.iter().any(|event| event.u64 == STOP) {
                break;
            }
            for side in [SIDE_A, SIDE_B] {
                if ready.iter().any(|event| event.u64 == side) {
                    self.take(side as usize)?;
                }
            }
        }
        Ok(self.finish(realtime_priority, tolerance))
    }

    /// Reads a few packets of one side. Epoll tells again if there are more.
    fn take(&mut self, side: usize) -> io::Result<()> {
        let mut buffer = [0; MTU + 1];
        for _ in 0..BATCH {
            let Some(length) = self.ports[side].tun.read(&mut buffer)? else {
                break;
            };
            let frame = match &buffer[..length] {
                bytes if bytes.len() <= MTU => Frame::new(self.counts.packets, bytes),
                _ => None,
            };
            let Some(frame) = frame else {
                self.counts.ignored += 1;
                continue;
            };
            let (at, route) = (self.clock.now(), self.ports[side].route);
            self.counts.packets += 1;
            self.recorder.arrival(Arrival {
                at,
                id: frame.id,
                route,
                size: frame.size(),
                ecn: frame.ecn(),
            });
            self.network.push(at, route, frame);
        }
        Ok(())
    }

    /// Writes what is due, and tells when the next is.
    fn depart(&mut self) -> io::Result<Option<Time>> {
        let mut now = self.clock.now();
        while let Some(delivery) = self.network.pop(now) {
            let frame = delivery.packet;
            let far = usize::from(delivery.route == self.ports[0].route);
            match self.ports[far].tun.write(frame.bytes()) {
                Ok(()) => self.counts.delivered += 1,
                // The device is gone, with its namespace.
                Err(e) if e.raw_os_error() == Some(libc::EBADFD) => return Err(e),
                Err(_) => self.counts.write_failures += 1,
            }
            now = self.clock.now();
            self.lateness.add(now.since(delivery.at));
            self.recorder.departure(Departure {
                at: delivery.at,
                written: now,
                id: frame.id,
                ecn: frame.ecn(),
            });
        }
        Ok(self.network.next_departure())
    }

    fn wait(&self, events: &mut [libc::epoll_event]) -> io::Result<usize> {
        // SAFETY: writes at most `events.len()` entries to `events`.
        let ready = check(unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as libc::c_int,
                -1,
            )
        });
        match ready {
            Ok(ready) => Ok(ready as usize),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(e) => Err(e),
        }
    }

    fn finish(mut self, realtime_priority: bool, tolerance: Duration) -> Finished {
        let ended = self.clock.now();
        let links: Vec<_> = (0..self.network.len())
            .map(|i| self.network.stats(LinkId(i), ended))
            .collect();
        let p99 = self.lateness.percentile(99);
        let report = EmulatorReport {
            packets: self.counts.packets,
            delivered: self.counts.delivered,
            drops: links
                .iter()
                .map(|s| s.queue_drops + s.loss_drops + s.outage_drops)
                .sum(),
            marks: links.iter().map(|s| s.marks).sum(),
            ignored: self.counts.ignored,
            overruns: 0,
            write_failures: self.counts.write_failures,
            links,
            ended,
            timing_p50: self.lateness.percentile(50),
            timing_p99: p99,
            timing_worst: self.lateness.worst(),
            realtime_priority,
            kept_up: p99 <= tolerance && self.counts.write_failures == 0,
        };
        Finished {
            report,
            log: self.recorder.finish(),
            _ports: self.ports,
        }
    }
}

/// What is left of an engine.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) report: EmulatorReport,
    pub(super) log: EmulatorLog,
    /// So that the devices, and their counters, are still there.
    _ports: [Port; 2],
}

/// A timer on `CLOCK_MONOTONIC` that fires at a moment, not after a while.
#[derive(Debug)]
struct Timer {
    fd: OwnedFd,
    clock: Clock,
    armed: Option<Time>,
}

impl Timer {
    fn new(clock: Clock) -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: takes numbers and touches no memory.
        let fd = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        Ok(Self {
            fd,
            clock,
            armed: None,
        })
    }

    /// Has it fire at `at`, at once if that is past.
    fn arm(&mut self, at: Time) -> io::Result<()> {
        if self.armed == Some(at) {
            return Ok(());
        }
        let since_boot = self.clock.to_monotonic(at);
        let spec = libc::itimerspec {
            // SAFETY: a timespec is integers, for which zero is a value: fire once.
            it_interval: unsafe { mem::zeroed() },
            it_value: libc::timespec {
                tv_sec: since_boot.as_secs() as libc::time_t,
                // All zero would disarm it.
                tv_nsec: i64::from(since_boot.subsec_nanos())
                    .max(i64::from(nanos(since_boot) == 0)),
            },
        };
        // SAFETY: `spec` is whole, and the old setting is not asked for.
        check(unsafe {
            libc::timerfd_settime(
                self.fd.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const spec,
                ptr::null_mut(),
            )
        })?;
        self.armed = Some(at);
        Ok(())
    }
}

/// Asks that this thread goes before all ordinary ones.
fn ask_for_realtime() -> bool {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: `parameters` is whole; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0 }
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

pub(super) fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: after the check this is a descriptor that the kernel has just made for us.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Tokens of epoll; those of the sides are their indices.
const SIDE_A: u64 = 0;
const SIDE_B: u64 = 1;
const TIMER: u64 = 2;
const STOP: u64 = 3;
/// Reading takes about 2 µs a packet: after this many, others may be due.
const BATCH: usize = 16;
/// In the lower half of 1..=99: interrupt threads of the kernel have 50.
const PRIORITY: libc::c_int = 40;
