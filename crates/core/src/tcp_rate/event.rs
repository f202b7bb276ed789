//! Events of a TCP sender, and subscriptions to them.

use crate::units::Time;

/// An event of TCP's congestion control: Table 1 of the paper, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum TcpEvent {
    /// 1: the retransmission timer expired.
    TimedOut,
    /// 2: an acknowledgement of new data came while nothing was being repaired.
    NewAck,
    /// 3: the congestion window reached the slow start threshold.
    ThresholdReached,
    /// 4: a third duplicate acknowledgement came, or what a sender of today takes for one: it
    /// begins to repair a loss without a time-out.
    ThirdDuplicate,
    /// 5: another duplicate acknowledgement came during the repair.
    FurtherDuplicate,
    /// 6: what was lost has arrived, and the repair is over.
    Repaired,
}

/// An event of which an application is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Which.
    pub event: TcpEvent,
    /// When it happened in the transport, as far as that is known.
    pub happened: Time,
}

impl TcpEvent {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::TimedOut,
        Self::NewAck,
        Self::ThresholdReached,
        Self::ThirdDuplicate,
        Self::FurtherDuplicate,
        Self::Repaired,
    ];

    /// Its number in Table 1.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimedOut => "timed-out",
            Self::NewAck => "new-ack",
            Self::ThresholdReached => "threshold-reached",
            Self::ThirdDuplicate => "third-duplicate",
            Self::FurtherDuplicate => "further-duplicate",
            Self::Repaired => "repaired",
        }
    }

    /// One that happened at that time.
    pub const fn at(self, happened: Time) -> Told {
        Told {
            event: self,
            happened,
        }
    }

    /// Whether an application may subscribe to it: the column "Sub" of Table 1.
    const fn is_subscribable(self) -> bool {
        matches!(self, Self::TimedOut | Self::ThirdDuplicate | Self::Repaired)
    }
}

/// Events that an application has subscribed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subscription(u8);

impl Subscription {
    /// Nothing is told.
    pub const NONE: Self = Self(0);
    /// The time-out alone, as in the first paper.
    pub const TIME_OUT: Self = Self::of(&[TcpEvent::TimedOut]);
    /// The time-out and the third duplicate acknowledgement, as in the `ABone` report.
    pub const LOSSES: Self = Self::of(&[TcpEvent::TimedOut, TcpEvent::ThirdDuplicate]);
    /// All that may be subscribed to.
    pub const ALL: Self = Self::of(&TcpEvent::ALL);

    /// These; what cannot be subscribed to is left out.
    pub const fn of(events: &[TcpEvent]) -> Self {
        let (mut set, mut i) = (0, 0);
        while i < events.len() {
            if events[i].is_subscribable() {
                set |= 1 << events[i] as u8;
            }
            i += 1;
        }
        Self(set)
    }

    /// Whether `event` is told.
    pub const fn contains(self, event: TcpEvent) -> bool {
        self.0 >> event as u8 & 1 == 1
    }

    /// Its events, in the order of Table 1.
    pub fn iter(self) -> impl Iterator<Item = TcpEvent> {
        TcpEvent::ALL.into_iter().filter(move |e| self.contains(*e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_table_offers_can_be_subscribed_to() {
        //= itcp-2.2-events (test)
        let numbers: Vec<u8> = Subscription::ALL.iter().map(TcpEvent::number).collect();
        assert_eq!(numbers, [1, 4, 6]);
        assert!(!Subscription::of(&[TcpEvent::NewAck]).contains(TcpEvent::NewAck));
        assert!(Subscription::LOSSES.contains(TcpEvent::ThirdDuplicate));
        assert!(!Subscription::TIME_OUT.contains(TcpEvent::ThirdDuplicate));
        assert_eq!(Subscription::NONE.iter().count(), 0);
    }
}
