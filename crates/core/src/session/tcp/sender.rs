//! Sender of a media session over TCP: consumes pictures, produces bytes for a socket.

use core::time::Duration;
use std::collections::VecDeque;

use super::packets::Packets;
use super::rate_policy::{Advice, Backlog, Place, RatePolicy, Verdict, Waiting, Work};
use crate::media::{Codec, EncodeError, Encoded, FrameOrder, FrameRate, MEDIA_CLOCK};
use crate::session::sender::SentFrame;
use crate::tcp_rate::{EventNotification, FrameDecision, RateReduction, Subscription, TcpView};
use crate::trace::{DropCause, Event, KeyCause};
use crate::units::{Bytes, Rate, Time};
use crate::wire::ntp::Ntp;
use crate::wire::rtcp::Cname;

/// Configuration of a [`TcpSender`].
#[derive(Clone, Debug)]
pub struct TcpSenderConfig {
    /// Codec of the encoder.
    pub codec: Codec,
    /// SSRC of the stream.
    pub ssrc: u32,
    /// RTP timestamp of frame 0.
    pub timestamp_base: u32,
    /// Canonical name (RFC 3550 section 6.5.1).
    pub cname: Cname,
    /// Wall-clock time of the driver's epoch.
    pub epoch: Ntp,
    /// Frame rate of the source. RTP timestamps are frame numbers at this rate, independent of the
    /// arrival time of a picture.
    pub frame_rate: FrameRate,
    /// Source of the capture times.
    pub capture: Capture,
    /// Maximum RTP packet size, without the length field; 300 to 65,535 bytes.
    pub packet_size: Bytes,
    /// Limit of the application backlog, above which pictures are skipped. Bounds the memory while
    /// TCP accepts nothing for minutes.
    pub most_queued: Bytes,
    /// Stage at which frames wait.
    pub place: Place,
    /// Maximum number of waiting pictures in [`Place::Pictures`], at least one. Beyond it the
    /// oldest is skipped. A source with a limited number of buffers sets this number.
    pub most_pictures: usize,
}

/// Source of the capture times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// A clock at the frame rate.
    Clock {
        /// Number of frames to capture; `None` is unlimited.
        frames: Option<u64>,
    },
    /// The source, through [`TcpSender::on_picture`].
    Source,
}

/// Sends one stream over TCP.
///
/// Contract: after each input, drain [`poll_order`](Self::poll_order) and answer each order with
/// [`on_encoded`](Self::on_encoded), write the bytes of [`poll_write`](Self::poll_write) as far as
/// the socket accepts them, and sleep until [`next_timeout`](Self::next_timeout) or until the
/// socket is writable. If the policy depends on the state of the connection, pass it by
/// [`on_view`](Self::on_view) before each iteration and after each written frame, and poll again
/// soon while the sender [waits for room](Self::waits_for_room).
#[derive(Debug)]
pub struct TcpSender {
    config: TcpSenderConfig,
    policy: Box<dyn RatePolicy>,
    /// Capture time of frame 0, and the number of the next frame.
    clock: Option<(Time, u64)>,
    /// Capturing has ended.
    ended: bool,
    /// Picture that waits for the encoder.
    held: Option<(u64, Time)>,
    /// Pictures that wait for room in the connection, oldest first.
    pictures: VecDeque<(u64, Time)>,
    /// The order that the encoder is working on.
    open: Option<FrameOrder>,
    /// Time of this order.
    ordered: Time,
    order: Option<FrameOrder>,
    key_wanted: Option<KeyCause>,
    queue: VecDeque<Queued>,
    queued: Bytes,
    /// Kernel part of the backlog.
    kernel: Backlog,
    writing: Writing,
    /// A dropped frame makes its dependents undecodable.
    broken: bool,
    packets: Packets,
    bye_queued: bool,
    last_rate: Option<Rate>,
    rows: Vec<SentFrame>,
    events: Vec<(Time, Event)>,
}

/// Bytes being written.
#[derive(Debug, Default)]
struct Writing {
    bytes: Vec<u8>,
    /// How many of them the socket has accepted.
    accepted: usize,
    /// The frame in them.
    frame: Option<SentFrame>,
}

impl Writing {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.accepted..]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.accepted = 0;
    }
}

#[derive(Debug)]
struct Queued {
    row: SentFrame,
    data: Vec<u8>,
}

