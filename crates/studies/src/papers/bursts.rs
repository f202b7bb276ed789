//! What the congestion injector does: when the path is cut, and for how long.

use core::fmt;
use core::time::Duration;

/// Cuts one after another, with the same time before each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bursts {
    lengths: Vec<Duration>,
    gap: Duration,
}

impl Bursts {
    /// Cuts of these lengths. `gap` is the time from the start of the video to the first, and from the
    /// end of each to the next.
    ///
    /// # Errors
    /// There is none or more than [`Bursts::MOST`], one is shorter than 100 ms or longer than
    /// [`Bursts::LONGEST`], or the gap is shorter than 100 ms.
    pub fn new(lengths: Vec<Duration>, gap: Duration) -> Result<Self, BurstsFault> {
        if !(1..=Self::MOST).contains(&lengths.len()) {
            return Err(BurstsFault::Count(lengths.len()));
        }
        let fits = |length: &Duration| (SHORTEST..=Self::LONGEST).contains(length);
        if let Some(length) = lengths.iter().find(|length| !fits(length)) {
            return Err(BurstsFault::Length(*length));
        }
        if gap < SHORTEST {
            return Err(BurstsFault::Gap(gap));
        }
        Ok(Self { lengths, gap })
    }

    /// The first paper's: three of 3 s, 10 s apart.
    pub fn published() -> Self {
        Self::alike(Duration::from_secs(3), PUBLISHED_GAP)
    }

    /// As many as the paper has, of one length.
    pub fn alike(length: Duration, gap: Duration) -> Self {
        Self {
            lengths: vec![length; PUBLISHED],
            gap,
        }
    }

    /// Of each, in order.
    pub fn lengths(&self) -> &[Duration] {
        &self.lengths
    }

    /// The time before each.
    pub fn gap(&self) -> Duration {
        self.gap
    }

    /// When each begins, from the start of the video, and how long it lasts.
    pub fn cuts(&self) -> impl Iterator<Item = (Duration, Duration)> + '_ {
        let mut before = Duration::ZERO;
        self.lengths.iter().map(move |length| {
            let at = before + self.gap;
            before = at + *length;
            (at, *length)
        })
    }

    /// When the last one is over.
    pub fn end(&self) -> Duration {
        self.cuts()
            .last()
            .map_or(Duration::ZERO, |(at, length)| at + length)
    }

    /// More than these nobody needs in a minute of video.
    pub const MOST: usize = 50;
    /// Behind a longer one a kernel may give connections up.
    pub const LONGEST: Duration = Duration::from_mins(2);
}

impl fmt::Display for Bursts {
    /// As "3 s, 3 s, 3 s with 10 s before each".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = self.lengths.iter();
        let lengths: Vec<String> = lengths.map(|l| format!("{} s", l.as_secs_f64())).collect();
        let (lengths, gap) = (lengths.join(", "), self.gap.as_secs_f64());
        write!(f, "{lengths} with {gap} s before each")
    }
}

/// Why there can be no such bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BurstsFault {
    /// None, or too many.
    Count(usize),
    /// The time before each is too short.
    Gap(Duration),
    /// One is too short or too long.
    Length(Duration),
}

impl fmt::Display for BurstsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = Bursts::MOST;
        let longest = Bursts::LONGEST.as_secs();
        match self {
            Self::Count(count) => write!(f, "{count} cuts: give 1 to {most}"),
            Self::Gap(gap) => write!(
                f,
                "{} s before each cut: give 0.1 s at least",
                gap.as_secs_f64()
            ),
            Self::Length(length) => write!(
                f,
                "a cut of {} s: give each 0.1 to {longest} s",
                length.as_secs_f64()
            ),
        }
    }
}

impl core::error::Error for BurstsFault {}

/// So many the paper has.
const PUBLISHED: usize = 3;
pub(super) const PUBLISHED_GAP: Duration = Duration::from_secs(10);
/// Shorter ones are over before a frame has noticed.
const SHORTEST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_gap_is_before_each_cut() {
        let bursts = Bursts::new(vec![s(1), s(4)], s(5)).unwrap();
        let cuts: Vec<_> = bursts.cuts().collect();
        assert_eq!(cuts, [(s(5), s(1)), (s(11), s(4))]);
        assert_eq!(bursts.end(), s(15));
        assert_eq!(bursts.to_string(), "1 s, 4 s with 5 s before each");
        let published: Vec<_> = Bursts::published().cuts().collect();
        assert_eq!(published, [(s(10), s(3)), (s(23), s(3)), (s(36), s(3))]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let ms = Duration::from_millis;
        let refused = |lengths: &[Duration], gap| Bursts::new(lengths.to_vec(), gap).unwrap_err();
        assert_eq!(refused(&[], s(1)), BurstsFault::Count(0));
        assert_eq!(refused(&[s(1); 51], s(1)), BurstsFault::Count(51));
        assert_eq!(refused(&[s(1), ms(99)], s(1)), BurstsFault::Length(ms(99)));
        assert_eq!(refused(&[s(121)], s(1)), BurstsFault::Length(s(121)));
        assert_eq!(refused(&[s(1)], ms(99)), BurstsFault::Gap(ms(99)));
    }
}
