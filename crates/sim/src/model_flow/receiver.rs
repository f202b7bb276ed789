//! Receiver of a modelled flow: runs of received packets and the timing of reports.

use core::time::Duration;

use tidegate_core::control::Ecn;
use tidegate_core::units::{Bytes, Time};

use super::later;
use crate::packet_agent::{Agent, AgentCx, Arrival, Body, ReceivedRun};

/// Configuration of a [`Receiver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// Timing of reports.
    pub reporting: Reporting,
    /// Report size on the wire, all headers included.
    pub report_size: Bytes,
    /// A packet is lost once a packet sent this many later has arrived, see
    /// [`SenderConfig`](super::SenderConfig). At least 1.
    pub reordering: u32,
}

impl ReceiverConfig {
    /// RAP: a report of 44 bytes for every packet, as in ns-2.
    pub fn rap() -> Self {
        Self {
            reporting: Reporting::EachPacket,
            report_size: Bytes(44),
            reordering: 3,
        }
    }

    /// TFRC: a report of 40 bytes per round trip (RFC 5348 section 6).
    pub fn tfrc() -> Self {
        Self {
            reporting: Reporting::EachRoundTrip,
            report_size: Bytes(40),
            reordering: 3,
        }
    }

    /// RFC 8888: a report of the arrival time of each packet every 50 ms.
    pub fn ccfb() -> Self {
        Self {
            reporting: Reporting::EveryWithTimes(Duration::from_millis(50)),
            ..Self::tfrc()
        }
    }

    /// TFRC as in ns-2, where a single out-of-order packet counts as a loss.
    pub fn ns2_tfrc() -> Self {
        Self {
            reporting: Reporting::OnArrival,
            reordering: 1,
            ..Self::tfrc()
        }
    }
}

/// Timing of reports. The first packet is always reported immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reporting {
    /// On each packet.
    EachPacket,
    /// At this interval, if packets have arrived since the last report, as an RTP receiver does
    /// (RFC 8888).
    Every(Duration),
    /// The same, with the arrival time of each packet.
    EveryWithTimes(Duration),
    /// When a timer of one round trip, as measured by the sender, expires, and immediately on a new
    /// loss event or on a CE mark that begins one. If the timer finds no new packets, the next
    /// packet is reported immediately (RFC 5348 sections 6.1 and 6.2).
    EachRoundTrip,
    /// On the first arrival at least a round trip after the last report, after one and a half round
    /// trips without such an arrival if there are new packets, and immediately on a new loss event,
    /// as in ns-2's TFRC.
    OnArrival,
}

/// Receives packets and sends reports.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// In ascending order.
    runs: Vec<ReceivedRun>,
    /// The sender knows the fate of all packets before this one.
    settled: u64,
    events: Events,
    /// Round-trip time of the sender in ns, from the latest packet.
    rtt: u64,
    /// Time of the latest report. `None` before the first.
    reported: Option<Time>,
    /// Packets have arrived since the latest report.
    news: bool,
    /// The timer expired without new packets.
    waiting: bool,
    timer: Time,
    packets: u64,
    bytes: Bytes,
}

impl Receiver {
    /// A receiver before the first packet.
    pub fn new(config: ReceiverConfig) -> Self {
        Self {
            config,
            runs: Vec::new(),
            settled: 0,
            events: Events::default(),
            rtt: 0,
            reported: None,
            news: false,
            waiting: false,
            timer: Time::FAR,
            packets: 0,
            bytes: Bytes::ZERO,
        }
    }

    /// Number of data packets received.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Bytes of data packets received, on the wire.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Adds a packet to the runs.
    fn add(&mut self, packet: ReceivedRun) {
        let Some(last) = self.runs.last_mut() else {
            return self.runs.push(packet);
        };
        let merges = !matches!(self.config.reporting, Reporting::EveryWithTimes(_));
        let next = merges && packet.seq == last.seq + 1;
        if next && packet.ecn == last.ecn && last.run < u32::MAX {
            last.run += 1;
            last.seq = packet.seq;
            last.at = packet.at;
        } else if packet.seq > last.seq {
            self.runs.push(packet);
        } else {
            let later = self
                .runs
                .iter()
                .rev()
                .take_while(|run| run.seq > packet.seq);
            let place = self.runs.len() - later.count();
            self.runs.insert(place, packet);
        }
    }

