//! Messages with descriptors (`SCM_RIGHTS`) on local sockets of type `SOCK_SEQPACKET`.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;

/// Sends a message, with a descriptor if one is given. Blocks only if the socket does.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: message.as_ptr().cast_mut().cast(),
        iov_len: message.len(),
    };
    let mut control = Control([0; 129]);
    let mut header = header(Some(&mut part));
    if let Some(descriptor) = descriptor {
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: `control` has room for a control message with one descriptor, and its alignment.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(FD_SIZE) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(FD_SIZE) as _;
            let data = libc::CMSG_DATA(first).cast::<[u8; FD_SIZE as usize]>();
            data.write(descriptor.as_raw_fd().to_ne_bytes());
        }
    }
    retry(|| {
        // SAFETY: the header points to buffers that outlive the call, each with its size.
        unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) }
    })
    .map(drop)
}

/// A received message.
#[derive(Debug)]
pub(crate) struct Received {
    /// Length of the message; zero at the end of the connection.
    pub(crate) length: usize,
    /// The message is longer than the buffer.
    pub(crate) truncated: bool,
    /// The process had no descriptor number left. The kernel has closed the descriptors of the
    /// message.
    pub(crate) lost_descriptors: bool,
    /// The descriptors of the message.
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Receives the next message. Blocks only if the socket does.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = Control([0; 129]);
    let mut header = header(Some(&mut part));
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = mem::size_of_val(&control) as _;
    let length = retry(|| {
        // SAFETY: the header points to buffers that outlive the call, each with its size.
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) }
    })?;
    Ok(Received {
        length,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        // `control` has room for all descriptors of a message, so the process lacks numbers.
        lost_descriptors: header.msg_flags & libc::MSG_CTRUNC != 0,
        descriptors: descriptors(&header),
    })
}

/// Whether the next message has descriptors. The message stays in the socket.
pub(crate) fn next_has_descriptors(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut header = header(None);
    retry(|| {
        // SAFETY: the header points to no buffers.
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_PEEK) }
    })?;
    Ok(header.msg_flags & libc::MSG_CTRUNC != 0)
}

/// Discards the next message. The kernel closes its descriptors without installing them, and the
/// caller waits for that.
pub(crate) fn discard(socket: BorrowedFd<'_>) -> io::Result<()> {
    retry(|| {
        // SAFETY: the buffer has no room.
        unsafe { libc::recv(socket.as_raw_fd(), ptr::null_mut(), 0, 0) }
    })
    .map(drop)
}

/// A header for this buffer. The buffer has to outlive it.
fn header(part: Option<&mut libc::iovec>) -> libc::msghdr {
    // SAFETY: a msghdr is integers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    if let Some(part) = part {
        header.msg_iov = part;
        header.msg_iovlen = 1;
    }
    header
}

fn descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    // SAFETY: the kernel has written whole control messages into the buffer, and the macros stay
    // inside. The descriptors in them are new and have no other owner.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS
            {
                let bytes = (*message).cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(message).cast::<[u8; FD_SIZE as usize]>();
                for number in 0..bytes / mem::size_of::<RawFd>() {
                    let raw = RawFd::from_ne_bytes(data.add(number).read());
                    found.push(OwnedFd::from_raw_fd(raw));
                }
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    found
}

fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(result) = usize::try_from(call()) {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Descriptors that one message can have (`SCM_MAX_FD` of the kernel).
pub(crate) const MAX_DESCRIPTORS: u32 = 253;

/// Room for all descriptors of a message. The kernel would close the others during the call, and
/// block the receiver meanwhile.
struct Control([u64; 129]);

const FD_SIZE: u32 = mem::size_of::<RawFd>() as u32;
