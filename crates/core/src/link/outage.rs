//! Times at which nothing passes.

use core::fmt;

use crate::units::Time;

/// A time without signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The first moment of it.
    pub from: Time,
    /// The first moment after it.
    pub to: Time,
}

/// The outages of a link. A packet is lost if its transmission *ends* in one: the transmitter
/// goes on without knowing, what left before is still under way and arrives, and what is in
/// the queue when the signal returns is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    list: Vec<Outage>,
}

impl Outages {
    /// Takes them in the order of time.
    ///
    /// # Errors
    ///
    /// One does not end after it starts, or starts before the one before it ends.
    pub fn new(list: &[Outage]) -> Result<Self, OutagesError> {
        if let Some(index) = list.iter().position(|o| o.from >= o.to) {
            return Err(OutagesError::Empty { index });
        }
        if let Some(i) = list.windows(2).position(|pair| pair[0].to > pair[1].from) {
            return Err(OutagesError::NotAscending { index: i + 1 });
        }
        Ok(Self {
            list: list.to_vec(),
        })
    }

    /// Whether there is no signal at `at`.
    #[inline]
    pub fn covers(&self, at: Time) -> bool {
        if self.list.is_empty() {
            return false;
        }
        let after = self.list.partition_point(|o| o.from <= at);
        after > 0 && at < self.list[after - 1].to
    }
}

/// Why a list of outages does not stand. Numbers count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutagesError {
    /// One ends before it starts, or as it starts.
    Empty {
        /// Its number.
        index: usize,
    },
    /// One starts before the one before it ends.
    NotAscending {
        /// Its number.
        index: usize,
    },
}

impl fmt::Display for OutagesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { index } => {
                write!(
                    f,
                    "outage {index} does not end after it starts: swap `from` and `to`"
                )
            }
            Self::NotAscending { index } => write!(
                f,
                "outage {index} starts before the one before it ends: sort and merge them"
            ),
        }
    }
}

impl core::error::Error for OutagesError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage(from: u64, to: u64) -> Outage {
        Outage {
            from: Time::from_secs(from),
            to: Time::from_secs(to),
        }
    }

    #[test]
    fn covers_from_the_first_moment_to_before_the_last() {
        let outages = Outages::new(&[outage(1, 2), outage(2, 3), outage(5, 6)]).unwrap();
        let covered: Vec<_> = (0..8)
            .filter(|s| outages.covers(Time::from_secs(*s)))
            .collect();
        assert_eq!(covered, [1, 2, 5]);
        assert!(!Outages::default().covers(Time::ZERO));
    }

    #[test]
    fn faults_are_named() {
        let empty = Outages::new(&[outage(1, 1)]);
        assert_eq!(empty, Err(OutagesError::Empty { index: 0 }));
        let overlap = Outages::new(&[outage(1, 3), outage(2, 4)]);
        assert_eq!(overlap, Err(OutagesError::NotAscending { index: 1 }));
    }
}
