//! The loss event rate, from the outcomes of packets (RFC 5348 section 5).

use core::time::Duration;

use crate::units::Time;

/// The recent loss intervals of one path.
#[derive(Clone, Debug)]
pub(crate) struct LossHistory {
    discounting: bool,
    event: Option<Start>,
    /// Highest sequence number with a known fate.
    highest: u64,
    /// Closed intervals, newest first; `known` of them are valid.
    closed: [Interval; INTERVALS],
    known: usize,
    /// Weighted mean of the closed intervals, each with its own discount.
    past: f64,
}

impl LossHistory {
    /// A history without losses.
    pub(crate) fn new(discounting: bool) -> Self {
        Self {
            discounting,
            event: None,
            highest: 0,
            closed: [Interval::default(); INTERVALS],
            known: 0,
            past: 0.0,
        }
    }

    /// Records that the fate of packet `seq` is known, lost or not.
    pub(crate) fn on_outcome(&mut self, seq: u64) {
        self.highest = self.highest.max(seq);
    }

    /// Records that packet `seq`, sent at `sent`, was lost or marked.
    pub(crate) fn on_congestion(&mut self, seq: u64, sent: Time, rtt: Duration) -> LossClass {
        let Some(event) = self.event else {
            self.event = Some(Start::new(seq, sent));
            return LossClass::First;
        };
        //= rfc5348-5.2-event
        // The receiver of the RFC estimates when a lost packet would have arrived. Here the sending
        // time is known, and departures are as far apart as the arrivals would have been.
        // A late report of a loss of an earlier event does not split a closed interval.
        if seq <= event.seq || sent <= event.sent + rtt {
            if let Some(event) = self.event_of(seq) {
                event.losses = event.losses.saturating_add(1);
            }
            return LossClass::SameEvent;
        }
        //= rfc5348-5.3-interval
        let length = (seq - event.seq) as f64;
        self.close(length, Some(event));
        self.event = Some(Start::new(seq, sent));
        LossClass::Another
    }

    //= rfc5348-5.1-late-arrival
    /// Takes back the loss of packet `seq`, which has arrived. An event without another loss is
    /// removed. Returns whether it was the only event, so that there was no loss so far.
    pub(crate) fn on_spurious(&mut self, seq: u64) -> bool {
        let Some(event) = self.event_of(seq) else {
            return false;
        };
        event.losses = event.losses.saturating_sub(1);
        if event.losses > 0 {
            return false;
        }
        let start = event.seq;
        if self.event.is_some_and(|event| event.seq == start) {
            self.reopen();
        } else {
            self.join(start);
        }
        self.past = self.past_mean();
        self.event.is_none()
    }

    /// The newest event that began with `seq` or before it.
    fn event_of(&mut self, seq: u64) -> Option<&mut Start> {
        let closed = self.closed[..self.known].iter_mut();
        let closed = closed.filter_map(|interval| interval.event.as_mut());
        let mut events = self.event.as_mut().into_iter().chain(closed);
        events.find(|event| event.seq <= seq)
    }

    /// Removes the newest event: the interval before it is open again.
    fn reopen(&mut self) {
        let Some(last) = self.closed[..self.known].first().copied() else {
            self.event = None;
            return;
        };
        self.event = last.event;
        self.remove(0);
        for interval in &mut self.closed {
            interval.discount /= last.discounted;
        }
    }

    /// Removes an earlier event: its interval continues the one before it. The length of the
    /// interval before the first event is synthetic, and stays. The oldest interval stays as well,
    /// because the one before it is forgotten.
    fn join(&mut self, start: u64) {
        let is_it = |interval: &Interval| interval.event.is_some_and(|e| e.seq == start);
        let at = self.intervals().position(is_it);
        let Some(at) = at.filter(|at| at + 1 < self.known) else {
            return;
        };
        let length = self.closed[at].length;
        if self.closed[at + 1].event.is_some() {
            self.closed[at + 1].length += length;
        }
        self.remove(at);
    }

