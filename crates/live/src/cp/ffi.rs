//! The C interface of C-UDP, as `include/tidegate_cp.h` declares it.
//!
//! Every function checks its handle and its pointers for null. The header lists the other obligations
//! of the caller: a pointer is null or points to what its type says, for the time of the call, and a
//! handle is from `tg_cp_open`.

use std::ffi::c_int;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, slice};

use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use tidegate_core::aggregate::estimates::PathState;
use tidegate_core::units::{Rate, Time, nanos};
use tidegate_core::wire::cp::{ApplicationId, Shares};

use super::{CpLabel, CpSocket, wait};
use crate::clock::Clock;

/// `tg_cp`.
struct Handle {
    socket: Mutex<CpSocket>,
    /// The same socket, for waiting without the lock.
    waiting: OwnedFd,
    clock: Clock,
}

/// `tg_cp_path`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Path {
    rtt_ns: u64,
    deviation_ns: u64,
    available_bps: u64,
    sending_bps: u64,
    loss: f64,
    state: u32,
    shares: u32,
    packet_size: u32,
    flows: u32,
}

#[unsafe(no_mangle)]
extern "C" fn tg_cp_open(
    fd: c_int,
    application: u16,
    flow: u16,
    shares: u8,
) -> Option<Box<Handle>> {
    match open(fd, application, flow, shares) {
        Ok(handle) => Some(Box::new(handle)),
        Err(error) => fail(&error, None),
    }
}

#[unsafe(no_mangle)]
extern "C" fn tg_cp_close(handle: Option<Box<Handle>>) {
    drop(handle);
}

#[unsafe(no_mangle)]
extern "C" fn tg_cp_set_shares(handle: Option<&Handle>, shares: u8) -> c_int {
    let set = |handle: &Handle| {
        let shares = Shares::new(shares).ok_or(io::ErrorKind::InvalidInput)?;
        handle.lock().set_shares(shares);
        Ok(0)
    };
    with(handle, -1, set)
}

#[unsafe(no_mangle)]
extern "C" fn tg_cp_send(
    handle: Option<&Handle>,
    data: Option<NonNull<u8>>,
    length: usize,
) -> c_int {
    let send = |handle: &Handle| handle.lock().send(bytes(data, length)?).map(|()| 0);
    with(handle, -1, send)
}

#[unsafe(no_mangle)]
extern "C" fn tg_cp_receive(
    handle: Option<&Handle>,
    data: Option<NonNull<u8>>,
    size: usize,
    timeout_ms: c_int,
) -> isize {
    let receive = |handle: &Handle| {
        if data.is_none() && size > 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let limit = u64::try_from(timeout_ms).map_or(Time::FAR, |ms| {
            handle.clock.now() + Duration::from_millis(ms)
        });
        handle.receive(limit, |received| {
            if let Some(data) = data {
                let length = received.len().min(size);
                // SAFETY: the caller's memory has `size` bytes, and is not that of the socket.
                unsafe { ptr::copy_nonoverlapping(received.as_ptr(), data.as_ptr(), length) };
            }
            received.len() as isize
        })
    };
    with(handle, -1, receive)
}

#[unsafe(no_mangle)]
extern "C" fn tg_cp_get_path(handle: Option<&Handle>, path: Option<&mut Path>) -> c_int {
    let get = |handle: &Handle| {
        *path.ok_or(io::ErrorKind::InvalidInput)? = to_c(&handle.lock());
        Ok(0)
    };
    with(handle, -1, get)
}

#[unsafe(no_mangle)]
extern "C" fn tg_cp_refused(handle: Option<&Handle>) -> u64 {
    with(handle, 0, |handle| Ok(handle.lock().counters().refused()))
}

impl Handle {
    fn lock(&self) -> MutexGuard<'_, CpSocket> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives a datagram, until `limit` or a change of the state by silence.
    fn receive<T>(&self, limit: Time, read: impl Fn(&[u8]) -> T) -> io::Result<T> {
        let change = self.lock().next_timeout();
        loop {
            if let Some(arrival) = self.lock().receive()? {
                return Ok(read(arrival.data));
            }
            // A refused datagram does not postpone the change.
            let limit = change.map_or(limit, |at| at.min(limit));
            if self.clock.now() >= limit {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            wait(self.waiting.as_fd(), self.clock.until(limit))?;
        }
    }
}

fn open(fd: c_int, application: u16, flow: u16, shares: u8) -> io::Result<Handle> {
    if fd < 0 {
        return Err(Errno::BADF.into());
    }
    let shares = Shares::new(shares).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: it is only duplicated, and the kernel reports a closed descriptor.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
    if socket_type(&socket)? != SocketType::DGRAM {
        return Err(Errno::PROTOTYPE.into());
    }
    let udp = UdpSocket::from(socket);
    let peer = udp.peer_addr()?;
    let label = CpLabel {
        application: ApplicationId(application),
        flow,
        shares,
    };
    let clock = Clock::start();
    Ok(Handle {
        waiting: udp.as_fd().try_clone_to_owned()?,
        socket: Mutex::new(CpSocket::connected(udp, peer, label, clock)?),
        clock,
    })
}

fn to_c(socket: &CpSocket) -> Path {
    let state = match socket.state() {
        PathState::Unknown => 0,
        PathState::Current => 1,
        PathState::PeerLost => 2,
        PathState::Silent => 3,
        PathState::Stopped => 4,
    };
    let Some(known) = socket.estimates() else {
        return Path {
            loss: UNKNOWN_LOSS,
            state,
            ..Path::default()
        };
    };
    Path {
        rtt_ns: known.rtt.map_or(0, nanos),
        deviation_ns: nanos(known.deviation),
        available_bps: known.available.map_or(0, Rate::as_bps),
        sending_bps: known.sending.as_bps(),
        loss: known.loss.unwrap_or(UNKNOWN_LOSS),
        state,
        shares: known.shares.get().into(),
        packet_size: known.packet_size.get() as u32,
        flows: known.flows.into(),
    }
}

/// The result of `call` with the handle. If either fails the result is `failed`, and `errno` has the
/// reason.
fn with<T>(handle: Option<&Handle>, failed: T, call: impl FnOnce(&Handle) -> io::Result<T>) -> T {
    match handle
        .ok_or(io::ErrorKind::InvalidInput.into())
        .and_then(call)
    {
        Ok(result) => result,
        Err(error) => fail(&error, failed),
    }
}

/// The caller's `length` bytes.
fn bytes<'a>(data: Option<NonNull<u8>>, length: usize) -> io::Result<&'a [u8]> {
    match data {
        _ if length == 0 => Ok(&[]),
        // SAFETY: the caller has so many bytes there for the time of the call.
        Some(data) => Ok(unsafe { slice::from_raw_parts(data.as_ptr(), length) }),
        None => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Returns `result`, and sets `errno`.
fn fail<T>(error: &io::Error, result: T) -> T {
    let code = error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        _ => libc::EINVAL,
    });
    // SAFETY: the address of a variable of this thread.
    unsafe { *libc::__errno_location() = code };
    result
}

/// A loss rate before the first report.
const UNKNOWN_LOSS: f64 = -1.0;
