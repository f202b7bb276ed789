//! An aggregation point for frames: finds the CP headers of the packets that a bridge or a router
//! forwards.
//!
//! A [`Bridge`] has no device. Its driver passes each frame through [`Bridge::pass`] and transmits
//! it as the result says.

use super::sites::SiteTable;
use super::{AggregateConfig, AggregationPoint, Direction, Packet, SiteId, Verdict};
use crate::control::Context;
use crate::units::Bytes;
use crate::wire::cp::{Cp, LEN};
use crate::wire::udp::{Checksum, Datagram, HEADER, NoDatagram};

/// Passes frames through an [`AggregationPoint`].
#[derive(Debug)]
pub struct Bridge {
    point: AggregationPoint,
    sites: SiteTable,
    counters: BridgeCounters,
}

/// A frame, which [`Bridge::pass`] may change in place. Its length remains.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The frame, from its link header on.
    pub bytes: &'a mut [u8],
    /// Link layer.
    pub medium: Medium,
    /// State of the UDP checksum.
    pub checksum: Checksum,
    /// Payload bytes of each of several datagrams that share the headers of this frame (UDP
    /// segmentation offload); `None` if there is one.
    pub segment: Option<u16>,
}

/// Link layer of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Ethernet, possibly with one or two VLAN tags.
    Ethernet,
    /// IP packets without a link header, such as those of tunnels.
    Ip,
}

/// Treatment of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Transmit it on the other interface.
    Forward,
    /// Transmit it on the other interface, and the contained frame on the interface of its arrival.
    Notify(Vec<u8>),
    /// Drop it.
    Drop,
}

/// Numbers of frames since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BridgeCounters {
    /// All frames.
    pub frames: u64,
    /// UDP datagrams of the sites.
    pub datagrams: u64,
    /// Those of applications that are not allowed.
    pub forbidden: u64,
    /// Fragments of IP packets. They pass unchanged.
    pub fragments: u64,
    /// IP packets with impossible lengths. They pass unchanged.
    pub truncated: u64,
    /// Frames that were dropped.
    pub dropped: u64,
}

impl Bridge {
    /// A bridge between this site and others.
    pub fn new(config: AggregateConfig, sites: SiteTable) -> Self {
        Self {
            point: AggregationPoint::new(config),
            sites,
            counters: BridgeCounters::default(),
        }
    }

    /// Processes a frame.
    pub fn pass(
        &mut self,
        cx: &mut Context<'_>,
        direction: Direction,
        frame: Frame<'_>,
    ) -> Passage {
        let Frame {
            bytes,
            medium,
            checksum,
            segment,
        } = frame;
        self.counters.frames += 1;
        let Some(network) = network_header(medium, bytes) else {
            return Passage::Forward;
        };
        let (link, packet) = bytes.split_at_mut(network);
        let datagram = match Datagram::locate(packet) {
            Ok(datagram) => datagram,
            Err(reason) => {
                self.counters.fragments += u64::from(reason == NoDatagram::Fragment);
                self.counters.truncated += u64::from(reason == NoDatagram::Truncated);
                return Passage::Forward;
            }
        };
        let Some(site) = self.sites.find(direction, &datagram) else {
            return Passage::Forward;
        };
        let hop = Hop {
            site,
            direction,
            checksum,
        };
        let passage = match segment {
            None => self.datagram(cx, hop, &datagram, packet),
            Some(segment) => self.segments(cx, hop, &datagram, packet, segment),
        };
        match passage {
            Verdict::Forward => Passage::Forward,
            Verdict::Notify(header) => {
                Passage::Notify([returned(link), datagram.answer(&header)].concat())
            }
            Verdict::Drop(_) => {
                self.counters.dropped += 1;
                Passage::Drop
            }
        }
    }

    /// The aggregation point, for its timers and its state.
    pub fn point(&self) -> &AggregationPoint {
        &self.point
    }

