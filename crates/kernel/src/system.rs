//! System calls, descriptors and threads that the modules of the crate share.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fs, io, mem, ptr, slice};

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

/// A new descriptor from a system call.
pub(crate) fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new, so it has no other owner.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads an option of a socket whose value is a number or a structure of numbers.
pub(crate) fn option<T: Copy>(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    // SAFETY: callers use integers and structures of them, for which zero is a value.
    let mut value: T = unsafe { mem::zeroed() };
    option_into(socket, level, name, slice::from_mut(&mut value))?;
    Ok(value)
}

/// Reads an option of a socket into a slice of numbers, and returns the number of bytes.
pub(crate) fn option_into<T: Copy>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut [T],
) -> io::Result<usize> {
    let mut size = mem::size_of_val(value) as libc::socklen_t;
    let (fd, place) = (socket.as_raw_fd(), value.as_mut_ptr().cast());
    // SAFETY: `value` is passed with its size.
    check(unsafe { libc::getsockopt(fd, level, name, place, &raw mut size) })?;
    Ok(size as usize)
}

/// Sets an option of a socket to a number, or to a structure or slice of numbers.
pub(crate) fn set_option<T: ?Sized>(
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

/// Sends bytes on a socket without SIGPIPE, and returns their number.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], flags: i32) -> io::Result<usize> {
    let (fd, flags) = (socket.as_raw_fd(), flags | libc::MSG_NOSIGNAL);
    // SAFETY: `bytes` is passed with its length.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// A new epoll instance.
pub(crate) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: takes a number and touches no memory.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// Adds a descriptor to an epoll instance, for these events and under this key.
pub(crate) fn epoll_add(epoll: &OwnedFd, fd: RawFd, events: i32, key: u64) -> io::Result<()> {
    let events = events as u32;
    let mut event = libc::epoll_event { events, u64: key };
    let (epoll, add) = (epoll.as_raw_fd(), libc::EPOLL_CTL_ADD);
    // SAFETY: `event` is whole.
    check(unsafe { libc::epoll_ctl(epoll, add, fd, &raw mut event) }).map(drop)
}

/// Makes calls on a descriptor return at once.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes numbers and touches no memory.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    let flags = flags | libc::O_NONBLOCK;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

/// Sets the time-out of blocking calls on a socket.
pub(crate) fn limit(socket: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    let limit = libc::timeval {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_usec: limit.subsec_micros().into(),
    };
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        set_option(socket, libc::SOL_SOCKET, name, &limit)?;
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
    let mut limit = descriptor_limit()?;
    limit.rlim_cur = libc::rlim_t::from(many)
        .min(limit.rlim_max)
        .max(limit.rlim_cur);
    // SAFETY: `limit` is whole.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(drop)
}

/// Descriptors that this thread can still open; `u64::MAX` if the system has no such number.
pub(crate) fn descriptors_left() -> u64 {
    let Ok(limit) = descriptor_limit() else {
        return u64::MAX;
    };
    // The size of the directory is the number of descriptors since Linux 6.2.
    let size = fs::metadata(DESCRIPTORS).map_or(0, |directory| directory.len());
    // Counting takes a descriptor.
    let count = || match fs::read_dir(DESCRIPTORS) {
        Ok(list) => list.count() as u64,
        Err(e) if is_short(&e) => u64::MAX,
        Err(_) => 0,
    };
    let open = if size > 0 { size } else { count() };
    limit.rlim_cur.saturating_sub(open)
}

/// The open descriptors of this thread.
pub(crate) fn descriptors() -> io::Result<Vec<RawFd>> {
    let all = fs::read_dir(DESCRIPTORS)?;
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    Ok(all.filter_map(number).collect())
}

fn descriptor_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is whole.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    Ok(limit)
}

/// The descriptors of this thread, which may have a table of its own.
const DESCRIPTORS: &str = "/proc/thread-self/fd";

/// The kernel's unique number of a socket (`SO_COOKIE`).
pub(crate) fn cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    option(socket, libc::SOL_SOCKET, libc::SO_COOKIE)
}

/// A local socket of type `SOCK_SEQPACKET`, which keeps message boundaries.
pub(crate) fn local_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers and touches no memory.
    owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })
}

/// Two connected local sockets.
pub(crate) fn local_pair() -> io::Result<[OwnedFd; 2]> {
    let mut fds = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: `fds` has room for two.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    Ok(fds.map(|fd| owned(fd).expect("socketpair has made both")))
}

/// The address of a local socket at a path, and its size.
pub(crate) fn local_address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: an address is integers, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        let text = "a socket path has 1 to 107 bytes";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    for (to, &from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    Ok((address, mem::size_of_val(&address) as libc::socklen_t))
}

/// A descriptor to poll, and the result.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Polled(libc::pollfd);

impl Polled {
    /// Polls for input.
    pub(crate) fn input(fd: BorrowedFd<'_>) -> Self {
        Self::new(fd, libc::POLLIN)
    }

    /// Polls for errors and hang-ups only.
    pub(crate) fn trouble(fd: BorrowedFd<'_>) -> Self {
        Self::new(fd, 0)
    }

    /// Whether the poll found an event.
    pub(crate) fn is_ready(&self) -> bool {
        self.0.revents != 0
    }

    fn new(fd: BorrowedFd<'_>, events: libc::c_short) -> Self {
        Self(libc::pollfd {
            fd: fd.as_raw_fd(),
            events,
            revents: 0,
        })
    }
}

/// Waits until a descriptor is ready or the limit is over. A signal ends the wait early.
pub(crate) fn poll(these: &mut [Polled], limit: Option<Duration>) -> io::Result<()> {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().min(1 << 40) as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `Polled` is a pollfd and nothing else; the slice is passed with its length.
    let result = unsafe {
        libc::ppoll(
            these.as_mut_ptr().cast(),
            these.len() as libc::nfds_t,
            limit,
            ptr::null(),
        )
    };
    match check(result) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => {
            for polled in these {
                polled.0.revents = 0;
            }
            Ok(())
        }
        other => other.map(drop),
    }
}

/// The time on `CLOCK_MONOTONIC`, the clock of [`Event::time`](crate::Event::time).
pub fn monotonic() -> Duration {
    // SAFETY: a timespec is two integers, for which zero is a value, and a valid place.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// An event counter (eventfd(2)) that wakes a thread.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: takes numbers and touches no memory.
        owned(unsafe { libc::eventfd(0, flags) }).map(Self)
    }

    /// Makes it readable.
    pub(crate) fn ring(&self) {
        let one = 1_u64;
        // It fails only if the counter is full, and readable then.
        // SAFETY: writes the eight bytes of a number.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes it unreadable.
    pub(crate) fn quiet(&self) {
        let mut count = 0_u64;
        // It fails only if the counter is zero.
        // SAFETY: reads eight bytes into a number.
        let _ = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    pub(crate) fn is_rung(&self) -> bool {
        let mut polled = [Polled::input(self.as_fd())];
        poll(&mut polled, Some(Duration::ZERO)).is_ok() && polled[0].is_ready()
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
