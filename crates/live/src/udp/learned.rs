//! Peer of a listening socket, learnt from received datagrams.
//!
//! The peer is the source of the first plausible datagram, and remains so under these rules:
//!
//! - A peer is *established* once it has sent media at a minimum rate: RTP packets of one source in
//!   ascending order. Until then, another source that does so replaces it.
//! - The stream of an established peer may go on from another address, if its SSRC and sequence
//!   numbers go on, or those of sender reports, SSRC and timestamp. The address is the new peer after
//!   [`MOVE`] without a packet from the old one, and at once if that has been silent for longer than
//!   its pauses.
//! - An established peer that is silent for [`TAKEOVER`] may be replaced; if it is silent for longer
//!   than its pauses, by a source of the same host that began after it. If it returns, it replaces
//!   its successor immediately.
//! - No more than [`AMPLIFICATION`] times the bytes received from an address are sent to it, so
//!   that a spoofed source address does not turn the socket against its owner.
//!
//! If the endpoint authenticates datagrams, its result replaces the first two rules.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate_core::endpoint::SourceCheck;
use tidegate_core::session::pauses::Pauses;
pub use tidegate_core::session::pauses::TAKEOVER;
use tidegate_core::units::Time;
use tidegate_core::wire::rtcp::{self, Rtcp, SenderInfo};
use tidegate_core::wire::rtp::{RtpHeader, RtpPacket};

use crate::transport::Arrival;

/// Sources from which a socket receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFilter {
    /// Addresses of the host; empty for all hosts.
    pub hosts: Vec<IpAddr>,
    /// UDP port; `None` for all ports.
    pub port: Option<u16>,
}

impl SourceFilter {
    /// Whether `source` passes the filter.
    pub fn accepts(&self, source: SocketAddr) -> bool {
        let ip = source.ip().to_canonical();
        let is_host = self.hosts.iter().any(|host| host.to_canonical() == ip);
        (self.hosts.is_empty() || is_host) && self.port.is_none_or(|port| port == source.port())
    }
}

/// How a listening socket recognises datagrams of its peer.
pub enum Recognition {
    /// By the payload: the function returns whether a sender of the expected stream may have sent
    /// it.
    Payload(Box<Plausible>),
    /// By the endpoint, which authenticates datagrams and reports a [`SourceCheck`].
    Endpoint,
}

impl Recognition {
    /// Every datagram is plausible.
    pub fn any() -> Self {
        Self::payload(|_| true)
    }

    /// By a function of the payload.
    pub fn payload(is_plausible: impl Fn(&[u8]) -> bool + Send + 'static) -> Self {
        Self::Payload(Box::new(is_plausible))
    }
}

type Plausible = dyn Fn(&[u8]) -> bool + Send;

impl fmt::Debug for Recognition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Payload(_) => "Payload",
            Self::Endpoint => "Endpoint",
        })
    }
}

/// State of a listening socket's peer.
#[derive(Debug)]
pub(super) struct Learned {
    recognition: Recognition,
    filter: SourceFilter,
    peer: Option<Source>,
    /// Established peer that was replaced during its silence, and the time of its replacement.
    former: Option<(SocketAddr, Time)>,
    /// Address from which the stream of the peer goes on.
    moved: Option<Source>,
    /// Other sources that send plausible datagrams.
    challengers: Vec<Source>,
    /// Datagrams of the peer from before it was the peer, for the reader.
    replay: VecDeque<Held>,
    /// Source and length of the datagram that the endpoint checks.
    unchecked: Option<(SocketAddr, Time, usize)>,
}

/// Effect of a datagram on the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The datagram is discarded.
    Refused,
    /// The datagram is kept until its source is the peer or refused.
    Held,
    /// The datagram is received.
    Received,
    /// The datagram is received, and its source has replaced another peer.
    Replaced,
}

/// A datagram of a source that is not the peer.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) arrival: Arrival,
    pub(super) payload: Vec<u8>,
}

impl Learned {
    pub(super) fn new(recognition: Recognition, filter: SourceFilter) -> Self {
        Self {
            recognition,
            filter,
            peer: None,
            former: None,
            moved: None,
            challengers: Vec::new(),
            replay: VecDeque::new(),
            unchecked: None,
        }
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.peer.as_ref().map(|peer| peer.address)
    }

