//! Counters of every flow during a run: packets, bytes, delays, losses.
//!
//! Memory per flow and bin is constant, so the meter serves one video as well as a thousand
//! transfers.

use core::mem;
use core::time::Duration;

use prefetch_index::prefetch_index;
use tidegate_core::units::{Bytes, Time};
use tidegate_record::{Bin, Count, Dummies, Totals};

use delays::{Delays, Waits};

mod delays;

/// Meters all flows of a run.
///
/// With many flows, cache misses dominate the cost. A packet touches one cache line of its flow and
/// one of its delay histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Meter {
    /// Counters of each flow in each span, in order of time. Spans without packets are absent.
    spans: Vec<(Span, Vec<Tally>)>,
    /// Current spans of the packets that were sent last, that arrived, and that were answered.
    sent: Cursors,
    arrived: Cursors,
    returned: Cursors,
    lost: Vec<Lost>,
    dummies: Vec<Dummies>,
    /// First transmission of each flow.
    begun: Vec<Option<Time>>,
    delays: Delays,
    waits: Waits,
    window: (Time, Time),
    bin: Duration,
}

impl Meter {
    /// A meter for `flows` flows. Totals cover the half-open interval `window`; bins of length
    /// `bin`, above zero, cover the whole run.
    pub fn new(flows: usize, window: (Time, Time), bin: Duration) -> Self {
        Self {
            spans: Vec::new(),
            sent: Cursors::default(),
            arrived: Cursors::default(),
            returned: Cursors::default(),
            lost: vec![Lost::default(); flows],
            dummies: vec![Dummies::default(); flows],
            begun: vec![None; flows],
            delays: Delays::new(flows),
            waits: Waits::new(flows),
            window,
            bin: bin.max(Duration::from_nanos(1)),
        }
    }

    /// Counts a packet that the sender puts on its first link.
    #[inline]
    pub fn sent(&mut self, flow: usize, at: Time, size: Bytes) {
        if !self.sent.go_to(at) {
            self.sent.now = self.find(at);
        }
        let tally = &mut self.spans[self.sent.now.place].1[flow];
        if tally.sent == 0 {
            // Once per span, so that other packets do not access this array.
            self.begun[flow].get_or_insert(at);
        }
        tally.sent += 1;
        tally.sent_bytes += size;
    }

    /// Counts a packet at the flow's receiver; `entered` is the time at which it entered its first
    /// link.
    #[inline]
    pub fn arrived(&mut self, flow: usize, at: Time, size: Bytes, entered: Time) {
        if !self.arrived.go_to(at) {
            self.arrived.now = self.find(at);
        }
        let delay = between(entered, at);
        let (span, tallies) = &mut self.spans[self.arrived.now.place];
        let tally = &mut tallies[flow];
        tally.received += 1;
        tally.received_bytes += size;
        tally.delay_sum += delay;
        tally.delay_min = tally.delay_min.min(delay);
        tally.delay_max = tally.delay_max.max(delay);
        if span.inside {
            self.delays.add(flow, delay);
        }
    }

    /// Prefetches the cache lines of a flow whose packet is about to be counted.
    #[inline]
    pub fn prefetch_early(&self, flow: usize) {
        if let Some((_, tallies)) = self.spans.get(self.arrived.now.place) {
            prefetch_index(tallies, flow);
        }
    }

    /// Prefetches the data at addresses that [`prefetch_early`](Self::prefetch_early) has loaded.
    #[inline]
    pub fn prefetch(&self, flow: usize) {
        if let Some((_, tallies)) = self.spans.get(self.arrived.now.place) {
            self.delays.soon(flow, tallies[flow].delay_max);
        }
    }

    /// Counts a packet that arrives at the flow's sender; `entered` is its transmission by the
    /// receiver.
    #[inline]
    pub fn count_returned(&mut self, flow: usize, at: Time, entered: Time) {
        if !self.returned.go_to(at) {
            self.returned.now = self.find(at);
        }
        let tally = &mut self.spans[self.returned.now.place].1[flow];
        tally.returned += 1;
        tally.back += between(entered, at);
    }

    /// Counts a dummy packet that the sender puts on its first link. All other counters are about
    /// data.
    pub fn dummy_sent(&mut self, flow: usize, at: Time) {
        self.dummies[flow].sent += u64::from(self.is_inside(at));
    }

    /// Counts a dummy packet at the flow's receiver.
    pub fn dummy_arrived(&mut self, flow: usize, at: Time) {
        self.dummies[flow].received += u64::from(self.is_inside(at));
    }

    /// Counts a packet of the flow that a link drops.
    pub fn dropped(&mut self, flow: usize, at: Time) {
        let (inside, bin) = (self.is_inside(at), self.bin_of(at));
        let Some(lost) = self.lost.get_mut(flow) else {
            return;
        };
        if inside {
            lost.inside.push(at);
        }
        lost.bins.push(bin);
    }

