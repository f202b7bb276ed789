//! What an observer of the network sees of each flow, the same for every peer.

use core::time::Duration;

use tidegate_core::units::{Bytes, Time};
use tidegate_sim::world::{Flight, Observer};

use crate::result::{BIN, Curves, Summary};

/// Watches the packets of senders, which are the parties with even numbers: party 2n sends for
/// flow n.
///
/// The network keeps the moment at which a packet entered, so what a flow sends need not be
/// understood.
#[derive(Debug)]
pub struct Meter {
    flows: Vec<Tally>,
}

/// When a flow was played and what its packets need at least.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Its start.
    pub start: Time,
    /// Its end.
    pub stop: Time,
    /// Propagation on the way there.
    pub propagation: Duration,
}

impl Meter {
    /// For `flows` flows of a run that lasts for `duration`.
    pub fn new(flows: usize, duration: Duration) -> Self {
        let bins = duration.as_nanos().div_ceil(BIN.as_nanos()) as usize;
        let tally = || Tally {
            bins: vec![Bin::default(); bins],
            sent: Vec::new(),
            arrived: Vec::new(),
        };
        Self {
            flows: core::iter::repeat_with(tally).take(flows).collect(),
        }
    }

    /// What was seen of flow `flow` over time.
    pub fn curves(&mut self, flow: usize) -> Curves {
        let mut curves = Curves::default();
        let span = BIN.as_secs_f64();
        let bits_per_second = |bytes: u64| (Bytes(bytes).bits() as f64 / span).round() as u64;
        for bin in &mut self.flows[flow].bins {
            curves.sent_bps.push(bits_per_second(bin.sent_bytes));
            curves.rate_bps.push(bits_per_second(bin.arrived_bytes));
            curves
                .delay_ms
                .push(quantile(&mut bin.delays, 0.5).map(millis));
            let lost = bin.sent.saturating_sub(bin.arrived);
            let share = f64::from(lost) / f64::from(bin.sent);
            curves.loss.push((bin.sent > 0).then(|| round(share, 1e6)));
        }
        curves
    }

    /// What was seen of flow `flow` in one number each, [`SETTLING`] after its start.
    pub fn summary(&self, flow: usize, span: Span) -> Summary {
        let from = (span.start + SETTLING).min(span.stop);
        let within = |at: Time| from <= at && at < span.stop;
        let tally = &self.flows[flow];
        let sent = tally.sent.iter().filter(|at| within(**at)).count();
        let mut came = 0;
        let mut bytes = Bytes::ZERO;
        let mut queueing = Vec::new();
        for packet in &tally.arrived {
            came += usize::from(within(packet.sent));
            if within(packet.arrived) {
                bytes += packet.size;
                let delay = packet.arrived.since(packet.sent);
                queueing.push(delay.saturating_sub(span.propagation));
            }
        }
        let lost = sent - came;
        let mean = queueing.iter().sum::<Duration>() / (queueing.len().max(1) as u32);
        let rate = bytes / span.stop.since(from).max(Duration::from_millis(1));
        Summary {
            rate_bps: rate.as_bps(),
            queueing_mean_ms: (!queueing.is_empty()).then(|| millis(mean)),
            queueing_p95_ms: quantile(&mut queueing, 0.95).map(millis),
            loss: (sent > 0).then(|| round(lost as f64 / sent as f64, 1e6)),
        }
    }
}

impl Observer for Meter {
    fn sent(&mut self, at: Time, flight: Flight<'_>) {
        if !flight.node.0.is_multiple_of(2) {
            return;
        }
        let tally = &mut self.flows[flight.node.0 / 2];
        tally.sent.push(at);
        if let Some(bin) = tally.bin(at) {
            bin.sent += 1;
            bin.sent_bytes += flight.size.get();
        }
    }

    fn arrived(&mut self, at: Time, flight: Flight<'_>) {
        if flight.node.0.is_multiple_of(2) {
            return;
        }
        let tally = &mut self.flows[flight.node.0 / 2];
        let sent = flight.entered;
        tally.arrived.push(Passage {
            sent,
            arrived: at,
            size: flight.size,
        });
        if let Some(bin) = tally.bin(sent) {
            bin.arrived += 1;
        }
        if let Some(bin) = tally.bin(at) {
            bin.arrived_bytes += flight.size.get();
            bin.delays.push(at.since(sent));
        }
    }
}