impl TcpSender {
    /// A sender that captures its first frame at the first timeout.
    pub fn new(config: TcpSenderConfig, policy: Box<dyn RatePolicy>) -> Self {
        let packets = Packets::new(&config);
        Self {
            config,
            policy,
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
            writing: Writing::default(),
            broken: false,
            packets,
            bye_queued: false,
            last_rate: None,
            rows: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Processes the deadline of [`next_timeout`](Self::next_timeout). Early calls are harmless.
    pub fn on_timeout(&mut self, now: Time) {
        self.policy.on_timeout(now);
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

    /// Time of the next capture or of the policy's timer, whichever is earlier.
    pub fn next_timeout(&self) -> Option<Time> {
        let captures = match (self.config.capture, self.clock) {
            (Capture::Source, _) => Time::FAR,
            (Capture::Clock { .. }, _) if self.ended => Time::FAR,
            (Capture::Clock { .. }, None) => Time::ZERO,
            (Capture::Clock { .. }, Some((start, next))) => start + self.config.frame_rate.at(next),
        };
        Some(captures.min(self.policy.next_timeout())).filter(|next| *next != Time::FAR)
    }

    /// The source delivers picture `frame`, captured at `at`. Numbers increase and may have gaps.
    pub fn on_picture(&mut self, now: Time, frame: u64, at: Time) {
        if !self.ended {
            self.picture(now, frame, at);
        }
    }

    /// Stops capturing. Captured pictures are encoded and sent, then a BYE.
    pub fn stop_capture(&mut self) {
        self.ended = true;
    }

    /// Passes external advice to the policy.
    pub fn advise(&mut self, now: Time, advice: Advice) {
        self.policy.advise(now, advice);
    }

    /// Updates the bytes in the kernel's send queue: unsent and unacknowledged.
    pub fn on_kernel(&mut self, unsent: Bytes, unacknowledged: Bytes) {
        self.kernel.unsent = unsent;
        self.kernel.unacknowledged = unacknowledged;
    }

    /// Events of the connection that the caller must pass to [`on_event`](Self::on_event).
    pub fn subscribed(&self) -> Subscription {
        self.policy.subscribed()
    }

    /// Updates the state of the connection.
    pub fn on_view(&mut self, now: Time, view: &TcpView) {
        self.policy.on_view(now, view);
    }

    /// An event occurred on the connection; `view` is its state after the event.
    pub fn on_event(&mut self, now: Time, notification: EventNotification, view: &TcpView) {
        self.policy
            .on_event(now, notification, view, &mut self.events);
    }

    /// The policy's responses to events since the last call.
    pub fn take_rate_reductions(&mut self) -> Vec<RateReduction> {
        self.policy.take_rate_reductions()
    }

    /// Whether data waits only for room in the connection, neither for the encoder nor for the
    /// socket to accept a partly written frame.
    pub fn waits_for_room(&self) -> bool {
        let writing = !self.writing.rest().is_empty();
        let waits = !self.queue.is_empty() || !self.pictures.is_empty();
        waits && !writing && self.open.is_none()
    }

    /// The next order for the encoder.
    pub fn poll_order(&mut self, now: Time) -> Option<FrameOrder> {
        self.admit_pictures(now);
        self.order.take()
    }

    /// The encoder has finished the open order after `took`. An error ends the stream: encoded
    /// frames are still sent, and neither this picture nor those behind it get rows.
    pub fn on_encoded(&mut self, now: Time, took: Duration, result: Result<Encoded, EncodeError>) {
        let Some(order) = self.open.take() else {
            return;
        };
        if result == Err(EncodeError::Restarted) {
            self.key_wanted.get_or_insert(KeyCause::Restarted);
            return self.begin(now, order.frame, order.captured, order.rate);
        }
        if result == Err(EncodeError::Unchanged) {
            // The frame rate of the source varies.
        } else if let Ok(encoded) = result {
            let work = Work {
                ordered: self.ordered,
                took,
            };
            self.policy.on_encoded(now, work, &mut self.events);
            self.enqueue(&order, encoded);
        } else {
            // The picture does not exist, nor do those behind it: the source has ended.
            self.stop_capture();
            self.held = None;
            self.pictures.clear();
        }
        if let Some((frame, at)) = self.held.take() {
            self.picture(now, frame, at);
        }
    }

    /// Bytes for the socket; empty if there is nothing to write now.
    pub fn poll_write(&mut self, now: Time) -> &[u8] {
        if self.writing.rest().is_empty() {
            self.writing.clear();
            self.refill(now);
        }
        self.writing.rest()
    }

    /// The socket accepted `count` of these bytes.
    pub fn on_written(&mut self, now: Time, count: usize) {
        let writing = &mut self.writing;
        writing.accepted = (writing.accepted + count).min(writing.bytes.len());
        if writing.rest().is_empty()
            && let Some(mut row) = writing.frame.take()
        {
            row.left = Some(now);
            self.rows.push(row);
        }
    }

    /// The connection is closed: pending frames are dropped.
    pub fn on_closed(&mut self, now: Time) {
        self.stop_capture();
        self.drop_pictures(now, DropCause::Ended);
        let leaving = self.writing.frame.take();
        let waiting = self.queue.drain(..).map(|queued| queued.row);
        let lost: Vec<_> = leaving.into_iter().chain(waiting).collect();
        for row in lost {
            self.give_up(now, row, DropCause::Ended);
        }
        self.queued = Bytes(0);
        self.writing.clear();
        self.bye_queued = true;
    }

    /// Whether the BYE has been written.
    pub fn is_done(&self) -> bool {
        self.bye_queued && self.writing.rest().is_empty() && self.open.is_none()
    }

    /// Bytes that wait, by place.
    pub fn backlog(&self) -> Backlog {
        Backlog {
            queued: self.queued + Bytes(self.writing.rest().len() as u64),
            ..self.kernel
        }
    }

    /// Number of RTP packets of the frames that were passed on.
    pub fn packets(&self) -> u64 {
        self.packets.count()
    }

    /// Rate that the encoder would be ordered at now.
    pub fn target(&self) -> Rate {
        self.policy.target()
    }

    /// Moves rows of finished frames, in the order in which they finished, and events.
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
            // The encoder is busy: keep the newest picture.
            if let Some((older, at)) = self.held.replace((frame, at)) {
                self.skip(now, older, at);
            }
            return;
        }
        let backlog = self.backlog();
        self.policy.on_backlog(now, backlog);
        let verdict = match self.policy.order(now, frame) {
            _ if backlog.queued > self.config.most_queued => Verdict::Skip,
            verdict => verdict,
        };
        let Verdict::Encode(rate) = verdict else {
            return self.skip(now, frame, at);
        };
        self.begin(now, frame, at, rate);
    }

    /// Orders the oldest picture if the connection has room, and skips pictures that are not worth
    /// encoding. Only one order is open at a time, because its size affects the next decision.
    fn admit_pictures(&mut self, now: Time) {
        let written = self.writing.rest().is_empty();
        let idle = self.open.is_none() && self.queue.is_empty() && written;
        while idle && let Some((frame, at)) = self.pictures.front().copied() {
            let backlog = self.backlog();
            self.policy.on_backlog(now, backlog);
            match self.policy.admit(now, frame, at) {
                FrameDecision::Wait => return,
                FrameDecision::Skip => {
                    let cause = if self.policy.is_late(now, at) {
                        DropCause::Late
                    } else {
                        DropCause::Skipped
                    };
                    let row = self.row(frame, at);
                    self.give_up(now, row, cause);
                }
                FrameDecision::Encode(rate) => {
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

    /// Writes the next frame that is worth sending, or the BYE.
    fn refill(&mut self, now: Time) {
        while let Some(front) = self.queue.front() {
            let (waiting, undecodable) = (self.waiting(front), self.broken && !front.row.key);
            let asks = self.config.place != Place::Socket && !undecodable;
            let keeps = !asks || self.policy.keeps(now, &waiting);
            if asks && keeps && !self.policy.has_room(now) {
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
                let wire = Bytes(self.writing.bytes.len() as u64);
                self.writing.frame = Some(SentFrame { wire, ..row });
                return;
            }
        }
        let is_over = self.ended && self.open.is_none() && self.pictures.is_empty();
        if is_over && !self.bye_queued {
            let start = self.clock.map_or(Time::ZERO, |(start, _)| start);
            let out = &mut self.writing.bytes;
            self.packets.report(now, start, true, out);
            self.bye_queued = true;
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

    /// Returns false if the access unit is invalid.
    fn write_frame(&mut self, now: Time, row: &SentFrame, data: &[u8]) -> bool {
        let start = self.clock.map_or(Time::ZERO, |(start, _)| start);
        let (packets, out) = (&mut self.packets, &mut self.writing.bytes);
        packets.report_when_due(now, start, out);
        packets.frame(row.timestamp, data, out)
    }

    /// Drops all pictures that are not encoded yet.
    fn drop_pictures(&mut self, now: Time, cause: DropCause) {
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

    /// Row of a frame that was not encoded.
    fn row(&self, frame: u64, captured: Time) -> SentFrame {
        let ticks = self.config.frame_rate.at(frame).as_nanos() * u128::from(MEDIA_CLOCK);
        // Rounds to the nearest tick, so that a receiver can recover the frame number.
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
