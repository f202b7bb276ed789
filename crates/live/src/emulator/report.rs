//! Report and log of an emulator.

use std::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::link::{LinkStats, Packet, RouteId};
use tidegate_core::units::{Bytes, Time};

/// Counters and timing of an emulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatorReport {
    /// IPv4 packets read from any namespace with a route to their destination.
    pub packets: u64,
    /// Packets written to their destination host.
    pub delivered: u64,
    /// Packets dropped by the link models.
    pub drops: u64,
    /// Packets marked by the link models.
    pub marks: u64,
    /// Read packets that are not complete IPv4 packets of at most 1500 bytes, such as IPv6 router
    /// solicitations of the kernel.
    pub ignored: u64,
    /// IPv4 packets without a route to their destination.
    pub unrouted: u64,
    /// Packets dropped by the kernel before the emulator read them.
    pub overruns: u64,
    /// Packets that the kernel rejected.
    pub write_failures: u64,
    /// Counters per link, in the order of the configuration.
    pub links: Vec<LinkStats>,
    /// Time of the stop, up to which the links were run.
    pub ended: Time,
    /// Median delay of a write after the logical departure.
    pub timing_p50: Duration,
    /// 99th percentile of that delay. Both are rounded up by at most 1/32.
    pub timing_p99: Duration,
    /// Maximum of that delay.
    pub timing_worst: Duration,
    /// 99th percentile of the time from the last empty poll of the device to the read. It bounds
    /// the waiting time of a packet, except for a packet that woke the emulator and for the wake-up
    /// latency of the kernel.
    pub unread_p99: Duration,
    /// Maximum of that time.
    pub unread_worst: Duration,
    /// Intentional polling interval of the devices, see
    /// [`EmulatorConfig::granularity`](super::EmulatorConfig::granularity). The times above include
    /// it.
    pub granularity: Duration,
    /// Whether it ran with real-time priority (`SCHED_FIFO`).
    pub realtime_priority: bool,
    /// Whether the emulation was accurate: no overruns, no write failures, `timing_p99` and
    /// `unread_p99` within the tolerance, and both maxima within 50 times the tolerance.
    pub kept_up: bool,
}

/// Bounded log of read and written packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmulatorLog {
    /// In order of arrival at the links.
    pub arrivals: Vec<Arrival>,
    /// In order of writing.
    pub departures: Vec<Departure>,
    /// Number of entries lost because a log was full.
    pub missed: u64,
}

/// A packet read by the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time of reading, and of arrival at the links.
    pub at: Time,
    /// Packet number, counted from zero in order of reading.
    pub id: u64,
    /// Route of the packet.
    pub route: RouteId,
    /// Length of the IP packet.
    pub size: Bytes,
    /// ECN field at arrival.
    pub ecn: Ecn,
    /// DSCP of the packet.
    pub dscp: u8,
    /// Flow for fair queueing: a hash of addresses, protocol and ports.
    pub flow: u32,
    /// TCP header fields, for unfragmented TCP packets.
    pub segment: Option<Segment>,
}

/// The packet as seen by the links, for replay.
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

/// Fields of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the first byte or of the SYN (RFC 9293 section 3.1).
    pub sequence: u32,
    /// Payload in bytes.
    pub payload: u16,
    /// Whether SYN is set; the payload then starts one sequence number later.
    pub syn: bool,
}

/// A packet written by the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Logical departure time.
    pub at: Time,
    /// Time of the completed write.
    pub written: Time,
    /// Packet number.
    pub id: u64,
    /// ECN field at departure.
    pub ecn: Ecn,
}

/// Bounded log.
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

    /// Adds an arrival. `arrival` is called only if the log is enabled.
    pub(super) fn arrival(&mut self, arrival: impl FnOnce() -> Arrival) {
        let EmulatorLog {
            arrivals, missed, ..
        } = &mut self.log;
        push(arrivals, arrival, self.limit, missed);
    }

    /// Adds a departure. `departure` is called only if the log is enabled.
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