    pub(super) fn admit(&mut self, source: SocketAddr, at: Time, payload: &[u8]) -> Admission {
        if !self.filter.accepts(source) {
            return Admission::Refused;
        }
        let Recognition::Payload(is_plausible) = &self.recognition else {
            self.unchecked = Some((source, at, payload.len()));
            return Admission::Received;
        };
        if let Some(peer) = self.peer.as_mut().filter(|peer| peer.address == source) {
            peer.receive(at, payload);
            self.forget_former(at);
            return Admission::Received;
        }
        if !is_plausible(payload) {
            return Admission::Refused;
        }
        let Some(peer) = &self.peer else {
            self.peer = Some(Source::new(source, at, payload));
            return Admission::Received;
        };
        let is_former = self.former.is_some_and(|(former, _)| former == source);
        if peer.is_continued_by(payload, is_former) {
            self.follow(source, at, payload, is_former);
            return Admission::Received;
        }
        if is_former {
            let mut successor = Source::new(source, at, payload);
            successor.is_established = true;
            self.peer = Some(successor);
            self.former = None;
            self.challengers.clear();
            return Admission::Replaced;
        }
        self.challenge(source, at, payload)
    }

    /// The stream of the peer goes on from another address, as after a NAT has chosen another port.
    /// Feedback follows once the old address is silent, or at once to the owner of the stream.
    fn follow(&mut self, source: SocketAddr, at: Time, payload: &[u8], is_former: bool) {
        let Some(peer) = &mut self.peer else { return };
        peer.note(payload);
        let known = self.moved.take().filter(|moved| moved.address == source);
        let mut moved = known.unwrap_or_else(|| Source {
            is_established: true,
            ..Source::empty(source, at)
        });
        let is_first = moved.received == 0;
        moved.receive(at, payload);
        let is_silent = moved.first > peer.last && at.since(peer.last) >= MOVE;
        let is_gone = peer.pauses.is_followed_by(moved.first, at);
        if !is_former && !is_gone && (is_first || !is_silent) {
            self.moved = Some(moved);
            return;
        }
        (moved.streams, moved.pauses) = (peer.streams.clone(), peer.pauses);
        let old = (peer.address, at);
        self.peer = Some(moved);
        self.former = (!is_former).then_some(old);
        self.challengers.clear();
    }

    /// Counts a datagram of a source that is not the peer.
    fn challenge(&mut self, source: SocketAddr, at: Time, payload: &[u8]) -> Admission {
        let Some(peer) = &self.peer else {
            return Admission::Refused;
        };
        let known = self.challengers.iter().position(|c| c.address == source);
        let known = known.map(|index| self.challengers.swap_remove(index));
        let mut challenger = match known {
            Some(mut known) if !known.is_silent(at) => {
                known.receive(at, payload);
                known
            }
            _ => Source::new(source, at, payload),
        };
        let is_same_host = source.ip().to_canonical() == peer.address.ip().to_canonical();
        let is_free = if peer.is_established {
            is_same_host && peer.pauses.is_followed_by(challenger.first, at)
        } else {
            true
        };
        if peer.is_silent(at) || challenger.is_established && is_free {
            self.replay = std::mem::take(&mut challenger.held).into();
            self.replace(challenger);
            return Admission::Replaced;
        }
        // Nothing of a source beside an established peer can be of use later.
        let may_follow = !peer.is_established || challenger.first > peer.last;
        if !may_follow {
            challenger.held.clear();
        }
        if self.challengers.len() == MAX_CHALLENGERS {
            let oldest = self.challengers.iter().map(|c| c.last).min();
            self.challengers.retain(|c| Some(c.last) != oldest);
        }
        self.challengers.push(challenger);
        if may_follow {
            Admission::Held
        } else {
            Admission::Refused
        }
    }

