//! Cuts the path to a player during a stream, by a route to a blackhole device or by a command of
//! the user.
//!
//! Removing the route to the player would not work: Linux reports the local error to TCP, which
//! counts the segment as not sent, and no time-out follows. Instead the route leads to a device
//! that drops all packets. The kernel removes the route with the device.
//!
//! A guard, which is a separate shell, cuts and restores the path. If this process ends, also by
//! SIGKILL, the guard reads the end of its input and restores the path.

use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::papers::OutageSchedule;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use tidegate_core::units::Time;

use super::list::Host;
use super::remote_process::here;
use tidegate_console::context::LiveContext;
use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::say;

/// Method of cutting the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InjectorKind {
    /// A route on this host to a device that drops all packets to the player.
    Route,
    /// A program and its arguments, split at spaces, followed by "cut" or "mend" and the player's
    /// address.
    Command(String),
}

impl FromStr for InjectorKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Err(
                "empty injector: use route, or a command that takes \"cut ADDRESS\" and \"mend ADDRESS\""
                    .to_owned(),
            ),
            "route" => Ok(Self::Route),
            command => Ok(Self::Command(command.to_owned())),
        }
    }
}

/// An outage of the path, on the clock of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) from: Time,
    pub(super) to: Time,
}

/// Address of the video for a host. A name may have several addresses; only the first one is used
/// and cut.
///
/// # Errors
/// The name has no address.
pub(super) fn address(host: &Host) -> Result<IpAddr> {
    let bare = host.address.trim_matches(['[', ']']);
    let all = (bare, host.port).to_socket_addrs();
    let first = all.ok().and_then(|mut all| all.next());
    let first = first.with_context(|| {
        format!(
            "{}: \"{bare}\" has no address: set one with \",to=ADDRESS:PORT\"",
            host.name
        )
    })?;
    Ok(first.ip())
}

/// Checks that the path to a player can be cut, and restores a path that an earlier run has left
/// cut.
///
/// # Errors
/// The path cannot be cut: the cause and the fix.
pub(super) fn check(means: &InjectorKind, host: &Host) -> Result<()> {
    let to = address(host)?;
    if *means == InjectorKind::Route {
        is_elsewhere(to).with_context(|| host.name.clone())?;
    }
    let mut guard = InjectorShell::start(means, to)?;
    match guard.order("try") {
        Ok(()) => Ok(()),
        Err(InjectorError(why)) if why.contains("not permitted") => {
            bail!(EnvironmentError::new(format_args!(
                "{}: no permission to change the route to {to} ({why}): run as root or with \
             CAP_NET_ADMIN, or give --injector a command that has it",
                host.name
            )))
        }
        Err(why) => bail!(
            "{}: the injector fails: {why}; give --injector a command that accepts \"cut ADDRESS\" \
             and \"mend ADDRESS\" as its last arguments",
            host.name
        ),
    }
}

/// Checks that the address is not local. Local addresses do not use the route.
fn is_elsewhere(to: IpAddr) -> Result<()> {
    let output = Command::new("ip")
        .args([family(to), "route", "get"])
        .arg(to.to_string())
        .output();
    let output = output.context("cannot run ip, which changes the routes: install iproute2");
    let output = output.map_err(EnvironmentError::of)?;
    let route = String::from_utf8_lossy(&output.stdout);
    ensure!(
        !route.trim_start().starts_with("local "),
        "{to} is a local address, which needs no route: give --injector a command, or use a player \
         on another host"
    );
    Ok(())
}

fn family(to: IpAddr) -> &'static str {
    if to.is_ipv6() { "-6" } else { "-4" }
}

/// Reason why the guard has not executed an order.
#[derive(Debug)]
struct InjectorError(String);

impl fmt::Display for InjectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A shell that cuts and restores the path on request. Dropping it restores the path.
#[derive(Debug)]
pub(super) struct InjectorShell {
    kind: InjectorKind,
    to: IpAddr,
    child: Child,
    /// Input of the guard. When it is closed, the guard restores the path and exits.
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    is_cut: bool,
}

