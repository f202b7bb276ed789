//! Whether this process may have namespaces with TUN devices, and the way in for those without
//! root.

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{fmt, io};

use super::{NetnsError, check, in_a_thread};
use crate::tun;

/// Whether this process can have namespaces with TUN devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Yes, as it is: it is root, or has entered a user namespace already.
    Root,
    /// In a user namespace: call [`enter_user_namespace`] before there are threads, or start a
    /// child with [`user_namespaced`].
    UserNamespace,
    /// No.
    Missing(Missing),
}

/// What is in the way of namespaces with TUN devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What did not work.
    pub step: Step,
    /// What the kernel said, as an error number.
    pub errno: i32,
}

/// The steps to a TUN device in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To have the user namespace's only user be root in it.
    MapIds,
    /// To make a user namespace with a network namespace.
    MakeNamespace,
    /// To open `/dev/net/tun`.
    OpenTun,
    /// To make a TUN device.
    MakeTun,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = io::Error::from_raw_os_error(self.errno);
        let (what, mend) = match (self.step, self.errno) {
            (Step::OpenTun, libc::ENOENT | libc::ENODEV | libc::ENXIO) => (
                "there is no /dev/net/tun",
                "load the module (modprobe tun) or pass the device to the container (--device /dev/net/tun)",
            ),
            (Step::OpenTun, _) => (
                "/dev/net/tun cannot be opened",
                "run as root, or let this user read and write it",
            ),
            (Step::MakeTun, _) => (
                "the kernel makes no TUN device here",
                "run as root; on Ubuntu, AppArmor takes the rights from user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)",
            ),
            (Step::MakeNamespace, libc::ENOSPC) => (
                "no user namespace is left",
                "raise the sysctl user.max_user_namespaces",
            ),
            (Step::MakeNamespace, libc::EINVAL | libc::ENOSYS) => (
                "this kernel has no user or network namespaces",
                "use one with CONFIG_USER_NS and CONFIG_NET_NS",
            ),
            (Step::MakeNamespace, _) => (
                "no network namespace, neither as this user nor in a user namespace",
                "run as root, allow user namespaces (sysctl kernel.unprivileged_userns_clone=1), or give the container CAP_SYS_ADMIN and CAP_NET_ADMIN",
            ),
            (Step::MapIds, _) => (
                "the user namespace does not take this user as its root",
                "run as root; a security module (AppArmor, SELinux) may forbid it",
            ),
        };
        write!(f, "{what} ({cause}): {mend}")
    }
}

/// Finds out by trying: makes a namespace and a TUN device in a throwaway thread and, where
/// that is not allowed, in a throwaway child with a user namespace of its own.
pub fn availability() -> Availability {
    let as_we_are = in_a_thread(|| {
        // SAFETY: takes a number and touches no memory.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map_err(NetnsError::Create)?;
        Ok(try_tun())
    });
    match as_we_are {
        Ok(Ok(())) => Availability::Root,
        Ok(Err(missing)) => Availability::Missing(missing),
        Err(_) => match try_in_child() {
            Ok(()) => Availability::UserNamespace,
            Err(missing) => Availability::Missing(missing),
        },
    }
}

/// Moves the process into a user namespace in which it is root, with a network namespace.
/// Files that it creates still belong to its user.
///
/// # Errors
///
/// The process has threads already, or the system does not allow it.
pub fn enter_user_namespace() -> Result<(), NetnsError> {
    move_to_user_namespace().map_err(NetnsError::UserNamespace)
}

/// Has a child start in a user namespace in which it is root, as
/// [`enter_user_namespace`] does for a process without threads.
pub fn user_namespaced(command: &mut Command) -> &mut Command {
    let enter =
        || move_to_user_namespace().map_err(|missing| io::Error::from_raw_os_error(missing.errno));
    // SAFETY: between fork and exec only system calls run, on buffers of the stack.
    unsafe { command.pre_exec(enter) }
}

