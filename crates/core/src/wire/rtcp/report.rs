//! Sender and receiver reports (RFC 3550 section 6.4).

use super::{MAX_COUNT, RECEIVER_REPORT, RtcpError, RtcpPacket, SENDER_REPORT, Writer};
use crate::wire::bytes::{u8_at, u32_at, u64_at};
use crate::wire::ntp::{Ntp, NtpShort};

/// A sender report: sender information and report blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderReport<'a> {
    body: &'a [u8],
    count: u8,
}

impl<'a> SenderReport<'a> {
    /// # Errors
    /// If the body is too short for the sender information and the report blocks.
    pub fn new_checked(packet: RtcpPacket<'a>) -> Result<Self, RtcpError> {
        let count = packet.count();
        let body = packet.body_of(SENDER + BLOCK * usize::from(count))?;
        Ok(Self { body, count })
    }

    /// The sender information.
    pub fn info(&self) -> SenderInfo {
        SenderInfo {
            ssrc: u32_at(self.body, 0),
            ntp: Ntp(u64_at(self.body, 4)),
            rtp_timestamp: u32_at(self.body, 12),
            packets: u32_at(self.body, 16),
            octets: u32_at(self.body, 20),
        }
    }

    /// Report blocks about the sources that the sender receives.
    pub fn reports(&self) -> ReportBlocks<'a> {
        ReportBlocks::new(self.body, SENDER, self.count)
    }
}

/// A receiver report, sent by a participant that sends no media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverReport<'a> {
    body: &'a [u8],
    count: u8,
}

impl<'a> ReceiverReport<'a> {
    /// # Errors
    /// If the body is too short for the report blocks.
    pub fn new_checked(packet: RtcpPacket<'a>) -> Result<Self, RtcpError> {
        let count = packet.count();
        let body = packet.body_of(RECEIVER + BLOCK * usize::from(count))?;
        Ok(Self { body, count })
    }

    /// SSRC of the reporting receiver.
    pub fn sender(&self) -> u32 {
        u32_at(self.body, 0)
    }

    /// Report blocks about the sources that it receives.
    pub fn reports(&self) -> ReportBlocks<'a> {
        ReportBlocks::new(self.body, RECEIVER, self.count)
    }
}

/// The report blocks of a packet, at most 31.
#[derive(Clone, Debug)]
pub struct ReportBlocks<'a> {
    rest: &'a [u8],
}

impl<'a> ReportBlocks<'a> {
    fn new(body: &'a [u8], start: usize, count: u8) -> Self {
        let rest = body.get(start..start + BLOCK * usize::from(count));
        Self {
            rest: rest.unwrap_or_default(),
        }
    }
}

impl Iterator for ReportBlocks<'_> {
    type Item = ReportBlock;

    fn next(&mut self) -> Option<ReportBlock> {
        let (block, rest) = self.rest.split_first_chunk::<BLOCK>()?;
        self.rest = rest;
        // Sign extension of the 24-bit field.
        let lost = (u32_at(block, 4) << 8) as i32 >> 8;
        Some(ReportBlock {
            ssrc: u32_at(block, 0),
            fraction_lost: u8_at(block, 4),
            cumulative_lost: lost,
            highest_sequence: u32_at(block, 8),
            jitter: u32_at(block, 12),
            last_sr: NtpShort(u32_at(block, 16)),
            delay_since_last_sr: NtpShort(u32_at(block, 20)),
        })
    }
}

/// The sender information of a sender report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderInfo {
    /// SSRC of the sender.
    pub ssrc: u32,
    /// Wall-clock time at which the report is sent.
    pub ntp: Ntp,
    /// The same time on the clock of the RTP timestamps.
    pub rtp_timestamp: u32,
    /// RTP packets sent, modulo 2³².
    pub packets: u32,
    /// Payload bytes sent, headers and padding excluded, modulo 2³².
    pub octets: u32,
}

impl SenderInfo {
    /// Appends a sender report. Blocks beyond the 31 that fit follow in receiver reports.
    pub fn emit(&self, reports: &[ReportBlock], out: &mut Vec<u8>) {
        let (own, more) = split(reports);
        let mut writer = Writer::begin(SENDER_REPORT, own.len() as u8, out);
        writer.put_u32(self.ssrc);
        writer.put(&self.ntp.0.to_be_bytes());
        writer.put_u32(self.rtp_timestamp);
        writer.put_u32(self.packets);
        writer.put_u32(self.octets);
        for report in own {
            report.emit(&mut writer);
        }
        writer.finish();
        if !more.is_empty() {
            emit_receiver_report(self.ssrc, more, out);
        }
    }
}

/// Appends receiver reports by `sender`, one per 31 blocks and at least one.
pub fn emit_receiver_report(sender: u32, reports: &[ReportBlock], out: &mut Vec<u8>) {
    let mut rest = reports;
    loop {
        let (own, more) = split(rest);
        let mut writer = Writer::begin(RECEIVER_REPORT, own.len() as u8, out);
        writer.put_u32(sender);
        for report in own {
            report.emit(&mut writer);
        }
        writer.finish();
        if more.is_empty() {
            return;
        }
        rest = more;
    }
}

