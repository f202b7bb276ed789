//! Memory shared with the kernel.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::{io, mem, slice};

use aya::Pod;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
pub(crate) use rustix::param::page_size;

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
        Self::new(map, offset, length, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// A readable mapping.
    pub(crate) fn readable(map: BorrowedFd<'_>, offset: usize, length: usize) -> io::Result<Self> {
        Self::new(map, offset, length, ProtFlags::READ)
    }

    fn new(map: BorrowedFd<'_>, offset: usize, length: usize, how: ProtFlags) -> io::Result<Self> {
        // SAFETY: the kernel chooses a free address.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                how,
                MapFlags::SHARED,
                map,
                offset as u64,
            )?
        };
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

/// Implements [`Pod`] or [`Shared`] for types that consist of integers without padding, which are
/// atomic for [`Shared`].
macro_rules! impl_plain {
    ($($trait:ident: $($name:ty),+;)+) => {$($(
        // SAFETY: integers without padding. Any bytes are a value.
        unsafe impl $trait for $name {}
    )+)+};
}
pub(crate) use impl_plain;

impl_plain! {
    Shared: AtomicU32, AtomicU64;
}

/// The value in these bytes; `None` if it has another size.
pub(crate) fn read<T: Pod>(bytes: &[u8]) -> Option<T> {
    let fits = bytes.len() == mem::size_of::<T>();
    // SAFETY: the length is that of the type, for which any bytes are a value.
    fits.then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and no borrow is left.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
