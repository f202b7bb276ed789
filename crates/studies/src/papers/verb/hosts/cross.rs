//! Cross traffic from other hosts to the player or to this host, with a sink that counts it.

use std::env;
use std::path::Path;
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tidegate_core::quantity;
use tidegate_core::units::Rate;

use super::super::traffic::{CAME, COUNTS, SENDS, SENT};
use super::list::{Host, folder};
use super::player::{CHECK, Ssh, version};
use super::remote_process::{RemoteProcess, here};
use super::time;
use tidegate_console::context::LiveContext;

/// A host that sends cross traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cross {
    pub(super) host: Host,
    rate: Rate,
    /// Mean times on and off. None for a constant rate.
    bursts: Option<(Duration, Duration)>,
    to: CrossTarget,
}

/// Destination of cross traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CrossTarget {
    Player,
    /// This host, by an address [default: the source address of the ssh connection].
    Sender(Option<String>),
}

impl FromStr for Cross {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let how = "use [USER@]HOST[:PORT],rate=RATE[,on=TIME,off=TIME][,to=player|sender|\
                   ADDRESS][,tidegate=PATH][,name=NAME]";
        let wrong = |why: &str| format!("invalid cross traffic \"{text}\": {why}; {how}");
        let (mut rate, mut on, mut off, mut to) = (None, None, None, CrossTarget::Player);
        let mut of_host = Vec::new();
        let span = |text: &str| {
            let span = quantity::duration(text).map_err(|e| wrong(&e.to_string()))?;
            (!span.is_zero())
                .then_some(span)
                .ok_or_else(|| wrong("a time is zero"))
        };
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                Some(("rate", value)) => {
                    rate = Some(quantity::rate(value).map_err(|e| wrong(&e.to_string()))?);
                }
                Some(("on", value)) => on = Some(span(value)?),
                Some(("off", value)) => off = Some(span(value)?),
                Some(("to", "player")) => to = CrossTarget::Player,
                Some(("to", "sender")) => to = CrossTarget::Sender(None),
                Some(("to", address)) if !address.is_empty() => {
                    to = CrossTarget::Sender(Some(address.to_owned()));
                }
                _ => of_host.push(part),
            }
        }
        let host = of_host.join(",").parse::<Host>().map_err(|why| {
            let cause = why
                .split_once(": ")
                .map_or(why.as_str(), |(_, cause)| cause);
            wrong(cause.split("; ").next().unwrap_or_default())
        })?;
        let rate = rate.filter(|rate| *rate > Rate::ZERO);
        let bursts = match (on, off) {
            (None, None) => None,
            (Some(on), Some(off)) => Some((on, off)),
            _ => return Err(wrong("on and off must be used together")),
        };
        Ok(Self {
            host,
            rate: rate.ok_or_else(|| wrong("it has no rate"))?,
            bursts,
            to,
        })
    }
}

/// Running cross traffic.
#[derive(Debug)]
pub(super) struct RunningCrossTraffic {
    name: String,
    to: &'static str,
    source: RemoteProcess,
    sink: RemoteProcess,
}

impl RunningCrossTraffic {
    /// Starts sink and source for at most `limit`. None after Ctrl-C.
    ///
    /// # Errors
    /// The traffic cannot be sent or counted: the cause.
    pub(super) fn start(
        cross: &Cross,
        ssh: &Ssh,
        player: &Host,
        (dir, limit): (&Path, Duration),
        around: &LiveContext,
    ) -> Result<Option<Self>> {
        let name = folder(&cross.host.name);
        let log = |what: &str| dir.join(format!("cross-{}-{what}.log", name.display()));
        let mut counts = vec!["--listen".to_owned(), "0".to_owned()];
        counts.extend(["--duration".to_owned(), time(limit)]);
        let here_name = "this host".to_owned();
        let (to, place, address) = match &cross.to {
            CrossTarget::Player => ("player", &player.name, player.address.clone()),
            CrossTarget::Sender(address) => {
                ("sender", &here_name, address.clone().unwrap_or_default())
            }
        };
        let sink = match cross.to {
            CrossTarget::Player => {
                ssh.command(player, &traffic(""), &checked(&player.tidegate, counts))
            }
            CrossTarget::Sender(_) => {
                let program = env::current_exe().context("cannot find the path of this program")?;
                here(
                    &traffic(""),
                    &checked(&program.display().to_string(), counts),
                )
            }
        };
        let what = format!("{place}: cannot count cross traffic to the {to}");
        let mut sink = RemoteProcess::start(what, sink, Stdio::null(), &log("counted"))?;
        let Some(port) = sink.says(COUNTS, around)? else {
            return Ok(None);
        };
        let mut sends = vec![address, port];
        sends.extend(["--rate".to_owned(), format!("{}b/s", cross.rate.as_bps())]);
        if let Some((on, off)) = cross.bursts {
            sends.extend(["--on".to_owned(), time(on), "--off".to_owned(), time(off)]);
        }
        sends.extend(["--duration".to_owned(), time(limit)]);
        let source = checked(&cross.host.tidegate, sends);
        let source = ssh.command(&cross.host, &traffic(ADDRESS), &source);
        let what = format!("{}: cannot send cross traffic", cross.host.name);
        let mut source = RemoteProcess::start(what, source, Stdio::null(), &log("sent"))?;
        if source.says(SENDS, around)?.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            name: cross.host.name.clone(),
            to,
            source,
            sink,
        }))
    }

    /// Ends the traffic. Returns the numbers of sent and received packets.
    ///
    /// # Errors
    /// Source or sink has failed, so that the amount of traffic is unknown.
    pub(super) fn end(self) -> Result<Value> {
        let (sent, came) = (self.source.end()?, self.sink.end()?);
        Ok(json!({
            "host": self.name,
            "to": self.to,
            "sent": number(&sent, SENT),
            "received": number(&came, CAME),
        }))
    }
}

