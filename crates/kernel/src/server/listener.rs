//! The listening socket of the daemon, and the directories that were made for it.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
    PermissionsExt as _,
};
use std::path::{self, Path, PathBuf};
use std::{fs, io};

use rustix::net::{SocketAddrUnix, SocketFlags, accept_with, bind, getsockname, listen};

use super::{ServeError, connect};
use crate::peer_cred::effective_user;
use crate::system::{self, set_option};
use crate::trusted_path::{self, PathError};

/// The listening socket. Dropping it removes the socket and the directories.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode number of the file, if it was made here and is removed at the end.
    made: Option<(u64, u64)>,
    /// Removes them when it is dropped.
    _directories: Directories,
    blocks_descriptors: bool,
}

impl Listener {
    pub(super) fn open(path: &Path) -> Result<Self, ServeError> {
        let error = |cause| socket_error(path, cause);
        let exposed = |cause| path_error(path, cause);
        let absolute = path::absolute(path).map_err(error)?;
        let (Some(folder), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            let cause = io::Error::new(io::ErrorKind::InvalidInput, "it has no file name");
            return Err(error(cause));
        };
        let user = effective_user();
        let folder = trusted_path::resolve(folder, user).map_err(exposed)?;
        let mut directories = Directories::default();
        directories.make(&folder, user).map_err(exposed)?;
        let resolved = folder.join(name);
        remove_stale(&resolved)?;
        let socket = system::local_socket().map_err(error)?;
        let blocks_descriptors = pass_rights(socket.as_fd(), false).is_ok();
        bind(&socket, &system::local_address(&resolved).map_err(error)?)
            .map_err(|e| error(e.into()))?;
        let mut listener = Self {
            socket,
            path: resolved,
            made: None,
            _directories: directories,
            blocks_descriptors,
        };
        // No client can connect before the socket listens.
        let found = open_to_all(&listener.path, Kind::Socket).map_err(error)?;
        listener.made = Some((found.dev(), found.ino()));
        listen(&listener.socket, 64).map_err(|e| error(e.into()))?;
        Ok(listener)
    }

    /// A socket that listens already. Its file stays at the end.
    pub(super) fn inherited(socket: OwnedFd) -> Self {
        let blocks_descriptors = pass_rights(socket.as_fd(), false).is_ok();
        Self {
            path: bound_path(socket.as_fd()).unwrap_or_default(),
            socket,
            made: None,
            _directories: Directories::default(),
            blocks_descriptors,
        }
    }

