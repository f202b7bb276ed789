//! The decoder process.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{BorrowedFd, FromRawFd as _};
use std::process::ExitCode;
use std::{ptr, slice};

use rustix::mm::{MapFlags, ProtFlags, mmap};
use tidegate_core::media::Codec;

use super::filter::{self, PICTURES, SOCKET};
use super::protocol::{Output, Reply, Request};
use crate::native::{NativeDecoder, Outcome};
use crate::picture::Size;

/// Name of the program, in its first argument: decides that it is a decoder process.
pub(super) const NAME: &str = "tidegate-decoder";

/// Further arguments of the process.
pub(super) fn arguments(codec: Codec, max: Size) -> [String; 2] {
    [codec.name().to_owned(), max.to_string()]
}

/// Runs the decoder, if this process was started as a decoder process, and returns its exit code at
/// the end. Must be called first in `main`.
pub fn run_child() -> Option<ExitCode> {
    let mut words = std::env::args();
    if words.next()? != NAME {
        return None;
    }
    let codec = words.next().and_then(|name| {
        let codecs = [Codec::H264, Codec::Mpeg2];
        codecs.into_iter().find(|codec| codec.name() == name)
    });
    let max = words.next().and_then(|size| size.parse().ok());
    let (Some(codec), Some(max)) = (codec, max) else {
        return Some(ExitCode::from(NO_ARGUMENTS));
    };
    // SAFETY: the process was started with this descriptor, and does not use standard input.
    let mut socket = unsafe { File::from_raw_fd(SOCKET) };
    let code = match serve(&mut socket, codec, max) {
        // The parent has closed the connection.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => 0,
        Ok(()) | Err(_) => FAILED,
    };
    // Handlers of the exit, and the end of the file's owner, would need more system calls.
    // SAFETY: it ends the process, whose state no longer matters.
    unsafe { libc::_exit(code) }
}

/// Serves requests until the socket is closed.
fn serve(socket: &mut File, codec: Codec, max: Size) -> io::Result<()> {
    let mut decoder = NativeDecoder::open(codec, max).map_err(io::Error::other)?;
    let pictures = map_pictures(max)?;
    filter::limit_resources(max)?;
    let filtered = filter::restrict_system_calls();
    socket.write_all(&Reply::Ready { filtered }.emit())?;
    let mut unit = Vec::new();
    let mut head = [0; Request::LEN];
    loop {
        socket.read_exact(&mut head)?;
        match Request::parse(head).ok_or(io::ErrorKind::InvalidData)? {
            Request::Reset => decoder.reset(),
            Request::Decode { len } => {
                unit.resize(len as usize, 0);
                socket.read_exact(&mut unit)?;
                let reply = decode(&mut decoder, &unit, pictures);
                socket.write_all(&reply.emit())?;
            }
        }
    }
}

/// Decodes an access unit to the shared memory.
fn decode(decoder: &mut NativeDecoder, unit: &[u8], pictures: &mut [u8]) -> Reply {
    let (Output { size, .. }, reply) = match decoder.decode(unit) {
        Outcome::Nothing => return Reply::Nothing,
        Outcome::Delayed => return Reply::Delayed,
        Outcome::Whole(output) => (output, Reply::Whole(output)),
        Outcome::Damaged(output) => (output, Reply::Damaged(output)),
    };
    // FFmpeg accepts slightly more than the limit.
    let Some(out) = pictures.get_mut(..size.bytes()) else {
        return Reply::Nothing;
    };
    decoder.copy_picture(size, out);
    reply
}

/// The file for pictures as memory.
fn map_pictures(max: Size) -> io::Result<&'static mut [u8]> {
    let len = filter::picture_bytes(max) as usize;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the process was started with this descriptor. The kernel chooses the address, and the
    // mapping has this length and is never removed. The parent only reads the file, and only
    // between a reply and the next request. It has sealed the length.
    unsafe {
        let file = BorrowedFd::borrow_raw(PICTURES);
        let start = mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0)?;
        Ok(slice::from_raw_parts_mut(start.cast(), len))
    }
}

/// Exit codes.
const NO_ARGUMENTS: u8 = 2;
const FAILED: i32 = 1;
