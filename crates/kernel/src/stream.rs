//! Events for asynchronous code, with any executor.

use std::io;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{fmt, future};

use crate::error::EventsError;
use crate::event::Event;
use crate::events::Events;
use crate::system::{Bell, Worker, input, is_ready, poll, use_short_slices};

/// A stream of events. A thread of its own wakes the task, so any executor will do. An executor
/// that polls descriptors can poll [`Events`] itself (`AsFd`) instead.
pub struct EventStream {
    events: Arc<Events>,
    waker: Arc<Mutex<Option<Waker>>>,
    /// Rung when a task begins to wait.
    waiting: Arc<Bell>,
    _thread: Worker,
}

impl EventStream {
    /// The stream of all events of `events`.
    ///
    /// # Errors
    ///
    /// The system has no thread or descriptor left.
    pub fn new(events: Arc<Events>) -> io::Result<Self> {
        let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
        let waiting = Arc::new(Bell::new()?);
        let its = (
            Arc::clone(&events),
            Arc::clone(&waker),
            Arc::clone(&waiting),
        );
        let wake = move |stop: &Bell| wake(&its.0, &its.1, &its.2, stop);
        Ok(Self {
            _thread: Worker::start("tcp-waker", wake)?,
            events,
            waker,
            waiting,
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

    /// Polls for the next event, for implementations of other streams.
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
        // It does not block, and fails if the daemon is gone.
        if let Err(error) = self.events.wait(Some(Duration::ZERO), None) {
            return Poll::Ready(Err(error));
        }
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        *waker = Some(cx.waker().clone());
        drop(waker);
        // The thread checks the events after this, so none that came in between is missed.
        self.waiting.ring();
        Poll::Pending
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
    let is_ready = |source| {
        let mut polled = [input(stop.as_fd()), input(source)];
        poll(&mut polled, None).is_ok() && !is_ready(&polled[0])
    };
    // Without a waiting task there is no task to wake.
    while is_ready(waiting.as_fd()) {
        waiting.quiet();
        if !is_ready(events.as_fd()) {
            return;
        }
        let waker = waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
