//! TCP throughput equation and its inverse.

/// Allowed rate in bytes per second at loss event rate `p` (above zero, at most 1), for packets
/// of `size` bytes and a round trip of `rtt` seconds. Source: RFC 5348 section 3.1, the model of
/// Padhye, Firoiu, Towsley and Kurose with b = 1 packet per acknowledgement and a retransmission
/// timeout of 4 round trips.
pub fn throughput(size: f64, rtt: f64, p: f64) -> f64 {
    //= rfc5348-3.1-equation
    let fast_retransmit = (2.0 * p / 3.0).sqrt();
    //= rfc5348-3.1-rto
    let timeout = RTO_ROUND_TRIPS * 3.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
    size / (rtt * (fast_retransmit + timeout))
}

/// The loss event rate at which [`throughput`] gives `rate` bytes per second, in
/// [`MIN_LOSS`]`..=1`, to a relative precision of 1e-6.
pub fn loss_event_rate(size: f64, rtt: f64, rate: f64) -> f64 {
    inverse(rate, |p| throughput(size, rtt, p))
}

/// The same for any `law` that decreases strictly with the loss event rate.
pub(super) fn inverse(rate: f64, law: impl Fn(f64) -> f64) -> f64 {
    // 25 bisections of ln(1e-12)..ln(1) leave an interval
    // of 27.6 / 2^25 < 1e-6. The square root bisects a logarithm with the same result on every
    // machine.
    let (mut low, mut high) = (MIN_LOSS, 1.0);
    for _ in 0..25 {
        let middle = f64::sqrt(low * high);
        if law(middle) > rate {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::sqrt(low * high)
}

/// Smallest loss event rate, 10^-12: about one packet of 1200 bytes per day at 100 Gb/s.
pub const MIN_LOSS: f64 = 1e-12;

/// Retransmission timeout of the equation, in round trips.
pub(super) const RTO_ROUND_TRIPS: f64 = 4.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    //= rfc5348-3.1-equation (test)
    //= rfc5348-3.1-rto (test)
    #[test]
    fn throughput_matches_a_manual_computation() {
        // p = 0.01, R = 0.1 s, s = 1000 B: sqrt(0.02/3) = 0.0816497; sqrt(0.00375) = 0.0612372,
        // times 12 * 0.01 * 1.0032 = 0.00737198; 1000 / (0.1 * 0.0890217) = 112332 B/s.
        let rate = throughput(1_000.0, 0.1, 0.01);
        assert!((rate - 112_332.0).abs() < 2.0, "{rate}");
    }

    proptest! {
        #[test]
        fn inverse_matches_the_equation(
            size in 50.0..10_000.0_f64,
            rtt in 1e-4..10.0_f64,
            exponent in 0_u32..90,
        ) {
            // p from 1 down to 1e-9 in tenths of a decade or so.
            let p = (0..exponent).fold(1.0, |p, _| p * 0.8);
            let back = loss_event_rate(size, rtt, throughput(size, rtt, p));
            prop_assert!((back / p - 1.0).abs() < 1e-5, "{p} came back as {back}");
        }

        #[test]
        fn any_rate_has_a_loss_event_rate(rate: f64) {
            let p = loss_event_rate(1_200.0, 0.05, rate);
            prop_assert!((MIN_LOSS * 0.99..=1.0).contains(&p));
        }
    }
}
