//! Handling of SIGINT (Ctrl-C) and SIGTERM.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::{io, mem, ptr};

use super::StopFlag;
use crate::events;
use crate::netns::check;

/// Counts SIGINT and SIGTERM, and wakes a driver at each.
#[derive(Debug)]
pub struct Interrupts {
    /// Keeps the descriptor open that the handler writes to.
    _flag: StopFlag,
}

impl Interrupts {
    /// Installs the handler of both signals for this process.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn install(flag: &StopFlag) -> io::Result<Self> {
        EVENT.store(flag.event.as_raw_fd(), Ordering::SeqCst);
        for signal in SIGNALS {
            // SAFETY: a sigaction consists of integers and a pointer, for which zero is valid.
            let mut action: libc::sigaction = unsafe { mem::zeroed() };
            let handler: extern "C" fn(libc::c_int) = on_signal;
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            // SAFETY: the handler only uses atomics and `write`, which are safe in signals.
            check(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) })?;
        }
        Ok(Self {
            _flag: flag.clone(),
        })
    }

    /// Handles the first signal as [`Self::install`] does. The next signal terminates the process.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn catch_first(flag: &StopFlag) -> io::Result<Self> {
        ONCE.store(true, Ordering::SeqCst);
        Self::install(flag)
    }

    /// Number of signals received.
    pub fn count(&self) -> u32 {
        COUNT.load(Ordering::SeqCst)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        EVENT.store(-1, Ordering::SeqCst);
        ONCE.store(false, Ordering::SeqCst);
    }
}

extern "C" fn on_signal(_: libc::c_int) {
    if ONCE.load(Ordering::SeqCst) {
        for signal in SIGNALS {
            // SAFETY: async-signal-safe, with integer arguments.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
    COUNT.fetch_add(1, Ordering::SeqCst);
    let event = EVENT.load(Ordering::SeqCst);
    if event >= 0 {
        // SAFETY: the flag owns the descriptor, and is dropped after the handler is reset.
        events::ring(unsafe { BorrowedFd::borrow_raw(event) });
    }
}

const SIGNALS: [libc::c_int; 2] = [libc::SIGINT, libc::SIGTERM];
static ONCE: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU32 = AtomicU32::new(0);
static EVENT: AtomicI32 = AtomicI32::new(-1);
