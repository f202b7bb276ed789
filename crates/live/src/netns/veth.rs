//! Pairs of virtual Ethernet interfaces between two namespaces (`rtnetlink(7)`).

use std::io;
use std::os::fd::AsRawFd as _;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use super::{Namespace, NetnsError};

impl Namespace {
    /// Creates the interface `name` here and its peer `other_name` in `other`. Both are down.
    ///
    /// # Errors
    ///
    /// Missing permission, a name that is in use or too long, or a kernel without veth.
    pub fn connect(&self, name: &str, other: &Self, other_name: &str) -> Result<(), NetnsError> {
        let request = request(name, other_name, other.file.as_raw_fd());
        let error = |e| NetnsError::configure(name, e);
        if [name, other_name]
            .iter()
            .any(|name| name.len() >= libc::IFNAMSIZ)
        {
            return Err(error(io::Error::from(io::ErrorKind::InvalidInput)));
        }
        self.within(|| exchange(&request).map_err(error))?
    }
}

/// A message `RTM_NEWLINK` for a pair. The peer is created in the namespace `other`.
fn request(name: &str, other_name: &str, other: i32) -> Vec<u8> {
    let mut peer = Message::link();
    peer.attribute(libc::IFLA_IFNAME, &text(other_name));
    peer.attribute(libc::IFLA_NET_NS_FD, &other.to_ne_bytes());
    let mut data = Message::default();
    data.attribute(VETH_INFO_PEER, &peer.0);
    let mut info = Message::default();
    info.attribute(libc::IFLA_INFO_KIND, b"veth");
    info.attribute(libc::IFLA_INFO_DATA, &data.0);
    let mut link = Message::link();
    link.attribute(libc::IFLA_IFNAME, &text(name));
    link.attribute(libc::IFLA_LINKINFO, &info.0);
    let length = (HEADER + link.0.len()) as u32;
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut out = Vec::new();
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
    out.extend_from_slice(&(flags as u16).to_ne_bytes());
    // Sequence number and port.
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&link.0);
    out
}

/// Attributes, aligned to four bytes.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// Begins with a `struct ifinfomsg` of zeros.
    fn link() -> Self {
        Self(vec![0; 16])
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.0
            .extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// Sends the request and waits for its acknowledgement.
fn exchange(request: &[u8]) -> io::Result<()> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    // The default protocol is NETLINK_ROUTE.
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    send(&socket, request, SendFlags::empty())?;
    let mut answer = [0_u8; 1_024];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    // The header, then a negative error number or zero (NLMSG_ERROR).
    let number = answer[..length].get(HEADER..HEADER + 4);
    let number = number.and_then(|bytes| bytes.try_into().ok());
    let number = number.ok_or(io::ErrorKind::InvalidData)?;
    match i32::from_ne_bytes(number) {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(-number)),
    }
}

/// Length of a `struct nlmsghdr`.
const HEADER: usize = 16;
/// From linux/veth.h.
const VETH_INFO_PEER: u16 = 1;
