//! Sender reports: when they are due, their content, and the round-trip times of their answers.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::session::config::SenderConfig;
use crate::session::history::MAX_RTT;
use crate::units::Time;
use crate::wire::ntp::{NtpShort, round_trip};
use crate::wire::rtcp::{self, ReportBlock, SenderInfo};
use crate::wire::rtp::RtpHeader;

/// Sender reports and the BYE of a stream (RFC 3550 section 6.4.1).
#[derive(Debug)]
pub(super) struct SenderReports {
    config: Arc<SenderConfig>,
    /// Departure time of the first one.
    started: Time,
    /// Time of the next one.
    pub(super) next: Option<Time>,
    /// Middle of the NTP timestamps of the last ones.
    sent: VecDeque<NtpShort>,
    packets: u32,
    octets: u32,
    /// BYEs that are still to be sent.
    pub(super) byes: u8,
}

impl SenderReports {
    pub(super) fn new(config: &Arc<SenderConfig>) -> Self {
        Self {
            config: Arc::clone(config),
            started: Time::ZERO,
            next: None,
            sent: VecDeque::new(),
            packets: 0,
            octets: 0,
            byes: BYES,
        }
    }

    /// The session begins.
    pub(super) fn start(&mut self, now: Time) {
        self.started = now;
        self.next = Some(now);
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next.is_some_and(|at| at <= now)
    }

    /// A data packet leaves.
    pub(super) fn on_sent(&mut self, packet: &[u8]) {
        let octets = packet.len() as u32 - RtpHeader::LEN as u32;
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(octets);
    }

    /// The next report. Another one follows after `wait`.
    pub(super) fn write(&mut self, now: Time, rtp_timestamp: u32, wait: Duration) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        let ntp = self.config.epoch.at(now);
        self.sent.push_back(ntp.middle());
        if self.sent.len() > MAX_SENT {
            self.sent.pop_front();
        }
        let ssrc = self.config.streams.media_ssrc;
        SenderInfo {
            ssrc,
            ntp,
            rtp_timestamp,
            packets: self.packets,
            octets: self.octets,
        }
        .emit(&[], &mut out);
        rtcp::emit_sdes(ssrc, &self.config.cname, &mut out);
        self.next = Some(now + wait);
        out
    }

    /// Adds a BYE to a report. No report follows the last one.
    pub(super) fn add_bye(&mut self, report: &mut Vec<u8>) {
        rtcp::emit_bye(&self.config.streams.ssrcs(), None, report);
        self.byes -= 1;
        self.next = self.next.filter(|_| self.byes > 0);
    }

    /// Round-trip time from the report that a block quotes. A quote of another sender report than
    /// those of this session is forged, or of another session.
    pub(super) fn round_trip(&self, now: Time, block: &ReportBlock) -> Option<Duration> {
        let ntp = self.config.epoch.at(now).middle();
        let rtt = round_trip(ntp, block.last_sr, block.delay_since_last_sr)?;
        let is_possible = rtt <= now.since(self.started).min(MAX_RTT);
        (is_possible && self.sent.contains(&block.last_sr)).then_some(rtt)
    }
}

/// Five seconds of probes, the longest reporting interval of a plain receiver.
const MAX_SENT: usize = 256;
/// BYEs of a sender: without one, the receiver waits for more until its timeout. With random losses of
/// 10 %, one of a thousand streams ends so.
const BYES: u8 = 3;
