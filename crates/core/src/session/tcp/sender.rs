//! The sending end: pictures in, bytes for a socket out.

use core::time::Duration;
use std::collections::VecDeque;

use super::packets::Packets;
use super::rate_policy::{Advice, Backlog, Place, RatePolicy, Verdict, Waiting, Work};
use crate::media::{Codec, EncodeError, Encoded, FrameOrder, FrameRate, MEDIA_CLOCK};
use crate::session::sender::SentFrame;
use crate::tcp_rate::{Admit, Retraction, Subscription, TcpView, Told};
use crate::trace::{DropCause, Event, KeyCause};
use crate::units::{Bytes, Rate, Time};
use crate::wire::ntp::Ntp;
use crate::wire::rtcp::Cname;

/// How a sender sends.
#[derive(Clone, Debug)]
pub struct TcpSenderConfig {
    /// Of the encoder.
    pub codec: Codec,
    /// Own SSRC.
    pub ssrc: u32,
    /// Time stamp of frame 0.
    pub timestamp_base: u32,
    /// Canonical name (RFC 3550 section 6.5.1).
    pub cname: Cname,
    /// Wall-clock time of the driver's epoch.
    pub epoch: Ntp,
    /// Of the source. Time stamps are frame numbers at this rate, whenever a picture came.
    pub frame_rate: FrameRate,
    /// Who says when there is a picture.
    pub capture: Capture,
    /// Largest RTP packet, without its length field; within 300 bytes and 65,535.
    pub packet_size: Bytes,
    /// Pictures are passed over while more than this waits in the application. Keeps memory
    /// bounded when TCP takes nothing for minutes.
    pub most_queued: Bytes,
    /// Where frames wait.
    pub place: Place,
    /// In [`Place::Pictures`]: so many pictures wait at most, and at least one; with more, the
    /// oldest is passed over. A source that keeps pictures of its own accord says here how many.
    pub most_pictures: usize,
}

/// Who says when there is a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// The clock, at the frame rate, until so many have been captured.
    Clock {
        /// No end if there is none.
        frames: Option<u64>,
    },
    /// The source, by [`TcpSender::on_picture`].
    Source,
}

/// Sends one stream over TCP.
///
/// Contract: after each input, drain [`poll_order`](Self::poll_order) and answer each order by
/// [`on_encoded`](Self::on_encoded), write what [`poll_write`](Self::poll_write) gives as far as the
/// socket takes it, and sleep until [`next_timeout`](Self::next_timeout) or until the socket takes
/// more. Where the steering decides by the state of the connection, tell it by
/// [`on_view`](Self::on_view) before each turn and after each frame that was written, and look
/// again soon while it [waits for room](Self::waits_for_room).
#[derive(Debug)]
pub struct TcpSender {
    config: TcpSenderConfig,
    steering: Box<dyn RatePolicy>,
    /// When frame 0 was captured, and the next frame, of the clock.
    clock: Option<(Time, u64)>,
    /// Nothing more is captured.
    ended: bool,
    /// A picture that waits until the encoder is free.
    held: Option<(u64, Time)>,
    /// Pictures that wait until the connection has room, the oldest first.
    pictures: VecDeque<(u64, Time)>,
    /// What the encoder is at.
    open: Option<FrameOrder>,
    /// When it was told to.
    ordered: Time,
    order: Option<FrameOrder>,
    key_wanted: Option<KeyCause>,
    queue: VecDeque<Queued>,
    queued: Bytes,
    /// Kernel's part of the backlog.
    kernel: Backlog,
    /// Bytes on their way, and how many of them TCP has.
    out: Vec<u8>,
    written: usize,
    /// The frame that `out` belongs to.
    leaving: Option<SentFrame>,
    /// Frames that refer to one that was given up are of no use.
    broken: bool,
    packets: Packets,
    said_bye: bool,
    last_rate: Option<Rate>,
    rows: Vec<SentFrame>,
    events: Vec<(Time, Event)>,
}

#[derive(Debug)]
struct Queued {
    row: SentFrame,
    data: Vec<u8>,
}

