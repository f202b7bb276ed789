//! Time scale of RFC 8888 report timestamps.

use core::time::Duration;
use std::collections::VecDeque;

use super::history::Overlap;
use crate::trace::FeedbackFault;
use crate::units::{RemoteTime, Time};
use crate::wire::ntp::{NtpShort, RemoteClock};

/// Maps the report timestamps of all reporters to one remote time scale.
///
/// Reports overlap, and what a report says of arrivals that are known confirms its timestamp. Without an
/// overlap, a timestamp is bounded by local time: it may not be ahead of the fastest earlier report by
/// more than [`MAX_GAIN`], and not behind the latest one of its reporter. A step of the clock is accepted
/// after [`STEP_TIME`] in which no report had the time of before. After such a step, and for another
/// reporter, the scale continues at the rate of the local clock, so that one-way delays remain comparable.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportClock {
    /// At most [`MAX_REPORTERS`]; the latest is last.
    reporters: VecDeque<Reporter>,
    /// Maximum of remote minus local time in ns: the report with the shortest delay.
    fastest: Option<i128>,
}

#[derive(Clone, Copy, Debug)]
struct Reporter {
    ssrc: u32,
    clock: RemoteClock,
    /// Remote time minus the reporter's own time, in ns.
    shift: i128,
    last: RemoteTime,
    /// The first timestamp of a step, in ns, and its arrival.
    step: Option<(i128, Time)>,
}

impl ReportClock {
    /// Remote time of a report that has just arrived, if the clock of its reporter was not stepped.
    pub(super) fn expected(&self, now: Time, ssrc: u32, timestamp: NtpShort) -> RemoteTime {
        let known = self.reporters.iter().find(|r| r.ssrc == ssrc);
        let remote = match known.copied() {
            Some(mut known) => i128::from(known.clock.at(timestamp).0) + known.shift,
            None => i128::from(now.as_nanos()) + self.fastest.unwrap_or(0),
        };
        remote_time(remote)
    }

    /// Remote time of a report by `ssrc` that has just arrived. The caller has verified that the
    /// report is about packets of this session; `overlap` is what it says of known arrivals.
    ///
    /// # Errors
    /// [`FeedbackFault::Stale`] if a later report of this reporter has arrived;
    /// [`FeedbackFault::TimeTravel`] for a clock step that is not confirmed.
    pub(super) fn at(
        &mut self,
        now: Time,
        ssrc: u32,
        timestamp: NtpShort,
        overlap: &Overlap,
    ) -> Result<RemoteTime, FeedbackFault> {
        let local = i128::from(now.as_nanos());
        let known = self.reporters.iter().position(|r| r.ssrc == ssrc);
        let known = known.and_then(|place| self.reporters.remove(place));
        let mut reporter = known.unwrap_or_else(|| Reporter::new(ssrc));
        let mut clock = reporter.clock;
        let own = i128::from(clock.at(timestamp).0);
        let result = if known.is_none() {
            reporter.shift = self.fastest.map_or(0, |fastest| local + fastest - own);
            Ok(())
        } else if overlap.is_confirmed() {
            Ok(())
        } else {
            let ahead = self
                .fastest
                .map_or(0, |fastest| own + reporter.shift - local - fastest);
            let behind = i128::from(reporter.last.0) - own - reporter.shift;
            let is_shifted = overlap.is_shifted();
            if is_shifted || ahead > MAX_GAIN || behind > MAX_REORDERING {
                reporter.confirm_step(now, own).map(|()| {
                    if is_shifted {
                        reporter.shift += overlap.gap;
                    } else if ahead > MAX_STEP || behind > MAX_REORDERING {
                        reporter.shift = local + self.fastest.unwrap_or(0) - own;
                    }
                })
            } else if behind > 0 {
                Err(FeedbackFault::Stale)
            } else {
                Ok(())
            }
        };
        let result = result.map(|()| {
            let remote = own + reporter.shift;
            let at = remote_time(remote);
            (reporter.clock, reporter.last, reporter.step) = (clock, at, None);
            let fastest = self.fastest.get_or_insert(remote - local);
            *fastest = (*fastest).max((remote - local).min(*fastest + MAX_GAIN));
            at
        });
        self.reporters.push_back(reporter);
        if self.reporters.len() > MAX_REPORTERS {
            self.reporters.pop_front();
        }
        result
    }
}

