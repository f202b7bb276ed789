//! Padding on the way to a rendition that is out of reach.
//!
//! A controller allows at most about twice the rate that has arrived (RFC 5348 section 4.3), and a stored
//! rendition sends its own rate, however much is allowed. So a rendition of more than about twice the
//! present rate would never be allowed. Filler data (H.264 section 7.3.2.7), which every decoder discards,
//! fills frames up to the allowed rate for some seconds. If the path carries it, the allowed rate grows
//! until the next rendition fits at a key frame; otherwise the next attempt is later.

use tidegate_core::units::Rate;

/// Attempts of a stream. Times are in seconds of its frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Climb {
    state: State,
    /// Wait after the next attempt that fails, at least.
    wait: f64,
    /// Time of the last change to a higher rendition after an attempt.
    climbed: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// No padding before this time.
    Waiting(f64),
    Padding {
        since: f64,
        /// Highest allowed rate in bit/s, and the time of its last growth.
        best: (f64, f64),
    },
}

/// Rates of a group of pictures, in bit/s without headers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ladder {
    /// Rate of the present rendition.
    pub(super) present: f64,
    /// Rate of the next higher one.
    pub(super) next: f64,
}

impl Climb {
    /// Without an attempt in the first seconds, in which a controller starts.
    pub(super) fn new() -> Self {
        Self {
            state: State::Waiting(FIRST_WAIT),
            wait: MIN_WAIT,
            climbed: None,
        }
    }

    /// Rate up to which the frame at `now` is filled; `None` without an attempt. `order` is the rate of
    /// the frame's order, and `allowed` its mean, in bit/s.
    pub(super) fn rate(
        &mut self,
        now: f64,
        ladder: Option<Ladder>,
        (order, allowed): (f64, f64),
    ) -> Option<f64> {
        let Some(ladder) = ladder else {
            self.end(now, false);
            return None;
        };
        match self.state {
            State::Waiting(until) => {
                // Otherwise the rendition fits by itself, or the path has shown its limit.
                let is_out_of_reach = ladder.next * super::TRIAL > ladder.present * MAX_GROWTH;
                let is_free = allowed >= ladder.present * MIN_ROOM;
                if now < until || !is_out_of_reach || !is_free {
                    return None;
                }
                self.state = State::Padding {
                    since: now,
                    best: (allowed, now),
                };
            }
            State::Padding { since, best } => {
                let best = if allowed >= best.0 * GROWTH || allowed >= ladder.next {
                    (allowed, now)
                } else {
                    best
                };
                self.state = State::Padding { since, best };
                // Between seldom reports the allowed rate is the one that has arrived again. Below the
                // rendition it shows that the path does not carry more.
                let is_lower = allowed < ladder.present;
                if is_lower || now - best.1 > PATIENCE || now - since > LONGEST {
                    self.end(now, true);
                    return None;
                }
            }
        }
        Some(order.min(ladder.next * super::UPWARD))
    }

    /// A key frame selected a higher or lower rendition.
    pub(super) fn on_change(&mut self, now: f64, is_higher: bool) {
        let is_padding = matches!(self.state, State::Padding { .. });
        if is_higher {
            if is_padding {
                self.end(now, false);
                self.climbed = Some(now);
            }
            return;
        }
        // The path did not carry what it had allowed, or not for long.
        let lasted = self.climbed.take().map(|at| now - at);
        if lasted.is_some_and(|lasted| lasted >= RETAINED) {
            self.wait = MIN_WAIT;
        } else if is_padding || lasted.is_some() {
            self.end(now, true);
        }
    }

    /// Ends an attempt. At most a fifth of the time is spent on attempts.
    fn end(&mut self, now: f64, is_failure: bool) {
        let spent = match self.state {
            State::Padding { since, .. } => now - since,
            State::Waiting(_) if !is_failure => return,
            State::Waiting(_) => 0.0,
        };
        if is_failure {
            self.wait = (self.wait * 2.0).min(LONGEST_WAIT);
        }
        self.state = State::Waiting(now + self.wait.max(spent * 4.0));
    }
}

/// Appends filler data to an access unit in byte-stream format, up to `bytes`, in units of a packet at most.
pub(super) fn fill(data: &mut Vec<u8>, bytes: usize) {
    while let Some(rest) = bytes.checked_sub(data.len())
        && rest >= MIN_FILLER
    {
        let body = rest.min(MAX_FILLER) - START.len() - 1;
        data.extend_from_slice(&START);
        data.resize(data.len() + body, 0xff);
        // The stop bit.
        data.push(0x80);
    }
}

/// Bytes of a frame at a rate.
pub(super) fn bytes(rate: f64, frames_per_second: f64) -> usize {
    (Rate::from_f64(rate).as_f64() / frames_per_second / 8.0) as usize
}

/// Start code and header of a unit of filler data: type 12, not for reference.
const START: [u8; 5] = [0, 0, 0, 1, 12];
/// A smaller unit would be mostly headers.
const MIN_FILLER: usize = 100;
/// Fits into a packet, so that a loss is not one of a part of a unit.
const MAX_FILLER: usize = 1_000;

