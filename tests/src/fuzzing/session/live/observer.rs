//! An observer of a stream: replays, delays, alters and forges its packets.

use core::time::Duration;
use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng as _;

use crate::fuzzing::session::{MEDIA, PEER, REPAIR, Story};
use tidegate_core::units::Time;
use tidegate_core::wire::ntp::NtpShort;
use tidegate_core::wire::rtcp::{self, ReportBlock};
use tidegate_core::wire::twcc::{Ticks, emit_twcc};

/// Some time with one kind of hostile packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    kind: Kind,
    /// Strength: a size, a distance, a delay.
    by: u8,
    /// Share of the packets to the sender, in 256ths.
    to_sender: u8,
    pub(super) span: Duration,
    pub(super) gap: Duration,
}

/// Kinds of hostile packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One of the others, drawn for each packet.
    Any,
    /// A packet from before, unchanged.
    Replay,
    /// Some bytes changed.
    Bytes,
    /// One bit changed.
    Bit,
    /// Cut, or with more bytes at the end.
    Length,
    /// Reports with another time, by a constant or a random step.
    ReportStep,
    ReportTime,
    /// Reports with other arrival times, losses and marks.
    Arrivals,
    /// Reports of another receiver.
    Reporter,
    /// Report blocks with losses, other numbers, and other delays.
    Blocks,
    /// Transport-wide feedback.
    Transport,
    /// Media with other numbers, times and sources.
    Sequence,
    Timestamp,
    Source,
    Goodbye,
    Requests,
}

impl Phase {
    /// Three bytes: kind, strength, and rate with direction and span.
    pub(super) fn new(story: &mut Story<'_>) -> Self {
        let kind = KINDS[usize::from(story.byte()) % KINDS.len()];
        let by = story.byte();
        let shape = story.byte();
        Self {
            kind,
            by,
            to_sender: [128, 255, 0, 200][usize::from(shape & 3)],
            // The rate of the observer, or some packets among those of the stream.
            gap: [RATE, RATE, RATE * 8, RATE * 64][usize::from(shape >> 2 & 3)],
            span: Duration::from_millis(100 + 250 * u64::from(shape >> 4)),
        }
    }
}

/// Records packets, and makes others of them.
pub(super) struct Observer {
    rng: Pcg64Mcg,
    /// Packets to the receiver, and to the sender: the latest, and one of sixteen of all.
    latest: [VecDeque<Vec<u8>>; 2],
    early: [Vec<Vec<u8>>; 2],
    seen: u64,
    pub(super) injected: u64,
}

impl Observer {
    pub(super) fn new(rng: Pcg64Mcg) -> Self {
        Self {
            rng,
            latest: Default::default(),
            early: Default::default(),
            seen: 0,
            injected: 0,
        }
    }

    /// A packet of the stream leaves.
    pub(super) fn see(&mut self, is_to_sender: bool, packet: &[u8]) {
        let way = usize::from(is_to_sender);
        self.seen += 1;
        if self.seen.is_multiple_of(16) && self.early[way].len() < MAX_EARLY {
            self.early[way].push(packet.to_vec());
        }
        if self.latest[way].len() == MAX_LATEST {
            self.latest[way].pop_front();
        }
        self.latest[way].push_back(packet.to_vec());
    }

    /// The next hostile packet, and whether it goes to the sender.
    pub(super) fn forge(&mut self, now: Time, phase: &Phase) -> Option<(bool, Vec<u8>)> {
        let kind = match phase.kind {
            Kind::Any => KINDS[1 + self.below(KINDS.len() as u32 - 1) as usize],
            kind => kind,
        };
        let is_to_sender = match kind {
            Kind::ReportStep
            | Kind::ReportTime
            | Kind::Arrivals
            | Kind::Reporter
            | Kind::Blocks
            | Kind::Transport
            | Kind::Requests => true,
            Kind::Sequence | Kind::Timestamp | Kind::Source => false,
            _ => self.below(256) < u32::from(phase.to_sender),
        };
        let packet = self.make(now, kind, phase.by, is_to_sender)?;
        self.injected += 1;
        Some((is_to_sender, packet))
    }

