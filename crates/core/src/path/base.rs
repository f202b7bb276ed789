//! Base delay: the smallest one-way delay of a path.

use super::window::WindowMax;

/// Smallest delay of the last one to two minutes, in seconds.
///
/// One packet sets no base, nor does one report, unless it differs little from the base of before. The
/// time of one packet may be wrong, and one report may be forged, and all later packets would seem to
/// wait for as long as such a base is kept. Two consecutive reports set one.
#[derive(Clone, Debug)]
pub(super) struct BaseDelay {
    /// The base; `None` before the second report.
    known: Option<f64>,
    /// Negated.
    confirmed: WindowMax,
    /// Of the present report.
    report: Smallest,
    /// Of the last report.
    last: Option<f64>,
}

/// The two smallest delays of a report.
#[derive(Clone, Copy, Debug)]
struct Smallest {
    first: f64,
    second: f64,
    packets: u32,
    /// Time of the newest arrival.
    at: f64,
}

impl BaseDelay {
    pub(super) fn new() -> Self {
        Self {
            known: None,
            confirmed: WindowMax::new(BASE_WINDOW),
            report: Smallest::NONE,
            last: None,
        }
    }

    /// A packet arrived at `at` with this delay. Returns the base.
    pub(super) fn add(&mut self, at: f64, delay: f64) -> f64 {
        self.report.add(at, delay);
        self.known.unwrap_or_else(|| {
            // The smallest so far.
            self.last.unwrap_or(delay).min(self.report.first)
        })
    }

    /// All packets of a report are known.
    pub(super) fn close(&mut self) {
        let report = core::mem::replace(&mut self.report, Smallest::NONE);
        let Some(least) = report.confirmed() else {
            return;
        };
        let Some(last) = self.last.replace(least) else {
            return;
        };
        let mut base = last.max(least);
        if self
            .known
            .is_some_and(|known| known - report.first < SLIGHT)
        {
            base = base.min(report.first);
        }
        self.set(report.at, base);
    }

    /// The route is longer by `delay` since the arrival at `at`.
    pub(super) fn rise(&mut self, at: f64, delay: f64) {
        self.confirmed = WindowMax::new(BASE_WINDOW);
        self.set(at, self.known.unwrap_or(0.0) + delay);
    }

    fn set(&mut self, at: f64, base: f64) {
        self.confirmed.add(at, -base);
        self.known = self.confirmed.get().map(|negated| -negated);
    }
}

impl Smallest {
    const NONE: Self = Self {
        first: f64::INFINITY,
        second: f64::INFINITY,
        packets: 0,
        at: 0.0,
    };

    fn add(&mut self, at: f64, delay: f64) {
        self.second = self.second.min(delay.max(self.first));
        self.first = self.first.min(delay);
        self.packets += 1;
        self.at = at;
    }

    /// Smallest delay that another packet of the report does not contradict.
    fn confirmed(&self) -> Option<f64> {
        match self.packets {
            0 => None,
            1..FEW => Some(self.first),
            _ => Some(self.second),
        }
    }
}

/// Packets of a report of which two must have the base delay: at lower rates there are not more.
const FEW: u32 = 4;
/// Difference from the base, in seconds, that one packet may show. Larger values leave more of the variation
/// of wireless links in the queue. Without it, a flow that comes later misses the moments in which others
/// empty the queue: Jain's index of calls at 4 Mb/s is 0.945 instead of 0.973.
const SLIGHT: f64 = 0.002;
/// Half of the window, in seconds. Flows on one queue must find it empty once in this time.
pub(super) const BASE_WINDOW: f64 = 60.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// The base delay after reports of these delays, both in ms.
    fn base(reports: &[&[f64]]) -> i64 {
        let mut base = BaseDelay::new();
        for (n, delays) in reports.iter().enumerate() {
            for delay in *delays {
                base.add(n as f64, *delay / 1e3);
            }
            base.close();
        }
        (base.add(reports.len() as f64, 1.0) * 1e3).round() as i64
    }

    #[test]
    fn one_packet_or_one_report_sets_no_base() {
        let usual = [20.0, 21.0, 20.0, 22.0, 20.0].as_slice();
        let early = [20.0, 21.0, 5.0, 22.0, 20.0].as_slice();
        assert_eq!(base(&[usual, early, usual, early, early]), 20);
        assert_eq!(base(&[early, usual, usual]), 20);
        assert_eq!(base(&[usual, &[5.0; 5], usual]), 20);
        assert_eq!(base(&[usual, &[5.0; 5], &[6.0; 5], usual]), 6);
        assert_eq!(base(&[usual, usual, &[19.0, 21.0], usual]), 19);
    }

    #[test]
    fn at_low_rates_a_packet_of_a_report_is_enough() {
        assert_eq!(base(&[&[20.0], &[5.0], &[], &[20.0]]), 20);
        assert_eq!(base(&[&[20.0], &[5.0], &[], &[6.0]]), 6);
    }
}