impl TcpSender {
    /// A sender that captures its first frame when it is first asked for a timeout.
    pub fn new(config: TcpSenderConfig, steering: Box<dyn RatePolicy>) -> Self {
        let packets = Packets::new(&config);
        Self {
            config,
            steering,
            clock: None,
            ended: false,
            held: None,
            pictures: VecDeque::new(),
            open: None,
            ordered: Time::ZERO,
            order: None,
            key_wanted: Some(KeyCause::First),
            queue: VecDeque::new(),
            queued: Bytes(0),
            kernel: Backlog::default(),
            out: Vec::new(),
            written: 0,
            leaving: None,
            broken: false,
            packets,
            said_bye: false,
            last_rate: None,
            rows: Vec::new(),
            events: Vec::new(),
        }
    }

    /// A deadline of [`next_timeout`](Self::next_timeout) has passed. Early calls are harmless.
    pub fn on_timeout(&mut self, now: Time) {
        self.steering.on_timeout(now);
        let Capture::Clock { frames } = self.config.capture else {
            return;
        };
        let (start, mut next) = self.clock.unwrap_or((now, 0));
        while !self.ended && start + self.config.frame_rate.at(next) <= now {
            if frames.is_some_and(|frames| next >= frames) {
                self.ended = true;
                break;
            }
            self.picture(now, next, start + self.config.frame_rate.at(next));
            next += 1;
        }
        self.clock = Some((start, next));
    }

    /// When the clock captures again, or the steering wants to think.
    pub fn next_timeout(&self) -> Option<Time> {
        let captures = match (self.config.capture, self.clock) {
            (Capture::Source, _) => Time::FAR,
            (Capture::Clock { .. }, _) if self.ended => Time::FAR,
            (Capture::Clock { .. }, None) => Time::ZERO,
            (Capture::Clock { .. }, Some((start, next))) => start + self.config.frame_rate.at(next),
        };
        Some(captures.min(self.steering.next_timeout())).filter(|next| *next != Time::FAR)
    }

    /// The source has picture `frame`, which came at `at`. Numbers grow, and may have gaps.
    pub fn on_picture(&mut self, now: Time, frame: u64, at: Time) {
        if !self.ended {
            self.picture(now, frame, at);
        }
    }

    /// Nothing more is captured; what has been is encoded and sent, and a goodbye.
    pub fn stop_capture(&mut self) {
        self.ended = true;
    }

    /// Somebody outside has an opinion.
    pub fn advise(&mut self, now: Time, advice: Advice) {
        self.steering.advise(now, advice);
    }

    /// What the kernel holds of what was written: not yet sent, and not yet acknowledged.
    pub fn on_kernel(&mut self, unsent: Bytes, unacknowledged: Bytes) {
        self.kernel.unsent = unsent;
        self.kernel.unacknowledged = unacknowledged;
    }

    /// Which events of the connection are to be told by [`on_event`](Self::on_event).
    pub fn subscribed(&self) -> Subscription {
        self.steering.subscribed()
    }

    /// The connection stands so.
    pub fn on_view(&mut self, now: Time, view: &TcpView) {
        self.steering.on_view(now, view);
    }

    /// The connection did this, and stands so.
    pub fn on_event(&mut self, now: Time, told: Told, view: &TcpView) {
        self.steering.on_event(now, told, view, &mut self.events);
    }

    /// How the steering answered to events, since the last call of this.
    pub fn take_answers(&mut self) -> Vec<Retraction> {
        self.steering.take_answers()
    }

    /// Whether something waits until the connection has room, and not for the encoder or until the
    /// socket takes what was begun.
    pub fn waits_for_room(&self) -> bool {
        let writing = self.written < self.out.len();
        let waits = !self.queue.is_empty() || !self.pictures.is_empty();
        waits && !writing && self.open.is_none()
    }

    /// What the encoder is to do.
    pub fn poll_order(&mut self, now: Time) -> Option<FrameOrder> {
        self.admit_pictures(now);
        self.order.take()
    }

    /// The encoder is done with the open order, at which it was for `took`. An error is the end of the stream: what is encoded
    /// is still sent, and there are no rows of this picture and of those that wait behind it.
    pub fn on_encoded(&mut self, now: Time, took: Duration, result: Result<Encoded, EncodeError>) {
        let Some(order) = self.open.take() else {
            return;
        };
        if let Ok(encoded) = result {
            let work = Work {
                ordered: self.ordered,
                took,
            };
            self.steering.on_encoded(now, work, &mut self.events);
            self.enqueue(&order, encoded);
        } else {
            // There is no such picture, nor any behind it: at the end of a source they were never
            // there.
            self.stop_capture();
            self.held = None;
            self.pictures.clear();
        }
        if let Some((frame, at)) = self.held.take() {
            self.picture(now, frame, at);
        }
    }