/// The number after a word at the beginning of a line.
fn number(said: &[String], word: &str) -> Option<u64> {
    let mut said = said.iter().rev();
    said.find_map(|line| {
        let rest = line.strip_prefix(word)?.trim_start();
        rest.split(' ').next()?.parse().ok()
    })
}

/// The arguments of [`CHECK`], followed by others.
fn checked(tidegate: &str, rest: Vec<String>) -> Vec<String> {
    let mut all = vec![tidegate.to_owned(), version()];
    all.extend(rest);
    all
}

/// Script that runs `tidegate papers traffic` with the arguments after those of [`CHECK`]; `first`
/// may set some of them. It exits at the end of standard input.
fn traffic(first: &str) -> String {
    format!(
        "{CHECK}; shift 2; {first} exec 3<&0; \
         \"$t\" papers traffic \"$@\" </dev/null >/dev/null 3<&- & p=$!; \
         {{ read -r x; kill -TERM $p; }} <&3 >/dev/null 2>&1 & w=$!; \
         wait $p; r=$?; kill $w 2>/dev/null; exit $r"
    )
}

/// Script that sets `--to`. `$1` is an address, or empty for that of the ssh client, and `$2` a
/// port.
const ADDRESS: &str = "a=${1:-${SSH_CONNECTION%% *}}; \
    test -n \"$a\" || { echo \"SSH_CONNECTION has no client address: set to=ADDRESS\" >&2; exit 85; }; \
    case $a in \\[*) ;; *:*) a=\"[$a]\" ;; esac; \
    a=$a:$2; shift 2; set -- --to \"$a\" \"$@\";";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_rate_are_required() {
        let plain: Cross = "ann@gw.example,rate=1800kb/s".parse().unwrap();
        assert_eq!(plain.host, "ann@gw.example".parse().unwrap());
        assert_eq!((plain.rate, plain.bursts), (Rate::kbps(1_800), None));
        assert_eq!(plain.to, CrossTarget::Player);
        let all = "gw:22,to=sender,rate=1Mb/s,on=1s,off=4s,tidegate=/opt/t,name=mk";
        let all: Cross = all.parse().unwrap();
        assert_eq!(all.host, "gw:22,tidegate=/opt/t,name=mk".parse().unwrap());
        let s = Duration::from_secs;
        assert_eq!(
            (all.bursts, all.to),
            (Some((s(1), s(4))), CrossTarget::Sender(None))
        );
        let there: Cross = "gw,rate=1Mb/s,to=192.0.2.9".parse().unwrap();
        assert_eq!(there.to, CrossTarget::Sender(Some("192.0.2.9".to_owned())));
    }

    #[test]
    fn errors_name_the_invalid_part() {
        for (text, word) in [
            ("gw", "no rate"),
            ("gw,rate=0b/s", "no rate"),
            ("gw,rate=fast", "fast"),
            ("gw,rate=1Mb/s,on=1s", "used together"),
            ("gw,rate=1Mb/s,on=0s,off=1s", "zero"),
            ("gw,rate=1Mb/s,path=/x", "\"path\""),
            (",rate=1Mb/s", "not an address"),
        ] {
            let why = text.parse::<Cross>().unwrap_err();
            assert!(
                why.contains(word) && why.contains("rate=RATE"),
                "{text}: {why}"
            );
        }
    }

    #[test]
    fn numbers_are_parsed_from_messages() {
        let said = ["cross traffic goes to x", "sent 1234 packets, 1.80 Mb/s"].map(str::to_owned);
        assert_eq!(number(&said, SENT), Some(1234));
        assert_eq!(number(&said, CAME), None);
    }
}
