//! Peer of a listening socket, learnt from received datagrams.
//!
//! The peer is the source of the first plausible datagram, and remains so under these rules:
//!
//! - A peer is *established* once it has sent media at a minimum rate: RTP packets of one source in
//!   ascending order. Until then, another source that does so replaces it.
//! - An established peer that is silent for [`TAKEOVER`] may be replaced. If it returns, it
//!   replaces its successor immediately.
//! - No more than [`AMPLIFICATION`] times the bytes received from an address are sent to it, so
//!   that a spoofed source address does not turn the socket against its owner.
//!
//! If the endpoint authenticates datagrams, its result replaces the first two rules.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate_core::endpoint::SourceCheck;
use tidegate_core::units::Time;
use tidegate_core::wire::rtp::RtpPacket;

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
    /// Sources that send plausible datagrams while the peer is not established.
    challengers: Vec<Source>,
    /// Source and length of the datagram that the endpoint checks.
    unchecked: Option<(SocketAddr, Time, usize)>,
}

/// Effect of a datagram on the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The datagram is discarded.
    Refused,
    /// The datagram is received.
    Received,
    /// The datagram is received, and its source has replaced another peer.
    Replaced,
}

impl Learned {
    pub(super) fn new(recognition: Recognition, filter: SourceFilter) -> Self {
        Self {
            recognition,
            filter,
            peer: None,
            former: None,
            challengers: Vec::new(),
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
        let mut successor = Source::new(source, at, payload);
        if self.former.is_some_and(|(former, _)| former == source) {
            successor.is_established = true;
            self.peer = Some(successor);
            self.former = None;
            self.challengers.clear();
            return Admission::Replaced;
        }
        if peer.is_silent(at) {
            self.replace(successor);
            return Admission::Replaced;
        }
        if peer.is_established {
            return Admission::Refused;
        }
        self.challenge(source, at, payload)
    }

    /// Counts a datagram of a source that is not the peer.
    fn challenge(&mut self, source: SocketAddr, at: Time, payload: &[u8]) -> Admission {
        let known = self.challengers.iter().position(|c| c.address == source);
        let Some(index) = known else {
            if self.challengers.len() == MOST_CHALLENGERS {
                let oldest = self.challengers.iter().map(|c| c.last).min();
                self.challengers.retain(|c| Some(c.last) != oldest);
            }
            self.challengers.push(Source::new(source, at, payload));
            return Admission::Refused;
        };
        self.challengers[index].receive(at, payload);
        if !self.challengers[index].is_established {
            return Admission::Refused;
        }
        let winner = self.challengers.swap_remove(index);
        self.replace(winner);
        Admission::Replaced
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
    last: Time,
    /// Bytes received from it and sent to it.
    received: u64,
    sent: u64,
    /// Begin of the current interval, datagrams and bytes in it.
    interval: (Time, u32, u64),
    is_established: bool,
    /// SSRC and sequence number of its last RTP packet.
    rtp: Option<(u32, u16)>,
}

impl Source {
    fn new(address: SocketAddr, at: Time, payload: &[u8]) -> Self {
        let mut source = Self {
            address,
            last: at,
            received: 0,
            sent: 0,
            interval: (at, 0, 0),
            is_established: false,
            rtp: None,
        };
        source.receive(at, payload);
        source
    }

    /// Counts bytes for the budget of the address.
    fn count(&mut self, at: Time, length: usize) {
        self.last = at;
        self.received = self.received.saturating_add(length as u64);
    }

    fn receive(&mut self, at: Time, payload: &[u8]) {
        self.count(at, payload.len());
        let Ok(packet) = RtpPacket::new_checked(payload) else {
            return;
        };
        let header = packet.header();
        let last = self.rtp.replace((header.ssrc, header.sequence));
        let follows = last.is_some_and(|(ssrc, sequence)| {
            ssrc == header.ssrc && (1..MAX_GAP).contains(&header.sequence.wrapping_sub(sequence))
        });
        if !follows {
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

    fn is_silent(&self, at: Time) -> bool {
        at.since(self.last) > TAKEOVER
    }
}

/// Silence of a peer after which another one may replace it. Equal to the time after which the
/// receiver of a session accepts another SSRC.
pub const TAKEOVER: Duration = Duration::from_secs(2);
/// Maximum ratio of bytes sent to an address and bytes received from it, as for unvalidated
/// addresses in QUIC (RFC 9000 section 8.1).
pub const AMPLIFICATION: usize = 3;
/// Datagrams and bytes within [`INTERVAL`] that establish a peer: 33 kb/s, far below the lowest
/// rate of a video and far above a few packets that only occupy the socket.
const ESTABLISHED: (u32, u64) = (8, 4_096);
/// RFC 3550 appendix A.1, `MAX_DROPOUT`.
const MAX_GAP: u16 = 3_000;
const INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a replaced peer has precedence over an established successor.
const PRECEDENCE: Duration = Duration::from_mins(1);
/// Sources that are counted at the same time.
const MOST_CHALLENGERS: usize = 16;

#[cfg(test)]
mod tests {
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

    /// Ten datagrams of 1,000 bytes in 100 ms.
    fn stream(learned: &mut Learned, port: u16, from: Time) -> Admission {
        let step = |i: u64| from + Duration::from_millis(10 * i);
        let each = (0..10).map(|i| learned.admit(address(port), step(i), &media(i, port as u8)));
        each.last().expect("ten datagrams")
    }

    #[test]
    fn an_established_peer_is_replaced_only_after_silence_and_has_precedence_when_it_returns() {
        let mut learned = learned();
        let ms = Time::from_millis;
        assert_eq!(stream(&mut learned, OWNER, ms(0)), Admission::Received);
        assert_eq!(stream(&mut learned, STRANGER, ms(100)), Admission::Refused);
        assert_eq!(
            stream(&mut learned, STRANGER, ms(2_089)),
            Admission::Received,
            "it replaces the silent peer and is received since"
        );
        assert_eq!(learned.address(), Some(address(STRANGER)));
        let back = learned.admit(address(OWNER), ms(2_200), &media(10, 1));
        assert_eq!(back, Admission::Replaced);
        // The stranger was established, but has no precedence over the peer that it replaced.
        assert_eq!(
            stream(&mut learned, STRANGER, ms(2_201)),
            Admission::Refused
        );
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
            assert_eq!(result, Admission::Refused);
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
        for port in 2..10_000 {
            let at = Time::from_millis(u64::from(port) / 10);
            assert_eq!(
                learned.admit(address(port), at, &[0; 12]),
                Admission::Refused
            );
            assert!(learned.challengers.len() <= MOST_CHALLENGERS);
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