    /// Counts a packet that the queue of a link drops, in addition to [`dropped`](Self::dropped).
    pub fn overflowed(&mut self, flow: usize, at: Time) {
        if self.is_inside(at)
            && let Some(lost) = self.lost.get_mut(flow)
        {
            lost.by_queues += 1;
        }
    }

    /// Counts the time of a packet in the queue and transmitter of a link, which it left at `at`.
    pub fn waited(&mut self, flow: usize, at: Time, wait: Duration) {
        if self.is_inside(at) {
            self.waits.add(flow, wait);
        }
    }

    /// Percentile of the times passed to [`waited`](Self::waited) within the window; zero without
    /// any. Panics if the flow does not exist.
    pub fn wait(&self, flow: usize, percent: u64) -> Duration {
        self.waits.percentile(flow, percent)
    }

    /// Bin length.
    pub fn bin_length(&self) -> Duration {
        self.bin
    }

    /// Counters of a flow per bin, from the start of the run. Panics if the flow does not exist.
    pub fn bins(&self, flow: usize) -> impl ExactSizeIterator<Item = Bin> {
        let mut bins = Vec::new();
        for (span, tally) in self.tallies(flow) {
            // Answers alone do not create a bin.
            if tally.sent > 0 || tally.received > 0 {
                let bin = bin_at(&mut bins, span.bin);
                bin.sent += tally.sent();
                bin.received += tally.received();
                bin.delay_sum += Duration::from_nanos(tally.delay_sum);
                bin.delay_max = bin.delay_max.max(Duration::from_nanos(tally.delay_max));
            }
        }
        for bin in &self.lost[flow].bins {
            let bin = bin_at(&mut bins, *bin);
            bin.dropped = bin.dropped.map(|dropped| dropped + 1);
        }
        bins.into_iter()
    }

    /// The half-open interval of the totals.
    pub fn window(&self) -> (Time, Time) {
        self.window
    }

    /// Times of the drops of a flow by links, within the window and in the order of the calls; not
    /// sorted if several links drop. Panics if the flow does not exist.
    pub fn drops(&self, flow: usize) -> &[Time] {
        &self.lost[flow].inside
    }

    /// Number of packets of a flow that queues dropped within the window. Panics if the flow does
    /// not exist.
    pub fn queue_drops(&self, flow: usize) -> u64 {
        self.lost[flow].by_queues
    }

    /// Number of packets that returned to a flow's sender within the window. Panics if the flow
    /// does not exist.
    pub fn returned_packets(&self, flow: usize) -> u64 {
        let inside = self.tallies(flow).filter(|(span, _)| span.inside);
        inside.map(|(_, tally)| u64::from(tally.returned)).sum()
    }

    /// Counters of a flow within the window. Panics if the flow does not exist.
    pub fn totals(&self, flow: usize) -> Totals {
        let (mut sent, mut received) = (Count::default(), Count::default());
        let (mut delay_sum, mut shortest, mut longest) = (0, u64::MAX, 0);
        let mut back = (0, 0);
        for (span, tally) in self.tallies(flow) {
            shortest = tally.delay_min.min(shortest);
            if !span.inside {
                continue;
            }
            sent += tally.sent();
            received += tally.received();
            delay_sum += tally.delay_sum;
            longest = tally.delay_max.max(longest);
            back = (back.0 + tally.back, back.1 + u64::from(tally.returned));
        }
        let count = received.packets;
        let there = Duration::from_nanos(delay_sum.checked_div(count).unwrap_or(0));
        let back = back.0.checked_div(back.1);
        let rtt = back.map(|back| there + Duration::from_nanos(back));
        let drops = self.drops(flow);
        let range = (shortest, longest);
        let percentile = |percent| self.delays.percentile(flow, percent, count, range);
        Totals {
            span: self.window.1.since(self.window.0),
            sent,
            received,
            dropped: drops.len() as u64,
            loss_events: loss_events(drops, rtt.unwrap_or(there * 2)),
            rtt,
            delay_min: Duration::from_nanos(if shortest < u64::MAX { shortest } else { 0 }),
            delay_mean: there,
            delay_p50: percentile(50),
            delay_p95: percentile(95),
            delay_p99: percentile(99),
            delay_max: Duration::from_nanos(longest),
            dummies: self.dummies[flow],
            first_sent: self.begun[flow],
            done: None,
        }
    }

    /// Counters of a flow in each span.
    fn tallies(&self, flow: usize) -> impl Iterator<Item = (Span, &Tally)> {
        let spans = self.spans.iter();
        spans.map(move |(span, all)| (*span, &all[flow]))
    }

