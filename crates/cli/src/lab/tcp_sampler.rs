//! Looks at a connection of the kernel while it is used: events, state, and when it took no more.

use core::time::Duration;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};
use tidegate_core::tcp_rate::{CongestionControl, TcpEvent, TcpView};
use tidegate_core::units::{Bytes, Time};
use tidegate_kernel::{
    CaState, EventKind, EventSet, Events, Happening, Snapshot, Variable, Wanted, probe,
};
use tidegate_live::clock::Clock;
use tidegate_sim::interactive::{Record, Sample};

/// A thread that looks.
#[derive(Debug)]
pub(super) struct TcpSampler {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Seen>>,
}

/// What the sender tells the watch.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Frames wait in the application.
    pub(super) waiting: AtomicBool,
    stop: AtomicBool,
}

/// What was seen.
#[derive(Debug, Default)]
struct Seen {
    events: Vec<(Time, TcpEvent)>,
    samples: Vec<Sample>,
    blocked: Vec<(Time, Time)>,
}

impl TcpSampler {
    /// Begins to look at `stream`; without events it sees the state only.
    ///
    /// # Errors
    /// The service is gone, or the system has no thread left.
    pub(super) fn start(events: Option<Events>, stream: &TcpStream, clock: Clock) -> Result<Self> {
        let stream = stream.try_clone()?;
        if let Some(events) = &events {
            subscribe(events, &stream)?;
        }
        let shared = Arc::new(Shared::default());
        let inside = Arc::clone(&shared);
        let look = move || look(events.as_ref(), &stream, clock, &inside);
        let thread = thread::Builder::new().name("watch".into()).spawn(look)?;
        Ok(Self { shared, thread })
    }

    /// To tell it things.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Ends it and moves what it saw into `record`.
    ///
    /// # Errors
    /// What broke it.
    pub(super) fn finish(self, record: &mut Record) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.join();
        let seen = seen.map_err(|_| anyhow!("the watch of a connection panicked"))??;
        record.events = seen.events;
        record.samples = seen.samples;
        record.blocked = seen.blocked;
        Ok(())
    }
}

fn subscribe(events: &Events, stream: &TcpStream) -> Result<()> {
    let told = EventSet::NONE
        .with(EventKind::Timeout)
        .with(EventKind::Threshold)
        .with(EventKind::Recovery)
        .with(EventKind::Recovered);
    let variables = events.allowed().variables;
    let wanted = Wanted {
        events: told,
        variables,
    };
    events.subscribe(stream, wanted)?;
    Ok(())
}

fn look(
    events: Option<&Events>,
    stream: &TcpStream,
    clock: Clock,
    shared: &Shared,
) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut eye = Eye::default();
    let mut blocked_since = None;
    let mut sampled = Time::ZERO;
    while !shared.stop.load(Ordering::Relaxed) {
        let event = if let Some(events) = events {
            events.next(Some(GLANCE))?
        } else {
            thread::sleep(GLANCE);
            None
        };
        let now = clock.now();
        if let Some(event) = event
            && let Some(kind) = in_table(&event.what)
        {
            let at = clock.from_monotonic(event.time);
            let further = eye.counted(&event.state);
            seen.events.extend(further.map(|further| (at, further)));
            seen.events.push((at, kind));
            let view = eye.view(at, &event.state, kind == TcpEvent::TimedOut);
            seen.samples.push(sample(at, &view));
            sampled = at;
            continue;
        }
        let view = eye.view(now, &probe(stream)?, false);
        if eye.acknowledged {
            seen.events.push((now, TcpEvent::NewAck));
        }
        if now.since(sampled) >= SAMPLE {
            seen.samples.push(sample(now, &view));
            sampled = now;
        }
        let blocked = !view.has_room(now) || shared.waiting.load(Ordering::Relaxed);
        match (blocked, blocked_since) {
            (true, None) => blocked_since = Some(now),
            (false, Some(since)) => {
                seen.blocked.push((since, now));
                blocked_since = None;
            }
            _ => {}
        }
    }
    if let Some(since) = blocked_since {
        seen.blocked.push((since, Time::FAR));
    }
    Ok(seen)
}

/// What an event of the kernel is in Table 1 of the paper; a third duplicate is what the kernel
/// takes for one. New acknowledgements and further duplicates are counters there: they are noted
/// once per look at which there were any.
fn in_table(what: &Happening) -> Option<TcpEvent> {
    match what {
        Happening::Timeout { .. } => Some(TcpEvent::TimedOut),
        Happening::Threshold => Some(TcpEvent::ThresholdReached),
        Happening::Recovery { .. } => Some(TcpEvent::ThirdDuplicate),
        Happening::Recovered { .. } => Some(TcpEvent::Repaired),
        _ => None,
    }
}

/// What has to be remembered from one look to the next.
#[derive(Debug, Default)]
struct Eye {
    /// The first number that is not acknowledged, and since when.
    oldest: Option<u64>,
    heard: Time,
    /// The timer has expired and nothing has been acknowledged since.
    stalled: bool,
    last: Option<TcpView>,
    /// Something was acknowledged since the look before, and not during fast recovery: behind a
    /// time-out it is slow start.
    acknowledged: bool,
    /// Further duplicates until the last event.
    further: u64,
}

