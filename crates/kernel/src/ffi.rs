//! The C interface, as `include/tidegate_events.h` declares it.
//!
//! Every function checks its handle, its socket and its input pointers for null. The header lists
//! the other obligations of the caller.

mod caller;
mod programs;
mod texts;

use std::error::Error;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{ptr, slice};

use crate::bpf::events::EventRequest;
use crate::error::EventsError;
use crate::event::{Event, EventSet, SubscriptionId};
use crate::events::Events;
use crate::handlers::Signals;
use crate::variables::{COUNT, Snapshot, Variable, VariableSet};
use caller::{Callback, CallbackWithUser, Caller};
use programs::Programs;
use texts::{fail, kept};

/// `tg_events`.
pub(crate) struct Handle {
    events: Arc<Events>,
    signals: Mutex<Option<Signals>>,
    caller: Mutex<Option<Caller>>,
    programs: Arc<Programs>,
}

impl Handle {
    /// Starts a thread that takes events, unless there is one.
    fn keep_taking(&self) -> io::Result<()> {
        let mut caller = lock(&self.caller);
        if caller.as_ref().is_some_and(|caller| !caller.is_stopped()) {
            return Ok(());
        }
        // A caller that was stopped by its own callback ends with that callback.
        let before = caller.take();
        *caller = Some(Caller::start(self, None, before)?);
        Ok(())
    }

    /// The oldest event that was not taken, without those of cancelled programs.
    fn next(&self, limit: Option<Duration>) -> Result<Option<Event>, EventsError> {
        let start = Instant::now();
        loop {
            let left = limit.map(|limit| limit.saturating_sub(start.elapsed()));
            match self.events.next(left)? {
                Some(event) if self.programs.is_late(&event) => {}
                next => return Ok(next),
            }
        }
    }
}

