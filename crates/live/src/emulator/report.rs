//! What an emulator tells when it stops.

use std::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::link::{LinkStats, Packet, RouteId};
use tidegate_core::units::{Bytes, Time};

/// What an emulator did, and how well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatorReport {
    /// IPv4 packets that came out of any namespace and had a way.
    pub packets: u64,
    /// Packets written to the host that they were for.
    pub delivered: u64,
    /// Packets lost in the links, by design.
    pub drops: u64,
    /// Packets marked in the links.
    pub marks: u64,
    /// What came and is no whole IPv4 packet of at most 1500 bytes, such as the kernel's IPv6
    /// router solicitations.
    pub ignored: u64,
    /// IPv4 packets for an address to which their host has no way.
    pub unrouted: u64,
    /// Packets that the kernel threw away before the emulator could read them.
    pub overruns: u64,
    /// Packets that the kernel did not take.
    pub write_failures: u64,
    /// Per link, in the order of the configuration.
    pub links: Vec<LinkStats>,
    /// When it stopped: the time up to which the links were run.
    pub ended: Time,
    /// Half of the packets were written within this after their logical time.
    pub timing_p50: Duration,
    /// And 99 of 100 within this. Both are rounded up by at most 1/32.
    pub timing_p99: Duration,
    /// The largest such delay.
    pub timing_worst: Duration,
    /// 99 of 100 packets were read within this after the device was last seen empty: they cannot
    /// have waited longer for it, unless they woke the emulator and the kernel took its time.
    pub unread_p99: Duration,
    /// The largest such time.
    pub unread_worst: Duration,
    /// For how long it did not look at the devices on purpose, see
    /// [`EmulatorConfig::granularity`](super::EmulatorConfig::granularity). The times above have
    /// it in them.
    pub granularity: Duration,
    /// Whether it ran with real-time priority (`SCHED_FIFO`).
    pub realtime_priority: bool,
    /// Whether the network that the hosts saw was the one that was asked for: no overruns, no
    /// failed writes, `timing_p99` and `unread_p99` within the tolerance, and the worst of both within
    /// 50 times that.
    pub kept_up: bool,
}

/// Each packet that came and each that went, as far as there was room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmulatorLog {
    /// In the order in which the links got them.
    pub arrivals: Vec<Arrival>,
    /// In the order in which they were written.
    pub departures: Vec<Departure>,
    /// How many entries found no room.
    pub missed: u64,
}

/// A packet that the emulator read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it was read, which is when the links got it.
    pub at: Time,
    /// Its number: packets are counted from zero as they are read.
    pub id: u64,
    /// Which way it goes.
    pub route: RouteId,
    /// Its whole length.
    pub size: Bytes,
    /// As it came.
    pub ecn: Ecn,
    /// Its DSCP.
    pub dscp: u8,
    /// What a fair queue knows it by: a number for addresses, protocol and ports.
    pub flow: u32,
    /// What it is to TCP, if it is TCP's and no fragment.
    pub segment: Option<Segment>,
}

/// As the links saw it, so that they can be played again.
impl Packet for Arrival {
    fn size(&self) -> Bytes {
        self.size
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn set_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }

    fn flow(&self) -> u32 {
        self.flow
    }

    fn dscp(&self) -> u8 {
        self.dscp
    }
}

/// What the header of a TCP packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of its first byte, or of the SYN (RFC 9293 section 3.1).
    pub sequence: u32,
    /// Bytes of the stream in it.
    pub payload: u16,
    /// Whether it opens the connection; its payload begins one number later.
    pub syn: bool,
}

/// A packet that the emulator wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When the links say that it arrives.
    pub at: Time,
    /// When the kernel had taken it.
    pub written: Time,
    /// Its number.
    pub id: u64,
    /// As it went.
    pub ecn: Ecn,
}

/// A bounded log.
#[derive(Debug)]
pub(super) struct Recorder {
    limit: usize,
    log: EmulatorLog,
}

impl Recorder {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            log: EmulatorLog::default(),
        }
    }

    /// Asks for the entry only if there is a log.
    pub(super) fn arrival(&mut self, arrival: impl FnOnce() -> Arrival) {
        let EmulatorLog {
            arrivals, missed, ..
        } = &mut self.log;
        push(arrivals, arrival, self.limit, missed);
    }

    /// Asks for the entry only if there is a log.
    pub(super) fn departure(&mut self, departure: impl FnOnce() -> Departure) {
        let EmulatorLog {
            departures, missed, ..
        } = &mut self.log;
        push(departures, departure, self.limit, missed);
    }

    pub(super) fn finish(self) -> EmulatorLog {
        self.log
    }
}

fn push<T>(list: &mut Vec<T>, entry: impl FnOnce() -> T, limit: usize, missed: &mut u64) {
    if list.len() < limit {
        list.push(entry());
    } else if limit > 0 {
        *missed += 1;
    }
}