impl Eye {
    fn view(&mut self, now: Time, state: &Snapshot, timed_out: bool) -> TcpView {
        let oldest = state.get(Variable::SndUna);
        let unacked = state.unacknowledged().unwrap_or_default();
        let idle = self
            .last
            .is_none_or(|last| last.unacked == Bytes::ZERO && unacked > Bytes::ZERO);
        let repairs = matches!(
            state.ca_state(),
            Some(CaState::Recovery | CaState::Reducing)
        );
        self.acknowledged = !repairs && self.oldest.is_some() && oldest != self.oldest;
        if oldest != self.oldest || idle {
            self.heard = now;
            self.stalled = false;
        }
        self.oldest = oldest;
        self.stalled |= timed_out;
        let mss = Bytes(state.get(Variable::Mss).unwrap_or(1));
        let most = mss.scale(MOST_SEGMENTS, 1);
        let view = TcpView {
            control: CongestionControl::Reno,
            mss,
            srtt: state.srtt().unwrap_or_default(),
            cwnd: state.cwnd().unwrap_or(mss),
            ssthresh: state.ssthresh().unwrap_or(most).min(most),
            unacked,
            unsent: state.unsent().unwrap_or_default(),
            sent: Bytes(state.get(Variable::BytesSent).unwrap_or_default()),
            next_timeout: None,
            silent_since: (unacked > Bytes::ZERO).then_some(self.heard),
            stalled: self.stalled,
            oldest_sent: None,
            resumed: None,
        };
        *self.last.insert(view)
    }

    /// Whether further duplicates came since the last event.
    fn counted(&mut self, state: &Snapshot) -> Option<TcpEvent> {
        let further = state.get(Variable::FurtherDuplicates)?;
        let grown = further > self.further;
        self.further = further;
        grown.then_some(TcpEvent::FurtherDuplicate)
    }
}

fn sample(at: Time, view: &TcpView) -> Sample {
    Sample {
        at,
        cwnd: view.cwnd,
        ssthresh: view.ssthresh,
        srtt: view.srtt,
        backlog: view.backlog(),
    }
}

/// It looks this often.
const GLANCE: Duration = Duration::from_millis(10);
/// The state of the connection is kept at this distance, as in the simulator.
const SAMPLE: Duration = Duration::from_millis(50);
/// Of a threshold that is none, as in the simulator.
const MOST_SEGMENTS: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn state(una: u64, nxt: u64, written: u64) -> Snapshot {
        let mut state = Snapshot::new();
        state.set(Variable::SndUna, una);
        state.set(Variable::SndNxt, nxt);
        state.set(Variable::WriteSeq, written);
        state.set(Variable::Mss, 1_000);
        state.set(Variable::Cwnd, 10);
        state.set(Variable::Ssthresh, 0x7fff_ffff);
        state.set(Variable::Srtt, 100_000);
        state.set(Variable::CaState, 0);
        state
    }

    #[test]
    fn silence_and_time_outs_are_remembered_until_something_is_acknowledged() {
        let mut eye = Eye::default();
        let at = Time::from_millis;
        let view = eye.view(at(0), &state(1, 1, 1), false);
        assert_eq!(view.silent_since, None);
        assert_eq!(view.ssthresh, Bytes(65_536_000));
        // Sent after idleness: that is when the wait begins.
        let view = eye.view(at(500), &state(1, 5_001, 6_001), false);
        assert_eq!(view.silent_since, Some(at(500)));
        assert_eq!((view.unacked, view.unsent), (Bytes(5_000), Bytes(1_000)));
        assert!(view.has_room(at(510)));
        let view = eye.view(at(700), &state(1, 5_001, 6_001), false);
        assert_eq!(view.silent_since, Some(at(500)));
        assert!(!view.has_room(at(700)));
        assert!(eye.view(at(800), &state(1, 5_001, 6_001), true).stalled);
        assert!(eye.view(at(820), &state(1, 5_001, 6_001), false).stalled);
        let view = eye.view(at(900), &state(2_001, 5_001, 6_001), false);
        assert!(!view.stalled && view.has_room(at(910)) && eye.acknowledged);
        assert_eq!(view.silent_since, Some(at(900)));
        let mut later = state(2_001, 5_001, 6_001);
        eye.view(at(910), &later, false);
        assert!(!eye.acknowledged);
        // In fast recovery it does not count, in the slow start behind a time-out it does.
        later.set(Variable::CaState, CaState::Recovery as u64);
        later.set(Variable::SndUna, 3_001);
        eye.view(at(920), &later, false);
        assert!(!eye.acknowledged);
        later.set(Variable::CaState, CaState::Loss as u64);
        later.set(Variable::SndUna, 4_001);
        eye.view(at(930), &later, false);
        assert!(eye.acknowledged);
    }

    #[test]
    fn further_duplicates_are_told_when_there_were_any() {
        let (mut eye, mut seen) = (Eye::default(), state(1, 1, 1));
        assert_eq!(eye.counted(&seen), None);
        for (count, told) in [(0, false), (3, true), (3, false), (4, true)] {
            seen.set(Variable::FurtherDuplicates, count);
            assert_eq!(eye.counted(&seen).is_some(), told);
        }
    }
}
