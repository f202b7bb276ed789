//! Memory shared with the kernel.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::{io, mem, slice};

use aya::Pod;

/// Bytes of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: takes a number and touches no memory. It does not fail for this number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Mapped pages of a BPF map.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: accesses are atomic, or copy bytes that the kernel has finished writing.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A readable and writable mapping.
    pub(crate) fn shared(map: BorrowedFd<'_>, offset: usize, length: usize) -> io::Result<Self> {
        Self::new(map, offset, length, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// A readable mapping.
    pub(crate) fn readable(map: BorrowedFd<'_>, offset: usize, length: usize) -> io::Result<Self> {
        Self::new(map, offset, length, libc::PROT_READ)
    }

    fn new(map: BorrowedFd<'_>, offset: usize, length: usize, how: i32) -> io::Result<Self> {
        // SAFETY: the kernel chooses a free address.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                how,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel does not map page zero");
        Ok(Self { start, length })
    }

    /// The whole mapping as a sequence of `T`.
    pub(crate) fn entries<T: Shared>(&self) -> &[T] {
        let many = self.length / mem::size_of::<T>();
        // SAFETY: inside; pages are aligned for any `T`; valid as long as the borrow.
        unsafe { slice::from_raw_parts(self.start.cast::<T>().as_ptr(), many) }
    }

    /// The value at an offset that is aligned for it.
    pub(crate) fn at<T: Shared>(&self, offset: usize) -> &T {
        assert!(offset.is_multiple_of(mem::align_of::<T>()));
        assert!(offset + mem::size_of::<T>() <= self.length);
        // SAFETY: inside, aligned, and valid as long as the borrow.
        unsafe { self.start.add(offset).cast::<T>().as_ref() }
    }

    /// Copies a value that is not written at this time.
    pub(crate) fn copy<T: Pod>(&self, offset: usize) -> T {
        assert!(offset + mem::size_of::<T>() <= self.length);
        // SAFETY: inside, and any bytes are a value.
        unsafe { self.start.add(offset).cast::<T>().read_unaligned() }
    }
}

/// What several parties may read and write at the same time.
///
/// # Safety
///
/// The type consists of atomic integers, without padding.
pub(crate) unsafe trait Shared {}

// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU32 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU64 {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and no borrow is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
