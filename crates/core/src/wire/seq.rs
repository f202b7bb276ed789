//! Unwrapping of 16-bit sequence numbers and 32-bit timestamps to 64 bits (similar to RFC 3550
//! appendix A.1).

/// Extends the 16-bit sequence numbers of one RTP stream.
///
/// A number is assumed to lie within half of the space (32,768) of the highest one so far, so
/// reordering, duplicates and shorter losses are harmless. The low 16 bits of the result are the
/// number on the wire. The first result is the first number plus 65,536, which leaves room for
/// packets that were sent before the first arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwrap16 {
    highest: Option<u64>,
}

impl Unwrap16 {
    /// No number unwrapped yet.
    pub const fn new() -> Self {
        Self { highest: None }
    }

    /// The extended form of `seq`, which has just arrived.
    pub fn unwrap(&mut self, seq: u16) -> u64 {
        let extended = self.peek(seq);
        self.highest = Some(self.highest.map_or(extended, |h| h.max(extended)));
        extended
    }

    /// The extended form of `seq`, without changing the state.
    pub fn peek(&self, seq: u16) -> u64 {
        extend(self.highest, u64::from(seq), 16)
    }

    /// The highest number that [`unwrap`](Self::unwrap) has returned.
    pub const fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Extended highest sequence number of a report block: cycles since the first packet in the
    /// upper, sequence number in the lower 16 bits (RFC 3550 section 6.4.1). Zero before the first
    /// packet.
    pub fn highest_in_report(&self) -> u32 {
        //= rfc3550-6.4.1-ehsn
        self.highest.map_or(0, |h| (h - (1 << 16)) as u32)
    }
}

/// Extends the 32-bit timestamps of one RTP stream, or other 32-bit counters, like [`Unwrap16`]:
/// within 2³¹ of the highest value so far. The first result is 2³² plus the first value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwrap32 {
    highest: Option<u64>,
}

impl Unwrap32 {
    /// No value unwrapped yet.
    pub const fn new() -> Self {
        Self { highest: None }
    }

    /// The extended form of `value`, which has just arrived.
    pub fn unwrap(&mut self, value: u32) -> u64 {
        let extended = self.peek(value);
        self.highest = Some(self.highest.map_or(extended, |h| h.max(extended)));
        extended
    }

    /// The extended form of `value`, without changing the state.
    pub fn peek(&self, value: u32) -> u64 {
        extend(self.highest, u64::from(value), 32)
    }

    /// The highest value that [`unwrap`](Self::unwrap) has returned.
    pub const fn highest(&self) -> Option<u64> {
        self.highest
    }
}

/// The number nearest to `reference` whose low 16 bits are `seq`; the larger one in a tie. `None`
/// if it would be negative: no packet has that number.
///
/// A sender with 64-bit packet counters resolves feedback with it.
pub fn nearest16(reference: u64, seq: u16) -> Option<u64> {
    nearest(reference, u64::from(seq), 16)
}

fn extend(highest: Option<u64>, value: u64, bits: u32) -> u64 {
    let first = (1 << bits) + value;
    highest.map_or(first, |h| {
        // `h` is at least 2^bits, so subtracting half of that stays positive.
        nearest(h, value, bits).unwrap_or(first)
    })
}

fn nearest(reference: u64, value: u64, bits: u32) -> Option<u64> {
    //= rfc3550-A.1-extend
    let span = 1_u64 << bits;
    let ahead = value.wrapping_sub(reference) & (span - 1);
    if ahead <= span / 2 {
        reference.checked_add(ahead)
    } else {
        reference.checked_sub(span - ahead)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_reordered_stream_keeps_its_order(
            start: u16,
            steps in proptest::collection::vec(-30_000_i64..30_000, 1..200),
        ) {
            //= rfc3550-A.1-extend (test)
            let mut unwrap = Unwrap16::new();
            let first = unwrap.unwrap(start) as i64;
            let mut highest = first;
            for step in steps {
                // Relative to the highest, never below the room before the first one.
                let sent = (highest + step).max(first - 30_000);
                prop_assert_eq!(unwrap.unwrap(sent as u16) as i64, sent);
                highest = highest.max(sent);
                prop_assert_eq!(unwrap.highest(), Some(highest as u64));
            }
        }

        #[test]
        fn timestamps_unwrap(start: u32, steps in proptest::collection::vec(-(1_i64 << 30)..1 << 30, 1..50)) {
            let mut unwrap = Unwrap32::new();
            let first = unwrap.unwrap(start) as i64;
            let mut highest = first;
            for step in steps {
                let sent = (highest + step).max(first - (1 << 30));
                prop_assert_eq!(unwrap.unwrap(sent as u32) as i64, sent);
                highest = highest.max(sent);
            }
        }

        #[test]
        fn the_nearest_number_is_within_half_of_the_space(reference in 0_u64..1 << 40, seq: u16) {
            match nearest16(reference, seq) {
                Some(n) => {
                    prop_assert_eq!(n as u16, seq);
                    prop_assert!(n.abs_diff(reference) <= 1 << 15);
                }
                None => prop_assert!(reference < 1 << 15),
            }
        }
    }

    #[test]
    fn the_report_counts_cycles() {
        //= rfc3550-6.4.1-ehsn (test)
        let mut unwrap = Unwrap16::new();
        assert_eq!(unwrap.highest_in_report(), 0);
        unwrap.unwrap(65_530);
        assert_eq!(unwrap.highest_in_report(), 65_530);
        unwrap.unwrap(3);
        assert_eq!(unwrap.highest_in_report(), 0x1_0003);
        unwrap.unwrap(65_535);
        assert_eq!(unwrap.highest_in_report(), 0x1_0003);
    }

    #[test]
    fn numbers_below_zero_and_above_u64_are_none() {
        assert_eq!(nearest16(5, 65_535), None);
        assert_eq!(nearest16(5, 6), Some(6));
        assert_eq!(nearest16(u64::MAX, 5), None);
    }
}
