//! Capabilities of this thread (capabilities(7)). The daemon keeps `CAP_BPF` permitted, to create
//! maps, and makes it effective only while it needs it.

use std::io;
use std::ptr;

use crate::system::check;

/// Drops all capabilities but `CAP_BPF`, which stays permitted and is not effective, and becomes
/// another user if one is given. This cannot be undone.
pub(crate) fn keep_bpf_only(user: Option<(u32, u32)>) -> io::Result<()> {
    empty_bounding_set()?;
    if let Some((user, group)) = user {
        // SAFETY: these take numbers and touch no memory.
        unsafe {
            // setresuid clears the permitted set otherwise.
            check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
            check(libc::setgroups(0, ptr::null()))?;
            check(libc::setresgid(group, group, group))?;
            check(libc::setresuid(user, user, user))?;
        }
    }
    set_no_new_privileges()?;
    set(CAP_BPF, 0)
}

/// Drops all capabilities. This cannot be undone. Does not allocate, so a forked child may call it.
pub(crate) fn give_up_all() -> io::Result<()> {
    empty_bounding_set()?;
    set_no_new_privileges()?;
    set(0, 0)
}

/// Runs `job` with `CAP_BPF` effective, if it is permitted.
pub(crate) fn with_bpf<T>(job: impl FnOnce() -> T) -> T {
    let Ok((permitted, effective)) = get() else {
        return job();
    };
    // Without the capability the kernel refuses the job, which has the error.
    let _ = set(permitted, effective | CAP_BPF & permitted);
    let result = job();
    let _ = set(permitted, effective);
    result
}

/// Programs that this process executes get no more privileges than it has.
fn set_no_new_privileges() -> io::Result<()> {
    // SAFETY: takes numbers and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Empties the bounding set, the limit for programs that this process executes. It needs
/// `CAP_SETPCAP`, so it comes first.
fn empty_bounding_set() -> io::Result<()> {
    for number in 0..=u64::BITS {
        // SAFETY: takes numbers and touches no memory.
        let dropped = check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) });
        match dropped {
            Ok(_) => {}
            // The kernel has no capability of this number (EINVAL), or the process has no
            // CAP_SETPCAP (EPERM). The set does not matter then: `PR_SET_NO_NEW_PRIVS` follows.
            Err(e) if [Some(libc::EINVAL), Some(libc::EPERM)].contains(&e.raw_os_error()) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The permitted and the effective set.
fn get() -> io::Result<(u64, u64)> {
    let mut sets = [Set::default(); 2];
    // SAFETY: version 3 of the interface has a header and two sets.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw const HEADER, sets.as_mut_ptr()) };
    check(result as i32)?;
    let join = |pick: fn(&Set) -> u32| u64::from(pick(&sets[1])) << 32 | u64::from(pick(&sets[0]));
    Ok((join(|s| s.permitted), join(|s| s.effective)))
}

fn set(permitted: u64, effective: u64) -> io::Result<()> {
    let half = |shift: u32| Set {
        effective: (effective >> shift) as u32,
        permitted: (permitted >> shift) as u32,
        inheritable: 0,
    };
    let sets = [half(0), half(32)];
    // SAFETY: as above.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const HEADER, sets.as_ptr()) };
    check(result as i32).map(drop)
}

/// Version 3 of the interface (`_LINUX_CAPABILITY_VERSION_3`), and this thread.
static HEADER: [u32; 2] = [0x2008_0522, 0];
const CAP_BPF: u64 = 1 << 39;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Set {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}
