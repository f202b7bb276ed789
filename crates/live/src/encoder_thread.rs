//! Encoder on a separate thread, so that a slow frame does not delay packets.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder};
use tidegate_core::session::stream::EncodePipe;

use crate::clock::Clock;
use crate::driver::StopFlag;

/// Encodes on a thread and wakes the driver for each result.
///
/// At most one order is open at a time, so there is no backlog. If the encoder panics, the open
/// order returns an error.
///
/// Dropping it waits for the thread only if no order is open, because a source may wait for a
/// picture forever.
#[derive(Debug)]
pub struct EncoderThread {
    orders: Option<SyncSender<FrameOrder>>,
    /// Results with their encoding times.
    results: Receiver<(Result<Encoded, EncodeError>, Duration)>,
    took: Duration,
    thread: Option<JoinHandle<()>>,
    is_open: bool,
}

impl EncoderThread {
    /// Starts the thread, which wakes `driver` for each result.
    ///
    /// # Errors
    ///
    /// The thread cannot be created.
    pub fn start(
        mut encoder: impl FrameEncoder + 'static,
        driver: StopFlag,
    ) -> Result<Self, io::Error> {
        let (orders, inbox) = sync_channel::<FrameOrder>(1);
        let (outbox, results) = sync_channel(1);
        let clock = Clock::start();
        let work = move || {
            // Dropped after the outbox, also if the encoder panics, so that the driver wakes up and
            // finds the channel closed.
            let bell = WakeOnDrop(driver);
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

impl EncodePipe for EncoderThread {
    fn submit(&mut self, order: FrameOrder) {
        // If the thread has ended, `poll` returns the error.
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
                "the encoder thread panicked; see the message above".into(),
            )),
        };
        self.is_open = false;
        Some(result)
    }

    fn took(&self) -> Duration {
        self.took
    }
}

impl Drop for EncoderThread {
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

struct WakeOnDrop(StopFlag);

impl Drop for WakeOnDrop {
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

    /// Executes one step of the test per frame.
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
                    leading: false,
                    data: vec![0; 4],
                    quality: None,
                }),
                Ok(Step::Fail) => Err(EncodeError::Source("cable pulled".into())),
                Ok(Step::Panic) => panic!("requested by the test"),
                Err(_) => Err(EncodeError::EndOfSource),
            }
        }

        fn frame_rate(&self) -> FrameRate {
            FrameRate::fps(30)
        }
    }

    fn pipe() -> (EncoderThread, Sender<Step>, Arc<()>) {
        let (steps, script) = channel();
        let alive = Arc::new(());
        let encoder = Scripted {
            steps: script,
            alive: Arc::clone(&alive),
        };
        let pipe = EncoderThread::start(encoder, StopFlag::new().unwrap()).unwrap();
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

    /// Polls until there is a result.
    fn answer(pipe: &mut EncoderThread) -> Result<Encoded, EncodeError> {
        loop {
            if let Some(result) = pipe.poll() {
                return result;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn frames_are_returned_one_by_one_and_the_thread_ends() {
        let (mut pipe, steps, alive) = pipe();
        assert_eq!(pipe.poll(), None);
        for frame in 0..3 {
            pipe.submit(order(frame));
            assert_eq!(pipe.poll(), None, "the encoder is still blocked");
            steps.send(Step::Encode).unwrap();
            assert_eq!(answer(&mut pipe).unwrap().frame, frame);
            assert_eq!(pipe.poll(), None);
        }
        drop(pipe);
        assert_eq!(Arc::strong_count(&alive), 1, "the encoder was dropped");
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
    fn drop_does_not_wait_for_a_blocked_source() {
        let (mut pipe, steps, alive) = pipe();
        pipe.submit(order(0));
        drop(pipe);
        assert_eq!(Arc::strong_count(&alive), 2, "the encoder is still blocked");
        drop(steps);
    }
}
