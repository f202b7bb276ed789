//! Proportional rate reduction: transmission while the window shrinks (RFC 9937).

/// Spreads a window reduction over a round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    /// Segments delivered and sent since the start of the reduction.
    delivered: u64,
    sent: u64,
    /// Segments in flight at the start.
    prior: u64,
}

impl Reduction {
    /// `in_flight` is the number of outstanding segments before the first loss was detected.
    pub(super) fn begin(in_flight: u32) -> Self {
        Self {
            delivered: 0,
            sent: 0,
            prior: u64::from(in_flight.max(1)),
        }
    }

    /// Counts a sent segment, new or retransmitted.
    pub(super) fn on_sent(&mut self) {
        self.sent += 1;
    }

    /// The window after an acknowledgement that delivers `delivered` segments and leaves
    /// `in_flight`. `safe`: the acknowledgement advanced the sequence and indicated no further
    /// loss.
    pub(super) fn window(
        &mut self,
        delivered: u32,
        in_flight: u32,
        ssthresh: u32,
        safe: bool,
    ) -> u32 {
        self.delivered += u64::from(delivered);
        let room = u64::from(ssthresh.saturating_sub(in_flight));
        let mut send = if in_flight > ssthresh {
            let due = (self.delivered * u64::from(ssthresh)).div_ceil(self.prior);
            due.saturating_sub(self.sent)
        } else {
            // In flight is below the threshold because of losses: packet conservation, with slow
            // start back to the threshold while there are no further losses.
            let kept = self.delivered.saturating_sub(self.sent);
            (kept.max(u64::from(delivered)) + u64::from(safe)).min(room)
        };
        if self.sent == 0 {
            send = send.max(1);
        }
        in_flight.saturating_add(send.min(u64::from(u32::MAX)) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of 20 segments is lost; each acknowledgement delivers one.
    #[test]
    fn seven_segments_are_sent_per_ten_delivered() {
        let mut reduction = Reduction::begin(20);
        let mut in_flight = 19 - 3;
        let mut sent = Vec::new();
        for _ in 0..16 {
            let window = reduction.window(1, in_flight, 14, false);
            let now = window.saturating_sub(in_flight);
            for _ in 0..now {
                reduction.on_sent();
            }
            in_flight = in_flight + now - 1;
            sent.push(now);
        }
        let total: u32 = sent.iter().sum();
        assert!((11..=13).contains(&total), "{sent:?}");
        assert!(sent.iter().all(|n| *n <= 2), "{sent:?}");
        assert_eq!(sent[0], 1);
    }

    #[test]
    fn grows_back_to_the_threshold_after_heavy_loss() {
        // 40 segments were outstanding, 30 are lost: 10 in flight, threshold 28.
        let mut reduction = Reduction::begin(40);
        let (mut in_flight, mut windows) = (10_u32, Vec::new());
        for _ in 0..30 {
            in_flight -= 1;
            let window = reduction.window(1, in_flight, 28, true);
            for _ in in_flight..window {
                reduction.on_sent();
            }
            in_flight = window;
            windows.push(window);
        }
        assert_eq!(windows[..3], [11, 12, 13]);
        assert_eq!(windows[29], 28);
        assert!(windows.is_sorted());
    }
}
