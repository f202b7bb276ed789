//! Counts of a live session since its last progress line and since its last JSON object.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::units::{Bytes, Rate, Time};

use super::json::{JsonLines, rounded};

/// Counts of the two intervals that a session reports. `E` are counts that only some sessions have.
#[derive(Clone, Debug)]
pub(crate) struct Intervals<E = ()> {
    line: Interval<E>,
    object: Interval<E>,
    json: Option<JsonLines>,
}

/// Counts of an interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interval<E = ()> {
    since: Time,
    pub(crate) frames: u64,
    bits: u64,
    /// Longest delay of a frame. What it is measured from is up to the session.
    pub(crate) longest: Duration,
    pub(crate) extra: E,
}

impl<E: Default> Intervals<E> {
    pub(crate) fn new(json: Option<JsonLines>) -> Self {
        Self {
            line: Interval::default(),
            object: Interval::default(),
            json,
        }
    }

    /// Changes the counts of both intervals.
    pub(crate) fn count(&mut self, mut change: impl FnMut(&mut Interval<E>)) {
        change(&mut self.line);
        change(&mut self.object);
    }

    /// The counts for a progress line at `now`, from which on they start again.
    pub(crate) fn line(&mut self, now: Time) -> Interval<E> {
        self.line.restart(now)
    }

    /// Prints a JSON object, if one is due: `time_s`, `frames`, `rate_bps` and the keys of `more`.
    pub(crate) fn print_if_due(&mut self, now: Time, more: impl FnOnce(&Interval<E>) -> Value) {
        let Some(json) = &mut self.json else { return };
        json.print_if_due(now, || {
            let interval = self.object.restart(now);
            let mut object = json!({
                "time_s": rounded(now.as_secs_f64()),
                "frames": interval.frames,
                "rate_bps": interval.rate(now).as_f64(),
            });
            if let (Value::Object(object), Value::Object(more)) = (&mut object, more(&interval)) {
                object.extend(more);
            }
            object
        });
    }
}

impl<E: Default> Interval<E> {
    fn restart(&mut self, now: Time) -> Self {
        let next = Self {
            since: now,
            ..Self::default()
        };
        std::mem::replace(self, next)
    }

    /// Counts a frame.
    pub(crate) fn frame(&mut self, bits: u64) {
        self.frames += 1;
        self.bits += bits;
    }

    /// Considers the delay of a frame.
    pub(crate) fn delay(&mut self, delay: Duration) {
        self.longest = self.longest.max(delay);
    }

    /// Mean rate of the frames until `now`.
    pub(crate) fn rate(&self, now: Time) -> Rate {
        Bytes(self.bits / 8) / self.span(now)
    }

    /// Frames per second until `now`.
    pub(crate) fn frame_rate(&self, now: Time) -> f64 {
        self.frames as f64 / self.span(now).as_secs_f64()
    }

    fn span(&self, now: Time) -> Duration {
        now.since(self.since).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_does_not_end_the_interval_of_the_objects() {
        let mut intervals = Intervals::<u64>::new(None);
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let frame = |intervals: &mut Intervals<u64>, ms| {
            intervals.count(|counts| {
                counts.frame(8_000);
                counts.delay(Duration::from_millis(ms));
                counts.extra += 1;
            });
        };
        frame(&mut intervals, 30);
        let line = intervals.line(at(500));
        assert_eq!((line.frames, line.extra), (1, 1));
        frame(&mut intervals, 20);
        let line = intervals.line(at(1_000));
        assert_eq!((line.frames, line.longest), (1, Duration::from_millis(20)));
        assert_eq!(line.rate(at(1_000)), Rate::bps(16_000));
        assert!((line.frame_rate(at(1_000)) - 2.0).abs() < 1e-9);
        let object = intervals.object.restart(at(1_000));
        assert_eq!(
            (object.frames, object.longest),
            (2, Duration::from_millis(30))
        );
    }
}
