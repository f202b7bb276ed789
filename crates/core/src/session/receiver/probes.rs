//! Probes of lower effort: their arrivals, and the feedback on them.

use core::time::Duration;

use super::Source;
use crate::endpoint::{Datagram, LOWER_EFFORT, Transmit};
use crate::session::pauses::TAKEOVER;
use crate::units::Time;
use crate::wire::ccfb::{CcfbBuilder, Received};
use crate::wire::ntp::Ntp;
use crate::wire::rtcp::ArrivedDscp;
use crate::wire::rtp::RtpPacket;

/// Receive state of the probes of the current sender. They are no part of the stream: they do not
/// start, continue or end it, and have no report blocks.
#[derive(Debug, Default)]
pub(super) struct Probes {
    source: Source,
    last: Option<Time>,
    due: Option<Time>,
    /// DSCP on arrival of the newest probe that was sent with lower effort.
    dscp: Option<u8>,
    report: Option<Vec<u8>>,
}

impl Probes {
    /// A probe has arrived. Its SSRC is that of the first one, until it is silent. Returns whether
    /// the probe is accepted.
    pub(super) fn on_packet(
        &mut self,
        now: Time,
        packet: &RtpPacket<'_>,
        datagram: &Datagram<'_>,
        interval: Duration,
    ) -> bool {
        let header = packet.header();
        if self.source.is_other(header.ssrc) {
            if self.last.is_some_and(|last| now.since(last) <= TAKEOVER) {
                return false;
            }
            *self = Self::default();
        }
        self.source.ssrc = Some(header.ssrc);
        self.last = Some(now);
        let seq = self.source.unwrap.unwrap(header.sequence);
        let ecn = datagram.ecn;
        self.source
            .arrivals
            .on_packet(seq, Received { ecn, at: now });
        // The first byte is the DSCP at the sender.
        if packet.payload().first() == Some(&LOWER_EFFORT) {
            self.dscp = Some(datagram.dscp);
        }
        self.due.get_or_insert(now + interval);
        true
    }

    /// Time of the next feedback on probes.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Number of arrivals that are kept for reports.
    pub(super) fn len(&self) -> usize {
        self.source.arrivals.len()
    }

    /// Writes the feedback that is due (RFC 8888), in a datagram of its own.
    pub(super) fn on_timeout(&mut self, now: Time, own: u32, overlap: Duration, epoch: Ntp) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        let Some(ssrc) = self.source.ssrc else { return };
        let Some((begin, lines)) = self.source.arrivals.report(now, overlap) else {
            return;
        };
        let mut out = Vec::with_capacity(256);
        let mut builder = CcfbBuilder::new(own, now, &mut out);
        // A report is far below the limits of the format.
        let _ = builder.block(ssrc, begin as u16, lines);
        builder.finish(epoch);
        if let Some(arrived) = self.dscp {
            let dscp = ArrivedDscp {
                sender: own,
                media: ssrc,
                sent: LOWER_EFFORT,
                arrived,
            };
            dscp.emit(&mut out);
        }
        self.report = Some(out);
    }

    /// Appends the feedback, which has the priority of the probes.
    pub(super) fn poll_transmit(&mut self, buffer: &mut Vec<u8>) -> Option<Transmit> {
        buffer.extend_from_slice(&self.report.take()?);
        Some(Transmit {
            dscp: LOWER_EFFORT,
            ..Transmit::default()
        })
    }
}