/// Reception statistics of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportBlock {
    /// SSRC of the source.
    pub ssrc: u32,
    /// Fraction of packets lost since the last report, in 1/256.
    pub fraction_lost: u8,
    /// Packets lost since the beginning; negative if duplicates outnumber losses.
    /// [`SenderInfo::emit`] and [`emit_receiver_report`] clamp it to the 24 bits of the field.
    pub cumulative_lost: i32,
    /// Sequence number cycles and highest sequence number; see
    /// [`super::super::seq::Unwrap16::highest_in_report`].
    pub highest_sequence: u32,
    /// Interarrival jitter, in units of the RTP clock.
    pub jitter: u32,
    /// Middle 32 bits of the NTP timestamp of the last sender report; zero before the first.
    pub last_sr: NtpShort,
    /// Time since the arrival of that report.
    pub delay_since_last_sr: NtpShort,
}

impl ReportBlock {
    fn emit(&self, writer: &mut Writer<'_>) {
        //= rfc3550-6.4.1-cumulative
        let lost = self.cumulative_lost.clamp(-(1 << 23), (1 << 23) - 1) as u32 & 0x00ff_ffff;
        writer.put_u32(self.ssrc);
        writer.put_u32(u32::from(self.fraction_lost) << 24 | lost);
        writer.put_u32(self.highest_sequence);
        writer.put_u32(self.jitter);
        writer.put_u32(self.last_sr.0);
        writer.put_u32(self.delay_since_last_sr.0);
    }
}

fn split(reports: &[ReportBlock]) -> (&[ReportBlock], &[ReportBlock]) {
    //= rfc3550-6.1-more-reports
    reports.split_at(reports.len().min(MAX_COUNT))
}

const SENDER: usize = 24;
const RECEIVER: usize = 4;
const BLOCK: usize = 24;

#[cfg(test)]
pub(super) mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::Fault;
    use super::super::{Rtcp, packets};
    use super::*;

    prop_compose! {
        fn block()(
            ssrc: u32, fraction_lost: u8, cumulative_lost in -(1 << 23)..1 << 23,
            highest_sequence: u32, jitter: u32, last_sr: u32, delay: u32,
        ) -> ReportBlock {
            ReportBlock {
                ssrc, fraction_lost, cumulative_lost, highest_sequence, jitter,
                last_sr: NtpShort(last_sr),
                delay_since_last_sr: NtpShort(delay),
            }
        }
    }

    proptest! {
        #[test]
        fn sender_reports_round_trip(numbers: (u32, u64, u32, u32, u32), blocks in vec(block(), 0..70)) {
            //= rfc3550-6.1-more-reports (test)
            let (ssrc, ntp, rtp_timestamp, packet_count, octets) = numbers;
            let info = SenderInfo { ssrc, ntp: Ntp(ntp), rtp_timestamp, packets: packet_count, octets };
            let mut bytes = Vec::new();
            info.emit(&blocks, &mut bytes);
            let mut found = Vec::new();
            for (i, packet) in packets(&bytes).enumerate() {
                match packet.unwrap() {
                    Rtcp::SenderReport(sr) => {
                        prop_assert_eq!(i, 0);
                        prop_assert_eq!(sr.info(), info);
                        found.extend(sr.reports());
                    }
                    Rtcp::ReceiverReport(rr) => {
                        prop_assert!(i > 0);
                        prop_assert_eq!(rr.sender(), ssrc);
                        found.extend(rr.reports());
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert_eq!(found, blocks);
        }

        #[test]
        fn receiver_reports_round_trip(sender: u32, blocks in vec(block(), 0..70)) {
            let mut bytes = Vec::new();
            emit_receiver_report(sender, &blocks, &mut bytes);
            let mut found = Vec::new();
            for packet in packets(&bytes) {
                let Ok(Rtcp::ReceiverReport(rr)) = packet else { panic!("{packet:?}") };
                prop_assert_eq!(rr.sender(), sender);
                found.extend(rr.reports());
            }
            prop_assert_eq!(found, blocks);
        }
    }

    #[test]
    fn losses_are_clamped_to_24_bits() {
        //= rfc3550-6.4.1-cumulative (test)
        for (lost, clamped) in [(i32::MAX, 0x7f_ffff), (i32::MIN, -0x80_0000), (-1, -1)] {
            let block = ReportBlock {
                ssrc: 1,
                fraction_lost: 255,
                cumulative_lost: lost,
                highest_sequence: 2,
                jitter: 3,
                last_sr: NtpShort(4),
                delay_since_last_sr: NtpShort(5),
            };
            let mut bytes = Vec::new();
            emit_receiver_report(7, &[block], &mut bytes);
            let Some(Ok(Rtcp::ReceiverReport(rr))) = packets(&bytes).next() else {
                panic!()
            };
            let found = rr.reports().next().unwrap();
            assert_eq!((found.cumulative_lost, found.fraction_lost), (clamped, 255));
        }
    }

    #[test]
    fn a_report_shorter_than_its_count_is_rejected() {
        let bytes = [0x81, 201, 0, 1, 0, 0, 0, 1];
        let fault = Fault::TooShort { need: 28, have: 4 };
        let error = RtcpError::Malformed {
            at: 0,
            packet_type: 201,
            fault,
        };
        assert_eq!(packets(&bytes).next(), Some(Err(error)));
    }
}
