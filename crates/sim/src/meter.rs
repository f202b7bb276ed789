//! What is counted of every flow while a world runs: packets, bytes, delays, losses.
//!
//! Constant memory per flow and bin, so that it serves one video as well as a thousand transfers.

use core::hint::black_box;
use core::time::Duration;

use tidegate_core::units::{Bytes, Rate, Time};

use delays::Delays;

mod delays;

/// Meters all flows of a run.
///
/// With many flows it matters more how many cache lines a packet touches than what is done there: it
/// is one of its flow's, and one of its delay's.
#[derive(Clone, Debug, PartialEq)]
pub struct Meter {
    /// What each flow does in a span: a bin, or what of it is on one side of an edge of the window.
    present: Vec<Present>,
    kept: Vec<Kept>,
    delays: Delays,
    window: (Time, Time),
    bin: Duration,
    /// All spans in which anything was counted.
    spans: Vec<Span>,
    /// Where the last of them begins, and how long it is, in ns.
    last: (u64, u64),
}

impl Meter {
    /// For `flows` flows. Totals cover what happens from `window.0` until just before `window.1`;
    /// bins of the length `bin`, above zero, cover the whole run.
    pub fn new(flows: usize, window: (Time, Time), bin: Duration) -> Self {
        Self {
            present: vec![Present::in_span(0); flows],
            kept: vec![Kept::default(); flows],
            delays: Delays::new(flows),
            window,
            bin: bin.max(Duration::from_nanos(1)),
            spans: vec![Span::default()],
            last: (0, 0),
        }
    }

    /// A flow's sender put a packet on its first link.
    #[inline]
    pub fn sent(&mut self, flow: usize, at: Time, size: Bytes) {
        let present = self.present(flow, at);
        present.sent += 1;
        present.sent_bytes += size;
    }

    /// A packet that entered its first link at `entered` reached the flow's receiver.
    #[inline]
    pub fn arrived(&mut self, flow: usize, at: Time, size: Bytes, entered: Time) {
        let delay = between(entered, at);
        let present = self.present(flow, at);
        present.received += 1;
        present.received_bytes += size;
        present.delay_sum += delay;
        present.delay_min = present.delay_min.min(delay);
        present.delay_max = present.delay_max.max(delay);
        let span = present.span;
        if self.spans[span as usize].inside {
            self.delays.add(flow, delay);
        }
    }

    /// Something of the flow is about to be counted: touches what that needs.
    #[inline]
    pub fn soon(&self, flow: usize) {
        let present = &self.present[flow];
        black_box(present.span);
        self.delays.soon(flow, present.delay_max);
    }

    /// A packet reached the flow's sender `delay` after it left the receiver.
    #[inline]
    pub fn answered(&mut self, flow: usize, at: Time, entered: Time) {
        let present = self.present(flow, at);
        present.answered += 1;
        present.back += between(entered, at);
    }

    /// A link dropped a packet of the flow.
    pub fn dropped(&mut self, flow: usize, at: Time) {
        let Some(kept) = self.kept.get_mut(flow) else {
            return;
        };
        if self.window.0 <= at && at < self.window.1 {
            kept.drops.push(at);
        }
        let bin = at.as_nanos() / self.bin.as_nanos() as u64;
        kept.bin(bin as usize).dropped += 1;
    }

    /// The length of a bin.
    pub fn bin_length(&self) -> Duration {
        self.bin
    }

    /// What a flow did in each bin, from the start of the run. Panics if there is no such flow.
    pub fn bins(&self, flow: usize) -> impl ExactSizeIterator<Item = Bin> {
        self.whole(flow).bins.into_iter().map(|tally| tally.bin())
    }

    /// When links dropped packets of a flow, within the window and as they were told; not sorted
    /// where several links drop. Panics if there is no such flow.
    pub fn drops(&self, flow: usize) -> &[Time] {
        &self.kept[flow].drops
    }

    /// What a flow did within the window. Panics if there is no such flow.
    pub fn totals(&self, flow: usize) -> Totals {
        let all = self.whole(flow);
        let (from, to) = self.window;
        let span = to.since(from);
        let count = all.received.packets;
        let there = Duration::from_nanos(all.delay_sum.checked_div(count).unwrap_or(0));
        let back = all.back.0.checked_div(all.back.1);
        let rtt = back.map(|back| there + Duration::from_nanos(back));
        let percentile = |percent| self.delays.percentile(flow, percent, count, all.delay_max);
        Totals {
            span,
            sent: all.sent,
            received: all.received,
            dropped: all.drops.len() as u64,
            loss_events: loss_events(&all.drops, rtt.unwrap_or(there * 2)),
            rtt,
            delay_min: Duration::from_nanos(if count > 0 { all.delay_min } else { 0 }),
            delay_mean: there,
            delay_p50: percentile(50),
            delay_p95: percentile(95),
            delay_p99: percentile(99),
            delay_max: Duration::from_nanos(all.delay_max),
        }
    }

