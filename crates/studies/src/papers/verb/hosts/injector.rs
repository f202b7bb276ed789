//! Cuts the path to a player while video goes there: this host has a route to nowhere, or a command of
//! the user's does what it likes.
//!
//! A host without any route to the player would not do: Linux tells its TCP that a segment cannot
//! leave, which then counts as not sent, and no time-out follows. So the route leads to a device that
//! loses what it is given, and is gone when the device is.
//!
//! A guard, which is a shell of its own, does both. Whatever becomes of this process, also SIGKILL, the
//! guard reads the end of its orders then and mends what is cut.

use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::papers::Bursts;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use tidegate_core::units::Time;

use super::list::Host;
use super::remote_process::here;
use tidegate_console::context::LiveContext;
use tidegate_console::progress::say;

/// What cuts the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// A route on this host by which all is lost that leaves for the player.
    Route,
    /// A program and its arguments, split at spaces; behind them come "cut" or "mend", and the
    /// player's address.
    Command(String),
}

impl FromStr for Means {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Err(
                "write route, or a command that takes \"cut ADDRESS\" and \"mend ADDRESS\""
                    .to_owned(),
            ),
            "route" => Ok(Self::Route),
            command => Ok(Self::Command(command.to_owned())),
        }
    }
}

/// A path that was cut, on the clock of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) from: Time,
    pub(super) to: Time,
}

/// Where video for a host goes, as one address: a name may have several, and only one is cut.
///
/// # Errors
/// It has none.
pub(super) fn address(host: &Host) -> Result<IpAddr> {
    let bare = host.address.trim_matches(['[', ']']);
    let all = (bare, host.port).to_socket_addrs();
    let first = all.ok().and_then(|mut all| all.next());
    let first = first.with_context(|| {
        format!(
            "{}: \"{bare}\" has no address: give one with \",to=ADDRESS:PORT\"",
            host.name
        )
    })?;
    Ok(first.ip())
}

/// Sees that the path to a player can be cut, and mends what a run before may have left.
///
/// # Errors
/// Why it cannot, and the mend.
pub(super) fn check(means: &Means, host: &Host) -> Result<()> {
    let to = address(host)?;
    if *means == Means::Route {
        is_elsewhere(to).with_context(|| host.name.clone())?;
    }
    let mut guard = Guard::start(means, to)?;
    match guard.order("try") {
        Ok(()) => Ok(()),
        Err(Refused(why)) if why.contains("not permitted") => bail!(
            "{}: only the administrator may change the route to {to} ({why}): run this as root or \
             with CAP_NET_ADMIN, or give --injector a command that may",
            host.name
        ),
        Err(why) => bail!(
            "{}: the injector cannot work: {why}; give --injector a command that runs here with \
             \"cut ADDRESS\" and \"mend ADDRESS\" behind its words",
            host.name
        ),
    }
}

/// What is on this host needs no route.
fn is_elsewhere(to: IpAddr) -> Result<()> {
    let asked = Command::new("ip")
        .args([family(to), "route", "get"])
        .arg(to.to_string())
        .output();
    let asked = asked.context("cannot run ip, which takes routes away: install iproute2")?;
    let told = String::from_utf8_lossy(&asked.stdout);
    ensure!(
        !told.trim_start().starts_with("local "),
        "{to} is of this host, which needs no route to it: give --injector a command, or a player \
         elsewhere"
    );
    Ok(())
}

fn family(to: IpAddr) -> &'static str {
    if to.is_ipv6() { "-6" } else { "-4" }
}

/// Why the guard did not do as it was told.
#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Cuts and mends as it is told. The path is whole again once this is gone.
#[derive(Debug)]
pub(super) struct Guard {
    means: Means,
    to: IpAddr,
    child: Child,
    /// Once they are closed it mends and ends.
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    is_cut: bool,
}

