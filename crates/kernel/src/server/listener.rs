//! The listening socket of the daemon, and the directories that were made for it.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{self, Path, PathBuf};
use std::{fs, io, ptr};

use super::cleanup_process::CleanupProcess;
use super::{ServeError, connect};
use crate::system::{self, check, owned, set_option};

/// The listening socket. Dropping it removes the socket and the directories.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    directories: Directories,
    /// Removes the socket and the directories if this process may not.
    cleanup: Option<CleanupProcess>,
    blocks_descriptors: bool,
}

impl Listener {
    pub(super) fn open(path: &Path) -> Result<Self, ServeError> {
        let error = |cause| socket_error(path, cause);
        let mut directories = Directories::default();
        let path = &path::absolute(path).map_err(error)?;
        if let Some(parent) = path.parent() {
            directories.make(parent).map_err(error)?;
        }
        remove_stale(path)?;
        let socket = system::local_socket().map_err(error)?;
        let (address, size) = system::local_address(path).map_err(error)?;
        let blocks_descriptors = pass_rights(socket.as_fd(), false).is_ok();
        // SAFETY: the address is whole and passed with its size.
        unsafe {
            let address = (&raw const address).cast();
            check(libc::bind(socket.as_raw_fd(), address, size)).map_err(error)?;
            check(libc::listen(socket.as_raw_fd(), 64)).map_err(error)?;
        }
        // The policy decides about rights, so any user may connect.
        let any_user = fs::Permissions::from_mode(0o666);
        fs::set_permissions(path, any_user).map_err(error)?;
        Ok(Self {
            socket,
            path: path.into(),
            directories,
            cleanup: None,
            blocks_descriptors,
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Accepts the next connection, whose socket does not block.
    pub(super) fn accept(&self) -> io::Result<OwnedFd> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let (address, size) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: no address is asked for.
        owned(unsafe { libc::accept4(self.socket.as_raw_fd(), address, size, flags) })
    }

    /// Whether the kernel rejects messages with descriptors until [`Self::allow_descriptors`].
    pub(super) fn blocks_descriptors(&self) -> bool {
        self.blocks_descriptors
    }

    /// Allows a client whose connection was accepted here to send descriptors.
    pub(super) fn allow_descriptors(&self, client: BorrowedFd<'_>) {
        if self.blocks_descriptors {
            // The kernel knows the option, so this does not fail.
            let _ = pass_rights(client, true);
        }
    }

    /// Starts a process that removes the socket and the directories with the present rights of this
    /// process, whichever user it becomes later.
    pub(super) fn delegate_cleanup(&mut self) -> io::Result<()> {
        let directories = self.directories.0.iter().rev().map(PathBuf::as_path);
        self.cleanup = Some(CleanupProcess::start(&self.path, directories)?);
        self.directories.0.clear();
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.cleanup.take().is_none() {
            // The directories follow when their field is dropped.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the socket of a daemon that was killed, on which no process listens. Any other file is
/// an error.
fn remove_stale(path: &Path) -> Result<(), ServeError> {
    let Err(why) = connect(path) else {
        return Err(ServeError::InUse(path.into()));
    };
    match why.raw_os_error() {
        // A socket without a listener, no file, or a dangling symbolic link.
        Some(libc::ECONNREFUSED | libc::ENOENT) => {
            let kind = fs::symlink_metadata(path).map(|m| m.file_type());
            let removed = match kind {
                Ok(kind) if !kind.is_socket() => return Err(ServeError::NoSocket(path.into())),
                Ok(_) => fs::remove_file(path),
                Err(e) => Err(e),
            };
            removed.or_else(|e| match e.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(socket_error(path, e)),
            })
        }
        // The queue of connections is full, so a process listens.
        Some(libc::EAGAIN) => Err(ServeError::InUse(path.into())),
        // The socket has another type.
        Some(libc::EPROTOTYPE) => Err(ServeError::Others(path.into())),
        _ => Err(socket_error(path, why)),
    }
}

fn socket_error(path: &Path, cause: io::Error) -> ServeError {
    ServeError::Socket {
        path: path.into(),
        cause,
    }
}

/// Sets whether descriptors can be sent to a local socket. Accepted sockets inherit the option.
/// Linux has it since 6.16.
fn pass_rights(socket: BorrowedFd<'_>, may: bool) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, &i32::from(may))
}

/// From the kernel's `include/uapi/asm-generic/socket.h`.
const SO_PASSRIGHTS: i32 = 83;

/// Directories that were made here, outermost first. Dropping this removes those that are empty.
#[derive(Debug, Default)]
struct Directories(Vec<PathBuf>);

impl Directories {
    /// Makes a directory and its missing parents.
    fn make(&mut self, directory: &Path) -> io::Result<()> {
        let is_missing = |d: &&Path| !d.as_os_str().is_empty() && !d.exists();
        let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
        for &directory in missing.iter().rev() {
            match fs::create_dir(directory) {
                Ok(()) => {
                    self.0.push(directory.into());
                    // Any user may connect, whatever the umask of this process.
                    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
                }
                // Another process has made it, and owns it.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        for directory in self.0.iter().rev() {
            // A directory that is not empty stays, and so does one of another user.
            let _ = fs::remove_dir(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::scm_rights;

    /// A directory of this test, with a short path because addresses are short.
    fn own(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("tg-{}-{name}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        directory
    }

    fn entries(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn directories_that_were_made_are_removed_with_the_socket() {
        let there = own("made");
        let path = there.join("a/b/events.sock");
        let listener = Listener::open(&path).unwrap();
        assert!(path.exists());
        // A listener that cannot be opened removes nothing.
        assert!(matches!(Listener::open(&path), Err(ServeError::InUse(_))));
        assert!(path.exists());
        drop(listener);
        assert_eq!(entries(&there), 0, "files stayed behind");
        fs::remove_dir(there).unwrap();
    }

    #[test]
    fn the_cleanup_process_removes_the_socket_and_its_directories_only() {
        let there = own("cleanup");
        let path = there.join("a/b/events.sock");
        let mut listener = Listener::open(&path).unwrap();
        listener.delegate_cleanup().unwrap();
        assert!(path.exists());
        drop(listener);
        assert_eq!(entries(&there), 0, "files stayed behind");
        // Another file replaces the socket, and one is beside it.
        let mut listener = Listener::open(&path).unwrap();
        listener.delegate_cleanup().unwrap();
        fs::write(there.join("a/notes"), "x").unwrap();
        fs::write(there.join("other"), "x").unwrap();
        fs::rename(there.join("other"), &path).unwrap();
        drop(listener);
        assert!(path.exists() && there.join("a/notes").exists());
        fs::remove_file(&path).unwrap();
        let mut listener = Listener::open(&path).unwrap();
        listener.delegate_cleanup().unwrap();
        drop(listener);
        // The last listener has not made these directories.
        assert!(!path.exists() && there.join("a/b").exists());
        fs::remove_dir_all(there).unwrap();
    }

    /// On kernels that can block descriptors.
    #[test]
    fn descriptors_are_blocked_until_the_client_is_admitted() {
        let there = own("blocks");
        let path = there.join("events.sock");
        let listener = Listener::open(&path).unwrap();
        let client = connect(&path).unwrap();
        let send_descriptor = || scm_rights::send(client.as_fd(), b"?", Some(client.as_fd()));
        let early = send_descriptor().map_err(|e| e.raw_os_error());
        let blocked = listener.blocks_descriptors();
        assert_eq!(
            early,
            if blocked {
                Err(Some(libc::EPERM))
            } else {
                Ok(())
            }
        );
        let accepted = listener.accept().unwrap();
        scm_rights::send(client.as_fd(), b"?", None).unwrap();
        listener.allow_descriptors(accepted.as_fd());
        send_descriptor().unwrap();
        drop(listener);
        fs::remove_dir(there).unwrap();
    }

    #[test]
    fn foreign_directories_and_those_in_use_stay() {
        let there = own("used");
        let theirs = there.join("a/notes");
        let listener = Listener::open(&there.join("a/b/events.sock")).unwrap();
        fs::write(&theirs, "x").unwrap();
        drop(listener);
        assert!(theirs.exists());
        assert_eq!(entries(&there.join("a")), 1);
        drop(Listener::open(&there.join("events.sock")).unwrap());
        assert!(there.exists());
        fs::remove_dir_all(there).unwrap();
    }

    #[test]
    fn foreign_files_at_the_path_stay() {
        use std::os::unix::net::{UnixDatagram, UnixListener};
        let there = own("others");
        let stays = |name: &str, word: &str| {
            let path = there.join(name);
            let why = Listener::open(&path).unwrap_err().to_string();
            assert!(why.contains(word) && why.contains("--socket"), "{why}");
            assert!(fs::symlink_metadata(path).is_ok(), "{name} is gone");
        };
        let stream = UnixListener::bind(there.join("stream")).unwrap();
        let datagram = UnixDatagram::bind(there.join("datagram")).unwrap();
        fs::write(there.join("file"), "x").unwrap();
        fs::create_dir(there.join("folder")).unwrap();
        symlink("nowhere", there.join("link")).unwrap();
        for live in ["stream", "datagram"] {
            stays(live, "another program's socket is at");
        }
        for file in ["file", "folder", "link"] {
            stays(file, "is not a socket: choose another --socket");
        }
        drop((stream, datagram));
        // No process listens on these any more.
        for left in ["stream", "datagram"] {
            drop(Listener::open(&there.join(left)).unwrap());
        }
        fs::remove_dir_all(there).unwrap();
    }

    #[test]
    fn a_socket_that_cannot_be_made_leaves_no_directories() {
        let there = own("long");
        // Longer than an address can be (unix(7): 108 bytes).
        let path = there.join("d").join("e".repeat(120));
        assert!(matches!(
            Listener::open(&path),
            Err(ServeError::Socket { .. })
        ));
        assert_eq!(entries(&there), 0);
        fs::remove_dir(there).unwrap();
    }
}
