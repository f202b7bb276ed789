//! Adaptation of an encoder to the processor: the settings at which it keeps up with its source.
//!
//! The rules are those of the overuse detector of WebRTC, whose thresholds are 85 % and 42 % of the
//! time: fall soon, rise late, and later after each rise that did not last.

use core::time::Duration;

use tidegate_core::units::Time;

/// Settings of an encoder, as the adaptation sees them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Processor time of a picture relative to other steps, roughly.
    pub cost: f64,
    /// Every how many pictures of the source one is encoded, at least 1.
    pub every: u32,
}

/// Processor time that a picture took, without waits for the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameTime {
    /// To read and decode the picture, and those passed over before it.
    pub reading: Duration,
    /// To encode it.
    pub encoding: Duration,
    /// Part of both in which the thread was ready and waited for a processor.
    pub waited: Duration,
}

/// Cause of an overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Encoding takes too long.
    Encoder,
    /// Reading and decoding the source takes too long.
    Source,
    /// Other threads have the processors.
    Machine,
}

/// Whether a picture is due in each frame interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pictures {
    /// In each.
    Regular,
    /// The frame rate of the source varies.
    Irregular,
    /// In each, and those that are passed over cost no time.
    Generated,
}

/// Another step, or an overload without a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjustment {
    /// Previous step.
    pub from: usize,
    /// New step; `from` if none is better.
    pub to: usize,
    /// Mean time of a picture at the previous step.
    pub time: FrameTime,
    /// Time from one encoded picture to the next at the previous step.
    pub interval: Duration,
}

/// Selects one of several steps, from the time that each picture takes.
#[derive(Clone, Debug)]
pub(crate) struct Adaptation {
    /// By falling cost per second.
    steps: Vec<Step>,
    /// Frame interval of the source.
    interval: Duration,
    pictures: Pictures,
    at: usize,
    window: Window,
    /// The previous window was overloaded.
    overloaded: bool,
    /// An overload without a remedy was reported.
    reported: bool,
    /// Since when there has been room for a better step, and the best for which there always was.
    room: Option<(Time, usize)>,
    /// Time of the last rise.
    rose: Option<Time>,
    /// Time with room before a rise.
    hold: Duration,
}

/// Times of the pictures since the last decision.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Option<Time>,
    frames: u32,
    total: FrameTime,
}

impl Adjustment {
    /// Whether the settings improve.
    pub const fn is_rise(&self) -> bool {
        self.to < self.from
    }

    /// What most of the time was spent on.
    pub fn bottleneck(&self) -> Bottleneck {
        self.time.bottleneck()
    }
}

impl FrameTime {
    /// Total time of the picture.
    pub fn total(&self) -> Duration {
        self.reading + self.encoding
    }

    fn bottleneck(&self) -> Bottleneck {
        if self.waited * 2 > self.total() {
            Bottleneck::Machine
        } else if self.reading > self.encoding {
            Bottleneck::Source
        } else {
            Bottleneck::Encoder
        }
    }
}

impl Adaptation {
    /// Begins with the first of `steps`. Each must take less processor time per second than the one
    /// before it. `interval` is the frame interval of the source.
    pub(crate) fn new(interval: Duration, pictures: Pictures, steps: Vec<Step>) -> Self {
        Self {
            steps,
            interval,
            pictures,
            at: 0,
            window: Window::default(),
            overloaded: false,
            reported: false,
            room: None,
            rose: None,
            hold: HOLD,
        }
    }

    /// A picture was encoded, or the source had none for a frame, and the result is ready at `now`.
    pub(crate) fn on_frame(&mut self, now: Time, time: FrameTime) -> Option<Adjustment> {
        let total = &mut self.window.total;
        total.reading += time.reading;
        total.encoding += time.encoding;
        total.waited += time.waited;
        self.window.frames += 1;
        let began = now.before(time.total());
        let since = *self.window.since.get_or_insert(began);
        if now.since(since) < WINDOW || self.window.frames < MIN_FRAMES {
            return None;
        }
        let mean = self.window.mean();
        let interval = self.interval * self.every(self.at);
        let interval = match self.pictures {
            Pictures::Regular | Pictures::Generated => interval,
            Pictures::Irregular => interval.max(now.since(since) / self.window.frames),
        };
        let load = Load { mean, interval };
        self.window = Window {
            since: Some(now),
            ..Window::default()
        };
        let to = if self.usage(load, self.at) > OVERLOAD {
            self.on_overload(now, load)?
        } else {
            self.overloaded = false;
            self.reported = false;
            self.on_room(now, load)?
        };
        let adjustment = Adjustment {
            from: self.at,
            to,
            time: mean,
            interval,
        };
        self.at = to;
        self.room = None;
        self.overloaded = false;
        Some(adjustment)
    }

