//! Memory that is shared with the kernel.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Pages of a map of the kernel, until it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is only read and written through atomics, or copied from where the kernel has written.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Readable and writable.
    pub(crate) fn shared(map: BorrowedFd<'_>, offset: usize, length: usize) -> io::Result<Self> {
        Self::new(map, offset, length, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Readable.
    pub(crate) fn readable(map: BorrowedFd<'_>, offset: usize, length: usize) -> io::Result<Self> {
        Self::new(map, offset, length, libc::PROT_READ)
    }

    fn new(map: BorrowedFd<'_>, offset: usize, length: usize, how: i32) -> io::Result<Self> {
        // SAFETY: the kernel chooses a free place; nothing is there yet.
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
        let start = NonNull::new(start.cast()).expect("page zero is never mapped");
        Ok(Self { start, length })
    }

    /// The number at an offset that is a multiple of eight.
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.length);
        // SAFETY: inside, aligned, and valid as long as the borrow.
        unsafe { self.start.add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// The number at an offset that is a multiple of four.
    pub(crate) fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.length);
        // SAFETY: inside, aligned, and valid as long as the borrow.
        unsafe { self.start.add(offset).cast::<AtomicU32>().as_ref() }
    }

    /// Copies bytes that nobody writes at this time.
    pub(crate) fn copy(&self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= self.length);
        // SAFETY: inside, and the two do not overlap, since `to` is the caller's alone.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset),
                to.as_mut_ptr(),
                to.len(),
            );
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no borrow is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
