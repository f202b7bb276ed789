//! Event loop of the emulator: one thread, a TUN device per host, one timer.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::link::{LinkId, Network, Packet as _, RouteId};
use tidegate_core::units::Time;

use super::Host;
use super::frame::{Frame, Header, Pool};
use super::report::{Arrival, Departure, EmulatorLog, EmulatorReport, Recorder};
use super::timing::{DurationHistogram, EmptySince};
use crate::clock::Clock;
use crate::events::{Events, Ready, sleep_until};
use crate::realtime;
use crate::tun::Tun;

/// Device of a host, and the routes of its packets.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) tun: Tun,
    /// Route by destination host.
    pub(super) routes: Vec<Option<RouteId>>,
}

/// Polls, forwards packets, and sleeps until the next event. After two wake-ups within the
/// granularity it sleeps for the rest of that interval, so that dense traffic costs a wake-up per
/// interval instead of per packet. This ends when such a sleep yields no packet.
#[derive(Debug)]
pub(super) struct Engine {
    ports: Vec<Port>,
    network: Network<Frame>,
    pool: Pool,
    events: Events,
    conditions: EngineConfig,
    recorder: Recorder,
    lateness: DurationHistogram,
    unread: DurationHistogram,
    silence: EmptySince,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    packets: u64,
    delivered: u64,
    ignored: u64,
    unrouted: u64,
    write_failures: u64,
}

/// Parameters of the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineConfig {
    pub(super) clock: Clock,
    /// Time of the automatic stop.
    pub(super) end: Time,
    /// Polling interval of the devices.
    pub(super) granularity: Duration,
    pub(super) tolerance: Duration,
    /// Maximum number of entries per log.
    pub(super) log: usize,
}

/// A poll of the network and the devices.
#[derive(Clone, Copy, Debug)]
struct Turn {
    start: Time,
    work: Work,
    /// Whether an uninterruptible sleep followed.
    napped: bool,
}

/// Result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    None,
    Some,
    /// Packets were processed and more are waiting.
    More,
}

impl Engine {
    pub(super) fn new(
        ports: Vec<Port>,
        network: Network<Frame>,
        stop: &Arc<OwnedFd>,
        conditions: EngineConfig,
    ) -> io::Result<Self> {
        let tuns = ports.iter().map(|port| port.tun.as_fd());
        let events = Events::new(tuns, stop, conditions.clock)?;
        let now = conditions.clock.now();
        Ok(Self {
            silence: EmptySince::new(ports.len(), now),
            ports,
            network,
            pool: Pool::default(),
            events,
            conditions,
            recorder: Recorder::new(conditions.log),
            lateness: DurationHistogram::new(),
            unread: DurationHistogram::new(),
            counts: Counts::default(),
        })
    }

    /// Runs until stopped or until the end time. The report lacks `overruns`, which also affect
    /// `kept_up`.
    pub(super) fn run(mut self) -> io::Result<Finished> {
        let realtime_priority = realtime::ask(PRIORITY);
        ask_for_punctual_sleep();
        let EngineConfig {
            clock,
            end,
            granularity,
            ..
        } = self.conditions;
        let mut turn = Turn {
            start: Time::ZERO,
            work: Work::None,
            napped: false,
        };
        let mut ready = Ready::default();
        loop {
            let next = self.network.next_departure().unwrap_or(end).min(end);
            self.sleep(turn, next, &mut ready)?;
            let start = clock.now();
            if ready.woken() || start >= end {
                break;
            }
            let mut work = Work::None;
            for &port in ready.sources() {
                work = work.and(self.take(port)?);
            }
            let work = work.and(self.depart()?);
            let dense = turn.napped || start.since(turn.start) < granularity;
            let napped = work == Work::Some && dense;
            if napped {
                sleep_until(clock, start + granularity);
            }
            turn = Turn {
                start,
                work,
                napped,
            };
        }
        Ok(self.finish(realtime_priority))
    }

    /// Sleeps until an event, at most until `next`. Returns at once after an uninterruptible sleep,
    /// and if work is left.
    fn sleep(&mut self, last: Turn, next: Time, ready: &mut Ready) -> io::Result<()> {
        let before = self.conditions.clock.now();
        if last.napped || last.work == Work::More || next <= before {
            self.events.poll(ready)?;
            self.silence.look(before, ready.sources());
        } else {
            self.events.wait(next, ready)?;
            // A late wake-up for the network is a late poll of the devices as well.
            let woken = self.conditions.clock.now().min(next);
            self.silence.end(woken, ready.sources());
        }
        Ok(())
    }

