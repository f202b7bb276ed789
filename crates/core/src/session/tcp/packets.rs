//! Packetisation of frames and reports for a byte stream.

use core::time::Duration;

use super::sender::TcpSenderConfig;
use crate::media::{Codec, MEDIA_CLOCK};
use crate::units::Time;
use crate::wire::ntp::Ntp;
use crate::wire::rtcp::{self, Cname, SenderInfo};
use crate::wire::rtp::RtpHeader;
use crate::wire::{framing, payload};

/// Builds packets and keeps the sender's packet and octet counts.
#[derive(Debug)]
pub(super) struct Packets {
    codec: Codec,
    ssrc: u32,
    timestamp_base: u32,
    cname: Cname,
    epoch: Ntp,
    /// Maximum RTP packet size.
    largest: usize,
    sequence: u16,
    /// Number of packets; its lower 32 bits are the packet count of sender reports.
    count: u64,
    octets: u32,
    next_report: Time,
}

impl Packets {
    pub(super) fn new(config: &TcpSenderConfig) -> Self {
        Self {
            codec: config.codec,
            ssrc: config.ssrc,
            timestamp_base: config.timestamp_base,
            cname: config.cname.clone(),
            epoch: config.epoch,
            largest: (config.packet_size.get() as usize).clamp(MIN_PACKET, MAX_PACKET),
            sequence: 0,
            count: 0,
            octets: 0,
            next_report: Time::ZERO,
        }
    }

    /// Number of RTP packets.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Appends an access unit. Returns false if it is invalid.
    pub(super) fn frame(&mut self, timestamp: u32, data: &[u8], out: &mut Vec<u8>) -> bool {
        let header = RtpHeader {
            payload_type: payload::payload_type(self.codec),
            sequence: 0,
            timestamp,
            ssrc: self.ssrc,
            marker: false,
        };
        let (mut packets, mut octets) = (0, 0);
        let sequence = &mut self.sequence;
        let cut = payload::packetise(
            self.codec,
            data,
            self.largest - RtpHeader::LEN,
            |payload, marker| {
                //= rfc4571-3-order
                let header = RtpHeader {
                    sequence: *sequence,
                    marker,
                    ..header
                };
                let emitted = framing::emit(out, |out| {
                    header.emit(out);
                    payload.emit(out);
                });
                debug_assert!(emitted.is_ok(), "a payload is shorter than its bound");
                *sequence = sequence.wrapping_add(1);
                packets += 1;
                octets += payload.len() as u32;
            },
        );
        self.count += packets;
        self.octets = self.octets.wrapping_add(octets);
        cut.is_ok()
    }

    /// Appends a sender report if one is due. Frame 0 was captured at `start`.
    pub(super) fn report_when_due(&mut self, now: Time, start: Time, out: &mut Vec<u8>) {
        if now >= self.next_report {
            self.report(now, start, false, out);
            self.next_report = now + REPORT_INTERVAL;
        }
    }

    /// Appends a sender report, followed by a BYE at the end of the stream.
    pub(super) fn report(&self, now: Time, start: Time, bye: bool, out: &mut Vec<u8>) {
        let ticks = now.since(start).as_nanos() * u128::from(MEDIA_CLOCK) / 1_000_000_000;
        let info = SenderInfo {
            ssrc: self.ssrc,
            ntp: self.epoch.at(now),
            rtp_timestamp: self.timestamp_base.wrapping_add(ticks as u32),
            packets: self.count as u32,
            octets: self.octets,
        };
        let emitted = framing::emit(out, |out| {
            info.emit(&[], out);
            rtcp::emit_sdes(self.ssrc, &self.cname, out);
            if bye {
                rtcp::emit_bye(&[self.ssrc], None, out);
            }
        });
        debug_assert!(emitted.is_ok(), "a report has about a hundred bytes");
    }
}

/// Interval between sender reports. RFC 3550 section 6.2 allows one every five seconds, and more at
/// these rates.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// MPEG-2 headers are not fragmented: 261 bytes, plus the headers of RFC 2250 and RTP.
const MIN_PACKET: usize = 300;
const MAX_PACKET: usize = 65_535;
