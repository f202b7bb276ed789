//! Capture clock, and the queue of captured frames before the encoder.

use core::time::Duration;
use std::collections::VecDeque;

use crate::media::{FrameOrder, FrameRate};
use crate::units::{Bytes, Time};

/// Captures frames at fixed times and queues them until the sender orders their encoding.
#[derive(Debug)]
pub(super) struct Capture {
    rate: FrameRate,
    start: Option<Time>,
    next: u64,
    end: Option<u64>,
    /// Frame ranges (first, end) without capture; the earliest is last.
    pauses: Vec<(u64, u64)>,
    waiting: VecDeque<u64>,
    open: Option<Open>,
    /// Nothing is captured until [`Capture::resume`].
    is_paused: bool,
    /// Since when the encoder has had an order without a pause.
    busy_since: Time,
    /// Time of the last answer.
    answered: Option<Time>,
    /// Encoding time: a decaying maximum.
    lag: Duration,
}

impl Capture {
    pub(super) fn new(
        rate: FrameRate,
        frames: Option<u64>,
        pauses: &[(Duration, Duration)],
    ) -> Self {
        let span = |(from, to): &(Duration, Duration)| (first_at(rate, *from), first_at(rate, *to));
        let mut capture = Self {
            rate,
            start: None,
            next: 0,
            end: frames,
            pauses: pauses.iter().rev().map(span).collect(),
            waiting: VecDeque::new(),
            open: None,
            is_paused: false,
            busy_since: Time::ZERO,
            answered: None,
            lag: Duration::ZERO,
        };
        capture.skip_pauses();
        capture
    }

    pub(super) fn start(&mut self, now: Time) {
        self.start.get_or_insert(now);
    }

    /// Discards the queue, and captures nothing until [`resume`](Self::resume).
    pub(super) fn pause(&mut self) {
        self.is_paused = true;
        self.waiting.clear();
    }

    /// Captures the next frame at `now`, and the others after it.
    pub(super) fn resume(&mut self, now: Time) {
        if core::mem::take(&mut self.is_paused) && self.start.is_some() {
            self.start = Some(now.before(self.rate.at(self.next)));
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Starts again with the first frame at `now`. No frame may have been ordered.
    pub(super) fn restart(&mut self, now: Time) {
        self.start = Some(now);
        self.next = 0;
        self.waiting.clear();
        self.skip_pauses();
    }

    /// Queues the frames due at `now`.
    pub(super) fn advance(&mut self, now: Time) {
        while self.next().is_some_and(|at| at <= now) {
            self.waiting.push_back(self.next);
            self.next += 1;
            self.skip_pauses();
        }
    }

    /// Skips the frames in which the camera is off.
    fn skip_pauses(&mut self) {
        while let Some((from, to)) = self.pauses.last().copied()
            && from <= self.next
        {
            self.next = self.next.max(to);
            self.pauses.pop();
        }
    }

    /// Capture time of the next frame.
    pub(super) fn next(&self) -> Option<Time> {
        let more = self.has_more() && !self.is_paused;
        more.then(|| self.time(self.next)).flatten()
    }

    /// Whether the stream has further frames.
    fn has_more(&self) -> bool {
        self.end.is_none_or(|end| self.next < end)
    }

    /// Ends capturing and discards the queue.
    pub(super) fn end(&mut self) {
        self.end = Some(self.next);
        self.waiting.clear();
    }

    /// The oldest queued frame, and its capture time.
    pub(super) fn front(&self) -> Option<(u64, Time)> {
        let &frame = self.waiting.front()?;
        Some((frame, self.time(frame)?))
    }

    pub(super) fn pop(&mut self) {
        self.waiting.pop_front();
    }

    /// Whether the queue exceeds its limit.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting.len() > MAX_WAITING
    }

    /// Number of queued frames.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Moves the oldest queued frame to the encoder.
    pub(super) fn order(&mut self, now: Time, order: FrameOrder, budget: Bytes) {
        self.waiting.pop_front();
        if self.answered != Some(now) {
            self.busy_since = now;
        }
        self.open = Some(Open {
            since: now,
            order,
            budget,
        });
    }

    pub(super) fn is_busy(&self) -> bool {
        self.open.is_some()
    }

    /// The encoder has finished the open order.
    pub(super) fn answer(&mut self, now: Time) -> Option<(FrameOrder, Bytes)> {
        let open = self.open.take()?;
        self.answered = Some(now);
        // A slow frame counts immediately and decays within a second or two.
        self.lag = now.since(open.since).max(self.lag * 31 / 32);
        Some((open.order, open.budget))
    }

    /// There is no picture for the open order. The time of the answer is that of the source's next
    /// picture and no encoding time.
    pub(super) fn withdraw(&mut self, now: Time) {
        if self.open.take().is_some() {
            self.answered = Some(now);
        }
    }

    /// The encoder was restarted before it read the frame of the open order: the frame, which is now
    /// the oldest in the queue, and the encoding time is unknown.
    pub(super) fn requeue(&mut self, now: Time) -> Option<u64> {
        let frame = self.open.take()?.order.frame;
        self.answered = Some(now);
        self.lag = Duration::ZERO;
        if !self.is_paused {
            self.waiting.push_front(frame);
        }
        Some(frame)
    }

    /// Whether a queued frame captured at `captured` has waited for the encoder alone, which has
    /// been busy from then until now.
    pub(super) fn waits_for_encoder(&self, now: Time, captured: Time) -> bool {
        self.answered == Some(now) && captured >= self.busy_since
    }

    /// Recent maximum of the encoding time.
    pub(super) fn lag(&self) -> Duration {
        self.lag
    }

    /// Number of frames captured so far.
    pub(super) fn made(&self) -> u64 {
        self.next
    }

    /// Whether the stream has ended and no frame is pending.
    pub(super) fn is_over(&self) -> bool {
        self.start.is_some() && !self.has_more() && self.waiting.is_empty() && !self.is_busy()
    }

    fn time(&self, frame: u64) -> Option<Time> {
        Some(self.start? + self.rate.at(frame))
    }
}

/// The first frame captured at or after `at`.
fn first_at(rate: FrameRate, at: Duration) -> u64 {
    let frames = at.as_nanos() * u128::from(rate.num);
    let frames = frames.div_ceil(1_000_000_000 * u128::from(rate.den.max(1)));
    u64::try_from(frames).unwrap_or(u64::MAX)
}

/// The open order of the encoder.
#[derive(Debug)]
struct Open {
    since: Time,
    order: FrameOrder,
    budget: Bytes,
}

/// Queue limit, which a source must be able to buffer: one second at 60 frames per second.
const MAX_WAITING: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;

