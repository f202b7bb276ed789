//! What happens to a connection, as it is told.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::set::set;
use crate::variables::Snapshot;

/// What can be subscribed to. The numbers are those of the C interface.
///
/// The six events of the papers' Table 1 are here, two of them as counters among the
/// [variables](crate::Variable), since they come with every acknowledgement: a new ACK in slow
/// start or in congestion avoidance, and the fourth and later duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// Table 1, event 1: the retransmission timer ran out. With the number of time-outs in a row
    /// and the time that ran out.
    Timeout = 0,
    /// Table 1, event 3: the congestion window reached the slow-start threshold. Seen when the next
    /// acknowledgement comes in or the application writes.
    Threshold = 1,
    /// Table 1, event 4: the third duplicate ACK in a row (RFC 5681; RFC 6675 with selective
    /// acknowledgements), whether or not it led to fast recovery.
    ThirdDuplicate = 2,
    /// Table 1, event 4, as kernels decide it today: entry into fast recovery. RACK (RFC 8985)
    /// enters before the third duplicate, or after it when segments are merely reordered.
    Recovery = 3,
    /// Table 1, event 6: the ACK that ends fast recovery or the repair after a time-out.
    Recovered = 4,
    /// The window shrinks without a loss: ECN, or congestion in this host.
    Reduced = 5,
    /// The connection's state changed.
    State = 6,
    /// What limits the sender changed.
    Phase = 7,
    /// The socket is gone and with it the subscription. Comes to every subscriber.
    Ended = 8,
}

impl EventKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Timeout,
        Self::Threshold,
        Self::ThirdDuplicate,
        Self::Recovery,
        Self::Recovered,
        Self::Reduced,
        Self::State,
        Self::Phase,
        Self::Ended,
    ];

    /// Its name in policies, on the command line and in `TIDEGATE_EVENT`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Threshold => "threshold",
            Self::ThirdDuplicate => "third-duplicate",
            Self::Recovery => "recovery",
            Self::Recovered => "recovered",
            Self::Reduced => "reduced",
            Self::State => "state",
            Self::Phase => "phase",
            Self::Ended => "ended",
        }
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

set! {
    /// A set of kinds of events.
    EventSet(u32) of EventKind;
}

impl FromStr for EventSet {
    type Err = UnknownName;

    /// One name, or `all`.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        if name == "all" {
            return Ok(Self::ALL);
        }
        let kind = EventKind::ALL.into_iter().find(|k| k.name() == name);
        let kind = kind.ok_or_else(|| {
            let known = EventKind::ALL.map(EventKind::name).join(", ");
            UnknownName::new("event", name, &format!("all, {known}"))
        })?;
        Ok(Self::NONE.with(kind))
    }
}

/// There is no event, variable or group of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    text: String,
}

impl UnknownName {
    pub(crate) fn new(what: &str, given: &str, known: &str) -> Self {
        Self {
            text: format!("there is no {what} `{given}`: write one of {known}"),
        }
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for UnknownName {}

/// What names a subscription, in its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When, on the clock `CLOCK_MONOTONIC`, by the kernel. Without the daemon: when it was seen.
    pub time: Duration,
    /// By which subscription.
    pub subscription: SubscriptionId,
    /// Which one it is of this subscription, from 1. A gap is what was dropped because nobody read.
    pub number: u64,
    /// What.
    pub what: LinkEvent,
    /// The connection at that moment, as far as the subscription may read it.
    pub state: Snapshot,
}

/// What happened, with what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkEvent {
    /// [`EventKind::Timeout`].
    Timeout {
        /// How many there were in a row, this one included.
        in_a_row: u32,
        /// The time that ran out, as the kernel backs it off: what a user timeout took off that is not
        /// known.
        after: Duration,
    },
    /// [`EventKind::Threshold`].
    Threshold,
    /// [`EventKind::ThirdDuplicate`].
    ThirdDuplicate,
    /// [`EventKind::Recovery`].
    Recovery {
        /// Duplicate ACKs in a row until then. Where RACK decides it may be any number.
        duplicates: u32,
    },
    /// [`EventKind::Recovered`].
    Recovered {
        /// What it ends.
        from: CaState,
    },
    /// [`EventKind::Reduced`].
    Reduced,
    /// [`EventKind::State`].
    State {
        /// Before.
        from: TcpState,
        /// Now.
        to: TcpState,
    },
    /// [`EventKind::Phase`].
    Phase {
        /// Before; `None` if it is the first that was seen.
        from: Option<Phase>,
        /// Now.
        to: Phase,
    },
    /// [`EventKind::Ended`].
    Ended,
}

