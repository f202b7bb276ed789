//! A receiver as others write it: receiver reports only, or with transport-wide feedback.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::control::{Context, TimerReason};
use tidegate_core::endpoint::{Check, Datagram, Endpoint, Input, Output, Transmit};
use tidegate_core::units::{Time, nanos};
use tidegate_core::wire::ntp::NtpShort;
use tidegate_core::wire::rtcp::{self, Cname, ReportBlock, Rtcp};
use tidegate_core::wire::rtp::RtpPacket;
use tidegate_core::wire::sdp::TRANSPORT_SEQUENCE_ID;
use tidegate_core::wire::twcc::{Ticks, emit_twcc};

/// Feedback of a plain receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainFeedback {
    /// Interval between receiver reports. The first follows after half of it, as in RFC 3550
    /// section 6.2.
    pub(crate) reports: Duration,
    /// Interval between transport-wide reports, if it sends any.
    pub(crate) transport: Option<Duration>,
}

/// Statistics of RFC 3550 appendix A.3 about one stream.
#[derive(Debug)]
pub(crate) struct PlainReceiver {
    feedback: PlainFeedback,
    ssrc: Option<u32>,
    first: u64,
    highest: u64,
    received: u64,
    /// Expected and received packets at the last report.
    before: (u64, u64),
    sender_report: Option<(NtpShort, Time)>,
    next_report: Option<Time>,
    next_transport: Option<Time>,
    arrivals: BTreeMap<u64, Time>,
    number: u8,
    outgoing: Vec<Vec<u8>>,
}

impl PlainReceiver {
    pub(crate) fn new(feedback: PlainFeedback) -> Self {
        Self {
            feedback,
            ssrc: None,
            first: 0,
            highest: 0,
            received: 0,
            before: (0, 0),
            sender_report: None,
            next_report: None,
            next_transport: None,
            arrivals: BTreeMap::new(),
            number: 0,
            outgoing: Vec::new(),
        }
    }

    fn on_rtp(&mut self, now: Time, packet: &RtpPacket<'_>) {
        let header = packet.header();
        if self.ssrc.is_none() {
            self.ssrc = Some(header.ssrc);
            self.first = u64::from(header.sequence);
            self.highest = self.first;
            self.next_report = Some(now + self.feedback.reports / 2);
            self.next_transport = self.feedback.transport.map(|every| now + every);
        }
        if let Some(extension) = packet.extension() {
            for (id, value) in extension.elements() {
                if let (TRANSPORT_SEQUENCE_ID, &[high, low]) = (id, value) {
                    let newest = self.arrivals.keys().next_back().copied();
                    let sequence = u16::from_be_bytes([high, low]);
                    let at = newest.map_or(u64::from(sequence), |n| extended(n, sequence));
                    self.arrivals.insert(at, now);
                }
            }
        }
        if self.ssrc == Some(header.ssrc) {
            self.highest = self.highest.max(extended(self.highest, header.sequence));
            self.received += 1;
        }
    }

    fn report(&mut self, now: Time, ssrc: u32) {
        let expected = self.highest - self.first + 1;
        let (expected_before, received_before) = self.before;
        let interval = expected - expected_before;
        let lost = interval.saturating_sub(self.received - received_before);
        self.before = (expected, self.received);
        let (last_sr, since) = self.sender_report.unwrap_or((NtpShort(0), now));
        let delay = nanos(now.since(since)) * 65_536 / 1_000_000_000;
        let block = ReportBlock {
            ssrc,
            fraction_lost: (lost * 256 / interval.max(1)).min(255) as u8,
            cumulative_lost: expected.saturating_sub(self.received) as i32,
            highest_sequence: self.highest as u32,
            jitter: 0,
            last_sr,
            delay_since_last_sr: NtpShort(delay as u32),
        };
        let mut out = Vec::new();
        rtcp::emit_receiver_report(77, &[block], &mut out);
        rtcp::emit_sdes(77, &Cname::new("plain@lab").expect("valid CNAME"), &mut out);
        self.outgoing.push(out);
    }

    fn transport(&mut self, ssrc: u32) {
        let (Some((&first, _)), Some((&last, _))) = (
            self.arrivals.first_key_value(),
            self.arrivals.last_key_value(),
        ) else {
            return;
        };
        let ticks = |at: &Time| Ticks((at.as_nanos() / Ticks::NANOS) as i64);
        let reports: Vec<_> = (first..=last)
            .map(|n| self.arrivals.get(&n).map(ticks))
            .collect();
        self.arrivals.retain(|n, _| *n == last);
        let mut out = Vec::new();
        let place = (first as u16, self.number);
        emit_twcc((77, ssrc), place, &reports, &mut out).expect("reports fit");
        self.number = self.number.wrapping_add(1);
        self.outgoing.push(out);
    }
}

/// The number next to `near` with these 16 low bits.
fn extended(near: u64, low: u16) -> u64 {
    let step = i64::from(low.wrapping_sub(near as u16).cast_signed());
    near.saturating_add_signed(step)
}

impl PlainReceiver {
    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        if !rtcp::is_rtcp(datagram.payload) {
            if let Ok(packet) = RtpPacket::new_checked(datagram.payload) {
                self.on_rtp(cx.now, &packet);
            }
            return;
        }
        for packet in rtcp::packets(datagram.payload).flatten() {
            if let Rtcp::SenderReport(report) = packet {
                self.sender_report = Some((report.info().ntp.middle(), cx.now));
            }
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let Some(ssrc) = self.ssrc else { return };
        if let Some(at) = self.next_report.filter(|at| *at <= cx.now) {
            self.next_report = Some(at + self.feedback.reports);
            self.report(cx.now, ssrc);
        }
        if let Some(at) = self.next_transport.filter(|at| *at <= cx.now) {
            self.next_transport = self.feedback.transport.map(|every| at + every);
            self.transport(ssrc);
        }
    }
}

impl Endpoint for PlainReceiver {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) => self.on_datagram(cx, datagram),
            Input::PeerChanged | Input::PathChanged | Input::Stream(_) => {}
            Input::Timeout => self.on_timeout(cx),
        }
        Check::default()
    }

    fn poll(&mut self, _: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        if let Some(packet) = self.outgoing.pop() {
            buffer.extend_from_slice(&packet);
            return Output::Send(Transmit::default());
        }
        let next = [self.next_report, self.next_transport];
        let next = next.into_iter().flatten().min();
        Output::Wait(next.map(|at| (at, TimerReason::Feedback)))
    }
}
