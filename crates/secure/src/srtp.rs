//! SRTP and SRTCP packets: protection by one sender, and its removal by a receiver.
//!
//! A [`Protector`] and an [`Unprotector`] with the same master key form one direction of a session.
//! Several senders may share a key if their SSRCs differ (RFC 3711 section 9.1).

use tidegate_core::wire::rtcp::is_rtcp;
use tidegate_core::wire::sdp::CryptoSuite;
use tidegate_core::wire::seq::nearest16;

use crate::cipher::{Cipher, Position, Protocol, Trailer, tag_len};
use crate::keys::MasterKey;
use crate::replay::ReplayWindow;

/// Bytes that protection adds to an RTP packet.
pub fn rtp_overhead(suite: CryptoSuite) -> usize {
    tag_len(suite, Protocol::Rtp)
}

/// Protects the packets of one sender.
#[derive(Clone, Debug)]
pub struct Protector {
    rtp: Cipher,
    rtcp: Cipher,
    /// Highest index of each SSRC; `None` before its first RTP packet.
    streams: Vec<(u32, Option<u64>)>,
    /// Index of the last SRTCP packet.
    rtcp_index: u32,
}

impl Protector {
    /// With a key that protected no packet before.
    pub fn new(master: &MasterKey) -> Self {
        Self {
            rtp: Cipher::new(master, Protocol::Rtp),
            rtcp: Cipher::new(master, Protocol::Rtcp),
            streams: Vec::new(),
            rtcp_index: 0,
        }
    }

    /// Protects an RTP or RTCP packet in place.
    ///
    /// # Errors
    /// See [`ProtectError`]. The packet must not be sent.
    pub fn protect(&mut self, packet: &mut Vec<u8>) -> Result<(), ProtectError> {
        if is_rtcp(packet) {
            self.protect_rtcp(packet)
        } else {
            self.protect_rtp(packet)
        }
    }

    /// Whether a packet of `ssrc` was protected.
    pub(crate) fn knows(&self, ssrc: u32) -> bool {
        self.streams.iter().any(|(known, _)| *known == ssrc)
    }

    fn protect_rtp(&mut self, packet: &mut Vec<u8>) -> Result<(), ProtectError> {
        let header = RtpHeader::parse(packet).ok_or(ProtectError::Malformed)?;
        let last = stream_mut(&mut self.streams, header.ssrc);
        let last = last.ok_or(ProtectError::TooManyStreams)?;
        // An index that is used twice would reveal both payloads.
        let index = match *last {
            None => u64::from(header.sequence),
            Some(last) => nearest16(last, header.sequence)
                .filter(|&index| index > last)
                .ok_or(ProtectError::IndexUsed)?,
        };
        let at = header.position(index).ok_or(ProtectError::KeyExhausted)?;
        *last = Some(index);
        let trailer = Trailer::Rollover(rollover(index));
        let tag = self.rtp.seal(at, packet, header.length, trailer);
        packet.extend_from_slice(&tag[..self.rtp.tag_len()]);
        Ok(())
    }

    fn protect_rtcp(&mut self, packet: &mut Vec<u8>) -> Result<(), ProtectError> {
        let ssrc = word(packet, 4).ok_or(ProtectError::Malformed)?;
        stream_mut(&mut self.streams, ssrc).ok_or(ProtectError::TooManyStreams)?;
        if self.rtcp_index >= MAX_RTCP_INDEX {
            return Err(ProtectError::KeyExhausted);
        }
        self.rtcp_index += 1;
        let at = Position {
            ssrc,
            index: u64::from(self.rtcp_index),
        };
        let index = (ENCRYPTED | self.rtcp_index).to_be_bytes();
        let tag = self
            .rtcp
            .seal(at, packet, RTCP_CLEAR, Trailer::Index(index));
        let tag = &tag[..self.rtcp.tag_len()];
        match self.rtcp {
            Cipher::Gcm { .. } => {
                packet.extend_from_slice(tag);
                packet.extend_from_slice(&index);
            }
            Cipher::CounterMode { .. } => {
                packet.extend_from_slice(&index);
                packet.extend_from_slice(tag);
            }
        }
        Ok(())
    }
}

