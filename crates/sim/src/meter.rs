//! What is counted of every flow while a world runs: packets, bytes, delays, losses.
//!
//! Constant memory per flow and bin, so that it serves one video as well as a thousand transfers.

use core::hint::black_box;
use core::time::Duration;

use tidegate_core::units::{Bytes, Rate, Time};

/// Meters all flows of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Meter {
    flows: Vec<FlowMeter>,
    window: (Time, Time),
    bin: Duration,
    /// The bin of the last packet: when it begins, and its number.
    present: (u64, usize),
}

impl Meter {
    /// For `flows` flows. Totals cover what happens from `window.0` until just before `window.1`;
    /// bins of the length `bin`, above zero, cover the whole run.
    pub fn new(flows: usize, window: (Time, Time), bin: Duration) -> Self {
        Self {
            flows: vec![FlowMeter::default(); flows],
            window,
            bin: bin.max(Duration::from_nanos(1)),
            present: (0, 0),
        }
    }

    /// A flow's sender put a packet on its first link.
    #[inline]
    pub fn sent(&mut self, flow: usize, at: Time, size: Bytes) {
        let inside = self.is_inside(at);
        let bin = self.bin_of(at);
        let meter = &mut self.flows[flow];
        if inside {
            meter.sent.add(size);
        }
        meter.bin(bin).sent.add(size);
    }

    /// A packet that entered its first link at `entered` reached the flow's receiver.
    #[inline]
    pub fn arrived(&mut self, flow: usize, at: Time, size: Bytes, entered: Time) {
        let inside = self.is_inside(at);
        let bin = self.bin_of(at);
        let meter = &mut self.flows[flow];
        let delay = between(entered, at);
        if inside {
            meter.received.add(size);
            meter.delays.add(delay);
        }
        let bin = meter.bin(bin);
        bin.received.add(size);
        bin.delay_sum += delay;
        bin.delay_max = bin.delay_max.max(delay);
    }

    /// Something of the flow is about to be counted: touches what that needs.
    #[inline]
    pub fn soon(&self, flow: usize) {
        let meter = &self.flows[flow];
        black_box((meter.sent.packets, meter.back.1, meter.drops.len()));
        black_box((
            meter.delays.count,
            meter.bins.last().map(|bin| bin.delay_max),
        ));
    }

    /// A packet reached the flow's sender `delay` after it left the receiver.
    #[inline]
    pub fn answered(&mut self, flow: usize, at: Time, entered: Time) {
        if self.is_inside(at) {
            let meter = &mut self.flows[flow];
            meter.back.0 += between(entered, at);
            meter.back.1 += 1;
        }
    }

    /// A link dropped a packet of the flow.
    pub fn dropped(&mut self, flow: usize, at: Time) {
        let (inside, bin) = (self.is_inside(at), self.bin_of(at));
        let Some(meter) = self.flows.get_mut(flow) else {
            return;
        };
        if inside {
            meter.drops.push(at);
        }
        meter.bin(bin).dropped += 1;
    }

    /// The length of a bin.
    pub fn bin_length(&self) -> Duration {
        self.bin
    }

    /// What a flow did in each bin, from the start of the run. Panics if there is no such flow.
    pub fn bins(&self, flow: usize) -> impl ExactSizeIterator<Item = Bin> {
        self.flows[flow].bins.iter().map(Tally::bin)
    }

    /// When links dropped packets of a flow, within the window and as they were told; not sorted
    /// where several links drop. Panics if there is no such flow.
    pub fn drops(&self, flow: usize) -> &[Time] {
        &self.flows[flow].drops
    }

    /// What a flow did within the window. Panics if there is no such flow.
    pub fn totals(&self, flow: usize) -> Totals {
        let meter = &self.flows[flow];
        let (from, to) = self.window;
        let span = to.since(from);
        let back = meter.back.0.checked_div(meter.back.1);
        let there = meter.delays.mean();
        let rtt = back.map(|back| there + Duration::from_nanos(back));
        Totals {
            span,
            sent: meter.sent,
            received: meter.received,
            dropped: meter.drops.len() as u64,
            loss_events: loss_events(&meter.drops, rtt.unwrap_or(there * 2)),
            rtt,
            delay_min: meter.delays.least(),
            delay_mean: meter.delays.mean(),
            delay_p50: meter.delays.percentile(50),
            delay_p95: meter.delays.percentile(95),
            delay_p99: meter.delays.percentile(99),
            delay_max: Duration::from_nanos(meter.delays.max),
        }
    }

