//! Encoded frames as RTP packets, and the rows of the frame table.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use super::frames::{HEADERS, OutFrame, SentFrame};
use crate::media::{Encoded, FrameOrder, MEDIA_CLOCK};
use crate::session::config::SenderConfig;
use crate::session::history::Content;
use crate::session::jitter_buffer::LATE_REPAIR;
use crate::trace::DropCause;
use crate::units::{Bytes, Time};
use crate::wire::payload;
use crate::wire::rtp::RtpHeader;
use crate::wire::rtx;
use crate::wire::sdp::TRANSPORT_SEQUENCE_ID;

/// Frames in order, those kept for retransmission and then those waiting, and their RTP stream.
#[derive(Debug)]
pub(super) struct Packetiser {
    kept: VecDeque<OutFrame>,
    waiting: VecDeque<OutFrame>,
    backlog: Bytes,
    /// Sequence number of the next packet.
    pub(super) seq: u64,
    timestamp_base: u32,
    config: Arc<SenderConfig>,
    /// Frames that were sent or dropped.
    pub(super) rows: Vec<SentFrame>,
}

/// A media packet that was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) content: Content,
    /// Its frame, with the departure time if this is the last packet.
    pub(super) row: SentFrame,
    /// Begin of the payload in the datagram.
    pub(super) start: usize,
}

impl Packetiser {
    /// The random initial values are those of RFC 3550 section 5.1.
    pub(super) fn new(config: &Arc<SenderConfig>, first: u32, timestamp_base: u32) -> Self {
        Self {
            kept: VecDeque::new(),
            waiting: VecDeque::new(),
            backlog: Bytes::ZERO,
            seq: u64::from(first),
            timestamp_base,
            config: Arc::clone(config),
            rows: Vec::new(),
        }
    }

    /// RTP timestamp of a frame captured at `captured`.
    pub(super) fn timestamp(&self, captured: Time) -> u32 {
        let ticks = u128::from(captured.as_nanos()) * u128::from(MEDIA_CLOCK) / 1_000_000_000;
        self.timestamp_base.wrapping_add(ticks as u32)
    }

    /// Queues a frame of which `budget` was ordered, in packets of at most `packet_size`. `parity` is
    /// the overhead of parity packets.
    /// Returns whether it is queued: the buffer behind the encoder may be full, or the access unit
    /// is invalid, so that no receiver could decode it.
    pub(super) fn push(
        &mut self,
        order: FrameOrder,
        budget: Bytes,
        encoded: &Encoded,
        (packet_size, parity): (Bytes, usize),
    ) -> bool {
        let row = SentFrame {
            target_bits: budget.bits(),
            bits: encoded.data.len() as u64 * 8,
            timestamp: self.timestamp(encoded.captured),
            key: encoded.key,
            quality: encoded.quality,
            ..self.row(order.frame, order.captured)
        };
        let config = &self.config;
        let deadline = config.delay_bound.map(|bound| order.captured + bound);
        // IPv4, UDP and RTP headers of a packet, with the header extension.
        let headers = HEADERS + RtpHeader::ELEMENT_LEN as u64 * u64::from(config.transport_cc);
        let overhead = rtx::OSN.max(parity) as u64;
        let largest = (packet_size.get() - headers - overhead) as usize;
        let codec = payload::codec(config.streams.media_type);
        let frame = OutFrame::new(codec, &encoded.data, row, deadline, (headers, largest));
        let Ok(frame) = frame else {
            return false;
        };
        if config.buffer.is_some_and(|limit| self.backlog > limit) {
            self.log_dropped(frame.row, DropCause::Overflow);
            return false;
        }
        self.backlog += frame.left();
        self.waiting.push_back(frame);
        true
    }

    /// Wire bytes that wait for their first transmission.
    pub(super) fn backlog(&self) -> Bytes {
        self.backlog
    }

    pub(super) fn front(&self) -> Option<&OutFrame> {
        self.waiting.front()
    }

