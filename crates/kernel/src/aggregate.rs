//! Aggregation point of the Coordination Protocol in the kernel: BPF programs of traffic control on
//! the interface to the endpoints stamp, rewrite, count and sample, and this process computes the
//! estimates once per round-trip time.

mod layout;
mod programs;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tidegate_core::aggregate::sampled::{self, Counts, SampledApplication};
use tidegate_core::aggregate::sites::SiteRule;
use tidegate_core::aggregate::{
    AggregateConfig, ApplicationKey, ApplicationState, Arrival, PacketEvent, Policy, SiteId,
};
use tidegate_core::control::{Context, Ecn};
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::cp::{ApplicationId, Delay, LEN, LossCode, RateCode, Shares, Stamp};

use crate::bpf::loader::LoadError;
use layout::{Application, Estimate, Key, PEER_ABSENT, PEER_STOP, Record, Sample, Settings};
use programs::Programs;

/// Configuration of a [`KernelPoint`].
#[derive(Clone, Debug, PartialEq)]
pub struct KernelConfig {
    /// State machine. `reordering` is at most [`MAX_REORDERING`].
    pub aggregation: AggregateConfig,
    /// Other sites, at most [`MAX_SITES`], which give [`MAX_RULES`] combinations of a prefix here,
    /// a prefix there and a range of ports at most.
    pub remote: Vec<SiteRule>,
    /// Bytes before the IP header: 14 for Ethernet, 0 for tunnels.
    pub link_header: u32,
    /// Whether tests set the time of each packet.
    pub manual_clock: bool,
}

/// The loaded programs, and the control of each application.
#[derive(Debug)]
pub struct KernelPoint {
    programs: Programs,
    config: AggregateConfig,
    controls: BTreeMap<ApplicationKey, Control>,
    expired: u64,
    /// Notifications that have to be sent.
    notices: Vec<Notice>,
}

#[derive(Debug)]
struct Control {
    sampled: SampledApplication,
    /// Result of the latest round.
    estimate: sampled::Estimate,
    /// Next round.
    next: Time,
    state: Application,
}

/// A packet whose source has to be notified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Start of the packet, from its link header on.
    pub head: Vec<u8>,
    /// UDP payload of the notification.
    pub report: [u8; LEN],
}

/// Numbers of packets since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Packets whose headers were rewritten.
    pub rewritten: u64,
    /// Packets of a site without a valid header, or with a role of the other direction.
    pub invalid: u64,
    /// Packets of an application that found no space in the table.
    pub refused: u64,
    /// Packets from another site for an application of which no endpoint here has sent a packet.
    pub unknown: u64,
    /// Packets of applications that are not allowed.
    pub forbidden: u64,
    /// Fragments of UDP datagrams. They pass unchanged.
    pub fragments: u64,
    /// Batches of several datagrams in a packet (UDP segmentation offload). They pass unchanged.
    pub batches: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets that the kernel could not change. They pass unchanged.
    pub failed: u64,
    /// Duplicates, replays, and packets that arrived after they counted as lost.
    pub late: u64,
    /// Packets whose sequence number does not continue the stream.
    pub jumps: u64,
    /// Echoes of timestamps that this point cannot have sent.
    pub invalid_echoes: u64,
    /// Samples that found no space in the ring.
    pub missed: u64,
    /// Applications deleted.
    pub expired: u64,
}

impl KernelPoint {
    /// Loads the programs. Requires `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON`.
    ///
    /// # Errors
    ///
    /// See [`KernelPointError`].
    pub fn load(config: &KernelConfig) -> Result<Self, KernelPointError> {
        let aggregation = &config.aggregation;
        if !(1..=MAX_REORDERING).contains(&aggregation.reordering) {
            return Err(KernelPointError::Reordering);
        }
        let rules = layout::rules(&config.remote).ok_or(KernelPointError::TooManyRules)?;
        let programs = Programs::load(config, &rules).map_err(KernelPointError::Load)?;
        Ok(Self {
            programs,
            config: aggregation.clone(),
            controls: BTreeMap::new(),
            expired: 0,
            notices: Vec::new(),
        })
    }

