//! Capabilities of this thread (capabilities(7)). The daemon keeps `CAP_BPF` permitted, to create
//! maps, and makes it effective only while it needs it.

use std::io;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// Drops all capabilities of this thread but `CAP_BPF`, which stays permitted and is not effective,
/// and becomes another user if one is given. This cannot be undone. Threads that start later
/// inherit both.
pub(crate) fn keep_bpf_only(user: Option<(u32, u32)>) -> io::Result<()> {
    empty_bounding_set()?;
    if let Some((user, group)) = user {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        // setresuid clears the permitted set otherwise.
        thread::set_keep_capabilities(true)?;
        thread::set_thread_groups(&[])?;
        thread::set_thread_res_gid(group, group, group)?;
        thread::set_thread_res_uid(user, user, user)?;
    }
    // Programs that this process executes get no more privileges than it has.
    thread::set_no_new_privs(true)?;
    set(CapabilitySet::BPF, CapabilitySet::empty())
}

/// Runs `job` with `CAP_BPF` effective, if it is permitted.
pub(crate) fn with_bpf<T>(job: impl FnOnce() -> T) -> T {
    let Ok(CapabilitySets {
        permitted,
        effective,
        ..
    }) = thread::capabilities(None)
    else {
        return job();
    };
    // Without the capability the kernel refuses the job, which has the error.
    let _ = set(permitted, effective | CapabilitySet::BPF & permitted);
    let result = job();
    let _ = set(permitted, effective);
    result
}

/// Empties the bounding set, the limit for programs that this process executes. It needs
/// `CAP_SETPCAP`, so it comes first.
fn empty_bounding_set() -> io::Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel has no capability of this number (EINVAL), or the process has no
            // CAP_SETPCAP (EPERM). The set does not matter then: `PR_SET_NO_NEW_PRIVS` follows.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn set(permitted: CapabilitySet, effective: CapabilitySet) -> io::Result<()> {
    let inheritable = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective,
        permitted,
        inheritable,
    };
    Ok(thread::set_capabilities(None, sets)?)
}