    fn remove(&mut self, at: usize) {
        self.closed[at..].rotate_left(1);
        self.known -= 1;
    }

    /// Sets the interval before the first loss, in packets.
    pub(crate) fn seed(&mut self, length: f64) {
        self.close(length.max(1.0), None);
    }

    /// Number of intervals that the rate is computed from, at most eight.
    pub(crate) fn intervals_known(&self) -> usize {
        self.known
    }

    /// The loss event rate in 0..=1; zero before the first loss.
    pub(crate) fn event_rate(&self) -> f64 {
        if self.event.is_none() || self.known == 0 {
            return 0.0;
        }
        let open = self.open();
        let past = self.past;
        let discount = self.discount(open, past);
        //= rfc5348-5.4-average
        let (mut total, mut weight) = (open * WEIGHTS[0], WEIGHTS[0]);
        //= rfc5348-5.4-few-intervals
        let younger = self.intervals().take(self.known - 1);
        for (interval, w) in younger.zip(&WEIGHTS[1..]) {
            total += interval.length * w * interval.discount * discount;
            weight += w * interval.discount * discount;
        }
        //= rfc5348-5.4-open-interval
        let mean = (total / weight).max(past);
        (1.0 / mean).min(1.0)
    }

    /// Mean number of lost packets of a loss event, at least 1, for MulTFRC. The average is that of
    /// RFC 5348 section 5.4 over the events that began the closed intervals. The newest event may still
    /// grow, so it counts only if it is alone.
    pub(crate) fn lost_per_event(&self) -> f64 {
        let (mut total, mut weight) = (0.0, 0.0);
        for (interval, w) in self.intervals().zip(&WEIGHTS) {
            if let Some(event) = interval.event {
                total += f64::from(event.losses) * w * interval.discount;
                weight += w * interval.discount;
            }
        }
        if weight > 0.0 {
            (total / weight).max(1.0)
        } else {
            self.event
                .map_or(1.0, |event| f64::from(event.losses.max(1)))
        }
    }

    //= rfc5348-5.3-open-interval
    /// Length of the open interval: packets since the start of the latest event, inclusive.
    fn open(&self) -> f64 {
        self.event.map_or(0.0, |event| {
            self.highest.saturating_sub(event.seq) as f64 + 1.0
        })
    }

    fn intervals(&self) -> impl Iterator<Item = &Interval> {
        self.closed[..self.known].iter()
    }

    fn past_mean(&self) -> f64 {
        let (mut total, mut weight) = (0.0, 0.0);
        for (interval, w) in self.intervals().zip(&WEIGHTS) {
            total += interval.length * w * interval.discount;
            weight += w * interval.discount;
        }
        if weight > 0.0 { total / weight } else { 0.0 }
    }

    //= rfc5348-5.5-discount
    /// Discount of the closed intervals while the open interval is much longer.
    fn discount(&self, open: f64, past: f64) -> f64 {
        if self.discounting && open > 2.0 * past {
            (2.0 * past / open).max(DISCOUNT_FLOOR)
        } else {
            1.0
        }
    }

    /// Closes the interval that began with `event`.
    fn close(&mut self, length: f64, event: Option<Start>) {
        //= rfc5348-5.5-keep
        let discount = if self.known > 0 {
            self.discount(length, self.past)
        } else {
            1.0
        };
        for interval in &mut self.closed {
            interval.discount *= discount;
        }
        self.closed.rotate_right(1);
        self.closed[0] = Interval {
            event,
            length,
            discount: 1.0,
            discounted: discount,
        };
        self.known = (self.known + 1).min(INTERVALS);
        self.past = self.past_mean();
    }
}

/// Meaning of a lost or marked packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossClass {
    /// Another loss event.
    Another,
    /// The first loss event. The caller must set the interval before it with
    /// [`LossHistory::seed`].
    First,
    /// Part of a loss event that is already counted.
    SameEvent,
}

/// First packet of a loss event.
#[derive(Clone, Copy, Debug)]
struct Start {
    seq: u64,
    sent: Time,
    /// Number of losses and marks of the event, less those taken back.
    losses: u32,
}