    /// Keeps the last datagram of a challenger.
    pub(super) fn hold(&mut self, arrival: Arrival, payload: &[u8]) {
        let bytes = self.challengers.iter().flat_map(|c| &c.held);
        let bytes: usize = bytes.map(|held| held.payload.len() + HELD_COST).sum();
        if bytes + payload.len() <= MAX_HELD
            && let Some(challenger) = self.challengers.last_mut()
        {
            challenger.held.push(Held {
                arrival,
                payload: payload.to_vec(),
            });
        }
    }

    /// Puts the datagram that has replaced the peer behind the earlier ones of its source.
    pub(super) fn replay_before(&mut self, arrival: Arrival, payload: &[u8]) {
        self.replay.push_back(Held {
            arrival,
            payload: payload.to_vec(),
        });
    }

    /// The next datagram from before its source was the peer.
    pub(super) fn next_replay(&mut self) -> Option<Held> {
        self.replay.pop_front()
    }

    /// Applies the endpoint's check of the last datagram.
    pub(super) fn on_check(&mut self, check: SourceCheck) {
        let Some((source, at, length)) = self.unchecked else {
            return;
        };
        match (&mut self.peer, check) {
            (_, SourceCheck::Unchecked | SourceCheck::Rejected) => {}
            (Some(peer), _) if peer.address == source => peer.count(at, length),
            // A packet of an earlier address of the peer, or one that was recorded and delayed.
            (Some(peer), SourceCheck::Authenticated) if !peer.is_silent(at) => {}
            // Newest: another path of the same peer, e.g. after its NAT has chosen another port.
            (peer, SourceCheck::Authenticated | SourceCheck::Newest | SourceCheck::NewSession) => {
                let mut authentic = Source::new(source, at, &[]);
                authentic.count(at, length);
                *peer = Some(authentic);
            }
        }
    }

    /// Source of the datagram that the endpoint checks, for an answer of `length` bytes.
    pub(super) fn answer_to(&self, length: usize) -> Option<SocketAddr> {
        let (source, _, received) = self.unchecked?;
        (length <= received * AMPLIFICATION).then_some(source)
    }

    /// Destination of a datagram of `length` bytes; `None` if there is no peer, or if its budget is
    /// exhausted.
    pub(super) fn spend(&mut self, length: usize) -> Option<SocketAddr> {
        let peer = self.peer.as_mut()?;
        let length = length as u64;
        let budget = peer.received.saturating_mul(AMPLIFICATION as u64);
        if peer.sent.saturating_add(length) > budget {
            return None;
        }
        peer.sent += length;
        Some(peer.address)
    }

    fn replace(&mut self, source: Source) {
        let at = source.last;
        let old = self.peer.replace(source);
        self.challengers.clear();
        self.former = old
            .filter(|old| old.is_established)
            .map(|old| (old.address, at))
            // An established peer keeps its precedence over all its unproven successors.
            .or(self.former);
    }

    fn forget_former(&mut self, at: Time) {
        let is_settled = self.peer.as_ref().is_some_and(|peer| peer.is_established);
        let is_old = |since| at.since(since) > PRECEDENCE;
        if self
            .former
            .is_some_and(|(_, since)| is_settled && is_old(since))
        {
            self.former = None;
        }
    }
}

/// A source of datagrams.
#[derive(Debug)]
struct Source {
    address: SocketAddr,
    /// Arrival of the first and the last datagram.
    first: Time,
    last: Time,
    pauses: Pauses,
    /// Bytes received from it and sent to it.
    received: u64,
    sent: u64,
    /// Begin of the current interval, datagrams and bytes in it.
    interval: (Time, u32, u64),
    is_established: bool,
    /// Last packets of its RTP streams.
    streams: Vec<RtpHeader>,
    /// Datagrams of a source that may be the next peer.
    held: Vec<Held>,
}

impl Source {
    fn new(address: SocketAddr, at: Time, payload: &[u8]) -> Self {
        let mut source = Self::empty(address, at);
        source.receive(at, payload);
        source
    }

