//! System calls that the rest of the crate shares.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Gives this thread a table of descriptors of its own, with copies of these and of the standard
/// three and of nothing else. The numbers stay; whoever had them before has them still. What this
/// thread opens from now on is not inherited by children that other threads start: between a fork and
/// the start of a program a child has copies of all that its parent had.
///
/// # Errors
///
/// The system has no memory, or no such call (before Linux 5.9).
///
/// # Safety
///
/// Nothing that owns another descriptor is dropped or used on this thread from now on, and what owns
/// one of these elsewhere closes it there only.
pub(crate) unsafe fn own_descriptors(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().map(|&fd| fd as u32).chain(0..3).collect();
    keep.sort_unstable();
    keep.dedup();
    let mut closed = Vec::new();
    let mut next = 0;
    for number in keep {
        if number > next {
            closed.push((next, number - 1));
        }
        next = number + 1;
    }
    closed.push((next, u32::MAX));
    // From the top, so that little is copied to be closed.
    let mut flags = libc::CLOSE_RANGE_UNSHARE;
    for (first, last) in closed.into_iter().rev() {
        // SAFETY: takes numbers; the caller sees to it that nobody here has these descriptors.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
        check(result as libc::c_int)?;
        flags = 0;
    }
    Ok(())
}

/// The result of a call that answers −1 on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A descriptor that the kernel has just made.
pub(crate) fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: nobody else has it.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An option of a socket whose value is a number or a structure of numbers.
pub(crate) fn option<T: Copy>(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    // SAFETY: callers ask for integers and structures of them, for which zero is a value.
    let mut value: T = unsafe { mem::zeroed() };
    let mut size = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is whole and passed with its size.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut size,
        )
    })?;
    Ok(value)
}

/// Sets an option of a socket.
pub(crate) fn set_option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &T,
) -> io::Result<()> {
    let size = mem::size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: `value` is whole and passed with its size.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, size) }).map(drop)
}

/// Has calls on a socket that would wait give up after this time.
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

/// Whether the process, or the machine, has no descriptor left.
pub(crate) fn is_short(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// What helps then.
pub(crate) fn more_descriptors(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENFILE) => "raise what the machine may open (sysctl fs.file-max)",
        _ => "raise its limit of open files (ulimit -n, LimitNOFILE=)",
    }
}

/// Lets this process have so many descriptors, or as many as it may.
pub(crate) fn allow_descriptors(many: u32) -> io::Result<()> {
    let mut limit = descriptor_limit()?;
    limit.rlim_cur = libc::rlim_t::from(many)
        .min(limit.rlim_max)
        .max(limit.rlim_cur);
    // SAFETY: `limit` is whole.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(drop)
}

/// How many more descriptors this thread may have; where the system does not tell, no end of them.
pub(crate) fn descriptors_left() -> u64 {
    let Ok(limit) = descriptor_limit() else {
        return u64::MAX;
    };
    let told = fs::metadata(DESCRIPTORS).map_or(0, |folder| folder.len());
    // Before Linux 6.2 they have to be counted, which takes one.
    let count = || match fs::read_dir(DESCRIPTORS) {
        Ok(list) => list.count() as u64,
        Err(e) if is_short(&e) => u64::MAX,
        Err(_) => 0,
    };
    let there = if told > 0 { told } else { count() };
    limit.rlim_cur.saturating_sub(there)
}

/// The descriptors of this thread.
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

/// Those of this thread, which may have a table of its own.
const DESCRIPTORS: &str = "/proc/thread-self/fd";

/// The number that tells a socket from all others since the machine started.
pub(crate) fn cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    option(socket, libc::SOL_SOCKET, libc::SO_COOKIE)
}

/// A local socket that keeps the bounds of messages.
pub(crate) fn local_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers and touches no memory.
    owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })
}

/// Two of them, joined.
pub(crate) fn local_pair() -> io::Result<[OwnedFd; 2]> {
    let mut fds = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: `fds` has room for two.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    Ok(fds.map(|fd| owned(fd).expect("both have been made")))
}

/// The address of a local socket at a path, and its size.
pub(crate) fn local_address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: an address is integers, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        let text = "paths of sockets have 1 to 107 bytes";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    for (to, &from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    Ok((address, mem::size_of_val(&address) as libc::socklen_t))
}

