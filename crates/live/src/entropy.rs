//! Random bytes of the system, for keys.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// 32 random bytes. Waits during the boot until the kernel's generator is seeded.
///
/// # Errors
///
/// The error of `getrandom`.
pub fn seed() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    // Up to 256 bytes are never partial.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}
