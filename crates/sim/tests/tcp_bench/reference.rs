//! References of the tests, from traces of ns-2.
#![expect(
    dead_code,
    reason = "the example makes references, the tests check them"
)]

use std::str::FromStr;
use std::time::Duration;

use tidegate_core::units::{Rate, Time};
use tidegate_sim::tcp::classic::{Config, Flavour, Sender};
use tidegate_sim::tcp::{InitialWindow, Sink, SinkConfig, SourceConfig, SourceKind};

use super::{Bench, Hop, Links, micros};

/// A transmission at the observed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) micros: u64,
    pub(crate) seq: u32,
    pub(crate) dropped: bool,
}

/// A network and a sender of the reference runs, e.g. `queue,newreno,window=20`.
///
/// The networks are `queue` (10 Mb/s, 1 ms; 1.5 Mb/s, 20 ms, limit 10; 10 Mb/s, 1 ms), `list`
/// (10 Mb/s, 49 ms, packets 99, 199, ... are lost) and `path` (10 Mb/s, 1 ms; 10 Mb/s, 48 ms);
/// the senders `reno`, `newreno` and `sack`. For the options see [`Setup::set`].
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    links: Links,
    config: Config,
    source: SourceConfig,
    sink: SinkConfig,
    seed: u64,
    /// Number of packets per write of an application, and the times of writes besides the start, in
    /// milliseconds.
    bursts: (u64, Vec<u64>),
}

impl FromStr for Setup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let mut setup = Self::network(words.next().unwrap_or(""))?;
        let config = &mut setup.config;
        config.flavour = match words.next() {
            Some("reno") => Flavour::Reno,
            Some("newreno") => Flavour::NewReno,
            Some("sack") => Flavour::Sack,
            other => {
                return Err(format!(
                    "unknown sender {other:?}: write reno, newreno or sack"
                ));
            }
        };
        config.window = 1_000;
        config.rto.phase = Some(NS2_PHASE);
        if config.flavour != Flavour::Sack {
            setup.sink.sack_blocks = 0;
        }
        for word in words {
            let (key, value) = word.split_once('=').ok_or(format!("`{word}` has no `=`"))?;
            setup.set(key, value)?;
        }
        Ok(setup)
    }
}

impl Setup {
    fn network(name: &str) -> Result<Self, String> {
        let fast = |ms| Hop::new(Rate::kbps(10_000), Duration::from_millis(ms));
        let slow = Hop::new(Rate::kbps(1_500), Duration::from_millis(20));
        let (forward, back, watched) = match name {
            "queue" => {
                let short = Hop {
                    limit: 10,
                    ..slow.clone()
                };
                let forward = vec![fast(1), short, fast(1)];
                (forward, vec![fast(1), slow, fast(1)], 1)
            }
            "list" => {
                let lossy = Hop {
                    losses: (1..2_000).map(|k| k * 100 - 1).collect(),
                    ..fast(49)
                };
                (vec![lossy], vec![fast(49)], 0)
            }
            "path" => (vec![fast(1), fast(48)], vec![fast(48), fast(1)], 1),
            _ => {
                return Err(format!(
                    "unknown network `{name}`: write queue, list or path"
                ));
            }
        };
        Ok(Self {
            links: Links {
                forward,
                back,
                watched,
            },
            config: Config::default(),
            source: SourceConfig::default(),
            sink: SinkConfig::default(),
            seed: 1,
            bursts: (0, Vec::new()),
        })
    }

    /// Lists are numbers separated by `/`.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let flag = value == "1";
        let config = &mut self.config;
        match key {
            "limit" | "kbps" | "nanos" | "drops" | "marks" | "ackdrops" => {
                return self.set_link(key, value);
            }
            // Options of the sink.
            "delack" => self.sink.delay = flag.then_some(Duration::from_millis(100)),
            // Options of the sender.
            "packets" => self.source.kind = SourceKind::Packets(number(value)? as u32),
            "bursts" => {
                let list = numbers(value)?;
                self.bursts = (list[0], list[1..].to_vec());
                self.source.kind = SourceKind::Stream { buffer: u64::MAX };
            }
            "stop" => self.source.stop = Time::from_millis(number(value)?),
            "overhead" => config.overhead = Duration::from_micros(number(value)?),
            "seed" => {
                self.seed = number(value)?;
                config.rto.phase = None;
            }
            "size" => config.packet_size = number(value)? as u32,
            "window" => config.window = number(value)? as u32,
            "iw" => config.initial_window = InitialWindow::Segments(number(value)? as u32),
            "rfc3390" => config.initial_window = InitialWindow::Rfc3390,
            "burst" => config.max_burst = number(value)? as u32,
            "dupacks" => config.dup_acks = number(value)? as u32,
            "tick" => config.rto.tick = Duration::from_millis(number(value)?),
            "minrto" => config.rto.min = Duration::from_millis(number(value)?),
            "ts" => config.timestamps = flag,
            "ecn" => config.ecn = flag,
            "syn" => config.syn = flag,
            "limited" => config.limited_transmit = flag,
            "bugfix" => config.bug_fix = flag,
            "control" => config.control_increase = flag,
            "restart" => config.slow_start_restart = flag,
            "impatient" => config.newreno.impatient = flag,
            "deflate" => config.newreno.deflate = flag,
            "exitfix" => config.newreno.exit_fix = flag,
            "changes" => config.newreno.changes = flag,
            _ => return Err(format!("unknown option `{key}`")),
        }
        Ok(())
    }

    fn set_link(&mut self, key: &str, value: &str) -> Result<(), String> {
        let list = value
            .split('/')
            .map(number)
            .collect::<Result<Vec<_>, _>>()?;
        let one = list[0];
        let Links {
            forward,
            back,
            watched,
        } = &mut self.links;
        let watched = &mut forward[*watched];
        match key {
            "limit" => watched.limit = one as usize,
            "kbps" => (watched.rate, back[0].rate) = (Rate::kbps(one), Rate::kbps(one)),
            "nanos" => {
                (watched.delay, back[0].delay) =
                    (Duration::from_nanos(one), Duration::from_nanos(one));
            }
            "drops" => watched.losses = list,
            "marks" => forward[0].marks = list,
            _ => back[0].losses = list,
        }
        Ok(())
    }

    /// Transmissions at the observed link up to `end`.
    pub(crate) fn play(&self, end: Time) -> Vec<Event> {
        let sender = Sender::new(&self.config, &self.source);
        let sink = Sink::new(&self.sink);
        let mut bench = Bench::new(sender, sink, &self.links, self.seed);
        let (packets, times) = &self.bursts;
        let bytes = packets * u64::from(self.config.packet_size - self.config.header_size);
        for millis in core::iter::once(&0).chain(times) {
            bench.run(Time::from_millis(*millis));
            bench.with_sender(|sender, cx| {
                sender.write(cx, bytes);
            });
        }
        bench.run(end);
        let events = bench.seen.iter().map(|seen| Event {
            micros: micros(seen.at),
            seq: seen.seq,
            dropped: seen.dropped,
        });
        events.collect()
    }
}

