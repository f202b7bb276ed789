//! Paths that other users cannot change.
//!
//! A privileged process that creates or opens a file by name acts on whatever file has that name at
//! the time of the call. Another user who may rename an entry of any folder on the path, or who owns
//! a symbolic link on it, can exchange the file between two calls (CWE-367).

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{self, Component, Path, PathBuf};
use std::{fmt, io};

/// Resolves symbolic links in a path, and checks each folder and each link on it: it belongs to root
/// or to `user`, and only its owner can write to the folder. Others may write to a sticky folder, as
/// `/tmp`, where they cannot rename entries of `user`. Components that do not exist stay as they
/// are. Other files are not checked.
///
/// The result has no symbolic links, and only root and `user` can change what it names.
///
/// # Errors
///
/// A folder or a link fails the check, there are too many links, or the path cannot be read.
pub(crate) fn resolve(path: &Path, user: u32) -> Result<PathBuf, PathError> {
    let mut rest = Vec::new();
    let mut known = PathBuf::from("/");
    push(&mut rest, &path::absolute(path).map_err(PathError::System)?);
    check(&known, &lookup(&known)?, user)?;
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            known.pop();
            continue;
        }
        let next = known.join(&part);
        let found = match lookup(&next) {
            Err(PathError::System(e)) if e.kind() == io::ErrorKind::NotFound => {
                known = next;
                continue;
            }
            found => found?,
        };
        if found.is_symlink() {
            check(&next, &found, user)?;
            links += 1;
            if links > MAX_LINKS {
                return Err(PathError::System(io::Error::from_raw_os_error(libc::ELOOP)));
            }
            let target = fs::read_link(&next).map_err(PathError::System)?;
            if target.is_absolute() {
                known = PathBuf::from("/");
            }
            push(&mut rest, &target);
            continue;
        }
        if found.is_dir() {
            check(&next, &found, user)?;
        }
        known = next;
    }
    Ok(known)
}

/// Checks that a file belongs to root or to `user`, and that only its owner can write to it. Others
/// may write to a sticky folder.
///
/// # Errors
///
/// The file fails the check.
pub(crate) fn check(path: &Path, found: &Metadata, user: u32) -> Result<(), PathError> {
    let problem = if ![0, user].contains(&found.uid()) {
        Problem::Owner(found.uid())
    } else if !found.is_symlink()
        && found.mode() & 0o022 != 0
        && !(found.is_dir() && found.mode() & libc::S_ISVTX != 0)
    {
        Problem::Writable(found.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(PathError::Untrusted {
        path: path.into(),
        kind: match found.file_type() {
            kind if kind.is_dir() => "folder",
            kind if kind.is_symlink() => "link",
            _ => "file",
        },
        problem,
    })
}

/// Pushes the components of a path, the first one last.
fn push(rest: &mut Vec<OsString>, path: &Path) {
    let name = |part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    rest.extend(path.components().rev().filter_map(name));
}

fn lookup(path: &Path) -> Result<Metadata, PathError> {
    fs::symlink_metadata(path).map_err(PathError::System)
}

/// Reason why a path is not used.
#[derive(Debug)]
pub(crate) enum PathError {
    /// The path cannot be read.
    System(io::Error),
    /// Another user can change the file, or what a name in the folder refers to.
    Untrusted {
        path: PathBuf,
        kind: &'static str,
        problem: Problem,
    },
}

/// How another user can change a file.
#[derive(Debug)]
pub(crate) enum Problem {
    /// This user owns it.
    Owner(u32),
    /// Its mode lets group or others write.
    Writable(u32),
}

impl fmt::Display for PathError {
    /// The problem and its fix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(e) => e.fmt(f),
            Self::Untrusted {
                path,
                kind,
                problem,
            } => {
                let path = path.display();
                match problem {
                    Problem::Owner(user) => write!(
                        f,
                        "user {user} owns the {kind} {path}: choose another path, or chown root {path}"
                    ),
                    Problem::Writable(mode) => write!(
                        f,
                        "other users can write to the {kind} {path} (mode {mode:04o}): choose another path, or chmod go-w {path}"
                    ),
                }
            }
        }
    }
}

/// Symbolic links in one path, as in the kernel (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;
    use crate::peer_cred::effective_user;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Makes a folder that only this user can write, whatever the umask, and resolves it.
    fn make(path: &Path) -> PathBuf {
        fs::create_dir(path).unwrap();
        chmod(path, 0o755);
        fs::canonicalize(path).unwrap()
    }

    #[test]
    fn links_are_resolved_and_missing_components_stay() {
        let own = effective_user();
        let there = std::env::temp_dir().join(format!("tg-{}-resolve", std::process::id()));
        let there = make(&there);
        make(&there.join("a"));
        symlink("a", there.join("relative")).unwrap();
        symlink(there.join("relative"), there.join("absolute")).unwrap();
        symlink("loop", there.join("loop")).unwrap();
        for (path, found) in [
            ("a", "a"),
            ("absolute/x/y", "a/x/y"),
            ("relative/../a/./z", "a/z"),
            ("none/of/these", "none/of/these"),
        ] {
            assert_eq!(
                resolve(&there.join(path), own).unwrap(),
                there.join(found),
                "{path}"
            );
        }
        let error = resolve(&there.join("loop"), own).unwrap_err();
        assert!(
            matches!(&error, PathError::System(e) if e.raw_os_error() == Some(libc::ELOOP)),
            "{error}"
        );
        fs::remove_dir_all(there).unwrap();
    }

    #[test]
    fn folders_that_others_can_write_are_refused_at_any_level() {
        let own = effective_user();
        let there = std::env::temp_dir().join(format!("tg-{}-levels", std::process::id()));
        let there = make(&there);
        let outer = make(&there.join("a"));
        let inner = make(&outer.join("b"));
        for (folder, mode) in [(&inner, 0o775), (&outer, 0o757), (&there, 0o777)] {
            let before = fs::metadata(folder).unwrap().mode();
            chmod(folder, mode);
            let error = resolve(&inner.join("x"), own).unwrap_err().to_string();
            let words = format!("folder {} (mode {mode:04o})", folder.display());
            assert!(error.contains(&words), "{error}");
            // Others cannot rename entries of this user there.
            chmod(folder, 0o1777);
            resolve(&inner.join("x"), own).unwrap();
            chmod(folder, before);
        }
        fs::remove_dir_all(there).unwrap();
    }

    #[test]
    fn folders_and_links_of_other_users_are_refused() {
        let own = effective_user();
        let there = std::env::temp_dir().join(format!("tg-{}-owners", std::process::id()));
        let there = make(&there);
        make(&there.join("theirs"));
        symlink("/", there.join("link")).unwrap();
        resolve(&there.join("theirs/x"), own).unwrap();
        resolve(&there.join("link/x"), own).unwrap();
        // As another user who does not own these. Root's files are accepted for all.
        if own == 0 {
            chown(there.join("theirs"), Some(65_534), None).unwrap();
            std::os::unix::fs::lchown(there.join("link"), Some(65_534), None).unwrap();
        }
        let other = if own == 0 { 0 } else { own + 1 };
        for (path, kind) in [("theirs/x", "folder"), ("link/x", "link")] {
            let error = resolve(&there.join(path), other).unwrap_err().to_string();
            assert!(
                error.contains("owns the") && error.contains("chown root"),
                "{error}"
            );
            assert!(own != 0 || error.contains(kind), "{error}");
        }
        fs::remove_dir_all(there).unwrap();
    }
}
