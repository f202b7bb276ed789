//! An interface as a port of a gateway: its frames, read and written by a packet socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::{array, mem, ptr};

use rustix::io::{Errno, writev};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use tidegate_core::aggregate::bridge::Medium;
use tidegate_core::wire::udp::Checksum;

use crate::netns::{InterfaceRequest, check, control_socket};

/// A port. It receives all frames that arrive at its interface, and none that the host transmits.
#[derive(Debug)]
pub struct Port {
    socket: OwnedFd,
    name: String,
    index: libc::c_int,
    medium: Medium,
}

/// A frame with the offloads that the kernel has left to its transmission.
#[derive(Debug)]
pub struct PortFrame {
    offload: Offload,
    buffer: Box<[u8]>,
    /// Position of the frame.
    start: usize,
    end: usize,
}

/// Reason why an interface cannot be a port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The interface is neither Ethernet nor a tunnel of IP packets. Contains its ARPHRD number.
    #[error("its link layer (ARPHRD {0}) is neither Ethernet nor a tunnel of IP packets")]
    Medium(u16),
    /// There is no such interface in this namespace.
    #[error("there is none of this name: see `ip link`")]
    NoInterface,
    /// The kernel refused a socket.
    #[error("{}", failed(.0))]
    System(io::Error),
}

fn failed(error: &io::Error) -> String {
    if error.raw_os_error() == Some(libc::EPERM) {
        "a packet socket needs CAP_NET_RAW: run as root".to_owned()
    } else {
        error.to_string()
    }
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A frame is in the buffer.
    Frame,
    /// No frame is waiting.
    Nothing,
    /// A frame was longer than the buffer and is lost.
    TooLong,
    /// A frame has an offload that the kernel cannot describe to a packet socket, and is lost.
    Undescribed,
}

/// Result of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The frame was queued.
    Yes,
    /// It is larger than the MTU.
    TooLarge,
    /// The queue of the interface is full, or the interface is down.
    No,
}

/// `struct virtio_net_hdr`: flags and type of the offload in a byte each, and four numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Offload([u8; 10]);

impl Port {
    /// Opens an interface of the namespace of this thread.
    ///
    /// # Errors
    ///
    /// See [`PortError`]. Requires `CAP_NET_RAW`.
    pub fn open(name: &str) -> Result<Self, PortError> {
        let port = Self::create(name)?;
        port.receive_all().map_err(PortError::System)?;
        Ok(port)
    }