/// Increase of the allowed rate over the one that arrives, at most.
const MAX_GROWTH: f64 = 2.0;
/// An attempt begins if so many times the present rate is allowed. With less, the path is near its limit.
const MIN_ROOM: f64 = 1.5;
/// The attempt continues as long as the allowed rate grows by this factor within [`PATIENCE`].
const GROWTH: f64 = 1.1;
/// In seconds: the longest interval of receiver reports (RFC 3550 section 6.2) and a round trip.
const PATIENCE: f64 = 7.0;
/// In seconds: doublings of four reports.
const LONGEST: f64 = 28.0;
/// Time in seconds before the first attempt.
const FIRST_WAIT: f64 = 2.0;
/// Waits in seconds after an attempt. They double with each failure.
const MIN_WAIT: f64 = 8.0;
const LONGEST_WAIT: f64 = 300.0;
/// A higher rendition that lasts for so many seconds is no failure.
const RETAINED: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    const FPS: f64 = 25.0;
    const LADDER: Ladder = Ladder {
        present: 1e6,
        next: 5e6,
    };

    /// A stream over a path of a capacity with a controller that allows twice the rate that has arrived a
    /// round trip ago, and three quarters of the capacity after a loss. Returns the share of time with
    /// padding, the time at which the next rendition is allowed, and the attempts.
    fn play(capacity: f64, seconds: f64) -> (f64, Option<f64>, usize) {
        let mut climb = Climb::new();
        let (mut allowed, mut padded, mut attempts) = (2e6, 0, 0);
        let (mut was_padding, frames) = (false, (seconds * FPS) as u32);
        for frame in 0..frames {
            let now = f64::from(frame) / FPS;
            let rate = climb.rate(now, Some(LADDER), (allowed, allowed));
            let sent = rate.map_or(LADDER.present, |rate| rate.max(LADDER.present));
            assert!(sent <= allowed, "{sent} of {allowed}");
            attempts += usize::from(rate.is_some() && !was_padding);
            was_padding = rate.is_some();
            padded += u32::from(was_padding);
            if allowed >= LADDER.next {
                return (
                    f64::from(padded) / f64::from(frame + 1),
                    Some(now),
                    attempts,
                );
            }
            // Half of the way per frame: a round trip of two or three frames.
            let most = if sent > capacity {
                0.75 * capacity
            } else {
                2.0 * sent
            };
            allowed += 0.5 * (most - allowed);
        }
        (f64::from(padded) / f64::from(frames), None, attempts)
    }

    #[test]
    fn a_rendition_of_five_times_the_rate_is_reached() {
        let (_, reached, attempts) = play(20e6, 60.0);
        assert!(reached.is_some_and(|at| at < 4.0), "{reached:?}");
        assert_eq!(attempts, 1);
    }

    #[test]
    fn a_path_that_does_not_carry_it_is_asked_ever_more_seldom() {
        let (share, reached, attempts) = play(3e6, 600.0);
        assert_eq!(reached, None);
        assert!((2..8).contains(&attempts), "{attempts}");
        assert!(share < 0.2, "{share}");
    }

    #[test]
    fn nothing_is_padded_without_need() {
        let mut climb = Climb::new();
        let near = Ladder {
            next: 2.2e6,
            ..LADDER
        };
        for second in 0..100 {
            let now = f64::from(second);
            // The next rendition is in reach, the path is at its limit, and there is none.
            assert_eq!(climb.rate(now, Some(near), (2e6, 2e6)), None);
            assert_eq!(climb.rate(now, Some(LADDER), (1.4e6, 1.4e6)), None);
            assert_eq!(climb.rate(now, None, (9e6, 9e6)), None);
        }
    }

    #[test]
    fn a_rendition_that_does_not_last_is_a_failure() {
        let mut climb = Climb::new();
        let free = (2e6, 2e6);
        assert!(climb.rate(3.0, Some(LADDER), free).is_some());
        climb.on_change(4.0, true);
        climb.on_change(10.0, false);
        assert_eq!(climb.rate(10.0 + 1.9 * MIN_WAIT, Some(LADDER), free), None);
        assert!(
            climb
                .rate(10.0 + 2.1 * MIN_WAIT, Some(LADDER), free)
                .is_some()
        );
    }

    #[test]
    fn filler_is_discarded_by_a_reader_of_nal_units() {
        let unit = [0, 0, 0, 1, 0x41, 7, 7, 7];
        for bytes in [0, 50, 108, 5_000] {
            let mut data = unit.to_vec();
            fill(&mut data, bytes);
            assert!(data.len() <= bytes.max(unit.len()));
            assert!(data.len() + MIN_FILLER > bytes, "{} of {bytes}", data.len());
            let nals: Vec<&[u8]> = tidegate_core::wire::h264::nal_units(&data).collect();
            assert_eq!(nals[0], &unit[4..]);
            for filler in &nals[1..] {
                assert_eq!((filler[0], filler.last()), (12, Some(&0x80)));
                assert!(filler.len() <= MAX_FILLER);
            }
        }
    }
}
