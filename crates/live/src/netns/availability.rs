//! Availability of network namespaces with TUN devices, with or without root.

use std::ffi::CStr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{fmt, io};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{getgid, getuid};
use rustix::thread::UnshareFlags;

use super::{NetnsError, in_a_thread, unshare};
use crate::tun;

/// Availability of namespaces with TUN devices to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Available: the process is root, or is in a user namespace already.
    Root,
    /// Available in a user namespace: call [`enter_user_namespace`] before any thread is started,
    /// or start a child with [`user_namespaced`].
    UserNamespace,
    /// Not available.
    Missing(Missing),
}

/// Missing prerequisite of namespaces with TUN devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Step that failed.
    pub step: Step,
    /// Error number of the kernel.
    pub errno: i32,
}

/// Steps to a TUN device in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Map the user to root in the user namespace.
    MapIds,
    /// Create a user namespace with a network namespace.
    MakeNamespace,
    /// Open `/dev/net/tun`.
    OpenTun,
    /// Create a TUN device.
    MakeTun,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = io::Error::from_raw_os_error(self.errno);
        let (what, hint) = match (self.step, self.errno) {
            (Step::OpenTun, libc::ENOENT | libc::ENODEV | libc::ENXIO) => (
                "there is no /dev/net/tun",
                "load the module (modprobe tun) or pass the device to the container (--device /dev/net/tun)",
            ),
            (Step::OpenTun, _) => (
                "cannot open /dev/net/tun",
                "run as root, or give this user read and write permission",
            ),
            (Step::MakeTun, _) => (
                "the kernel does not create a TUN device",
                "run as root; on Ubuntu, AppArmor takes the rights from user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)",
            ),
            (Step::MakeNamespace, libc::ENOSPC) => (
                "the limit of user namespaces is reached",
                "raise the sysctl user.max_user_namespaces",
            ),
            (Step::MakeNamespace, libc::EINVAL | libc::ENOSYS) => (
                "this kernel has no user or network namespaces",
                "use one with CONFIG_USER_NS and CONFIG_NET_NS",
            ),
            (Step::MakeNamespace, _) => (
                "cannot create a network namespace, neither as this user nor in a user namespace",
                "run as root, allow user namespaces (sysctl kernel.unprivileged_userns_clone=1), or give the container CAP_SYS_ADMIN and CAP_NET_ADMIN",
            ),
            (Step::MapIds, _) => (
                "cannot map this user to root in the user namespace",
                "run as root; a security module (AppArmor, SELinux) may forbid it",
            ),
        };
        write!(f, "{what} ({cause}): {hint}")
    }
}

/// Tests the availability: creates a namespace and a TUN device in a temporary thread, or, if that
/// is not permitted, in a temporary child process with its own user namespace.
pub fn availability() -> Availability {
    let as_we_are = in_a_thread(|| {
        unshare(UnshareFlags::NEWNET).map_err(NetnsError::Create)?;
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
/// New files still belong to the original user.
///
/// # Errors
///
/// The process has several threads, or lacks the permission.
pub fn enter_user_namespace() -> Result<(), NetnsError> {
    move_to_user_namespace().map_err(NetnsError::UserNamespace)
}

/// Makes a child process start in a user namespace in which it is root, as
/// [`enter_user_namespace`] does for a process without threads.
pub fn user_namespaced(command: &mut Command) -> &mut Command {
    before_exec(command, || {
        move_to_user_namespace().map_err(|missing| io::Error::from_raw_os_error(missing.errno))
    })
}

/// `job` makes system calls on buffers of the stack only, because it runs between fork and exec.
fn before_exec(command: &mut Command, job: fn() -> io::Result<()>) -> &mut Command {
    // SAFETY: as above.
    unsafe { command.pre_exec(job) }
}

/// Tests whether a TUN device can be created in the namespace of this thread. Restricted to system
/// calls.
fn try_tun() -> Result<(), Missing> {
    let fd = tun::open_device().map_err(|e| missing(Step::OpenTun, &e))?;
    let made = tun::attach(&fd, "tgprobe").map_err(|e| missing(Step::MakeTun, &e));
    drop(fd);
    made
}

fn try_in_child() -> Result<(), Missing> {
    // A child that executes nothing: the standard library passes the number of the hook's error to
    // its parent. It has the step and the error number, or none of both.
    let report = || {
        let result = move_to_user_namespace().and_then(|()| try_tun());
        let number = result.map_or_else(|m| (1 + m.step as i32) << STEP | m.errno, |()| 0);
        Err(io::Error::from_raw_os_error(number))
    };
    let reported = before_exec(&mut Command::new("/"), report).spawn();
    let number = reported.err().and_then(|e| e.raw_os_error());
    let number = number.unwrap_or(libc::EIO);
    let step = match number >> STEP {
        0 if number == 0 => return Ok(()),
        1 => Step::MapIds,
        3 => Step::OpenTun,
        4 => Step::MakeTun,
        // Without a step the child could not be started.
        _ => Step::MakeNamespace,
    };
    let errno = number & ((1 << STEP) - 1);
    Err(Missing { step, errno })
}

/// Bits of an error number, behind which the step follows.
const STEP: i32 = 16;

/// Only system calls on buffers of the stack, because it runs between fork and exec.
fn move_to_user_namespace() -> Result<(), Missing> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)
        .map_err(|e| missing(Step::MakeNamespace, &e))?;
    let map = |e: io::Error| missing(Step::MapIds, &e);
    // user_namespaces(7): an unprivileged process must deny setgroups(2) before it maps groups.
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
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    let written = rustix::io::write(file, text)?;
    if written < text.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(())
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
    fn id_maps_have_the_format_of_the_kernel() {
        for id in [0, 7, 1_000, 65_534, u32::MAX] {
            assert_eq!(IdMap::new(id).text(), format!("0 {id} 1").as_bytes());
        }
    }
}
