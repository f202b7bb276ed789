//! The C interface, as `include/tidegate_events.h` declares it.
//!
//! Every function checks its pointers for null; what else a caller must keep to is in the header.

mod caller;
mod programs;
mod texts;

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bpf::events::Wanted;
use crate::error::EventsError;
use crate::event::{Event, EventSet, SubscriptionId};
use crate::events::Events;
use crate::handlers::Signals;
use crate::variables::{COUNT, Snapshot, Variable, VariableSet};
use caller::{Callback, Caller, Hearer};
use programs::Programs;
use texts::{fail, kept, status};

/// `tg_events`.
pub(crate) struct Handle {
    events: Arc<Events>,
    signals: Mutex<Option<Signals>>,
    caller: Mutex<Option<Caller>>,
    programs: Arc<Programs>,
}

impl Handle {
    /// Sees to it that a thread takes events.
    fn keep_taking(&self) -> io::Result<()> {
        let mut place = lock(&self.caller);
        if place.as_ref().is_some_and(|caller| !caller.is_stopped()) {
            return Ok(());
        }
        // One that was stopped in its own callback ends when that is over.
        let before = place.take();
        *place = Some(Caller::start(self, None, before)?);
        Ok(())
    }

    /// The oldest event that nobody took and that is not for a program that was cancelled.
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
    // SAFETY: the caller gives a string that ends in zero, or null.
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
        // SAFETY: it came from `Box::into_raw`, and the caller uses it no more.
        drop(unsafe { Box::from_raw(handle) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_from_kernel(handle: *const Handle) -> c_int {
    // SAFETY: as the header says, null or from one of the opening functions.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    handle.events.from_kernel().into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_is_serving(handle: *const Handle) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    handle.events.is_serving().into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_why_unprivileged(handle: *const Handle) -> *const c_char {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, std::ptr::null());
    };
    let why = handle.events.why_unprivileged();
    why.map_or(std::ptr::null(), kept)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_weaker(handle: *const Handle, kind: u32) -> *const c_char {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, std::ptr::null());
    };
    let mut weaker = handle.events.weaker().iter();
    let found = weaker.find(|(weak, _)| *weak as u32 == kind);
    found.map_or(std::ptr::null(), |(_, how)| kept(how))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_busy_poll(handle: *const Handle, microseconds: u32) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    let span = Duration::from_micros(microseconds.into());
    handle.events.busy_poll(span);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_fd(handle: *const Handle) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    handle.events.as_fd().as_raw_fd()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_allowed(
    handle: *const Handle,
    events: *mut u32,
    variables: *mut u64,
) -> c_int {
    // SAFETY: as above; the others are null or places for the answers.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    let allowed = handle.events.allowed();
    // SAFETY: as above.
    unsafe {
        put(events, allowed.events.bits());
        put(variables, allowed.variables.bits());
    }
    0
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
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    let Some(socket) = borrow(socket) else {
        return fail("the socket is negative", -1);
    };
    match handle.events.subscribe(socket, wanted(events, variables)) {
        Ok(new) => {
            // SAFETY: null or a place for the answer.
            unsafe { put(id, new.0) };
            0
        }
        Err(e) => fail(&e.to_string(), -1),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_change(
    handle: *const Handle,
    id: u64,
    events: u32,
    variables: u64,
) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    status(
        handle
            .events
            .change(SubscriptionId(id), wanted(events, variables)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_cancel(handle: *const Handle, id: u64) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    status(handle.programs.cancel(&handle.events, SubscriptionId(id)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_tally(
    handle: *const Handle,
    id: u64,
    events: *mut u64,
    lost: *mut u64,
) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    match handle.events.tally(SubscriptionId(id)) {
        Ok(tally) => {
            // SAFETY: null or places for the answers.
            unsafe {
                put(events, tally.events);
                put(lost, tally.lost);
            }
            0
        }
        Err(e) => fail(&e.to_string(), -1),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_next(
    handle: *const Handle,
    event: *mut CEvent,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    match handle.next(limit) {
        Ok(Some(next)) => {
            // SAFETY: null or a place for the event.
            unsafe { put(event, to_c(&next)) };
            1
        }
        Ok(None) => 0,
        Err(e) => fail(&e.to_string(), -1),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_probe(
    handle: *const Handle,
    socket: c_int,
    known: *mut u64,
    variables: *mut u64,
) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    let Some(socket) = borrow(socket) else {
        return fail("the socket is negative", -1);
    };
    match handle.events.probe(socket) {
        Ok(state) => {
            // SAFETY: null or places for the answers, the second for as many as there are.
            unsafe {
                put(known, state.known().bits());
                put(variables.cast(), values(&state));
            }
            0
        }
        Err(e) => fail(&e.to_string(), -1),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_write(
    handle: *const Handle,
    socket: c_int,
    bytes: *const c_void,
    length: usize,
) -> isize {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    let Some(socket) = borrow(socket) else {
        return fail("the socket is negative", -1);
    };
    if bytes.is_null() {
        return fail("the bytes are NULL", -1);
    }
    // SAFETY: the caller gives that many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast(), length) };
    match handle.events.write(socket, bytes) {
        Ok(written) => written as isize,
        Err(e) => fail(&e.to_string(), -1),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_signal(handle: *const Handle, signal: c_int) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    let mut place = lock(&handle.signals);
    *place = None;
    if signal == 0 {
        return 0;
    }
    match Signals::to_this_thread(Arc::clone(&handle.events), signal) {
        Ok(signals) => {
            *place = Some(signals);
            0
        }
        Err(e) => fail(&format!("signal {signal}: {e}"), -1),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_rearm(handle: *const Handle) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    let Some(signals) = &*lock(&handle.signals) else {
        return fail("no signal is sent: ask for one with tg_events_signal", -1);
    };
    signals.rearm();
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_events_call(
    handle: *const Handle,
    callback: Option<Callback>,
    user: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return fail(NO_HANDLE, -1);
    };
    // Nothing is locked while a callback ends, which may call this itself.
    let old = lock(&handle.caller).take();
    if let Some(old) = &old {
        old.stop();
    }
    let old = old.filter(Caller::is_here);
    let Some(callback) = callback else {
        if let Some(old) = old {
            // Whoever closes the events waits for it.
            lock(&handle.caller).get_or_insert(old);
        }
        if handle.programs.are_none() {
            return 0;
        }
        return status(handle.keep_taking());
    };
    match Caller::start(handle, Some(Hearer::new(callback, user)), old) {
        Ok(new) => {
            let other = lock(&handle.caller).replace(new);
            // Of another thread that called this at the same time.
            drop(other);
            0
        }
        Err(e) => fail(&e.to_string(), -1),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tg_count_from_zero(known: u64, variables: *mut u64) -> c_int {
    // SAFETY: null, or as many as there are.
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

/// `path` ends in zero, or is null.
unsafe fn connect(
    path: *const c_char,
    how: impl FnOnce(&Path) -> Result<Events, EventsError>,
) -> *mut Handle {
    if path.is_null() {
        return fail("the path is NULL", std::ptr::null_mut());
    }
    // SAFETY: as the caller says.
    let path = unsafe { CStr::from_ptr(path) };
    handle(how(Path::new(OsStr::from_bytes(path.to_bytes()))))
}

fn handle(events: Result<Events, EventsError>) -> *mut Handle {
    match events {
        Ok(events) => Box::into_raw(Box::new(Handle {
            events: Arc::new(events),
            signals: Mutex::new(None),
            caller: Mutex::new(None),
            programs: Arc::default(),
        })),
        Err(e) => fail(&e.to_string(), std::ptr::null_mut()),
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

fn wanted(events: u32, variables: u64) -> Wanted {
    Wanted {
        events: EventSet::from_bits(events),
        variables: VariableSet::from_bits(variables),
    }
}

fn borrow<'a>(fd: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: it is only passed to the kernel, which says if it is not open.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes an answer where one is wanted.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller says that it is a place for it.
        unsafe { place.write(value) };
    }
}

const NO_HANDLE: &str = "the handle is NULL: open the events first, and see why that failed";