    /// The step to fall to; the present one if no other helps, once.
    fn on_overload(&mut self, now: Time, load: Load) -> Option<usize> {
        self.room = None;
        let is_clear = self.usage(load, self.at) > CLEAR_OVERLOAD;
        if !core::mem::replace(&mut self.overloaded, true) && !is_clear {
            return None;
        }
        let to = self.lower(load);
        if to == self.at {
            return (!core::mem::replace(&mut self.reported, true)).then_some(to);
        }
        if self.rose.is_some_and(|rose| now.since(rose) < self.hold) {
            self.hold = (self.hold * 2).min(MAX_HOLD);
        }
        Some(to)
    }

    /// The next step that the processor can keep, or the one of the least usage.
    fn lower(&self, load: Load) -> usize {
        if self.pictures != Pictures::Generated && load.reading() > OVERLOAD {
            return self.at;
        }
        let usage = |step: &usize| self.usage(load, *step);
        let mut lower = self.at + 1..self.steps.len();
        let least = lower.clone().min_by(|a, b| usage(a).total_cmp(&usage(b)));
        lower
            .find(|step| usage(step) <= AIM)
            .or(least.filter(|step| usage(step) < usage(&self.at)))
            .unwrap_or(self.at)
    }

    /// The step to rise to.
    fn on_room(&mut self, now: Time, load: Load) -> Option<usize> {
        let best = (0..self.at).find(|step| self.usage(load, *step) <= ROOM);
        let Some(best) = best else {
            self.room = None;
            return None;
        };
        let (since, worst) = self.room.unwrap_or((now, best));
        self.room = Some((since, worst.max(best)));
        if now.since(since) < self.hold {
            return None;
        }
        if self.rose.is_some_and(|rose| now.since(rose) >= MAX_HOLD) {
            self.hold = HOLD;
        }
        self.rose = Some(now);
        Some(worst.max(best))
    }

    /// Part of the time that `step` would need, from the load at the present step.
    fn usage(&self, load: Load, step: usize) -> f64 {
        let cost = |step: usize| self.steps.get(step).map_or(1.0, |step| step.cost);
        let every = f64::from(self.every(step)) / f64::from(self.every(self.at));
        let encoding = load.encoding() * cost(step) / cost(self.at) / every;
        match self.pictures {
            Pictures::Generated => load.reading() / every + encoding,
            // Pictures that are passed over are read as well.
            Pictures::Regular | Pictures::Irregular => load.reading() + encoding,
        }
    }

    fn every(&self, step: usize) -> u32 {
        self.steps.get(step).map_or(1, |step| step.every)
    }
}

/// Mean time of a picture, and the time until the next one.
#[derive(Clone, Copy, Debug)]
struct Load {
    mean: FrameTime,
    interval: Duration,
}

impl Load {
    fn reading(self) -> f64 {
        self.mean.reading.as_secs_f64() / self.interval.as_secs_f64()
    }

    fn encoding(self) -> f64 {
        self.mean.encoding.as_secs_f64() / self.interval.as_secs_f64()
    }
}

impl Window {
    fn mean(&self) -> FrameTime {
        let frames = self.frames.max(1);
        FrameTime {
            reading: self.total.reading / frames,
            encoding: self.total.encoding / frames,
            waited: self.total.waited / frames,
        }
    }
}