    #[inline]
    fn is_inside(&self, at: Time) -> bool {
        self.window.0 <= at && at < self.window.1
    }

    #[inline]
    fn bin_of(&mut self, at: Time) -> usize {
        let (at, length) = (at.as_nanos(), self.bin.as_nanos() as u64);
        // Nearly every packet is in the bin of the one before, which saves a division.
        if at.wrapping_sub(self.present.0) >= length {
            let bin = at / length;
            self.present = (bin * length, bin as usize);
        }
        self.present.1
    }
}

/// The numbers of one flow within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How long the window is.
    pub span: Duration,
    /// What the sender put on the network.
    pub sent: Count,
    /// What reached the receiver.
    pub received: Count,
    /// Packets that links dropped, on their way there.
    pub dropped: u64,
    /// Drops that are further than a round trip behind the one that began the last event
    /// (RFC 5348 section 5.2); of a flow that nobody answers, than twice the delay there.
    pub loss_events: u64,
    /// Mean one-way delays there and back together; none if nothing came back.
    pub rtt: Option<Duration>,
    /// Shortest one-way delay of what was received.
    pub delay_min: Duration,
    /// Mean one-way delay of what was received.
    pub delay_mean: Duration,
    /// Its median, within 3 % above.
    pub delay_p50: Duration,
    /// Its 95th percentile, likewise.
    pub delay_p95: Duration,
    /// Its 99th percentile, likewise.
    pub delay_p99: Duration,
    /// The longest, exactly.
    pub delay_max: Duration,
}

impl Totals {
    /// Mean rate of what the sender put on the network.
    pub fn send_rate(&self) -> Rate {
        self.sent.bytes / self.span.max(Duration::from_nanos(1))
    }

    /// Mean rate of what was received.
    pub fn receive_rate(&self) -> Rate {
        self.received.bytes / self.span.max(Duration::from_nanos(1))
    }

    /// Dropped packets over sent ones; none if none was sent.
    pub fn loss(&self) -> Option<f64> {
        share(self.dropped, self.sent.packets)
    }

    /// Loss events over packets sent; none if none was sent.
    pub fn loss_event_rate(&self) -> Option<f64> {
        share(self.loss_events, self.sent.packets)
    }
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub packets: u64,
    /// How large together, every header included.
    pub bytes: Bytes,
}

impl Count {
    #[inline]
    fn add(&mut self, size: Bytes) {
        self.packets += 1;
        self.bytes += size;
    }
}

/// What a flow did in a short span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// What the sender put on the network.
    pub sent: Count,
    /// What reached the receiver.
    pub received: Count,
    /// The one-way delays of what was received, together.
    pub delay_sum: Duration,
    /// The longest of them.
    pub delay_max: Duration,
    /// Packets that links dropped then, on their way there; none if nobody counted them.
    pub dropped: Option<u64>,
}

impl Bin {
    /// The mean one-way delay of what was received; none if nothing was.
    pub fn delay_mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.received.packets).unwrap_or(u32::MAX);
        self.delay_sum.checked_div(count)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct FlowMeter {
    sent: Count,
    received: Count,
    /// Delays on the way back: their sum, in ns, and number.
    back: (u64, u64),
    delays: Histogram,
    drops: Vec<Time>,
    bins: Vec<Tally>,
}

/// A [`Bin`] that is being filled. Spans are in ns here: sums of them last for 584 years, and a
/// [`Duration`] costs a division to make and more to add to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    sent: Count,
    received: Count,
    dropped: u64,
    delay_sum: u64,
    delay_max: u64,
}

impl Tally {
    fn bin(&self) -> Bin {
        Bin {
            sent: self.sent,
            received: self.received,
            dropped: Some(self.dropped),
            delay_sum: Duration::from_nanos(self.delay_sum),
            delay_max: Duration::from_nanos(self.delay_max),
        }
    }
}

impl FlowMeter {
    #[inline]
    fn bin(&mut self, index: usize) -> &mut Tally {
        if index >= self.bins.len() {
            self.bins.resize(index + 1, Tally::default());
        }
        &mut self.bins[index]
    }
}