    /// Attaches the programs to an interface of the namespace of this thread until the point is
    /// dropped: by TCX, or by a `clsact` queue discipline before Linux 6.6.
    ///
    /// # Errors
    ///
    /// There is no such interface, or the kernel refuses.
    pub fn attach(&mut self, interface: &str) -> Result<(), KernelPointError> {
        self.programs
            .attach(interface)
            .map_err(KernelPointError::Load)
    }

    /// Takes the samples since the last call and runs the rounds that are due. `now` of the context
    /// is the time of `CLOCK_MONOTONIC`. Returns the time of the next call.
    ///
    /// # Errors
    ///
    /// A map failed.
    pub fn run(&mut self, cx: &mut Context<'_>) -> io::Result<Time> {
        let now = cx.now;
        self.refresh(now)?;
        let mut due = Vec::new();
        for (key, entry) in &mut self.controls {
            if entry.next <= now {
                let state = &entry.state;
                let (counts, shares) = (state.counts(), state.shares());
                entry.sampled.on_counts(cx, counts, shares);
                entry.sampled.on_sent(now, Bytes(state.sent_bytes));
                due.push(*key);
            }
        }
        self.drain(cx);
        for key in due {
            let Some(entry) = self.controls.get_mut(&key) else {
                continue;
            };
            entry.sampled.end_round(cx);
            entry.next = now + entry.sampled.interval().max(SHORTEST_ROUND);
            entry.estimate = entry.sampled.estimate(now);
            let estimate = code(&entry.estimate, entry.state.active_flows(now));
            self.programs.set_estimate(key, &estimate)?;
        }
        let next = self.controls.values().map(|entry| entry.next).min();
        // The ring has space for the samples of this span.
        Ok(next.unwrap_or(Time::FAR).min(now + LONGEST_WAIT))
    }

    /// Removes and returns the notifications of the last call of [`run`](Self::run).
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// State of all applications in the order of their keys, as of the last call of
    /// [`run`](Self::run).
    pub fn applications(&self, now: Time) -> Vec<(ApplicationKey, ApplicationState)> {
        let each = self.controls.iter();
        each.map(|(key, entry)| (*key, entry.state(now))).collect()
    }

    /// Numbers of packets since the start.
    ///
    /// # Errors
    ///
    /// A map failed.
    pub fn counters(&self) -> io::Result<KernelCounters> {
        let mut counters = self.programs.counters()?;
        counters.expired = self.expired;
        for entry in self.controls.values() {
            counters.late += entry.state.late;
            counters.jumps += entry.state.jumps;
            counters.invalid_echoes += entry.state.invalid_echoes;
            counters.missed += entry.state.missed;
        }
        Ok(counters)
    }

    /// Bytes of state in the kernel per application.
    pub const fn state_size() -> usize {
        size_of::<Key>() * 2 + size_of::<Application>() + size_of::<Estimate>()
    }

    /// Passes an Ethernet frame through a program, without an interface, for tests and measurements.
    /// Returns the frame, or `None` if it is dropped, and the mean time of `repeat` runs.
    ///
    /// # Errors
    ///
    /// The kernel refuses the run.
    pub fn test_run(
        &mut self,
        outbound: bool,
        frame: &[u8],
        repeat: u32,
    ) -> io::Result<(Option<Vec<u8>>, Duration)> {
        self.programs.test_run(outbound, frame, repeat)
    }

    /// Measures the run time of programs, of all of the system, until the result is dropped.
    ///
    /// # Errors
    ///
    /// Linux before 5.8, or missing privilege.
    pub fn measure() -> io::Result<OwnedFd> {
        aya::sys::enable_stats(aya::sys::Stats::RunTime).map_err(io::Error::other)
    }

    /// Time and number of the runs of a program, while [`measure`](Self::measure) is active.
    ///
    /// # Errors
    ///
    /// The kernel refuses the information.
    pub fn run_time(&mut self, outbound: bool) -> io::Result<(Duration, u64)> {
        self.programs.run_time(outbound)
    }

