//! Delay histograms of all flows.

use core::time::Duration;

use prefetch_index::prefetch_index;

/// Delay histogram of each flow: buckets of 1/32 of a power of two, in units of 1.024 µs.
///
/// All flows share one array, so that a packet accesses no memory besides its bucket.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Delays {
    buckets: Vec<u32>,
    /// Number of buckets per flow.
    each: usize,
}

impl Delays {
    /// Empty histograms of `flows` flows.
    pub(super) fn new(flows: usize) -> Self {
        Self {
            buckets: vec![0; flows * STEP],
            each: STEP,
        }
    }

    /// Adds a delay of `nanos` to `flow`.
    #[inline]
    pub(super) fn add(&mut self, flow: usize, nanos: u64) {
        let index = bucket_of(nanos >> UNIT);
        if index >= self.each {
            self.widen(index);
        }
        self.buckets[flow * self.each + index] += 1;
    }

    /// Prefetches the bucket for a delay of about `nanos`.
    #[inline]
    pub(super) fn soon(&self, flow: usize, nanos: u64) {
        let index = bucket_of(nanos >> UNIT).min(self.each - 1);
        prefetch_index(&self.buckets, flow * self.each + index);
    }

    /// The percentile of a flow with `count` packets, whose delays are between `range.0` and
    /// `range.1` ns. Nearest rank, with interpolation that assumes a uniform distribution in the
    /// part of the bucket within the range.
    pub(super) fn percentile(
        &self,
        flow: usize,
        percent: u64,
        count: u64,
        range: (u64, u64),
    ) -> Duration {
        let rank = (count * percent).div_ceil(100);
        let mut seen = 0;
        let mut begin = 0;
        let buckets = &self.buckets[flow * self.each..][..self.each];
        for (index, count) in buckets.iter().enumerate() {
            let end = end_of(index) << UNIT;
            let count = u64::from(*count);
            seen += count;
            if seen >= rank && rank > 0 {
                let (from, to) = (begin.max(range.0), end.min(range.1));
                let share = (count + rank - seen) as f64 / count as f64;
                let nanos = from as f64 + share * to.saturating_sub(from) as f64;
                return Duration::from_nanos(nanos as u64);
            }
            begin = end;
        }
        Duration::ZERO
    }

    /// Extends the histograms so that they include this bucket.
    #[cold]
    fn widen(&mut self, index: usize) {
        let each = (index + 1).next_multiple_of(STEP);
        let flows = self.buckets.len() / self.each;
        let mut buckets = vec![0; flows * each];
        let old = self.buckets.chunks_exact(self.each);
        for (new, old) in buckets.chunks_exact_mut(each).zip(old) {
            new[..self.each].copy_from_slice(old);
        }
        (self.buckets, self.each) = (buckets, each);
    }
}

/// Histograms of the time in queues and transmitters. They take no memory until they are used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waits {
    delays: Option<Delays>,
    /// Number of values of each flow.
    counts: Vec<u64>,
}

impl Waits {
    /// Empty histograms of `flows` flows.
    pub(super) fn new(flows: usize) -> Self {
        Self {
            delays: None,
            counts: vec![0; flows],
        }
    }

    /// Adds a value of `flow`, if that is one of the flows.
    pub(super) fn add(&mut self, flow: usize, wait: Duration) {
        let flows = self.counts.len();
        let Some(count) = self.counts.get_mut(flow) else {
            return;
        };
        *count += 1;
        let delays = self.delays.get_or_insert_with(|| Delays::new(flows));
        delays.add(flow, u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Percentile of the values of a flow; zero without any.
    pub(super) fn percentile(&self, flow: usize, percent: u64) -> Duration {
        let count = self.counts[flow];
        let delays = self.delays.as_ref();
        delays.map_or(Duration::ZERO, |delays| {
            delays.percentile(flow, percent, count, (0, u64::MAX))
        })
    }
}

/// Values below 64 have a bucket each; above, the bucket is given by the five bits after the
/// highest.
#[inline]
fn bucket_of(value: u64) -> usize {
    if value < 64 {
        return value as usize;
    }
    let shift = 58 - value.leading_zeros();
    (shift as usize + 1) * 32 + ((value >> shift) as usize - 32)
}

/// Exclusive upper bound of a bucket.
fn end_of(index: usize) -> u64 {
    if index < 64 {
        return index as u64 + 1;
    }
    let (shift, rest) = (index / 32 - 1, index % 32);
    (33 + rest as u64) << shift
}

/// Unit of delays: this power of two, in ns.
const UNIT: u32 = 10;

/// Histograms grow in steps of this many buckets, four octaves. Few flows have delays above one
/// second, which is covered by 512 buckets, and untouched pages use no memory.
const STEP: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_narrow() {
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
    fn extension_of_histograms_keeps_flows_apart() {
        let mut delays = Delays::new(3);
        for nanos in [1_000, 2_000_000, 100_000_000_000] {
            for flow in 0..3 {
                (0..=flow).for_each(|_| delays.add(flow, nanos));
            }
        }
        for (flow, count) in [(0, 3), (1, 6), (2, 9)] {
            let percentile = |percent| delays.percentile(flow, percent, count, (1_000, LONGEST));
            let (third, half) = (percentile(33), percentile(50));
            assert!(third <= Duration::from_nanos(1_024), "flow {flow}");
            assert!(half.abs_diff(Duration::from_millis(2)) < Duration::from_micros(63));
            assert_eq!(percentile(100), Duration::from_nanos(LONGEST));
        }
    }

    #[test]
    fn percentiles_interpolate_within_a_bucket() {
        let mut delays = Delays::new(1);
        // The values span two buckets; one ends at 20.45 ms.
        let (from, to) = (20_400_000, 20_800_000);
        (0..=100).for_each(|n| delays.add(0, from + n * (to - from) / 100));
        for percent in [1, 25, 50, 95, 99, 100] {
            let exact = Duration::from_nanos(from + percent * (to - from) / 100);
            let told = delays.percentile(0, percent, 101, (from, to));
            assert!(
                told.abs_diff(exact) < Duration::from_micros(9),
                "{percent}: {told:?}"
            );
        }
    }

    const LONGEST: u64 = 100_000_000_000;
}
