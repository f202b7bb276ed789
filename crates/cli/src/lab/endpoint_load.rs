//! Whether the endpoints of a lab run got the processor time that they needed.
//!
//! An encoder or a sender that waits for a processor sends less, and later, than its rate control
//! permits. The results of such a run say more about the machine than about the network.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_live::thread_time::ThreadTime;
use tidegate_record::EndpointTiming;

/// Measurements of all encoders and threads of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct EndpointLoad(Arc<Mutex<Measured>>);

#[derive(Debug, Default)]
struct Measured {
    frames: u64,
    /// Frames that took longer than the frame interval.
    slow: u64,
    /// Largest part of its run time that a thread waited for a processor.
    waited: f64,
}

impl EndpointLoad {
    /// The same encoder with its frames measured.
    pub(super) fn encoder<E: FrameEncoder>(&self, encoder: E) -> MeasuredEncoder<E> {
        MeasuredEncoder {
            interval: encoder.frame_rate().interval(),
            encoder,
            load: self.clone(),
        }
    }

    /// Runs `job` on this thread and measures how long the thread was runnable without running.
    pub(super) fn thread<T>(&self, job: impl FnOnce() -> T) -> T {
        let (began, before) = (Instant::now(), ThreadTime::now());
        let result = job();
        let (wall, spent) = (began.elapsed(), ThreadTime::now().since(before));
        // A thread of less than a second proves nothing.
        if wall >= Duration::from_secs(1) {
            let waited = spent.waiting.as_secs_f64() / wall.as_secs_f64();
            self.with(|measured| measured.waited = measured.waited.max(waited));
        }
        result
    }

    /// Result of the run so far.
    pub(super) fn timing(&self) -> EndpointTiming {
        self.with(|measured| {
            let slow_frames = measured.slow as f64 / measured.frames.max(1) as f64;
            EndpointTiming {
                slow_frames,
                waited: measured.waited,
                kept_up: slow_frames <= MAX_SLOW_FRAMES && measured.waited <= MAX_WAITED,
            }
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Measured) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An encoder whose frames are measured.
#[derive(Debug)]
pub(super) struct MeasuredEncoder<E> {
    encoder: E,
    interval: Duration,
    load: EndpointLoad,
}

impl<E: FrameEncoder> FrameEncoder for MeasuredEncoder<E> {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let began = Instant::now();
        let result = self.encoder.encode(order);
        let is_slow = began.elapsed() > self.interval;
        self.load.with(|measured| {
            measured.frames += 1;
            measured.slow += u64::from(is_slow);
        });
        result
    }

    fn frame_rate(&self) -> FrameRate {
        self.encoder.frame_rate()
    }
}

/// The expectations of the demo permit 1 % of the frames to be late.
const MAX_SLOW_FRAMES: f64 = 0.01;
/// 1.2 s of a minute. On an idle machine it is below 0.2 %.
const MAX_WAITED: f64 = 0.02;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_core::units::{Rate, Time};

    use super::*;

    /// Computes for a fixed time per frame.
    #[derive(Debug)]
    struct Busy(Duration);

    impl FrameEncoder for Busy {
        fn encode(&mut self, _: &FrameOrder) -> Result<Encoded, EncodeError> {
            let began = Instant::now();
            while began.elapsed() < self.0 {}
            Err(EncodeError::Unchanged)
        }

        fn frame_rate(&self) -> FrameRate {
            FrameRate::fps(1_000)
        }
    }

    fn order() -> FrameOrder {
        FrameOrder {
            frame: 0,
            captured: Time::ZERO,
            rate: Rate::kbps(500),
            key: true,
        }
    }

    #[test]
    fn frames_longer_than_their_interval_are_slow() {
        let load = EndpointLoad::default();
        assert!(load.timing().kept_up);
        let mut slow = load.encoder(Busy(Duration::from_micros(1_001)));
        let _ = slow.encode(&order());
        let timing = load.timing();
        assert!(timing.slow_frames > 0.99 && !timing.kept_up, "{timing:?}");
    }

    /// Four threads that compute on one processor wait for three quarters of their time.
    #[test]
    fn threads_that_share_a_processor_wait() {
        if !Path::new("/proc/thread-self/schedstat").exists() {
            return;
        }
        let load = EndpointLoad::default();
        let threads = std::thread::available_parallelism().map_or(1, usize::from) * 4;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    load.thread(|| {
                        let began = Instant::now();
                        while began.elapsed() < Duration::from_millis(1_100) {}
                    });
                });
            }
        });
        let timing = load.timing();
        assert!(timing.waited > 0.3 && !timing.kept_up, "{timing:?}");
    }
}
