//! Sending endpoint of a cluster-to-cluster application (C-UDP).
//!
//! An endpoint labels its packets with application and flow, and reads the state of the path from
//! the header of every packet that it receives. It sends at its part of the available bandwidth.

use core::time::Duration;

use crate::units::{Bytes, Rate, Time};
use crate::wire::cp::{ApplicationId, Cp, PathReport, Role, Shares, Stamp};

/// Configuration of a [`CpSender`].
#[derive(Clone, Debug, PartialEq)]
pub struct CpSenderConfig {
    /// Application of the flow.
    pub application: ApplicationId,
    /// Flow within the application.
    pub flow: u16,
    /// Flowshares that the application asks for.
    pub shares: Shares,
    /// Part of the flow in flowshares: `k` of the paper, whose endpoints send at `k` times the
    /// available bandwidth. The parts of all flows add up to `shares` at most. Negative numbers and
    /// NaN count as zero.
    pub part: f64,
    /// Size of a packet on the wire, all headers included.
    pub packet_size: Bytes,
    /// Departure of the first packet.
    pub start: Time,
}

/// Paces the packets of one flow.
///
/// Call [`poll`](Self::poll) at [`next_timeout`](Self::next_timeout) and after
/// [`on_header`](Self::on_header).
#[derive(Clone, Debug)]
pub struct CpSender {
    config: CpSenderConfig,
    rate: Rate,
    path: Option<PathReport>,
    /// Limit of the rate without reports; halved after each further time-out.
    fallback: Option<Rate>,
    /// Expiry of the wait for a report. Starts with the first packet after a report.
    silence: Option<Time>,
    /// Latest packet, and latest data packet.
    last: Option<Time>,
    data: Option<Time>,
    /// Time of the latest change of the rate. A packet that is overdue at the new rate is due then.
    changed: Time,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpTransmit {
    /// Header of the UDP payload.
    pub header: Cp,
    /// Content after the header.
    pub content: CpContent,
}

/// Content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpContent {
    /// Data of the application.
    Data,
    /// None. Between data packets that are far apart it keeps the state of the path known.
    KeepAlive,
}

impl CpSender {
    /// A sender before its first packet. It starts with one packet per second (RFC 5348 section
    /// 4.2).
    pub fn new(config: CpSenderConfig) -> Self {
        Self {
            rate: config.packet_size / FIRST_INTERVAL,
            config,
            path: None,
            fallback: None,
            silence: None,
            last: None,
            data: None,
            changed: Time::ZERO,
        }
    }

    /// A packet with this header was received.
    pub fn on_header(&mut self, now: Time, header: &Cp) {
        let Role::Report(report) = header.role else {
            return;
        };
        if header.application != self.config.application {
            return;
        }
        self.path = Some(report);
        if report.peer_lost {
            // The values are those of the past. The time-out starts now unless it is running.
            self.fallback.get_or_insert(self.rate);
            self.arm(now);
            return;
        }
        self.fallback = None;
        self.silence = None;
        self.follow(now);
    }

    /// The next packet, if it is due.
    pub fn poll(&mut self, now: Time) -> Option<CpTransmit> {
        if now < self.config.start {
            return None;
        }
        if self.silence.is_some_and(|at| at <= now) {
            // RFC 5348 section 4.4: without feedback the rate is halved.
            let limit = self.fallback.unwrap_or(self.rate).scale(1, 2);
            self.fallback = Some(limit.max(self.config.packet_size / LONGEST_INTERVAL));
            self.silence = None;
            self.arm(now);
            self.follow(now);
        }
        let (due, content) = self.due();
        if due > now {
            return None;
        }
        self.last = Some(now);
        if content == CpContent::Data {
            self.data = Some(now);
        }
        self.arm(now);
        let header = Cp {
            application: self.config.application,
            flow: self.config.flow,
            shares: self.config.shares,
            role: Role::Origin,
        };
        Some(CpTransmit { header, content })
    }

    /// Time of the next packet or time-out.
    pub fn next_timeout(&self) -> Time {
        self.due().0.min(self.silence.unwrap_or(Time::FAR))
    }

    /// Changes the flowshares of the application and the part of this flow.
    pub fn set_part(&mut self, now: Time, shares: Shares, part: f64) {
        (self.config.shares, self.config.part) = (shares, part);
        self.follow(now);
    }

    /// State of the path at the latest report.
    pub fn path(&self) -> Option<PathReport> {
        self.path
    }

    /// Sending rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Whether the endpoint limits its rate by itself, because there are no reports.
    pub fn is_alone(&self) -> bool {
        self.fallback.is_some()
    }

    fn follow(&mut self, now: Time) {
        self.changed = now;
        let Some(path) = self.path else {
            self.rate = self.fallback.unwrap_or(self.rate).min(self.rate);
            return;
        };
        let available = path.available.to_rate();
        // Before its first round-trip time, the other point knows nothing about the path.
        if available > Rate::ZERO && path.rtt != Stamp::default() {
            self.rate = Rate::from_f64(available.as_f64() * self.config.part);
        }
        if let Some(limit) = self.fallback {
            self.rate = self.rate.min(limit);
        }
        if path.stop {
            self.rate = Rate::ZERO;
        }
    }

    /// Time and content of the next packet.
    fn due(&self) -> (Time, CpContent) {
        let (Some(last), Some(data)) = (self.last, self.data) else {
            return (self.config.start, CpContent::Data);
        };
        let data = if self.rate == Rate::ZERO {
            Time::FAR
        } else {
            (data + self.config.packet_size / self.rate).max(self.changed)
        };
        let alive = last + KEEP_ALIVE;
        if data <= alive {
            (data, CpContent::Data)
        } else {
            (alive, CpContent::KeepAlive)
        }
    }

