//! Record of a video over TCP.

use core::time::Duration;

use tidegate_core::session::jitter_buffer::ReceivedFrame;
use tidegate_core::session::sender::SentFrame;
use tidegate_core::session::tcp::TcpReceiver;
use tidegate_core::tcp_rate::{RateReduction, TcpEvent};
use tidegate_core::units::{Bytes, Rate, Time};

use crate::offline_optimum::Connection;
use crate::tcp::Sink;

/// History of the connection and of the application's decisions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// All events of the congestion control (Table 1), in order.
    pub events: Vec<(Time, TcpEvent)>,
    /// Reactions of the application.
    pub rate_reductions: Vec<RateReduction>,
    /// Number of events delivered to the application.
    pub delivered: u64,
    /// Target rate from each time on.
    pub targets: Vec<(Time, Rate)>,
    /// State of the connection at each event except new acknowledgements, and 20 times per second.
    pub samples: Vec<Sample>,
    /// Segments in the order of the stream.
    pub slots: Vec<StreamSegment>,
    /// Periods in which frames waited because the connection was full.
    pub blocked: Vec<(Time, Time)>,
    /// Stream bytes beside the access unit of each frame, in order of capture: headers and the
    /// report before it. For a frame that was never written, the minimum of all frames.
    pub framing: Vec<Bytes>,
    /// Access unit of each frame, in order of capture; none if it was never written.
    pub units: Vec<Option<Bytes>>,
}

/// State of the connection at one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Time,
    /// Congestion window.
    pub cwnd: Bytes,
    /// Slow start threshold.
    pub ssthresh: Bytes,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Bytes written and not acknowledged.
    pub backlog: Bytes,
}

/// A segment of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSegment {
    /// First transmission.
    pub sent: Time,
    /// Time by which this and all earlier segments had arrived.
    pub arrived: Time,
    /// Payload in bytes.
    pub payload: u32,
}

impl Record {
    /// Input of the offline optimum.
    pub fn connection(&self) -> Connection<'_> {
        Connection {
            slots: &self.slots,
            blocked: &self.blocked,
            framing: &self.framing,
            units: &self.units,
        }
    }

    /// Sets the framing and the access units of all `frames`, which are in order of capture.
    pub fn note_frames(&mut self, frames: &[SentFrame]) {
        let unit = |f: &SentFrame| (f.wire > Bytes::ZERO).then_some(Bytes(f.bits / 8));
        let framing = |f: &SentFrame| unit(f).map(|unit| f.wire - unit);
        let least = frames.iter().filter_map(framing).min();
        let of = |f| framing(f).or(least).unwrap_or_default();
        self.framing = frames.iter().map(of).collect();
        self.units = frames.iter().map(unit).collect();
    }

    /// The received frames of the stream whose bytes are `pieces`.
    pub(super) fn received_frames(
        &self,
        pieces: Vec<Box<[u8]>>,
    ) -> impl Iterator<Item = ReceivedFrame> {
        let mut receiver = TcpReceiver::new();
        let mut slots = self.slots.iter().map(|s| (s.arrived, s.payload as usize));
        let mut slot = slots.next();
        for piece in pieces {
            let mut rest = &piece[..];
            while let Some((arrived, room)) = &mut slot
                && !rest.is_empty()
            {
                let (here, further) = rest.split_at(rest.len().min(*room));
                receiver
                    .on_bytes(*arrived, here)
                    .expect("the stream of the sender is valid");
                rest = further;
                *room -= here.len();
                if *room == 0 {
                    slot = slots.next();
                }
            }
        }
        receiver.finish();
        core::iter::from_fn(move || receiver.poll_frame())
    }

    /// Sets the slots from `segments` as first sent and from the progress of the receiver. Segments
    /// that never arrived are omitted.
    pub(super) fn fill(&mut self, segments: &[(Time, u32)], sink: &Sink) {
        let mut progress = sink.progress().iter().peekable();
        // Number 0 is the SYN.
        for (number, (sent, payload)) in segments.iter().enumerate().skip(1) {
            while progress
                .next_if(|(_, next)| *next as usize <= number)
                .is_some()
            {}
            let Some((arrived, _)) = progress.peek() else {
                return;
            };
            self.slots.push(StreamSegment {
                sent: *sent,
                arrived: *arrived,
                payload: *payload,
            });
        }
    }
}
