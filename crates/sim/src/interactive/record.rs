//! What a video over TCP leaves behind.

use core::time::Duration;

use tidegate_core::session::jitter_buffer::ReceivedFrame;
use tidegate_core::session::sender::SentFrame;
use tidegate_core::session::tcp::TcpReceiver;
use tidegate_core::tcp_rate::{Retraction, TcpEvent};
use tidegate_core::units::{Bytes, Rate, Time};

use crate::offline_optimum::Connection;
use crate::tcp::Sink;

/// The connection as it was, and what the application knew.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Everything that the congestion control did (Table 1), in order.
    pub events: Vec<(Time, TcpEvent)>,
    /// How the application answered.
    pub answers: Vec<Retraction>,
    /// How often it was told of an event that it had subscribed to.
    pub told: u64,
    /// The target rate from each moment on.
    pub targets: Vec<(Time, Rate)>,
    /// The state of the connection at each event but new acknowledgements, and 20 times a second.
    pub samples: Vec<Sample>,
    /// What was carried, segment by segment, in order of the stream.
    pub slots: Vec<Slot>,
    /// When frames had to wait because the connection took no more.
    pub blocked: Vec<(Time, Time)>,
    /// What the stream had beside the access unit of each frame, in order of capture: headers, and
    /// the report before it. Of a frame that was never written, the least that another one had.
    pub framing: Vec<Bytes>,
    /// The access unit of each frame, in order of capture; none of a frame that was never written.
    pub units: Vec<Option<Bytes>>,
}

/// The state of the connection at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Congestion window.
    pub cwnd: Bytes,
    /// Slow start threshold.
    pub ssthresh: Bytes,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Written and not acknowledged.
    pub backlog: Bytes,
}

/// A segment of the stream, as the connection carried it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// When it first left.
    pub sent: Time,
    /// When it and all before it had arrived.
    pub arrived: Time,
    /// Its payload.
    pub payload: u32,
}

impl Record {
    /// As the oracle reads it.
    pub fn connection(&self) -> Connection<'_> {
        Connection {
            slots: &self.slots,
            blocked: &self.blocked,
            framing: &self.framing,
            units: &self.units,
        }
    }

    /// Fills in the framing and the access units of all `frames`, which are in order of capture.
    pub fn note_frames(&mut self, frames: &[SentFrame]) {
        let unit = |f: &SentFrame| (f.wire > Bytes::ZERO).then_some(Bytes(f.bits / 8));
        let framing = |f: &SentFrame| unit(f).map(|unit| f.wire - unit);
        let least = frames.iter().filter_map(framing).min();
        let of = |f| framing(f).or(least).unwrap_or_default();
        self.framing = frames.iter().map(of).collect();
        self.units = frames.iter().map(unit).collect();
    }

    /// The frames that a receiver has of what was written, given in its `pieces`.
    pub(super) fn play(&self, pieces: Vec<Box<[u8]>>) -> impl Iterator<Item = ReceivedFrame> {
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
                    .expect("the sender wrote it");
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

    /// Fills in the slots: `segments` as they were first sent, and the receiver, which has to have
    /// kept its progress. What never arrived is left out.
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
            self.slots.push(Slot {
                sent: *sent,
                arrived: *arrived,
                payload: *payload,
            });
        }
    }
}
