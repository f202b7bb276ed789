//! An access unit that is being received: which packets belong to it, and where it ends.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::MediaPacket;
use super::markers::Markers;
use crate::units::Time;
use crate::wire::h264::{AccessPoint, Evidence};
use crate::wire::payload::{Role, Slice};

/// Packets of one access unit, or one packet of filler between two.
///
/// The packets of an access unit have consecutive sequence numbers. Limits between access units
/// follow from timestamps and from the units of the packets (ITU-T H.264 section 7.4.1.2.3); the
/// marker is a hint ([`Markers`]).
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties")]
pub(super) struct Unit {
    /// Timestamp of the picture; before a picture arrives, that of the newest packet.
    pub(super) timestamp: u64,
    /// Arrival times of the first and the newest packet.
    pub(super) arrivals: (Time, Time),
    pub(super) packets: BTreeMap<u64, Vec<u8>>,
    pub(super) bytes: u64,
    evidence: Evidence,
    /// Last sequence number, once it is known.
    pub(super) end: Option<u64>,
    /// Time at which all packets were there.
    pub(super) complete: Option<Time>,
    is_filler: bool,
    /// Role of the first packet.
    head: Role,
    /// A packet can only be the first one but for supplemental information.
    begins: bool,
    /// Sequence number of the last packet of the picture so far.
    picture: Option<u64>,
    /// That packet ends within a fragmented unit.
    is_open: bool,
    /// The sender has left out the rest.
    is_cut: bool,
    /// Sequence number of the last packet of the picture with a marker.
    marked: Option<u64>,
}

/// What a packet or an access unit shows of its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) timestamp: u64,
    pub(super) role: Role,
}

impl Unit {
    /// A unit without packets, for packets like this one.
    pub(super) fn new(now: Time, packet: &MediaPacket<'_>, role: Role) -> Self {
        Self {
            timestamp: packet.timestamp,
            arrivals: (now, now),
            packets: BTreeMap::new(),
            bytes: 0,
            evidence: Evidence::default(),
            end: None,
            complete: None,
            is_filler: role.is_filler(),
            head: role,
            begins: false,
            picture: None,
            is_open: false,
            is_cut: false,
            marked: None,
        }
    }

    pub(super) fn first(&self) -> u64 {
        self.packets.keys().next().copied().unwrap_or_default()
    }

    pub(super) fn last(&self) -> u64 {
        self.packets.keys().next_back().copied().unwrap_or_default()
    }

    /// The sequence number after the unit.
    pub(super) fn next(&self) -> u64 {
        self.end.unwrap_or_else(|| self.last()) + 1
    }

    /// Whether, and how, decoding can start here, by the packets so far.
    pub(super) fn access(&self) -> Option<AccessPoint> {
        self.evidence.access()
    }

    /// Whether the picture is correct without any other.
    pub(super) fn is_key(&self) -> bool {
        self.access().is_some_and(AccessPoint::is_immediate)
    }

    pub(super) fn is_filler(&self) -> bool {
        self.is_filler
    }

    pub(super) fn has_picture(&self) -> bool {
        self.picture.is_some()
    }

    pub(super) fn head(&self) -> Head {
        let (seq, timestamp, role) = (self.first(), self.timestamp, self.head);
        Head {
            seq,
            timestamp,
            role,
        }
    }

    /// Whether a packet, or another unit, that begins after the last packet of this unit is a part
    /// of it.
    //= rfc6184-5.1-marker-hint
    pub(super) fn goes_on_with(&self, next: Head) -> bool {
        let follows = next.seq == self.last() + 1;
        let same_time = next.timestamp == self.timestamp;
        match next.role {
            _ if self.is_filler => false,
            role if role.is_filler() => match self.end {
                Some(end) => next.seq == end + 1,
                None => follows,
            },
            // Parameter sets may have the timestamp of the picture before them.
            _ if !self.has_picture() => follows || same_time,
            Role { leads: true, .. } => false,
            Role { slice, .. } => {
                let is_marked = self.end.is_some_and(|end| end + 1 == next.seq);
                same_time && !(is_marked && slice == Some(Slice::First))
            }
        }
    }

