//! Watches which address of this host the route to a peer has (`rtnetlink(7)`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tidegate_core::units::Time;

/// The source address towards a peer, which changes as a host moves between networks.
///
/// The descriptor is readable after a change of addresses, routes or interfaces.
#[derive(Debug)]
pub(crate) struct RouteWatch {
    netlink: OwnedFd,
    peer: SocketAddr,
    /// Address of the present route; `None` without a route.
    source: Option<IpAddr>,
    /// Time of the next check.
    due: Option<Time>,
    /// A second check is to follow.
    is_fresh: bool,
}

impl RouteWatch {
    /// # Errors
    ///
    /// The process may not open a socket of netlink.
    pub(crate) fn new(peer: SocketAddr) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The default protocol is NETLINK_ROUTE.
        let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&netlink, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self {
            netlink,
            peer,
            source: source_towards(peer),
            due: None,
            is_fresh: false,
        })
    }

    /// Reads the notifications, which have set [`due`](Self::due).
    pub(crate) fn on_readable(&mut self, now: Time) {
        let mut buffer = [0_u8; 4_096];
        // An overrun (ENOBUFS) is a notification as well, and the next call reads on.
        for _ in 0..BATCH {
            let read = recv(&self.netlink, &mut buffer, RecvFlags::empty());
            if read.is_err_and(|e| e == rustix::io::Errno::AGAIN) {
                break;
            }
            (self.due, self.is_fresh) = (Some(now), true);
        }
    }

    /// Time at which [`poll`](Self::poll) looks at the route.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Whether the route is back, or has another address of this host.
    pub(crate) fn poll(&mut self, now: Time) -> bool {
        if self.due.is_none_or(|at| at > now) {
            return false;
        }
        // The kernel notifies of an interface that goes down before its routes disappear.
        let again = core::mem::take(&mut self.is_fresh);
        self.due = again.then_some(now + SETTLED);
        let before = core::mem::replace(&mut self.source, source_towards(self.peer));
        self.source.is_some() && self.source != before
    }

    /// The new address could not be used: [`poll`](Self::poll) finds it again.
    pub(crate) fn retry(&mut self, now: Time) {
        (self.source, self.due) = (None, Some(now + SETTLED));
    }
}

impl AsFd for RouteWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netlink.as_fd()
    }
}

/// Address from which a socket sends to `peer`; `None` without a route.
fn source_towards(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let udp = UdpSocket::bind((any, 0)).ok()?;
    udp.connect(peer).ok()?;
    Some(udp.local_addr().ok()?.ip())
}

/// Changes of interfaces, and of the addresses, routes and rules of both families.
const GROUPS: u32 = (libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV4_RULE
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV6_ROUTE) as u32;
/// Notifications that one call reads: about 50 µs.
const BATCH: usize = 32;
/// Far more than the time in which a kernel removes the routes of an interface.
const SETTLED: Duration = Duration::from_millis(100);
