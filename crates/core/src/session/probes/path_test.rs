//! In-band test of how a path treats packets of lower effort.
//!
//! A train of low packets leaves at once, and right after it a few packets with the priority of
//! data. A queue that honours lower effort lets the latter overtake; any other queue keeps the
//! order. A path without a queue says nothing: the next train is longer, until its packets wait for
//! each other. A train therefore takes the bottleneck for about 10 ms. A receiver may report another
//! DSCP on arrival: then routers after that place do not know that the packets are low.

use core::time::Duration;

use crate::control::LowerEffort;
use crate::endpoint::LOWER_EFFORT;
use crate::units::{RemoteTime, Time};

/// Trains, and what they have shown.
#[derive(Debug)]
pub(super) struct PathTest {
    treatment: LowerEffort,
    /// Latest result, and how many trains in a row had it.
    evidence: (LowerEffort, u32),
    /// Low packets of the next train.
    length: usize,
    /// Departure of the next train; never before the tests begin.
    next: Time,
    train: Option<Train>,
    /// DSCP on arrival of low packets.
    dscp: Option<u8>,
}

/// A train on its way.
#[derive(Debug)]
struct Train {
    /// Arrivals of low packets, and of the others after them; `None` before they are known.
    arrivals: Vec<Option<RemoteTime>>,
    low: usize,
    /// Number of its first packet.
    first: u64,
    /// Packets that have left, and the departure of the first.
    left: usize,
    sent: Time,
}

impl Default for PathTest {
    fn default() -> Self {
        Self {
            treatment: LowerEffort::Untested,
            evidence: (LowerEffort::Untested, 0),
            length: SHORTEST,
            next: Time::FAR,
            train: None,
            dscp: None,
        }
    }
}

impl PathTest {
    pub(super) fn treatment(&self) -> LowerEffort {
        self.treatment
    }

    pub(super) fn dscp(&self) -> Option<u8> {
        self.dscp
    }

    pub(super) fn on_dscp(&mut self, dscp: u8) {
        self.dscp = Some(dscp);
    }

    pub(super) fn begin(&mut self, now: Time) {
        if self.next == Time::FAR && self.train.is_none() {
            self.next = now;
        }
    }

    /// Whether a packet of a train is due: `Some(true)` for a low one.
    pub(super) fn wants(&self, now: Time) -> Option<bool> {
        match &self.train {
            Some(train) => {
                let is_open = train.left < train.arrivals.len();
                is_open.then_some(train.left < train.low)
            }
            None => (self.next <= now).then_some(true),
        }
    }

    /// A probe with this number leaves. Returns whether it belongs to a train.
    pub(super) fn on_sent(&mut self, now: Time, seq: u64) -> bool {
        if self.wants(now).is_none() {
            return false;
        }
        let low = self.length;
        let train = self.train.get_or_insert_with(|| Train {
            arrivals: vec![None; low + (low / PLAIN).max(MIN_PLAIN)],
            low,
            first: seq,
            left: 0,
            sent: now,
        });
        train.left += 1;
        true
    }

    /// The probe with this number has arrived.
    pub(super) fn on_arrival(&mut self, seq: u64, at: RemoteTime) {
        let Some(train) = &mut self.train else { return };
        let place = seq.checked_sub(train.first);
        let slot = place.and_then(|place| train.arrivals.get_mut(place as usize));
        if let Some(slot) = slot {
            *slot = Some(at);
        }
    }

