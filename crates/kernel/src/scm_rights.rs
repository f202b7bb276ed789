//! Messages with descriptors (`SCM_RIGHTS`) on local sockets of type `SOCK_SEQPACKET`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};

/// Sends a message, with a descriptor if one is given. Blocks only if the socket does.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if let Some(descriptor) = &descriptor {
        let rights = SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor));
        assert!(control.push(rights), "the buffer has room for a descriptor");
    }
    let parts = [IoSlice::new(message)];
    retry_on_intr(|| sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
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
    // Room for all descriptors of a message. The kernel would close the others during the call, and
    // block the receiver meanwhile.
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS as usize))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, flags))?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    Ok(Received {
        length: received.bytes,
        truncated: received.flags.contains(ReturnFlags::TRUNC),
        // The buffer has room for all descriptors of a message, so the process lacks numbers.
        lost_descriptors: received.flags.contains(ReturnFlags::CTRUNC),
        descriptors: rights.flatten().collect(),
    })
}

/// Whether the next message has descriptors. The message stays in the socket.
pub(crate) fn next_has_descriptors(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut none = RecvAncillaryBuffer::default();
    let received = retry_on_intr(|| recvmsg(socket, &mut [], &mut none, RecvFlags::PEEK))?;
    Ok(received.flags.contains(ReturnFlags::CTRUNC))
}

/// Discards the next message. The kernel closes its descriptors without installing them, and the
/// caller waits for that.
pub(crate) fn discard(socket: BorrowedFd<'_>) -> io::Result<()> {
    retry_on_intr(|| recv(socket, &mut [0_u8; 0], RecvFlags::empty()))?;
    Ok(())
}

/// Descriptors that one message can have (`SCM_MAX_FD` of the kernel).
pub(crate) const MAX_DESCRIPTORS: u32 = 253;