/// Time of a decision: several pictures, but two decisions within a second.
const WINDOW: Duration = Duration::from_millis(500);
/// One picture may be slow for reasons of its own, as the first.
const MIN_FRAMES: u32 = 2;
/// Above this part of the time in two windows, the encoder is overloaded.
const OVERLOAD: f64 = 0.85;
/// The same in one window.
const CLEAR_OVERLOAD: f64 = 1.5;
/// Predicted part of the time after a fall.
const AIM: f64 = 0.7;
/// Predicted part of the time after a rise: with 0.7, errors of the prediction of a fifth would undo
/// one rise in two.
const ROOM: f64 = 0.6;
/// Time with room before a rise, at first and at most.
const HOLD: Duration = Duration::from_secs(10);
const MAX_HOLD: Duration = Duration::from_secs(320);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Presets, then frame rates, then sizes, as for x264.
    fn steps() -> Vec<Step> {
        let step = |(cost, every)| Step { cost, every };
        [
            (3.6, 1),
            (2.8, 1),
            (1.8, 1),
            (1.0, 1),
            (1.0, 2),
            (1.0, 3),
            (0.25, 1),
            (0.25, 2),
            (0.25, 3),
            (0.0625, 1),
        ]
        .map(step)
        .to_vec()
    }

    /// An encoder that takes `cost(step)` at the time, for frames of 33 ms; returns the adjustments
    /// and their times.
    fn play(span: u64, cost: impl Fn(u64, usize) -> f64) -> Vec<(u64, Adjustment)> {
        let mut adaptation = Adaptation::new(Duration::from_millis(33), Pictures::Regular, steps());
        let (mut now, mut step, mut made) = (0, 0, Vec::new());
        while now < span {
            let busy = Duration::from_secs_f64(cost(now, step) / 1e3);
            let next = 33 * u64::from(steps()[step].every);
            let ready = now + busy.as_millis() as u64;
            let time = FrameTime {
                encoding: busy,
                ..FrameTime::default()
            };
            if let Some(adjustment) = adaptation.on_frame(Time::from_millis(ready), time) {
                step = adjustment.to;
                made.push((ready, adjustment));
            }
            now = ready.max(now + next);
        }
        made
    }

    fn usage(ms: f64, step: usize) -> f64 {
        ms / (33.0 * f64::from(steps()[step].every))
    }

    proptest! {
        /// From 3.6 ms to 0.4 s at the best step, with errors of the costs of up to 40 %.
        #[test]
        fn an_encoder_of_constant_speed_settles_within_two_seconds(
            best in 3.6_f64..400.0,
            errors in prop::collection::vec(0.7_f64..1.4, 10),
        ) {
            let cost = |step: usize| best * steps()[step].cost / 3.6 * errors[step];
            let made = play(600_000, |_, step| cost(step));
            let settled = made.iter().rfind(|(at, _)| *at <= 3_000).map_or(0, |(_, a)| a.to);
            let last = steps().len() - 1;
            prop_assert!(usage(cost(settled), settled) <= 0.86 || settled == last, "{made:?}");
            // A rise that does not last is repeated after 10, 20, 40 … s.
            let rises = made.iter().filter(|(_, a)| a.is_rise()).count();
            prop_assert!(rises <= 8, "{made:?}");
            // From the first decision on, the encoder is overloaded for a small part of the time.
            let mut overloaded = 0;
            for pair in made.windows(2) {
                let step = pair[0].1.to;
                if usage(cost(step), step) > 0.86 {
                    overloaded += pair[1].0 - pair[0].0;
                }
            }
            prop_assert!(overloaded <= 12_000, "{overloaded} ms: {made:?}");
        }

        /// No input panics or leaves the steps.
        #[test]
        fn any_times_select_a_step(times in prop::collection::vec((0_u64..5_000, 0_u64..5_000), 1..200)) {
            let mut adaptation = Adaptation::new(Duration::from_millis(40), Pictures::Irregular, steps());
            let mut now = Time::ZERO;
            for (reading, encoding) in times {
                let time = FrameTime {
                    reading: Duration::from_millis(reading),
                    encoding: Duration::from_millis(encoding),
                    waited: Duration::from_millis(reading),
                };
                now += time.total();
                if let Some(adjustment) = adaptation.on_frame(now, time) {
                    prop_assert!(adjustment.to < steps().len());
                }
            }
        }
    }

    #[test]
    fn a_load_of_some_seconds_is_followed_down_and_up() {
        let busy = |now| (20_000..30_000).contains(&now);
        let cost = |now, step: usize| steps()[step].cost * if busy(now) { 40.0 } else { 4.0 };
        let made = play(60_000, cost);
        let steps: Vec<(u64, usize)> = made.iter().map(|(at, a)| (at / 1_000, a.to)).collect();
        assert_eq!(steps, [(20, 4), (40, 0)], "{made:?}");
    }

    #[test]
    fn an_overload_without_a_remedy_is_reported_once_within_a_second() {
        let mut adaptation = Adaptation::new(
            Duration::from_millis(33),
            Pictures::Regular,
            steps()[..1].to_vec(),
        );
        let time = FrameTime {
            encoding: Duration::from_millis(40),
            waited: Duration::from_millis(30),
            ..FrameTime::default()
        };
        let mut said = Vec::new();
        for frame in 1..100 {
            let now = Time::from_millis(40 * frame);
            said.extend(adaptation.on_frame(now, time).map(|said| (frame, said)));
        }
        let (frame, said) = said.pop().unwrap();
        assert!(frame * 40 <= 1_100, "{frame}");
        assert_eq!((said.from, said.to), (0, 0));
        assert_eq!(said.bottleneck(), Bottleneck::Machine);
    }

    /// Reading takes as long as three frames, and smaller pictures are no remedy.
    #[test]
    fn a_slow_generator_has_fewer_pictures() {
        let steps = steps();
        let mut adaptation = Adaptation::new(
            Duration::from_millis(33),
            Pictures::Generated,
            steps.clone(),
        );
        let (mut now, mut step) = (Time::ZERO, 0);
        for _ in 0..100 {
            let time = FrameTime {
                reading: Duration::from_millis(60),
                encoding: Duration::from_secs_f64(0.1 * steps[step].cost),
                ..FrameTime::default()
            };
            now += time.total();
            step = adaptation.on_frame(now, time).map_or(step, |said| said.to);
        }
        assert_eq!(steps[step].every, 3, "{step}");
    }

    #[test]
    fn a_source_that_is_too_slow_leaves_the_encoder_alone() {
        let mut adaptation = Adaptation::new(Duration::from_millis(33), Pictures::Regular, steps());
        let time = FrameTime {
            reading: Duration::from_millis(60),
            encoding: Duration::from_millis(20),
            ..FrameTime::default()
        };
        let now = |frame: u64| Time::from_millis(80 * frame);
        let said: Vec<_> = (1..50)
            .filter_map(|frame| adaptation.on_frame(now(frame), time))
            .collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!((said[0].to, said[0].bottleneck()), (0, Bottleneck::Source));
    }
}
