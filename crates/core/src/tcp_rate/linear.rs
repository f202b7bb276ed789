//! How long a retransmission time-out lasts that is not doubled.

use core::time::Duration;

/// The time-out that follows `in_a_row` others with no acknowledgement between them, if the first one
/// lasted for `base`: the second is twice as long (RFC 6298, 5.5), since nobody could know before the
/// first that there would be one, and those behind it last a tenth of a second less than the first.
/// They never last for less than [`LINEAR_LEAST`], nor, behind more than [`LINEAR_RETRIES`] of them, for
/// less than [`LINEAR_LATER`]; and never for longer than with back-off.
///
/// The tenth of a second is half of what Linux adds to a round trip, at least, for acknowledgements that
/// are delayed (`tcp_rto_min`). A segment that fills a gap is acknowledged at once (RFC 5681, 4.2).
///
/// Linux does so for thin streams, six times (`tcp_thin_linear_timeouts`). One segment per time-out is
/// less than the floor of any video, and a timer that has doubled several times finds a path alive
/// again seconds late, which is more than most bounds.
pub fn linear_timeout(base: Duration, in_a_row: u32) -> Duration {
    let backed_off = base.saturating_mul(2_u32.saturating_pow(in_a_row));
    let linear = match in_a_row {
        0 | 1 => backed_off,
        2..=LINEAR_RETRIES => base.saturating_sub(UNDELAYED).max(LINEAR_LEAST),
        _ => base.max(LINEAR_LATER),
    };
    linear.min(backed_off)
}

/// See [`linear_timeout`].
pub const LINEAR_LEAST: Duration = Duration::from_millis(250);
/// See [`linear_timeout`].
pub const LINEAR_LATER: Duration = Duration::from_secs(1);
/// See [`linear_timeout`].
pub const LINEAR_RETRIES: u32 = 32;
const UNDELAYED: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_once() {
        let ms = Duration::from_millis;
        let of = |base| [0, 1, 2, 3, 32, 33, 1_000].map(|n| linear_timeout(ms(base), n));
        assert_eq!(
            of(370),
            [370, 740, 270, 270, 270, 1_000, 1_000].map(ms),
            "as the first, less the allowance"
        );
        assert_eq!(of(204), [204, 408, 250, 250, 250, 1_000, 1_000].map(ms));
        assert_eq!(of(3_000)[1..4], [6_000, 2_900, 2_900].map(ms));
        assert_eq!(linear_timeout(ms(10), 2), ms(40), "no longer than doubled");
    }
}