/// Order of an authentic packet among those of its SSRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOrder {
    /// Its index is above those of all packets received before.
    Newest,
    /// A later packet was received before.
    Late,
}

/// Verifies and decrypts the packets of the other end.
#[derive(Clone, Debug)]
pub struct Unprotector {
    rtp: Cipher,
    rtcp: Cipher,
    /// The only SSRCs whose packets are considered; empty for any.
    expected: Vec<u32>,
    sources: Vec<(u32, Source)>,
    rtcp_sources: Vec<(u32, ReplayWindow)>,
    /// Roll-over counters are searched for sources that are not known from their first packet on.
    joins_late: bool,
    /// Next roll-over counter to try for an unknown source.
    candidate: u32,
}

/// A source of RTP packets.
#[derive(Clone, Debug, Default)]
struct Source {
    window: ReplayWindow,
    /// Packets since the last authentic one.
    failures: u32,
}

impl Unprotector {
    /// For a key whose first packet is received, as after a handshake.
    pub fn new(master: &MasterKey) -> Self {
        Self {
            rtp: Cipher::new(master, Protocol::Rtp),
            rtcp: Cipher::new(master, Protocol::Rtcp),
            expected: Vec::new(),
            sources: Vec::new(),
            rtcp_sources: Vec::new(),
            joins_late: false,
            candidate: 0,
        }
    }

    /// For a stream that may have begun earlier: up to [`MAX_ROLLOVERS`] times 65,536 packets. If
    /// `expected` contains SSRCs, packets of others are rejected.
    pub fn joining(master: &MasterKey, expected: Vec<u32>) -> Self {
        Self {
            expected,
            joins_late: true,
            ..Self::new(master)
        }
    }

    /// Verifies and decrypts a datagram in place.
    ///
    /// # Errors
    /// See [`UnprotectError`]. The packet is unchanged, and must be discarded.
    pub fn unprotect(&mut self, packet: &mut Vec<u8>) -> Result<PacketOrder, UnprotectError> {
        if is_rtcp(packet) {
            self.unprotect_rtcp(packet)
        } else {
            self.unprotect_rtp(packet)
        }
    }

    /// Whether an authentic packet of `ssrc` was received.
    pub(crate) fn knows(&self, ssrc: u32) -> bool {
        known(&self.sources, ssrc).is_some() || known(&self.rtcp_sources, ssrc).is_some()
    }

    fn unprotect_rtp(&mut self, packet: &mut Vec<u8>) -> Result<PacketOrder, UnprotectError> {
        let header = RtpHeader::parse(packet).ok_or(UnprotectError::Malformed)?;
        let end = packet.len().checked_sub(self.rtp.tag_len());
        let end = end.filter(|&end| end >= header.length);
        let end = end.ok_or(UnprotectError::Malformed)?;
        self.check_source(header.ssrc)?;
        let source = known(&self.sources, header.ssrc);
        let window = source.map(|source| &source.window);
        if window.is_none() && self.sources.len() == MAX_SOURCES {
            return Err(UnprotectError::TooManySources);
        }
        let highest = window.and_then(ReplayWindow::highest);
        let (packet_part, tag) = packet.split_at_mut(end);
        let mut is_replay = false;
        let (rtp, candidates) = (&self.rtp, candidates(highest, header.sequence));
        let searched = self.searched(source, header.sequence);
        let mut tries = candidates.chain(searched);
        let found = tries.find(|&index| {
            if window.is_some_and(|window| !window.is_new(index)) {
                is_replay = true;
                return false;
            }
            let trailer = Trailer::Rollover(rollover(index));
            header
                .position(index)
                .is_some_and(|at| rtp.open(at, packet_part, header.length, trailer, tag))
        });
        let Some(index) = found else {
            self.on_failure(header.ssrc);
            return Err(if is_replay {
                UnprotectError::Replay
            } else {
                UnprotectError::NotAuthentic
            });
        };
        packet.truncate(end);
        if let Some(source) = stream_mut(&mut self.sources, header.ssrc) {
            source.window.insert(index);
            source.failures = 0;
        }
        Ok(PacketOrder::of(index, highest))
    }

