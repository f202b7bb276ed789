//! The thread that takes events, starts programs for them, and calls back.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::programs::Programs;
use super::{CEvent, Handle, User, to_c};
use crate::event::Event;
use crate::events::Events;
use crate::system::{Bell, join, spawn, use_short_slices};

/// `tg_callback`.
pub(super) type Callback = extern "C" fn(&CEvent, User);

/// A thread that takes events. Dropping it stops the thread and waits for its end, unless the
/// thread itself drops it in a callback.
pub(super) struct Caller {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

struct Stop {
    bell: Bell,
    is_set: AtomicBool,
}

/// A callback with the pointer of its user.
pub(super) struct CallbackWithUser {
    pub(super) callback: Callback,
    pub(super) user: User,
}

impl CallbackWithUser {
    fn call(&self, event: &Event) {
        (self.callback)(&to_c(event), self.user);
    }
}

impl Caller {
    /// Takes events once `before` has ended. Without a callback, events that start no program are
    /// dropped.
    pub(super) fn start(
        handle: &Handle,
        callback: Option<CallbackWithUser>,
        before: Option<Self>,
    ) -> io::Result<Self> {
        let stop = Arc::new(Stop {
            bell: Bell::new()?,
            is_set: AtomicBool::new(false),
        });
        let own = Arc::clone(&stop);
        let (events, programs) = (Arc::clone(&handle.events), Arc::clone(&handle.programs));
        let thread = spawn("tcp-callback", move || {
            drop(before);
            take(&events, &own, &programs, callback.as_ref());
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Whether the calling thread is that of this caller.
    pub(super) fn is_current(&self) -> bool {
        let thread = self.thread.as_ref().map(|t| t.thread().id());
        thread == Some(thread::current().id())
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_set.load(Ordering::Acquire)
    }

    /// Takes no more events. A call in progress ends first.
    pub(super) fn stop(&self) {
        self.stop.is_set.store(true, Ordering::Release);
        self.stop.bell.ring();
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.stop();
        join(self.thread.take());
    }
}

fn take(events: &Events, stop: &Stop, programs: &Programs, callback: Option<&CallbackWithUser>) {
    use_short_slices();
    let is_stopped = || stop.is_set.load(Ordering::Acquire);
    while !is_stopped() && events.wait(None, Some(stop.bell.as_fd())).is_ok() {
        while !is_stopped()
            && let Some((event, is_for_callback)) = programs.take(events)
        {
            if let Some(callback) = callback.filter(|_| is_for_callback) {
                callback.call(&event);
            }
        }
    }
}
