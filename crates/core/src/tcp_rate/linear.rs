//! Linear retransmission timeouts, without exponential back-off.

use core::time::Duration;

/// Duration of a retransmission timeout after `in_a_row` successive timeouts without an
/// acknowledgement, if the first one lasted for `base`.
///
/// The second timeout is doubled (RFC 6298 section 5.5), because the first one cannot be predicted
/// and back-off applies at its expiry. The following ones are a tenth of a second
/// shorter than the first. They last for at least [`LINEAR_MIN_RTO`], or [`LINEAR_LATE_MIN_RTO`] after more
/// than [`LINEAR_FAST_RETRIES`] timeouts, and never longer than with exponential back-off.
///
/// The tenth of a second is half of the minimum that Linux adds to the round trip for delayed
/// acknowledgements (`tcp_rto_min`). A segment that fills a gap is acknowledged immediately (RFC
/// 5681 section 4.2).
///
/// Linux does the same for thin streams, for up to six timeouts (`tcp_thin_linear_timeouts`). One
/// segment per timeout is less than the floor of any video. A timer that has doubled several times
/// detects the end of an outage seconds late, which exceeds most delay bounds.
pub fn linear_timeout(base: Duration, in_a_row: u32) -> Duration {
    let backed_off = base.saturating_mul(2_u32.saturating_pow(in_a_row));
    let linear = match in_a_row {
        0 | 1 => backed_off,
        2..=LINEAR_FAST_RETRIES => base.saturating_sub(UNDELAYED).max(LINEAR_MIN_RTO),
        _ => base.max(LINEAR_LATE_MIN_RTO),
    };
    linear.min(backed_off)
}

/// See [`linear_timeout`].
pub const LINEAR_MIN_RTO: Duration = Duration::from_millis(250);
/// See [`linear_timeout`].
pub const LINEAR_LATE_MIN_RTO: Duration = Duration::from_secs(1);
/// See [`linear_timeout`].
pub const LINEAR_FAST_RETRIES: u32 = 32;
const UNDELAYED: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_doubles_once() {
        let ms = Duration::from_millis;
        let of = |base| [0, 1, 2, 3, 32, 33, 1_000].map(|n| linear_timeout(ms(base), n));
        assert_eq!(
            of(370),
            [370, 740, 270, 270, 270, 1_000, 1_000].map(ms),
            "first timeout minus the delayed-ACK allowance"
        );
        assert_eq!(of(204), [204, 408, 250, 250, 250, 1_000, 1_000].map(ms));
        assert_eq!(of(3_000)[1..4], [6_000, 2_900, 2_900].map(ms));
        assert_eq!(linear_timeout(ms(10), 2), ms(40), "limited by back-off");
    }
}