    /// Adds a packet; returns its number of bytes, or `None` if it is there already.
    pub(super) fn add(
        &mut self,
        now: Time,
        packet: &MediaPacket<'_>,
        role: Role,
        markers: &mut Markers,
    ) -> Option<usize> {
        let MediaPacket { seq, payload, .. } = *packet;
        let was_first = self.packets.keys().next().copied();
        let Entry::Vacant(place) = self.packets.entry(seq) else {
            return None;
        };
        place.insert(payload.to_vec());
        self.bytes += payload.len() as u64;
        self.arrivals.1 = self.arrivals.1.max(now);
        self.evidence.join(role.evidence);
        self.begins |= role.begins;
        if was_first.is_some_and(|first| seq < first) {
            self.head = role;
        }
        if !self.has_picture() {
            self.timestamp = packet.timestamp;
        }
        self.mark(packet, role, markers);
        Some(payload.len())
    }

    /// Updates the end of the unit for a new packet.
    fn mark(&mut self, packet: &MediaPacket<'_>, role: Role, markers: &mut Markers) {
        let MediaPacket { seq, marker, .. } = *packet;
        if self.is_filler {
            self.end = Some(self.last());
            return;
        }
        if role.is_filler() {
            return self.extend_end();
        }
        if role.slice.is_none() {
            if marker {
                markers.on_marked_lead();
            }
            return;
        }
        let is_marked_before = self.marked.is_some_and(|marked| marked < seq);
        let goes_on = self.picture.is_some_and(|picture| picture > seq);
        if !goes_on {
            (self.picture, self.is_open) = (Some(seq), role.is_open);
        }
        self.marked = self.marked.max(marker.then_some(seq));
        if is_marked_before || marker && goes_on {
            self.contradict(markers);
        } else if marker && markers.are_trusted() {
            self.end = Some(seq);
            self.extend_end();
        }
    }

    /// The picture goes on after a marker.
    fn contradict(&mut self, markers: &mut Markers) {
        markers.on_contradiction();
        (self.end, self.complete) = (None, None);
    }

    /// Filler directly behind the unit belongs to it.
    fn extend_end(&mut self) {
        while let Some(end) = self.end
            && self.packets.contains_key(&(end + 1))
        {
            self.end = Some(end + 1);
        }
    }

    /// Joins the packets of `other`, which follows, to this unit.
    pub(super) fn append(&mut self, other: Self, markers: &mut Markers) {
        if !self.has_picture() {
            self.timestamp = other.timestamp;
        }
        let (is_marked, goes_on) = (self.marked.is_some(), other.has_picture());
        self.arrivals.0 = self.arrivals.0.min(other.arrivals.0);
        self.arrivals.1 = self.arrivals.1.max(other.arrivals.1);
        self.bytes += other.bytes;
        self.evidence.join(other.evidence);
        self.begins |= other.begins;
        if goes_on {
            (self.picture, self.is_open) = (other.picture, other.is_open);
        }
        self.marked = self.marked.max(other.marked);
        self.packets.extend(other.packets);
        if other.is_filler {
            self.extend_end();
        } else {
            self.end = other.end;
        }
        if is_marked && goes_on {
            self.contradict(markers);
        }
    }

    /// Another unit begins directly after the last packet of this one, which therefore ends there,
    /// unless its sender has left out the rest.
    pub(super) fn close(&mut self, markers: &mut Markers) {
        if self.end.is_some() || !self.has_picture() || self.is_open || self.is_cut {
            return;
        }
        if markers.on_end(self.marked == self.picture) {
            self.end = Some(self.last());
        } else {
            self.is_cut = true;
        }
    }

    /// Whether all packets are there. `before` is the first sequence number of the unit, if that is
    /// known from its predecessor. A key frame without parameter sets may begin with its first
    /// slice if `sets_are_apart`.
    pub(super) fn is_whole(&self, before: Option<u64>, sets_are_apart: bool) -> bool {
        let Some(end) = self.end else { return false };
        let first = self.first();
        let is_apart = sets_are_apart && self.head.slice == Some(Slice::First);
        // No lead that may precede these is needed to decode.
        let is_led = self.begins && (self.head.leads || self.head.begins);
        let begins = before == Some(first) || is_led || is_apart || self.is_filler;
        begins && end + 1 - first == self.packets.len() as u64
    }
}