    #[test]
    fn no_frames_are_captured_while_the_camera_is_off() {
        let second = Duration::from_secs;
        let pauses = [(second(1), second(3)), (second(4), second(5))];
        let mut capture = Capture::new(FrameRate::fps(10), Some(55), &pauses);
        capture.start(Time::ZERO);
        capture.advance(Time::from_millis(2_000));
        assert_eq!(capture.next(), Some(Time::from_secs(3)));
        assert_eq!(capture.waiting(), 10);
        capture.advance(Time::from_secs(60));
        let frames: Vec<u64> = capture.waiting.iter().copied().collect();
        let wanted: Vec<u64> = (0..10).chain(30..40).chain(50..55).collect();
        assert_eq!(frames, wanted);
        assert_eq!(capture.next(), None);
    }

    #[test]
    fn a_pause_shifts_the_capture_times() {
        let at = Time::from_millis;
        let mut capture = Capture::new(FrameRate::fps(10), Some(5), &[]);
        capture.start(at(1_000));
        capture.advance(at(1_250));
        assert_eq!(capture.waiting(), 3);
        capture.pause();
        capture.advance(at(9_000));
        assert_eq!((capture.waiting(), capture.next()), (0, None));
        assert!(!capture.is_over());
        capture.resume(at(9_000));
        capture.advance(at(9_000));
        assert_eq!(capture.front(), Some((3, at(9_000))));
        assert_eq!(capture.next(), Some(at(9_100)));
        // Without a pause nothing changes.
        capture.resume(at(9_050));
        assert_eq!(capture.next(), Some(at(9_100)));
    }

    #[test]
    fn a_frame_waits_for_the_encoder_if_that_was_busy_since_its_capture() {
        let at = Time::from_millis;
        let mut capture = Capture::new(FrameRate::fps(10), None, &[]);
        capture.start(Time::ZERO);
        capture.advance(at(300));
        let order = |frame: u64| FrameOrder {
            frame,
            captured: at(frame * 100),
            rate: Rate::kbps(500),
            key: false,
        };
        // Frames 0 to 3 have waited for the network, and frame 4 for the encoder.
        capture.order(at(300), order(0), Bytes(0));
        assert!(capture.answer(at(450)).is_some());
        assert!(!capture.waits_for_encoder(at(450), at(200)));
        assert!(capture.waits_for_encoder(at(450), at(400)));
        capture.order(at(450), order(1), Bytes(0));
        assert!(capture.answer(at(600)).is_some());
        assert!(capture.waits_for_encoder(at(600), at(400)));
        // After a pause of the encoder.
        assert!(!capture.waits_for_encoder(at(610), at(400)));
        capture.order(at(610), order(2), Bytes(0));
        assert!(capture.answer(at(700)).is_some());
        assert!(!capture.waits_for_encoder(at(700), at(400)));
    }

    #[test]
    fn the_lag_rises_immediately_and_decays_slowly() {
        let mut capture = Capture::new(FrameRate::fps(30), None, &[]);
        capture.start(Time::ZERO);
        let mut encode = |frame: u64, millis: u64| {
            let now = Time::ZERO + FrameRate::fps(30).at(frame);
            capture.advance(now);
            let order = FrameOrder {
                frame,
                captured: now,
                rate: Rate::kbps(500),
                key: false,
            };
            capture.order(now, order, Bytes(2_000));
            let answer = capture.answer(now + Duration::from_millis(millis));
            assert_eq!(answer, Some((order, Bytes(2_000))));
            capture.lag().as_millis()
        };
        assert_eq!(encode(0, 5), 5);
        assert_eq!(encode(1, 30), 30);
        assert_eq!(encode(2, 5), 29);
        assert_eq!((3..90).map(|frame| encode(frame, 5)).last(), Some(5));
        assert!(capture.answer(Time::from_secs(9)).is_none());
    }
}
