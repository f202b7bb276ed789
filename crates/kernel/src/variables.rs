//! The state of a connection, which accompanies each event and can be read at any time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tidegate_core::units::{Bytes, Rate};

use crate::event::{CaState, TcpState, UnknownName};
use crate::set::set;

macro_rules! variables {
    ($($variant:ident $name:literal $groups:literal $doc:literal)*) => {
        /// A variable of a connection. The numbers are those of the C interface.
        ///
        /// The variables of the papers' probing interface are in the group `paper`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Variable {
            $(#[doc = $doc] $variant,)*
        }

        impl Variable {
            /// All variables in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in policies and on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Its groups.
            fn groups(self) -> &'static str {
                match self { $(Self::$variant => $groups),* }
            }
        }
    };
}

variables! {
    SendWindow "snd_wnd" "paper window" "The receiver's window, in bytes."
    Cwnd "cwnd" "paper window" "Congestion window, in segments."
    Ssthresh "ssthresh" "paper window" "Slow-start threshold, in segments; 2³¹−1 is none."
    Rto "rto" "paper time" "Retransmission time-out, in µs."
    Srtt "srtt" "paper time" "Smoothed round-trip time, in µs."
    RttVar "rttvar" "time" "Its mean deviation, in µs."
    MinRtt "min_rtt" "time" "Least round-trip time of the last minutes, in µs."
    Mss "mss" "paper window" "Largest segment, in bytes of payload."
    SndUna "snd_una" "paper sequence" "Sequence number of the first byte that is not acknowledged."
    SndNxt "snd_nxt" "paper sequence" "Sequence number of the next byte to be sent."
    WriteSeq "write_seq" "sequence" "Sequence number of the next byte that the application writes."
    BytesAcked "bytes_acked" "paper sequence" "Bytes acknowledged; the end that opened counts its SYN."
    BytesSent "bytes_sent" "sequence" "Bytes of payload sent, retransmissions included."
    BytesRetrans "bytes_retrans" "sequence" "Of these, retransmitted."
    PacketsOut "packets_out" "flight" "Segments sent and not acknowledged."
    SackedOut "sacked_out" "flight" "Of these, acknowledged selectively."
    LostOut "lost_out" "flight" "Of these, presumed lost."
    RetransOut "retrans_out" "flight" "Of these, retransmitted and outstanding."
    TotalRetrans "total_retrans" "flight" "Segments retransmitted in total."
    Delivered "delivered" "rate" "Segments delivered in total, also selectively."
    RateDelivered "rate_delivered" "rate" "Segments of the latest sample of the delivery rate."
    RateInterval "rate_interval" "rate" "Time of that sample, in µs."
    RateAppLimited "rate_app_limited" "rate" "1 if the application limited that sample."
    CaState "ca_state" "state" "Congestion state, a number of `CaState`."
    Backoff "backoff" "time" "Doublings of the time-out."
    Retransmits "retransmits" "time" "Time-outs in a row."
    PacingRate "pacing_rate" "rate" "Pacing rate, in bytes per second; all ones is none."
    SendBuffer "sndbuf" "buffer" "Room of the send buffer, in bytes of memory."
    Queued "wmem_queued" "buffer" "Memory in the send buffer, in bytes."
    State "tcp_state" "state" "State of the connection, a number of `TcpState`."
    AcksSlowStart "acks_slow_start" "counters" "Table 1, event 2: new ACKs in slow start, since the first subscription to the socket."
    AcksAvoidance "acks_avoidance" "counters" "Table 1, event 2: new ACKs in congestion avoidance."
    AcksRepair "acks_repair" "counters" "New ACKs in fast recovery or while the window shrinks."
    Duplicates "duplicates" "counters" "Duplicate ACKs (RFC 5681; RFC 6675 where they are selective)."
    FurtherDuplicates "further_duplicates" "counters" "Table 1, event 5: the fourth in a row and later ones."
    PhaseChanges "phase_changes" "counters" "Changes of the limit of the sender."
}

/// Number of variables.
pub(crate) const COUNT: usize = Variable::ALL.len();

set! {
    /// A set of variables.
    VariableSet(u64) of Variable;
}

impl FromStr for VariableSet {
    type Err = UnknownName;

