//! Clients that hold the kernel's lock of their own socket.

use std::os::fd::FromRawFd as _;
use std::ptr::{NonNull, null_mut};

use super::*;

/// The kernel holds the socket's lock while it copies written data, so a page that does not arrive
/// keeps the socket locked. All clients are served meanwhile, including this one.
/// All clients are served meanwhile, including this one.
#[test]
fn the_daemon_does_not_wait_for_the_lock_of_a_socket() {
    let Some(daemon) = Daemon::start("locked", ANYTHING) else {
        return;
    };
    let (socket, peer) = connection();
    let events = Events::connect(&daemon.path).unwrap();
    let page = Page::new();
    let (subscribed, other) = thread::scope(|scope| {
        let keeper = match page.withhold() {
            Ok(keeper) => keeper,
            Err(why) => {
                skip("locked", &format!("no page can be withheld: {why}"));
                return (events.subscribe(&socket, states()), Ok(()));
            }
        };
        let number = socket.as_raw_fd();
        let page = &page;
        let writer = scope.spawn(move || page.write(number));
        wait_for_fault(&keeper);
        let subscribed = events.subscribe(&socket, states());
        let other = Events::connect(&daemon.path).map(drop);
        assert!(!writer.is_finished(), "the page has arrived");
        // The page arrives.
        drop(keeper);
        assert_eq!(writer.join().unwrap(), Page::SIZE as isize);
        (subscribed, other)
    });
    other.expect("another client is served");
    let id = subscribed.expect("the client with the lock is served");
    drop(peer);
    let event = next(&events);
    assert_eq!(event.subscription, id);
}

/// A page of memory without access so far.
struct Page(NonNull<libc::c_void>);

// SAFETY: only the kernel accesses the memory, which it may do on any thread.
unsafe impl Sync for Page {}

impl Page {
    const SIZE: usize = 4_096;

    fn new() -> Self {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: maps new memory at any address.
        let page = unsafe { libc::mmap(null_mut(), Self::SIZE, access, kind, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        Self(NonNull::new(page).unwrap())
    }

    /// Accesses to the page wait until the returned descriptor is closed.
    fn withhold(&self) -> io::Result<OwnedFd> {
        let done = |result: i64| {
            let failed = result == -1;
            (!failed)
                .then_some(result)
                .ok_or_else(io::Error::last_os_error)
        };
        let start = self.0.as_ptr() as u64;
        let mut version = [UFFD_API, 0, 0];
        let mut range = [start, Self::SIZE as u64, UFFDIO_REGISTER_MODE_MISSING, 0];
        // SAFETY: the descriptor is ours, and the two structures are whole.
        unsafe {
            let fd = done(libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC))?;
            let keeper = OwnedFd::from_raw_fd(fd as i32);
            let fd = keeper.as_raw_fd();
            done(libc::ioctl(fd, UFFDIO_API, version.as_mut_ptr()).into())?;
            done(libc::ioctl(fd, UFFDIO_REGISTER, range.as_mut_ptr()).into())?;
            Ok(keeper)
        }
    }

    /// Writes the page to a descriptor.
    fn write(&self, to: i32) -> isize {
        // SAFETY: the page has this size.
        unsafe { libc::write(to, self.0.as_ptr(), Self::SIZE) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping has this size, and no borrow is left.
        unsafe { libc::munmap(self.0.as_ptr(), Self::SIZE) };
    }
}

/// Waits for an access to the page.
fn wait_for_fault(keeper: &OwnedFd) {
    let mut polled = libc::pollfd {
        fd: keeper.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut message = [0_u8; 32];
    let guard = GUARD.as_millis() as i32;
    // SAFETY: one descriptor, and room for one message of 32 bytes.
    unsafe {
        assert_eq!(
            libc::poll(&raw mut polled, 1, guard),
            1,
            "the page was not accessed"
        );
        let fd = keeper.as_raw_fd();
        assert_eq!(
            libc::read(fd, message.as_mut_ptr().cast(), message.len()),
            32
        );
    }
    assert_eq!(message[0], UFFD_EVENT_PAGEFAULT);
}

// From the kernel's `include/uapi/linux/userfaultfd.h`.
const UFFD_API: u64 = 0xaa;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