    /// Number of frames kept for retransmission.
    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Whether no frame waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes the next packet of the first waiting frame, with a transport-wide sequence number if
    /// there is one. The frame has left if this is its last packet.
    pub(super) fn write(
        &mut self,
        now: Time,
        transport: Option<u16>,
        buffer: &mut Vec<u8>,
    ) -> Option<Written> {
        let frame = self.waiting.front_mut()?;
        let header = RtpHeader {
            payload_type: self.config.streams.media_type,
            sequence: self.seq as u16,
            timestamp: frame.row.timestamp,
            ssrc: self.config.streams.media_ssrc,
            marker: frame.next_is_last(),
        };
        emit(header, transport, buffer);
        let (start, before) = (buffer.len(), frame.left());
        let fragment = frame.take_next(buffer)?;
        self.backlog -= before - frame.left();
        if header.marker {
            frame.row.left = Some(now);
        }
        let row = frame.row;
        if header.marker {
            self.kept.extend(self.waiting.pop_front());
            if self.kept.len() > MAX_KEPT {
                self.kept.pop_front();
            }
            self.log(row);
        }
        let content = Content {
            frame: row.frame,
            fragment,
            media_seq: self.seq,
        };
        self.seq += 1;
        Some(Written {
            content,
            row,
            start,
        })
    }

    /// Drops the first waiting frame, or the unsent rest of it.
    pub(super) fn drop_front(&mut self, cause: DropCause) {
        if let Some(frame) = self.waiting.pop_front() {
            self.backlog -= frame.left();
            self.log_dropped(frame.row, cause);
        }
    }

    /// Drops all waiting frames.
    pub(super) fn clear(&mut self) {
        while !self.is_empty() {
            self.drop_front(DropCause::Ended);
        }
    }

    /// A frame that was sent at least in part.
    pub(super) fn sent_mut(&mut self, number: u64) -> Option<&mut OutFrame> {
        if let Some(front) = self.waiting.front_mut()
            && front.row.frame == number
        {
            return Some(front);
        }
        let at = self.kept.binary_search_by_key(&number, |f| f.row.frame);
        self.kept.get_mut(at.ok()?)
    }

    /// Removes frames that a retransmission can no longer save.
    pub(super) fn forget(&mut self, now: Time) {
        while let Some(first) = self.kept.front() {
            let until = first.deadline.unwrap_or(first.row.captured + KEEP) + LATE_REPAIR;
            if until >= now {
                return;
            }
            self.kept.pop_front();
        }
    }

    /// A frame was never encoded.
    pub(super) fn log_skipped(&mut self, frame: u64, captured: Time) {
        let row = SentFrame {
            skipped: true,
            ..self.row(frame, captured)
        };
        self.log_dropped(row, DropCause::Skipped);
    }

    fn log_dropped(&mut self, row: SentFrame, cause: DropCause) {
        let dropped = Some(cause);
        self.log(SentFrame { dropped, ..row });
    }

    fn log(&mut self, row: SentFrame) {
        if self.config.log {
            self.rows.push(row);
        }
    }

    /// Row of a frame before its encoding.
    fn row(&self, frame: u64, captured: Time) -> SentFrame {
        SentFrame {
            frame,
            timestamp: self.timestamp(captured),
            captured,
            key: false,
            skipped: false,
            target_bits: 0,
            bits: 0,
            wire: Bytes(0),
            left: None,
            dropped: None,
            quality: None,
        }
    }
}

/// Writes the header, with the transport-wide sequence number if there is one.
pub(super) fn emit(header: RtpHeader, transport: Option<u16>, buffer: &mut Vec<u8>) {
    match transport {
        Some(sequence) => {
            header.emit_with_element(TRANSPORT_SEQUENCE_ID, sequence.to_be_bytes(), buffer);
        }
        None => header.emit(buffer),
    }
}

/// Retention of frames without a delay bound.
const KEEP: Duration = Duration::from_secs(1);
/// Two seconds at 120 frames per second.
const MAX_KEPT: usize = 240;