    /// What was kept of a flow, with what it does at present.
    fn whole(&self, flow: usize) -> Kept {
        let mut all = self.kept[flow].clone();
        let present = &self.present[flow];
        all.take(present, self.spans[present.span as usize]);
        all
    }

    /// What a flow does in the span of `at`.
    #[inline]
    fn present(&mut self, flow: usize, at: Time) -> &mut Present {
        let (from, length) = self.last;
        if at.as_nanos().wrapping_sub(from) >= length {
            self.begin(at);
        }
        let span = (self.spans.len() - 1) as u32;
        if self.present[flow].span != span {
            self.keep(flow, span);
        }
        &mut self.present[flow]
    }

    /// Begins the span that has `at`. Nearly every packet is in that of the one before, which saves
    /// divisions and comparisons.
    #[cold]
    fn begin(&mut self, at: Time) {
        let (at, length) = (at.as_nanos(), self.bin.as_nanos() as u64);
        let bin = at / length;
        let (mut from, mut to) = (bin * length, (bin * length).saturating_add(length));
        for edge in [self.window.0, self.window.1] {
            let edge = edge.as_nanos();
            if edge <= at {
                from = from.max(edge);
            } else {
                to = to.min(edge);
            }
        }
        self.last = (from, to - from);
        self.spans.push(Span {
            bin: bin as usize,
            inside: self.window.0.as_nanos() <= at && at < self.window.1.as_nanos(),
        });
    }

    /// Keeps what a flow did in an earlier span.
    #[cold]
    fn keep(&mut self, flow: usize, span: u32) {
        let present = &mut self.present[flow];
        self.kept[flow].take(present, self.spans[present.span as usize]);
        *present = Present::in_span(span);
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
    fn add(&mut self, more: Self) {
        self.packets += more.packets;
        self.bytes += more.bytes;
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

/// A time in which packets count for one bin, and all for the totals or none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Span {
    bin: usize,
    /// Whether it is within the window.
    inside: bool,
}

/// What a flow does in a span, in one cache line. Times are in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(64))]
struct Present {
    /// By its number.
    span: u32,
    /// Packets: nobody plays four thousand million of one flow in the length of a bin.
    sent: u32,
    received: u32,
    answered: u32,
    sent_bytes: Bytes,
    received_bytes: Bytes,
    delay_sum: u64,
    delay_min: u64,
    delay_max: u64,
    /// The delays on the way back, together.
    back: u64,
}

impl Present {
    fn in_span(span: u32) -> Self {
        Self {
            span,
            sent: 0,
            received: 0,
            answered: 0,
            sent_bytes: Bytes::ZERO,
            received_bytes: Bytes::ZERO,
            delay_sum: 0,
            delay_min: u64::MAX,
            delay_max: 0,
            back: 0,
        }
    }
}

/// What a flow did before: within the window, but for the bins.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    sent: Count,
    received: Count,
    /// Delays on the way back: their sum, in ns, and number.
    back: (u64, u64),
    /// Delays there, in ns.
    delay_sum: u64,
    delay_min: u64,
    delay_max: u64,
    drops: Vec<Time>,
    bins: Vec<Tally>,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            sent: Count::default(),
            received: Count::default(),
            back: (0, 0),
            delay_sum: 0,
            delay_min: u64::MAX,
            delay_max: 0,
            drops: Vec::new(),
            bins: Vec::new(),
        }
    }
}

impl Kept {
    /// Adds what was done in a span.
    fn take(&mut self, present: &Present, span: Span) {
        let sent = Count {
            packets: present.sent.into(),
            bytes: present.sent_bytes,
        };
        let received = Count {
            packets: present.received.into(),
            bytes: present.received_bytes,
        };
        if span.inside {
            self.sent.add(sent);
            self.received.add(received);
            self.back.0 += present.back;
            self.back.1 += u64::from(present.answered);
            self.delay_sum += present.delay_sum;
            self.delay_min = self.delay_min.min(present.delay_min);
            self.delay_max = self.delay_max.max(present.delay_max);
        }
        // Answers alone make no bin.
        if present.sent > 0 || present.received > 0 {
            let bin = self.bin(span.bin);
            bin.sent.add(sent);
            bin.received.add(received);
            bin.delay_sum += present.delay_sum;
            bin.delay_max = bin.delay_max.max(present.delay_max);
        }
    }

    fn bin(&mut self, index: usize) -> &mut Tally {
        if index >= self.bins.len() {
            self.bins.resize(index + 1, Tally::default());
        }
        &mut self.bins[index]
    }
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

/// In ns.
#[inline]
fn between(entered: Time, at: Time) -> u64 {
    at.as_nanos().saturating_sub(entered.as_nanos())
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