    /// Starts the wait for a report: four round trips, or two packets if that is longer (RFC 5348
    /// section 4.3).
    fn arm(&mut self, now: Time) {
        if self.silence.is_none() {
            let rtt = self.path.map_or(UNKNOWN_RTT, |path| path.rtt.to_duration());
            let packets = 2 * (self.config.packet_size / self.rate).min(KEEP_ALIVE);
            self.silence = Some(now + (4 * rtt).max(packets));
        }
    }
}

/// Initial interval between packets.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// Longest interval between packets of a flow. A sender of fewer data packets could not follow the
/// path.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Interval between data packets at the lowest rate: the `t_mbi` of RFC 5348.
const LONGEST_INTERVAL: Duration = Duration::from_secs(64);
/// Round-trip time before the first report.
const UNKNOWN_RTT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cp::{Delay, LossCode, RateCode};

    fn sender(part: f64) -> CpSender {
        CpSender::new(CpSenderConfig {
            application: ApplicationId(1),
            flow: 2,
            shares: Shares::ONE,
            part,
            packet_size: Bytes(1_000),
            start: Time::ZERO,
        })
    }

    fn report(kbps: u64) -> PathReport {
        PathReport {
            rtt: Stamp::span(Duration::from_millis(100)),
            deviation: Delay::default(),
            loss: LossCode::default(),
            available: RateCode::of(Rate::kbps(kbps)),
            used: RateCode::default(),
            packet_size: 1_000,
            flows: 1,
            peer_lost: false,
            stop: false,
        }
    }

    fn header(report: PathReport) -> Cp {
        Cp {
            application: ApplicationId(1),
            flow: 9,
            shares: Shares::ONE,
            role: Role::Report(report),
        }
    }

    /// Data packets and keep-alives within a span after `from`.
    fn packets(sender: &mut CpSender, from: Time, span: Duration) -> (usize, usize) {
        let (mut data, mut alive) = (0, 0);
        let mut now = from;
        while now < from + span {
            match sender.poll(now).map(|sent| sent.content) {
                Some(CpContent::Data) => data += 1,
                Some(CpContent::KeepAlive) => alive += 1,
                None => {}
            }
            now = sender.next_timeout().max(now);
        }
        (data, alive)
    }

    #[test]
    fn rate_is_the_part_of_the_available_bandwidth() {
        let mut sender = sender(0.5);
        assert!(sender.poll(Time::ZERO).is_some());
        assert_eq!(sender.poll(Time::ZERO), None);
        let now = Time::from_millis(100);
        sender.on_header(now, &header(report(800)));
        // 400 kb/s are 50 packets per second.
        assert_eq!(
            packets(&mut sender, now, Duration::from_millis(399)),
            (20, 0)
        );
        sender.set_part(now, Shares::ONE, 0.25);
        assert_eq!(sender.rate(), Rate::bps(199_936));
        let other = Cp {
            application: ApplicationId(3),
            ..header(report(8_000))
        };
        sender.on_header(now, &other);
        assert_eq!(sender.rate(), Rate::bps(199_936));
    }

    #[test]
    fn slow_flow_keeps_in_touch() {
        let mut sender = sender(0.01);
        sender.poll(Time::ZERO);
        let (mut data, mut alive) = (0, 0);
        // 0.8 kb/s are a data packet in ten seconds.
        for second in 1..=20 {
            let now = Time::from_secs(second);
            sender.on_header(now, &header(report(80)));
            let sent = packets(&mut sender, now, Duration::from_millis(100));
            (data, alive) = (data + sent.0, alive + sent.1);
        }
        assert_eq!(data, 2);
        assert!((18..=20).contains(&alive), "{alive}");
    }

    #[test]
    fn silence_halves_the_rate_until_a_report_restores_it() {
        let mut sender = sender(1.0);
        sender.poll(Time::ZERO);
        sender.on_header(Time::ZERO, &header(report(800)));
        assert!(!sender.is_alone());
        // The time-out starts with the first packet, and is four round trips.
        packets(&mut sender, Time::ZERO, Duration::from_millis(2_500));
        assert!(
            sender.is_alone() && sender.rate() < Rate::kbps(30),
            "{:?}",
            sender.rate()
        );
        packets(&mut sender, Time::from_secs(3), Duration::from_mins(10));
        assert_eq!(sender.rate(), Rate::bps(125));
        sender.on_header(Time::from_secs(700), &header(report(800)));
        assert!(!sender.is_alone() && sender.rate() >= Rate::kbps(799));
    }

    #[test]
    fn lost_aggregation_point_has_the_effect_of_silence() {
        let mut sender = sender(1.0);
        let mut now = Time::ZERO;
        sender.on_header(now, &header(report(800)));
        let lost = PathReport {
            peer_lost: true,
            ..report(800)
        };
        while now < Time::from_secs(4) {
            if sender.poll(now).is_some() {
                sender.on_header(now, &header(lost));
            }
            now = sender.next_timeout();
        }
        assert!(sender.rate() < Rate::kbps(30), "{:?}", sender.rate());
    }

    #[test]
    fn open_breaker_stops_data() {
        let mut sender = sender(1.0);
        sender.poll(Time::ZERO);
        let stop = PathReport {
            stop: true,
            ..report(800)
        };
        sender.on_header(Time::ZERO, &header(stop));
        let (data, alive) = packets(&mut sender, Time::ZERO, Duration::from_secs(10));
        assert_eq!(data, 0);
        assert!(alive >= 9, "{alive}");
    }
}