    fn is_due(&self, now: Time, event: bool) -> bool {
        match self.config.reporting {
            Reporting::EachPacket => true,
            Reporting::Every(_) | Reporting::EveryWithTimes(_) => self.timer == Time::FAR,
            // A sender without a round-trip sample waits for a report, and the timer is off.
            Reporting::EachRoundTrip => event || self.waiting || self.timer == Time::FAR,
            Reporting::OnArrival => {
                let rest = self.reported.is_none_or(|at| now >= later(at, self.rtt));
                event || rest
            }
        }
    }

    /// The report of a dummy packet has its priority.
    fn report(&mut self, cx: &mut AgentCx<'_>, is_low: bool) {
        let repeats = match self.config.reporting {
            Reporting::EachPacket => REPEATED_PER_PACKET,
            Reporting::EveryWithTimes(_) => REPEATED_TIMES,
            Reporting::EachRoundTrip | Reporting::Every(_) | Reporting::OnArrival => REPEATED,
        };
        self.forget();
        let mut seen = cx.report();
        seen.extend_from_slice(&self.runs);
        let body = Body::Report { sent: cx.now, seen };
        if is_low {
            cx.send_low(self.config.report_size, Ecn::NotEct, body);
        } else {
            cx.send(self.config.report_size, Ecn::NotEct, body);
        }
        // New runs become repeated runs, and the oldest repeated runs are discarded.
        let surplus = self.runs.len().saturating_sub(repeats);
        self.runs.drain(..surplus);
        self.reported = Some(cx.now);
        (self.news, self.waiting) = (false, false);
        self.set_timer(cx.now);
    }

    /// Discards runs that the sender has processed, except for the newest.
    fn forget(&mut self) {
        let older = self.runs.len().saturating_sub(1);
        let known = self.runs[..older].iter();
        let known = known.take_while(|run| run.seq < self.settled).count();
        self.runs.drain(..known);
    }

    fn set_timer(&mut self, now: Time) {
        self.timer = match self.config.reporting {
            Reporting::Every(span) | Reporting::EveryWithTimes(span) => now + span.max(MIN_SPAN),
            _ if self.rtt == 0 => Time::FAR,
            Reporting::EachPacket => Time::FAR,
            Reporting::EachRoundTrip => later(now, self.rtt),
            Reporting::OnArrival => later(now, self.rtt.saturating_mul(3) / 2),
        };
    }
}

impl Agent for Receiver {
    fn on_packet(&mut self, cx: &mut AgentCx<'_>, arrival: &Arrival, body: &mut Body) {
        let Body::Data {
            seq,
            sent,
            rtt,
            open,
            is_dummy,
        } = *body
        else {
            return;
        };
        if !is_dummy {
            self.packets += 1;
            self.bytes += Bytes(u64::from(arrival.size));
        }
        self.news = true;
        self.rtt = rtt;
        self.settled = self.settled.max(seq.saturating_sub(open.into()));
        let event = match self.config.reporting {
            Reporting::EachPacket | Reporting::Every(_) | Reporting::EveryWithTimes(_) => false,
            Reporting::EachRoundTrip | Reporting::OnArrival => {
                let marked = arrival.ecn == Ecn::Ce;
                self.events.on_packet(seq, sent, marked, &self.config, rtt)
            }
        };
        self.add(ReceivedRun {
            seq,
            run: 1,
            at: cx.now,
            ecn: arrival.ecn,
        });
        if self.is_due(cx.now, event) {
            self.report(cx, is_dummy);
        } else if self.timer == Time::FAR {
            self.set_timer(cx.now);
        }
    }

    fn on_timer(&mut self, cx: &mut AgentCx<'_>) {
        if cx.now < self.timer {
            return;
        }
        if self.news {
            return self.report(cx, false);
        }
        self.waiting = true;
        // The next packet is reported immediately, and restarts the timer. Waking up each round
        // trip until then would happen a hundred thousand times per second on a path of ten
        // microseconds.
        self.timer = match self.config.reporting {
            Reporting::Every(span) | Reporting::EveryWithTimes(span) => cx.now + span.max(MIN_SPAN),
            Reporting::EachPacket | Reporting::EachRoundTrip | Reporting::OnArrival => Time::FAR,
        };
    }

