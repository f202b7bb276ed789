//! The thread that calls back.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::{CEvent, to_c};
use crate::events::Events;
use crate::system::{Bell, be_brisk, join};

/// `tg_callback`.
pub(super) type Callback = unsafe extern "C" fn(*const CEvent, *mut c_void);

/// A thread that calls back. Dropping it ends that; in a callback, when the callback is over.
pub(super) struct Caller {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

struct Stop {
    bell: Bell,
    is_rung: AtomicBool,
}

/// The user's pointer, on its way to the thread that calls back.
struct User(*mut c_void);

// SAFETY: the header says that it is used on another thread.
unsafe impl Send for User {}

impl Caller {
    /// `before` has ended before anything is called.
    pub(super) fn start(
        events: Arc<Events>,
        callback: Callback,
        user: *mut c_void,
        before: Option<Self>,
    ) -> io::Result<Self> {
        let stop = Arc::new(Stop {
            bell: Bell::new()?,
            is_rung: AtomicBool::new(false),
        });
        let (its_stop, user) = (Arc::clone(&stop), User(user));
        let thread = thread::Builder::new()
            .name("tcp-callback".into())
            .spawn(move || {
                drop(before);
                call(&events, &its_stop, callback, &user);
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

    /// Calls no more, but for what has begun.
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

fn call(events: &Events, stop: &Stop, callback: Callback, user: &User) {
    be_brisk();
    let is_over = || stop.is_rung.load(Ordering::Acquire);
    while !is_over() && events.wait(None, Some(stop.bell.as_fd())).is_ok() {
        while !is_over()
            && let Some(event) = events.try_next()
        {
            let event = to_c(&event);
            // SAFETY: the caller gave a function of this type, and the pointer for it.
            unsafe { callback(&raw const event, user.0) };
        }
    }
}
