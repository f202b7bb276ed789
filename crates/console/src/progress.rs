//! Progress of a live session: on a terminal one line that is overwritten, otherwise a line every
//! second for logs.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use tidegate_core::units::Time;

/// Progress output on standard error.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    /// The terminal line is not empty.
    dirty: bool,
    next: Time,
}

impl Default for Progress {
    /// The first line is due after one interval.
    fn default() -> Self {
        let terminal = stderr().is_terminal();
        Self {
            terminal,
            dirty: false,
            next: Time::ZERO + interval(terminal),
        }
    }
}

impl Progress {
    /// Whether a progress line is due.
    pub fn is_due(&mut self, now: Time) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + interval(self.terminal);
        true
    }

    /// Shows the progress line.
    pub fn show(&mut self, line: &str) {
        if self.terminal {
            draw(format_args!("\r{line}\x1b[K"));
            self.dirty = true;
        } else {
            say(line);
        }
    }

    /// Prints a permanent line.
    pub fn say(&mut self, line: &str) {
        let clear = if std::mem::take(&mut self.dirty) {
            "\r\x1b[K"
        } else {
            ""
        };
        say(format_args!("{clear}{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.dirty {
            say("");
        }
    }
}

/// Progress bar on a terminal.
#[derive(Debug)]
pub struct Bar {
    what: &'static str,
    last: Option<u32>,
}

impl Bar {
    /// A bar that is not drawn yet; `what` precedes the percentage.
    pub fn new(what: &'static str) -> Self {
        Self { what, last: None }
    }

    /// Draws the bar at `share`, in 0..=1, if standard error is a terminal.
    pub fn show(&mut self, share: f64) {
        let percent = (share.clamp(0.0, 1.0) * 100.0) as u32;
        if std::io::stderr().is_terminal() && self.last.replace(percent) != Some(percent) {
            draw(format_args!("\r{} {percent:3} %", self.what));
        }
    }

    /// Removes the bar.
    pub fn done(&mut self) {
        if self.last.is_some() && std::io::stderr().is_terminal() {
            draw("\r\x1b[K");
        }
    }
}

/// Prints a line on standard error. Write errors are ignored, so that the work continues.
pub fn say(line: impl Display) {
    draw(format_args!("{line}\n"));
}

/// Like [`say`], without a newline.
pub fn draw(text: impl Display) {
    let _ = write!(stderr(), "{text}");
}

/// A duration in whole milliseconds, or in tenths below ten.
pub fn millis(span: Duration) -> String {
    let ms = span.as_secs_f64() * 1e3;
    if ms < 9.95 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.0} ms")
    }
}

/// A number of things, as "1 frame" or "2 frames".
pub fn counted(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{s}")
}

fn interval(terminal: bool) -> Duration {
    if terminal {
        Duration::from_millis(250)
    } else {
        Duration::from_secs(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_durations_have_a_decimal() {
        assert_eq!(millis(Duration::from_micros(420)), "0.4 ms");
        assert_eq!(millis(Duration::from_micros(9_949)), "9.9 ms");
        assert_eq!(millis(Duration::from_millis(43)), "43 ms");
    }

    #[test]
    fn one_is_singular() {
        let counts = [0, 1, 2].map(|number| counted(number, "frame"));
        assert_eq!(counts, ["0 frames", "1 frame", "2 frames"]);
    }

    #[test]
    fn a_line_is_due_once_per_interval() {
        let mut progress = Progress::default();
        assert!(!progress.is_due(Time::ZERO));
        assert!(progress.is_due(Time::from_secs(2)));
        assert!(!progress.is_due(Time::from_secs(2)));
        assert!(progress.is_due(Time::from_secs(4)));
    }
}
