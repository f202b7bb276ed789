//! Messages on a local socket that keeps their bounds, with a descriptor descriptors.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

/// Sends a message and perhaps a descriptor. Waits for room only if the socket does.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &[u8],
    descriptors: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: message.as_ptr().cast_mut().cast(),
        iov_len: message.len(),
    };
    let mut control = Control([0; 129]);
    // SAFETY: a msghdr is integers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if let Some(descriptors) = descriptors {
        let raw = descriptors.as_raw_fd();
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: computes a size; then the first control message lies in `control`, which has
        // room for it and is aligned as one.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(FD_SIZE) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(FD_SIZE) as _;
            let bytes = raw.to_ne_bytes();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), libc::CMSG_DATA(first), bytes.len());
        }
    }
    retry(|| {
        // SAFETY: the header points to buffers that outlive the call, each with its size.
        unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) }
    })
    .map(drop)
}

/// What came.
#[derive(Debug)]
pub(crate) struct Received {
    /// Length of the message; zero if the other side is gone.
    pub(crate) length: usize,
    /// The message did not fit.
    pub(crate) truncated: bool,
    /// Descriptors were sent for which this process had no number left; the system has closed them.
    pub(crate) lost_descriptors: bool,
    /// The descriptors that came descriptors.
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Takes the next message. Waits for one only if the socket does.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = Control([0; 129]);
    // SAFETY: a msghdr is integers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = mem::size_of_val(&control) as _;
    let length = retry(|| {
        // SAFETY: the header points to buffers that outlive the call, each with its size.
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) }
    })?;
    Ok(Received {
        length,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        // There is room for all that a message can have, so the process is short of them.
        lost_descriptors: header.msg_flags & libc::MSG_CTRUNC != 0,
        descriptors: descriptors(&header),
    })
}

/// Whether the next message has descriptors descriptors. It stays where it is.
pub(crate) fn next_has_descriptors(socket: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: a msghdr is integers and pointers, for which zero is a value: there is room for nothing.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    retry(|| {
        // SAFETY: the header points to no buffers.
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_PEEK) }
    })?;
    Ok(header.msg_flags & libc::MSG_CTRUNC != 0)
}

/// Throws the next message away. The system closes what came descriptors, without a number for any of it,
/// and the caller waits for that.
pub(crate) fn discard(socket: BorrowedFd<'_>) -> io::Result<()> {
    retry(|| {
        // SAFETY: there is room for nothing.
        unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 0, 0) }
    })
    .map(drop)
}

fn descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    // SAFETY: the kernel has written whole control messages within the buffer; the macros stay
    // there. Descriptors in them are new and nobody else's.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS
            {
                let bytes = (*message).cmsg_len - libc::CMSG_LEN(0) as usize;
                for number in 0..bytes / mem::size_of::<RawFd>() {
                    let mut raw: RawFd = -1;
                    std::ptr::copy_nonoverlapping(
                        libc::CMSG_DATA(message).add(number * mem::size_of::<RawFd>()),
                        (&raw mut raw).cast(),
                        mem::size_of::<RawFd>(),
                    );
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
        let result = call();
        if result >= 0 {
            return Ok(result as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Descriptors that one message can have (`SCM_MAX_FD` of the kernel).
pub(crate) const MAX_DESCRIPTORS: u32 = 253;

/// Room for all of them: the system would close the others itself, and have the receiver wait for it.
struct Control([u64; 129]);

const FD_SIZE: u32 = mem::size_of::<RawFd>() as u32;
