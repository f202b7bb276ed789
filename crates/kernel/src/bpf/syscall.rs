//! The system call `bpf`, as far as it is needed here.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use super::asm::Insn;

/// What a map is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapSpec<'a> {
    pub(crate) kind: MapKind,
    pub(crate) name: &'a str,
    pub(crate) key: u32,
    pub(crate) value: u32,
    pub(crate) entries: u32,
    /// Its bytes can be mapped into memory.
    pub(crate) mappable: bool,
    /// What the maps in a map are like.
    pub(crate) inner: Option<BorrowedFd<'a>>,
    /// Types of key (1) and value (2).
    pub(crate) types: Option<BorrowedFd<'a>>,
}

/// Kinds of maps, by their numbers in `linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    Array = 2,
    ArrayOfMaps = 12,
    SocketStorage = 24,
    RingBuffer = 27,
}

/// Makes a map.
pub(crate) fn create_map(spec: &MapSpec<'_>) -> io::Result<OwnedFd> {
    let mut attr = Attr::default();
    attr.u32(0, spec.kind as u32);
    attr.u32(4, spec.key);
    attr.u32(8, spec.value);
    attr.u32(12, spec.entries);
    let storage = u32::from(spec.kind == MapKind::SocketStorage) * NO_PREALLOC;
    let mappable = u32::from(spec.mappable) * MMAPABLE;
    attr.u32(16, storage | mappable);
    attr.fd(20, spec.inner);
    attr.name(28, spec.name);
    if let Some(types) = spec.types {
        attr.fd(48, Some(types));
        attr.u32(52, 1);
        attr.u32(56, 2);
    }
    attr.call(MAP_CREATE).map(owned)
}

/// Gives the kernel types.
pub(crate) fn load_types(btf: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = Attr::default();
    attr.pointer(0, btf.as_ptr());
    attr.u32(16, btf.len() as u32);
    attr.call(BTF_LOAD).map(owned)
}

/// Reads the value of a key. `value` has the size that values of the map have.
pub(crate) fn lookup(map: BorrowedFd<'_>, key: u32, value: &mut [u8]) -> io::Result<()> {
    let mut attr = element(map, &key);
    attr.pointer(16, value.as_mut_ptr().cast_const());
    attr.call(MAP_LOOKUP).map(drop)
}

/// Writes the value of a key, of the size that values of the map have.
pub(crate) fn update(map: BorrowedFd<'_>, key: u32, value: &[u8]) -> io::Result<()> {
    let mut attr = element(map, &key);
    attr.pointer(16, value.as_ptr());
    attr.call(MAP_UPDATE).map(drop)
}

/// Removes a key.
pub(crate) fn delete(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    element(map, &key).call(MAP_DELETE).map(drop)
}

/// Loads a program for a tracepoint, given by the type it attaches to. The error has the end of
/// what the verifier said.
pub(crate) fn load_tracepoint(
    name: &str,
    target: u32,
    code: &[Insn],
) -> Result<OwnedFd, (io::Error, String)> {
    let mut attr = Attr::default();
    attr.u32(0, PROGRAM_TRACING);
    attr.u32(4, code.len() as u32);
    attr.pointer(8, code.as_ptr().cast());
    attr.pointer(16, LICENCE.as_ptr().cast());
    attr.name(48, name);
    attr.u32(68, ATTACH_RAW_TRACEPOINT);
    attr.u32(108, target);
    let error = match attr.call(PROGRAM_LOAD) {
        Ok(fd) => return Ok(owned(fd)),
        Err(error) => error,
    };
    // Once more, to hear why.
    let mut log = vec![0_u8; 1 << 20];
    attr.u32(24, 1);
    attr.u32(28, log.len() as u32);
    attr.pointer(32, log.as_mut_ptr().cast_const());
    let _ = attr.call(PROGRAM_LOAD).map(owned);
    let said = log.split(|&b| b == 0).next().unwrap_or_default();
    let said = String::from_utf8_lossy(said);
    let lines: Vec<&str> = said.trim_end().lines().collect();
    let last = lines[lines.len().saturating_sub(VERIFIER_LINES)..].join("\n");
    Err((error, last))
}

/// Attaches a program to its tracepoint until the result is dropped.
pub(crate) fn attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attr = Attr::default();
    attr.fd(8, Some(program));
    attr.call(RAW_TRACEPOINT_OPEN).map(owned)
}

/// `union bpf_attr`: numbers at places that `linux/bpf.h` fixes for ever.
#[derive(Debug)]
#[repr(align(8))]
struct Attr([u8; 144]);

impl Default for Attr {
    fn default() -> Self {
        Self([0; 144])
    }
}

impl Attr {
    fn u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    fn pointer(&mut self, at: usize, to: *const u8) {
        self.u64(at, to as u64);
    }

    fn fd(&mut self, at: usize, fd: Option<BorrowedFd<'_>>) {
        self.u32(at, fd.map_or(0, |fd| fd.as_raw_fd() as u32));
    }

    /// The kernel takes 15 letters.
    fn name(&mut self, at: usize, name: &str) {
        let name = &name.as_bytes()[..name.len().min(15)];
        self.0[at..at + name.len()].copy_from_slice(name);
    }

    fn call(&self, command: libc::c_long) -> io::Result<i32> {
        // SAFETY: the attribute is whole; pointers in it lead to buffers of the caller that outlive
        // the call and have the sizes that the maps or the attribute say.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                self.0.as_ptr(),
                self.0.len() as libc::c_long,
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(result as i32)
        }
    }
}

fn element(map: BorrowedFd<'_>, key: &u32) -> Attr {
    let mut attr = Attr::default();
    attr.fd(0, Some(map));
    attr.pointer(8, std::ptr::from_ref(key).cast());
    attr
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just made it and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Helpers that read kernel memory are for programs under a licence that goes with the GPL.
const LICENCE: &[u8] = b"Dual MIT/GPL\0";
/// How much of the verifier's log is kept.
const VERIFIER_LINES: usize = 12;

const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const PROGRAM_LOAD: libc::c_long = 5;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const BTF_LOAD: libc::c_long = 18;
const PROGRAM_TRACING: u32 = 26;
const ATTACH_RAW_TRACEPOINT: u32 = 23;
const NO_PREALLOC: u32 = 1;
const MMAPABLE: u32 = 1 << 10;