impl LinkEvent {
    /// Its kind.
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Timeout { .. } => EventKind::Timeout,
            Self::Threshold => EventKind::Threshold,
            Self::ThirdDuplicate => EventKind::ThirdDuplicate,
            Self::Recovery { .. } => EventKind::Recovery,
            Self::Recovered { .. } => EventKind::Recovered,
            Self::Reduced => EventKind::Reduced,
            Self::State { .. } => EventKind::State,
            Self::Phase { .. } => EventKind::Phase,
            Self::Ended => EventKind::Ended,
        }
    }

    /// The two numbers that go with the kind, as records and the C interface have them.
    pub fn details(&self) -> (u32, u64) {
        match *self {
            Self::Timeout { in_a_row, after } => (in_a_row, after.as_micros() as u64),
            Self::Threshold | Self::ThirdDuplicate | Self::Reduced | Self::Ended => (0, 0),
            Self::Recovery { duplicates } => (duplicates, 0),
            Self::Recovered { from } => (from as u32, 0),
            Self::State { from, to } => (from as u32, to as u64),
            Self::Phase { from, to } => (from.map_or(0, |p| p as u32), to as u64),
        }
    }

    /// From a kind and such numbers.
    pub(crate) fn from_details(kind: EventKind, first: u32, second: u64) -> Option<Self> {
        Some(match kind {
            EventKind::Timeout => Self::Timeout {
                in_a_row: first,
                after: Duration::from_micros(second),
            },
            EventKind::Threshold => Self::Threshold,
            EventKind::ThirdDuplicate => Self::ThirdDuplicate,
            EventKind::Recovery => Self::Recovery { duplicates: first },
            EventKind::Recovered => Self::Recovered {
                from: CaState::from_number(first.into())?,
            },
            EventKind::Reduced => Self::Reduced,
            EventKind::State => Self::State {
                from: TcpState::from_number(first.into())?,
                to: TcpState::from_number(second)?,
            },
            EventKind::Phase => Self::Phase {
                from: Phase::from_number(first.into()),
                to: Phase::from_number(second)?,
            },
            EventKind::Ended => Self::Ended,
        })
    }
}

impl fmt::Display for LinkEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind())?;
        match self {
            Self::Timeout { in_a_row, after } => {
                write!(f, " {in_a_row} in a row, after {} ms", after.as_millis())
            }
            Self::Recovery { duplicates } => write!(f, " after {duplicates} duplicate ACKs"),
            Self::Recovered { from } => write!(f, " from {from}"),
            Self::State { from, to } => write!(f, " {from} -> {to}"),
            Self::Phase { from, to } => match from {
                Some(from) => write!(f, " {from} -> {to}"),
                None => write!(f, " {to}"),
            },
            Self::Threshold | Self::ThirdDuplicate | Self::Reduced | Self::Ended => Ok(()),
        }
    }
}

/// What limits a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Phase {
    /// The congestion window, that is the path.
    Network = 1,
    /// The application: it has not given enough to fill the window.
    Application = 2,
    /// The send buffer: it is full before the window is.
    SendBuffer = 3,
    /// The receiver's window.
    Receiver = 4,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Network,
        Self::Application,
        Self::SendBuffer,
        Self::Receiver,
    ];

    fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|&p| p as u64 == number)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "network-limited",
            Self::Application => "application-limited",
            Self::SendBuffer => "send-buffer-limited",
            Self::Receiver => "receiver-limited",
        })
    }
}

/// The kernel's congestion state, by its numbers in `linux/tcp.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CaState {
    /// Nothing is wrong.
    Open = 0,
    /// Duplicate or selective ACKs came, not enough to act on.
    Disorder = 1,
    /// The window shrinks because of ECN or of this host.
    Reducing = 2,
    /// Fast recovery.
    Recovery = 3,
    /// Repair after a time-out.
    Loss = 4,
}

impl CaState {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Open,
        Self::Disorder,
        Self::Reducing,
        Self::Recovery,
        Self::Loss,
    ];

    /// By its number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|&s| s as u64 == number)
    }
}

impl fmt::Display for CaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Open => "open",
            Self::Disorder => "disorder",
            Self::Reducing => "reducing",
            Self::Recovery => "recovery",
            Self::Loss => "loss",
        })
    }
}

/// State of a connection (RFC 9293 section 3.3.2), by the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are those of RFC 9293")]
pub enum TcpState {
    Established = 1,
    SynSent = 2,
    SynReceived = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    Closed = 7,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
    /// A connection request that has no socket yet.
    NewSynReceived = 12,
}

impl TcpState {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Established,
        Self::SynSent,
        Self::SynReceived,
        Self::FinWait1,
        Self::FinWait2,
        Self::TimeWait,
        Self::Closed,
        Self::CloseWait,
        Self::LastAck,
        Self::Listen,
        Self::Closing,
        Self::NewSynReceived,
    ];

    /// By its number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|&s| s as u64 == number)
    }
}

impl fmt::Display for TcpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Established => "ESTABLISHED",
            Self::SynSent => "SYN-SENT",
            Self::SynReceived | Self::NewSynReceived => "SYN-RECEIVED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
            Self::CloseWait => "CLOSE-WAIT",
            Self::LastAck => "LAST-ACK",
            Self::Listen => "LISTEN",
            Self::Closing => "CLOSING",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back() {
        for (number, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(kind.name().parse(), Ok(EventSet::NONE.with(kind)));
        }
        let error = "time-out".parse::<EventSet>().unwrap_err().to_string();
        assert!(
            error.contains("`time-out`") && error.contains("timeout"),
            "{error}"
        );
    }

    #[test]
    fn details_lead_back() {
        for what in [
            LinkEvent::Timeout {
                in_a_row: 3,
                after: Duration::from_millis(800),
            },
            LinkEvent::Recovery { duplicates: 2 },
            LinkEvent::Recovered {
                from: CaState::Loss,
            },
            LinkEvent::State {
                from: TcpState::SynSent,
                to: TcpState::Established,
            },
            LinkEvent::Phase {
                from: None,
                to: Phase::SendBuffer,
            },
            LinkEvent::Ended,
        ] {
            let (first, second) = what.details();
            assert_eq!(
                LinkEvent::from_details(what.kind(), first, second),
                Some(what)
            );
        }
        assert_eq!(LinkEvent::from_details(EventKind::State, 99, 1), None);
    }
}
