//! The local socket through which clients come in, and the folders that were made for it.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{self, Path, PathBuf};
use std::{fs, io};

use super::cleanup_process::CleanupProcess;
use super::{ServeError, connect};
use crate::system::{self, check, set_option};

/// Where clients come in. It leaves nothing behind.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    folders: Folders,
    /// Removes the socket and the folders when this process may not.
    porter: Option<CleanupProcess>,
    bars_descriptors: bool,
}

impl Listener {
    pub(super) fn open(path: &Path) -> Result<Self, ServeError> {
        let error = |cause| ServeError::Socket {
            path: path.into(),
            cause,
        };
        let mut folders = Folders::default();
        let path = &path::absolute(path).map_err(error)?;
        if let Some(parent) = path.parent() {
            folders.make(parent).map_err(error)?;
        }
        make_way(path)?;
        let socket = system::local_socket().map_err(error)?;
        let (address, size) = system::local_address(path).map_err(error)?;
        let bars_descriptors = let_pass(socket.as_fd(), false).is_ok();
        // SAFETY: the address is whole and passed with its size.
        unsafe {
            let address = (&raw const address).cast();
            check(libc::bind(socket.as_raw_fd(), address, size)).map_err(error)?;
            check(libc::listen(socket.as_raw_fd(), 64)).map_err(error)?;
        }
        // Who may have what is the policy's business: everybody may ask.
        let everybody = fs::Permissions::from_mode(0o666);
        fs::set_permissions(path, everybody).map_err(error)?;
        Ok(Self {
            socket,
            path: path.into(),
            folders,
            porter: None,
            bars_descriptors,
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether nobody hands anything over before he was let in.
    pub(super) fn bars_descriptors(&self) -> bool {
        self.bars_descriptors
    }

    /// Lets one who came in through this door hand descriptors over.
    pub(super) fn allow_descriptors(&self, client: BorrowedFd<'_>) {
        if self.bars_descriptors {
            // What could be forbidden can be allowed.
            let _ = let_pass(client, true);
        }
    }

    /// Has the socket and the folders removed by who this process is now, whoever it becomes.
    pub(super) fn leave_to_porter(&mut self) -> io::Result<()> {
        let folders = self.folders.0.iter().rev().map(PathBuf::as_path);
        self.porter = Some(CleanupProcess::start(&self.path, folders)?);
        self.folders.0.clear();
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.porter.take().is_none() {
            // The folders go after it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes what a daemon left behind that was killed: a socket on which nobody listens. All else is
/// not ours to remove.
fn make_way(path: &Path) -> Result<(), ServeError> {
    let error = |cause| ServeError::Socket {
        path: path.into(),
        cause,
    };
    let Err(why) = connect(path) else {
        return Err(ServeError::InUse(path.into()));
    };
    let remove = || -> io::Result<bool> {
        let is_socket = fs::symlink_metadata(path)?.file_type().is_socket();
        if is_socket {
            fs::remove_file(path)?;
        }
        Ok(is_socket)
    };
    match why.raw_os_error() {
        // Nobody listens there, nothing is there, or a link that leads nowhere.
        Some(libc::ECONNREFUSED | libc::ENOENT) => match remove() {
            Ok(true) => Ok(()),
            Ok(false) => Err(ServeError::NoSocket(path.into())),
            // It may just have gone.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(error(e)),
        },
        // It does not answer, but it is there.
        Some(libc::EAGAIN) => Err(ServeError::InUse(path.into())),
        // It is of another kind.
        Some(libc::EPROTOTYPE) => Err(ServeError::Others(path.into())),
        _ => Err(error(why)),
    }
}

/// Whether descriptors can be handed over to a local socket; those that it accepts are as it is.
/// Kernels before 6.16 do not know it.
fn let_pass(socket: BorrowedFd<'_>, may: bool) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, &i32::from(may))
}

/// Of the kernel's `include/uapi/asm-generic/socket.h`.
const SO_PASSRIGHTS: i32 = 83;

/// Folders that were made here, outermost first. They go when this does, unless somebody else
/// keeps something in them.
#[derive(Debug, Default)]
struct Folders(Vec<PathBuf>);

impl Folders {
    /// Makes a folder and those around it that are missing.
    fn make(&mut self, folder: &Path) -> io::Result<()> {
        let is_missing = |f: &&Path| !f.as_os_str().is_empty() && !f.exists();
        let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
        for &folder in missing.iter().rev() {
            match fs::create_dir(folder) {
                Ok(()) => {
                    self.0.push(folder.into());
                    // Everybody may ask, whatever this process's mask says.
                    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
                }
                // Somebody was faster: it is theirs.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // Not empty, or as another user not ours to remove: then it stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::scm_rights;

    /// A folder of this test, with a short path as sockets want it.
    fn own(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tg-{}-{name}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn entries(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn folders_that_were_made_go_with_the_socket() {
        let there = own("made");
        let path = there.join("a/b/events.sock");
        let door = Listener::open(&path).unwrap();
        assert!(path.exists());
        // One who is refused has made nothing, and removes nothing.
        assert!(matches!(Listener::open(&path), Err(ServeError::InUse(_))));
        assert!(path.exists());
        drop(door);
        assert_eq!(entries(&there), 0, "something stayed behind");
        fs::remove_dir(there).unwrap();
    }

    #[test]
    fn a_porter_removes_what_was_made_and_nothing_else() {
        let there = own("porter");
        let path = there.join("a/b/events.sock");
        let mut door = Listener::open(&path).unwrap();
        door.leave_to_porter().unwrap();
        assert!(path.exists());
        drop(door);
        assert_eq!(entries(&there), 0, "something stayed behind");
        // Another file has come to the socket's place, and one is beside it.
        let mut door = Listener::open(&path).unwrap();
        door.leave_to_porter().unwrap();
        fs::write(there.join("a/notes"), "x").unwrap();
        fs::write(there.join("other"), "x").unwrap();
        fs::rename(there.join("other"), &path).unwrap();
        drop(door);
        assert!(path.exists() && there.join("a/notes").exists());
        fs::remove_file(&path).unwrap();
        let mut door = Listener::open(&path).unwrap();
        door.leave_to_porter().unwrap();
        drop(door);
        // These folders were there before the last one.
        assert!(!path.exists() && there.join("a/b").exists());
        fs::remove_dir_all(there).unwrap();
    }

    /// Where the kernel can see to it: what is handed over waits nowhere before its owner is let in.
    #[test]
    fn who_is_not_let_in_hands_nothing_over() {
        let there = own("bars");
        let path = there.join("events.sock");
        let door = Listener::open(&path).unwrap();
        let client = connect(&path).unwrap();
        let hand_over = || scm_rights::send(client.as_fd(), b"?", Some(client.as_fd()));
        let early = hand_over().map_err(|e| e.raw_os_error());
        let barred = door.bars_descriptors();
        assert_eq!(
            early,
            if barred {
                Err(Some(libc::EPERM))
            } else {
                Ok(())
            }
        );
        // SAFETY: no address is asked for.
        let accepted = system::owned(unsafe {
            let (no_address, no_size) = (std::ptr::null_mut(), std::ptr::null_mut());
            libc::accept(door.socket().as_raw_fd(), no_address, no_size)
        });
        let accepted = accepted.unwrap();
        scm_rights::send(client.as_fd(), b"?", None).unwrap();
        door.allow_descriptors(accepted.as_fd());
        hand_over().unwrap();
        drop(door);
        fs::remove_dir(there).unwrap();
    }

    #[test]
    fn folders_of_others_and_those_in_use_stay() {
        let there = own("used");
        let theirs = there.join("a/notes");
        let door = Listener::open(&there.join("a/b/events.sock")).unwrap();
        fs::write(&theirs, "x").unwrap();
        drop(door);
        assert!(theirs.exists());
        assert_eq!(entries(&there.join("a")), 1);
        drop(Listener::open(&there.join("events.sock")).unwrap());
        assert!(there.exists());
        fs::remove_dir_all(there).unwrap();
    }

    #[test]
    fn what_others_have_put_there_stays() {
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
            stays(file, "a file that is no socket is there");
        }
        drop((stream, datagram));
        // Nobody has these any more.
        for left in ["stream", "datagram"] {
            drop(Listener::open(&there.join(left)).unwrap());
        }
        fs::remove_dir_all(there).unwrap();
    }

    #[test]
    fn a_socket_that_cannot_be_made_leaves_no_folders() {
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
