//! Output of one end of a stream: the progress line, a JSON object per second and the run folder.

use std::fmt::Display;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tidegate_console::progress::Progress;
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_record::{RunWriter, Totals, WriteError};

use super::json::{JsonArgs, JsonLines, rounded};
use super::run_folder::Folder;

/// Output of a sender or a receiver, which adds what only it has. `E` are counts that only some of
/// them have.
pub(crate) struct Reporter<E = ()> {
    progress: Progress,
    folder: Folder,
    json: JsonArgs,
    lines: Option<JsonLines>,
    /// Counts since the last progress line.
    line: Interval<E>,
    /// Counts since the last JSON object.
    object: Interval<E>,
    /// Topics of the lines that are printed once.
    said: Vec<&'static str>,
}

/// Counts of an interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interval<E = ()> {
    since: Time,
    frames: u64,
    bits: u64,
    /// Longest delay of a frame. What it is measured from is up to the stream.
    pub(crate) longest: Duration,
    pub(crate) extra: E,
}

impl<E: Default> Reporter<E> {
    pub(crate) fn new(folder: Folder, json: JsonArgs) -> Self {
        Self {
            progress: Progress::default(),
            folder,
            json,
            lines: json.lines(),
            line: Interval::default(),
            object: Interval::default(),
            said: Vec::new(),
        }
    }

    /// Prints a permanent line.
    pub(crate) fn say(&mut self, line: &str) {
        self.progress.say(line);
    }

    /// Prints a permanent line about `topic`, unless there was one.
    pub(crate) fn say_once(&mut self, topic: &'static str, line: impl Display) {
        if !self.said.contains(&topic) {
            self.said.push(topic);
            self.progress.say(&line.to_string());
        }
    }

    /// Changes the counts of both intervals.
    pub(crate) fn count(&mut self, mut change: impl FnMut(&mut Interval<E>)) {
        change(&mut self.line);
        change(&mut self.object);
    }

    /// Shows the progress line, if it is due: time, rate and the text of `more`.
    pub(crate) fn show_if_due(&mut self, now: Time, more: impl FnOnce(&Interval<E>) -> String) {
        if self.progress.is_due(now) {
            let interval = self.line.restart(now);
            let (rate, more) = (interval.rate(now), more(&interval));
            self.progress
                .show(&format!("{:6.1} s  {rate}{more}", now.as_secs_f64()));
        }
    }

    /// Prints a JSON object, if one is due: `time_s`, `frames`, `rate_bps` and the keys of `more`.
    pub(crate) fn print_if_due(&mut self, now: Time, more: impl FnOnce(&Interval<E>) -> Value) {
        let Some(lines) = &mut self.lines else { return };
        lines.print_if_due(now, || {
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

    /// Creates a run folder that is still to be created.
    pub(crate) fn begin_folder(&mut self) {
        let trouble = self.folder.begin();
        self.tell(trouble);
    }

    /// Whether the run folder is still to be created.
    pub(crate) fn is_folder_due(&self) -> bool {
        self.folder.is_due()
    }

    /// Writes the rows of `rows` and the events to the run folder, if there is one. If that fails,
    /// the stream continues without a folder.
    pub(crate) fn record(
        &mut self,
        now: Time,
        events: &[(Time, Event)],
        rows: impl FnOnce(&mut RunWriter) -> Result<(), WriteError>,
    ) {
        let trouble = self.folder.record(now, events, rows);
        self.tell(trouble);
    }

    /// Completes the run folder, to which `totals` are added, and prints the summary, if it is
    /// requested. The inner result is that of standard output: a failure of the stream is more
    /// important.
    ///
    /// # Errors
    /// The run folder cannot be completed.
    pub(crate) fn finish(mut self, now: Time, totals: Option<Totals>) -> Result<Result<()>> {
        let trouble = self.folder.record_totals(now, totals);
        self.tell(trouble);
        let summary = self.folder.finish(now)?;
        drop(self.progress);
        Ok(self.json.print(summary.as_ref()))
    }

    fn tell(&mut self, trouble: Option<String>) {
        if let Some(trouble) = trouble {
            self.progress.say(&trouble);
        }
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
    use tidegate_record::{Manifest, Side, World};

    use super::*;

    #[test]
    fn a_line_does_not_end_the_interval_of_the_objects() {
        let manifest = Manifest::new(World::Live, "test", Duration::ZERO);
        let folder = Folder::later(None, false, Side::Sender, manifest);
        let mut report = Reporter::<u64>::new(folder, JsonArgs::default());
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let frame = |report: &mut Reporter<u64>, ms| {
            report.count(|counts| {
                counts.frame(8_000);
                counts.delay(Duration::from_millis(ms));
                counts.extra += 1;
            });
        };
        frame(&mut report, 30);
        let line = report.line.restart(at(500));
        assert_eq!((line.frames, line.extra), (1, 1));
        frame(&mut report, 20);
        let line = report.line.restart(at(1_000));
        assert_eq!((line.frames, line.longest), (1, Duration::from_millis(20)));
        assert_eq!(line.rate(at(1_000)), Rate::bps(16_000));
        assert!((line.frame_rate(at(1_000)) - 2.0).abs() < 1e-9);
        let object = report.object.restart(at(1_000));
        assert_eq!(
            (object.frames, object.longest),
            (2, Duration::from_millis(30))
        );
    }
}