/// What was seen of one flow.
#[derive(Debug)]
struct Tally {
    bins: Vec<Bin>,
    /// When its packets entered the network.
    sent: Vec<Time>,
    /// Those that came out of it.
    arrived: Vec<Passage>,
}

impl Tally {
    fn bin(&mut self, at: Time) -> Option<&mut Bin> {
        let place = u128::from(at.as_nanos()) / BIN.as_nanos();
        self.bins.get_mut(place as usize)
    }
}

#[derive(Debug)]
struct Passage {
    sent: Time,
    arrived: Time,
    size: Bytes,
}

/// Loss belongs to the moment of sending, delay and rate to that of arrival.
#[derive(Clone, Debug, Default)]
struct Bin {
    sent: u32,
    sent_bytes: u64,
    /// Of those sent in this bin.
    arrived: u32,
    arrived_bytes: u64,
    delays: Vec<Duration>,
}

/// The smallest value that at least the share `q` do not exceed.
fn quantile(values: &mut [Duration], q: f64) -> Option<Duration> {
    values.sort_unstable();
    let rank = (values.len() as f64 * q).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

fn millis(span: Duration) -> f64 {
    round(span.as_secs_f64() * 1e3, 1e3)
}

fn round(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

/// What happens before is how a controller starts, not how it runs.
pub const SETTLING: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use tidegate_core::control::Ecn;
    use tidegate_sim::packet_agent::Body;
    use tidegate_sim::world::NodeId;

    use super::*;

    static BODY: Body = Body::Datagram(Vec::new());

    fn flight(node: usize, entered: u64) -> Flight<'static> {
        Flight {
            node: NodeId(node),
            flow: 0,
            size: Bytes(1_000),
            ecn: Ecn::NotEct,
            entered: Time::from_millis(entered),
            body: &BODY,
        }
    }

    /// A packet from party 0 to party 1.
    fn see(meter: &mut Meter, sent: u64, arrived: Option<u64>) {
        meter.sent(Time::from_millis(sent), flight(0, sent));
        if let Some(at) = arrived {
            meter.arrived(Time::from_millis(at), flight(1, sent));
        }
    }

    #[test]
    fn rates_count_where_packets_are_and_loss_where_they_left() {
        let mut meter = Meter::new(1, Duration::from_millis(600));
        see(&mut meter, 0, Some(50));
        see(&mut meter, 190, Some(260));
        see(&mut meter, 195, None);
        let curves = meter.curves(0);
        assert_eq!(curves.sent_bps, [120_000, 0, 0]);
        assert_eq!(curves.rate_bps, [40_000, 40_000, 0]);
        assert_eq!(curves.delay_ms, [Some(50.0), Some(70.0), None]);
        assert_eq!(curves.loss, [Some(0.333_333), None, None]);
    }

    #[test]
    fn reports_on_the_way_back_do_not_count() {
        let mut meter = Meter::new(1, Duration::from_millis(200));
        meter.sent(Time::ZERO, flight(1, 0));
        meter.arrived(Time::ZERO, flight(0, 0));
        assert_eq!(meter.curves(0).sent_bps, [0]);
    }

    #[test]
    fn the_summary_leaves_out_the_start() {
        let mut meter = Meter::new(1, Duration::from_secs(10));
        see(&mut meter, 1_000, None);
        see(&mut meter, 6_000, Some(6_030));
        see(&mut meter, 7_000, Some(7_050));
        see(&mut meter, 8_000, None);
        let span = Span {
            start: Time::ZERO,
            stop: Time::from_secs(10),
            propagation: Duration::from_millis(20),
        };
        let summary = meter.summary(0, span);
        assert_eq!(summary.rate_bps, 3_200);
        assert_eq!(summary.queueing_mean_ms, Some(20.0));
        assert_eq!(summary.queueing_p95_ms, Some(30.0));
        assert_eq!(summary.loss, Some(0.333_333));
    }
}