    fn make(&mut self, now: Time, kind: Kind, by: u8, is_to_sender: bool) -> Option<Vec<u8>> {
        match kind {
            Kind::Goodbye => {
                let mut out = Vec::new();
                let ssrcs: &[u32] = if is_to_sender {
                    &[PEER]
                } else {
                    &[MEDIA, REPAIR]
                };
                rtcp::emit_receiver_report(ssrcs[0], &[], &mut out);
                rtcp::emit_bye(ssrcs, None, &mut out);
                return Some(out);
            }
            Kind::Transport => return self.transport(now),
            _ => {}
        }
        let mut packet = self.pick(is_to_sender, kind == Kind::Replay, by)?;
        match kind {
            Kind::Bytes => {
                for _ in 0..=self.below(4) {
                    let at = self.place(&packet);
                    packet[at] = self.below(256) as u8;
                }
            }
            Kind::Bit => {
                let at = self.place(&packet);
                packet[at] ^= 1 << self.below(8);
            }
            Kind::Length => {
                let length = self.below(2 * packet.len() as u32 + 1) as usize;
                packet.resize(length, by);
            }
            Kind::Sequence => self.change_media(&mut packet, 2, u64::from(by) << 7),
            Kind::Timestamp => self.change_media(&mut packet, 4, u64::from(by) << 20),
            Kind::Source => self.change_media(&mut packet, 8, 1 + u64::from(by)),
            Kind::Requests => {
                let first = self.below(1 << 16) as u16;
                let newest = self.newest_sequence().unwrap_or(first);
                let lost = (0..64).map(|back| newest.wrapping_sub(back));
                rtcp::emit_nack(PEER, MEDIA, lost, &mut packet);
                let (sender, media) = (PEER, MEDIA);
                rtcp::Pli { sender, media }.emit(&mut packet);
            }
            Kind::Blocks => return Some(self.blocks(&packet)),
            Kind::ReportStep | Kind::ReportTime | Kind::Arrivals | Kind::Reporter => {
                self.change_report(&mut packet, kind, by)?;
            }
            _ => {}
        }
        Some(packet)
    }

    /// A packet to alter: mostly one of the newest.
    fn pick(&mut self, is_to_sender: bool, is_any: bool, by: u8) -> Option<Vec<u8>> {
        let way = usize::from(is_to_sender);
        if is_any && by & 1 == 1 && !self.early[way].is_empty() {
            let index = self.below(self.early[way].len() as u32) as usize;
            return self.early[way].get(index).cloned();
        }
        let known = self.latest[way].len() as u32;
        let span = if is_any { known } else { known.min(4) };
        let back = self.below(span.max(1)) + 1;
        let index = known.checked_sub(back)?;
        self.latest[way].get(index as usize).cloned()
    }

