//! An encoder on a thread of its own, so that a slow frame holds up no packet.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder};
use tidegate_core::session::stream::EncodePipe;

use crate::clock::Clock;
use crate::driver::StopFlag;

/// Encodes on a thread and wakes the driver when a frame is there.
///
/// At most one order is open, as the session promises, so nothing piles up. When the encoder
/// panics or its thread is gone, the open order is answered with an error.
///
/// Dropping it waits for the thread only if no order is open: a source may wait for a picture
/// that never comes.
#[derive(Debug)]
pub struct Threaded {
    orders: Option<SyncSender<FrameOrder>>,
    /// With how long the encoder was at each.
    results: Receiver<(Result<Encoded, EncodeError>, Duration)>,
    took: Duration,
    thread: Option<JoinHandle<()>>,
    is_open: bool,
}

impl Threaded {
    /// Starts the thread. `driver` is woken for every result.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub fn start(
        mut encoder: impl FrameEncoder + 'static,
        driver: StopFlag,
    ) -> Result<Self, io::Error> {
        let (orders, inbox) = sync_channel::<FrameOrder>(1);
        let (outbox, results) = sync_channel(1);
        let clock = Clock::start();
        let work = move || {
            // Dropped last, also when the encoder panics: after the outbox, so that the driver
            // finds the pipe broken.
            let bell = Bell(driver);
            let outbox = outbox;
            for order in inbox {
                let begun = clock.now();
                let result = encoder.encode(&order);
                let took = clock.now().since(begun);
                if outbox.send((result, took)).is_err() {
                    break;
                }
                bell.0.wake();
            }
        };
        let thread = thread::Builder::new().name("encoder".into()).spawn(work)?;
        Ok(Self {
            orders: Some(orders),
            results,
            took: Duration::ZERO,
            thread: Some(thread),
            is_open: false,
        })
    }
}

impl EncodePipe for Threaded {
    fn submit(&mut self, order: FrameOrder) {
        // If the thread is gone, `poll` says so.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
        self.is_open = true;
    }

    fn poll(&mut self) -> Option<Result<Encoded, EncodeError>> {
        if !self.is_open {
            return None;
        }
        let result = match self.results.try_recv() {
            Ok((result, took)) => {
                self.took = took;
                result
            }
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(EncodeError::Codec(
                "its thread panicked; see the message above".into(),
            )),
        };
        self.is_open = false;
        Some(result)
    }

    fn took(&self) -> Duration {
        self.took
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take()
            && !self.is_open
        {
            // A panic has printed its message.
            let _ = thread.join();
        }
    }
}

struct Bell(StopFlag);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};

    use tidegate_core::media::FrameRate;
    use tidegate_core::units::{Rate, Time};

    use super::*;

    /// Does what the test says, frame by frame.
    #[derive(Debug)]
    struct Scripted {
        steps: Receiver<Step>,
        alive: Arc<()>,
    }

    #[derive(Debug)]
    enum Step {
        Encode,
        Fail,
        Panic,
    }

    impl FrameEncoder for Scripted {
        fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
            let _ = &self.alive;
            match self.steps.recv() {
                Ok(Step::Encode) => Ok(Encoded {
                    frame: order.frame,
                    captured: order.captured,
                    key: order.key,
                    data: vec![0; 4],
                    quality: None,
                }),
                Ok(Step::Fail) => Err(EncodeError::Source("cable pulled".into())),
                Ok(Step::Panic) => panic!("as the test wants"),
                Err(_) => Err(EncodeError::EndOfSource),
            }
        }

        fn frame_rate(&self) -> FrameRate {
            FrameRate::fps(30)
        }
    }

    fn pipe() -> (Threaded, Sender<Step>, Arc<()>) {
        let (steps, script) = channel();
        let alive = Arc::new(());
        let encoder = Scripted {
            steps: script,
            alive: Arc::clone(&alive),
        };
        let pipe = Threaded::start(encoder, StopFlag::new().unwrap()).unwrap();
        (pipe, steps, alive)
    }

    fn order(frame: u64) -> FrameOrder {
        FrameOrder {
            frame,
            captured: Time::from_millis(frame),
            rate: Rate::kbps(500),
            key: frame == 0,
        }
    }

    /// Asks until there is an answer; the encoder is known to be about to give one.
    fn answer(pipe: &mut Threaded) -> Result<Encoded, EncodeError> {
        loop {
            if let Some(result) = pipe.poll() {
                return result;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn frames_come_back_one_by_one_and_the_thread_ends() {
        let (mut pipe, steps, alive) = pipe();
        assert_eq!(pipe.poll(), None);
        for frame in 0..3 {
            pipe.submit(order(frame));
            assert_eq!(pipe.poll(), None, "the script holds it up");
            steps.send(Step::Encode).unwrap();
            assert_eq!(answer(&mut pipe).unwrap().frame, frame);
            assert_eq!(pipe.poll(), None);
        }
        drop(pipe);
        assert_eq!(Arc::strong_count(&alive), 1, "the encoder is gone");
    }

    #[test]
    fn failures_and_panics_are_errors() {
        let (mut pipe, steps, _) = pipe();
        pipe.submit(order(0));
        steps.send(Step::Fail).unwrap();
        let failed = answer(&mut pipe);
        assert_eq!(failed, Err(EncodeError::Source("cable pulled".into())));
        for frame in 1..3 {
            pipe.submit(order(frame));
            let _ = steps.send(Step::Panic);
            let gone = answer(&mut pipe);
            assert!(matches!(gone, Err(EncodeError::Codec(_))), "{gone:?}");
            assert_eq!(pipe.poll(), None);
        }
    }

    #[test]
    fn nobody_waits_for_a_source_that_is_stuck() {
        let (mut pipe, steps, alive) = pipe();
        pipe.submit(order(0));
        drop(pipe);
        assert_eq!(
            Arc::strong_count(&alive),
            2,
            "it still waits for its script"
        );
        drop(steps);
    }
}
