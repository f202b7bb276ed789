//! `tidegate gateway` ends by SIGINT and SIGTERM, in user space and in the kernel.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;
mod skip;

use std::process::Command;

use program::Program;

/// Starts a gateway between two interfaces of a network namespace, and ends it by each signal.
fn ends(options: &str, unshare: &[&str]) {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let script = format!(
            "set -e
            ip link add site type veth peer name endpoint
            ip link add path type veth peer name other
            for interface in site endpoint path other; do ip link set $interface up; done
            exec {} gateway --site site {options} --hosts 10.9.0.2/32 --port 5008",
            env!("CARGO_BIN_EXE_tidegate"),
        );
        let mut command = Command::new("unshare");
        command.args(unshare).args(["--net", "sh", "-c", &script]);
        let mut gateway = Program::start(&mut command);
        gateway.wait_for_line("(site)");
        gateway.catches_sigint();
        gateway.signal(signal);
        gateway.wait().succeeded();
    }
}

#[test]
fn a_gateway_in_user_space_ends_by_a_signal() {
    if !skip::is_without_lab("a_gateway_in_user_space_ends_by_a_signal") {
        ends("--path path", &["--map-root-user"]);
    }
}

/// Programs for the kernel need root of the host.
#[test]
fn a_gateway_in_the_kernel_ends_by_a_signal() {
    // SAFETY: takes nothing, returns a number, cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if is_root && !skip::is_without_lab("a_gateway_in_the_kernel_ends_by_a_signal") {
        ends("--kernel", &[]);
    }
}