impl Start {
    fn new(seq: u64, sent: Time) -> Self {
        Self {
            seq,
            sent,
            losses: 1,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    /// The event that began the interval; `None` before the first loss.
    event: Option<Start>,
    /// Length in packets. The first interval is synthetic and may be fractional.
    length: f64,
    discount: f64,
    /// Factor by which the end of this interval discounted the older ones.
    discounted: f64,
}

impl Default for Interval {
    fn default() -> Self {
        Self {
            event: None,
            length: 0.0,
            discount: 1.0,
            discounted: 1.0,
        }
    }
}

/// RFC 5348 section 5.4 recommends eight.
const INTERVALS: usize = 8;

//= rfc5348-5.4-weights
const WEIGHTS: [f64; INTERVALS] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// Lower bound of the discount (THRESHOLD in RFC 5348 section 5.5).
const DISCOUNT_FLOOR: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// One packet per 10 ms; those in `lost` are lost. The interval before the first loss is 100
    /// packets.
    fn history(lost: &[u64], until: u64, discounting: bool) -> LossHistory {
        let mut history = LossHistory::new(discounting);
        for seq in 0..=until {
            history.on_outcome(seq);
            if lost.contains(&seq)
                && history.on_congestion(seq, Time::from_millis(seq * 10), RTT) == LossClass::First
            {
                history.seed(100.0);
            }
        }
        history
    }

    //= rfc5348-5.2-event (test)
    #[test]
    fn losses_within_a_round_trip_are_one_event() {
        let mut history = LossHistory::new(true);
        let at = |ms| Time::from_millis(ms);
        assert_eq!(history.on_congestion(10, at(100), RTT), LossClass::First);
        history.seed(50.0);
        assert_eq!(
            history.on_congestion(12, at(120), RTT),
            LossClass::SameEvent
        );
        assert_eq!(
            history.on_congestion(20, at(200), RTT),
            LossClass::SameEvent
        );
        assert_eq!(history.on_congestion(21, at(201), RTT), LossClass::Another);
        assert_eq!(
            history.on_congestion(5, at(50), RTT),
            LossClass::SameEvent,
            "a late report"
        );
    }

    //= rfc5348-5.1-late-arrival (test)
    #[test]
    fn spurious_losses_leave_no_trace() {
        let lost: Vec<u64> = (1..=6).map(|i| i * 100).collect();
        let rate = |without: &[u64], late: &[u64]| {
            let lost: Vec<u64> = lost
                .iter()
                .copied()
                .filter(|l| !without.contains(l))
                .collect();
            let mut history = history(&lost, 1_500, true);
            for &seq in late {
                assert!(!history.on_spurious(seq));
            }
            history.event_rate()
        };
        for gone in [600, 300, 200] {
            let (undone, never) = (rate(&[], &[gone]), rate(&[gone], &[]));
            assert!((undone - never).abs() < 1e-12, "{gone}: {undone} {never}");
        }
        let undone = rate(&[], &[600, 500, 400]);
        assert!((undone - rate(&[600, 500, 400], &[])).abs() < 1e-12);
        // Packet 100 began the first event: the interval before it is synthetic.
        assert!((rate(&[], &[100]) - rate(&[100], &[])).abs() < 1e-12);
    }

    //= rfc5348-5.1-late-arrival (test)
    #[test]
    fn an_event_ends_with_its_last_spurious_loss() {
        let mut history = history(&[100, 101, 103], 400, true);
        let before = history.event_rate();
        assert!(before > 0.0 && !history.on_spurious(100) && !history.on_spurious(103));
        assert!(!history.on_spurious(99), "never lost");
        assert_eq!(history.event_rate().to_bits(), before.to_bits());
        assert!(history.on_spurious(101));
        assert_eq!(history.event_rate().to_bits(), 0.0_f64.to_bits());
        let first = history.on_congestion(500, Time::from_secs(5), RTT);
        assert_eq!(first, LossClass::First);
    }

    //= rfc5348-5.4-average (test)
    //= rfc5348-5.4-weights (test)
    //= rfc5348-5.3-interval (test)
    #[test]
    fn equal_intervals_give_their_inverse() {
        let lost: Vec<u64> = (1..=20).map(|i| i * 100).collect();
        let p = history(&lost, 2_000, true).event_rate();
        assert!((p - 0.01).abs() < 1e-12, "{p}");
        // Weights 1 and 1 on 300 and 100 packets.
        let p = history(&[100, 400], 400, false).event_rate();
        assert!((p - 1.0 / 200.0).abs() < 1e-12, "{p}");
    }

    //= rfc5348-5.4-open-interval (test)
    #[test]
    fn open_interval_counts_only_if_it_lowers_the_loss_event_rate() {
        let lost: Vec<u64> = (1..=9).map(|i| i * 100).collect();
        let after = history(&lost, 900, false).event_rate();
        assert!((after - 0.01).abs() < 1e-12, "{after}");
        assert_eq!(
            history(&lost, 990, false).event_rate().to_bits(),
            after.to_bits()
        );
        assert!(history(&lost, 1_100, false).event_rate() < after);
    }

    //= rfc5348-5.4-few-intervals (test)
    #[test]
    fn open_interval_replaces_the_oldest_of_few_intervals() {
        // A synthetic interval of 100 and an open one of 300: the longer of the two counts.
        let p = history(&[100], 399, false).event_rate();
        assert!((p - 1.0 / 300.0).abs() < 1e-12, "{p}");
        // Closed intervals of 300 and 100, open interval of 200: mean of 200 and 300, not of 300
        // and 100.
        let p = history(&[100, 400], 599, false).event_rate();
        assert!((p - 1.0 / 250.0).abs() < 1e-12, "{p}");
    }

    //= rfc5348-5.3-open-interval (test)
    //= rfc5348-5.5-discount (test)
    #[test]
    fn long_interval_without_loss_discounts_the_history() {
        let lost: Vec<u64> = (1..=9).map(|i| i * 100).collect();
        // Open interval 1000, past 100: factor 200/1000 is below the floor of 0.25, and the
        // weights 2..8 sum to 5: (1000 + 100 * 5 * 0.25) / (1 + 5 * 0.25) = 500.
        let p = history(&lost, 1_899, true).event_rate();
        assert!((p - 1.0 / 500.0).abs() < 1e-12, "{p}");
        let plain = history(&lost, 1_899, false).event_rate();
        assert!((plain - 6.0 / 1_500.0).abs() < 1e-12, "{plain}");
    }

    #[test]
    fn lost_packets_of_an_event_are_averaged_without_the_newest_event() {
        let mean = |lost: &[u64]| history(lost, 2_000, false).lost_per_event();
        let are = |mean: f64, expected: f64| (mean - expected).abs() < 1e-12;
        assert!(are(LossHistory::new(true).lost_per_event(), 1.0));
        // Losses within ten packets are one event.
        assert!(are(mean(&[100, 101, 103]), 3.0));
        assert!(are(mean(&[100, 101, 103, 200, 300, 301]), 2.0));
        // Nine events of one to nine losses. The newest has nine; weights from the next one back.
        let lost: Vec<u64> = (1..=9).flat_map(|n| n * 100..n * 101).collect();
        let expected = (8.0 + 7.0 + 6.0 + 5.0 + 0.8 * 4.0 + 0.6 * 3.0 + 0.4 * 2.0 + 0.2) / 6.0;
        assert!(are(mean(&lost), expected), "{} {expected}", mean(&lost));
    }

    //= rfc5348-5.5-keep (test)
    #[test]
    fn discount_persists_after_its_interval_is_closed() {
        let lost: Vec<u64> = (1..=9).map(|i| i * 100).chain([1_900]).collect();
        // 1000 with weight 1, then seven of 100 with weights that sum to 5, discounted by 0.25.
        let p = history(&lost, 1_900, true).event_rate();
        assert!((p - 1.0 / 500.0).abs() < 1e-12, "{p}");
    }
}
