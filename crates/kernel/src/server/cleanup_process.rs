//! Removes the daemon's socket and directories after its end, also if it is killed.
//!
//! A daemon that has become another user may not remove files of root, and a killed one removes
//! nothing. So a child process keeps the identity that the daemon had when it began. It has no
//! capability and one descriptor, whose other end the kernel closes with the daemon.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::capability;
use crate::scm_rights;
use crate::system::{self, check};

/// The process. Dropping this makes it remove the files, and waits for its end.
#[derive(Debug)]
pub(super) struct CleanupProcess {
    process: libc::pid_t,
    /// The kernel closes it when the daemon ends.
    alive: Option<OwnedFd>,
}

impl CleanupProcess {
    /// Starts the process for a socket, and for directories, which it removes if they are empty.
    /// All paths are absolute.
    pub(super) fn start<'a>(
        socket: &Path,
        directories: impl Iterator<Item = &'a Path>,
    ) -> io::Result<Self> {
        let name = |path: &Path| CString::new(path.as_os_str().as_bytes());
        let socket = name(socket)?;
        let files = Files {
            identity: identity(&socket)?,
            socket,
            directories: directories.map(name).collect::<Result<_, _>>()?,
        };
        let [end, alive] = system::local_pair()?;
        // SAFETY: the child makes system calls only. Another thread may have held the allocator's
        // lock at the fork, so the child must not allocate.
        match check(unsafe { libc::fork() })? {
            0 => files.remove_after(end.as_raw_fd()),
            process => {
                drop(end);
                let cleanup = Self {
                    process,
                    alive: Some(alive),
                };
                cleanup
                    .is_ready()
                    .then_some(cleanup)
                    .ok_or_else(|| io::Error::other("the cleanup process has ended"))
            }
        }
    }

    /// Waits until the process has dropped its capabilities; false if it could not and has ended.
    fn is_ready(&self) -> bool {
        let alive = self.alive.as_ref().map(AsFd::as_fd);
        alive.is_some_and(|fd| scm_rights::receive(fd, &mut [0]).is_ok_and(|r| r.length > 0))
    }
}

impl Drop for CleanupProcess {
    fn drop(&mut self) {
        self.alive = None;
        // It fails if SIGCHLD is ignored, once the process has ended.
        let _ = wait(self.process);
    }
}

/// Waits for the end of a child process, and returns its status.
pub(super) fn wait(process: libc::pid_t) -> io::Result<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid place for the answer.
        match check(unsafe { libc::waitpid(process, &raw mut status, 0) }) {
            Ok(_) => return Ok(status),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The files to remove.
struct Files {
    socket: CString,
    /// Identifies the socket; another file at its path stays.
    identity: (u64, u64),
    /// Innermost first.
    directories: Vec<CString>,
}

impl Files {
    /// Waits until the other end of `end` is closed, and removes the files. Does not allocate.
    fn remove_after(&self, end: RawFd) -> ! {
        // SAFETY: these take numbers, strings that end with zero, a set that is filled before its
        // use, and a byte. The closed descriptors are copies of this process.
        unsafe {
            let mut all: libc::sigset_t = mem::zeroed();
            libc::sigfillset(&raw mut all);
            // A signal to the process group ends the daemon, and this process has to outlive it.
            libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
            libc::prctl(libc::PR_SET_NAME, c"tg-cleanup".as_ptr());
            libc::chdir(c"/".as_ptr());
            libc::dup2(end, 0);
            libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
            if capability::give_up_all().is_err() {
                libc::_exit(1);
            }
            let mut byte = 0_u8;
            libc::write(0, (&raw const byte).cast(), 1);
            // The daemon writes nothing, so the read returns at its end.
            while libc::read(0, (&raw mut byte).cast(), 1) > 0 {}
            if identity(&self.socket).is_ok_and(|now| now == self.identity) {
                libc::unlink(self.socket.as_ptr());
            }
            for directory in &self.directories {
                libc::rmdir(directory.as_ptr());
            }
            libc::_exit(0)
        }
    }
}

/// Device and inode number of a file.
fn identity(path: &CString) -> io::Result<(u64, u64)> {
    // SAFETY: zero is a value for all fields; the path ends with zero, and the structure is whole.
    unsafe {
        let mut found: libc::stat = mem::zeroed();
        check(libc::lstat(path.as_ptr(), &raw mut found))?;
        Ok((found.st_dev, found.st_ino))
    }
}