    /// The name of a variable or of a group, or `all`.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        if name == "all" {
            return Ok(Self::ALL);
        }
        let all = Variable::ALL.iter().copied();
        let named = |v: &Variable| v.name() == name || v.groups().split(' ').any(|g| g == name);
        let found: Self = all.filter(named).collect();
        if found.is_empty() {
            let known = format!("all, {}, {}", GROUPS.join(", "), Self::ALL);
            return Err(UnknownName::new("variable or group", name, &known));
        }
        Ok(found)
    }
}

const GROUPS: [&str; 9] = [
    "paper", "window", "time", "sequence", "flight", "rate", "buffer", "state", "counters",
];

/// The variables of a connection at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    known: VariableSet,
    values: [u64; COUNT],
}

impl Snapshot {
    /// Without variables.
    pub fn new() -> Self {
        Self {
            known: VariableSet::NONE,
            values: [0; COUNT],
        }
    }

    pub(crate) fn from_parts(known: VariableSet, values: &[u64; COUNT]) -> Self {
        let values = *values;
        Self { known, values }
    }

    /// The variables that have values.
    pub fn known(&self) -> VariableSet {
        self.known
    }

    /// The value of a variable.
    pub fn get(&self, variable: Variable) -> Option<u64> {
        let known = self.known.contains(variable);
        known.then(|| self.values[variable as usize])
    }

    /// Sets the value of a variable.
    pub fn set(&mut self, variable: Variable, value: u64) {
        self.known = self.known.with(variable);
        self.values[variable as usize] = value;
    }

    /// Removes all other variables.
    #[must_use]
    pub fn only(mut self, kept: VariableSet) -> Self {
        self.known = self.known.and(kept);
        self
    }

    /// Retransmission time-out.
    pub fn rto(&self) -> Option<Duration> {
        self.get(Variable::Rto).map(Duration::from_micros)
    }

    /// Smoothed round-trip time; `None` also before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        let us = self.get(Variable::Srtt).filter(|&us| us > 0);
        us.map(Duration::from_micros)
    }

    /// Least recent round-trip time; `None` also before the first sample.
    pub fn min_rtt(&self) -> Option<Duration> {
        let us = self.get(Variable::MinRtt);
        us.filter(|&us| us != u64::from(u32::MAX))
            .map(Duration::from_micros)
    }

    /// Congestion window, in bytes of payload.
    pub fn cwnd(&self) -> Option<Bytes> {
        Some(Bytes(self.get(Variable::Cwnd)? * self.get(Variable::Mss)?))
    }

    /// Slow-start threshold, in bytes of payload; `None` also while there is none.
    pub fn ssthresh(&self) -> Option<Bytes> {
        let segments = self.get(Variable::Ssthresh)?;
        let set = segments < NO_THRESHOLD;
        set.then_some(Bytes(segments * self.get(Variable::Mss)?))
    }

    /// Bytes sent and not acknowledged.
    pub fn unacknowledged(&self) -> Option<Bytes> {
        let span = self.span(Variable::SndUna, Variable::SndNxt)?;
        Some(Bytes(span))
    }

    /// Bytes written and not sent.
    pub fn unsent(&self) -> Option<Bytes> {
        let span = self.span(Variable::SndNxt, Variable::WriteSeq)?;
        Some(Bytes(span))
    }

    /// The first sequence number: that of the SYN at the end that opened the connection, the one
    /// after it at the other. `None` also if numbers count from zero: without privilege, and in a
    /// state from [`Events::probe`](crate::Events::probe).
    pub fn initial_sequence(&self) -> Option<u32> {
        let acked = self.get(Variable::BytesAcked)? as u32;
        let initial = (self.get(Variable::SndUna)? as u32).wrapping_sub(acked);
        // The kernel chooses 0 once in 2^32 connections.
        (initial != 0).then_some(initial)
    }

    /// The state with sequence numbers that count from zero, as in states from
    /// [`Events::probe`](crate::Events::probe), which makes both comparable. `None` without
    /// `snd_una` or `bytes_acked`.
    #[must_use]
    pub fn from_zero(&self) -> Option<Self> {
        let acked = self.get(Variable::BytesAcked)? as u32;
        let initial = (self.get(Variable::SndUna)? as u32).wrapping_sub(acked);
        let mut state = *self;
        for variable in [Variable::SndUna, Variable::SndNxt, Variable::WriteSeq] {
            if let Some(number) = self.get(variable) {
                let place = (number as u32).wrapping_sub(initial);
                state.set(variable, place.into());
            }
        }
        Some(state)
    }

    /// Latest sample of the delivery rate.
    pub fn delivery_rate(&self) -> Option<Rate> {
        let time = self.get(Variable::RateInterval)?;
        let segments = self.get(Variable::RateDelivered)?;
        let mss = self.get(Variable::Mss)?;
        let bits = u128::from(segments * mss) * 8 * 1_000_000;
        let rate = bits.checked_div(time.into())?;
        Some(Rate::bps(u64::try_from(rate).unwrap_or(u64::MAX)))
    }

    /// Pacing rate; `None` also while there is none.
    pub fn pacing_rate(&self) -> Option<Rate> {
        let rate = self.get(Variable::PacingRate)?;
        Some(Rate::bps(rate.checked_mul(8)?))
    }

    /// Congestion state.
    pub fn ca_state(&self) -> Option<CaState> {
        CaState::from_number(self.get(Variable::CaState)?)
    }

    /// State of the connection.
    pub fn tcp_state(&self) -> Option<TcpState> {
        TcpState::from_number(self.get(Variable::State)?)
    }

    fn span(&self, from: Variable, to: Variable) -> Option<u64> {
        let (from, to) = (self.get(from)? as u32, self.get(to)? as u32);
        // Sequence numbers wrap (RFC 9293 section 3.4).
        Some(to.wrapping_sub(from).into())
    }
}