    /// Further indices to try for a packet of a receiver that may join late: [`SEARCH`] for an unknown
    /// source, and one above the [`candidates`] for a known one, whose packets may have been lost for
    /// any time. The next packet of the source tries the following ones.
    fn searched(
        &self,
        source: Option<&Source>,
        sequence: u16,
    ) -> impl Iterator<Item = u64> + use<> {
        let highest = source.and_then(|source| source.window.highest());
        let nearest = nearest(highest, sequence);
        let (first, count) = match source {
            _ if !self.joins_late => (0, 0),
            None => (self.candidate, SEARCH),
            Some(source) => (source.failures, 1),
        };
        let above = source.map_or(0, |_| AFTER_LOSS + 1);
        (0..count).map(move |i| {
            let rounds = u64::from(first.wrapping_add(i) % MAX_ROLLOVERS) + above;
            nearest + (rounds << 16)
        })
    }

    fn on_failure(&mut self, ssrc: u32) {
        if known(&self.sources, ssrc).is_none() {
            self.candidate = (self.candidate + SEARCH) % MAX_ROLLOVERS;
        } else if let Some(source) = stream_mut(&mut self.sources, ssrc) {
            source.failures = (source.failures + 1) % MAX_ROLLOVERS;
        }
    }

    fn unprotect_rtcp(&mut self, packet: &mut Vec<u8>) -> Result<PacketOrder, UnprotectError> {
        let tag_len = self.rtcp.tag_len();
        let end = packet.len().checked_sub(tag_len + INDEX);
        let end = end.filter(|&end| end >= RTCP_CLEAR);
        let end = end.ok_or(UnprotectError::Malformed)?;
        let ssrc = word(packet, 4).ok_or(UnprotectError::Malformed)?;
        self.check_source(ssrc)?;
        let (packet_part, trailer) = packet.split_at_mut(end);
        let (index, tag) = match self.rtcp {
            Cipher::Gcm { .. } => {
                let (tag, index) = trailer.split_at(tag_len);
                (index, tag)
            }
            Cipher::CounterMode { .. } => trailer.split_at(INDEX),
        };
        let index: [u8; INDEX] = index.try_into().expect("the length was split off");
        let at = Position {
            ssrc,
            index: u64::from(u32::from_be_bytes(index) & !ENCRYPTED),
        };
        let window = known(&self.rtcp_sources, ssrc);
        if window.is_some_and(|window| !window.is_new(at.index)) {
            return Err(UnprotectError::Replay);
        }
        let (is_new, highest) = (window.is_none(), window.and_then(ReplayWindow::highest));
        let trailer = Trailer::Index(index);
        if !self.rtcp.open(at, packet_part, RTCP_CLEAR, trailer, tag) {
            return Err(UnprotectError::NotAuthentic);
        }
        if is_new && self.rtcp_sources.len() == MAX_SOURCES {
            // Receivers that restart have an SSRC each. A replayed report of a former one is about
            // packets that are no longer known.
            self.rtcp_sources.remove(0);
        }
        packet.truncate(end);
        if let Some(window) = stream_mut(&mut self.rtcp_sources, ssrc) {
            window.insert(at.index);
        }
        Ok(PacketOrder::of(at.index, highest))
    }

    fn check_source(&self, ssrc: u32) -> Result<(), UnprotectError> {
        if self.expected.is_empty() || self.expected.contains(&ssrc) {
            Ok(())
        } else {
            Err(UnprotectError::UnknownSource)
        }
    }
}

impl PacketOrder {
    fn of(index: u64, highest: Option<u64>) -> Self {
        if highest.is_none_or(|highest| index > highest) {
            Self::Newest
        } else {
            Self::Late
        }
    }
}

/// Reason why a packet cannot be protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtectError {
    /// The sequence number was used before with this key.
    #[error("the sequence number was already used with this key")]
    IndexUsed,
    /// The key has protected the maximum number of packets (RFC 3711 section 9.2).
    #[error("the key has protected its maximum number of packets")]
    KeyExhausted,
    /// The packet is neither RTP nor RTCP.
    #[error("the packet is neither RTP nor RTCP")]
    Malformed,
    /// More SSRCs than a session has.
    #[error("the session has too many SSRCs")]
    TooManyStreams,
}

