//! Socket addresses in the format of the kernel.

use std::mem;
use std::net::SocketAddr;
use std::ptr;

use rustix::net::SocketAddrAny;

/// A socket address in the format of the kernel (`sockaddr_storage`).
#[derive(Clone, Copy)]
pub(crate) struct SockAddr {
    pub(crate) storage: libc::sockaddr_storage,
    pub(crate) length: libc::socklen_t,
}

impl SockAddr {
    pub(crate) fn empty() -> Self {
        Self {
            // SAFETY: a sockaddr_storage consists of bytes, for which zero is valid.
            storage: unsafe { mem::zeroed() },
            length: mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t,
        }
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let storage = (&raw const self.storage).cast();
        // SAFETY: the storage is as large as any address, and zero where nothing was written.
        let any = unsafe { SocketAddrAny::read(storage, mem::size_of_val(&self.storage) as u32) };
        any.try_into().ok()
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(address: SocketAddr) -> Self {
        let (mut name, address) = (Self::empty(), SocketAddrAny::from(address));
        name.length = address.addr_len();
        let (from, to) = (
            address.as_ptr().cast::<u8>(),
            (&raw mut name.storage).cast(),
        );
        // SAFETY: the address has this length, and the storage is as large as any address.
        unsafe { ptr::copy_nonoverlapping(from, to, name.length as usize) };
        name
    }
}
