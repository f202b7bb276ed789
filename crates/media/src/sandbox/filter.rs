//! Limits of a decoder process: memory, files and system calls.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use crate::picture::Size;

/// Descriptor of the socket, for requests and replies.
pub(super) const SOCKET: i32 = 0;
/// Descriptor of the file for pictures.
pub(super) const PICTURES: i32 = 1;

/// Bytes of the file for pictures.
pub(super) fn picture_bytes(max: Size) -> u64 {
    max.coded_samples() / 2 * 3
}

/// Bounds the memory of this process to what it has now and what pictures of up to `max` need, and
/// closes all descriptors but the first three.
pub(super) fn limit_resources(max: Size) -> io::Result<()> {
    let more = max.coded_samples() * BYTES_PER_SAMPLE + FIXED_BYTES;
    // Pages: all, resident, shared, text, unused, data and stack (proc_pid_statm(5)).
    let sizes = std::fs::read_to_string("/proc/self/statm")?;
    let mut sizes = sizes.split(' ').map(|pages| pages.parse().unwrap_or(0));
    let page = rustix::param::page_size() as u64;
    let mut now = |n| sizes.nth(n).map_or(0, |pages: u64| pages * page);
    let (all, data) = (now(0), now(4));
    limit(Resource::As, all + more)?;
    limit(Resource::Data, data + more)?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Core, 0)?;
    // Older kernels lack the call. The filter restricts descriptors as well.
    // SAFETY: the arguments are integers. This process uses only the first three descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    // The process must not outlive its user while it decodes; otherwise the socket ends it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    Ok(setrlimit(resource, limit)?)
}

/// Lets any system call but those of a decoder end this process. Returns whether the kernel and the
/// machine support it.
pub(super) fn restrict_system_calls() -> bool {
    program().is_ok_and(|program| seccompiler::apply_filter(&program).is_ok())
}

/// The filter for this machine.
fn program() -> Result<BpfProgram, BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let (otherwise, listed) = (SeccompAction::KillProcess, SeccompAction::Allow);
    SeccompFilter::new(allowed()?, otherwise, listed, architecture)?.try_into()
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// System calls of a decoder. An empty list of rules allows any arguments.
fn allowed() -> Result<Rules, BackendError> {
    let equal = |argument, value: i32| {
        SeccompCondition::new(
            argument,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            value as u64,
        )
    };
    let masked = |argument, mask: i32, value: i32| {
        SeccompCondition::new(
            argument,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(mask as u64),
            value as u64,
        )
    };
    let only = |conditions| Ok(vec![SeccompRule::new(conditions)?]);
    let no_code = masked(2, libc::PROT_EXEC, 0)?;
    let mut rules = Rules::from([
        (libc::SYS_read, only(vec![equal(0, SOCKET)?])?),
        (libc::SYS_write, only(vec![equal(0, SOCKET)?])?),
        (
            libc::SYS_mmap,
            only(vec![
                no_code.clone(),
                masked(3, libc::MAP_ANONYMOUS, libc::MAP_ANONYMOUS)?,
            ])?,
        ),
        (libc::SYS_mprotect, only(vec![no_code])?),
    ]);
    let unrestricted = [
        libc::SYS_brk,
        libc::SYS_clock_gettime,
        libc::SYS_exit_group,
        libc::SYS_futex,
        libc::SYS_getrandom,
        libc::SYS_madvise,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
    ];
    rules.extend(unrestricted.map(|call| (call, Vec::new())));
    Ok(rules)
}

/// Bytes per luma sample of the largest picture: 20 pictures, 16 of them references (H.264), of 1.5
/// bytes a sample and 0.6 of motion vectors and block types.
const BYTES_PER_SAMPLE: u64 = 42;
/// Tables of the decoder, the largest access unit, and fragmentation.
const FIXED_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Signal that ends a process which makes this system call after the filter, if any.
    fn signal(call: c_long, arguments: [i32; 4]) -> Option<i32> {
        let [a, b, c, d] = arguments.map(c_long::from);
        let program = program().unwrap();
        // SAFETY: the new process only makes system calls: `apply_filter` allocates nothing unless
        // it fails.
        let id = unsafe { libc::fork() };
        if id == 0 {
            let code = i32::from(seccompiler::apply_filter(&program).is_err());
            // SAFETY: the arguments are integers, and no memory is used that a call maps.
            unsafe {
                libc::syscall(call, a, b, c, d, -1 as c_long, 0 as c_long);
                libc::_exit(code)
            }
        }
        let mut status = 0;
        // SAFETY: the pointer is valid during the call, and the id is that of a child.
        assert_eq!(unsafe { libc::waitpid(id, &raw mut status, 0) }, id);
        assert!(libc::WIFSIGNALED(status) || libc::WEXITSTATUS(status) == 0);
        libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
    }

    #[test]
    fn system_calls_of_a_decoder_are_allowed() {
        let anonymous = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
        for (call, arguments) in [
            (libc::SYS_brk, [0; 4]),
            (libc::SYS_write, [SOCKET, 0, 0, 0]),
            (libc::SYS_mmap, [0, 4_096, libc::PROT_WRITE, anonymous]),
        ] {
            assert_eq!(signal(call, arguments), None, "{call}");
        }
    }

    #[test]
    fn other_system_calls_end_the_process() {
        let anonymous = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
        for (call, arguments) in [
            (libc::SYS_socket, [libc::AF_INET, libc::SOCK_STREAM, 0, 0]),
            (libc::SYS_openat, [libc::AT_FDCWD, 0, libc::O_RDONLY, 0]),
            (libc::SYS_execve, [0; 4]),
            (libc::SYS_clone, [libc::SIGCHLD, 0, 0, 0]),
            (libc::SYS_close, [0; 4]),
            (libc::SYS_kill, [1, 0, 0, 0]),
            (libc::SYS_ptrace, [libc::PTRACE_TRACEME as i32, 0, 0, 0]),
            (libc::SYS_getpid, [0; 4]),
            (libc::SYS_write, [2, 0, 0, 0]),
            (libc::SYS_read, [PICTURES, 0, 0, 0]),
            (libc::SYS_pwrite64, [PICTURES, 0, 0, 0]),
            (libc::SYS_mmap, [0, 4_096, libc::PROT_EXEC, anonymous]),
            (
                libc::SYS_mmap,
                [0, 4_096, libc::PROT_READ, libc::MAP_PRIVATE],
            ),
            (libc::SYS_mprotect, [0, 4_096, libc::PROT_EXEC, 0]),
        ] {
            assert_eq!(signal(call, arguments), Some(libc::SIGSYS), "{call}");
        }
    }
}