    /// Sets the time of the next packet, with [`KernelConfig::manual_clock`].
    pub fn set_clock(&self, now: Time) {
        self.programs.settings().set_clock(now);
    }

    /// Reads the state of all applications and deletes those that have expired.
    fn refresh(&mut self, now: Time) -> io::Result<()> {
        let (idle, mut open) = (self.config.idle, 0);
        let mut states = self.programs.applications()?;
        let quarter = Settings::opening(self.config.max_applications);
        let waiting = |state: &Application| state.heard == 0;
        let crowded = states.iter().filter(|(_, state)| waiting(state)).count() as u32 >= quarter;
        states.retain(|(key, state)| {
            // Under pressure, applications without an answer live for a second.
            let idle = if crowded && waiting(state) {
                idle.min(IMPATIENCE)
            } else {
                idle
            };
            let since = if waiting(state) && crowded {
                state.created
            } else {
                state.latest
            };
            let is_alive = Time::from_nanos(since) + idle > now;
            if !is_alive {
                self.programs.delete(*key);
                self.expired += 1;
            }
            open += u32::from(is_alive && waiting(state));
            is_alive
        });
        self.programs.settings().set_open(open);
        let known: BTreeMap<_, _> = states.into_iter().collect();
        self.controls.retain(|key, _| known.contains_key(key));
        for (key, state) in known {
            let control = self.controls.entry(key).or_insert_with(|| {
                let sampled = SampledApplication::new(&self.config, now);
                Control {
                    estimate: sampled.estimate(now),
                    sampled,
                    next: now,
                    state,
                }
            });
            control.state = state;
        }
        Ok(())
    }

    /// Passes the samples to the controllers.
    fn drain(&mut self, cx: &mut Context<'_>) {
        let (controls, notices) = (&mut self.controls, &mut self.notices);
        self.programs.drain(|record| match record {
            Record::Events(sample) => {
                if let Some(entry) = controls.get_mut(&sample.key.decoded()) {
                    entry.on_sample(cx, &sample);
                }
            }
            Record::Notice(notice) => notices.push(notice),
        });
    }
}

impl Control {
    fn on_sample(&mut self, cx: &mut Context<'_>, sample: &Sample) {
        if sample.mean_size == 0 {
            // Only packets without data so far.
            return;
        }
        let (size, end) = (Bytes(sample.mean_size.into()), cx.now);
        let mut event = |at: Time, event| {
            cx.now = at;
            self.sampled.on_event(cx, event, size);
        };
        // Sampled losses are spread evenly over all of them.
        for n in 0..sample.lost_sampled {
            let place = u64::from(n + 1) * u64::from(sample.lost) / u64::from(sample.lost_sampled);
            let at = Time::from_nanos(sample.lost_from + place * sample.lost_gap);
            event(Time::from_nanos(sample.at), PacketEvent::Lost(at));
        }
        if sample.size > 0 {
            let at = Time::from_nanos(sample.at);
            let arrival = Arrival {
                at,
                size: Bytes(sample.size.into()),
                ecn: Ecn::from_bits(sample.ecn as u8),
            };
            event(at, PacketEvent::Received(arrival));
        }
        cx.now = end;
    }

    fn state(&self, now: Time) -> ApplicationState {
        let (state, estimate) = (&self.state, &self.estimate);
        ApplicationState {
            shares: state.shares(),
            flows: state.active_flows(now),
            rtt: estimate.rtt.unwrap_or_default(),
            sent: state.sent,
            received: state.received,
            lost: state.lost,
            sending: estimate.used,
            remote_loss: LossCode::from_bits(state.peer_loss).to_rate(),
            remote_available: RateCode::from_bits(state.peer_available).to_rate(),
            loss: estimate.loss,
            available: estimate.available,
            arriving: estimate.arriving,
            fraction: estimate.fraction,
            peer_lost: state.is_peer_lost(now, estimate.lost_after),
            is_stopped: estimate.stop || state.flags & PEER_STOP != 0,
        }
    }
}