    /// Bytes for the socket; none if there is nothing to write now.
    pub fn poll_write(&mut self, now: Time) -> &[u8] {
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
            self.refill(now);
        }
        &self.out[self.written..]
    }

    /// The socket took so many of them.
    pub fn on_written(&mut self, now: Time, count: usize) {
        self.written = (self.written + count).min(self.out.len());
        if self.written == self.out.len()
            && let Some(mut row) = self.leaving.take()
        {
            row.left = Some(now);
            self.rows.push(row);
        }
    }

    /// The connection is gone: what waits will never leave.
    pub fn on_closed(&mut self, now: Time) {
        self.stop_capture();
        self.let_go(now, DropCause::Ended);
        let leaving = self.leaving.take();
        let waiting = self.queue.drain(..).map(|queued| queued.row);
        let lost: Vec<_> = leaving.into_iter().chain(waiting).collect();
        for row in lost {
            self.give_up(now, row, DropCause::Ended);
        }
        self.queued = Bytes(0);
        self.out.clear();
        self.written = 0;
        self.said_bye = true;
    }

    /// Whether the goodbye has been written.
    pub fn is_done(&self) -> bool {
        self.said_bye && self.written == self.out.len() && self.open.is_none()
    }

    /// What waits, and where.
    pub fn backlog(&self) -> Backlog {
        Backlog {
            queued: self.queued + Bytes((self.out.len() - self.written) as u64),
            ..self.kernel
        }
    }

    /// What the encoder is told at the moment.
    pub fn target(&self) -> Rate {
        self.steering.target()
    }

    /// Moves rows of frames whose fate is known, in the order of their fates, and what happened.
    pub fn drain(&mut self, rows: &mut Vec<SentFrame>, events: &mut Vec<(Time, Event)>) {
        rows.append(&mut self.rows);
        events.append(&mut self.events);
    }

    fn picture(&mut self, now: Time, frame: u64, at: Time) {
        if self.config.place == Place::Pictures {
            if self.pictures.len() >= self.config.most_pictures.max(1)
                && let Some((oldest, at)) = self.pictures.pop_front()
            {
                self.skip(now, oldest, at);
            }
            self.pictures.push_back((frame, at));
            return;
        }
        if self.open.is_some() {
            // The encoder is behind: the newest picture is the one worth having.
            if let Some((older, at)) = self.held.replace((frame, at)) {
                self.skip(now, older, at);
            }
            return;
        }
        let backlog = self.backlog();
        self.steering.on_backlog(now, backlog);
        let verdict = match self.steering.order(now, frame) {
            _ if backlog.queued > self.config.most_queued => Verdict::Skip,
            verdict => verdict,
        };
        let Verdict::Encode(rate) = verdict else {
            return self.skip(now, frame, at);
        };
        self.begin(now, frame, at, rate);
    }

    /// Has the oldest picture made if there is room for it, and leaves out those that are not
    /// worth it. One at a time: what was made decides about the next.
    fn admit_pictures(&mut self, now: Time) {
        let is_free =
            self.open.is_none() && self.queue.is_empty() && self.written == self.out.len();
        while is_free && let Some((frame, at)) = self.pictures.front().copied() {
            let backlog = self.backlog();
            self.steering.on_backlog(now, backlog);
            match self.steering.admit(now, frame, at) {
                Admit::Wait => return,
                Admit::Skip => {
                    let cause = if self.steering.is_late(now, at) {
                        DropCause::Late
                    } else {
                        DropCause::Skipped
                    };
                    let row = self.row(frame, at);
                    self.give_up(now, row, cause);
                }
                Admit::Make(rate) => {
                    self.pictures.pop_front();
                    return self.begin(now, frame, at, rate);
                }
            }
            self.pictures.pop_front();
        }
    }

    fn begin(&mut self, now: Time, frame: u64, at: Time, rate: Rate) {
        if let Some(cause) = self.key_wanted {
            self.events
                .push((now, Event::KeyFrameOrdered { frame, cause }));
        }
        if let Some(from) = self.last_rate.replace(rate).filter(|from| *from != rate) {
            self.events
                .push((now, Event::RateChanged { from, to: rate }));
        }
        let order = FrameOrder {
            frame,
            captured: at,
            rate,
            key: self.key_wanted.take().is_some(),
        };
        self.open = Some(order);
        self.ordered = now;
        self.order = Some(order);
    }

    fn enqueue(&mut self, order: &FrameOrder, encoded: Encoded) {
        let share = order.rate.as_f64() / self.config.frame_rate.as_f64();
        let row = SentFrame {
            key: encoded.key,
            skipped: false,
            target_bits: share as u64,
            bits: encoded.data.len() as u64 * 8,
            quality: encoded.quality,
            ..self.row(order.frame, order.captured)
        };
        self.queued += Bytes(encoded.data.len() as u64);
        self.queue.push_back(Queued {
            row,
            data: encoded.data,
        });
    }

    /// Writes the next frame that is worth it, or the goodbye.
    fn refill(&mut self, now: Time) {
        while let Some(front) = self.queue.front() {
            let (waiting, undecodable) = (self.waiting(front), self.broken && !front.row.key);
            let asks = self.config.place != Place::Socket && !undecodable;
            let keeps = !asks || self.steering.keeps(now, &waiting);
            if asks && keeps && !self.steering.has_room(now) {
                return;
            }
            let Some(Queued { row, data }) = self.queue.pop_front() else {
                return;
            };
            self.queued -= waiting.size;
            if undecodable {
                self.give_up(now, row, DropCause::Reference);
            } else if !keeps || !self.write_frame(now, &row, &data) {
                self.broken = true;
                self.key_wanted.get_or_insert(KeyCause::Repair);
                self.give_up(now, row, DropCause::Late);
            } else {
                self.broken = false;
                let wire = Bytes(self.out.len() as u64);
                self.leaving = Some(SentFrame { wire, ..row });
                return;
            }
        }
        let is_over = self.ended && self.open.is_none() && self.pictures.is_empty();
        if is_over && !self.said_bye {
            let start = self.clock.map_or(Time::ZERO, |(start, _)| start);
            self.packets.report(now, start, true, &mut self.out);
            self.said_bye = true;
        }
    }

    fn waiting(&self, queued: &Queued) -> Waiting {
        let size = Bytes(queued.data.len() as u64);
        Waiting {
            frame: queued.row.frame,
            captured: queued.row.captured,
            key: queued.row.key,
            size,
            behind: self.queued - size,
        }
    }

    /// `false` if the access unit is none.
    fn write_frame(&mut self, now: Time, row: &SentFrame, data: &[u8]) -> bool {
        let start = self.clock.map_or(Time::ZERO, |(start, _)| start);
        let (packets, out) = (&mut self.packets, &mut self.out);
        packets.report_when_due(now, start, out);
        packets.frame(row.timestamp, data, out)
    }

    /// Of the pictures that are not made yet.
    fn let_go(&mut self, now: Time, cause: DropCause) {
        if let Some((frame, at)) = self.held.take() {
            self.skip(now, frame, at);
        }
        for (frame, at) in core::mem::take(&mut self.pictures) {
            let row = self.row(frame, at);
            self.give_up(now, row, cause);
        }
    }

    fn skip(&mut self, now: Time, frame: u64, at: Time) {
        let row = self.row(frame, at);
        self.give_up(now, row, DropCause::Skipped);
    }

    fn give_up(&mut self, now: Time, row: SentFrame, cause: DropCause) {
        let frame = row.frame;
        self.events
            .push((now, Event::FrameDropped { frame, cause }));
        self.rows.push(SentFrame {
            dropped: Some(cause),
            ..row
        });
    }

    /// Of a frame of which nothing else is known.
    fn row(&self, frame: u64, captured: Time) -> SentFrame {
        let ticks = self.config.frame_rate.at(frame).as_nanos() * u128::from(MEDIA_CLOCK);
        // To the nearest tick, so that a receiver finds the number of the frame again.
        let ticks = (ticks + 500_000_000) / 1_000_000_000;
        SentFrame {
            frame,
            timestamp: self.config.timestamp_base.wrapping_add(ticks as u32),
            captured,
            key: false,
            skipped: true,
            target_bits: 0,
            bits: 0,
            wire: Bytes(0),
            left: None,
            dropped: None,
            quality: None,
        }
    }
}
