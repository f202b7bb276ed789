//! Capabilities of this thread (capabilities(7)): no more than needed, and those only while needed.

use std::io;

use crate::system::check;

/// What the daemon may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Capability {
    /// To make maps.
    Bpf = 39,
}

/// Gives up everything but one capability, which stays at hand but asleep, and becomes another user
/// if one is given. There is no way back.
pub(crate) fn keep_only(kept: Capability, user: Option<(u32, u32)>) -> io::Result<()> {
    empty_bounds()?;
    if let Some((user, group)) = user {
        // SAFETY: these take numbers and touch no memory.
        unsafe {
            // A change of the user would take the capabilities with it.
            check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setresgid(group, group, group))?;
            check(libc::setresuid(user, user, user))?;
        }
    }
    get_no_more()?;
    set(1 << kept as u32, 0)
}

/// Gives up everything. There is no way back. Allocates nothing, for a process that was forked.
pub(crate) fn give_up_all() -> io::Result<()> {
    empty_bounds()?;
    get_no_more()?;
    set(0, 0)
}

/// No program that this process might start gets more than it has.
fn get_no_more() -> io::Result<()> {
    // SAFETY: takes numbers and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Empties the bounding set, above which no program that is started here could get. First of all,
/// since it takes a capability of its own.
fn empty_bounds() -> io::Result<()> {
    for number in 0..=u64::BITS {
        // SAFETY: takes numbers and touches no memory.
        let dropped = check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) });
        match dropped {
            Ok(_) => {}
            // The kernel has no more of them (EINVAL), or who was started with few capabilities may
            // not. Nothing is gained by it: programs get no more than this process has
            // (`PR_SET_NO_NEW_PRIVS`).
            Err(e) if [Some(libc::EINVAL), Some(libc::EPERM)].contains(&e.raw_os_error()) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Runs `job` with the capability awake, if it is at hand.
pub(crate) fn with<T>(capability: Capability, job: impl FnOnce() -> T) -> T {
    let Ok((permitted, effective)) = get() else {
        return job();
    };
    let awake = effective | 1 << capability as u32 & permitted;
    // Where it cannot be had the kernel refuses the job itself, and says so.
    let _ = set(permitted, awake);
    let result = job();
    let _ = set(permitted, effective);
    result
}

/// Permitted and effective ones, a bit each.
pub(crate) fn get() -> io::Result<(u64, u64)> {
    let mut sets = [Set::default(); 2];
    let header = Header::default();
    // SAFETY: version 3 of the interface has a header and two sets.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) };
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
    let (header, sets) = (Header::default(), [half(0), half(32)]);
    // SAFETY: as above.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    check(result as i32).map(drop)
}

#[repr(C)]
struct Header {
    version: u32,
    process: i32,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            version: 0x2008_0522,
            process: 0,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Set {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}
