//! Schedule of the congestion injector: times and lengths of the outages ("cuts") of a path.

use core::fmt;
use core::time::Duration;

/// A sequence of outages with a constant gap before each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutageSchedule {
    lengths: Vec<Duration>,
    gap: Duration,
}

impl OutageSchedule {
    /// Outages of these lengths. `gap` is the time from the start of the video to the first outage,
    /// and from the end of each outage to the next.
    ///
    /// # Errors
    /// The number of outages is zero or above [`OutageSchedule::MOST`], a length is below 100 ms or above
    /// [`OutageSchedule::LONGEST`], or the gap is below 100 ms.
    pub fn new(lengths: Vec<Duration>, gap: Duration) -> Result<Self, OutageScheduleError> {
        if !(1..=Self::MOST).contains(&lengths.len()) {
            return Err(OutageScheduleError::Count(lengths.len()));
        }
        let fits = |length: &Duration| (SHORTEST..=Self::LONGEST).contains(length);
        if let Some(length) = lengths.iter().find(|length| !fits(length)) {
            return Err(OutageScheduleError::Length(*length));
        }
        if gap < SHORTEST {
            return Err(OutageScheduleError::Gap(gap));
        }
        Ok(Self { lengths, gap })
    }

    /// The outages of the first paper: three of 3 s, 10 s apart.
    pub fn published() -> Self {
        Self::alike(Duration::from_secs(3), PUBLISHED_GAP)
    }

    /// As many outages as in the paper, of equal length.
    pub fn alike(length: Duration, gap: Duration) -> Self {
        Self {
            lengths: vec![length; PUBLISHED],
            gap,
        }
    }

    /// Lengths of the outages, in order.
    pub fn lengths(&self) -> &[Duration] {
        &self.lengths
    }

    /// Time before each outage.
    pub fn gap(&self) -> Duration {
        self.gap
    }

    /// Start of each outage, from the start of the video, and its length.
    pub fn cuts(&self) -> impl Iterator<Item = (Duration, Duration)> + '_ {
        let mut before = Duration::ZERO;
        self.lengths.iter().map(move |length| {
            let at = before + self.gap;
            before = at + *length;
            (at, *length)
        })
    }

    /// End of the last outage.
    pub fn end(&self) -> Duration {
        self.cuts()
            .last()
            .map_or(Duration::ZERO, |(at, length)| at + length)
    }

    /// Maximum number of outages: enough for a minute of video.
    pub const MOST: usize = 50;
    /// Maximum length of an outage: after a longer one, a kernel may abort connections.
    pub const LONGEST: Duration = Duration::from_mins(2);
}

impl fmt::Display for OutageSchedule {
    /// Text such as "3 s, 3 s, 3 s with 10 s before each".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = self.lengths.iter();
        let lengths: Vec<String> = lengths.map(|l| format!("{} s", l.as_secs_f64())).collect();
        let (lengths, gap) = (lengths.join(", "), self.gap.as_secs_f64());
        write!(f, "{lengths} with {gap} s before each")
    }
}

/// Error in the parameters of [`OutageSchedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutageScheduleError {
    /// The number of outages is out of range.
    Count(usize),
    /// The gap is too short.
    Gap(Duration),
    /// A length is out of range.
    Length(Duration),
}

impl fmt::Display for OutageScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = OutageSchedule::MOST;
        let longest = OutageSchedule::LONGEST.as_secs();
        match self {
            Self::Count(count) => write!(f, "{count} cuts out of range: use 1 to {most}"),
            Self::Gap(gap) => write!(
                f,
                "{} s before each cut is too short: use at least 0.1 s",
                gap.as_secs_f64()
            ),
            Self::Length(length) => write!(
                f,
                "cut of {} s out of range: use 0.1 to {longest} s",
                length.as_secs_f64()
            ),
        }
    }
}

impl core::error::Error for OutageScheduleError {}

/// Number of outages in the paper.
const PUBLISHED: usize = 3;
pub(super) const PUBLISHED_GAP: Duration = Duration::from_secs(10);
/// Minimum of lengths and gaps: shorter outages are within a frame interval.
const SHORTEST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn gap_precedes_each_outage() {
        let bursts = OutageSchedule::new(vec![s(1), s(4)], s(5)).unwrap();
        let cuts: Vec<_> = bursts.cuts().collect();
        assert_eq!(cuts, [(s(5), s(1)), (s(11), s(4))]);
        assert_eq!(bursts.end(), s(15));
        assert_eq!(bursts.to_string(), "1 s, 4 s with 5 s before each");
        let published: Vec<_> = OutageSchedule::published().cuts().collect();
        assert_eq!(published, [(s(10), s(3)), (s(23), s(3)), (s(36), s(3))]);
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        let ms = Duration::from_millis;
        let rejected =
            |lengths: &[Duration], gap| OutageSchedule::new(lengths.to_vec(), gap).unwrap_err();
        assert_eq!(rejected(&[], s(1)), OutageScheduleError::Count(0));
        assert_eq!(rejected(&[s(1); 51], s(1)), OutageScheduleError::Count(51));
        assert_eq!(
            rejected(&[s(1), ms(99)], s(1)),
            OutageScheduleError::Length(ms(99))
        );
        assert_eq!(
            rejected(&[s(121)], s(1)),
            OutageScheduleError::Length(s(121))
        );
        assert_eq!(rejected(&[s(1)], ms(99)), OutageScheduleError::Gap(ms(99)));
    }
}
