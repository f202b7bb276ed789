//! Random bytes of the system, for keys.

use std::io;

use crate::netns::check;

/// 32 random bytes. Waits during the boot until the kernel's generator is seeded.
///
/// # Errors
///
/// The error of `getrandom`.
pub fn seed() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    // SAFETY: writes at most the given number of bytes. Up to 256 bytes are never partial.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    check(count as libc::c_int)?;
    Ok(bytes)
}
