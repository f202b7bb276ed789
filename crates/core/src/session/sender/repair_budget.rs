//! Byte budget of retransmissions, and of parity packets.

use crate::units::Bytes;

/// Limits retransmissions to a [`SHARE`] of the media bytes sent, whatever is requested. Unused
/// budget accumulates, because losses come in bursts.
#[derive(Clone, Copy, Debug)]
pub(super) struct RepairBudget {
    credit: Bytes,
    share: (u64, u64),
}

impl Default for RepairBudget {
    fn default() -> Self {
        Self::of(SHARE)
    }
}

impl RepairBudget {
    /// A budget of another share of the media bytes, as numerator and denominator.
    pub(super) fn of(share: (u64, u64)) -> Self {
        Self {
            credit: INITIAL,
            share,
        }
    }

    /// A media packet of `size` was sent; `second` is the media of one second at the current rate.
    pub(super) fn on_media(&mut self, size: Bytes, second: Bytes) {
        let (part, whole) = self.share;
        let most = second.max(INITIAL);
        self.credit = (self.credit + size.scale(part, whole)).min(most);
    }

    /// Takes `size` from the budget; false if it is exhausted.
    pub(super) fn spend(&mut self, size: Bytes) -> bool {
        let affordable = size <= self.credit;
        if affordable {
            self.credit -= size;
        }
        affordable
    }
}

/// Repairs of a path with 20 % loss, p/(1 - p). Congestion control leaves no usable rate above.
const SHARE: (u64, u64) = (1, 4);
/// Eight packets: a burst of losses in the first key frame.
const INITIAL: Bytes = Bytes(8 * 1_200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_are_a_quarter_of_the_media() {
        let mut budget = RepairBudget::default();
        let (size, mut repaired) = (Bytes(1_200), Bytes::ZERO);
        for _ in 0..1_000 {
            budget.on_media(size, Bytes(500_000));
            while budget.spend(size) {
                repaired += size;
            }
        }
        let share = size.scale(1_000, 4) + INITIAL;
        assert!(repaired <= share && repaired + size > share, "{repaired:?}");
    }

    #[test]
    fn unused_budget_is_at_most_one_second_of_media() {
        let mut budget = RepairBudget::default();
        (0..10_000).for_each(|_| budget.on_media(Bytes(1_200), Bytes(120_000)));
        let burst = core::iter::from_fn(|| budget.spend(Bytes(1_200)).then_some(()));
        assert_eq!(burst.count(), 100);
    }
}
