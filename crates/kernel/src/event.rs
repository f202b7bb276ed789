//! Events of a connection.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tidegate_core::tcp_rate::TcpEvent;

use crate::set::set;
use crate::variables::Snapshot;

/// Declares an enumeration with a number and a name for each value.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$value_doc:meta])* $value:ident = $number:literal $text:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$value_doc])* $value = $number,)*
        }

        impl $name {
            /// All values in the order of their numbers.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$value),*];

            /// The name of the value.
            pub fn name(self) -> &'static str {
                match self { $(Self::$value => $text),* }
            }

            /// The value with this number.
            pub fn from_number(number: u64) -> Option<Self> {
                Self::ALL.into_iter().find(|&value| value as u64 == number)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

numbered! {
    /// A kind of event that can be subscribed to. The numbers are those of the C interface, the
    /// names those of policies, of the command line and of `TIDEGATE_EVENT`.
    ///
    /// These include the six events of the papers' Table 1. Two of them accompany every
    /// acknowledgement, so they are counters among the [variables](crate::Variable): a new ACK in
    /// slow start or in congestion avoidance, and the fourth and later duplicates.
    EventKind {
        /// Table 1, event 1: the retransmission timer expired. The details are the number of
        /// time-outs in a row and the length of the timer.
        Timeout = 0 "timeout",
        /// Table 1, event 3: the congestion window reached the slow-start threshold. It is detected
        /// with the next acknowledgement or the next write.
        Threshold = 1 "threshold",
        /// Table 1, event 4: the third duplicate ACK in a row (RFC 5681; RFC 6675 with selective
        /// acknowledgements), whether or not fast recovery follows.
        ThirdDuplicate = 2 "third-duplicate",
        /// Table 1, event 4, as current kernels decide it: entry into fast recovery. RACK
        /// (RFC 8985) enters before the third duplicate, or after it if segments are only
        /// reordered.
        Recovery = 3 "recovery",
        /// Table 1, event 6: the ACK that ends fast recovery or the repair after a time-out.
        Recovered = 4 "recovered",
        /// The window shrinks without a loss: ECN, or congestion in this host.
        Reduced = 5 "reduced",
        /// The state of the connection changed.
        State = 6 "state",
        /// The limit of the sender changed.
        Phase = 7 "phase",
        /// The socket is closed, and the subscription ends. Every subscriber receives it.
        Ended = 8 "ended",
    }
}

impl EventKind {
    /// The event of the papers' Table 1. The kernel decides on recovery without waiting for the
    /// third duplicate, so its entry into recovery is event 4.
    pub fn in_table_1(self) -> Option<TcpEvent> {
        match self {
            Self::Timeout => Some(TcpEvent::TimedOut),
            Self::Threshold => Some(TcpEvent::ThresholdReached),
            Self::Recovery => Some(TcpEvent::ThirdDuplicate),
            Self::Recovered => Some(TcpEvent::Repaired),
            _ => None,
        }
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

/// The name of no event, variable or group.
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

/// Identifies a subscription within its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Time on `CLOCK_MONOTONIC`, from the kernel. Without the daemon it is the time of detection.
    pub time: Duration,
    /// The subscription that it is for.
    pub subscription: SubscriptionId,
    /// Number within the subscription, from 1. A gap is the number of events dropped for lack of
    /// room.
    pub number: u64,
    /// Kind and details.
    pub what: EventDetails,
    /// The connection at that moment, as far as the subscription may read it.
    pub state: Snapshot,
}

/// A kind of event with its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventDetails {
    /// [`EventKind::Timeout`].
    Timeout {
        /// Time-outs in a row, including this one.
        in_a_row: u32,
        /// Length of the timer with its back-off, before a reduction by a user timeout.
        after: Duration,
    },
    /// [`EventKind::Threshold`].
    Threshold,
    /// [`EventKind::ThirdDuplicate`].
    ThirdDuplicate,
    /// [`EventKind::Recovery`].
    Recovery {
        /// Duplicate ACKs in a row until then. With RACK it may be any number.
        duplicates: u32,
    },
    /// [`EventKind::Recovered`].
    Recovered {
        /// The state that ends.
        from: CaState,
    },
    /// [`EventKind::Reduced`].
    Reduced,
    /// [`EventKind::State`].
    State {
        /// The state before.
        from: TcpState,
        /// The state now.
        to: TcpState,
    },
    /// [`EventKind::Phase`].
    Phase {
        /// The limit before; `None` if it is not known.
        from: Option<Phase>,
        /// The limit now.
        to: Phase,
    },
    /// [`EventKind::Ended`].
    Ended,
}

impl EventDetails {
    /// The kind of the event.
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

    /// The details as two numbers, as in records and in the C interface.
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

    /// The event with these details; `None` if a number has no meaning.
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

impl fmt::Display for EventDetails {
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

numbered! {
    /// The limit of a sender.
    Phase {
        /// The congestion window, and so the path.
        Network = 1 "network-limited",
        /// The application: it does not write enough to fill the window.
        Application = 2 "application-limited",
        /// The send buffer: it is full before the window is.
        SendBuffer = 3 "send-buffer-limited",
        /// The receiver's window.
        Receiver = 4 "receiver-limited",
    }
}

numbered! {
    /// The kernel's congestion state, with the numbers of `linux/tcp.h`.
    CaState {
        /// No loss is suspected.
        Open = 0 "open",
        /// Duplicate or selective ACKs came, too few to act on.
        Disorder = 1 "disorder",
        /// The window shrinks because of ECN or of congestion in this host.
        Reducing = 2 "reducing",
        /// Fast recovery.
        Recovery = 3 "recovery",
        /// Repair after a time-out.
        Loss = 4 "loss",
    }
}

numbered! {
    /// State of a connection (RFC 9293 section 3.3.2), with the kernel's numbers.
    #[expect(missing_docs, reason = "the names are those of RFC 9293")]
    TcpState {
        Established = 1 "ESTABLISHED",
        SynSent = 2 "SYN-SENT",
        SynReceived = 3 "SYN-RECEIVED",
        FinWait1 = 4 "FIN-WAIT-1",
        FinWait2 = 5 "FIN-WAIT-2",
        TimeWait = 6 "TIME-WAIT",
        Closed = 7 "CLOSED",
        CloseWait = 8 "CLOSE-WAIT",
        LastAck = 9 "LAST-ACK",
        Listen = 10 "LISTEN",
        Closing = 11 "CLOSING",
        /// A connection request that has no socket yet.
        NewSynReceived = 12 "SYN-RECEIVED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_inverse() {
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
    fn details_are_inverse() {
        for what in [
            EventDetails::Timeout {
                in_a_row: 3,
                after: Duration::from_millis(800),
            },
            EventDetails::Recovery { duplicates: 2 },
            EventDetails::Recovered {
                from: CaState::Loss,
            },
            EventDetails::State {
                from: TcpState::SynSent,
                to: TcpState::Established,
            },
            EventDetails::Phase {
                from: None,
                to: Phase::SendBuffer,
            },
            EventDetails::Ended,
        ] {
            let (first, second) = what.details();
            assert_eq!(
                EventDetails::from_details(what.kind(), first, second),
                Some(what)
            );
        }
        assert_eq!(EventDetails::from_details(EventKind::State, 99, 1), None);
    }
}
