//! Clears up behind the daemon, however that ends.
//!
//! Who has become another user may not remove what root has made, and who is killed removes nothing.
//! So a process stays behind that is who the daemon was, with no capability and no descriptor but
//! one, which ends with the daemon. It hears nothing else and does nothing but remove.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::capability;
use crate::scm_rights;
use crate::system::{self, check};

/// The process. Dropping this has it do its work, and waits for that.
#[derive(Debug)]
pub(super) struct CleanupProcess {
    process: libc::pid_t,
    /// Closed by the system when this process ends, however it does.
    alive: Option<OwnedFd>,
}

impl CleanupProcess {
    /// Starts it for a socket, and for folders, which go if they are empty. Paths are absolute.
    pub(super) fn start<'a>(
        socket: &Path,
        folders: impl Iterator<Item = &'a Path>,
    ) -> io::Result<Self> {
        let name = |path: &Path| CString::new(path.as_os_str().as_bytes());
        let rounds = Rounds {
            socket: name(socket)?,
            made: identity(&name(socket)?)?,
            folders: folders.map(name).collect::<Result<_, _>>()?,
        };
        let [end, alive] = system::local_pair()?;
        // SAFETY: the child calls nothing but the system until it ends, as it must where other
        // threads may have held locks.
        match check(unsafe { libc::fork() })? {
            0 => rounds.serve(end.as_raw_fd()),
            process => {
                drop(end);
                let porter = Self {
                    process,
                    alive: Some(alive),
                };
                porter.has_begun().then_some(porter).ok_or_else(|| {
                    io::Error::other("the process that is to remove the socket has ended")
                })
            }
        }
    }

    /// Waits until it has nothing left to give up. If it could not it has ended.
    fn has_begun(&self) -> bool {
        let alive = self.alive.as_ref().map(AsFd::as_fd);
        alive.is_some_and(|fd| scm_rights::receive(fd, &mut [0]).is_ok_and(|r| r.length > 0))
    }
}

impl Drop for CleanupProcess {
    fn drop(&mut self) {
        self.alive = None;
        // SAFETY: nobody asks for the status.
        let wait = || unsafe { libc::waitpid(self.process, std::ptr::null_mut(), 0) };
        while wait() == -1 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {}
    }
}

/// What is to be removed.
struct Rounds {
    socket: CString,
    /// Another file at its path is not ours.
    made: (u64, u64),
    /// Innermost first.
    folders: Vec<CString>,
}

impl Rounds {
    /// Waits for the end of the daemon and removes everything. Allocates nothing.
    fn serve(&self, end: RawFd) -> ! {
        // SAFETY: these take numbers, names that end with zero, a set that is filled before it is
        // used, and a byte's place. The descriptors that are closed are this process's own.
        unsafe {
            let mut all: libc::sigset_t = mem::zeroed();
            libc::sigfillset(&raw mut all);
            // What ends a group of processes ends the daemon, and then this.
            libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
            libc::prctl(libc::PR_SET_NAME, c"tg-porter".as_ptr());
            libc::chdir(c"/".as_ptr());
            libc::dup2(end, 0);
            libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
            if capability::give_up_all().is_err() {
                libc::_exit(1);
            }
            let mut byte = 0_u8;
            libc::write(0, (&raw const byte).cast(), 1);
            // Nobody writes: it fails, or it is the end.
            while libc::read(0, (&raw mut byte).cast(), 1) > 0 {}
            if identity(&self.socket).is_ok_and(|now| now == self.made) {
                libc::unlink(self.socket.as_ptr());
            }
            for folder in &self.folders {
                libc::rmdir(folder.as_ptr());
            }
            libc::_exit(0)
        }
    }
}

/// What tells a file from all others.
fn identity(path: &CString) -> io::Result<(u64, u64)> {
    // SAFETY: zero is a value for all of its fields; the name ends with zero, and the place is
    // whole.
    unsafe {
        let mut found: libc::stat = mem::zeroed();
        check(libc::lstat(path.as_ptr(), &raw mut found))?;
        Ok((found.st_dev, found.st_ino))
    }
}
