//! Events for asynchronous code, with any executor.

use std::io;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::{fmt, future};

use crate::error::EventsError;
use crate::event::Event;
use crate::events::Events;
use crate::system::{Bell, Polled, poll, use_short_slices};

/// Events to be awaited. A thread of its own wakes the task, so that no executor has to know of it;
/// one that can watch descriptors may watch [`Events`] itself (`AsFd`) and needs none of this.
pub struct EventStream {
    events: Arc<Events>,
    waker: Arc<Mutex<Option<Waker>>>,
    /// Rung when somebody begins to wait.
    waiting: Arc<Bell>,
    stop: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl EventStream {
    /// Of all events of `events`.
    ///
    /// # Errors
    ///
    /// The system gives no thread or descriptor.
    pub fn new(events: Arc<Events>) -> io::Result<Self> {
        let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
        let (waiting, stop) = (Arc::new(Bell::new()?), Arc::new(Bell::new()?));
        let its = (
            Arc::clone(&events),
            Arc::clone(&waker),
            Arc::clone(&waiting),
            Arc::clone(&stop),
        );
        let thread = thread::Builder::new()
            .name("tcp-waker".into())
            .spawn(move || wake(&its.0, &its.1, &its.2, &its.3))?;
        Ok(Self {
            events,
            waker,
            waiting,
            stop,
            thread: Some(thread),
        })
    }

    /// The next event.
    ///
    /// # Errors
    ///
    /// The daemon is gone.
    pub async fn next(&mut self) -> Result<Event, EventsError> {
        future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// The next event, for those who write their own streams.
    ///
    /// # Errors
    ///
    /// The daemon is gone.
    pub fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Event, EventsError>> {
        if let Some(event) = self.events.try_next() {
            return Poll::Ready(Ok(event));
        }
        // It says whether the daemon is gone, and does not wait.
        if let Err(error) = self.events.wait(Some(std::time::Duration::ZERO), None) {
            return Poll::Ready(Err(error));
        }
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        *waker = Some(cx.waker().clone());
        drop(waker);
        // The thread looks at the ring after this, so what came in between is not missed.
        self.waiting.ring();
        Poll::Pending
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // If it panicked it has said so.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

fn wake(events: &Events, waker: &Mutex<Option<Waker>>, waiting: &Bell, stop: &Bell) {
    use_short_slices();
    loop {
        // Until somebody waits there is nobody to wake.
        let mut idle = [Polled::input(stop.as_fd()), Polled::input(waiting.as_fd())];
        if poll(&mut idle, None).is_err() || idle[0].is_ready() {
            return;
        }
        waiting.quiet();
        let mut busy = [Polled::input(stop.as_fd()), Polled::input(events.as_fd())];
        if poll(&mut busy, None).is_err() || busy[0].is_ready() {
            return;
        }
        let waker = waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