    /// Empty for a socket without a path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Accepts the next connection, whose socket does not block.
    pub(super) fn accept(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(accept_with(&self.socket, flags)?)
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
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another file at the path stays.
        let found = fs::symlink_metadata(&self.path).ok();
        let found = found.map(|found| (found.dev(), found.ino()));
        if self.made.is_some() && found == self.made {
            // It fails if the daemon has become another user. The directories follow when their
            // field is dropped.
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

fn path_error(path: &Path, cause: PathError) -> ServeError {
    match cause {
        PathError::System(cause) => socket_error(path, cause),
        untrusted @ PathError::Untrusted { .. } => ServeError::Exposed {
            path: path.into(),
            why: untrusted.to_string(),
        },
    }
}

/// The path of a local socket; `None` if it has none.
fn bound_path(socket: BorrowedFd<'_>) -> Option<PathBuf> {
    let address = SocketAddrUnix::try_from(getsockname(socket).ok()?).ok()?;
    let path = OsStr::from_bytes(address.path_bytes()?);
    Some(path.into())
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
    /// Makes a directory and its missing parents. The others belong to root or to `user`.
    fn make(&mut self, directory: &Path, user: u32) -> Result<(), PathError> {
        let is_missing = |d: &&Path| !d.exists();
        let missing: Vec<&Path> = directory.ancestors().take_while(is_missing).collect();
        for &directory in missing.iter().rev() {
            match fs::DirBuilder::new().mode(0o755).create(directory) {
                Ok(()) => {
                    self.0.push(directory.into());
                    open_to_all(directory, Kind::Directory).map_err(PathError::System)?;
                }
                // Another process has made it.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    let found = fs::symlink_metadata(directory).map_err(PathError::System)?;
                    if !found.is_dir() {
                        return Err(PathError::System(e));
                    }
                    trusted_path::check(directory, &found, user)?;
                }
                Err(e) => return Err(PathError::System(e)),
            }
        }
        Ok(())
    }
}

/// A file that any user may use.
#[derive(Clone, Copy)]
enum Kind {
    /// To be searched.
    Directory,
    /// To be connected to: the policy decides about rights.
    Socket,
}

/// Lets any user use a file that was made here, whatever the umask of this process. Links are not
/// followed, so a name that is exchanged meanwhile changes no mode of another file.
fn open_to_all(path: &Path, kind: Kind) -> io::Result<fs::Metadata> {
    let opened = fs::File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
        .open(path)?;
    let found = opened.metadata()?;
    let mode = match kind {
        Kind::Directory if found.is_dir() => 0o755,
        Kind::Socket if found.file_type().is_socket() => 0o666,
        _ => return Err(io::Error::other("its name was exchanged")),
    };
    // A descriptor for the path only cannot change the mode itself.
    let link = format!("/proc/thread-self/fd/{}", opened.as_raw_fd());
    fs::set_permissions(link, fs::Permissions::from_mode(mode))?;
    Ok(found)
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
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread;

    use super::*;
    use crate::scm_rights;

    /// A directory of this test, with a short path because addresses are short.
    fn own(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("tg-{}-{name}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        // The umask may let others write.
        chmod(&directory, 0o755);
        directory
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    /// As soon as the socket exists, an attacker replaces it by a link to a file of the daemon's
    /// user. A change of its mode by name would follow the link (the attacker won in the ninth
    /// start).
    #[test]
    fn an_exchanged_name_changes_no_mode() {
        let there = own("race");
        let (path, victim, link) = (there.join("sock"), there.join("victim"), there.join("link"));
        fs::write(&victim, "secret").unwrap();
        chmod(&victim, 0o600);
        let stop = AtomicBool::new(false);
        let exchanged = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let found = fs::symlink_metadata(&path);
                    if found.is_ok_and(|found| found.file_type().is_socket()) {
                        symlink(&victim, &link).unwrap();
                        fs::rename(&link, &path).unwrap();
                        exchanged.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            let (mut starts, mut changed) = (0, false);
            while !changed && (starts < 300 || exchanged.load(Ordering::Relaxed) < 100) {
                starts += 1;
                let listener = Listener::open(&path);
                changed = mode(&victim) != 0o600;
                drop(listener);
                let _ = fs::remove_file(&path);
            }
            stop.store(true, Ordering::Relaxed);
            assert!(!changed, "the mode of the file changed in start {starts}");
        });
        fs::remove_dir_all(there).unwrap();
    }

    #[test]
    fn any_user_may_connect_from_the_start() {
        let there = own("mode");
        let path = there.join("made/events.sock");
        let listener = Listener::open(&path).unwrap();
        assert_eq!((mode(&path), mode(&there.join("made"))), (0o666, 0o755));
        drop(listener);
        fs::remove_dir(there).unwrap();
    }

    #[test]
    fn folders_that_others_can_change_are_refused() {
        let there = own("exposed");
        let refused = |path: &Path, word: &str| {
            let why = Listener::open(path).unwrap_err();
            assert!(matches!(why, ServeError::Exposed { .. }), "{why}");
            let why = why.to_string();
            let words = format!("{word} {}", there.display());
            assert!(
                why.contains("exchange the socket") && why.contains(&words),
                "{why}"
            );
        };
        chmod(&there, 0o777);
        refused(&there.join("events.sock"), "write to the folder");
        refused(&there.join("new/events.sock"), "write to the folder");
        assert_eq!(entries(&there), 0, "a folder was made");
        chmod(&there, 0o755);
        if effective_user() == 0 {
            std::os::unix::fs::chown(&there, Some(65_534), None).unwrap();
            refused(&there.join("events.sock"), "user 65534 owns the folder");
            // Also a sticky one, whose owner can rename all entries.
            chmod(&there, 0o1777);
            refused(&there.join("events.sock"), "user 65534 owns the folder");
            std::os::unix::fs::chown(&there, Some(0), None).unwrap();
        }
        chmod(&there, 0o1777);
        drop(Listener::open(&there.join("events.sock")).unwrap());
        fs::remove_dir(there).unwrap();
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
    fn another_file_at_the_path_stays() {
        let there = own("cleanup");
        let path = there.join("a/b/events.sock");
        let listener = Listener::open(&path).unwrap();
        // Another file replaces the socket, and one is beside it.
        fs::write(there.join("a/notes"), "x").unwrap();
        fs::write(there.join("other"), "x").unwrap();
        fs::rename(there.join("other"), &path).unwrap();
        drop(listener);
        assert!(path.exists() && there.join("a/notes").exists());
        fs::remove_file(&path).unwrap();
        drop(Listener::open(&path).unwrap());
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