impl InjectorShell {
    /// Starts the shell.
    ///
    /// # Errors
    /// The shell cannot be started.
    pub(super) fn start(means: &InjectorKind, to: IpAddr) -> Result<Self> {
        let mut child = spawn(means, to, "whole")?;
        let (Some(orders), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("internal error: the injector's guard has no pipes");
        };
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            kind: means.clone(),
            to,
            child,
            orders: Some(orders),
            answers,
            is_cut: false,
        })
    }

    fn order(&mut self, what: &str) -> Result<(), InjectorError> {
        let refused = |why: &str| InjectorError(format!("`{what}`: {why}"));
        self.is_cut |= what == "cut";
        let orders = self
            .orders
            .as_mut()
            .ok_or_else(|| refused("the guard has ended"))?;
        writeln!(orders, "{what}").map_err(|_| refused("the guard was killed"))?;
        let answer = self.answers.recv_timeout(PATIENCE);
        let answer = answer.map_err(|_| refused("no reply within 10 s"))?;
        if let Some(why) = answer.strip_prefix("failed ") {
            return Err(refused(why));
        }
        self.is_cut = what == "cut";
        Ok(())
    }

    /// Cuts the path during `run`, which starts at the clock's zero and may end before the outages.
    pub(super) fn during<T>(
        mut self,
        bursts: &OutageSchedule,
        around: &LiveContext,
        run: impl FnOnce() -> T,
    ) -> (T, Result<Vec<Cut>>) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let injector = scope.spawn(|| self.play(bursts, around, &over));
            let ran = run();
            over.store(true, Ordering::SeqCst);
            injector.thread().unpark();
            let panicked = |_| Err(anyhow!("the injector's thread panicked"));
            (ran, injector.join().unwrap_or_else(panicked))
        })
    }

    fn play(
        &mut self,
        bursts: &OutageSchedule,
        around: &LiveContext,
        over: &AtomicBool,
    ) -> Result<Vec<Cut>> {
        let clock = around.clock;
        let continues = || !over.load(Ordering::SeqCst) && around.interrupts.count() == 0;
        let wait = |at: Time| {
            while clock.now() < at && continues() {
                thread::park_timeout(clock.until(at).min(GLANCE));
            }
            continues()
        };
        let mut cuts = Vec::new();
        for (at, length) in bursts.cuts() {
            if !wait(Time::ZERO + at) {
                break;
            }
            self.order("cut")
                .map_err(|why| anyhow!("the injector: {why}"))?;
            let from = clock.now();
            say(format_args!(
                "the path to {} is cut for {} s",
                self.to,
                length.as_secs_f64()
            ));
            let on = wait(from + length);
            self.order("mend")
                .map_err(|why| anyhow!("the injector: {why}"))?;
            cuts.push(Cut {
                from,
                to: clock.now(),
            });
            if !on {
                break;
            }
        }
        Ok(cuts)
    }
}

impl Drop for InjectorShell {
    fn drop(&mut self) {
        self.orders = None;
        let ended = self.child.wait();
        let mended = ended.is_ok_and(|status| status.success());
        if mended || !self.is_cut {
            return;
        }
        // The guard was killed, or has failed. Another guard restores the path.
        let again = spawn(&self.kind, self.to, "cut").map(|mut child| {
            drop(child.stdin.take());
            child.wait()
        });
        if !matches!(again, Ok(Ok(status)) if status.success()) {
            say(self.stays_cut());
        }
    }
}

impl InjectorShell {
    fn stays_cut(&self) -> String {
        let to = self.to;
        match &self.kind {
            InjectorKind::Route => {
                let device = device(to);
                format!("the route to {to} may still be cut: run `ip link del {device}`")
            }
            InjectorKind::Command(command) => {
                format!("the path to {to} may still be cut: run `{command} mend {to}`")
            }
        }
    }
}

fn spawn(means: &InjectorKind, to: IpAddr, is: &str) -> Result<Child> {
    let (kind, what) = match means {
        InjectorKind::Route => ("route", device(to)),
        InjectorKind::Command(command) => ("command", command.clone()),
    };
    let to_text = to.to_string();
    let arguments = [kind, &what, &to_text, is, family(to)].map(str::to_owned);
    let mut command = here(GUARD, &arguments);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    pipes
        .spawn()
        .context("cannot run sh for the injector's guard")
}

