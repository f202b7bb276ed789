//! Resource limits of the process.

use std::io;

use crate::netns::check;

/// Raises the soft limit of open files to the hard limit, and returns the resulting limit. A
/// failure to raise it is ignored.
///
/// # Errors
///
/// The limit cannot be read.
pub fn open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid output buffer.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    let wanted = libc::rlimit {
        rlim_cur: limit.rlim_max,
        ..limit
    };
    // SAFETY: `wanted` is initialised.
    let raised = check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) });
    Ok(raised.map_or(limit.rlim_cur, |_| wanted.rlim_cur))
}
