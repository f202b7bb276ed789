//! Feedback on a stream that leaves for its receiver over a byte stream, e.g. RTP interleaved in RTSP.
//!
//! The receiver of such a stream reports on what TCP has delivered, seldom and late. The relay in front
//! of the connection reports instead when the connection accepts each packet (RFC 8888). To the rate
//! control the connection is a path: its capacity is what TCP sends, and its queue is what waits
//! before it.

use core::time::Duration;

use super::receiver_stats::Arrivals;
use crate::control::Ecn;
use crate::units::Time;
use crate::wire::ccfb::{CcfbBuilder, Received};
use crate::wire::ntp::Ntp;
use crate::wire::rtcp::{self, ReportBlock, Rtcp};
use crate::wire::rtp::RtpPacket;
use crate::wire::seq::Unwrap16;

/// Reports on the packets of one stream that a connection accepts.
#[derive(Debug)]
pub struct RelayReports {
    /// SSRC of the reports, and of the stream.
    ssrcs: (u32, u32),
    epoch: Ntp,
    unwrap: Unwrap16,
    arrivals: Arrivals,
    due: Option<Time>,
}

impl RelayReports {
    /// Reports from `own` on the stream with the SSRC `media`. `epoch` is the wall-clock time of the
    /// zero of the clock.
    pub fn new(own: u32, media: u32, epoch: Ntp) -> Self {
        Self {
            ssrcs: (own, media),
            epoch,
            unwrap: Unwrap16::default(),
            arrivals: Arrivals::default(),
            due: None,
        }
    }

    /// The connection accepts a packet of the stream. A sender report is answered at once: returns
    /// the answer.
    pub fn on_packet(&mut self, now: Time, packet: &[u8]) -> Option<Vec<u8>> {
        if rtcp::is_rtcp(packet) {
            return self.answer(packet);
        }
        let header = RtpPacket::new_checked(packet).ok()?.header();
        if header.ssrc == self.ssrcs.1 {
            let seq = self.unwrap.unwrap(header.sequence);
            let ecn = Ecn::NotEct;
            self.arrivals.on_packet(seq, Received { ecn, at: now });
            self.due.get_or_insert(now + INTERVAL);
        }
        None
    }

    /// Time of the next report.
    pub fn next_timeout(&self) -> Option<Time> {
        self.due
    }

    /// The report that is due.
    pub fn on_timeout(&mut self, now: Time) -> Option<Vec<u8>> {
        self.due.take_if(|due| *due <= now)?;
        let (begin, lines) = self.arrivals.report(now, OVERLAP)?;
        let mut out = Vec::with_capacity(256);
        let mut builder = CcfbBuilder::new(self.ssrcs.0, now, &mut out);
        // A report is far below the limits of the format.
        let _ = builder.block(self.ssrcs.1, begin as u16, lines);
        builder.finish(self.epoch);
        Some(out)
    }

    fn answer(&self, packet: &[u8]) -> Option<Vec<u8>> {
        rtcp::form(packet).ok()?;
        let sent = rtcp::packets(packet)
            .flatten()
            .find_map(|packet| match packet {
                Rtcp::SenderReport(report) => Some(report.info()),
                _ => None,
            })?;
        let block = ReportBlock {
            ssrc: self.ssrcs.1,
            highest_sequence: self.unwrap.highest_in_report(),
            last_sr: sent.ntp.middle(),
            ..ReportBlock::default()
        };
        let mut out = Vec::with_capacity(64);
        rtcp::emit_receiver_report(self.ssrcs.0, &[block], &mut out);
        Some(out)
    }
}

/// That of a receiver.
const INTERVAL: Duration = Duration::from_millis(25);
/// Reports get lost only if the sender does not read for long.
const OVERLAP: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ccfb::Arrival;
    use crate::wire::rtcp::{Cname, SenderInfo};
    use crate::wire::rtp::RtpHeader;

    fn packet(sequence: u16, ssrc: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let header = RtpHeader {
            payload_type: crate::session::config::MEDIA_TYPE,
            sequence,
            timestamp: 0,
            ssrc,
            marker: false,
        };
        header.emit(&mut out);
        out.push(1);
        out
    }

    #[test]
    fn accepted_packets_are_reported() {
        let mut reports = RelayReports::new(1, 2, Ntp(0));
        let start = Time::from_secs(1);
        assert_eq!(reports.on_packet(start, &packet(65_535, 2)), None);
        reports.on_packet(start + INTERVAL / 2, &packet(1, 2));
        reports.on_packet(start + INTERVAL / 2, &packet(2, 9));
        assert_eq!(reports.next_timeout(), Some(start + INTERVAL));
        assert_eq!(reports.on_timeout(start), None);
        let report = reports.on_timeout(start + INTERVAL).unwrap();
        let mut packets = rtcp::packets(&report).flatten();
        let Some(Rtcp::Ccfb(report)) = packets.next() else {
            panic!("no report on packets");
        };
        let arrived = report.packets();
        let arrived = arrived.map(|p| (p.sequence, p.arrival != Arrival::NotReceived));
        let expected = [(65_535, true), (0, false), (1, true)];
        assert_eq!(arrived.collect::<Vec<_>>(), expected);
        assert_eq!(reports.next_timeout(), None);
    }

    #[test]
    fn sender_reports_are_answered() {
        let mut reports = RelayReports::new(1, 2, Ntp(0));
        reports.on_packet(Time::ZERO, &packet(7, 2));
        let info = SenderInfo {
            ssrc: 2,
            ntp: Ntp(0x1234_5678_9abc_def0),
            rtp_timestamp: 0,
            packets: 1,
            octets: 1,
        };
        let mut sent = Vec::new();
        info.emit(&[], &mut sent);
        rtcp::emit_sdes(2, &Cname::new("s@h").unwrap(), &mut sent);
        let answer = reports.on_packet(Time::ZERO, &sent).unwrap();
        let Some(Ok(Rtcp::ReceiverReport(report))) = rtcp::packets(&answer).next() else {
            panic!("no receiver report");
        };
        let block = report.reports().next().unwrap();
        assert_eq!((block.ssrc, block.highest_sequence as u16), (2, 7));
        assert_eq!(block.last_sr, info.ntp.middle());
    }
}
