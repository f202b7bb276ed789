//! What a report says of packets that earlier reports were about.

use core::time::Duration;

use super::index::Found;
use super::{History, Line, OVER_RANGE, Stream};
use crate::control::Outcome;
use crate::units::{RemoteTime, nanos};

/// Comparison of a report with earlier ones about the same packets.
///
/// Reports overlap (RFC 8888 section 3.1), so that a receiver states the arrival of a packet more than
/// once. Its statements agree, whatever the network does to the packets and to the reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Packets of which the report is the first to report the arrival.
    pub news: u32,
    /// Known arrivals at the same time.
    pub agreeing: u32,
    /// Known arrivals at another time.
    pub differing: u32,
    /// Known arrivals that the report should have and denies, and arrivals before a report that denied
    /// them.
    pub denied: u32,
    /// Known minus reported time of an arrival that differs, in ns.
    pub gap: i128,
}

impl Overlap {
    /// Whether the time of the report is that of the earlier ones.
    pub fn is_confirmed(&self) -> bool {
        self.agreeing > 0 && self.agreeing >= self.differing
    }

    /// Whether the time of the report is another one than that of the earlier ones.
    pub fn is_shifted(&self) -> bool {
        self.differing > self.agreeing
    }

    /// Whether this report, or one of the earlier ones, is not by the receiver.
    pub fn is_contradiction(&self) -> bool {
        self.differing + self.denied > 0
    }
}

impl History {
    /// Adds to `overlap` what entries about one stream say of packets that earlier reports were about.
    /// `at` is the time of the report on the receiver's clock.
    pub fn compare(&self, stream: Stream, at: RemoteTime, lines: &[Line], overlap: &mut Overlap) {
        for line in lines {
            let Found::At(seq) = self.index(stream).find(line.seq) else {
                continue;
            };
            let Some(entry) = self.entry(seq).filter(|entry| !entry.is_assumed) else {
                continue;
            };
            let claimed = line.received.map(|(ago, _)| arrival(at, ago));
            match (entry.outcome, claimed) {
                (Some((Outcome::Received { at: known, .. }, _)), Some(claimed)) => {
                    let (Some(claimed), true) = (claimed, entry.is_timed) else {
                        continue;
                    };
                    let gap = i128::from(known.0) - i128::from(claimed.0);
                    if gap.unsigned_abs() <= SAME_ARRIVAL {
                        overlap.agreeing += 1;
                    } else {
                        overlap.differing += 1;
                        overlap.gap = gap;
                    }
                }
                (Some((Outcome::Received { at: known, .. }, _)), None) => {
                    let is_denied = entry.is_timed && at.since(known) > DENIED;
                    overlap.denied += u32::from(is_denied);
                }
                (_, Some(claimed)) => {
                    overlap.news += 1;
                    let denied = entry.missing.zip(claimed);
                    let is_denied = denied.is_some_and(|(at, claimed)| at.since(claimed) > DENIED);
                    overlap.denied += u32::from(is_denied);
                }
                (_, None) => {}
            }
        }
    }
}

/// Time of an arrival `ago` before `at`, if it is known.
fn arrival(at: RemoteTime, ago: Option<Duration>) -> Option<RemoteTime> {
    let ago = ago.filter(|ago| *ago < OVER_RANGE)?;
    Some(RemoteTime(at.0.saturating_sub(nanos(ago))))
}

/// Difference of two statements about one arrival, in ns: two roundings of 1/1024 s, and a unit of
/// transport-wide feedback.
const SAME_ARRIVAL: u128 = 3_000_000;
/// Time from an arrival to a report that must have it: a receiver may read its clock after its list.
const DENIED: Duration = Duration::from_millis(10);