impl Reporter {
    fn new(ssrc: u32) -> Self {
        Self {
            ssrc,
            clock: RemoteClock::new(),
            shift: 0,
            last: RemoteTime(0),
            step: None,
        }
    }

    /// Accepts a step if an earlier timestamp agrees with it, and none of [`STEP_TIME`] was in bounds.
    fn confirm_step(&mut self, now: Time, own: i128) -> Result<(), FeedbackFault> {
        let same = self.step.filter(|(first, at)| {
            let elapsed = i128::from(crate::units::nanos(now.since(*at)));
            (0..=elapsed + MAX_STEP).contains(&(own - first))
        });
        let (_, since) = *self.step.insert(same.unwrap_or((own, now)));
        if now.since(since) >= STEP_TIME {
            Ok(())
        } else {
            Err(FeedbackFault::TimeTravel)
        }
    }
}

fn remote_time(nanos: i128) -> RemoteTime {
    RemoteTime(u64::try_from(nanos).unwrap_or(0))
}

/// Four reports of a receiver whose clock was stepped.
const STEP_TIME: Duration = Duration::from_millis(75);
/// One second in ns: exceeds the change of delay when a terrestrial route is replaced by a
/// geostationary one.
const MAX_STEP: i128 = 1_000_000_000;
/// 100 ms in ns: a report that is older by less was overtaken by another one.
const MAX_REORDERING: i128 = 100_000_000;
/// 20 ms in ns: increase of the maximum per report, so that one report cannot move it far.
const MAX_GAIN: i128 = 20_000_000;
/// A receiver and its successors, or translators of a small group.
const MAX_REPORTERS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// The remote time of a report without an overlap.
    fn alone(
        clock: &mut ReportClock,
        now: Time,
        ssrc: u32,
        timestamp: NtpShort,
    ) -> Result<RemoteTime, FeedbackFault> {
        clock.at(now, ssrc, timestamp, &Overlap::default())
    }

    /// Report timestamp of a clock that shows `ms`.
    fn stamp(ms: u64) -> NtpShort {
        NtpShort(((ms << 16) / 1_000) as u32)
    }

    fn local(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// Difference to the remote time of a receiver whose delay is constant, in ms.
    fn error(clock: &mut ReportClock, ms: u64, ssrc: u32, shown: u64, origin: RemoteTime) -> i64 {
        let at = alone(clock, local(ms), ssrc, stamp(shown)).unwrap();
        (at.0 as i64 - origin.0 as i64 - (ms * 1_000_000) as i64) / 1_000_000
    }

    #[test]
    fn restarted_receiver_continues_the_scale() {
        let mut clock = ReportClock::default();
        let origin = alone(&mut clock, local(0), 1, stamp(500_000)).unwrap();
        assert_eq!(error(&mut clock, 1_000, 1, 501_000, origin), 0);
        // The next receiver is a minute behind, the one after it an hour ahead.
        assert_eq!(error(&mut clock, 3_000, 2, 443_000, origin), 0);
        assert_eq!(error(&mut clock, 4_000, 3, 4_000_000, origin), 0);
        assert_eq!(error(&mut clock, 5_000, 2, 445_000, origin), 0);
    }

    #[test]
    fn clock_step_is_accepted_if_no_report_has_the_time_of_before() {
        for shown in [440_000, 560_000] {
            let mut clock = ReportClock::default();
            let origin = alone(&mut clock, local(0), 1, stamp(500_000)).unwrap();
            for ms in [0, 25, 50] {
                let result = alone(&mut clock, local(1_000 + ms), 1, stamp(shown + ms));
                assert_eq!(result, Err(FeedbackFault::TimeTravel));
            }
            assert_eq!(error(&mut clock, 1_075, 1, shown + 75, origin), 0);
            assert_eq!(error(&mut clock, 1_100, 1, shown + 100, origin), 0);
        }
    }

    /// A report as the honest ones, 0.55 s ahead, after each of them.
    #[test]
    fn steps_among_honest_reports_are_refused() {
        let (mut clock, known) = (ReportClock::default(), Overlap::default());
        let shifted = Overlap {
            differing: 9,
            gap: -550_000_000,
            ..known
        };
        let honest = Overlap {
            agreeing: 9,
            ..known
        };
        let origin = alone(&mut clock, local(0), 1, stamp(500_000)).unwrap();
        for n in 1..100_u64 {
            let ms = n * 25;
            let right = clock.at(local(ms), 1, stamp(500_000 + ms), &honest);
            let error = right.unwrap().0.abs_diff(origin.0 + ms * 1_000_000);
            assert!(error < 1_000_000, "{error}");
            for later in [1, 12] {
                let now = local(ms + later);
                let forged = clock.at(now, 1, stamp(500_550 + ms), &shifted);
                assert_eq!(forged, Err(FeedbackFault::TimeTravel));
            }
        }
    }

    /// A step of the clock by which all known arrivals differ.
    #[test]
    fn an_overlap_gives_the_size_of_a_step() {
        let mut clock = ReportClock::default();
        let origin = alone(&mut clock, local(0), 1, stamp(500_000)).unwrap();
        let overlap = Overlap {
            differing: 9,
            gap: -550_000_000,
            ..Overlap::default()
        };
        for ms in [25, 50, 75] {
            let result = clock.at(local(ms), 1, stamp(500_550 + ms), &overlap);
            assert_eq!(result, Err(FeedbackFault::TimeTravel));
        }
        // It took 30 ms longer, which is no part of the step.
        let at = clock.at(local(130), 1, stamp(500_650), &overlap).unwrap();
        let error = at.0.abs_diff(origin.0 + 100_000_000);
        assert!(error < 1_000_000, "{error}");
    }

    #[test]
    fn forged_timestamps_do_not_stop_an_honest_reporter() {
        let mut clock = ReportClock::default();
        let origin = alone(&mut clock, local(0), 1, stamp(500_000)).unwrap();
        let mut rejected = 0;
        for n in 1..400_u64 {
            let ms = n * 25;
            // Every tenth report is followed by one with a timestamp of its own.
            let at = alone(&mut clock, local(ms), 1, stamp(500_000 + ms));
            match at {
                Ok(at) => assert!(at.0.abs_diff(origin.0 + ms * 1_000_000) < 2_000_000_000),
                Err(_) => rejected += 1,
            }
            if n % 10 == 0 {
                let _ = alone(
                    &mut clock,
                    local(ms + 1),
                    1,
                    stamp(500_000 + n * 7_919 % 90_000),
                );
            }
        }
        assert!(rejected < 100, "{rejected}");
    }

    /// A forged report per second, 0.95 s ahead: below the step that is refused at once.
    #[test]
    fn small_forged_steps_do_not_stop_an_honest_reporter() {
        let mut clock = ReportClock::default();
        alone(&mut clock, local(0), 1, stamp(500_000)).unwrap();
        let mut rejected = 0;
        for n in 1..400_u64 {
            let ms = n * 25;
            rejected += usize::from(alone(&mut clock, local(ms), 1, stamp(500_000 + ms)).is_err());
            if n % 36 == 0 {
                let _ = alone(&mut clock, local(ms + 1), 1, stamp(500_950 + ms));
            }
        }
        assert!(rejected <= 2 * 400 / 36, "{rejected}");
    }

    #[test]
    fn reordered_report_is_stale() {
        let mut clock = ReportClock::default();
        alone(&mut clock, local(0), 1, stamp(500_100)).unwrap();
        let result = alone(&mut clock, local(10), 1, stamp(500_050));
        assert_eq!(result, Err(FeedbackFault::Stale));
        alone(&mut clock, local(20), 1, stamp(500_120)).unwrap();
    }

    #[test]
    fn reports_held_by_an_outage_are_accepted() {
        let mut clock = ReportClock::default();
        let origin = alone(&mut clock, local(0), 1, stamp(500_000)).unwrap();
        for n in 0..100 {
            let ms = 5_000 + n;
            let at = alone(&mut clock, local(ms), 1, stamp(500_000 + n * 50)).unwrap();
            let error = (at.0 - origin.0).abs_diff(n * 50_000_000);
            assert!(error < 1_000_000, "{error}");
        }
    }
}