    /// Selects the span that contains `at`, and creates it if necessary.
    #[cold]
    fn find(&mut self, at: Time) -> Cursor {
        let nanos = at.as_nanos();
        let from = |span: &Span| span.from;
        let place = self.spans.partition_point(|(span, _)| from(span) <= nanos);
        if let Some(place) = place.checked_sub(1)
            && let (span, _) = &self.spans[place]
            && nanos - span.from < span.length
        {
            return Cursor::new(span, place);
        }
        let span = self.span(at);
        let cursor = Cursor::new(&span, place);
        for cursors in [&mut self.sent, &mut self.arrived, &mut self.returned] {
            for cursor in [&mut cursors.now, &mut cursors.before] {
                cursor.place += usize::from(cursor.length > 0 && cursor.place >= place);
            }
        }
        let flows = self.lost.len();
        self.spans
            .insert(place, (span, vec![Tally::NOTHING; flows]));
        cursor
    }

    fn span(&self, at: Time) -> Span {
        let length = self.bin.as_nanos() as u64;
        let bin = self.bin_of(at);
        let (mut from, mut to) = (bin * length, (bin * length).saturating_add(length));
        for edge in [self.window.0, self.window.1].map(Time::as_nanos) {
            if edge <= at.as_nanos() {
                from = from.max(edge);
            } else {
                to = to.min(edge);
            }
        }
        Span {
            bin,
            inside: self.is_inside(at),
            from,
            length: to - from,
        }
    }

    fn is_inside(&self, at: Time) -> bool {
        self.window.0 <= at && at < self.window.1
    }

    fn bin_of(&self, at: Time) -> u64 {
        at.as_nanos() / self.bin.as_nanos() as u64
    }
}

/// An interval within one bin and on one side of the edges of the window, so that all its packets
/// count alike.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Span {
    bin: u64,
    /// Whether the span is within the window.
    inside: bool,
    /// Start and length, in ns.
    from: u64,
    length: u64,
}

/// Nearly every packet is in the latest span, or in the one before if flows are ahead of each
/// other. Caching both saves divisions and comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cursors {
    now: Cursor,
    before: Cursor,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cursor {
    from: u64,
    length: u64,
    place: usize,
}

impl Cursors {
    /// Whether a cached span contains `at`; makes it the current one.
    #[inline]
    fn go_to(&mut self, at: Time) -> bool {
        if self.now.is_at(at) {
            return true;
        }
        mem::swap(&mut self.now, &mut self.before);
        self.now.is_at(at)
    }
}

impl Cursor {
    fn new(span: &Span, place: usize) -> Self {
        Self {
            from: span.from,
            length: span.length,
            place,
        }
    }

    #[inline]
    fn is_at(&self, at: Time) -> bool {
        at.as_nanos().wrapping_sub(self.from) < self.length
    }
}

/// Counters of a flow in a span, in one cache line. Times are in ns: their sums overflow after 584
/// years, and a [`Duration`] would cost divisions.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(64))]
struct Tally {
    /// No flow has four thousand million packets in a bin.
    sent: u32,
    received: u32,
    returned: u32,
    sent_bytes: Bytes,
    received_bytes: Bytes,
    delay_sum: u64,
    delay_min: u64,
    delay_max: u64,
    /// Sum of the delays in the reverse direction.
    back: u64,
}

impl Tally {
    const NOTHING: Self = Self {
        sent: 0,
        received: 0,
        returned: 0,
        sent_bytes: Bytes::ZERO,
        received_bytes: Bytes::ZERO,
        delay_sum: 0,
        delay_min: u64::MAX,
        delay_max: 0,
        back: 0,
    };

    fn sent(&self) -> Count {
        Count {
            packets: self.sent.into(),
            bytes: self.sent_bytes,
        }
    }

    fn received(&self) -> Count {
        Count {
            packets: self.received.into(),
            bytes: self.received_bytes,
        }
    }
}

/// Packets of a flow that links dropped.
#[derive(Clone, Debug, Default, PartialEq)]
struct Lost {
    /// Times of the drops within the window.
    inside: Vec<Time>,
    /// The bin of each drop, within the window or not.
    bins: Vec<u64>,
    /// Number of drops by queues within the window.
    by_queues: u64,
}

/// Adds bins up to this index.
fn bin_at(bins: &mut Vec<Bin>, index: u64) -> &mut Bin {
    let index = index as usize;
    if index >= bins.len() {
        let nothing = Bin {
            dropped: Some(0),
            ..Bin::default()
        };
        bins.resize(index + 1, nothing);
    }
    &mut bins[index]
}

/// Time between two events in ns.
#[inline]
fn between(entered: Time, at: Time) -> u64 {
    at.as_nanos().saturating_sub(entered.as_nanos())
}

/// Number of loss events: an event lasts a round trip from its first drop.
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

#[cfg(test)]
mod tests;