/// Spans in ns by size: buckets of 1/32 of a power of two, in units of 1.024 µs.
#[derive(Clone, Debug, PartialEq)]
struct Histogram {
    buckets: Vec<u32>,
    sum: u64,
    count: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: Vec::new(),
            sum: 0,
            count: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Histogram {
    #[inline]
    fn add(&mut self, value: u64) {
        let index = bucket_of(value >> 10);
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, 0);
        }
        self.buckets[index] += 1;
        self.sum += value;
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum.checked_div(self.count).unwrap_or(0))
    }

    /// The shortest; zero if there is none.
    fn least(&self) -> Duration {
        Duration::from_nanos(if self.count > 0 { self.min } else { 0 })
    }

    /// By nearest rank: the upper end of the bucket, and never more than the longest.
    fn percentile(&self, percent: u64) -> Duration {
        let rank = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank && rank > 0 {
                return Duration::from_nanos((end_of(index) << 10).min(self.max));
            }
        }
        Duration::ZERO
    }
}

/// In ns.
#[inline]
fn between(entered: Time, at: Time) -> u64 {
    at.as_nanos().saturating_sub(entered.as_nanos())
}

/// Values below 64 have a bucket each; above, the five bits behind the highest tell.
#[inline]
fn bucket_of(value: u64) -> usize {
    if value < 64 {
        return value as usize;
    }
    let shift = 58 - value.leading_zeros();
    (shift as usize + 1) * 32 + ((value >> shift) as usize - 32)
}

/// The first value that is above everything in the bucket.
fn end_of(index: usize) -> u64 {
    if index < 64 {
        return index as u64 + 1;
    }
    let (shift, rest) = (index / 32 - 1, index % 32);
    (33 + rest as u64) << shift
}

/// An event lasts a round trip from the drop that began it.
fn loss_events(drops: &[Time], rtt: Duration) -> u64 {
    let mut events = 0;
    let mut over: Option<Time> = None;
    for at in drops {
        if over.is_none_or(|over| *at > over) {
            events += 1;
            over = Some(*at + rtt);
        }
    }
    events
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut last = 0;
        for index in 0..1_200 {
            let end = end_of(index);
            assert!(end > last);
            assert_eq!((bucket_of(last), bucket_of(end - 1)), (index, index));
            assert!((end - last) as f64 <= 1.0_f64.max(end as f64 / 32.0));
            last = end;
        }
    }

    #[test]
    fn totals_cover_the_window_and_bins_the_run() {
        let mut meter = Meter::new(2, (ms(1_000), ms(2_000)), Duration::from_millis(200));
        for i in 0..30 {
            let at = ms(i * 100);
            meter.sent(1, at, Bytes(1_000));
            meter.arrived(1, at + Duration::from_millis(10 + i), Bytes(1_000), at);
            meter.answered(1, at + Duration::from_millis(30), at);
        }
        for at in [900, 1_200, 1_210, 1_300, 2_500] {
            meter.dropped(1, ms(at));
        }
        let totals = meter.totals(1);
        assert_eq!((totals.sent.packets, totals.received.packets), (10, 10));
        assert_eq!(totals.send_rate(), Rate::bps(80_000));
        assert_eq!(totals.delay_max, Duration::from_millis(29));
        assert_eq!(totals.delay_mean, Duration::from_micros(24_500));
        assert_eq!(totals.rtt, Some(Duration::from_micros(54_500)));
        let exact = Duration::from_millis(24);
        assert!(totals.delay_p50 >= exact && totals.delay_p50 <= exact.mul_f64(1.032));
        // Two of the three drops are within a round trip.
        assert_eq!((totals.dropped, totals.loss_events), (3, 2));
        assert_eq!(totals.loss(), Some(0.3));
        assert_eq!(meter.bins(1).len(), 15);
        let bins: Vec<Bin> = meter.bins(1).collect();
        assert_eq!(bins[3].sent.packets, 2);
        let dropped: Vec<u64> = bins.iter().filter_map(|bin| bin.dropped).collect();
        assert_eq!(dropped, [0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(bins[0].delay_mean(), Some(Duration::from_micros(10_500)));
        assert_eq!(
            meter.totals(0),
            Totals {
                span: Duration::from_secs(1),
                ..Totals::default()
            }
        );
    }

    #[test]
    fn who_is_not_answered_has_no_round_trip() {
        let mut meter = Meter::new(1, (ms(0), ms(2_000)), Duration::from_millis(200));
        meter.sent(0, ms(0), Bytes(1_000));
        meter.arrived(0, ms(50), Bytes(1_000), ms(0));
        // Twice the 50 ms there make one event of the first two.
        for at in [100, 190, 210] {
            meter.dropped(0, ms(at));
        }
        let totals = meter.totals(0);
        assert_eq!((totals.rtt, totals.loss_events), (None, 2));
    }
}
