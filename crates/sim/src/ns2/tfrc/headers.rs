//! TFRC headers of data packets.

use std::collections::VecDeque;

/// Headers of the packets sent: round-trip time and round number for the receiver.
#[derive(Clone, Debug)]
pub(super) struct Headers {
    /// Headers with the sequence number of their first packet, in ascending order.
    known: VecDeque<(u64, Header)>,
    /// Sequence number of the next packet.
    pub(super) next: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    /// Round-trip time in seconds; zero if unknown.
    pub(super) rtt: f64,
    /// Number of feedback packets received and timer expiries (`round_id`).
    pub(super) round: u32,
}

impl Headers {
    pub(super) fn new() -> Self {
        Self {
            known: VecDeque::from([(0, Header::default())]),
            next: 0,
        }
    }

    pub(super) fn of(&self, seq: u64) -> Header {
        let mut known = self.known.iter().rev();
        let found = known.find(|(from, _)| *from <= seq);
        found.map_or_else(Header::default, |known| known.1)
    }

    fn newest(&self) -> Header {
        self.known
            .back()
            .map_or_else(Header::default, |known| known.1)
    }

    /// Round-trip time in the header of the newest packets.
    pub(super) fn told(&self) -> f64 {
        self.newest().rtt
    }

    pub(super) fn round(&self) -> u32 {
        self.newest().round
    }

    pub(super) fn next_round(&mut self, rtt: f64) {
        let round = self.round().saturating_add(1);
        if self.known.len() == HEADERS {
            self.known.pop_front();
        }
        self.known.push_back((self.next, Header { rtt, round }));
    }
}

/// Maximum number of headers in flight: rounds within a round trip.
const HEADERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_has_the_header_of_its_sending_time() {
        let mut headers = Headers::new();
        headers.next = 5;
        headers.next_round(0.1);
        headers.next_round(0.2);
        headers.next = 9;
        headers.next_round(0.3);
        let rounds = [0, 4, 5, 8, 9, 99].map(|seq| headers.of(seq).round);
        assert_eq!(rounds, [0, 0, 2, 2, 3, 3]);
        assert_eq!(headers.round(), 3);
        assert!((headers.of(8).rtt - 0.2).abs() < 1e-12 && (headers.told() - 0.3).abs() < 1e-12);
        (0..HEADERS).for_each(|_| headers.next_round(0.4));
        assert_eq!(headers.of(0).round, 0, "expired");
    }
}
