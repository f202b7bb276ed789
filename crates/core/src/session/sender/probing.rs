//! Probes of lower effort: when they leave, and their feedback.

use super::MediaSender;
use super::status::Phase;
use super::wire::Peer;
use crate::control::{Change, Context, Ecn, LowerEffort, Report};
use crate::endpoint::{LOWER_EFFORT, OVERHEAD, Transmit};
use crate::session::feedback::reject;
use crate::session::probes::ProbeStream;
use crate::trace::{Event, FeedbackFault};
use crate::units::{Bytes, Rate, Time};
use crate::wire::ccfb::Ccfb;
use crate::wire::rtcp::ArrivedDscp;
use crate::wire::rtp::RtpHeader;

impl MediaSender {
    /// The probes, while they may leave: the controller uses them, the stream has begun and is open,
    /// and the peer may report them.
    fn open_probes(&self) -> Option<&ProbeStream> {
        let may_report = matches!(
            self.wire.peer,
            Peer::Unknown | Peer::PerPacket { ecn: true }
        );
        let has_begun = self.wire.first_media.is_some() && self.wire.has_rtt();
        let is_open = self.phase == Phase::Open && has_begun && may_report;
        self.probes.as_ref().filter(|_| is_open)
    }

    /// Rate of probes: none before a test has shown that they are honoured.
    fn probe_rate(&self) -> Rate {
        let treatment = self.probes.as_ref().map(ProbeStream::treatment);
        if treatment == Some(LowerEffort::Honoured) {
            self.wire.control.target().filler
        } else {
            Rate::ZERO
        }
    }

    /// Time of the next probe or of the end of a test.
    pub(super) fn probes_due(&self) -> Option<Time> {
        let (size, rate) = (self.wire.packet_size.current(), self.probe_rate());
        let probes = self.open_probes()?;
        Some(probes.next_timeout(size, rate, self.wire.srtt())).filter(|at| *at < Time::FAR)
    }

    /// Whether probes are of use on this path.
    pub(super) fn treatment(&self) -> Option<LowerEffort> {
        self.probes.as_ref().map(ProbeStream::treatment)
    }

    /// Assumes nothing about the path before the first test.
    pub(super) fn start_probes(&mut self, cx: &mut Context<'_>) {
        if self.probes.is_some() {
            let change = Change::LowerEffort(LowerEffort::Untested);
            self.wire.control.on_change(cx, &change);
        }
    }

    /// Writes the next probe, as large as a full data packet.
    pub(super) fn write_probe(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let (size, rate) = (self.wire.packet_size.current(), self.probe_rate());
        let next = self.open_probes()?.due(cx.now, size, rate)?;
        let streams = self.config.streams;
        RtpHeader {
            payload_type: streams.probe_type,
            sequence: next.sequence,
            timestamp: self.timestamp(cx.now),
            ssrc: streams.probe_ssrc,
            marker: false,
        }
        .emit(buffer);
        let dscp = if next.is_low { LOWER_EFFORT } else { 0 };
        buffer.resize((size - OVERHEAD).get() as usize, 0);
        // The receiver compares it with the DSCP on arrival.
        buffer[RtpHeader::LEN] = dscp;
        let probes = self.probes.as_mut()?;
        let sent = probes.on_sent(cx.now, Bytes(buffer.len() as u64) + OVERHEAD, rate);
        self.wire.control.on_sent(cx, &sent);
        let ecn = Ecn::NotEct;
        Some(Transmit { ecn, dscp })
    }

    /// Applies the blocks about probes of a feedback packet. Returns whether there are others.
    pub(super) fn on_probe_feedback(&mut self, cx: &mut Context<'_>, report: &Ccfb<'_>) -> bool {
        let Some(probes) = &mut self.probes else {
            return true;
        };
        let arrived = probes.read(cx, report);
        let has_others = probes.is_of_others(report);
        if !arrived.is_empty() {
            self.feedback.is_believed = true;
            self.wire.breaker.on_rtcp(cx.now);
            self.wire
                .control
                .on_report(cx, &Report::default().dummies(&arrived));
            self.wire.on_rate(cx.now);
        }
        has_others
    }

    /// The DSCP with which probes arrive. It follows the reports on the same probes.
    pub(super) fn on_arrived_dscp(&mut self, cx: &mut Context<'_>, report: &ArrivedDscp) {
        let is_ours = report.media == self.config.streams.probe_ssrc;
        match &mut self.probes {
            Some(probes) if is_ours && report.sent == LOWER_EFFORT => {
                probes.on_dscp(report.arrived);
                self.end_test(cx);
            }
            _ => reject(cx, FeedbackFault::UnknownSource),
        }
    }

    /// Begins the tests once the path can carry probes, and ends one that is complete.
    pub(super) fn end_test(&mut self, cx: &mut Context<'_>) {
        let is_open = self.open_probes().is_some();
        let rtt = self.wire.srtt();
        let Some(probes) = &mut self.probes else {
            return;
        };
        if !is_open {
            return probes.interrupt(cx.now);
        }
        probes.begin_tests(cx.now);
        let Some(treatment) = probes.on_timeout(cx.now, rtt) else {
            return;
        };
        let dscp = probes.dscp();
        cx.trace
            .record(cx.now, Event::LowerEffortTested { treatment, dscp });
        self.wire
            .control
            .on_change(cx, &Change::LowerEffort(treatment));
        self.wire.on_rate(cx.now);
    }
}