    fn next_timer(&self) -> Time {
        self.timer
    }
}

/// Losses and marks that begin a loss event (RFC 5348 section 5.2).
#[derive(Debug, Default)]
struct Events {
    /// Highest sequence number, and its send time. `None` before the first packet.
    highest: Option<(u64, Time)>,
    /// The newest gap that is not yet a loss: its first missing number, and the approximate send
    /// time of that packet.
    gap: Option<(u64, Time)>,
    /// Send time of the first packet of the latest event.
    began: Option<Time>,
}

impl Events {
    /// Whether this packet shows the start of a new event.
    fn on_packet(
        &mut self,
        seq: u64,
        sent: Time,
        marked: bool,
        config: &ReceiverConfig,
        rtt: u64,
    ) -> bool {
        // Senders number packets from zero.
        let (highest, before) = self.highest.unwrap_or((0, sent));
        if seq > highest + 1 && self.gap.is_none() {
            // The send times of missing packets are interpolated.
            let span = sent.as_nanos().saturating_sub(before.as_nanos());
            self.gap = Some((highest + 1, later(before, span / (seq - highest))));
        } else if self.gap.is_some_and(|(first, _)| first == seq) {
            self.gap = None;
        }
        if seq >= highest {
            self.highest = Some((seq, sent));
        }
        let reached = seq.max(highest);
        let due = |(first, _): &(u64, Time)| first + u64::from(config.reordering) <= reached;
        let lost = self.gap.take_if(|gap| due(gap)).map(|(_, left)| left);
        let Some(left) = lost.or(marked.then_some(sent)) else {
            return false;
        };
        let Some(began) = self.began else {
            // ns-2 uses the packet that reveals the first loss as the start of the event.
            let late = config.reporting == Reporting::OnArrival;
            self.began = Some(if late { sent } else { left });
            return true;
        };
        let new = left > later(began, rtt);
        if new {
            self.began = Some(left);
        }
        new
    }
}

/// Minimum report interval.
const MIN_SPAN: Duration = Duration::from_micros(100);
/// Number of runs that a report repeats after their first report. A run ends with a loss or a mark,
/// so at a loss rate of 1 in 100, eight runs cover the last 800 packets.
const REPEATED_PER_PACKET: usize = 8;
/// Reports that are sent per round trip may repeat more runs: at 20 losses per round trip, three
/// consecutive reports may be lost.
const REPEATED: usize = 64;
/// Packets that a report with their times repeats: a second at 2,000 packets per second.
const REPEATED_TIMES: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn losses_within_a_round_trip_are_one_event() {
        let config = ReceiverConfig::tfrc();
        let mut events = Events::default();
        let mut arrive =
            |seq: u64, marked| events.on_packet(seq, ms(10 * seq), marked, &config, 100_000_000);
        let lost = [5, 7, 30, 42, 43];
        let news: Vec<u64> = (0..60)
            .filter(|seq| !lost.contains(seq))
            .filter(|seq| arrive(*seq, *seq == 20))
            .collect();
        // Three later packets indicate a loss; a mark counts immediately. 7 belongs to the event of
        // 5. 30 left exactly 100 ms after 20. 42 and 43 are one event.
        assert_eq!(news, [8, 20, 45]);
    }

    #[test]
    fn filled_gap_is_not_a_loss() {
        let config = ReceiverConfig::tfrc();
        let mut events = Events::default();
        for seq in [0, 1, 3, 4, 2, 5, 6, 7, 8] {
            assert!(!events.on_packet(seq, ms(seq), false, &config, 0));
        }
    }

    #[test]
    fn runs_are_merged_and_sorted() {
        let mut receiver = Receiver::new(ReceiverConfig::rap());
        for (seq, ecn) in [
            (0, Ecn::Ect0),
            (1, Ecn::Ect0),
            (4, Ecn::Ect0),
            (5, Ecn::Ce),
            (3, Ecn::Ect0),
        ] {
            receiver.add(ReceivedRun {
                seq,
                run: 1,
                at: ms(seq),
                ecn,
            });
        }
        let runs: Vec<(u64, u32)> = receiver.runs.iter().map(|r| (r.seq, r.run)).collect();
        assert_eq!(runs, [(1, 2), (3, 1), (4, 1), (5, 1)]);
    }
}
