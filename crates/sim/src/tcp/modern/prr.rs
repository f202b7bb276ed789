//! How much to send while the window shrinks: proportional rate reduction (RFC 9937).

/// Spreads a reduction over a round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    /// Delivered and sent since it began.
    delivered: u64,
    sent: u64,
    /// In flight when it began.
    prior: u64,
}

impl Reduction {
    /// `in_flight` counts what was out before the first loss was found.
    pub(super) fn begin(in_flight: u32) -> Self {
        Self {
            delivered: 0,
            sent: 0,
            prior: u64::from(in_flight.max(1)),
        }
    }

    /// A segment was sent, of whatever kind.
    pub(super) fn on_sent(&mut self) {
        self.sent += 1;
    }

    /// The window after an acknowledgement. `delivered` segments arrived by it and `in_flight`
    /// are left. `safe`: it acknowledged something in sequence and showed no further loss.
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
            // Below the threshold already, because of losses: as much as arrives, and back to it
            // as in slow start while all goes well.
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
    fn seven_segments_leave_for_ten_that_arrive() {
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
    fn after_heavy_loss_it_grows_back_to_the_threshold() {
        // 40 were out, 30 are lost: 10 in flight, threshold 28.
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
