//! The system calls that the daemon may make once it serves (seccomp(2)).
//!
//! The list is measured: the calls of the daemon with all its tests, on x86-64 with glibc and by
//! their names on the other machines. An unlisted call fails with `EPERM` and the daemon goes on, so
//! that a C library that calls something new costs one operation and not the service for all
//! clients. Calls that only an intruder makes end the process ([`FATAL`]).

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Operator,
    SeccompCondition as Condition, SeccompFilter, SeccompRule, TargetArch,
    apply_filter_all_threads,
};

use crate::system;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Restricts the system calls of all threads of this process. It cannot be undone. Needs
/// `PR_SET_NO_NEW_PRIVS`.
pub(super) fn restrict() -> io::Result<()> {
    // A name that does not exist loads all modules of the C library that look users up
    // (nsswitch.conf(5)): a new policy may have names, and executable memory cannot be mapped any
    // more.
    let absent = c"tidegate-no-such-name";
    let _ = (system::user_and_group(absent), system::group_number(absent));
    let fatal = FATAL.map(|call| (call, Vec::new()));
    let fatal = fatal.into_iter().collect();
    install(fatal, SeccompAction::Allow, SeccompAction::KillProcess)?;
    // The flags of clone3 are in memory, which no filter reads. The C library uses clone then.
    let unknown = [(libc::SYS_clone3, Vec::new())].into_iter().collect();
    let no_such_call = SeccompAction::Errno(libc::ENOSYS as u32);
    install(unknown, SeccompAction::Allow, no_such_call)?;
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    install(allowed()?, refused, SeccompAction::Allow)
}

fn install(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> io::Result<()> {
    let machine = TargetArch::try_from(ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, matched, machine);
    let filter: BpfProgram = filter
        .and_then(TryInto::try_into)
        .map_err(io::Error::other)?;
    apply_filter_all_threads(&filter).map_err(|e| match e {
        seccompiler::Error::Prctl(e) | seccompiler::Error::Seccomp(e) => e,
        other => io::Error::other(other),
    })
}

/// The allowed calls, some with conditions on their arguments.
fn allowed() -> io::Result<Rules> {
    let mut rules: Rules = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    let clear = |argument, bits: i32| (argument, Operator::MaskedEq(bits as u64), 0);
    let set = |argument, bits: i32| (argument, Operator::MaskedEq(bits as u64), bits as u64);
    let is = |argument, value: i32| (argument, Operator::Eq, value as u64);
    let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
    for (call, condition) in [
        // Threads, and no processes.
        (libc::SYS_clone, set(0, libc::CLONE_THREAD)),
        // To read only.
        (libc::SYS_openat, clear(2, writing)),
        (libc::SYS_mmap, clear(2, libc::PROT_EXEC)),
        (libc::SYS_mprotect, clear(2, libc::PROT_EXEC)),
        // Daemons that look users up listen at local sockets.
        (libc::SYS_socket, is(0, libc::AF_UNIX)),
    ]
    .into_iter()
    .chain(BPF_COMMANDS.map(|command| (libc::SYS_bpf, is(0, command))))
    {
        let (argument, operator, value) = condition;
        let condition = Condition::new(argument, Length::Dword, operator, value);
        let rule = condition.and_then(|condition| SeccompRule::new(vec![condition]));
        let rule = rule.map_err(io::Error::other)?;
        rules.entry(call).or_default().push(rule);
    }
    Ok(rules)
}

/// Commands of bpf(2), from `linux/bpf.h`: rings are made, elements of maps are read, written and
/// removed, and programs are attached. Loading programs is not among them.
const BPF_COMMANDS: [i32; 5] = [0, 1, 2, 3, 17];

/// Calls that end the process: they run other programs, or read and control other processes.
const FATAL: [i64; 7] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
];

/// Allowed with any arguments.
const ALLOWED: &[i64] = &[
    // Clients.
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_ppoll,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    // Descriptors and files; the log.
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_pread64,
    libc::SYS_prlimit64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendto,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
    // The socket and its folders at the end.
    libc::SYS_unlinkat,
    // Threads, memory and signals.
    libc::SYS_brk,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    // Names of threads, and `CAP_BPF` while it is needed.
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_geteuid,
    libc::SYS_prctl,
    // Where the kernel does not map its clock.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    // Older calls, which x86-64 alone has.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Command, Stdio};
    use std::{env, fs, net, thread};

    use super::*;

    /// Set in the child process of a test.
    const CHILD: &str = "TIDEGATE_TEST_SECCOMP";

    /// In a separate process, since filters cannot be removed.
    fn in_a_child(test: &str, then: fn()) -> Option<std::process::ExitStatus> {
        if env::var_os(CHILD).is_some() {
            // SAFETY: takes numbers and touches no memory.
            let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            assert_eq!(set, 0);
            restrict().unwrap();
            then();
            return None;
        }
        let name = format!("server::seccomp::tests::{test}");
        let mut child = Command::new(env::current_exe().unwrap());
        let child = child
            .args(["--exact", &name, "--nocapture"])
            .env(CHILD, "1");
        let status = child.stdout(Stdio::null()).stderr(Stdio::null()).status();
        Some(status.unwrap())
    }

    #[test]
    fn other_calls_fail_and_threads_and_reading_go_on() {
        let ended = in_a_child("other_calls_fail_and_threads_and_reading_go_on", || {
            let refused = |error: io::Error| assert_eq!(error.raw_os_error(), Some(libc::EPERM));
            refused(net::UdpSocket::bind("127.0.0.1:0").unwrap_err());
            refused(fs::write("/dev/null", "x").unwrap_err());
            // SAFETY: takes numbers and touches no memory.
            refused(system::check(unsafe { libc::fork() }).unwrap_err());
            // BPF_PROG_LOAD.
            let (command, none) = (5, std::ptr::null::<u8>());
            // SAFETY: the kernel reads no attributes of size zero.
            let loaded = unsafe { libc::syscall(libc::SYS_bpf, command, none, 0) };
            refused(system::check(loaded as i32).unwrap_err());
            assert!(!fs::read("/proc/self/status").unwrap().is_empty());
            thread::spawn(|| fs::metadata("/").unwrap()).join().unwrap();
            assert!(system::user_and_group(c"root").is_some());
        });
        assert!(ended.is_none_or(|status| status.success()), "{ended:?}");
    }

    #[test]
    fn executing_a_program_ends_the_process() {
        let ended = in_a_child("executing_a_program_ends_the_process", || {
            let error = Command::new("/bin/true").exec();
            panic!("the process goes on: {error}");
        });
        let signal = ended.map(|status| status.signal());
        assert!(
            signal.is_none_or(|signal| signal == Some(libc::SIGSYS)),
            "{ended:?}"
        );
    }
}
