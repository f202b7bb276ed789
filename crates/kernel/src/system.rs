//! System calls, descriptors and threads that the modules of the crate share.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fs, io, mem, ptr, slice};

use aya::Pod;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, socketpair,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Gives this thread a descriptor table of its own with copies of these descriptors and of the
/// standard three only. The numbers stay the same. Children that other threads fork do not inherit
/// descriptors that this thread opens later: between fork and exec a child has copies of all
/// descriptors of its parent's table.
///
/// # Errors
///
/// The system has no memory, or not this call (before Linux 5.9).
///
/// # Safety
///
/// No owner of another descriptor is used or dropped on this thread from now on. The owner of a
/// kept one on another thread closes it there only.
pub(crate) unsafe fn unshare_descriptors(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().map(|&fd| fd as u32).chain(0..3).collect();
    keep.sort_unstable();
    keep.dedup();
    let mut ranges = Vec::new();
    let mut next = 0;
    for number in keep {
        if number > next {
            ranges.push((next, number - 1));
        }
        next = number + 1;
    }
    ranges.push((next, u32::MAX));
    // From the top: the first call copies the table without its range.
    let mut flags = libc::CLOSE_RANGE_UNSHARE;
    for (first, last) in ranges.into_iter().rev() {
        // SAFETY: takes numbers; the caller guarantees that no owner here has these descriptors.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
        check(result as libc::c_int)?;
        flags = 0;
    }
    Ok(())
}

/// The result of a system call that returns −1 on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A descriptor by its number, for calls of the kernel that report a closed one. The number may be
/// that of another file by now, which the cookie of a socket shows.
pub(crate) fn by_number<'a>(fd: RawFd) -> Option<BorrowedFd<'a>> {
    // SAFETY: the number is not -1, and is only passed to the kernel, which reports a closed
    // descriptor.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Reads an option of a socket whose value is a number or several of them.
pub(crate) fn option<T: Pod + Default>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
) -> io::Result<T> {
    let mut value = T::default();
    option_into(socket, level, name, slice::from_mut(&mut value))?;
    Ok(value)
}

/// Reads an option of a socket into a slice of numbers, and returns the number of bytes.
pub(crate) fn option_into<T: Pod>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut [T],
) -> io::Result<usize> {
    let mut size = mem::size_of_val(value) as libc::socklen_t;
    let (fd, place) = (socket.as_raw_fd(), value.as_mut_ptr().cast());
    // SAFETY: `value` is passed with its size, and any bytes are a value of its type.
    check(unsafe { libc::getsockopt(fd, level, name, place, &raw mut size) })?;
    Ok(size as usize)
}

/// Sets an option of a socket to a number or to several of them.
pub(crate) fn set_option<T: Pod>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &T,
) -> io::Result<()> {
    let size = mem::size_of_val(value) as libc::socklen_t;
    let value = ptr::from_ref(value).cast();
    // SAFETY: `value` is whole and passed with its size.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, size) }).map(drop)
}

/// Adds a descriptor to an epoll instance, for these events and under this key.
pub(crate) fn epoll_add(
    instance: &OwnedFd,
    fd: impl AsFd,
    events: epoll::EventFlags,
    key: u64,
) -> io::Result<()> {
    Ok(epoll::add(
        instance,
        fd,
        epoll::EventData::new_u64(key),
        events,
    )?)
}

/// Sets the time-out of blocking calls on a socket.
pub(crate) fn limit(socket: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    for direction in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(socket, direction, Some(limit))?;
    }
    Ok(())
}

/// Whether the process or the machine has no descriptor left.
pub(crate) fn is_short(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// The fix for that.
pub(crate) fn more_descriptors(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENFILE) => "raise the machine's limit of open files (sysctl fs.file-max)",
        _ => "raise its limit of open files (ulimit -n, LimitNOFILE=)",
    }
}

/// Raises the limit of descriptors of this process to `many`, or as far as its hard limit allows.
pub(crate) fn allow_descriptors(many: u32) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is no limit.
    let wanted = maximum.map_or(many.into(), |maximum| maximum.min(many.into()));
    let raised = current.map(|current| current.max(wanted));
    let raised = Rlimit {
        current: raised,
        maximum,
    };
    Ok(setrlimit(Resource::Nofile, raised)?)
}

/// Descriptors that this thread can still open; `u64::MAX` without a limit.
pub(crate) fn descriptors_left() -> u64 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // The size of the directory is the number of descriptors since Linux 6.2.
    let size = fs::metadata(DESCRIPTORS).map_or(0, |directory| directory.len());
    // Counting takes a descriptor.
    let count = || match fs::read_dir(DESCRIPTORS) {
        Ok(list) => list.count() as u64,
        Err(e) if is_short(&e) => u64::MAX,
        Err(_) => 0,
    };
    let open = if size > 0 { size } else { count() };
    limit.saturating_sub(open)
}

/// The open descriptors of this thread.
pub(crate) fn descriptors() -> io::Result<Vec<RawFd>> {
    let all = fs::read_dir(DESCRIPTORS)?;
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(all.filter_map(number).collect())
}

/// The descriptors of this thread, which may have a table of its own.
const DESCRIPTORS: &str = "/proc/thread-self/fd";

/// The kernel's unique number of a socket (`SO_COOKIE`).
pub(crate) fn cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(sockopt::socket_cookie(socket)?)
}