    /// Opens an interface for transmission only. Frames bypass the queue discipline, and so the
    /// programs of traffic control.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_sender(name: &str) -> Result<Self, PortError> {
        let port = Self::create(name)?;
        port.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1_i32)
            .map_err(PortError::System)?;
        Ok(port)
    }

    fn create(name: &str) -> Result<Self, PortError> {
        let control = control_socket().map_err(PortError::System)?;
        let index = netdevice::name_to_index(control, name);
        let index = index.map_err(|_| PortError::NoInterface)? as libc::c_int;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol it receives nothing before `bind`.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None);
        let socket = socket.map_err(|e| PortError::System(e.into()))?;
        let medium = medium(&socket, name)?;
        let port = Self {
            socket,
            name: name.to_owned(),
            index,
            medium,
        };
        port.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1_i32)
            .and_then(|()| port.bind(0))
            .map_err(PortError::System)?;
        Ok(port)
    }

    fn receive_all(&self) -> io::Result<()> {
        for option in [libc::PACKET_AUXDATA, libc::PACKET_IGNORE_OUTGOING] {
            self.set(libc::SOL_PACKET, option, &1_i32)?;
        }
        // Beyond the system's limit if the process may. Otherwise the default remains.
        if self
            .set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER)
            .is_err()
        {
            self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
        }
        if self.medium == Medium::Ethernet {
            let all = libc::packet_mreq {
                mr_ifindex: self.index,
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all)?;
        }
        self.bind(libc::ETH_P_ALL as u16)
    }

    /// Receives frames of a protocol; zero: none.
    fn bind(&self, protocol: u16) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: self.index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: `address` is initialised and passed with its length.
        check(unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                mem::size_of_val(&address) as u32,
            )
        })
        .map(drop)
    }

    fn set<T>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        // SAFETY: reads the bytes of `value`, which are passed with their length.
        check(unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
                option,
                ptr::from_ref(value).cast(),
                mem::size_of::<T>() as u32,
            )
        })
        .map(drop)
    }

    /// Link layer of the interface.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the next frame.
    ///
    /// # Errors
    ///
    /// The interface was removed.
    pub fn receive(&self, frame: &mut PortFrame) -> io::Result<Received> {
        let mut parts = [
            IoSliceMut::new(&mut frame.offload.0),
            IoSliceMut::new(&mut frame.buffer[TAG..]),
        ];
        let mut control = Control([0; CONTROL]);
        // SAFETY: a message header consists of integers and pointers, for which zero is valid. All
        // of its pointers are to writable memory of the stated lengths; an `IoSliceMut` is an iovec.
        let length = unsafe {
            let mut message: libc::msghdr = mem::zeroed();
            message.msg_iov = parts.as_mut_ptr().cast();
            message.msg_iovlen = parts.len();
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = control.0.len();
            libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_TRUNC)
        };
        if length < 0 {
            return without_frame(io::Error::last_os_error(), || self.exists());
        }
        let length = (length as usize).saturating_sub(frame.offload.0.len());
        if TAG + length > frame.buffer.len() {
            return Ok(Received::TooLong);
        }
        (frame.start, frame.end) = (TAG, TAG + length);
        if let Some(tag) = removed_tag(&control) {
            frame.insert_tag(tag);
        }
        Ok(Received::Frame)
    }

    fn exists(&self) -> bool {
        let index = netdevice::name_to_index(&self.socket, &self.name);
        index.is_ok_and(|index| index as libc::c_int == self.index)
    }

    /// Transmits a frame.
    ///
    /// # Errors
    ///
    /// The interface was removed.
    pub fn send(&self, frame: &PortFrame) -> io::Result<Sent> {
        self.transmit(&frame.offload, &frame.buffer[frame.start..frame.end])
    }

    /// Transmits a frame without offloads.
    ///
    /// # Errors
    ///
    /// The interface was removed.
    pub fn send_plain(&self, frame: &[u8]) -> io::Result<Sent> {
        self.transmit(&Offload::default(), frame)
    }

    fn transmit(&self, offload: &Offload, frame: &[u8]) -> io::Result<Sent> {
        match writev(
            &self.socket,
            &[IoSlice::new(&offload.0), IoSlice::new(frame)],
        ) {
            Ok(_) => Ok(Sent::Yes),
            Err(Errno::MSGSIZE) => Ok(Sent::TooLarge),
            Err(e @ (Errno::NXIO | Errno::NODEV)) if !self.exists() => Err(e.into()),
            Err(_) => Ok(Sent::No),
        }
    }
}

impl Offload {
    fn needs_checksum(self) -> bool {
        self.0[FLAGS] & NEEDS_CHECKSUM != 0
    }

    fn number(self, at: usize) -> u16 {
        u16::from_ne_bytes([self.0[at], self.0[at + 1]])
    }

