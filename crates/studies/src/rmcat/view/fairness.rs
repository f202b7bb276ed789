//! Fairness and stability of flows (RFC 8868 section 3, items 7 and 9).

use core::time::Duration;

use serde::Serialize;

use super::{CONVERGENCE_AVERAGING, CONVERGENCE_TIME, SimFlow, View, mean};
use tidegate_sim::scenario::MediaPlan;

/// Ratio of the flows' rates over windows of one length, while fair shares are constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fairness {
    /// Length of a window in seconds.
    pub window_s: u64,
    /// Number of windows.
    pub windows: usize,
    /// Median over the windows of the minimum over the maximum of the flows' rates, each relative
    /// to its fair share.
    pub middle: f64,
    /// This ratio in the worst window.
    pub worst: f64,
}

impl View<'_> {
    /// Mean rates relative to fair shares while all flows under test are active. None for a single
    /// flow.
    pub(super) fn relative_rates(&self) -> Option<Vec<f64>> {
        let on = |bin: usize| self.all_on(bin);
        let relative = |member: &SimFlow<'_>| {
            let bins = (0..self.bins()).filter(|bin| on(*bin));
            let fair = self.shares.flow(&member.name);
            Some(self.mean(member, on)? / mean(bins.map(|bin| fair[bin]))?)
        };
        let rates: Vec<f64> = self.media.iter().map(relative).collect::<Option<_>>()?;
        (rates.len() > 1).then_some(rates)
    }

    /// Fairness over the window lengths of RFC 8868 that fit between two changes of the shares.
    pub(super) fn fairness(&self) -> Vec<Fairness> {
        let all: Vec<&SimFlow<'_>> = self.media.iter().collect();
        if all.len() < 2 {
            return Vec::new();
        }
        let spans = self.statics(&all);
        let over = |window_s: u64| {
            let length = self.bins_in(Duration::from_secs(window_s));
            let mut ratios: Vec<f64> = Vec::new();
            for span in &spans {
                let starts = span.clone().step_by(length);
                for from in starts.filter(|from| from + length <= span.end) {
                    let relative = |member: &SimFlow<'_>| {
                        let rates = (from..from + length).map(|bin| member.rate(bin));
                        rates.sum::<f64>() / self.shares.flow(&member.name)[from]
                    };
                    let rates: Vec<f64> = self.media.iter().map(relative).collect();
                    ratios.push(ratio(&rates));
                }
            }
            ratios.sort_by(f64::total_cmp);
            Some(Fairness {
                window_s,
                windows: ratios.len(),
                middle: *ratios.get(ratios.len() / 2)?,
                worst: *ratios.first()?,
            })
        };
        WINDOWS_S.into_iter().filter_map(over).collect()
    }

    /// Rate of a flow under test over that of a TCP transfer, while both are active. The rate of a
    /// transfer counts as at least [`STOPPED`].
    pub(super) fn share(&self) -> Option<f64> {
        let is_tcp = |member: &&SimFlow<'_>| matches!(member.plan.media, MediaPlan::Tcp(_));
        let tcp = self.others.iter().find(is_tcp)?;
        let both = |bin: usize| {
            let at = self.middle(bin);
            self.all_on(bin) && at >= tcp.plan.start + CONVERGENCE_TIME && at < tcp.plan.stop
        };
        let rates = self
            .media
            .iter()
            .filter_map(|member| self.mean(member, both));
        let theirs = self.mean(tcp, both)? / f64::from(tcp.plan.count);
        Some(mean(rates)? / theirs.max(STOPPED))
    }

    /// Coefficient of variation of the sending rate in windows of [`SMOOTH`], while the fair share
    /// is constant.
    pub(super) fn variation(&self, member: &SimFlow<'_>) -> Option<f64> {
        let length = self.bins_in(CONVERGENCE_AVERAGING);
        let mut squares = Vec::new();
        for span in self.statics(&[member]) {
            let middle = mean(span.clone().map(|bin| member.sent(bin)))?.max(1.0);
            let starts = span.clone().step_by(length);
            for from in starts.filter(|from| from + length <= span.end) {
                let rate = mean((from..from + length).map(|bin| member.sent(bin)))?;
                squares.push((rate / middle - 1.0) * (rate / middle - 1.0));
            }
        }
        mean(squares.into_iter()).map(f64::sqrt)
    }

    /// Swings per minute while the fair share is constant. A swing is a change of the sending rate
    /// from at most half of its mean to at least twice its mean, or back.
    pub(super) fn swings(&self, member: &SimFlow<'_>) -> Option<f64> {
        let (mut swings, mut bins) = (0_usize, 0_usize);
        for span in self.statics(&[member]) {
            let middle = mean(span.clone().map(|bin| member.sent(bin)))?.max(1.0);
            let outside = span.clone().filter_map(|bin| {
                let rate = member.sent(bin) / middle;
                let (low, high) = (rate <= 1.0 / WATERMARK, rate >= WATERMARK);
                (low || high).then_some(high)
            });
            let sides: Vec<bool> = outside.collect();
            swings += sides.windows(2).filter(|pair| pair[0] != pair[1]).count();
            bins += span.len();
        }
        let minutes = (self.bin * bins as u32).as_secs_f64() / 60.0;
        (bins > 0).then(|| swings as f64 / minutes)
    }
}

/// Jain's fairness index: 1 if all values are equal, 1/n if one value is not zero.
pub(crate) fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares > 0.0 {
        sum * sum / (values.len() as f64 * squares)
    } else {
        0.0
    }
}

/// Minimum over maximum.
pub(in crate::rmcat) fn ratio(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(0.0, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    if most > 0.0 { least / most } else { 0.0 }
}

/// Percentile of sorted, weighted values by nearest rank.
pub(in crate::rmcat) fn percentile(sorted: &[(f64, f64)], share: f64) -> Option<f64> {
    let whole: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let mut seen = 0.0;
    let reached = sorted.iter().find(|(_, weight)| {
        seen += weight;
        seen >= share * whole
    });
    reached.or(sorted.last()).map(|(value, _)| *value)
}

/// Lower limit of the denominator of a rate ratio in b/s: about one packet in ten seconds.
const STOPPED: f64 = 1_000.0;
/// RFC 8868 section 3, item 7.
const WINDOWS_S: [u64; 3] = [1, 5, 20];
/// RFC 8868 section 3, item 9, requires watermarks a factor of four apart: half of the mean and
/// twice the mean.
const WATERMARK: f64 = 2.0;