impl Application {
    fn counts(&self) -> Counts {
        Counts {
            received: self.received,
            lost: self.lost,
            received_bytes: Bytes(self.received_bytes),
            rtt_ticks: self.rtt_sum,
            rtt_samples: self.rtt_samples,
            last_probe: (self.heard > 0).then(|| Time::from_nanos(self.heard)),
        }
    }

    fn shares(&self) -> Shares {
        Shares::new(self.shares).unwrap_or(Shares::ONE)
    }

    /// Flows with a packet in the last seconds.
    fn active_flows(&self, now: Time) -> u8 {
        let second = (now.as_nanos() / 1_000_000_000) as u32 + 1;
        let is_active = |seen: &&u32| **seen > 0 && second.saturating_sub(**seen) < ACTIVE;
        self.flows.iter().filter(is_active).count().min(255) as u8
    }

    fn is_peer_lost(&self, now: Time, lost_after: Duration) -> bool {
        if self.flags & PEER_ABSENT != 0 {
            return true;
        }
        if lost_after.is_zero() || self.heard == 0 || self.unanswered == 0 {
            return false;
        }
        let gap = Duration::from_nanos(4 * self.interval);
        now.since(Time::from_nanos(self.unanswered)) > lost_after + gap
    }
}

/// The estimate as the program writes it into headers.
fn code(estimate: &sampled::Estimate, flows: u8) -> Estimate {
    let ticks = |span: Option<Duration>| span.map_or(0, |span| Stamp::span(span).bits());
    Estimate {
        lost_after: estimate.lost_after.as_nanos() as u64,
        fraction: if estimate.fraction >= 1.0 {
            u32::MAX
        } else {
            // `as` saturates. One less than the largest value, which means all.
            ((estimate.fraction * 4_294_967_296.0) as u32).min(u32::MAX - 1)
        },
        rtt: ticks(estimate.rtt),
        outlier: ticks(estimate.outlier),
        deviation: Delay::of(estimate.deviation).bits(),
        available: RateCode::of(estimate.available).bits(),
        used: RateCode::of(estimate.used).bits(),
        loss: LossCode::of(estimate.loss).bits(),
        flows,
        stop: u8::from(estimate.stop),
        unused: [0; 7],
    }
}

impl Key {
    fn decoded(self) -> ApplicationKey {
        ApplicationKey {
            site: SiteId(self.site),
            application: ApplicationId(self.application),
        }
    }
}

impl From<ApplicationKey> for Key {
    fn from(key: ApplicationKey) -> Self {
        Self {
            site: key.site.0,
            application: key.application.0,
            unused: 0,
        }
    }
}

/// Error of a [`KernelPoint`].
#[derive(Debug, thiserror::Error)]
pub enum KernelPointError {
    /// The programs were not loaded or attached.
    #[error("{0}")]
    Load(LoadError),
    /// `reordering` is out of range.
    #[error("`reordering` is out of range in the kernel: give a number from 1 to {MAX_REORDERING}")]
    Reordering,
    /// Too many sites, or combinations of prefixes and ports.
    #[error(
        "too many sites for the kernel: at most {MAX_SITES}, and {MAX_RULES} combinations of \
         `hosts`, `local` and `ports`"
    )]
    TooManyRules,
}

/// Whether strangers are dropped.
fn drops(policy: Policy) -> bool {
    policy == Policy::Drop
}

/// Largest tolerance of reordering in packets.
pub const MAX_REORDERING: u32 = 4;
/// Largest number of other sites.
pub const MAX_SITES: usize = 16;
/// Largest number of combinations of prefixes and ports.
pub const MAX_RULES: usize = 64;
/// Rounds of shorter paths would cost more than they gain.
const SHORTEST_ROUND: Duration = Duration::from_millis(5);
/// Notifications of lost peers must arrive within three round trips.
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// Lifetime of applications without an answer while there are many of them.
const IMPATIENCE: Duration = Duration::from_secs(1);
/// Seconds after which a flow no longer counts.
const ACTIVE: u32 = 5;
