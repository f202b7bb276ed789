//! Terminal width.

use std::os::fd::BorrowedFd;

use rustix::termios::tcgetwinsize;

/// Columns of the terminal behind `fd`; `None` if it is not a terminal or has no size, as a
/// pseudo-terminal opened without one.
pub fn columns(fd: BorrowedFd<'_>) -> Option<usize> {
    let columns = tcgetwinsize(fd).ok()?.ws_col;
    (columns > 0).then(|| usize::from(columns))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
    use std::ptr::{null, null_mut};

    use super::*;

    /// Both ends of a terminal.
    fn terminal(columns: u16) -> [OwnedFd; 2] {
        let size = libc::winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let (mut ours, mut theirs) = (-1, -1);
        // SAFETY: both descriptors and the size outlive the call; name and settings may be null.
        let done = unsafe {
            libc::openpty(
                &raw mut ours,
                &raw mut theirs,
                null_mut(),
                null(),
                &raw const size,
            )
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: openpty has just opened both descriptors.
        [ours, theirs].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    #[test]
    fn terminal_has_columns_and_a_file_has_none() {
        for (set, told) in [(80, Some(80)), (0, None)] {
            let [_ours, theirs] = terminal(set);
            assert_eq!(columns(theirs.as_fd()), told);
        }
        let file = File::open("/dev/null").expect("open /dev/null");
        assert_eq!(columns(file.as_fd()), None);
    }
}
