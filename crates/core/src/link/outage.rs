//! Outages: periods without signal.

use crate::units::Time;

/// A period without signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Start, inclusive.
    pub from: Time,
    /// End, exclusive.
    pub to: Time,
}

/// Outages of a link. A packet is lost if its transmission *ends* during an outage. The transmitter
/// continues during the outage. Packets already in propagation arrive, and the queue is served
/// after the outage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    list: Vec<Outage>,
}

impl Outages {
    /// Outages in order of time.
    ///
    /// # Errors
    ///
    /// An outage is empty, or overlaps its predecessor.
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

    /// Whether there is an outage at `at`.
    #[inline]
    pub fn covers(&self, at: Time) -> bool {
        if self.list.is_empty() {
            return false;
        }
        let after = self.list.partition_point(|o| o.from <= at);
        after > 0 && at < self.list[after - 1].to
    }
}

/// Invalid list of outages. Indices count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutagesError {
    /// `to` is not after `from`.
    #[error("outage {index} does not end after it starts: swap `from` and `to`")]
    Empty {
        /// Index of the outage.
        index: usize,
    },
    /// The outage starts before its predecessor ends.
    #[error("outage {index} starts before the previous one ends: sort and merge them")]
    NotAscending {
        /// Index of the outage.
        index: usize,
    },
}

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
    fn start_is_inclusive_and_end_exclusive() {
        let outages = Outages::new(&[outage(1, 2), outage(2, 3), outage(5, 6)]).unwrap();
        let covered: Vec<_> = (0..8)
            .filter(|s| outages.covers(Time::from_secs(*s)))
            .collect();
        assert_eq!(covered, [1, 2, 5]);
        assert!(!Outages::default().covers(Time::ZERO));
    }

    #[test]
    fn invalid_lists_are_rejected() {
        let empty = Outages::new(&[outage(1, 1)]);
        assert_eq!(empty, Err(OutagesError::Empty { index: 0 }));
        let overlap = Outages::new(&[outage(1, 3), outage(2, 4)]);
        assert_eq!(overlap, Err(OutagesError::NotAscending { index: 1 }));
    }
}
