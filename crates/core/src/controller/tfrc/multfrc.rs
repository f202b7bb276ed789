//! MulTFRC: one controller for the packets of several flows.
//!
//! Source: M. Welzl, D. Damjanovic, S. Gjessing, *MulTFRC: TFRC with weighted fairness*,
//! draft-irtf-iccrg-multfrc-01 (2010), after D. Damjanovic, M. Welzl, *MulTFRC: providing weighted
//! fairness for multimedia applications (and others too!)*, ACM CCR 39(3), 2009. The draft replaces
//! the throughput equation of RFC 5348, and needs a further measurement: the lost packets per loss
//! event.

use super::equation;

/// Throughput equation of a controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Law {
    /// RFC 5348, for one flow.
    Single,
    /// MulTFRC, for this number of flows.
    Multiple(f64),
}

impl Law {
    /// Changes the number of flows.
    pub(super) fn set_flows(&mut self, flows: u32) {
        if let Self::Multiple(number) = self {
            *number = f64::from(flows.max(1));
        }
    }

    /// Allowed rate in bytes per second at loss event rate `p`, with `lost` packets lost in a loss
    /// event. Sizes are in bytes and times in seconds.
    pub(super) fn throughput(self, size: f64, rtt: f64, p: f64, lost: f64) -> f64 {
        match self {
            Self::Single => equation::throughput(size, rtt, p),
            Self::Multiple(flows) => throughput(size, rtt, p, flows, lost),
        }
    }

    /// The loss event rate at which one packet lost in a loss event gives `rate` bytes per second.
    pub(super) fn loss_event_rate(self, size: f64, rtt: f64, rate: f64) -> f64 {
        equation::inverse(rate, |p| self.throughput(size, rtt, p, 1.0))
    }
}

/// Rate of `flows` flows together in bytes per second, at loss event rate `p` of all their packets
/// (above zero, at most 1) and with `lost` packets lost in a loss event (at least 1), for packets of
/// `size` bytes and a round trip of `rtt` seconds. As in [`equation::throughput`], b = 1 packet per
/// acknowledgement and the retransmission timeout is 4 round trips. Names in comments are
/// those of the draft. At p from 0.129 to 0.166 and one packet lost in an event, up to twelve flows get
/// less than one fewer, as all of them then wait for timeouts.
pub fn throughput(size: f64, rtt: f64, p: f64, flows: f64, lost: f64) -> f64 {
    // Flows that have a loss in a loss event: the expected number if each loss is in a random flow.
    let affected = if flows < FEW_FLOWS {
        flows * (1.0 - libm::pow(1.0 - 1.0 / flows, lost))
    } else {
        lost
    };
    let affected = affected.min(libm::ceil(flows)).max(1.0);
    let skew = flows - 2.0 * affected;
    let root = (p * affected * (24.0 * flows * flows + p * affected * skew * skew)).sqrt();
    // x: round trips between two loss events.
    let rounds = (root - affected * p * skew) / (6.0 * flows * flows * p);
    // z (1 - p): mean duration of the timeouts of a flow, over the number of packets that it then sends.
    let silence = equation::RTO_ROUND_TRIPS * rtt * (1.0 + 32.0 * p * p);
    let timeout = silence / (1.0 - p);
    // q: flows that wait for a timeout.
    let waiting = (2.0 * lost * timeout / (rtt * (1.0 + 3.0 * flows / lost) * rounds * rounds))
        .min(flows * timeout / (rounds * rtt))
        .min(flows);
    ((1.0 - waiting / flows) / (p * rounds * rtt) + waiting / silence) * size
}

/// With fewer flows, several losses of a loss event are often in the same flow.
const FEW_FLOWS: f64 = 12.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes per second for packets of 1,000 bytes and a round trip of 100 ms, computed with 30 digits
    /// from the algorithm of the draft, in Python. Flows, lost packets, loss event rate.
    #[test]
    fn rates_match_an_independent_computation() {
        for (flows, lost, p, expected) in [
            (1.0, 1.0, 0.01, 116_570.647_272_727),
            (1.0, 1.0, 0.1, 23_000.039_047_719_7),
            (4.0, 1.0, 0.01, 476_404.493_586_909),
            (4.0, 2.5, 0.003, 605_588.204_521_569),
            (11.0, 3.0, 0.02, 442_728.996_346_623),
            (12.0, 3.0, 0.02, 474_247.062_372_481),
            (24.0, 6.0, 0.01, 954_120.063_833_137),
            // All flows wait for their timeouts: 24 packets in 0.4 s times 1.08.
            (24.0, 30.0, 0.05, 55_555.555_555_555_6),
            (64.0, 1.0, 0.000_1, 78_507_509.198_977_1),
            (2.0, 3.0, 0.3, 1_288.659_793_814_43),
        ] {
            let rate = throughput(1_000.0, 0.1, p, flows, lost);
            assert!((rate / expected - 1.0).abs() < 1e-12, "{rate} {expected}");
        }
    }

    #[test]
    fn rate_is_finite_at_the_largest_loss_event_rate() {
        // One packet per flow and timeout of 0.4 s times 33.
        let rate = throughput(1_000.0, 0.1, 1.0, 8.0, 1.0);
        assert!((rate - 8_000.0 / 13.2).abs() < 1e-9, "{rate}");
    }

    /// Up to one loss event in 100 packets a single flow has the rate of RFC 5348 within 4 %. At 10 % it
    /// has 1.3 times that rate.
    #[test]
    fn single_flow_is_close_to_tfrc_at_few_losses() {
        let ratio =
            |p| throughput(1_000.0, 0.1, p, 1.0, 1.0) / equation::throughput(1_000.0, 0.1, p);
        for p in [1e-6, 1e-5, 1e-4, 1e-3, 1e-2] {
            assert!((0.995..1.04).contains(&ratio(p)), "{p} {}", ratio(p));
        }
        assert!((ratio(0.1) - 1.299).abs() < 1e-3, "{}", ratio(0.1));
    }

    proptest! {
        #[test]
        fn rate_grows_with_the_flows_and_falls_with_losses(
            flows in 1_u32..64,
            rtt in 1e-3..1.0_f64,
            exponent in 0_u32..90,
            lost in 1.0..50.0_f64,
        ) {
            // p from 1 down to 1e-9.
            let p = (0..exponent).fold(1.0, |p, _| p * 0.8);
            let flows = f64::from(flows);
            let rate = |p: f64, flows: f64, lost: f64| throughput(1_000.0, rtt, p, flows, lost);
            // Where one flow more brings all of them to wait for timeouts.
            if !(0.12..0.17).contains(&p) {
                prop_assert!(rate(p, flows + 1.0, 1.0) > rate(p, flows, 1.0));
            }
            prop_assert!(rate(0.8 * p, flows, lost) > rate(p, flows, lost));
        }

        #[test]
        fn inverse_matches_the_equation(flows in 1_u32..=64, exponent in 0_u32..90) {
            let p = (0..exponent).fold(1.0, |p, _| p * 0.8);
            let law = Law::Multiple(f64::from(flows));
            let back = law.loss_event_rate(1_000.0, 0.1, law.throughput(1_000.0, 0.1, p, 1.0));
            prop_assert!((back / p - 1.0).abs() < 1e-5, "{p} came back as {back}");
        }
    }
}