/// A local socket of type `SOCK_SEQPACKET`, which keeps message boundaries.
pub(crate) fn local_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Two connected local sockets.
pub(crate) fn local_pair() -> io::Result<[OwnedFd; 2]> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (one, other) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    Ok([one, other])
}

/// The address of a local socket at a path.
pub(crate) fn local_address(path: &Path) -> io::Result<SocketAddrUnix> {
    // An empty path is the address of a socket without a name.
    let named = !path.as_os_str().is_empty();
    let address = SocketAddrUnix::new(path).ok().filter(|_| named);
    address.ok_or_else(|| {
        let text = "a socket path has 1 to 107 bytes";
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

/// Polls for input.
pub(crate) fn input(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// Polls for errors and hang-ups only.
pub(crate) fn trouble(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::empty())
}

/// Whether a poll found an event.
pub(crate) fn is_ready(polled: &PollFd<'_>) -> bool {
    !polled.revents().is_empty()
}

/// Waits until a descriptor is ready or the limit is over. A signal ends the wait early.
pub(crate) fn poll(these: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<()> {
    // A limit beyond the range of the clock is no limit.
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    match rustix::event::poll(these, limit.as_ref()) {
        Err(rustix::io::Errno::INTR) => {
            these.iter_mut().for_each(PollFd::clear_revents);
            Ok(())
        }
        other => Ok(other.map(drop)?),
    }
}

/// The time on `CLOCK_MONOTONIC`, the clock of [`Event::time`](crate::Event::time).
pub fn monotonic() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
}

/// The tick of the kernel: that is the resolution of its coarse clock.
pub(crate) fn tick() -> Duration {
    duration(rustix::time::clock_getres(ClockId::MonotonicCoarse))
}

fn duration(time: Timespec) -> Duration {
    Duration::try_from(time).expect("the clock of the machine's start is positive")
}

/// An event counter (eventfd(2)) that wakes a thread.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Makes it readable.
    pub(crate) fn ring(&self) {
        // It fails only if the counter is full, and readable then.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub(crate) fn quiet(&self) {
        // It fails only if the counter is zero.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }

    pub(crate) fn is_rung(&self) -> bool {
        let mut polled = [input(self.as_fd())];
        poll(&mut polled, Some(Duration::ZERO)).is_ok() && is_ready(&polled[0])
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A thread that runs until a bell rings. Dropping it rings the bell and waits for the end of the
/// thread.
#[derive(Debug)]
pub(crate) struct Worker {
    stop: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start(name: &str, run: impl FnOnce(&Bell) + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new(Bell::new()?);
        let own = Arc::clone(&stop);
        let thread = spawn(name, move || run(&own))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }

    /// Rings the bell and does not wait for the end.
    pub(crate) fn detach(&mut self) {
        self.stop.ring();
        self.thread = None;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.ring();
        join(self.thread.take());
    }
}

/// Starts a thread with a name.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}

/// Waits for the end of a thread, except on that thread itself: a handler may drop the owner of its
/// thread.
pub(crate) fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread.filter(|t| t.thread().id() != thread::current().id()) {
        // A panic has printed its message.
        let _ = thread.join();
    }
}

/// Requests time slices of 100 µs for this thread, which runs often and briefly. With EEVDF (custom
/// slices since Linux 6.12) it runs before threads with longer slices after a wake-up. Other
/// schedulers ignore it.
pub(crate) fn use_short_slices() {
    let mut attributes = Attributes::default();
    let size = mem::size_of::<Attributes>() as u32;
    // SAFETY: the structure is whole and passed with its size; 0 is this thread. Only the slice
    // changes. A refusal changes nothing.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) == 0
            && attributes.policy == libc::SCHED_OTHER as u32
        {
            attributes.runtime = 100_000;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

/// The first version of `struct sched_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The number of a group, by its name.
pub(crate) fn group_number(name: &CStr) -> Option<u32> {
    entry(|entry, room, found| {
        // SAFETY: the name ends with zero, and the others are whole and passed with their sizes.
        unsafe { libc::getgrnam_r(name.as_ptr(), entry, room.as_mut_ptr(), room.len(), found) }
    })
    .map(|group: libc::group| group.gr_gid)
}

/// The numbers of a user and of its group, by the user's name.
pub(crate) fn user_and_group(name: &CStr) -> Option<(u32, u32)> {
    entry(|entry, room, found| {
        // SAFETY: as above.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, room.as_mut_ptr(), room.len(), found) }
    })
    .map(|user: libc::passwd| (user.pw_uid, user.pw_gid))
}

/// The group of a user, by the user's number.
pub(crate) fn group_of(user: u32) -> Option<u32> {
    entry(|entry, room, found| {
        // SAFETY: as above.
        unsafe { libc::getpwuid_r(user, entry, room.as_mut_ptr(), room.len(), found) }
    })
    .map(|user: libc::passwd| user.pw_gid)
}

/// The entry that one of the functions above finds. Its pointers are dangling.
fn entry<T>(find: impl FnOnce(*mut T, &mut [c_char], *mut *mut T) -> c_int) -> Option<T> {
    // Enough for a group with a thousand members.
    let mut room = vec![0; 1 << 16];
    let mut found = ptr::null_mut();
    // SAFETY: entries are pointers and integers, for which zero is a value.
    let mut entry: T = unsafe { mem::zeroed() };
    find(&raw mut entry, &mut room, &raw mut found);
    (!found.is_null()).then_some(entry)
}