/// Whether a TUN device can be made in the namespace of this thread. Only system calls.
fn try_tun() -> Result<(), Missing> {
    let fd = tun::open_device().map_err(|e| missing(Step::OpenTun, &e))?;
    let made = tun::attach(&fd, "tgprobe").map_err(|e| missing(Step::MakeTun, &e));
    drop(fd);
    made
}

fn try_in_child() -> Result<(), Missing> {
    // The child answers with its exit status: 0, or the step and then the error number, which
    // is below 128 for all that can happen here; so two children at most are asked.
    let ask = |number: fn(Missing) -> i32| {
        // SAFETY: the child makes system calls on buffers of the stack and exits, which is safe
        // even if another thread held a lock at the fork.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let result = move_to_user_namespace().and_then(|()| try_tun());
                // SAFETY: leaves without running anything of the parent's.
                unsafe { libc::_exit(result.map_or_else(number, |()| 0)) }
            }
            child => {
                let mut status = 0;
                // SAFETY: `status` is a valid place for the answer.
                check(unsafe { libc::waitpid(child, &raw mut status, 0) })?;
                Ok(if libc::WIFEXITED(status) {
                    libc::WEXITSTATUS(status)
                } else {
                    libc::EIO
                })
            }
        }
    };
    let failed = |e: io::Error| missing(Step::MakeNamespace, &e);
    let step = match ask(|m| 1 + m.step as i32).map_err(failed)? {
        0 => return Ok(()),
        1 => Step::MapIds,
        3 => Step::OpenTun,
        4 => Step::MakeTun,
        _ => Step::MakeNamespace,
    };
    let errno = ask(|m| m.errno).map_err(failed)?;
    Err(Missing { step, errno })
}

/// Only system calls on buffers of the stack, because it runs between fork and exec.
fn move_to_user_namespace() -> Result<(), Missing> {
    // SAFETY: these take nothing or numbers and touch no memory.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    // SAFETY: as above.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) })
        .map_err(|e| missing(Step::MakeNamespace, &e))?;
    let map = |e: io::Error| missing(Step::MapIds, &e);
    // user_namespaces(7): without privilege the groups have to be given up first.
    write_file(c"/proc/self/setgroups", b"deny").map_err(map)?;
    write_file(c"/proc/self/uid_map", IdMap::new(uid).text()).map_err(map)?;
    write_file(c"/proc/self/gid_map", IdMap::new(gid).text()).map_err(map)
}

/// The line `0 <id> 1`, without an allocation.
struct IdMap {
    text: [u8; 16],
    len: usize,
}

impl IdMap {
    fn new(id: u32) -> Self {
        let mut map = Self {
            text: [0; 16],
            len: 0,
        };
        map.put(b"0 ");
        let mut power = 1_000_000_000;
        while power > 1 && id < power {
            power /= 10;
        }
        while power > 0 {
            map.put(&[b'0' + (id / power % 10) as u8]);
            power /= 10;
        }
        map.put(b" 1");
        map
    }

    fn put(&mut self, bytes: &[u8]) {
        self.text[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn text(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

fn write_file(path: &CStr, text: &[u8]) -> io::Result<()> {
    // SAFETY: `path` ends in zero.
    let fd: RawFd = check(unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) })?;
    // SAFETY: the kernel has just made it and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: reads `text.len()` bytes from `text`.
    let written = unsafe { libc::write(fd.as_raw_fd(), text.as_ptr().cast(), text.len()) };
    if written == text.len() as isize {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn missing(step: Step, e: &io::Error) -> Missing {
    Missing {
        step,
        errno: e.raw_os_error().unwrap_or(libc::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_written_as_the_kernel_reads_them() {
        for id in [0, 7, 1_000, 65_534, u32::MAX] {
            assert_eq!(IdMap::new(id).text(), format!("0 {id} 1").as_bytes());
        }
    }
}