/// Reason why a packet is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnprotectError {
    /// The packet is neither SRTP nor SRTCP.
    #[error("the packet is neither SRTP nor SRTCP")]
    Malformed,
    /// The packet was altered, or protected with another key.
    #[error("the packet was altered or protected with another key")]
    NotAuthentic,
    /// The packet was received before, or is older than the replay window.
    #[error("the packet was received before")]
    Replay,
    /// More SSRCs than a session has.
    #[error("the session has too many SSRCs")]
    TooManySources,
    /// The session does not expect this SSRC.
    #[error("the SSRC is not one of the session")]
    UnknownSource,
}

/// The parts of an RTP header that protection needs.
#[derive(Clone, Copy, Debug)]
struct RtpHeader {
    sequence: u16,
    ssrc: u32,
    /// Length with contributing sources and extension.
    length: usize,
}

impl RtpHeader {
    fn parse(packet: &[u8]) -> Option<Self> {
        let ssrc = word(packet, 8)?;
        if packet[0] >> 6 != 2 {
            return None;
        }
        let mut length = 12 + 4 * usize::from(packet[0] & 0x0f);
        if packet[0] & 0x10 != 0 {
            let words = word(packet, length)? & 0xffff;
            length += 4 + 4 * words as usize;
        }
        (length <= packet.len()).then_some(Self {
            sequence: u16::from_be_bytes([packet[2], packet[3]]),
            ssrc,
            length,
        })
    }

    /// `None` if the index exceeds 48 bits.
    fn position(self, index: u64) -> Option<Position> {
        let ssrc = self.ssrc;
        (index < 1 << 48).then_some(Position { ssrc, index })
    }
}

fn word(packet: &[u8], at: usize) -> Option<u32> {
    let bytes = packet.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

fn rollover(index: u64) -> u32 {
    (index >> 16) as u32
}

/// Possible indices of a packet: the nearest to the highest one received (RFC 3711 section 3.3.1),
/// and the next two, in case more than 2^15 packets, or the first ones before a wrap, were lost.
fn candidates(highest: Option<u64>, sequence: u16) -> impl Iterator<Item = u64> {
    let nearest = nearest(highest, sequence);
    (0..=AFTER_LOSS).map(move |rounds| nearest + (rounds << 16))
}

/// Index of a sequence number that is the nearest to the highest one received.
fn nearest(highest: Option<u64>, sequence: u16) -> u64 {
    let nearest = highest.and_then(|highest| nearest16(highest, sequence));
    nearest.unwrap_or(u64::from(sequence))
}

fn known<T>(sources: &[(u32, T)], ssrc: u32) -> Option<&T> {
    let mut sources = sources.iter();
    sources.find_map(|(known, source)| (*known == ssrc).then_some(source))
}

/// State of a source, which is added if there is room.
fn stream_mut<T: Default>(streams: &mut Vec<(u32, T)>, ssrc: u32) -> Option<&mut T> {
    let known = streams.iter().position(|(known, _)| *known == ssrc);
    let index = match known {
        Some(index) => index,
        None if streams.len() == MAX_SOURCES => return None,
        None => {
            streams.push((ssrc, T::default()));
            streams.len() - 1
        }
    };
    Some(&mut streams[index].1)
}

/// Bytes of an RTCP packet that are not encrypted: header and SSRC.
const RTCP_CLEAR: usize = 8;
/// Length of the SRTCP index in bytes.
const INDEX: usize = 4;
const ENCRYPTED: u32 = 1 << 31;
/// RFC 3711 section 9.2: 2^31 packets per key.
const MAX_RTCP_INDEX: u32 = ENCRYPTED - 1;
/// SSRCs of one key: a sender has four, and senders that restart with the same key add theirs.
const MAX_SOURCES: usize = 32;
/// Roll-over counters above the nearest one that are tried.
const AFTER_LOSS: u64 = 2;
/// Roll-over counters that a receiver which joins late tries, and those that it tries after a loss: 67
/// million packets, or 18 hours at 1,000 packets per second.
pub const MAX_ROLLOVERS: u32 = 1_024;
/// Counters tried per packet of an unknown source, in addition to the first three. This bounds the
/// cost of a forged packet: 11 authentications, or four with the SSRC of a known source.
const SEARCH: u32 = 8;

#[cfg(test)]
pub(crate) mod tests;
