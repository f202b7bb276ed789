//! Samples a kernel TCP connection: events, state, and periods in which it accepted no data.

use core::time::Duration;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};
use tidegate_core::tcp_rate::{CongestionControl, TcpEvent, TcpView};
use tidegate_core::units::{Bytes, Time};
use tidegate_kernel::{
    CaState, EventKind, EventRequest, EventSet, Events, Snapshot, Variable, probe,
};
use tidegate_live::clock::Clock;
use tidegate_sim::interactive::{Record, Sample};

/// Sampling thread.
#[derive(Debug)]
pub(super) struct TcpSampler {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Seen>>,
}

/// State shared with the sender.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Whether frames wait in the application.
    pub(super) waiting: AtomicBool,
    stop: AtomicBool,
}

/// Recorded data.
#[derive(Debug, Default)]
struct Seen {
    events: Vec<(Time, TcpEvent)>,
    samples: Vec<Sample>,
    blocked: Vec<(Time, Time)>,
}

impl TcpSampler {
    /// Starts sampling `stream`. Without `events`, only the state is recorded.
    ///
    /// # Errors
    /// The service has ended, or no thread can be started.
    pub(super) fn start(events: Option<Events>, stream: &TcpStream, clock: Clock) -> Result<Self> {
        let stream = stream.try_clone()?;
        if let Some(events) = &events {
            subscribe(events, &stream)?;
        }
        let shared = Arc::new(Shared::default());
        let inside = Arc::clone(&shared);
        let sample_loop = move || sample_loop(events.as_ref(), &stream, clock, &inside);
        let thread = thread::Builder::new()
            .name("watch".into())
            .spawn(sample_loop)?;
        Ok(Self { shared, thread })
    }

    /// State for the sender to update.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Stops the thread and moves its data into `record`.
    ///
    /// # Errors
    /// The sampling failed.
    pub(super) fn finish(self, record: &mut Record) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.join();
        let seen = seen.map_err(|_| anyhow!("the thread that samples a connection panicked"))??;
        record.events = seen.events;
        record.samples = seen.samples;
        record.blocked = seen.blocked;
        Ok(())
    }
}

fn subscribe(events: &Events, stream: &TcpStream) -> Result<()> {
    let wanted_events = EventSet::NONE
        .with(EventKind::Timeout)
        .with(EventKind::Threshold)
        .with(EventKind::Recovery)
        .with(EventKind::Recovered);
    let variables = events.allowed().variables;
    let wanted = EventRequest {
        events: wanted_events,
        variables,
    };
    events.subscribe(stream, wanted)?;
    Ok(())
}

fn sample_loop(
    events: Option<&Events>,
    stream: &TcpStream,
    clock: Clock,
    shared: &Shared,
) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut tracker = ViewTracker::default();
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
            && let Some(kind) = event.what.kind().in_table_1()
        {
            let at = clock.from_monotonic(event.time);
            // A counter of the kernel, recorded once per sample in which it grew.
            let further = tracker.new_duplicates(&event.state);
            seen.events.extend(further.map(|further| (at, further)));
            seen.events.push((at, kind));
            let view = tracker.view(at, &event.state, kind == TcpEvent::TimedOut);
            seen.samples.push(sample(at, &view));
            sampled = at;
            continue;
        }
        let view = tracker.view(now, &probe(stream)?, false);
        if tracker.acknowledged {
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

/// State that is kept between samples.
#[derive(Debug, Default)]
struct ViewTracker {
    /// First unacknowledged sequence number.
    oldest: Option<u64>,
    progress_at: Time,
    /// Whether the timer has expired without an acknowledgement since.
    stalled: bool,
    last: Option<TcpView>,
    /// Whether data was acknowledged since the previous sample, outside of fast recovery. Slow
    /// start after a time-out counts.
    acknowledged: bool,
    /// Number of further duplicates at the last event.
    further: u64,
}

impl ViewTracker {
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
            self.progress_at = now;
            self.stalled = false;
        }
        self.oldest = oldest;
        self.stalled |= timed_out;
        let mss = Bytes(state.get(Variable::Mss).unwrap_or(1));
        let most = mss.scale(MAX_SEGMENTS, 1);
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
            unacked_since: (unacked > Bytes::ZERO).then_some(self.progress_at),
            stalled: self.stalled,
            oldest_sent: None,
            resumed: None,
        };
        *self.last.insert(view)
    }

    /// Returns an event if further duplicates arrived since the last event.
    fn new_duplicates(&mut self, state: &Snapshot) -> Option<TcpEvent> {
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

/// Polling interval.
const GLANCE: Duration = Duration::from_millis(10);
/// Interval between recorded states, as in the simulator.
const SAMPLE: Duration = Duration::from_millis(50);
/// Maximum threshold in segments, for an unset threshold; as in the simulator.
const MAX_SEGMENTS: u64 = 1 << 16;

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
    fn silence_and_timeouts_persist_until_new_data_is_acknowledged() {
        let mut tracker = ViewTracker::default();
        let at = Time::from_millis;
        let view = tracker.view(at(0), &state(1, 1, 1), false);
        assert_eq!(view.unacked_since, None);
        assert_eq!(view.ssthresh, Bytes(65_536_000));
        // Sent after idleness: the silence starts here.
        let view = tracker.view(at(500), &state(1, 5_001, 6_001), false);
        assert_eq!(view.unacked_since, Some(at(500)));
        assert_eq!((view.unacked, view.unsent), (Bytes(5_000), Bytes(1_000)));
        assert!(view.has_room(at(510)));
        let view = tracker.view(at(700), &state(1, 5_001, 6_001), false);
        assert_eq!(view.unacked_since, Some(at(500)));
        assert!(!view.has_room(at(700)));
        assert!(tracker.view(at(800), &state(1, 5_001, 6_001), true).stalled);
        assert!(
            tracker
                .view(at(820), &state(1, 5_001, 6_001), false)
                .stalled
        );
        let view = tracker.view(at(900), &state(2_001, 5_001, 6_001), false);
        assert!(!view.stalled && view.has_room(at(910)) && tracker.acknowledged);
        assert_eq!(view.unacked_since, Some(at(900)));
        let mut later = state(2_001, 5_001, 6_001);
        tracker.view(at(910), &later, false);
        assert!(!tracker.acknowledged);
        // In fast recovery it does not count; in slow start after a time-out it does.
        later.set(Variable::CaState, CaState::Recovery as u64);
        later.set(Variable::SndUna, 3_001);
        tracker.view(at(920), &later, false);
        assert!(!tracker.acknowledged);
        later.set(Variable::CaState, CaState::Loss as u64);
        later.set(Variable::SndUna, 4_001);
        tracker.view(at(930), &later, false);
        assert!(tracker.acknowledged);
    }

    #[test]
    fn further_duplicates_are_reported_when_their_counter_grew() {
        let (mut tracker, mut seen) = (ViewTracker::default(), state(1, 1, 1));
        assert_eq!(tracker.new_duplicates(&seen), None);
        for (count, reported) in [(0, false), (3, true), (3, false), (4, true)] {
            seen.set(Variable::FurtherDuplicates, count);
            assert_eq!(tracker.new_duplicates(&seen).is_some(), reported);
        }
    }
}