/// Something to be polled, and whether anything happened to it.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Polled(libc::pollfd);

impl Polled {
    /// For reading.
    pub(crate) fn input(fd: BorrowedFd<'_>) -> Self {
        Self::new(fd, libc::POLLIN)
    }

    /// For errors and the other side's going only.
    pub(crate) fn trouble(fd: BorrowedFd<'_>) -> Self {
        Self::new(fd, 0)
    }

    /// Whether there is something.
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

/// Waits until one of these is ready or the time is over. A signal ends it early.
pub(crate) fn poll(these: &mut [Polled], limit: Option<Duration>) -> io::Result<()> {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().min(1 << 40) as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `Polled` is a pollfd and nothing else; the slice is passed with its length.
    let result = unsafe {
        libc::ppoll(
            these.as_mut_ptr().cast(),
            these.len() as libc::nfds_t,
            limit,
            std::ptr::null(),
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

/// The time on `CLOCK_MONOTONIC`, by which events are stamped.
pub fn monotonic() -> Duration {
    // SAFETY: a timespec is two integers, for which zero is a value, and a valid place.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// An event counter, to wake a thread with.
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
        // It fails only when it is full, that is readable.
        // SAFETY: writes the eight bytes of a number.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), (&raw const ONE).cast(), 8) };
    }

    /// Makes it unreadable.
    pub(crate) fn quiet(&self) {
        let mut count = 0_u64;
        // It fails only when nothing is to be read.
        // SAFETY: reads eight bytes into a number.
        let _ = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl std::os::fd::AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until a thread has ended, unless that is the one that asks: handlers may end what calls
/// them, which it then does by itself.
pub(crate) fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread.filter(|t| t.thread().id() != thread::current().id()) {
        // If it panicked it has said so.
        let _ = thread.join();
    }
}

/// Has this thread, which works little and often, run soon after it is woken: with a slice of 100
/// µs it comes before threads that compute (EEVDF with custom slices, Linux 6.12). Others ignore
/// it.
pub(crate) fn use_short_slices() {
    let mut attributes = Attributes::default();
    let size = mem::size_of::<Attributes>() as u32;
    // SAFETY: the structure is whole and passed with its size; 0 is this thread. What was read is
    // written back but for the slice. A refusal changes nothing.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) == 0
            && attributes.policy == libc::SCHED_OTHER as u32
        {
            attributes.runtime = 100_000;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

/// `struct sched_attr` as it was first.
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
    let mut room = vec![0; ENTRY];
    let mut found = std::ptr::null_mut();
    // SAFETY: the entry is pointers and integers, for which zero is a value; all buffers outlive
    // the call and are passed with their sizes.
    unsafe {
        let mut entry: libc::group = mem::zeroed();
        libc::getgrnam_r(
            name.as_ptr(),
            &raw mut entry,
            room.as_mut_ptr(),
            room.len(),
            &raw mut found,
        );
        (!found.is_null()).then_some(entry.gr_gid)
    }
}

/// User and group of a name, for whoever is to run as one.
pub(crate) fn user_and_group(name: &CStr) -> Option<(u32, u32)> {
    let mut room = vec![0; ENTRY];
    let mut found = std::ptr::null_mut();
    // SAFETY: as above.
    unsafe {
        let mut entry: libc::passwd = mem::zeroed();
        libc::getpwnam_r(
            name.as_ptr(),
            &raw mut entry,
            room.as_mut_ptr(),
            room.len(),
            &raw mut found,
        );
        (!found.is_null()).then_some((entry.pw_uid, entry.pw_gid))
    }
}

/// The group of a user, by the user's number.
pub(crate) fn group_of(user: u32) -> Option<u32> {
    let mut room = vec![0; ENTRY];
    let mut found = std::ptr::null_mut();
    // SAFETY: as above.
    unsafe {
        let mut entry: libc::passwd = mem::zeroed();
        libc::getpwuid_r(
            user,
            &raw mut entry,
            room.as_mut_ptr(),
            room.len(),
            &raw mut found,
        );
        (!found.is_null()).then_some(entry.pw_gid)
    }
}

/// Long enough for an entry of a group with a thousand members.
const ENTRY: usize = 1 << 16;

static ONE: u64 = 1;
