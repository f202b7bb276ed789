//! TCP throughput equation with a separate retransmission timeout.

/// TCP throughput in bytes per second. Source: RFC 3448 section 3.1 with b = 1, and with the upper
/// bound of 1 on the probability of a timeout, which is in the model of Padhye et al. and not in
/// the RFC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Equation {
    pub(super) size: f64,
    pub(super) rtt: f64,
    pub(super) rto: f64,
}

impl Equation {
    /// Throughput at loss event rate `p`; infinite at zero.
    pub(super) fn rate(&self, p: f64) -> f64 {
        let timeout = (3.0 * (3.0 * p / 8.0).sqrt()).min(1.0);
        let fast_retransmit = self.rtt * (2.0 * p / 3.0).sqrt();
        self.size / (fast_retransmit + timeout * self.rto * p * (1.0 + 32.0 * p * p))
    }

    /// The loss event rate at which [`rate`](Self::rate) is within 5 % of `rate`. This is the
    /// precision of ns-2, since the first interval is only an estimate.
    pub(super) fn inverse(&self, rate: f64) -> f64 {
        let (mut p, mut step) = (0.5, 0.25);
        for _ in 0..30 {
            let trial = self.rate(p);
            if trial > 0.95 * rate && trial < 1.05 * rate {
                break;
            }
            p += if trial > rate { step } else { -step };
            step /= 2.0;
        }
        p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverse_is_within_five_percent() {
        let equation = Equation {
            size: 1_000.0,
            rtt: 0.1,
            rto: 0.3,
        };
        for rate in [2e3, 1e4, 1e5, 1e6, 1e7] {
            let back = equation.rate(equation.inverse(rate));
            assert!((back / rate - 1.0).abs() <= 0.05, "{back} for {rate}");
        }
    }
}
