//! Traces of ns-2 as the tests need them.

use std::str::FromStr;
use std::time::Duration;

use tidegate_core::units::Time;
use tidegate_sim::tcp::classic::{Config, Flavour, Sender};
use tidegate_sim::tcp::{RtoConfig, Sink, SinkConfig, SourceConfig};

use crate::tcp_bench::{Bench, Kind, NS2_PHASE, micros};

/// A transmission at the link that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub micros: u64,
    pub seq: u32,
    pub dropped: bool,
}

/// A network and a sender of the reference runs: `queue,reno` and so on. Options are `delack=1`,
/// `drops=N/N/...`, `window=N`, `ts=1`.
#[derive(Clone, Debug)]
pub struct Setup {
    kind: Kind,
    config: Config,
    sink: SinkConfig,
    losses: Option<Vec<u64>>,
}

impl FromStr for Setup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let kind = match words.next() {
            Some("queue") => Kind::Queue,
            Some("list") => Kind::List,
            other => return Err(format!("{other:?} is no network: say queue or list")),
        };
        let flavour = match words.next() {
            Some("reno") => Flavour::Reno,
            Some("newreno") => Flavour::NewReno,
            Some("sack") => Flavour::Sack,
            other => return Err(format!("{other:?} is no sender: say reno, newreno or sack")),
        };
        let mut setup = Self {
            kind,
            config: Config {
                flavour,
                window: 1_000,
                rto: RtoConfig {
                    phase: Some(NS2_PHASE),
                    ..RtoConfig::default()
                },
                ..Config::default()
            },
            sink: SinkConfig {
                sack_blocks: if flavour == Flavour::Sack { 3 } else { 0 },
                ..SinkConfig::default()
            },
            losses: None,
        };
        for word in words {
            let (key, value) = word.split_once('=').ok_or(format!("`{word}` has no `=`"))?;
            setup.set(key, value)?;
        }
        Ok(setup)
    }
}

impl Setup {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
        match key {
            "delack" => self.sink.delay = Some(Duration::from_millis(100)),
            "drops" => {
                let list: Result<_, _> = value.split('/').map(number).collect();
                self.losses = Some(list?);
            }
            "window" => {
                self.config.window = number(value)? as u32;
            }
            "ts" => self.config.timestamps = true,
            _ => return Err(format!("`{key}` is no option")),
        }
        Ok(())
    }

    /// What comes to the link up to `end`.
    pub fn play(&self, end: Time) -> Vec<Event> {
        let (forward, back, watched) = self.kind.links(self.losses.clone());
        let sender = Sender::new(&self.config, &SourceConfig::default());
        let sink = Sink::new(&self.sink);
        let mut bench = Bench::new(sender, sink, &forward, &back, watched);
        bench.run(end);
        let events = bench.seen.iter().map(|seen| Event {
            micros: micros(seen.at),
            seq: seen.seq,
            dropped: seen.dropped,
        });
        events.collect()
    }
}

/// Reads a full trace.
pub fn parse_trace(text: &str) -> Result<Vec<Event>, String> {
    let mut events: Vec<Event> = Vec::new();
    for (i, line) in text.lines().enumerate().skip(1) {
        let fault = |what: &str| format!("line {}: {what}", i + 1);
        let fields: Vec<_> = line.split(',').collect();
        let [event, time, _, _, seq] = fields[..] else {
            return Err(fault("not five fields"));
        };
        if event == "r" {
            continue;
        }
        let time: f64 = time.parse().map_err(|_| fault("no time"))?;
        let seq = seq.parse().map_err(|_| fault("no number"))?;
        if event == "d" {
            let queued = events.iter_mut().rev().find(|e| e.seq == seq);
            queued
                .ok_or_else(|| fault("dropped but never sent"))?
                .dropped = true;
        } else {
            events.push(Event {
                micros: (time * 1e6 + 0.5) as u64,
                seq,
                dropped: false,
            });
        }
    }
    Ok(events)
}

/// A reference: the first transmissions in full, then a line per [`STRIDE`] with a digest of all up
/// to there.
pub fn reduce(events: &[Event]) -> String {
    let mut text = String::new();
    let mut digest = FNV;
    for (i, event) in events.iter().enumerate() {
        digest = add(digest, event);
        let mark = if event.dropped { " d" } else { "" };
        if i < FULL {
            text += &format!("{} {}{mark}\n", event.micros, event.seq);
        } else if (i + 1) % STRIDE == 0 {
            text += &format!(
                "{} {}{mark} #{} {digest:016x}\n",
                event.micros,
                event.seq,
                i + 1
            );
        }
    }
    text
}

/// FNV-1a of number and fate.
fn add(digest: u64, event: &Event) -> u64 {
    let word = u64::from(event.seq) << 1 | u64::from(event.dropped);
    word.to_le_bytes().iter().fold(digest, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

const FNV: u64 = 0xcbf2_9ce4_8422_2325;
const FULL: usize = 400;
const STRIDE: usize = 40;