fn numbers(text: &str) -> Result<Vec<u64>, String> {
    text.split('/').map(number).collect()
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|e| format!("{text}: {e}"))
}

/// The second random clock phase that ns-2 draws with seed 1 and ticks of 10 ms: 5.5588071586372367
/// ms.
const NS2_PHASE: Duration = Duration::from_nanos(5_558_807);

/// Parses a full trace.
pub(crate) fn parse_trace(text: &str) -> Result<Vec<Event>, String> {
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

/// Creates a reference: the setup, the first transmissions in full, then a line per [`STRIDE`] with
/// a digest of all numbers and outcomes so far, and one for the last.
pub(crate) fn reduce(setup: &str, events: &[Event]) -> String {
    let mut lines = vec![format!("# {setup}")];
    let mut digest = FNV;
    for (i, event) in events.iter().enumerate() {
        digest = add(digest, event);
        let mark = if event.dropped { " d" } else { "" };
        if i < FULL {
            lines.push(format!("{} {}{mark}", event.micros, event.seq));
        } else if (i + 1) % STRIDE == 0 || i + 1 == events.len() {
            lines.push(format!("{} #{} {digest:016x}", event.micros, i + 1));
        }
    }
    lines.join("\n") + "\n"
}

/// A parsed reference.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) setup: Setup,
    full: Vec<Event>,
    /// Time, number of transmissions so far, digest.
    marks: Vec<(u64, usize, u64)>,
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let head = lines.next().and_then(|line| line.strip_prefix("# "));
        let mut reference = Self {
            setup: head.ok_or("no setup")?.parse()?,
            full: Vec::new(),
            marks: Vec::new(),
        };
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            let fault = |_| format!("invalid row `{line}`");
            let micros = words[0].parse().map_err(fault)?;
            match words[1..] {
                [count, digest] if count.starts_with('#') => {
                    let count = count[1..].parse().map_err(fault)?;
                    let digest = u64::from_str_radix(digest, 16).map_err(fault)?;
                    reference.marks.push((micros, count, digest));
                }
                [seq] | [seq, "d"] => reference.full.push(Event {
                    micros,
                    seq: seq.parse().map_err(fault)?,
                    dropped: words.len() == 3,
                }),
                _ => return Err(format!("`{line}` has too many words")),
            }
        }
        Ok(reference)
    }
}

impl Reference {
    /// Runs the setup and returns the first difference from the reference: other segments, other
    /// outcomes, or times that differ by more than the microsecond to which ns-2 rounds them.
    pub(crate) fn check(&self) -> Result<(), String> {
        let end = match self.marks.last() {
            Some((micros, _, _)) => *micros,
            None => self.full.last().ok_or("no rows")?.micros,
        };
        let ours = self.setup.play(Time::from_micros(end + 1));
        let off = |ours: u64, theirs: u64| ours.abs_diff(theirs) > 1;
        for (i, theirs) in self.full.iter().enumerate() {
            let us = ours.get(i).ok_or(format!("only {i} transmissions"))?;
            if us.seq != theirs.seq || us.dropped != theirs.dropped || off(us.micros, theirs.micros)
            {
                return Err(format!("transmission {i}: {us:?}, but ns-2 {theirs:?}"));
            }
        }
        let (mut digest, mut done) = (FNV, 0);
        for (micros, count, theirs) in &self.marks {
            let some = ours.get(done..*count);
            let some = some.ok_or(format!("only {} transmissions", ours.len()))?;
            digest = some.iter().fold(digest, add);
            done = *count;
            let last = &ours[count - 1];
            if digest != *theirs || off(last.micros, *micros) {
                return Err(format!(
                    "up to transmission {count} at {} us, {digest:016x}: ns-2 has {theirs:016x} at {micros} us",
                    last.micros
                ));
            }
        }
        Ok(())
    }
}

/// FNV-1a of number and outcome.
fn add(digest: u64, event: &Event) -> u64 {
    let word = u64::from(event.seq) << 1 | u64::from(event.dropped);
    word.to_le_bytes().iter().fold(digest, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

const FNV: u64 = 0xcbf2_9ce4_8422_2325;
const FULL: usize = 400;
const STRIDE: usize = 50;
