//! Socket addresses in the format of the kernel.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

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
        let storage = &raw const self.storage;
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the storage is as large as any address and suitably aligned, and the
                // family identifies the type.
                let v4 = unsafe { storage.cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(address: SocketAddr) -> Self {
        let mut name = Self::empty();
        let storage = &raw mut name.storage;
        match address {
            SocketAddr::V4(v4) => {
                // SAFETY: an address consists of integers, for which zero is valid.
                let mut plain: libc::sockaddr_in = unsafe { mem::zeroed() };
                plain.sin_family = libc::AF_INET as libc::sa_family_t;
                plain.sin_port = v4.port().to_be();
                plain.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
                name.length = mem::size_of_val(&plain) as libc::socklen_t;
                // SAFETY: the storage is as large as any address and suitably aligned.
                unsafe { storage.cast::<libc::sockaddr_in>().write(plain) };
            }
            SocketAddr::V6(v6) => {
                // SAFETY: as above.
                let mut plain: libc::sockaddr_in6 = unsafe { mem::zeroed() };
                plain.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                plain.sin6_port = v6.port().to_be();
                plain.sin6_addr.s6_addr = v6.ip().octets();
                plain.sin6_flowinfo = v6.flowinfo();
                plain.sin6_scope_id = v6.scope_id();
                name.length = mem::size_of_val(&plain) as libc::socklen_t;
                // SAFETY: as above.
                unsafe { storage.cast::<libc::sockaddr_in6>().write(plain) };
            }
        }
        name
    }
}
