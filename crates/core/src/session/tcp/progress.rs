//! Progress of a peer that receives a stream.

use core::time::Duration;

use crate::units::{Bytes, Time};

/// Detects a peer that accepts data too slowly: the data in the socket at some time was not
/// acknowledged within a limit. An acknowledgement of less than that is no progress, so a peer that
/// reads a few bytes at a time does not keep its connection.
#[derive(Clone, Copy, Debug)]
pub struct AckProgress {
    limit: Duration,
    /// Stream offset to be acknowledged, and the time since which it is awaited.
    awaited: Option<(Bytes, Time)>,
}

impl AckProgress {
    /// Data must be acknowledged within `limit`.
    pub const fn new(limit: Duration) -> Self {
        Self {
            limit,
            awaited: None,
        }
    }

    /// `written` bytes were written since the start of the stream, of which `pending` are not
    /// acknowledged. Returns whether the limit has passed.
    pub fn is_over(&mut self, now: Time, written: Bytes, pending: Bytes) -> bool {
        let acknowledged = written.saturating_sub(pending);
        if self.awaited.is_none_or(|(end, _)| acknowledged >= end) {
            self.awaited = (pending > Bytes(0)).then_some((written, now));
        }
        self.awaited
            .is_some_and(|(_, since)| now.since(since) >= self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn slow_acknowledgements_are_no_progress() {
        let mut progress = AckProgress::new(LIMIT);
        let mut over = |second, pending| {
            let now = Time::from_millis(1_000 * second);
            progress.is_over(now, Bytes(20_000), Bytes(pending))
        };
        // 14 bytes every four seconds.
        for step in 0..8 {
            assert!(!over(4 * step, 20_000 - 14 * step));
        }
        assert!(over(32, 19_888));
    }

    #[test]
    fn a_peer_that_keeps_up_or_has_nothing_to_read_is_not_over() {
        let mut progress = AckProgress::new(LIMIT);
        let mut written = 0;
        for second in 0..100 {
            let now = Time::from_millis(1_000 * second);
            written += 10_000;
            // The data of the last two seconds is in flight.
            let pending = Bytes(written.min(20_000));
            assert!(!progress.is_over(now, Bytes(written), pending));
        }
        let later = |second: u64| Time::from_millis(1_000 * second);
        assert!(!progress.is_over(later(101), Bytes(written), Bytes(0)));
        assert!(!progress.is_over(later(500), Bytes(written), Bytes(0)));
        assert!(!progress.is_over(later(501), Bytes(written + 1), Bytes(1)));
        assert!(progress.is_over(later(531), Bytes(written + 1), Bytes(1)));
    }
}