    /// Ends a train that is complete or overdue. Returns the treatment if it is another one.
    pub(super) fn on_timeout(&mut self, now: Time, rtt: Duration) -> Option<LowerEffort> {
        let train = self.train.as_ref()?;
        let is_complete = train.arrivals.iter().all(Option::is_some);
        if !is_complete && now < train.sent + wait(rtt) {
            return None;
        }
        let arrives_low = train.arrivals[..train.low].iter().any(Option::is_some);
        let is_remarked = arrives_low && self.dscp.is_some_and(|dscp| dscp != LOWER_EFFORT);
        let result = if is_remarked {
            Some(LowerEffort::Remarked)
        } else {
            train.result()
        };
        self.train = None;
        let Some(result) = result else {
            // Faster than the longest train can show, the path stays untested.
            let is_longest = self.length == LONGEST;
            self.length = (self.length * 2).min(LONGEST);
            self.next = now + if is_longest { PERIOD } else { PAUSE };
            return None;
        };
        let (before, count) = self.evidence;
        let count = if result == before { count + 1 } else { 1 };
        self.evidence = (result, count);
        let is_certain = count >= AGREEING;
        self.next = now + if is_certain { PERIOD } else { PAUSE };
        let is_news = is_certain && result != self.treatment;
        if is_news {
            self.treatment = result;
        }
        is_news.then_some(result)
    }

    pub(super) fn interrupt(&mut self, now: Time) {
        if self.train.take().is_some() {
            self.next = now + PAUSE;
        }
    }

    /// Time at which a train may leave or ends at the latest.
    pub(super) fn next_timeout(&self, rtt: Duration) -> Time {
        match &self.train {
            Some(train) if train.left < train.arrivals.len() => train.sent,
            Some(train) => train.sent + wait(rtt),
            None => self.next,
        }
    }
}

impl Train {
    /// What the train has shown; `None` if no queue has formed.
    fn result(&self) -> Option<LowerEffort> {
        let (low, plain) = self.arrivals.split_at(self.low);
        let arrived = |part: &[Option<RemoteTime>]| part.iter().flatten().count();
        match (arrived(low), arrived(plain)) {
            (0, 0) => return Some(LowerEffort::Unanswered),
            (0, _) => return Some(LowerEffort::Dropped),
            // The end of a train does not fit into a short queue.
            (_, 0) => return Some(LowerEffort::Ignored),
            _ => {}
        }
        // A low packet that is lost, although later ones with the priority of data arrive, was
        // overtaken as well.
        let pairs = plain.iter().flatten().flat_map(|plain| {
            let is_overtaken = |low: &Option<RemoteTime>| low.is_none_or(|low| *plain < low);
            low.iter().map(is_overtaken)
        });
        let (overtaken, all) = pairs.fold((0, 0), |(overtaken, all), is_overtaken| {
            (overtaken + u32::from(is_overtaken), all + 1)
        });
        if overtaken * 2 > all {
            return Some(LowerEffort::Honoured);
        }
        let times = || self.arrivals.iter().flatten();
        let span = times().max()?.since(*times().min()?);
        (span >= QUEUED).then_some(LowerEffort::Ignored)
    }
}

/// Time after which the missing reports of a train are not expected any more.
fn wait(rtt: Duration) -> Duration {
    (rtt * 3 / 2 + PATIENCE).min(LONGEST_WAIT)
}

/// Low packets of the first train: with the others a queue of 12 packets, which any router has.
const SHORTEST: usize = 8;
/// Low packets of the longest train: it shows a queue at up to 250 Mb/s.
const LONGEST: usize = 128;
/// Low packets per packet with the priority of data, of which a train has at least so many.
const PLAIN: usize = 4;
const MIN_PLAIN: usize = 4;
/// Duration of a train at its arrival from which on its packets have waited for each other: several
/// units of the arrival times, which are 1 ms.
const QUEUED: Duration = Duration::from_millis(5);
/// Trains in a row that must agree. Random losses and jitter do not repeat a result.
const AGREEING: u32 = 2;
/// Pause before the next train, and between two tests of a path that is known: routes change.
const PAUSE: Duration = Duration::from_millis(200);
const PERIOD: Duration = Duration::from_secs(30);
/// Wait for the reports of a train, beyond one and a half round trips: for a queue.
const PATIENCE: Duration = Duration::from_millis(250);
/// Less than the time for which probes are remembered.
const LONGEST_WAIT: Duration = Duration::from_secs(8);

#[cfg(test)]
mod tests;
