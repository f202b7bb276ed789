//! Uses of bpf(2) that `aya` lacks: ring buffers of any size, and map elements by descriptor,
//! including removal from an array of maps.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use aya::Pod;

use crate::system::{check, owned};

/// Creates a ring buffer of `bytes` bytes: a power of two and a multiple of the page size.
pub(crate) fn create_ring(bytes: u32) -> io::Result<OwnedFd> {
    let numbers = [RING_BUFFER, 0, 0, bytes, 0, 0, 0];
    let attributes = NewMap(numbers, *b"tg_ring\0\0\0\0\0\0\0\0\0");
    // SAFETY: the attributes have no pointers.
    owned(unsafe { bpf(MAP_CREATE, &attributes) })
}

/// Reads an element. `V` must match the map's value type; a test compares the sizes.
pub(crate) fn lookup<V: Pod>(map: BorrowedFd<'_>, key: u32) -> io::Result<Option<V>> {
    let mut value = MaybeUninit::<V>::uninit();
    let element = Element::new(map, &key, value.as_mut_ptr());
    // SAFETY: key and value outlive the call.
    match check(unsafe { bpf(MAP_LOOKUP, &element) }) {
        // SAFETY: the kernel has written the whole value, and `V` is valid for any bytes.
        Ok(_) => Ok(Some(unsafe { value.assume_init() })),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes an element. As for [`lookup`], `V` must match the map's value type.
pub(crate) fn update<V: Pod>(map: BorrowedFd<'_>, key: u32, value: &V) -> io::Result<()> {
    let element = Element::new(map, &key, value);
    // SAFETY: key and value outlive the call.
    check(unsafe { bpf(MAP_UPDATE, &element) }).map(drop)
}

/// Removes an element.
pub(crate) fn delete(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    let element = Element::new::<u32>(map, &key, std::ptr::null());
    // SAFETY: the key outlives the call.
    check(unsafe { bpf(MAP_DELETE, &element) }).map(drop)
}

/// Part of `union bpf_attr` for `BPF_MAP_CREATE`: type, sizes of key and value, entries, flags,
/// inner map, NUMA node and name.
#[repr(C)]
struct NewMap([u32; 7], [u8; 16]);

/// Part of `union bpf_attr` for `BPF_MAP_*_ELEM`.
#[repr(C)]
struct Element {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Element {
    fn new<V>(map: BorrowedFd<'_>, key: &u32, value: *const V) -> Self {
        Self {
            map: map.as_raw_fd() as u32,
            unused: 0,
            key: std::ptr::from_ref(key) as u64,
            value: value as u64,
            flags: 0,
        }
    }
}

/// # Safety
///
/// Pointers in the attributes must be valid for the sizes of the command.
unsafe fn bpf<A>(command: libc::c_long, attributes: &A) -> libc::c_int {
    let attributes = std::ptr::from_ref(attributes);
    let size = mem::size_of::<A>() as libc::c_long;
    // SAFETY: the attributes are passed with their size. The caller guarantees their pointers.
    unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size) as libc::c_int }
}

// From `linux/bpf.h`.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const RING_BUFFER: u32 = 27;