    /// Reads up to [`READS`] packets of one host.
    fn take(&mut self, port: usize) -> io::Result<Work> {
        let Port { tun, routes } = &self.ports[port];
        let silence = self.silence.since(port);
        let mut last = None;
        for _ in 0..READS {
            let mut buffer = self.pool.take();
            let Some(length) = tun.read(&mut buffer[..])? else {
                self.pool.give(buffer);
                let Some(at) = last else {
                    return Ok(Work::None);
                };
                self.silence.drained(port, at);
                return Ok(Work::Some);
            };
            let at = self.conditions.clock.now();
            last = Some(at);
            self.unread.add(at.since(silence));
            let Some(header) = Header::new(&buffer[..length]) else {
                self.pool.give(buffer);
                self.counts.ignored += 1;
                continue;
            };
            let to = Host::at(header.destination).map(|host| usize::from(host.0));
            let Some((to, route)) = to.and_then(|to| Some((to, (*routes.get(to)?)?))) else {
                self.pool.give(buffer);
                self.counts.unrouted += 1;
                continue;
            };
            let frame = Frame::new(self.counts.packets, to, header, buffer);
            self.counts.packets += 1;
            self.recorder.arrival(|| Arrival {
                at,
                id: frame.id,
                route,
                size: frame.size(),
                ecn: frame.ecn(),
                dscp: frame.dscp(),
                flow: frame.flow(),
                segment: header.segment,
            });
            self.network.push(at, route, frame);
        }
        Ok(Work::More)
    }

    /// Writes due packets.
    fn depart(&mut self) -> io::Result<Work> {
        let mut now = self.conditions.clock.now();
        for i in 0..WRITES {
            let Some(delivery) = self.network.pop(now) else {
                return Ok(if i == 0 { Work::None } else { Work::Some });
            };
            let frame = delivery.packet;
            match self.ports[frame.to].tun.write(frame.bytes()) {
                Ok(()) => self.counts.delivered += 1,
                // The device was removed with its namespace.
                Err(e) if e.raw_os_error() == Some(libc::EBADFD) => return Err(e),
                Err(_) => self.counts.write_failures += 1,
            }
            now = self.conditions.clock.now();
            self.lateness.add(now.since(delivery.at));
            self.recorder.departure(|| Departure {
                at: delivery.at,
                written: now,
                id: frame.id,
                ecn: frame.ecn(),
            });
            self.pool.give(frame.into_buffer());
        }
        Ok(Work::More)
    }

    fn finish(mut self, realtime_priority: bool) -> Finished {
        let EngineConfig {
            clock,
            granularity,
            tolerance,
            ..
        } = self.conditions;
        let ended = clock.now();
        let links: Vec<_> = (0..self.network.len())
            .map(|i| self.network.stats(LinkId(i), ended))
            .collect();
        let timing_p99 = self.lateness.percentile(99);
        let unread_p99 = self.unread.percentile(99);
        let (timing_worst, unread_worst) = (self.lateness.worst(), self.unread.worst());
        let report = EmulatorReport {
            packets: self.counts.packets,
            delivered: self.counts.delivered,
            drops: links
                .iter()
                .map(|s| s.queue_drops + s.loss_drops + s.outage_drops)
                .sum(),
            marks: links.iter().map(|s| s.marks).sum(),
            ignored: self.counts.ignored,
            unrouted: self.counts.unrouted,
            overruns: 0,
            write_failures: self.counts.write_failures,
            links,
            ended,
            timing_p50: self.lateness.percentile(50),
            timing_p99,
            timing_worst,
            unread_p99,
            unread_worst,
            granularity,
            realtime_priority,
            kept_up: timing_p99.max(unread_p99) <= tolerance
                && timing_worst.max(unread_worst) <= tolerance * STILL
                && self.counts.write_failures == 0,
        };
        Finished {
            report,
            log: self.recorder.finish(),
            _ports: self.ports,
        }
    }
}

impl Work {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::More, _) | (_, Self::More) => Self::More,
            (Self::None, Self::None) => Self::None,
            _ => Self::Some,
        }
    }
}

/// Result of an engine.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) report: EmulatorReport,
    pub(super) log: EmulatorLog,
    /// Keeps the devices and their counters alive.
    _ports: Vec<Port>,
}

/// Sets the timer slack to its minimum. Without real-time priority the default is 50 µs. A failure
/// is ignored.
fn ask_for_punctual_sleep() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Reading costs about 1 µs per packet. After this many, other events may be due.
const READS: usize = 64;
/// Writing costs about 2 µs per packet. After this many, the devices must be polled. Larger than
/// `READS`, so that the network drains.
const WRITES: usize = 256;
/// Factor of the tolerance above which a single delay counts as a stall of the emulation.
const STILL: u32 = 50;
/// In the lower half of 1..=99: interrupt threads of the kernel have 50.
const PRIORITY: libc::c_int = 40;