    /// Adds to a field of a media packet: two or four bytes in big-endian order.
    fn change_media(&mut self, packet: &mut [u8], at: usize, most: u64) {
        if rtcp::is_rtcp(packet) {
            return;
        }
        let add = 1 + self.below(most.max(1) as u32);
        if let Some(&[a, b, c, d]) = packet.get(at..at + 4) {
            let value = u32::from_be_bytes([a, b, c, d]);
            let value = match at {
                2 => value.wrapping_add(add << 16 & 0xffff_0000),
                _ => value.wrapping_add(add),
            };
            packet[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Alters the congestion control feedback in a compound packet, if there is one.
    fn change_report(&mut self, packet: &mut [u8], kind: Kind, by: u8) -> Option<()> {
        let (start, end) = feedback(packet)?;
        let report = &mut packet[start..end];
        let stamp = report.len() - 4;
        match kind {
            Kind::ReportStep => {
                // Up to 1.27 s, ahead or behind.
                let step = (i64::from(by) - 128) * 655;
                add(report, stamp, step as u32);
            }
            Kind::ReportTime => {
                let step = self.below(1 << (9 + by % 16));
                add(
                    report,
                    stamp,
                    if by & 128 == 0 {
                        step
                    } else {
                        step.wrapping_neg()
                    },
                );
            }
            Kind::Reporter => add(report, 4, 1 + u32::from(by & 3)),
            _ => {
                // The reports of the first block, after its header.
                let first = 16;
                for at in (first..stamp).step_by(2) {
                    if self.below(256) < u32::from(by) {
                        let bits = self.below(1 << 16) as u16;
                        let bits = if by & 1 == 1 { bits & 0x7fff } else { bits };
                        report[at..at + 2].copy_from_slice(&bits.to_be_bytes());
                    }
                }
            }
        }
        Some(())
    }

    /// A receiver report with other numbers.
    fn blocks(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let known = rtcp::packets(packet).flatten().find_map(|p| match p {
            rtcp::Rtcp::ReceiverReport(report) => report.reports().next(),
            _ => None,
        });
        let known = known.unwrap_or(ReportBlock {
            ssrc: MEDIA,
            highest_sequence: u32::from(self.newest_sequence().unwrap_or(0)),
            ..ReportBlock::default()
        });
        let block = ReportBlock {
            ssrc: MEDIA,
            fraction_lost: self.below(256) as u8,
            cumulative_lost: self.below(1 << 20) as i32,
            highest_sequence: known.highest_sequence.wrapping_add(self.below(64)),
            delay_since_last_sr: NtpShort(self.below(1 << 18)),
            ..known
        };
        rtcp::emit_receiver_report(PEER, &[block], &mut out);
        out
    }

    /// Transport-wide feedback, which the stream does not have.
    fn transport(&mut self, now: Time) -> Option<Vec<u8>> {
        let newest = self.newest_sequence()?;
        let ticks = (now.as_nanos() / Ticks::NANOS) as i64;
        let reports: Vec<_> = (0..20)
            .map(|n| (self.below(4) > 0).then_some(Ticks(ticks + n)))
            .collect();
        let mut out = Vec::new();
        let count = self.below(256) as u8;
        let first = newest.wrapping_sub(20);
        emit_twcc((PEER, MEDIA), (first, count), &reports, &mut out).ok()?;
        Some(out)
    }

    /// Newest sequence number of the media.
    fn newest_sequence(&self) -> Option<u16> {
        let mut media = self.latest[0].iter().rev();
        let newest = media.find(|packet| !rtcp::is_rtcp(packet) && packet.len() > 12)?;
        Some(u16::from_be_bytes([newest[2], newest[3]]))
    }

    /// A byte of the headers in half of the cases, of the whole packet in the others.
    fn place(&mut self, packet: &[u8]) -> usize {
        let length = packet.len() as u32;
        let span = if self.below(2) == 0 {
            length.min(24)
        } else {
            length
        };
        self.below(span.max(1)) as usize
    }

    fn below(&mut self, end: u32) -> u32 {
        self.rng.next_u32() % end.max(1)
    }
}

/// Begin and end of the congestion control feedback (RFC 8888) in a compound packet.
fn feedback(packet: &[u8]) -> Option<(usize, usize)> {
    let mut start = 0;
    loop {
        let header = packet.get(start..start + 4)?;
        let length = 4 * (1 + usize::from(u16::from_be_bytes([header[2], header[3]])));
        let end = start + length;
        if header[0] & 31 == 11 && header[1] == 205 && end <= packet.len() && length >= 20 {
            return Some((start, end));
        }
        start = end;
    }
}

/// Adds to four bytes in big-endian order.
fn add(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(&[a, b, c, d]) = bytes.get(at..at + 4) {
        let sum = u32::from_be_bytes([a, b, c, d]).wrapping_add(value);
        bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    }
}

const KINDS: [Kind; 16] = [
    Kind::Any,
    Kind::Replay,
    Kind::Bytes,
    Kind::Bit,
    Kind::Length,
    Kind::ReportStep,
    Kind::ReportTime,
    Kind::Arrivals,
    Kind::Reporter,
    Kind::Blocks,
    Kind::Transport,
    Kind::Sequence,
    Kind::Timestamp,
    Kind::Source,
    Kind::Goodbye,
    Kind::Requests,
];
/// 1,300 packets per second.
const RATE: Duration = Duration::from_micros(769);
const MAX_LATEST: usize = 256;
const MAX_EARLY: usize = 512;