/// Name of the device that drops packets to an address. The name is unique, except for runs to the
/// same address.
fn device(to: IpAddr) -> String {
    let bits = match to {
        IpAddr::V4(to) => to.to_bits(),
        IpAddr::V6(to) => {
            let words = to.to_bits();
            [96, 64, 32, 0]
                .iter()
                .fold(0, |all, by| all ^ (words >> by) as u32)
        }
    };
    format!("tide{bits:08x}")
}

/// Script of the guard. `$1` is "route" or "command", `$2` the device or the command, `$3` the
/// player's address, `$4` the state of the path, "cut" or "whole", and `$5` the address family as
/// an option of `ip`. The script ignores all signals that can be caught, and replies to each order
/// with one line. The order "try" removes what an earlier run may have left.
const GUARD: &str = r#"
trap '' INT TERM HUP QUIT PIPE
set -f
LC_ALL=C; export LC_ALL
kind=$1; what=$2; to=$3; is=$4; family=$5
device() {
    for type in dummy ifb; do
        ip link add "$what" type $type && return
    done
    ip tuntap add "$what" mode tun
}
cut() { case $kind in
    route) device && ip link set "$what" up && ip "$family" route prepend "$to" dev "$what" ;;
    *) $what cut "$to" ;;
esac </dev/null 2>&1; }
mend() { case $kind in
    route) ip link del "$what" ;;
    *) $what mend "$to" ;;
esac </dev/null 2>&1; }
try() { case $kind in
    route) mend; device && mend ;;
    *) mend ;;
esac </dev/null 2>&1; }
while read -r order; do
    case $order in cut) is=cut ;; esac
    if why=$($order); then
        case $order in mend) is=whole ;; esac
        echo done
    else
        echo failed $why
    fi
done
for n in 1 2 3; do
    test "$is" = whole && exit 0
    mend >/dev/null && exit 0
    sleep 1
done
exit 1
"#;
/// Time-out of a reply of the guard.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of checks for the end of the run.
const GLANCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A command that logs its orders, and a function that reads the log.
    fn logging_command(dir: &std::path::Path) -> (InjectorKind, impl Fn() -> String + use<>) {
        fs::create_dir_all(dir).unwrap();
        let (script, log) = (dir.join("note"), dir.join("log"));
        fs::write(&script, "#!/bin/sh\necho \"$2\" >> \"$1\"\n").unwrap();
        let command = format!("sh {} {}", script.display(), log.display());
        let read = move || fs::read_to_string(&log).unwrap_or_default();
        (command.parse().unwrap(), read)
    }

    #[test]
    fn guard_restores_a_cut_path_when_its_input_ends() {
        let dir = std::env::temp_dir().join(format!("tidegate-guard-{}", std::process::id()));
        let (means, log) = logging_command(&dir);
        let to = "192.0.2.1".parse().unwrap();
        let mut guard = InjectorShell::start(&means, to).unwrap();
        guard.order("cut").unwrap();
        drop(guard);
        assert_eq!(log(), "cut\nmend\n");
        let mut guard = InjectorShell::start(&means, to).unwrap();
        guard.order("cut").unwrap();
        guard.order("mend").unwrap();
        drop(guard);
        assert_eq!(log(), "cut\nmend\ncut\nmend\n");
        // The guard itself is killed.
        let mut guard = InjectorShell::start(&means, to).unwrap();
        guard.order("cut").unwrap();
        guard.child.kill().unwrap();
        drop(guard);
        assert_eq!(log(), "cut\nmend\ncut\nmend\ncut\nmend\n");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn failed_order_has_its_reason() {
        let to = "192.0.2.1".parse().unwrap();
        let mut guard = InjectorShell::start(&"ls /nosuch".parse().unwrap(), to).unwrap();
        let InjectorError(why) = guard.order("cut").unwrap_err();
        assert!(why.contains("/nosuch") && why.contains("`cut`"), "{why}");
        assert!(" ".parse::<InjectorKind>().is_err());
    }
}
