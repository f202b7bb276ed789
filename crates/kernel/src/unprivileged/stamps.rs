//! The time stamp options of sockets, and those that the application had set before.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

use crate::system::{by_number, cookie, descriptors, option, set_option};
use crate::tcp::Info;
use crate::variables::Variable;

/// `struct so_timestamping`: flags and clock.
type Options = [u32; 2];

/// The options of the application.
#[derive(Clone, Copy, Debug)]
struct Before {
    options: Options,
    /// The name of the option: old or new.
    name: i32,
    /// Number of observers, here and in other [`Events`](crate::Events).
    watchers: usize,
}

/// By cookie: a socket has the option once for all observers.
static STAMPED: Mutex<BTreeMap<u64, Before>> = Mutex::new(BTreeMap::new());

/// Adds stamps to the options of the application.
pub(super) fn request(socket: BorrowedFd<'_>, cookie: u64) -> io::Result<()> {
    match stamped().entry(cookie) {
        Entry::Occupied(mut known) => known.get_mut().watchers += 1,
        Entry::Vacant(place) => {
            let before = Before::of(socket)?;
            set_option(socket, libc::SOL_SOCKET, before.name, &before.with_stamps())?;
            place.insert(before);
        }
    }
    Ok(())
}

/// Restores the options if there is no other observer. Whether stamps may still arrive, for
/// unacknowledged data.
pub(super) fn restore(fd: RawFd, cookie: u64) -> bool {
    let mut stamped = stamped();
    let Entry::Occupied(mut known) = stamped.entry(cookie) else {
        return false;
    };
    known.get_mut().watchers -= 1;
    if known.get().watchers > 0 {
        return false;
    }
    let before = known.remove();
    let Some(socket) = still(fd, cookie) else {
        return false;
    };
    // Options that the application has set since then stay.
    if options(socket, before.name).is_ok_and(|now| now == before.with_stamps()) {
        // There is no other way to stop the stamps if this fails.
        let _ = set_option(socket, libc::SOL_SOCKET, before.name, &before.options);
    }
    let pending = is_pending(socket);
    drain(socket);
    // Stamps that the application has requested must stay on its queue.
    pending && before.options[0] & SENDING == 0
}

/// Whether a socket has unacknowledged or unsent data. `TCP_INFO` takes the socket's lock, so the
/// stamps of acknowledged data are on the queue by then.
pub(super) fn is_pending(socket: BorrowedFd<'_>) -> bool {
    Info::read(socket).is_ok_and(|info| {
        let out = info.snapshot().get(Variable::PacketsOut);
        out.is_some_and(|n| n > 0) || info.unsent().is_some_and(|n| n > 0)
    })
}

/// The socket, if its descriptor is neither closed nor reused.
pub(super) fn still<'a>(fd: RawFd, its: u64) -> Option<BorrowedFd<'a>> {
    let socket = by_number(fd)?;
    cookie(socket).is_ok_and(|c| c == its).then_some(socket)
}

/// Descriptors of these sockets in this process.
pub(super) fn find(cookies: &BTreeSet<u64>) -> io::Result<BTreeMap<u64, RawFd>> {
    let numbers = descriptors()?;
    let of = |&fd: &RawFd| {
        let its = cookie(by_number(fd)?).ok()?;
        cookies.contains(&its).then_some((its, fd))
    };
    Ok(numbers.iter().filter_map(of).collect())
}

/// Discards the messages of an error queue. Only their arrival matters.
pub(super) fn drain(socket: BorrowedFd<'_>) {
    let mut room = [MaybeUninit::uninit(); 512];
    let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut payload = [0_u8; 1];
        let mut parts = [IoSliceMut::new(&mut payload)];
        if recvmsg(socket, &mut parts, &mut control, flags).is_err() {
            return;
        }
    }
}

impl Before {
    fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        // Read by the new name, the kernel reports only options that were set by it.
        let newer = options(socket, NEWER).unwrap_or_default();
        let (options, name) = if newer[0] == 0 {
            (
                options(socket, libc::SO_TIMESTAMPING)?,
                libc::SO_TIMESTAMPING,
            )
        } else {
            (newer, NEWER)
        };
        Ok(Self {
            options,
            name,
            watchers: 1,
        })
    }

    fn with_stamps(&self) -> Options {
        [self.options[0] | STAMPS, self.options[1]]
    }
}

fn options(socket: BorrowedFd<'_>, name: i32) -> io::Result<Options> {
    option(socket, libc::SOL_SOCKET, name)
}

fn stamped() -> MutexGuard<'static, BTreeMap<u64, Before>> {
    STAMPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stamps when a segment goes to the device and when it is acknowledged, in software, without a
/// copy of the payload, each with its position in the stream.
pub(super) const STAMPS: u32 = libc::SOF_TIMESTAMPING_TX_SCHED
    | libc::SOF_TIMESTAMPING_TX_ACK
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY;
/// All stamps of sent data.
const SENDING: u32 = libc::SOF_TIMESTAMPING_TX_HARDWARE
    | libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SCHED
    | libc::SOF_TIMESTAMPING_TX_ACK;
/// `SO_TIMESTAMPING_NEW`, whose stamps have 64 bits on all machines.
const NEWER: i32 = 65;