impl Guard {
    /// # Errors
    /// There is no shell.
    pub(super) fn start(means: &Means, to: IpAddr) -> Result<Self> {
        let mut child = spawn(means, to, "whole")?;
        let (Some(orders), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the injector's guard has no pipes");
        };
        let (tell, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            means: means.clone(),
            to,
            child,
            orders: Some(orders),
            answers,
            is_cut: false,
        })
    }

    fn order(&mut self, what: &str) -> Result<(), Refused> {
        let refused = |why: &str| Refused(format!("`{what}`: {why}"));
        self.is_cut |= what == "cut";
        let orders = self
            .orders
            .as_mut()
            .ok_or_else(|| refused("the guard has ended"))?;
        writeln!(orders, "{what}").map_err(|_| refused("somebody ended the guard"))?;
        let answer = self.answers.recv_timeout(PATIENCE);
        let answer = answer.map_err(|_| refused("no answer came within 10 s"))?;
        if let Some(why) = answer.strip_prefix("failed ") {
            return Err(refused(why));
        }
        self.is_cut = what == "cut";
        Ok(())
    }

    /// Cuts the path while `run` runs, which begins at the clock's zero and may be over before.
    pub(super) fn during<T>(
        mut self,
        bursts: &Bursts,
        around: &LiveContext,
        run: impl FnOnce() -> T,
    ) -> (T, Result<Vec<Cut>>) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let injector = scope.spawn(|| self.play(bursts, around, &over));
            let ran = run();
            over.store(true, Ordering::SeqCst);
            injector.thread().unpark();
            let died = |_| Err(anyhow!("the injector's thread died"));
            (ran, injector.join().unwrap_or_else(died))
        })
    }

    fn play(
        &mut self,
        bursts: &Bursts,
        around: &LiveContext,
        over: &AtomicBool,
    ) -> Result<Vec<Cut>> {
        let clock = around.clock;
        let goes_on = || !over.load(Ordering::SeqCst) && around.interrupts.count() == 0;
        let wait = |at: Time| {
            while clock.now() < at && goes_on() {
                thread::park_timeout(clock.until(at).min(GLANCE));
            }
            goes_on()
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

impl Drop for Guard {
    fn drop(&mut self) {
        self.orders = None;
        let ended = self.child.wait();
        let mended = ended.is_ok_and(|status| status.success());
        if mended || !self.is_cut {
            return;
        }
        // Somebody ended the guard, or it could not. Another one begins where this one was.
        let again = spawn(&self.means, self.to, "cut").map(|mut child| {
            drop(child.stdin.take());
            child.wait()
        });
        if !matches!(again, Ok(Ok(status)) if status.success()) {
            say(self.stays_cut());
        }
    }
}

impl Guard {
    fn stays_cut(&self) -> String {
        let to = self.to;
        match &self.means {
            Means::Route => {
                let device = device(to);
                format!("the route to {to} may still lead nowhere: run `ip link del {device}`")
            }
            Means::Command(command) => {
                format!("the path to {to} may still be cut: run `{command} mend {to}`")
            }
        }
    }
}

fn spawn(means: &Means, to: IpAddr, is: &str) -> Result<Child> {
    let (kind, what) = match means {
        Means::Route => ("route", device(to)),
        Means::Command(command) => ("command", command.clone()),
    };
    let to_text = to.to_string();
    let arguments = [kind, &what, &to_text, is, family(to)].map(str::to_owned);
    let mut command = here(GUARD, &arguments);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    pipes
        .spawn()
        .context("cannot run sh, which guards the injector")
}

/// The device that loses what goes to an address. Nobody else has one of that name, but for a run to
/// the same address.
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

/// `$1` is "route" or "command", `$2` the device or the command, `$3` the player's address, `$4` whether
/// the path is "cut" or "whole", `$5` the family of the address as an option of `ip`. It outlives all
/// signals that can be caught, and answers each order in a line. What is tried removes what a run
/// before may have left.
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
/// For an answer of the guard.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end of a run may go unseen.
const GLANCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Writes down what it is asked for.
    fn notes(dir: &std::path::Path) -> (Means, impl Fn() -> String + use<>) {
        fs::create_dir_all(dir).unwrap();
        let (script, said) = (dir.join("note"), dir.join("said"));
        fs::write(&script, "#!/bin/sh\necho \"$2\" >> \"$1\"\n").unwrap();
        let command = format!("sh {} {}", script.display(), said.display());
        let read = move || fs::read_to_string(&said).unwrap_or_default();
        (command.parse().unwrap(), read)
    }

    #[test]
    fn a_guard_mends_when_its_orders_end_and_only_what_is_cut() {
        let dir = std::env::temp_dir().join(format!("tidegate-guard-{}", std::process::id()));
        let (means, said) = notes(&dir);
        let to = "192.0.2.1".parse().unwrap();
        let mut guard = Guard::start(&means, to).unwrap();
        guard.order("cut").unwrap();
        drop(guard);
        assert_eq!(said(), "cut\nmend\n");
        let mut guard = Guard::start(&means, to).unwrap();
        guard.order("cut").unwrap();
        guard.order("mend").unwrap();
        drop(guard);
        assert_eq!(said(), "cut\nmend\ncut\nmend\n");
        // Somebody ends the guard itself.
        let mut guard = Guard::start(&means, to).unwrap();
        guard.order("cut").unwrap();
        guard.child.kill().unwrap();
        drop(guard);
        assert_eq!(said(), "cut\nmend\ncut\nmend\ncut\nmend\n");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_fails_is_told_with_its_reason() {
        let to = "192.0.2.1".parse().unwrap();
        let mut guard = Guard::start(&"ls /nosuch".parse().unwrap(), to).unwrap();
        let Refused(why) = guard.order("cut").unwrap_err();
        assert!(why.contains("/nosuch") && why.contains("`cut`"), "{why}");
        assert!(" ".parse::<Means>().is_err());
    }
}