impl Default for Snapshot {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for variable in self.known.iter() {
            map.entry(&variable.name(), &self.values[variable as usize]);
        }
        map.finish()
    }
}

/// `TCP_INFINITE_SSTHRESH` of `net/tcp.h`.
const NO_THRESHOLD: u64 = 0x7fff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_names_are_unique_and_grouped() {
        for &variable in Variable::ALL {
            let set = VariableSet::NONE.with(variable);
            assert_eq!(variable.name().parse(), Ok(set));
            for group in variable.groups().split(' ') {
                let members: VariableSet = group.parse().unwrap();
                assert!(members.contains(variable));
            }
        }
        assert_eq!("all".parse(), Ok(VariableSet::ALL));
        let error = "cwdn".parse::<VariableSet>().unwrap_err().to_string();
        assert!(
            error.contains("`cwdn`") && error.contains("cwnd"),
            "{error}"
        );
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut state = Snapshot::new();
        state.set(Variable::SndUna, 0xffff_fff0);
        state.set(Variable::SndNxt, 0x10);
        state.set(Variable::WriteSeq, 0x40);
        state.set(Variable::BytesAcked, 0x20);
        assert_eq!(state.unacknowledged(), Some(Bytes(0x20)));
        assert_eq!(state.unsent(), Some(Bytes(0x30)));
        assert_eq!(state.initial_sequence(), Some(0xffff_ffd0));
        let from_zero = state.from_zero().unwrap();
        let numbers = [Variable::SndUna, Variable::SndNxt, Variable::WriteSeq];
        assert_eq!(
            numbers.map(|v| from_zero.get(v)),
            [0x20, 0x40, 0x70].map(Some)
        );
        assert_eq!(from_zero.from_zero(), Some(from_zero));
        state.set(Variable::SndUna, 0x20);
        assert_eq!(state.initial_sequence(), None, "it counts from zero");
    }

    #[test]
    fn unknown_variables_have_no_value() {
        let mut state = Snapshot::new();
        state.set(Variable::Cwnd, 10);
        assert_eq!(state.cwnd(), None);
        assert_eq!(state.from_zero(), None);
        state.set(Variable::Mss, 1_448);
        assert_eq!(state.cwnd(), Some(Bytes(14_480)));
        let rtt = state.only("window".parse().unwrap()).get(Variable::Srtt);
        assert_eq!(rtt, None);
        assert_eq!(state.only(VariableSet::NONE), state.only(VariableSet::NONE));
        assert_eq!(state.only(VariableSet::NONE).get(Variable::Cwnd), None);
    }
}
