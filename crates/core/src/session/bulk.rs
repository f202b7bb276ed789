//! A greedy stream: packets as fast as the controller lets them go, to look at controllers alone.

use core::time::Duration;
use std::collections::VecDeque;

use rand_core::Rng;

use super::config::Streams;
use super::feedback::FeedbackReader;
use super::history::{Content, History, PacketRow, Stream};
use super::pacer::Pacer;
use super::path::PathView;
use crate::control::{Cx, Ecn, Kind, RateController, Report, Summary, Why, sooner};
use crate::endpoint::{Datagram, Endpoint, OVERHEAD, Transmit};
use crate::media::MEDIA_CLOCK;
use crate::trace::Event;
use crate::units::{Bytes, Time};
use crate::wire::ntp::{Ntp, round_trip};
use crate::wire::rtcp::{self, Rtcp, SenderInfo};
use crate::wire::rtp::RtpHeader;

/// Sends full packets from its first poll until its time is over.
#[derive(Debug)]
pub struct Bulk {
    streams: Streams,
    packet_size: Bytes,
    ecn: bool,
    controller: Box<dyn RateController>,
    history: History,
    reader: FeedbackReader,
    path: PathView,
    pacer: Pacer,
    seq: u64,
    next_report: Time,
    outgoing: VecDeque<Vec<u8>>,
    last_sample: Time,
    /// The last packet leaves before.
    until: Time,
    done: bool,
}

impl Bulk {
    /// Sends until `until`. `packet_size` is the IP packet length; packets are kept as rows.
    pub fn new(
        streams: Streams,
        packet_size: Bytes,
        ecn: bool,
        controller: Box<dyn RateController>,
        rng: &mut dyn Rng,
        until: Time,
    ) -> Self {
        Self {
            streams,
            packet_size,
            ecn,
            controller,
            history: History::new(true),
            reader: FeedbackReader::default(),
            path: PathView::default(),
            pacer: Pacer::default(),
            seq: u64::from(rng.next_u32() & 0x7fff),
            next_report: Time::ZERO,
            outgoing: VecDeque::new(),
            last_sample: Time::ZERO,
            until,
            done: false,
        }
    }

    /// What the controller learnt.
    pub fn summary(&self) -> Summary {
        self.controller.summary()
    }

    /// Rows of packets that are resolved.
    pub fn drain_rows(&mut self, packets: &mut Vec<PacketRow>) {
        self.history.drain_log(packets);
    }

    /// All rows that are left.
    pub fn finish_rows(&mut self, packets: &mut Vec<PacketRow>) {
        self.history.finish_log(packets);
    }

    fn greet(&mut self, now: Time) {
        let mut out = Vec::with_capacity(64);
        SenderInfo {
            ssrc: self.streams.media_ssrc,
            ntp: Ntp(0).at(now),
            rtp_timestamp: timestamp(now),
            packets: 0,
            octets: 0,
        }
        .emit(&[], &mut out);
        self.outgoing.push_back(out);
        let wait = if self.path.has_rtt() {
            REPORT
        } else {
            GREETING
        };
        self.next_report = now + wait;
    }

    fn sample(&mut self, cx: &mut Cx<'_>) {
        if cx.now.since(self.last_sample) < SAMPLE_INTERVAL {
            return;
        }
        self.last_sample = cx.now;
        let target = self.controller.target();
        let sample = Event::Sample {
            rtt: self.path.srtt(),
            queue: self.path.srtt().saturating_sub(self.path.one_way() * 2),
            loss: self.path.loss(),
            loss_event_rate: self.controller.summary().loss_event_rate,
            send: target.send,
            media: target.media,
            receive: self.path.receive_rate(),
        };
        cx.trace.record(cx.now, sample);
    }
}

impl Endpoint for Bulk {
    fn on_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        for packet in rtcp::packets(datagram.payload).flatten() {
            match packet {
                Rtcp::ReceiverReport(report) if !self.path.has_rtt() => {
                    let now = Ntp(0).at(cx.now).middle();
                    let sample = report
                        .reports()
                        .find_map(|b| round_trip(now, b.last_sr, b.delay_since_last_sr));
                    if let Some(rtt) = sample {
                        self.path.on_rtt(rtt);
                        self.controller.on_report(cx, &Report::default().rtt(rtt));
                    }
                }
                Rtcp::Ccfb(report) => {
                    let reordering = self.path.reordering();
                    let history = &mut self.history;
                    let learnt = self
                        .reader
                        .read(cx, &report, self.streams, history, reordering);
                    let Some(learnt) = learnt else { continue };
                    if let Some(rtt) = learnt.rtt {
                        self.path.on_rtt(rtt);
                    }
                    self.path.on_fates(&learnt.fates);
                    let mut report = Report::new(&learnt.fates);
                    report.rtt = learnt.rtt;
                    self.controller.on_report(cx, &report);
                    self.sample(cx);
                }
                _ => {}
            }
        }
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.next_report <= cx.now {
            self.greet(cx.now);
        }
        self.done = cx.now >= self.until + LINGER;
        let due = self.controller.next_timeout();
        if due.is_some_and(|(at, _)| at <= cx.now) {
            self.controller.on_timeout(cx);
        }
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(packet) = self.outgoing.pop_front() {
            buffer.extend_from_slice(&packet);
            return Some(Transmit::default());
        }
        if cx.now >= self.until || !self.path.has_rtt() || !self.pacer.is_open(cx.now) {
            return None;
        }
        RtpHeader {
            payload_type: self.streams.media_type,
            sequence: self.seq as u16,
            timestamp: timestamp(cx.now),
            ssrc: self.streams.media_ssrc,
            marker: true,
        }
        .emit(buffer);
        // A NAL unit that is complete alone, so that the receiver does not wait for more.
        buffer.push(COMPLETE);
        buffer.resize((self.packet_size - OVERHEAD).get() as usize, 0);
        let content = Content {
            frame: self.seq,
            fragment: 0,
            media_seq: self.seq,
        };
        let (size, media) = (self.packet_size, Stream::Media);
        let sent = self
            .history
            .on_sent(cx.now, media, self.seq, size, Kind::Media, content);
        self.controller.on_sent(cx, &sent);
        self.pacer
            .on_sent(cx.now, size, self.controller.target().send);
        self.seq += 1;
        let ecn = if self.ecn { Ecn::Ect0 } else { Ecn::NotEct };
        Some(Transmit { ecn, dscp: 0 })
    }

    fn next_timeout(&self) -> Option<(Time, Why)> {
        let mut next = sooner(
            Some((self.next_report, Why::Feedback)),
            self.controller.next_timeout(),
        );
        let pacing = self.pacer.next();
        if pacing < self.until && self.path.has_rtt() {
            next = sooner(next, Some((pacing, Why::Pacing)));
        }
        next
    }

    fn is_done(&self) -> bool {
        self.done && self.outgoing.is_empty()
    }
}

fn timestamp(now: Time) -> u32 {
    (u128::from(now.as_nanos()) * u128::from(MEDIA_CLOCK) / 1_000_000_000) as u32
}

/// H.264 NAL unit header of a sequence parameter set.
const COMPLETE: u8 = 0x67;
/// The last packets are still reported on.
const LINGER: Duration = Duration::from_secs(1);
const GREETING: Duration = Duration::from_millis(100);
const REPORT: Duration = Duration::from_secs(1);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
