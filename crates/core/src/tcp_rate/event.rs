//! Events of a TCP sender, and subscriptions to them.

use crate::units::Time;

/// Event of TCP's congestion control, in the order of Table 1 of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum TcpEvent {
    /// 1: the retransmission timer expired.
    TimedOut,
    /// 2: an acknowledgement of new data arrived outside of loss recovery.
    NewAck,
    /// 3: the congestion window reached the slow start threshold.
    ThresholdReached,
    /// 4: a third duplicate acknowledgement arrived. In a modern sender: loss recovery began
    /// without a timeout.
    ThirdDuplicate,
    /// 5: another duplicate acknowledgement arrived during loss recovery.
    FurtherDuplicate,
    /// 6: loss recovery ended: the lost segments have arrived.
    Repaired,
}

/// Notification of an application about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventNotification {
    /// The event.
    pub event: TcpEvent,
    /// Time of the event in the transport, if known; otherwise an estimate.
    pub happened: Time,
}

impl TcpEvent {
    /// All events.
    pub const ALL: [Self; 6] = [
        Self::TimedOut,
        Self::NewAck,
        Self::ThresholdReached,
        Self::ThirdDuplicate,
        Self::FurtherDuplicate,
        Self::Repaired,
    ];

    /// Number in Table 1.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// Name in files.
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

    /// Notification of this event at the time `happened`.
    pub const fn at(self, happened: Time) -> EventNotification {
        EventNotification {
            event: self,
            happened,
        }
    }

    /// Whether an application may subscribe to this event: the column "Sub" of Table 1.
    const fn is_subscribable(self) -> bool {
        matches!(self, Self::TimedOut | Self::ThirdDuplicate | Self::Repaired)
    }
}

/// Events that an application has subscribed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subscription(u8);

impl Subscription {
    /// No events.
    pub const NONE: Self = Self(0);
    /// The timeout only, as in the first paper.
    pub const TIME_OUT: Self = Self::of(&[TcpEvent::TimedOut]);
    /// The timeout and the third duplicate acknowledgement, as in the `ABone` report.
    pub const LOSSES: Self = Self::of(&[TcpEvent::TimedOut, TcpEvent::ThirdDuplicate]);
    /// All events that support subscription.
    pub const ALL: Self = Self::of(&TcpEvent::ALL);

    /// Subscription to `events`, without those that do not support subscription.
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

    /// Whether the subscription includes `event`.
    pub const fn contains(self, event: TcpEvent) -> bool {
        self.0 >> event as u8 & 1 == 1
    }

    /// Events of the subscription, in the order of Table 1.
    pub fn iter(self) -> impl Iterator<Item = TcpEvent> {
        TcpEvent::ALL.into_iter().filter(move |e| self.contains(*e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_are_limited_to_those_of_table_1() {
        //= itcp-2.2-events (test)
        let numbers: Vec<u8> = Subscription::ALL.iter().map(TcpEvent::number).collect();
        assert_eq!(numbers, [1, 4, 6]);
        assert!(!Subscription::of(&[TcpEvent::NewAck]).contains(TcpEvent::NewAck));
        assert!(Subscription::LOSSES.contains(TcpEvent::ThirdDuplicate));
        assert!(!Subscription::TIME_OUT.contains(TcpEvent::ThirdDuplicate));
        assert_eq!(Subscription::NONE.iter().count(), 0);
    }
}
