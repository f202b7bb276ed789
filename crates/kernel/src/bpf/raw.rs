//! Uses of bpf(2) that `aya` lacks: ring buffers of any size, and map elements by descriptor,
//! including removal from an array of maps.

use std::io;
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use aya::Pod;

use crate::system::check;

/// Creates a ring buffer of `bytes` bytes: a power of two and a multiple of the page size.
pub(crate) fn create_ring(bytes: u32) -> io::Result<OwnedFd> {
    let numbers = [RING_BUFFER, 0, 0, bytes, 0, 0, 0];
    let ring = bpf(MAP_CREATE, &NewMap(numbers, *b"tg_ring\0\0\0\0\0\0\0\0\0"))?;
    // SAFETY: the descriptor is new, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(ring) })
}

/// Reads an element. `V` must match the map's value type; a test compares the sizes.
pub(crate) fn lookup<V: Pod>(map: BorrowedFd<'_>, key: u32) -> io::Result<Option<V>> {
    let mut value = MaybeUninit::<V>::uninit();
    match bpf(MAP_LOOKUP, &Element::new(map, &key, &mut value)) {
        // SAFETY: the kernel has written the whole value, and `V` is valid for any bytes.
        Ok(_) => Ok(Some(unsafe { value.assume_init() })),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes an element. As for [`lookup`], `V` must match the map's value type.
pub(crate) fn update<V: Pod>(map: BorrowedFd<'_>, key: u32, value: &V) -> io::Result<()> {
    let mut value = MaybeUninit::new(*value);
    bpf(MAP_UPDATE, &Element::new(map, &key, &mut value)).map(drop)
}

/// Removes an element.
pub(crate) fn delete(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    // The kernel ignores the value.
    let mut none = MaybeUninit::<[u8; 0]>::uninit();
    bpf(MAP_DELETE, &Element::new(map, &key, &mut none)).map(drop)
}

/// Part of `union bpf_attr`, whose pointers are valid.
trait Attributes {}

/// That for `BPF_MAP_CREATE`: type, sizes of key and value, entries, flags, inner map, NUMA node
/// and name.
#[repr(C)]
struct NewMap([u32; 7], [u8; 16]);

impl Attributes for NewMap {}

/// That for `BPF_MAP_*_ELEM`.
#[repr(C)]
struct Element<'a> {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
    borrowed: PhantomData<&'a mut ()>,
}

impl Attributes for Element<'_> {}

impl<'a> Element<'a> {
    fn new<V>(map: BorrowedFd<'_>, key: &'a u32, value: &'a mut MaybeUninit<V>) -> Self {
        Self {
            map: map.as_raw_fd() as u32,
            unused: 0,
            key: std::ptr::from_ref(key) as u64,
            value: value.as_mut_ptr() as u64,
            flags: 0,
            borrowed: PhantomData,
        }
    }
}

fn bpf<A: Attributes>(command: libc::c_long, attributes: &A) -> io::Result<libc::c_int> {
    let size = mem::size_of::<A>() as libc::c_long;
    // SAFETY: the attributes are passed with their size. Their pointers are borrowed, and the value
    // has the size of the map's values.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size) };
    check(result as libc::c_int)
}

// From `linux/bpf.h`.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const RING_BUFFER: u32 = 27;
