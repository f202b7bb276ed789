//! What the system grants this process.

use std::io;

use crate::netns::check;

/// Allows this process as many open files as the system lets it have, instead of the fewer that
/// processes begin with, and says how many these are. A limit that cannot be raised stays.
///
/// # Errors
///
/// The system does not tell its limit.
pub fn open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid place for the answer.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    let wanted = libc::rlimit {
        rlim_cur: limit.rlim_max,
        ..limit
    };
    // SAFETY: `wanted` is whole.
    let raised = check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) });
    Ok(raised.map_or(limit.rlim_cur, |_| wanted.rlim_cur))
}