    /// Runs the timers, as [`AggregationPoint::on_timeout`].
    pub fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.point.on_timeout(cx);
    }

    /// Numbers of frames since the start.
    pub fn counters(&self) -> BridgeCounters {
        self.counters
    }

    fn datagram(
        &mut self,
        cx: &mut Context<'_>,
        hop: Hop,
        datagram: &Datagram,
        packet: &mut [u8],
    ) -> Verdict {
        self.counters.datagrams += 1;
        let payload = &packet[datagram.payload.clone()];
        let (Ok((parsed, _)), Some(before)) = (Cp::parse(payload), payload.first_chunk::<LEN>())
        else {
            return self.point.reject();
        };
        if !self.sites.allows(hop.site, parsed.application) {
            self.counters.forbidden += 1;
            return self.point.stranger();
        }
        let (before, mut header) = (*before, *before);
        let verdict = self.point.forward(
            cx,
            Packet {
                site: hop.site,
                direction: hop.direction,
                size: Bytes((datagram.header + HEADER + payload.len()) as u64),
                ecn: datagram.ecn,
                payload: &mut header,
            },
        );
        if header != before {
            datagram.replace(packet, &header, hop.checksum);
        }
        verdict
    }

    /// Several datagrams in a frame. They cannot be dropped one by one: if the first is dropped, all
    /// are, and later ones always pass.
    fn segments(
        &mut self,
        cx: &mut Context<'_>,
        hop: Hop,
        whole: &Datagram,
        packet: &mut [u8],
        segment: u16,
    ) -> Verdict {
        let mut verdict = Verdict::Forward;
        let starts = whole.payload.clone().step_by(usize::from(segment).max(1));
        for (number, start) in starts.take(MAX_SEGMENTS).enumerate() {
            let end = (start + usize::from(segment)).min(whole.payload.end);
            let part = Datagram {
                payload: start..end,
                ..whole.clone()
            };
            // The checksum of each segment is computed when it is cut off.
            let hop = Hop {
                checksum: Checksum::Partial,
                ..hop
            };
            let result = self.datagram(cx, hop, &part, packet);
            match (number, result) {
                (0, Verdict::Drop(_)) => return result,
                (_, Verdict::Notify(_)) => verdict = result,
                _ => {}
            }
        }
        verdict
    }
}

/// The frame that notifies the source of a UDP datagram, whose frame begins with `head`. `None` if
/// that is too short.
pub fn notification(medium: Medium, head: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
    let network = network_header(medium, head)?;
    // The rest does not matter, but lengths in the headers include it.
    let mut packet = head[network..].to_vec();
    packet.resize(packet.len().max(LONGEST_PACKET), 0);
    let datagram = Datagram::locate(&packet).ok()?;
    Some([returned(&head[..network]), datagram.answer(payload)].concat())
}

/// Way of a datagram through the bridge.
#[derive(Clone, Copy, Debug)]
struct Hop {
    site: SiteId,
    direction: Direction,
    checksum: Checksum,
}

/// Position of the IP header of a frame; `None` if it has none.
fn network_header(medium: Medium, bytes: &[u8]) -> Option<usize> {
    if medium == Medium::Ip {
        return Some(0);
    }
    let mut at = ETHERNET_TYPE;
    for _ in 0..=MAX_TAGS {
        match bytes.get(at..)?.first_chunk()? {
            &IPV4 | &IPV6 => return Some(at + 2),
            &VLAN | &SERVICE_VLAN => at += TAG,
            _ => return None,
        }
    }
    None
}

/// The link header of a frame in the opposite direction.
fn returned(link: &[u8]) -> Vec<u8> {
    let mut link = link.to_vec();
    if link.len() > ETHERNET_TYPE {
        link[..ETHERNET_TYPE].rotate_left(ETHERNET_TYPE / 2);
    }
    link
}

/// Of IPv6 without jumbograms.
const LONGEST_PACKET: usize = 40 + 65_535;
const ETHERNET_TYPE: usize = 12;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const VLAN: [u8; 2] = [0x81, 0x00];
const SERVICE_VLAN: [u8; 2] = [0x88, 0xa8];
/// Length of a VLAN tag.
const TAG: usize = 4;
const MAX_TAGS: usize = 2;
/// As in the kernel: `UDP_MAX_SEGMENTS`.
const MAX_SEGMENTS: usize = 128;

#[cfg(test)]
mod tests;
