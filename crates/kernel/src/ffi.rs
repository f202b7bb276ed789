//! The C interface, as `include/tidegate_events.h` declares it.
//!
//! Every function checks its handle, its socket and its input pointers for null. The header lists
//! the other obligations of the caller: a pointer is null or points to what its type says, for the
//! time of the call, and a handle is from one of the opening functions.

mod caller;
mod programs;
mod texts;

use std::error::Error;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bpf::events::EventRequest;
use crate::error::EventsError;
use crate::event::{Event, EventSet, SubscriptionId};
use crate::events::Events;
use crate::handlers::Signals;
use crate::system::by_number;
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
extern "C" fn tg_events_open() -> Option<Box<Handle>> {
    handle(Events::open())
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_connect(path: Text) -> Option<Box<Handle>> {
    connect(path, Events::connect)
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_connect_with(path: Text, ring: u32) -> Option<Box<Handle>> {
    connect(path, |path| Events::connect_with(path, ring))
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_in_process() -> Option<Box<Handle>> {
    handle(Events::in_process())
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_unprivileged() -> Option<Box<Handle>> {
    handle(Events::unprivileged())
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_close(handle: Option<Box<Handle>>) {
    drop(handle);
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_from_kernel(handle: Option<&Handle>) -> c_int {
    with(handle, -1, |handle| Ok(handle.events.from_kernel().into()))
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_is_serving(handle: Option<&Handle>) -> c_int {
    with(handle, -1, |handle| Ok(handle.events.is_serving().into()))
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_why_unprivileged(handle: Option<&Handle>) -> *const c_char {
    let why = |handle: &Handle| Ok(handle.events.why_unprivileged().map_or(ptr::null(), kept));
    with(handle, ptr::null(), why)
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_weaker(handle: Option<&Handle>, kind: u32) -> *const c_char {
    let weaker = |handle: &Handle| {
        let mut weaker = handle.events.limited_events().iter();
        let found = weaker.find(|(weak, _)| *weak as u32 == kind);
        Ok(found.map_or(ptr::null(), |(_, how)| kept(how)))
    };
    with(handle, ptr::null(), weaker)
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_busy_poll(handle: Option<&Handle>, microseconds: u32) -> c_int {
    let span = Duration::from_micros(microseconds.into());
    done(handle, |handle| {
        handle.events.busy_poll(span);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_fd(handle: Option<&Handle>) -> c_int {
    with(handle, -1, |handle| Ok(handle.events.as_fd().as_raw_fd()))
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_allowed(
    handle: Option<&Handle>,
    events: Place<u32>,
    variables: Place<u64>,
) -> c_int {
    done(handle, |handle| {
        let allowed = handle.events.allowed();
        events.put(allowed.events.bits());
        variables.put(allowed.variables.bits());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_subscribe(
    handle: Option<&Handle>,
    socket: c_int,
    events: u32,
    variables: u64,
    id: Place<u64>,
) -> c_int {
    done(handle, |handle| {
        let wanted = wanted(events, variables);
        id.put(handle.events.subscribe(borrow(socket)?, wanted)?.0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_change(
    handle: Option<&Handle>,
    id: u64,
    events: u32,
    variables: u64,
) -> c_int {
    let (id, wanted) = (SubscriptionId(id), wanted(events, variables));
    done(handle, |handle| Ok(handle.events.change(id, wanted)?))
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_cancel(handle: Option<&Handle>, id: u64) -> c_int {
    let cancel = |h: &Handle| Ok(h.programs.cancel(&h.events, SubscriptionId(id))?);
    done(handle, cancel)
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_tally(
    handle: Option<&Handle>,
    id: u64,
    events: Place<u64>,
    lost: Place<u64>,
) -> c_int {
    done(handle, |handle| {
        let tally = handle.events.tally(SubscriptionId(id))?;
        events.put(tally.events);
        lost.put(tally.lost);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_next(
    handle: Option<&Handle>,
    event: Place<CEvent>,
    timeout_ms: c_int,
) -> c_int {
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    with(handle, -1, |handle| {
        let next = handle.next(limit)?;
        if let Some(next) = &next {
            event.put(to_c(next));
        }
        Ok(next.is_some().into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_probe(
    handle: Option<&Handle>,
    socket: c_int,
    known: Place<u64>,
    variables: Place<[u64; COUNT]>,
) -> c_int {
    done(handle, |handle| {
        let state = handle.events.probe(borrow(socket)?)?;
        known.put(state.known().bits());
        variables.put(values(&state));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_write(
    handle: Option<&Handle>,
    socket: c_int,
    bytes: Option<NonNull<u8>>,
    length: usize,
) -> isize {
    with(handle, -1, |handle| {
        let socket = borrow(socket)?;
        let bytes = bytes.ok_or("the bytes are NULL")?;
        // SAFETY: the caller has so many bytes there.
        let bytes = unsafe { slice::from_raw_parts(bytes.as_ptr(), length) };
        Ok(handle.events.write(socket, bytes)? as isize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_signal(handle: Option<&Handle>, signal: c_int) -> c_int {
    let start = |handle: &Handle| {
        let mut signals = lock(&handle.signals);
        *signals = None;
        if signal != 0 {
            let new = Signals::to_this_thread(Arc::clone(&handle.events), signal);
            *signals = Some(new.map_err(|e| format!("signal {signal}: {e}"))?);
        }
        Ok(())
    };
    done(handle, start)
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_rearm(handle: Option<&Handle>) -> c_int {
    let rearm = |handle: &Handle| {
        let signals = lock(&handle.signals);
        let signals = signals.as_ref();
        signals
            .ok_or("no signal is set: set one with tg_events_signal")?
            .rearm();
        Ok(())
    };
    done(handle, rearm)
}

#[unsafe(no_mangle)]
extern "C" fn tg_events_call(
    handle: Option<&Handle>,
    callback: Option<Callback>,
    user: User,
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
    done(handle, call)
}

#[unsafe(no_mangle)]
extern "C" fn tg_count_from_zero(known: u64, variables: Option<&mut [u64; COUNT]>) -> c_int {
    let Some(values) = variables else {
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
fn with<T>(
    handle: Option<&Handle>,
    failed: T,
    call: impl FnOnce(&Handle) -> Result<T, Box<dyn Error>>,
) -> T {
    let Some(handle) = handle else {
        return fail(NO_HANDLE, failed);
    };
    match call(handle) {
        Ok(result) => result,
        Err(e) => fail(&e.to_string(), failed),
    }
}

/// 0, or -1 if the handle is null or `call` fails.
fn done(
    handle: Option<&Handle>,
    call: impl FnOnce(&Handle) -> Result<(), Box<dyn Error>>,
) -> c_int {
    with(handle, -1, |handle| call(handle).map(|()| 0))
}

fn connect(
    path: Text,
    connect: impl FnOnce(&Path) -> Result<Events, EventsError>,
) -> Option<Box<Handle>> {
    let Some(path) = path.get() else {
        return fail("the path is NULL", None);
    };
    handle(connect(Path::new(OsStr::from_bytes(path.to_bytes()))))
}

fn handle(events: Result<Events, EventsError>) -> Option<Box<Handle>> {
    match events {
        Ok(events) => Some(Box::new(Handle {
            events: Arc::new(events),
            signals: Mutex::new(None),
            caller: Mutex::new(None),
            programs: Arc::default(),
        })),
        Err(e) => fail(&e.to_string(), None),
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
    by_number(fd).ok_or("the socket is negative")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A text of the caller, which ends with zero.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Text(Option<NonNull<c_char>>);

impl Text {
    /// `None` for null.
    fn get<'a>(self) -> Option<&'a CStr> {
        // SAFETY: the text ends with zero, and stays for the time of the call.
        self.0.map(|text| unsafe { CStr::from_ptr(text.as_ptr()) })
    }
}

/// A place of the caller for a result; null if the caller does not want it.
#[repr(transparent)]
struct Place<T>(Option<NonNull<T>>);

impl<T> Place<T> {
    fn put(self, value: T) {
        if let Some(place) = self.0 {
            // SAFETY: it has room for a value of this type.
            unsafe { place.write(value) };
        }
    }
}

/// The pointer of the caller that callbacks receive.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct User(*mut c_void);

// SAFETY: the header says that another thread uses the pointer.
unsafe impl Send for User {}

const NO_HANDLE: &str = "the handle is NULL: open the events first, and check that call for errors";
