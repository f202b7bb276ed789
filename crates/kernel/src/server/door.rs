//! The local socket through which clients come in, and the folders that were made for it.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{ServeError, connect};
use crate::system::{self, check};

/// Where clients come in. It leaves nothing behind.
#[derive(Debug)]
pub(super) struct Door {
    socket: OwnedFd,
    path: PathBuf,
    folders: Folders,
}

impl Door {
    pub(super) fn open(path: &Path) -> Result<Self, ServeError> {
        let error = |cause| ServeError::Socket {
            path: path.into(),
            cause,
        };
        let mut folders = Folders::default();
        if let Some(parent) = path.parent() {
            folders.make(parent).map_err(error)?;
        }
        match connect(path) {
            Ok(_) => return Err(ServeError::InUse(path.into())),
            // It does not answer, but it is there.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(ServeError::InUse(path.into()));
            }
            Err(_) => {}
        }
        // What a daemon left behind that was killed. Other files are not ours to remove.
        if fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
            fs::remove_file(path).map_err(error)?;
        }
        let socket = system::local_socket().map_err(error)?;
        let (address, size) = system::local_address(path).map_err(error)?;
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
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Lets another user remove the socket at the end, as far as that can be: a folder that was
    /// made here becomes that user's, one that was there before stays as it is.
    pub(super) fn give(&self, user: u32, group: u32) {
        let folders = self.folders.0.iter();
        for path in folders.chain([&self.path]) {
            let _ = chown(path, Some(user), Some(group));
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // As another user we may not; the next daemon will. The folders go after it.
        let _ = fs::remove_file(&self.path);
    }
}

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
                Ok(()) => self.0.push(folder.into()),
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
    use super::*;

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
        let door = Door::open(&path).unwrap();
        assert!(path.exists());
        // One who is refused has made nothing, and removes nothing.
        assert!(matches!(Door::open(&path), Err(ServeError::InUse(_))));
        assert!(path.exists());
        drop(door);
        assert_eq!(entries(&there), 0, "something stayed behind");
        fs::remove_dir(there).unwrap();
    }

    #[test]
    fn folders_of_others_and_those_in_use_stay() {
        let there = own("used");
        let theirs = there.join("a/notes");
        let door = Door::open(&there.join("a/b/events.sock")).unwrap();
        fs::write(&theirs, "x").unwrap();
        drop(door);
        assert!(theirs.exists());
        assert_eq!(entries(&there.join("a")), 1);
        drop(Door::open(&there.join("events.sock")).unwrap());
        assert!(there.exists());
        fs::remove_dir_all(there).unwrap();
    }

    #[test]
    fn a_socket_that_cannot_be_made_leaves_no_folders() {
        let there = own("long");
        // Longer than an address can be (unix(7): 108 bytes).
        let path = there.join("d").join("e".repeat(120));
        assert!(matches!(Door::open(&path), Err(ServeError::Socket { .. })));
        assert_eq!(entries(&there), 0);
        fs::remove_dir(there).unwrap();
    }
}
