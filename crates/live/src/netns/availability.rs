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
    let namespace = UserNamespace::of_this_user();
    namespace.enter().map_err(NetnsError::UserNamespace)
}

/// Makes a child process start in a user namespace in which it is root, as
/// [`enter_user_namespace`] does for a process without threads.
pub fn user_namespaced(command: &mut Command) -> &mut Command {
    let namespace = UserNamespace::of_this_user();
    before_exec(command, move || {
        let entered = namespace.enter();
        entered.map_err(|missing| io::Error::from_raw_os_error(missing.errno))
    })
}

/// `job` makes system calls only and allocates nothing, because it runs between fork and exec.
fn before_exec(
    command: &mut Command,
    job: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> &mut Command {
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
    let namespace = UserNamespace::of_this_user();
    // A child that executes nothing: the standard library passes the number of the hook's error to
    // its parent.
    let report = move || {
        let result = namespace.enter().and_then(|()| try_tun());
        Err(io::Error::from_raw_os_error(to_number(result)))
    };
    let reported = before_exec(&mut Command::new("/"), report).spawn();
    let number = reported.err().and_then(|e| e.raw_os_error());
    from_number(number.unwrap_or(libc::EIO))
}

/// The number of a result: 0, or the step and the error number.
fn to_number(result: Result<(), Missing>) -> i32 {
    result.map_or_else(|m| (1 + m.step as i32) << STEP | m.errno, |()| 0)
}

/// The result with a number. An error number without a step means that the child could not be
/// started.
fn from_number(number: i32) -> Result<(), Missing> {
    let step = match number >> STEP {
        0 if number == 0 => return Ok(()),
        1 => Step::MapIds,
        3 => Step::OpenTun,
        4 => Step::MakeTun,
        _ => Step::MakeNamespace,
    };
    let errno = number & ((1 << STEP) - 1);
    Err(Missing { step, errno })
}

/// Bits of an error number, behind which the step follows.
const STEP: i32 = 16;

/// A user namespace in which this user is root, with a network namespace: the lines of its maps.
struct UserNamespace {
    uid_map: String,
    gid_map: String,
}

impl UserNamespace {
    fn of_this_user() -> Self {
        Self {
            uid_map: format!("0 {} 1", getuid().as_raw()),
            gid_map: format!("0 {} 1", getgid().as_raw()),
        }
    }

    /// Only system calls, because it runs between fork and exec.
    fn enter(&self) -> Result<(), Missing> {
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)
            .map_err(|e| missing(Step::MakeNamespace, &e))?;
        let map = |e: io::Error| missing(Step::MapIds, &e);
        // user_namespaces(7): an unprivileged process must deny setgroups(2) before it maps groups.
        write_file(c"/proc/self/setgroups", "deny").map_err(map)?;
        write_file(c"/proc/self/uid_map", &self.uid_map).map_err(map)?;
        write_file(c"/proc/self/gid_map", &self.gid_map).map_err(map)
    }
}

fn write_file(path: &CStr, text: &str) -> io::Result<()> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    let written = rustix::io::write(file, text.as_bytes())?;
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
    fn results_of_a_child_keep_their_step_and_error_number() {
        let steps = [
            Step::MapIds,
            Step::MakeNamespace,
            Step::OpenTun,
            Step::MakeTun,
        ];
        let failed = |step| Err(Missing { step, errno: 133 });
        for result in steps.map(failed).into_iter().chain([Ok(())]) {
            assert_eq!(from_number(to_number(result)), result);
        }
        let failed = from_number(libc::EAGAIN).unwrap_err();
        assert_eq!(
            (failed.step, failed.errno),
            (Step::MakeNamespace, libc::EAGAIN)
        );
    }

    #[test]
    fn the_number_of_a_hook_reaches_the_parent() {
        for number in [
            0,
            to_number(Err(Missing {
                step: Step::MakeTun,
                errno: libc::EPERM,
            })),
        ] {
            let report = move || Err(io::Error::from_raw_os_error(number));
            let error = before_exec(&mut Command::new("/"), report)
                .spawn()
                .unwrap_err();
            assert_eq!(error.raw_os_error(), Some(number));
        }
    }
}
