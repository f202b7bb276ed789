//! The thread that takes events: it starts programs and calls back.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::programs::Programs;
use super::{CEvent, Handle, to_c};
use crate::event::Event;
use crate::events::Events;
use crate::system::{Bell, be_brisk, join};

/// `tg_callback`.
pub(super) type Callback = unsafe extern "C" fn(*const CEvent, *mut c_void);

/// A thread that takes events. Dropping it ends that; in a callback, when the callback is over.
pub(super) struct Caller {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

struct Stop {
    bell: Bell,
    is_rung: AtomicBool,
}

/// A callback, with the user's pointer on its way to the thread that calls.
pub(super) struct Hearer {
    callback: Callback,
    user: *mut c_void,
}

// SAFETY: the header says that the pointer is used on another thread.
unsafe impl Send for Hearer {}

impl Hearer {
    pub(super) fn new(callback: Callback, user: *mut c_void) -> Self {
        Self { callback, user }
    }

    fn call(&self, event: &Event) {
        let event = to_c(event);
        // SAFETY: the caller gave a function of this type, and the pointer for it.
        unsafe { (self.callback)(&raw const event, self.user) };
    }
}

impl Caller {
    /// `before` has ended before anything is taken. Without a hearer, events that are for no program
    /// are dropped.
    pub(super) fn start(
        handle: &Handle,
        hearer: Option<Hearer>,
        before: Option<Self>,
    ) -> io::Result<Self> {
        let stop = Arc::new(Stop {
            bell: Bell::new()?,
            is_rung: AtomicBool::new(false),
        });
        let its_stop = Arc::clone(&stop);
        let (events, programs) = (Arc::clone(&handle.events), Arc::clone(&handle.programs));
        let thread = thread::Builder::new()
            .name("tcp-callback".into())
            .spawn(move || {
                drop(before);
                take(&events, &its_stop, &programs, hearer.as_ref());
            })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Whether this is asked in one of its callbacks.
    pub(super) fn is_here(&self) -> bool {
        let thread = self.thread.as_ref().map(|t| t.thread().id());
        thread == Some(thread::current().id())
    }

    /// Whether it takes no more.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_rung.load(Ordering::Acquire)
    }

    /// Takes and calls no more, but for what has begun.
    pub(super) fn stop(&self) {
        self.stop.is_rung.store(true, Ordering::Release);
        self.stop.bell.ring();
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.stop();
        join(self.thread.take());
    }
}

fn take(events: &Events, stop: &Stop, programs: &Programs, hearer: Option<&Hearer>) {
    be_brisk();
    let is_over = || stop.is_rung.load(Ordering::Acquire);
    while !is_over() && events.wait(None, Some(stop.bell.as_fd())).is_ok() {
        while !is_over()
            && let Some((event, is_for_the_rest)) = programs.take(events)
        {
            if let Some(hearer) = hearer.filter(|_| is_for_the_rest) {
                hearer.call(&event);
            }
        }
    }
}