/// `tg_event`.
#[repr(C)]
pub(crate) struct CEvent {
    time_ns: u64,
    subscription: u64,
    number: u64,
    kind: u32,
    detail: u32,
    detail2: u64,
    known: u64,
    variables: [u64; COUNT],
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_open() -> *mut Handle {
    handle(Events::open())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_connect(path: *const c_char) -> *mut Handle {
    // SAFETY: the path is null or ends with zero.
    unsafe { connect(path, Events::connect) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_connect_with(path: *const c_char, ring: u32) -> *mut Handle {
    // SAFETY: as above.
    unsafe { connect(path, |path| Events::connect_with(path, ring)) }
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_in_process() -> *mut Handle {
    handle(Events::in_process())
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_unprivileged() -> *mut Handle {
    handle(Events::unprivileged())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_close(handle: *mut Handle) {
    if !handle.is_null() {
        // SAFETY: it is from `Box::into_raw`, and the caller does not use it again.
        drop(unsafe { Box::from_raw(handle) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_from_kernel(handle: *const Handle) -> c_int {
    // SAFETY: the handle is null or from one of the opening functions.
    unsafe { with(handle, -1, |handle| Ok(handle.events.from_kernel().into())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_is_serving(handle: *const Handle) -> c_int {
    // SAFETY: as above.
    unsafe { with(handle, -1, |handle| Ok(handle.events.is_serving().into())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_why_unprivileged(handle: *const Handle) -> *const c_char {
    let why = |handle: &Handle| Ok(handle.events.why_unprivileged().map_or(ptr::null(), kept));
    // SAFETY: as above.
    unsafe { with(handle, ptr::null(), why) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_weaker(handle: *const Handle, kind: u32) -> *const c_char {
    let weaker = |handle: &Handle| {
        let mut weaker = handle.events.limited_events().iter();
        let found = weaker.find(|(weak, _)| *weak as u32 == kind);
        Ok(found.map_or(ptr::null(), |(_, how)| kept(how)))
    };
    // SAFETY: as above.
    unsafe { with(handle, ptr::null(), weaker) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_busy_poll(handle: *const Handle, microseconds: u32) -> c_int {
    let span = Duration::from_micros(microseconds.into());
    // SAFETY: as above.
    unsafe {
        done(handle, |handle| {
            handle.events.busy_poll(span);
            Ok(())
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_fd(handle: *const Handle) -> c_int {
    // SAFETY: as above.
    unsafe { with(handle, -1, |handle| Ok(handle.events.as_fd().as_raw_fd())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_allowed(
    handle: *const Handle,
    events: *mut u32,
    variables: *mut u64,
) -> c_int {
    // SAFETY: as above; the others are null or places for the results.
    unsafe {
        done(handle, |handle| {
            let allowed = handle.events.allowed();
            put(events, allowed.events.bits());
            put(variables, allowed.variables.bits());
            Ok(())
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_subscribe(
    handle: *const Handle,
    socket: c_int,
    events: u32,
    variables: u64,
    id: *mut u64,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        done(handle, |handle| {
            let wanted = wanted(events, variables);
            put(id, handle.events.subscribe(borrow(socket)?, wanted)?.0);
            Ok(())
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_change(
    handle: *const Handle,
    id: u64,
    events: u32,
    variables: u64,
) -> c_int {
    let (id, wanted) = (SubscriptionId(id), wanted(events, variables));
    // SAFETY: as above.
    unsafe { done(handle, |handle| Ok(handle.events.change(id, wanted)?)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_cancel(handle: *const Handle, id: u64) -> c_int {
    let cancel = |h: &Handle| Ok(h.programs.cancel(&h.events, SubscriptionId(id))?);
    // SAFETY: as above.
    unsafe { done(handle, cancel) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_tally(
    handle: *const Handle,
    id: u64,
    events: *mut u64,
    lost: *mut u64,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        done(handle, |handle| {
            let tally = handle.events.tally(SubscriptionId(id))?;
            put(events, tally.events);
            put(lost, tally.lost);
            Ok(())
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_next(
    handle: *const Handle,
    event: *mut CEvent,
    timeout_ms: c_int,
) -> c_int {
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    // SAFETY: as above.
    unsafe {
        with(handle, -1, |handle| {
            let next = handle.next(limit)?;
            if let Some(next) = &next {
                put(event, to_c(next));
            }
            Ok(next.is_some().into())
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_probe(
    handle: *const Handle,
    socket: c_int,
    known: *mut u64,
    variables: *mut u64,
) -> c_int {
    // SAFETY: as above; `variables` has room for all variables.
    unsafe {
        done(handle, |handle| {
            let state = handle.events.probe(borrow(socket)?)?;
            put(known, state.known().bits());
            put(variables.cast(), values(&state));
            Ok(())
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_write(
    handle: *const Handle,
    socket: c_int,
    bytes: *const c_void,
    length: usize,
) -> isize {
    // SAFETY: as above; `bytes` is null or has so many bytes.
    unsafe {
        with(handle, -1, |handle| {
            let socket = borrow(socket)?;
            if bytes.is_null() {
                return Err("the bytes are NULL".into());
            }
            let bytes = slice::from_raw_parts(bytes.cast(), length);
            Ok(handle.events.write(socket, bytes)? as isize)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_signal(handle: *const Handle, signal: c_int) -> c_int {
    let start = |handle: &Handle| {
        let mut signals = lock(&handle.signals);
        *signals = None;
        if signal != 0 {
            let new = Signals::to_this_thread(Arc::clone(&handle.events), signal);
            *signals = Some(new.map_err(|e| format!("signal {signal}: {e}"))?);
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { done(handle, start) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_rearm(handle: *const Handle) -> c_int {
    let rearm = |handle: &Handle| {
        let signals = lock(&handle.signals);
        let signals = signals.as_ref();
        signals
            .ok_or("no signal is set: set one with tg_events_signal")?
            .rearm();
        Ok(())
    };
    // SAFETY: as above.
    unsafe { done(handle, rearm) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_call(
    handle: *const Handle,
    callback: Option<Callback>,
    user: *mut c_void,
) -> c_int {
    let call = |handle: &Handle| {
        // The lock is not held while a callback ends, since a callback may call this function.
        let old = lock(&handle.caller).take();
        if let Some(old) = &old {
            old.stop();
        }
        let old = old.filter(Caller::is_current);
        let Some(callback) = callback else {
            if let Some(old) = old {
                // Closing the handle waits for it.
                lock(&handle.caller).get_or_insert(old);
            }
            if !handle.programs.is_empty() {
                handle.keep_taking()?;
            }
            return Ok(());
        };
        let new = Caller::start(handle, Some(CallbackWithUser { callback, user }), old)?;
        let other = lock(&handle.caller).replace(new);
        // Another thread has called this function meanwhile.
        drop(other);
        Ok(())
    };
    // SAFETY: as above.
    unsafe { done(handle, call) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_count_from_zero(known: u64, variables: *mut u64) -> c_int {
    // SAFETY: null, or room for all variables.
    let Some(values) = (unsafe { variables.cast::<[u64; COUNT]>().as_mut() }) else {
        return fail("the variables are NULL", -1);
    };
    let state = Snapshot::from_parts(VariableSet::from_bits(known), values);
    let Some(state) = state.from_zero() else {
        return fail("this needs snd_una and bytes_acked: subscribe to both", -1);
    };
    *values = self::values(&state);
    0
}

/// The result of `call` with the handle. If either fails the result is `failed`, and
/// [`tg_events_error`](texts) has the message.
///
/// # Safety
///
/// The handle is null or from one of the opening functions.
unsafe fn with<T>(
    handle: *const Handle,
    failed: T,
    call: impl FnOnce(&Handle) -> Result<T, Box<dyn Error>>,
) -> T {
    // SAFETY: as the caller guarantees.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, failed);
    };
    match call(handle) {
        Ok(result) => result,
        Err(e) => fail(&e.to_string(), failed),
    }
}

/// 0, or -1 if the handle is null or `call` fails.
///
/// # Safety
///
/// As [`with`].
unsafe fn done(
    handle: *const Handle,
    call: impl FnOnce(&Handle) -> Result<(), Box<dyn Error>>,
) -> c_int {
    // SAFETY: as the caller guarantees.
    unsafe { with(handle, -1, |handle| call(handle).map(|()| 0)) }
}

/// # Safety
///
/// `path` is null or ends with zero.
unsafe fn connect(
    path: *const c_char,
    connect: impl FnOnce(&Path) -> Result<Events, EventsError>,
) -> *mut Handle {
    if path.is_null() {
        return fail("the path is NULL", ptr::null_mut());
    }
    // SAFETY: as the caller guarantees.
    let path = unsafe { CStr::from_ptr(path) };
    handle(connect(Path::new(OsStr::from_bytes(path.to_bytes()))))
}

fn handle(events: Result<Events, EventsError>) -> *mut Handle {
    match events {
        Ok(events) => Box::into_raw(Box::new(Handle {
            events: Arc::new(events),
            signals: Mutex::new(None),
            caller: Mutex::new(None),
            programs: Arc::default(),
        })),
        Err(e) => fail(&e.to_string(), ptr::null_mut()),
    }
}

fn to_c(event: &Event) -> CEvent {
    let (detail, detail2) = event.what.details();
    CEvent {
        time_ns: event.time.as_nanos() as u64,
        subscription: event.subscription.0,
        number: event.number,
        kind: event.what.kind() as u32,
        detail,
        detail2,
        known: event.state.known().bits(),
        variables: values(&event.state),
    }
}

fn values(state: &Snapshot) -> [u64; COUNT] {
    let mut values = [0; COUNT];
    for (value, &variable) in values.iter_mut().zip(Variable::ALL) {
        *value = state.get(variable).unwrap_or_default();
    }
    values
}

fn wanted(events: u32, variables: u64) -> EventRequest {
    EventRequest {
        events: EventSet::from_bits(events),
        variables: VariableSet::from_bits(variables),
    }
}

fn borrow<'a>(fd: c_int) -> Result<BorrowedFd<'a>, &'static str> {
    if fd < 0 {
        return Err("the socket is negative");
    }
    // SAFETY: it is only passed to the kernel, which reports a closed descriptor.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a result if the caller has a place for it.
///
/// # Safety
///
/// `place` is null or a place for a value.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: as the caller guarantees.
        unsafe { place.write(value) };
    }
}

const NO_HANDLE: &str = "the handle is NULL: open the events first, and check that call for errors";
