//! An interface as a port of a gateway: its frames, read and written by a packet socket.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::{fmt, io, mem, ptr};

use tidegate_core::aggregate::bridge::Medium;
use tidegate_core::wire::udp::Checksum;

use crate::netns::{check, request};

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
#[derive(Debug)]
pub enum PortError {
    /// The interface is neither Ethernet nor a tunnel of IP packets. Contains its ARPHRD number.
    Medium(u16),
    /// There is no such interface in this namespace.
    NoInterface,
    /// The kernel refused a socket.
    System(io::Error),
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Medium(number) => write!(
                f,
                "its link layer (ARPHRD {number}) is neither Ethernet nor a tunnel of IP packets"
            ),
            Self::NoInterface => f.write_str("there is none of this name: see `ip link`"),
            Self::System(error) if error.raw_os_error() == Some(libc::EPERM) => {
                f.write_str("a packet socket needs CAP_NET_RAW: run as root")
            }
            Self::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PortError {}

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

/// `struct virtio_net_hdr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Offload {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

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
        let text = CString::new(name).map_err(|_| PortError::NoInterface)?;
        // SAFETY: the name ends in zero.
        let index = unsafe { libc::if_nametoindex(text.as_ptr()) } as libc::c_int;
        if index == 0 {
            return Err(PortError::NoInterface);
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // The protocol zero receives nothing before `bind`.
        // SAFETY: takes integers and accesses no memory.
        let socket = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) });
        let socket = socket.map_err(PortError::System)?;
        // SAFETY: the descriptor is new and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
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
        // SAFETY: an address consists of integers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = self.index;
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
        let PortFrame {
            offload, buffer, ..
        } = frame;
        let mut parts = [
            part(ptr::from_mut(offload).cast(), mem::size_of::<Offload>()),
            part(buffer[TAG..].as_mut_ptr(), buffer.len() - TAG),
        ];
        let mut control = Control([0; CONTROL]);
        // SAFETY: a message header consists of integers and pointers, for which zero is valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        // SAFETY: all pointers of the message are to writable memory of the stated lengths.
        let length =
            unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
        if length < 0 {
            return without_frame(io::Error::last_os_error(), || self.exists());
        }
        let length = (length as usize).saturating_sub(mem::size_of::<Offload>());
        if TAG + length > frame.buffer.len() {
            return Ok(Received::TooLong);
        }
        (frame.start, frame.end) = (TAG, TAG + length);
        if let Some(tag) = removed_tag(&message) {
            frame.insert_tag(tag);
        }
        Ok(Received::Frame)
    }

    fn exists(&self) -> bool {
        let name = CString::new(self.name.as_str()).unwrap_or_default();
        // SAFETY: the name ends in zero.
        unsafe { libc::if_nametoindex(name.as_ptr()) as libc::c_int == self.index }
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
        let parts = [
            part(
                ptr::from_ref(offload).cast_mut().cast(),
                mem::size_of::<Offload>(),
            ),
            part(frame.as_ptr().cast_mut(), frame.len()),
        ];
        // SAFETY: `writev` reads the parts, whose lengths are right, and writes to none.
        let sent = unsafe {
            libc::writev(
                self.socket.as_raw_fd(),
                parts.as_ptr(),
                parts.len() as libc::c_int,
            )
        };
        if sent >= 0 {
            return Ok(Sent::Yes);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EMSGSIZE) => Ok(Sent::TooLarge),
            Some(libc::ENXIO | libc::ENODEV) if !self.exists() => Err(error),
            _ => Ok(Sent::No),
        }
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
        if self.offload.flags & NEEDS_CHECKSUM != 0 {
            Checksum::Partial
        } else {
            Checksum::Complete
        }
    }

    /// Payload bytes of each of several UDP datagrams in the frame; `None` if there is one.
    pub fn segment(&self) -> Option<u16> {
        let size = self.offload.gso_size;
        (self.offload.gso_type & !GSO_ECN == GSO_UDP && size > 0).then_some(size)
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
        if self.offload.flags & NEEDS_CHECKSUM != 0 {
            self.offload.csum_start += TAG as u16;
        }
        if self.offload.hdr_len > 0 {
            self.offload.hdr_len += TAG as u16;
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

/// VLAN tag from the control data of a frame.
fn removed_tag(message: &libc::msghdr) -> Option<[u8; TAG]> {
    // SAFETY: the header has the length that the kernel has written.
    let first = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if (first.cmsg_level, first.cmsg_type) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
        return None;
    }
    // SAFETY: control data of this type is a tpacket_auxdata, perhaps without its alignment.
    let data =
        unsafe { ptr::read_unaligned(libc::CMSG_DATA(first).cast::<libc::tpacket_auxdata>()) };
    if data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let kind = if data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
        libc::ETH_P_8021Q as u16
    } else {
        data.tp_vlan_tpid
    };
    let ([a, b], [c, d]) = (kind.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

fn medium(socket: &OwnedFd, name: &str) -> Result<Medium, PortError> {
    let mut request = request(name).map_err(|_| PortError::NoInterface)?;
    // SAFETY: `request` is a whole ifreq with a name that ends in zero.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) })
        .map_err(PortError::System)?;
    // SAFETY: the call has written the hardware address.
    match unsafe { request.ifr_ifru.ifru_hwaddr.sa_family } {
        libc::ARPHRD_ETHER => Ok(Medium::Ethernet),
        libc::ARPHRD_NONE | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 => Ok(Medium::Ip),
        other => Err(PortError::Medium(other)),
    }
}

fn part(base: *mut u8, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base.cast(),
        iov_len: length,
    }
}

/// Aligned for control messages.
#[repr(align(8))]
struct Control([u8; CONTROL]);

/// More than a header and a `tpacket_auxdata`.
const CONTROL: usize = 64;
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
