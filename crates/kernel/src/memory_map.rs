//! Memory shared with the kernel.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

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

    /// The number at an offset that is a multiple of eight.
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.length);
        // SAFETY: inside the mapping, aligned, and valid as long as the borrow.
        unsafe { self.start.add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// The number at an offset that is a multiple of four.
    pub(crate) fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.length);
        // SAFETY: inside the mapping, aligned, and valid as long as the borrow.
        unsafe { self.start.add(offset).cast::<AtomicU32>().as_ref() }
    }

    /// Copies bytes. The kernel must not write them at this time.
    pub(crate) fn copy(&self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= self.length);
        // SAFETY: inside the mapping, and `to` is borrowed exclusively, so the ranges do not overlap.
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
        // SAFETY: the mapping has this length, and no borrow is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