    fn empty(address: SocketAddr, at: Time) -> Self {
        Self {
            address,
            first: at,
            last: at,
            pauses: Pauses::default(),
            received: 0,
            sent: 0,
            interval: (at, 0, 0),
            is_established: false,
            streams: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Counts bytes for the budget of the address.
    fn count(&mut self, at: Time, length: usize) {
        self.last = at;
        self.received = self.received.saturating_add(length as u64);
    }

    fn receive(&mut self, at: Time, payload: &[u8]) {
        self.count(at, payload.len());
        self.pauses.on_packet(at);
        if !self.note(payload) {
            return;
        }
        let (began, ..) = self.interval;
        if at.since(began) > INTERVAL {
            self.interval = (at, 0, 0);
        }
        let (_, datagrams, bytes) = &mut self.interval;
        *datagrams = datagrams.saturating_add(1);
        *bytes = bytes.saturating_add(payload.len() as u64);
        self.is_established |= *datagrams >= ESTABLISHED.0 && *bytes >= ESTABLISHED.1;
    }

    /// Records the sequence number of an RTP packet. Returns whether it is in ascending order.
    fn note(&mut self, payload: &[u8]) -> bool {
        let Some(header) = rtp_header(payload) else {
            return false;
        };
        let ahead = self.ahead(&header);
        self.streams.retain(|last| last.ssrc != header.ssrc);
        if self.streams.len() == MAX_STREAMS {
            self.streams.remove(0);
        }
        self.streams.push(header);
        ahead.is_some_and(|ahead| (1..MAX_GAP).contains(&ahead))
    }

    /// Distance of an RTP packet from the last one of its stream, if that is known.
    fn ahead(&self, header: &RtpHeader) -> Option<i16> {
        let last = self.streams.iter().find(|last| last.ssrc == header.ssrc)?;
        Some(header.sequence.wrapping_sub(last.sequence).cast_signed())
    }

    /// Whether a sender report is about a stream of this source.
    fn is_reported_by(&self, report: &SenderInfo) -> bool {
        self.streams.iter().any(|last| {
            let ahead = report.rtp_timestamp.wrapping_sub(last.timestamp);
            last.ssrc == report.ssrc && ahead.cast_signed().unsigned_abs() < MAX_TICKS
        })
    }

    /// Whether a packet of another address goes on with a stream of this source. An RTP packet from an
    /// earlier address of the source may be older.
    fn is_continued_by(&self, payload: &[u8], is_former: bool) -> bool {
        if let Some(report) = sender_report(payload) {
            return self.is_established && self.is_reported_by(&report);
        }
        let ahead = rtp_header(payload).and_then(|header| self.ahead(&header));
        let oldest = if is_former { -MAX_GAP } else { 0 };
        self.is_established && ahead.is_some_and(|ahead| oldest < ahead && ahead < MAX_GAP)
    }

    fn is_silent(&self, at: Time) -> bool {
        at.since(self.last) > TAKEOVER
    }
}

fn rtp_header(payload: &[u8]) -> Option<RtpHeader> {
    if rtcp::is_rtcp(payload) {
        return None;
    }
    let packet = RtpPacket::new_checked(payload).ok()?;
    Some(packet.header())
}

/// The sender report with which a compound packet begins.
fn sender_report(payload: &[u8]) -> Option<SenderInfo> {
    rtcp::form(payload).ok()?;
    match rtcp::packets(payload).next()?.ok()? {
        Rtcp::SenderReport(report) => Some(report.info()),
        _ => None,
    }
}

/// Silence of a peer after which feedback goes to the address from which its stream goes on: less
/// than the time after which a sender without feedback stops.
const MOVE: Duration = Duration::from_millis(50);
/// Maximum ratio of bytes sent to an address and bytes received from it, as for unvalidated
/// addresses in QUIC (RFC 9000 section 8.1).
pub const AMPLIFICATION: usize = 3;
/// Datagrams and bytes within [`INTERVAL`] that establish a peer: 33 kb/s, far below the lowest
/// rate of a video and far above a few packets that only occupy the socket.
const ESTABLISHED: (u32, u64) = (8, 4_096);
/// RFC 3550 appendix A.1, `MAX_DROPOUT`.
const MAX_GAP: i16 = 3_000;
/// Distance of a sender report from the last packet of its stream: a minute of 90 kHz.
const MAX_TICKS: u32 = 60 * 90_000;
const INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a replaced peer has precedence over an established successor.
const PRECEDENCE: Duration = Duration::from_mins(1);
/// Sources that are counted at the same time.
const MAX_CHALLENGERS: usize = 16;
/// RTP streams of a source: media, retransmissions and parity, and one more.
const MAX_STREAMS: usize = 4;
/// Bytes of held datagrams, and those that each one costs besides its own: two seconds at 4 Mb/s.
const MAX_HELD: usize = 1 << 20;
const HELD_COST: usize = 64;

#[cfg(test)]
mod tests {
    use tidegate_core::control::Ecn;
    use tidegate_core::wire::ntp::Ntp;

    use super::*;

    const OWNER: u16 = 1;
    const STRANGER: u16 = 2;

    /// An RTP packet of 1,000 bytes.
    fn media(sequence: u64, ssrc: u8) -> Vec<u8> {
        let mut packet = vec![0; 1_000];
        (packet[0], packet[1], packet[3], packet[11]) = (0x80, 96, sequence as u8, ssrc);
        packet
    }

    fn address(port: u16) -> SocketAddr {
        ([10, 0, 0, 1], port).into()
    }

    fn learned() -> Learned {
        let plausible = Recognition::payload(|payload| payload != b"junk");
        Learned::new(plausible, SourceFilter::default())
    }

    fn arrival(at: Time) -> Arrival {
        Arrival {
            at,
            ecn: Ecn::NotEct,
            dscp: 0,
            length: 1_000,
            is_new_peer: false,
        }
    }

    /// Ten datagrams of 1,000 bytes in 100 ms.
    fn stream(learned: &mut Learned, port: u16, from: Time) -> Admission {
        let step = |i: u64| from + Duration::from_millis(10 * i);
        let each = (0..10).map(|i| learned.admit(address(port), step(i), &media(i, port as u8)));
        each.last().expect("ten datagrams")
    }

    /// A socket whose owner has sent such streams until 1,490 ms.
    fn owned() -> Learned {
        let mut learned = learned();
        for begin in (0..1_500).step_by(100) {
            stream(&mut learned, OWNER, Time::from_millis(begin));
        }
        learned
    }

    #[test]
    fn an_established_peer_is_replaced_only_after_silence_and_has_precedence_when_it_returns() {
        let mut learned = learned();
        let ms = Time::from_millis;
        assert_eq!(stream(&mut learned, OWNER, ms(0)), Admission::Received);
        assert_eq!(stream(&mut learned, STRANGER, ms(60)), Admission::Refused);
        assert_eq!(
            stream(&mut learned, STRANGER, ms(2_089)),
            Admission::Received,
            "it replaces the silent peer and is received since"
        );
        assert_eq!(learned.address(), Some(address(STRANGER)));
        let back = learned.admit(address(OWNER), ms(2_200), &media(10, 1));
        assert_eq!(back, Admission::Replaced);
        // The stranger was established, but has no precedence over the peer that it replaced.
        assert_eq!(stream(&mut learned, STRANGER, ms(2_201)), Admission::Held);
    }

    /// A sender that restarts behind another port and with another SSRC.
    #[test]
    fn a_successor_of_the_same_host_begins_with_its_first_packet() {
        let (ms, mut learned) = (Time::from_millis, owned());
        let mut admitted = Vec::new();
        for i in 0..40 {
            let (at, packet) = (ms(1_510 + 10 * i), media(i, 9));
            admitted.push(learned.admit(address(7), at, &packet));
            match admitted.last() {
                Some(Admission::Held) => learned.hold(arrival(at), &packet),
                Some(Admission::Replaced) => break,
                other => panic!("{other:?}"),
            }
        }
        // 250 ms after the last packet of the owner, at 1,490 ms.
        assert_eq!(admitted.len(), 25, "{admitted:?}");
        let replayed = std::iter::from_fn(|| learned.next_replay());
        let sequences = replayed.map(|held| u64::from(held.payload[3]));
        assert!(sequences.eq(0..24));
    }

    #[test]
    fn a_source_beside_the_owner_or_of_another_host_waits_longer() {
        let ms = Time::from_millis;
        let elsewhere = SocketAddr::from(([10, 0, 0, 2], 7));
        for (from, begin) in [(address(7), 1_450), (elsewhere, 1_510)] {
            let mut learned = owned();
            for at in (begin..3_490).step_by(10) {
                let admission = learned.admit(from, ms(at), &media(at, 9));
                assert_ne!(admission, Admission::Replaced, "{from} at {at} ms");
            }
            let admission = learned.admit(from, ms(3_500), &media(0, 9));
            assert_eq!(admission, Admission::Replaced, "{from}");
        }
    }

    #[test]
    fn a_stream_that_goes_on_at_another_port_is_received_at_once() {
        let (ms, mut learned) = (Time::from_millis, owned());
        let mut peers = Vec::new();
        for i in 0..6 {
            let admission = learned.admit(address(7), ms(1_500 + 20 * i), &media(10 + i, 1));
            assert_eq!(admission, Admission::Received);
            peers.push(learned.address().map(|peer| peer.port()));
        }
        // 50 ms after the last packet of the old port, at 1,490 ms.
        let (old, new) = (Some(OWNER), Some(7));
        assert_eq!(peers, [old, old, new, new, new, new]);
        // The owner of the stream gets its reports back with one packet.
        let late = learned.admit(address(OWNER), ms(1_630), &media(14, 1));
        assert_eq!(late, Admission::Received);
        assert_eq!(learned.address(), Some(address(OWNER)));
    }

    /// A sender report of the stream of the owner, with this RTP timestamp.
    fn report(ssrc: u8, rtp_timestamp: u32) -> Vec<u8> {
        let mut packet = Vec::new();
        SenderInfo {
            ssrc: ssrc.into(),
            ntp: Ntp::default(),
            rtp_timestamp,
            packets: 0,
            octets: 0,
        }
        .emit(&[], &mut packet);
        packet
    }

    /// A sender that has lost its address probes the path from the next one.
    #[test]
    fn a_sender_report_of_the_stream_moves_the_peer() {
        let (ms, elsewhere) = (Time::from_millis, SocketAddr::from(([10, 9, 0, 2], 7)));
        // Within the usual pauses of the owner, whose last packet came at 1,490 ms, a second one shows
        // that the first was not ahead of others.
        for (times, moved) in [
            (vec![1_500, 1_530], false),
            (vec![1_500, 1_560], true),
            (vec![1_760], true),
        ] {
            let mut learned = owned();
            for at in times {
                let admission = learned.admit(elsewhere, ms(at), &report(1, 90 * at as u32));
                assert_eq!(admission, Admission::Received);
            }
            assert_eq!(learned.address() == Some(elsewhere), moved);
        }
        // Of another stream, or with a timestamp that is far from it.
        for wrong in [report(9, 0), report(1, 1 << 24)] {
            let mut learned = owned();
            let admission = learned.admit(elsewhere, ms(2_000), &wrong);
            assert_eq!(admission, Admission::Held);
            assert_eq!(learned.address(), Some(address(OWNER)));
        }
        // The reports of the owner leave its streams known.
        let mut learned = owned();
        for at in (1_500..8_500).step_by(100) {
            learned.admit(address(OWNER), ms(at), &report(1, 90 * at as u32));
        }
        learned.admit(elsewhere, ms(9_000), &media(10, 1));
        assert_eq!(learned.address(), Some(elsewhere));
    }

    /// An observer that sends copies, or packets ahead of those of the owner.
    #[test]
    fn packets_beside_those_of_the_owner_do_not_move_the_peer() {
        let (ms, mut learned) = (Time::from_millis, owned());
        for i in 0..50 {
            let at = ms(1_500 + 60 * i);
            learned.admit(address(7), at, &media(10 + i, 1));
            let admission = learned.admit(address(OWNER), at, &media(10 + i, 1));
            assert_eq!(admission, Admission::Received);
            assert_eq!(learned.address(), Some(address(OWNER)));
        }
    }

    #[test]
    fn a_few_datagrams_do_not_hold_the_socket_against_a_stream() {
        let mut learned = learned();
        let first = learned.admit(address(STRANGER), Time::ZERO, &[0; 12]);
        assert_eq!(first, Admission::Received);
        let trickle = |learned: &mut Learned, s| {
            learned.admit(address(STRANGER), Time::from_secs(s), &[0; 12]);
        };
        trickle(&mut learned, 1);
        // Packets of unrelated sources do not establish a peer.
        for i in 0..100 {
            let noise = media(i * 7, i as u8);
            let at = Time::from_millis(1_050 + i / 10);
            let result = learned.admit(address(STRANGER + 1), at, &noise);
            assert_eq!(result, Admission::Held);
        }
        let steps = (0..9).map(|i| {
            let at = Time::from_millis(1_100 + i * 10);
            learned.admit(address(OWNER), at, &media(i, 1))
        });
        let steps: Vec<_> = steps.collect();
        assert_eq!(steps.last(), Some(&Admission::Replaced), "{steps:?}");
        trickle(&mut learned, 2);
        assert_eq!(learned.address(), Some(address(OWNER)));
    }

    #[test]
    fn bytes_to_an_address_are_limited_to_three_times_those_from_it() {
        let mut learned = learned();
        assert_eq!(learned.spend(1), None);
        learned.admit(address(STRANGER), Time::ZERO, &[0; 12]);
        assert_eq!(learned.spend(30), Some(address(STRANGER)));
        assert_eq!(learned.spend(7), None);
        assert_eq!(learned.spend(6), Some(address(STRANGER)));
        learned.admit(address(STRANGER), Time::ZERO, &[0; 2]);
        assert_eq!(learned.spend(6), Some(address(STRANGER)));
        assert_eq!(learned.spend(1), None);
    }

    #[test]
    fn a_flood_of_sources_needs_bounded_memory() {
        let mut learned = learned();
        learned.admit(address(1), Time::ZERO, &[0; 12]);
        let large = vec![0; 60_000];
        for port in 2..10_000 {
            let at = Time::from_millis(u64::from(port) / 10);
            assert_eq!(learned.admit(address(port), at, &[0; 12]), Admission::Held);
            learned.hold(arrival(at), &large);
            assert!(learned.challengers.len() <= MAX_CHALLENGERS);
            let held = learned.challengers.iter().flat_map(|c| &c.held);
            assert!(held.map(|held| held.payload.len()).sum::<usize>() <= MAX_HELD);
        }
    }

    #[test]
    fn a_filter_names_hosts_and_a_port() {
        let filter = SourceFilter {
            hosts: vec![IpAddr::from([10, 0, 0, 1])],
            port: Some(7),
        };
        assert!(filter.accepts(address(7)) && !filter.accepts(address(8)));
        assert!(filter.accepts("[::ffff:10.0.0.1]:7".parse().unwrap()));
        assert!(!filter.accepts(([10, 0, 0, 2], 7).into()));
        assert!(SourceFilter::default().accepts(address(9)));
        let mut learned = Learned::new(Recognition::Endpoint, filter);
        assert_eq!(
            learned.admit(address(8), Time::ZERO, b""),
            Admission::Refused
        );
    }

    #[test]
    fn an_endpoint_decides_by_authentication() {
        let mut learned = Learned::new(Recognition::Endpoint, SourceFilter::default());
        let mut check = |port, s, check| {
            learned.admit(address(port), Time::from_secs(s), &[0; 100]);
            assert_eq!(learned.answer_to(301), None);
            assert_eq!(learned.answer_to(300), Some(address(port)));
            learned.on_check(check);
            learned.address().map(|peer| peer.port())
        };
        assert_eq!(check(1, 1, SourceCheck::Rejected), None);
        assert_eq!(check(1, 1, SourceCheck::NewSession), Some(1));
        assert_eq!(check(2, 2, SourceCheck::Rejected), Some(1));
        assert_eq!(check(2, 2, SourceCheck::Authenticated), Some(1));
        assert_eq!(check(2, 2, SourceCheck::NewSession), Some(2));
        assert_eq!(check(3, 4, SourceCheck::Authenticated), Some(2));
        assert_eq!(check(3, 5, SourceCheck::Authenticated), Some(3));
        assert_eq!(check(4, 5, SourceCheck::Newest), Some(4));
    }
}
