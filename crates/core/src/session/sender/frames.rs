//! An encoded frame on its way, and its row of the frame table.

use core::time::Duration;

use crate::media::{Codec, Quality};
use crate::trace::DropCause;
use crate::units::{Bytes, Time};
use crate::wire::payload::{self, PacketiseError};
use crate::wire::rtp::RtpHeader;

/// An encoded frame, split into payloads.
#[derive(Debug)]
pub(super) struct OutFrame {
    pub(super) row: SentFrame,
    pub(super) deadline: Option<Time>,
    /// Headers of each packet, in bytes.
    headers: u64,
    /// Concatenated payloads, and the end of each.
    payloads: Vec<u8>,
    ends: Vec<usize>,
    /// The next payload to be sent for the first time.
    next: usize,
    /// Wire bytes not sent yet.
    left: Bytes,
    /// Retransmissions of each payload.
    repairs: Vec<Repairs>,
}

/// Retransmissions of a payload.
#[derive(Clone, Copy, Debug, Default)]
struct Repairs {
    /// Number of them, each with its copies.
    count: u8,
    /// Copies of the last one that are not known to be lost.
    copies: u8,
    /// Time of the last one.
    last: Time,
}

/// Row of the sender's frame table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SentFrame {
    /// Frame number; the first capture is 0.
    pub frame: u64,
    /// RTP timestamp.
    pub timestamp: u32,
    /// Capture time.
    pub captured: Time,
    /// The frame is decodable without references.
    pub key: bool,
    /// The frame was never encoded.
    pub skipped: bool,
    /// Size ordered from the encoder, in bits.
    pub target_bits: u64,
    /// Encoded size, in bits.
    pub bits: u64,
    /// Size on the wire: all packets with headers, or over TCP the bytes on the stream, including
    /// the preceding report. Zero if the frame was never packetised.
    pub wire: Bytes,
    /// Departure time of its last packet.
    pub left: Option<Time>,
    /// Reason why the frame was dropped.
    pub dropped: Option<DropCause>,
    /// Quality relative to the original, as reported by the encoder.
    pub quality: Option<Quality>,
}

impl OutFrame {
    /// # Errors
    /// If the access unit is invalid.
    pub(super) fn new(
        codec: Codec,
        access_unit: &[u8],
        row: SentFrame,
        deadline: Option<Time>,
        (headers, max_payload): (u64, usize),
    ) -> Result<Self, PacketiseError> {
        let mut payloads = Vec::with_capacity(access_unit.len() + 64);
        let mut ends = Vec::with_capacity(access_unit.len() / max_payload + 2);
        payload::packetise(codec, access_unit, max_payload, |payload, _| {
            payload.emit(&mut payloads);
            ends.push(payloads.len());
        })?;
        let wire = Bytes(payloads.len() as u64 + ends.len() as u64 * headers);
        Ok(Self {
            row: SentFrame { wire, ..row },
            deadline,
            headers,
            left: wire,
            repairs: vec![Repairs::default(); ends.len()],
            payloads,
            ends,
            next: 0,
        })
    }

    pub(super) fn is_last(&self, index: u32) -> bool {
        index as usize + 1 == self.ends.len()
    }

    pub(super) fn next_is_last(&self) -> bool {
        self.is_last(self.next as u32)
    }

    pub(super) fn left(&self) -> Bytes {
        self.left
    }

    /// Payload `index`; empty if it does not exist.
    pub(super) fn payload(&self, index: u32) -> &[u8] {
        let index = index as usize;
        let start = index
            .checked_sub(1)
            .map_or(Some(0), |i| self.ends.get(i).copied());
        let end = self.ends.get(index).copied();
        start
            .zip(end)
            .and_then(|(start, end)| self.payloads.get(start..end))
            .unwrap_or_default()
    }

    /// Appends the next payload to `out`; returns its index.
    pub(super) fn take_next(&mut self, out: &mut Vec<u8>) -> Option<u32> {
        let index = self.next as u32;
        let payload = self.payload(index);
        if payload.is_empty() {
            return None;
        }
        out.extend_from_slice(payload);
        self.left -= self.size_of(index);
        self.next += 1;
        Some(index)
    }

    /// Whether `index` may be retransmitted: the last time was at least `pause` ago, and there were
    /// fewer than [`MAX_REPAIRS`].
    pub(super) fn may_repair(&self, index: u32, now: Time, pause: Duration) -> bool {
        let repairs = self.repairs.get(index as usize);
        repairs.is_some_and(|repairs| {
            let is_over = now.since(repairs.last) >= pause;
            repairs.count == 0 || repairs.count < MAX_REPAIRS && is_over
        })
    }

    /// Records a retransmission of `index` in so many copies.
    pub(super) fn on_repair(&mut self, index: u32, now: Time, copies: u8) {
        if let Some(repairs) = self.repairs.get_mut(index as usize) {
            *repairs = Repairs {
                count: repairs.count + 1,
                copies,
                last: now,
            };
        }
    }

    /// A packet with payload `index` was lost. Returns whether copies of it may still arrive.
    pub(super) fn on_lost(&mut self, index: u32) -> bool {
        let Some(repairs) = self.repairs.get_mut(index as usize) else {
            return false;
        };
        repairs.copies = repairs.copies.saturating_sub(1);
        repairs.copies > 0
    }

    /// Size of payload `index` on the wire.
    pub(super) fn size_of(&self, index: u32) -> Bytes {
        Bytes(self.payload(index).len() as u64 + self.headers)
    }
}

/// IPv4, UDP and RTP headers.
pub(super) const HEADERS: u64 = crate::endpoint::OVERHEAD.get() + RtpHeader::LEN as u64;
/// At 20 % loss, one packet in 60,000 is lost so often.
const MAX_REPAIRS: u8 = 6;