    /// Adds the length of a tag to a number.
    fn add_tag(&mut self, at: usize) {
        let number = self.number(at) + TAG as u16;
        self.0[at..at + 2].copy_from_slice(&number.to_ne_bytes());
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl PortFrame {
    /// Space for a frame of any size.
    pub fn new() -> Self {
        Self {
            offload: Offload::default(),
            buffer: vec![0; TAG + LONGEST].into(),
            start: 0,
            end: 0,
        }
    }

    /// The frame.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The frame, for changes in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Whether the transmitting device completes the checksum.
    pub fn checksum(&self) -> Checksum {
        if self.offload.needs_checksum() {
            Checksum::Partial
        } else {
            Checksum::Complete
        }
    }

    /// Payload bytes of each of several UDP datagrams in the frame; `None` if there is one.
    pub fn segment(&self) -> Option<u16> {
        let size = self.offload.number(GSO_SIZE);
        (self.offload.0[GSO_TYPE] & !GSO_ECN == GSO_UDP && size > 0).then_some(size)
    }

    /// Inserts the VLAN tag that the kernel has removed from an arriving frame.
    fn insert_tag(&mut self, tag: [u8; TAG]) {
        if self.end < self.start + ADDRESSES {
            return;
        }
        self.buffer
            .copy_within(self.start..self.start + ADDRESSES, self.start - TAG);
        self.start -= TAG;
        let at = self.start + ADDRESSES;
        self.buffer[at..at + TAG].copy_from_slice(&tag);
        if self.offload.needs_checksum() {
            self.offload.add_tag(CSUM_START);
        }
        if self.offload.number(HDR_LEN) > 0 {
            self.offload.add_tag(HDR_LEN);
        }
    }
}

impl Default for PortFrame {
    fn default() -> Self {
        Self::new()
    }
}

/// Meaning of an error of a read. `exists` is whether the interface does.
fn without_frame(error: io::Error, exists: impl FnOnce() -> bool) -> io::Result<Received> {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Ok(Received::Nothing),
        // The kernel has taken a frame whose offload has no value in a virtio_net_hdr: batches of
        // UDP datagrams before Linux 6.2, and of SCTP packets.
        Some(libc::EINVAL) => Ok(Received::Undescribed),
        // Reported once when the interface goes down. It may come back.
        Some(libc::ENETDOWN) if exists() => Ok(Received::Nothing),
        _ => Err(error),
    }
}

/// VLAN tag from the control data of a frame: a `cmsghdr` and a `tpacket_auxdata`, or zeros.
fn removed_tag(control: &Control) -> Option<[u8; TAG]> {
    let word = |at: usize| u32::from_ne_bytes(array::from_fn(|byte| control.0[at + byte]));
    let half = |at: usize| u16::from_ne_bytes([control.0[at], control.0[at + 1]]);
    let kind = [
        word(mem::offset_of!(libc::cmsghdr, cmsg_level)) as i32,
        word(mem::offset_of!(libc::cmsghdr, cmsg_type)) as i32,
    ];
    if kind != [libc::SOL_PACKET, libc::PACKET_AUXDATA] {
        return None;
    }
    // The length of the header is a multiple of its alignment.
    let data = mem::size_of::<libc::cmsghdr>();
    let status = word(data + mem::offset_of!(libc::tpacket_auxdata, tp_status));
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let kind = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
        libc::ETH_P_8021Q as u16
    } else {
        half(data + mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tpid))
    };
    let tag = half(data + mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tci));
    let ([a, b], [c, d]) = (kind.to_be_bytes(), tag.to_be_bytes());
    Some([a, b, c, d])
}

fn medium(socket: &OwnedFd, name: &str) -> Result<Medium, PortError> {
    let mut request = InterfaceRequest::new(name, &[]).map_err(|_| PortError::NoInterface)?;
    request
        .perform(socket, libc::SIOCGIFHWADDR)
        .map_err(PortError::System)?;
    // The family of the hardware address.
    match u16::from_ne_bytes([request.value[0], request.value[1]]) {
        libc::ARPHRD_ETHER => Ok(Medium::Ethernet),
        libc::ARPHRD_NONE | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 => Ok(Medium::Ip),
        other => Err(PortError::Medium(other)),
    }
}

/// Aligned for control messages.
#[repr(align(8))]
struct Control([u8; CONTROL]);

/// More than a header and a `tpacket_auxdata`.
const CONTROL: usize = 64;
/// Fields of a `virtio_net_hdr`.
const FLAGS: usize = 0;
const GSO_TYPE: usize = 1;
const HDR_LEN: usize = 2;
const GSO_SIZE: usize = 4;
const CSUM_START: usize = 6;
/// Length of a VLAN tag, for which a buffer has space before the frame.
const TAG: usize = 4;
/// Length of the two Ethernet addresses, after which a tag is inserted.
const ADDRESSES: usize = 12;
/// The kernel merges TCP packets to frames of up to 64 KiB, and of more with "BIG TCP".
const LONGEST: usize = 1 << 18;
/// 100 ms at 1 Gb/s, as the kernel counts.
const RECEIVE_BUFFER: i32 = 1 << 25;

// From linux/virtio_net.h.
const NEEDS_CHECKSUM: u8 = 1;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_interface_is_an_error() {
        let meaning = |code, exists| {
            let error = io::Error::from_raw_os_error(code);
            without_frame(error, || exists).map_err(|e| e.raw_os_error())
        };
        for exists in [true, false] {
            assert_eq!(meaning(libc::EAGAIN, exists), Ok(Received::Nothing));
            assert_eq!(meaning(libc::EINVAL, exists), Ok(Received::Undescribed));
            assert_eq!(meaning(libc::ENXIO, exists), Err(Some(libc::ENXIO)));
        }
        assert_eq!(meaning(libc::ENETDOWN, true), Ok(Received::Nothing));
        assert_eq!(meaning(libc::ENETDOWN, false), Err(Some(libc::ENETDOWN)));
    }
}
