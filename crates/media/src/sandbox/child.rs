//! The decoder process.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::process::ExitCode;

use tidegate_core::media::Codec;

use super::filter::{self, PICTURES, SOCKET};
use super::protocol::{Reply, Request};
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
    // SAFETY: the process was started with these descriptors, and nothing else uses them: neither
    // standard input nor standard output.
    let (socket, pictures) = unsafe { (File::from_raw_fd(SOCKET), File::from_raw_fd(PICTURES)) };
    let code = match serve(socket, &pictures, codec, max) {
        Ok(()) => 0,
        Err(_) => FAILED,
    };
    // Other handlers of the exit would need more system calls.
    // SAFETY: it ends the process, whose state no longer matters.
    unsafe { libc::_exit(code) }
}

/// Serves requests until the socket is closed.
fn serve(mut socket: File, pictures: &File, codec: Codec, max: Size) -> io::Result<()> {
    let mut decoder = NativeDecoder::open(codec, max).map_err(io::Error::other)?;
    filter::limit_resources(max)?;
    let filtered = filter::restrict_system_calls();
    socket.write_all(&Reply::Ready { filtered }.emit())?;
    let mut unit = Vec::new();
    let mut picture = None;
    let mut head = [0; Request::LEN];
    loop {
        socket.read_exact(&mut head)?;
        match Request::parse(head).ok_or(io::ErrorKind::InvalidData)? {
            Request::Reset => decoder.reset(),
            Request::Decode { len } => {
                unit.resize(len as usize, 0);
                socket.read_exact(&mut unit)?;
                let outcome = decoder.decode(&unit, &mut picture);
                let reply = match (outcome, &picture) {
                    (Outcome::Whole, Some(picture)) => Reply::Whole(picture.size()),
                    (Outcome::Damaged, Some(picture)) => Reply::Damaged(picture.size()),
                    _ => Reply::Nothing,
                };
                if let Some(picture) = picture.as_ref().filter(|_| reply != Reply::Nothing) {
                    pictures.write_all_at(picture.as_i420(), 0)?;
                }
                socket.write_all(&reply.emit())?;
            }
        }
    }
}

/// Exit codes.
const NO_ARGUMENTS: u8 = 2;
const FAILED: i32 = 1;
