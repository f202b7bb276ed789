//! One session of a driver.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use rand_core::Rng;
use tidegate_core::control::Context;
use tidegate_core::endpoint::{Endpoint, Input, Output, StreamInput};
use tidegate_core::trace::Trace;
use tidegate_core::units::Time;

use super::{DriveError, DriverReport, EndReason, RunLimits, StopFlag, TICK};
use crate::clock::Clock;
use crate::transport::{Failure, Transport};

/// What the sessions of a driver share.
pub(super) struct Shared<'a> {
    pub(super) clock: Clock,
    pub(super) rng: &'a mut dyn Rng,
    pub(super) trace: &'a mut dyn Trace,
    pub(super) outgoing: Vec<u8>,
    pub(super) incoming: Vec<u8>,
}

/// An endpoint with its transport.
#[derive(Debug)]
pub(super) struct Session<E, T> {
    pub(super) endpoint: E,
    pub(super) transport: T,
    /// Wakes this session alone.
    pub(super) wake: Option<StopFlag>,
    /// Time of the last input. The arrival time of a datagram may precede a timeout that is already
    /// processed, but the time of the endpoint must not decrease.
    now: Time,
    /// The output with which the last poll of the endpoint ended; `None` before the first.
    last: Option<Output>,
    /// Another thread has woken the session since its last turn.
    is_woken: bool,
    /// The transport is broken.
    failure: Option<DriveError>,
    /// The event queue reports when the transport has room.
    pub(super) awaits_room: bool,
    counts: Counts,
    /// Refusals before the first received datagram.
    refusals: Refusals,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: u64,
    received: u64,
    failures: u64,
}

impl<E: Endpoint, T: Transport> Session<E, T> {
    pub(super) fn new(endpoint: E, transport: T, wake: Option<StopFlag>, now: Time) -> Self {
        Self {
            endpoint,
            transport,
            wake,
            now,
            last: None,
            is_woken: false,
            failure: None,
            awaits_room: false,
            counts: Counts::default(),
            refusals: Refusals::default(),
        }
    }

    /// Asks the application, and processes the timer of the endpoint if it is due. Returns the result
    /// of a session that has ended.
    pub(super) fn step(
        &mut self,
        shared: &mut Shared<'_>,
        limits: &RunLimits,
        on_turn: impl FnOnce(&mut E, Time) -> ControlFlow<()>,
    ) -> Result<Option<EndReason>, DriveError> {
        self.advance(shared.clock.now());
        self.read_state(shared)?;
        if self.last.is_none() {
            self.drain(shared)?;
            // The peer may have ended the session before its turn.
            self.hear(shared, 0)?;
        }
        // First, so that a change by the application applies to a picture that is due.
        let asked = on_turn(&mut self.endpoint, self.now).is_break();
        self.advance(shared.clock.now());
        if self.transport.timer().is_some_and(|at| at <= self.now) {
            let ticked = self.transport.on_timer(self.now);
            self.settle(shared, ticked)?;
        }
        if core::mem::take(&mut self.is_woken) || self.timer() <= self.now {
            let (mut cx, endpoint) = self.cx(shared);
            endpoint.handle(&mut cx, Input::Timeout);
        }
        self.drain(shared)?;
        Ok(match self.failure.take() {
            _ if self.last.is_some_and(Output::is_done) => Some(EndReason::Done),
            _ if asked => Some(EndReason::Callback),
            _ if limits.stop.is_set() => Some(EndReason::Stopped),
            Some(failure) => return Err(failure),
            None if limits.until.is_some_and(|until| self.now >= until) => {
                Some(EndReason::TimeOver)
            }
            None => None,
        })
    }

    /// Time of the next [`step`](Self::step) without other inputs.
    pub(super) fn next_step(&self, limits: &RunLimits) -> Time {
        let until = limits.until.unwrap_or(Time::FAR);
        let wait = match self.last {
            Some(Output::WaitForRoom(_)) => ROOM,
            _ => TICK,
        };
        let own = self.transport.timer().unwrap_or(Time::FAR);
        self.timer().min(own).min(self.now + wait).min(until)
    }

    pub(super) fn report(&self, why: EndReason) -> DriverReport {
        let Counts {
            sent,
            received,
            failures,
        } = self.counts;
        DriverReport {
            why,
            sent,
            received,
            failures,
            refused: received == 0 && self.refusals.are_final(self.now),
        }
    }

    /// Reads up to [`BATCH`] inputs of a source. The event queue is level-triggered and reports the
    /// rest.
    pub(super) fn hear(
        &mut self,
        shared: &mut Shared<'_>,
        source: usize,
    ) -> Result<(), DriveError> {
        for _ in 0..BATCH {
            match self.receive(shared, source) {
                // The source of an answer is that of the last datagram.
                Ok(true) => self.drain(shared)?,
                Ok(false) => break,
                Err(failure) => self.fail(shared, failure)?,
            }
            if self.failure.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Passes the next input of a source to the endpoint. Returns whether there was one.
    fn receive(&mut self, shared: &mut Shared<'_>, source: usize) -> Result<bool, Failure> {
        let Shared {
            clock,
            rng,
            trace,
            incoming,
            ..
        } = shared;
        let Some(received) = self.transport.receive(source, *clock, incoming)? else {
            return Ok(false);
        };
        self.now = self.now.max(received.at);
        self.counts.received += 1;
        let mut cx = Context {
            now: self.now,
            rng: *rng,
            trace: *trace,
        };
        if received.is_new_peer {
            self.endpoint.handle(&mut cx, Input::PeerChanged);
        }
        let check = self.endpoint.handle(&mut cx, received.input);
        self.transport.on_check(check);
        Ok(true)
    }

    /// Passes the state of the transport to the endpoint.
    fn read_state(&mut self, shared: &mut Shared<'_>) -> Result<(), DriveError> {
        let read = loop {
            match self.transport.poll_state(self.now) {
                Ok(Some(input)) => {
                    let mut cx = Context {
                        now: self.now,
                        rng: shared.rng,
                        trace: shared.trace,
                    };
                    self.endpoint.handle(&mut cx, input);
                }
                Ok(None) => break Ok(()),
                Err(failure) => break Err(failure),
            }
        };
        self.settle(shared, read)
    }

    /// Another thread has woken this session.
    pub(super) fn wake_up(&mut self) {
        if let Some(wake) = &self.wake {
            wake.clear_wake();
        }
        self.is_woken = true;
    }

    /// Sends the datagrams or the bytes of the endpoint. The time of each poll is taken right before it:
    /// a time of arrival, or one from before another datagram was sent, would make the delay of the path
    /// look longer by the time in which the system ran another process.
    fn drain(&mut self, shared: &mut Shared<'_>) -> Result<(), DriveError> {
        let mut buffer = core::mem::take(&mut shared.outgoing);
        let result = loop {
            buffer.clear();
            self.advance(shared.clock.now());
            let (mut cx, endpoint) = self.cx(shared);
            let output = endpoint.poll(&mut cx, &mut buffer);
            let sent = match output {
                Output::Write => self.write(shared, &buffer),
                output if output.transmit().is_some() => self.send(shared, output, &buffer),
                output => {
                    self.last = Some(output);
                    break Ok(());
                }
            };
            if let Err(e) = sent {
                break Err(e);
            }
        };
        shared.outgoing = buffer;
        result
    }

    fn send(
        &mut self,
        shared: &mut Shared<'_>,
        output: Output,
        payload: &[u8],
    ) -> Result<(), DriveError> {
        match self.transport.transmit(output, payload) {
            Ok(_) => self.counts.sent += 1,
            // It concerns the source of one datagram only, which need not exist.
            Err(Failure::Lost(_)) if output == Output::Answer => self.counts.failures += 1,
            Err(Failure::Lost(e)) if e.raw_os_error() == Some(libc::EMSGSIZE) => {
                let length = payload.len();
                return Err(DriveError::TooLarge { length });
            }
            Err(failure) => self.fail(shared, failure)?,
        }
        Ok(())
    }

    fn write(&mut self, shared: &mut Shared<'_>, bytes: &[u8]) -> Result<(), DriveError> {
        match self.transport.transmit(Output::Write, bytes) {
            Ok(count) => {
                let (mut cx, endpoint) = self.cx(shared);
                endpoint.handle(&mut cx, Input::Stream(StreamInput::Written(count)));
                self.read_state(shared)
            }
            Err(failure) => {
                // The peer may have ended the session before the stream broke.
                while let Ok(true) = self.receive(shared, 0) {}
                self.fail(shared, failure)
            }
        }
    }

    fn settle(
        &mut self,
        shared: &mut Shared<'_>,
        result: Result<(), Failure>,
    ) -> Result<(), DriveError> {
        result.or_else(|failure| self.fail(shared, failure))
    }

    /// The first break of a transport ends the session, unless the endpoint is done by then.
    fn fail(&mut self, shared: &mut Shared<'_>, failure: Failure) -> Result<(), DriveError> {
        match failure {
            Failure::Lost(cause) => self.on_failure(shared, cause),
            Failure::Broken(cause) => {
                self.failure.get_or_insert(DriveError::Broken(cause));
                let (mut cx, endpoint) = self.cx(shared);
                endpoint.handle(&mut cx, Input::Stream(StreamInput::Closed));
                Ok(())
            }
        }
    }

    /// A datagram that could not be sent, or was refused, counts as lost. It is an error if no
    /// datagram was ever received and the failures persist for [`REFUSALS`].
    fn on_failure(&mut self, shared: &Shared<'_>, cause: io::Error) -> Result<(), DriveError> {
        self.counts.failures += 1;
        let peer: Option<SocketAddr> = self.transport.peer();
        let Some(peer) = peer.filter(|_| self.counts.received == 0) else {
            return Ok(());
        };
        if matches!(
            cause.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
        ) {
            return Ok(());
        }
        if self.refusals.add(shared.clock.now()) < REFUSALS {
            return Ok(());
        }
        Err(match cause.kind() {
            io::ErrorKind::ConnectionRefused => DriveError::ConnectionRefused { peer },
            _ => DriveError::Unreachable { peer, cause },
        })
    }

    fn timer(&self) -> Time {
        let timer = self.last.and_then(Output::timer);
        timer.map_or(Time::FAR, |(at, _)| at)
    }

    fn advance(&mut self, to: Time) {
        self.now = self.now.max(to);
    }

    fn cx<'a>(&'a mut self, shared: &'a mut Shared<'_>) -> (Context<'a>, &'a mut E) {
        let cx = Context {
            now: self.now,
            rng: shared.rng,
            trace: shared.trace,
        };
        (cx, &mut self.endpoint)
    }
}

/// First and last time of the present series of refused datagrams.
#[derive(Clone, Copy, Debug, Default)]
struct Refusals(Option<(Time, Time)>);

impl Refusals {
    /// Adds a refusal, and returns the duration of the series.
    fn add(&mut self, now: Time) -> Duration {
        let row = self.0.filter(|_| self.go_on(now));
        let (first, _) = row.unwrap_or((now, now));
        self.0 = Some((first, now));
        now.since(first)
    }

    fn go_on(self, now: Time) -> bool {
        self.0.is_some_and(|(_, last)| now.since(last) < LULL)
    }

    /// Whether they explain the end at `now`. A receiver may leave at the first of several BYEs.
    fn are_final(self, now: Time) -> bool {
        let began = self.0.filter(|_| self.go_on(now));
        began.is_some_and(|(first, _)| now.since(first) > FAREWELL)
    }
}

/// Duration of refusals after which the driver fails. A receiver may start slightly later than its
/// sender.
pub(super) const REFUSALS: Duration = Duration::from_secs(3);
/// Maximum gap within a series of refusals. A Linux host sends one ICMP error per second.
const LULL: Duration = Duration::from_secs(2);
/// Longer than the time from the first to the last BYE of a sender.
const FAREWELL: Duration = Duration::from_millis(300);
/// Reading takes about 5 µs per datagram. After this many, a paced packet may be due.
const BATCH: usize = 32;
/// Polling interval while a frame waits for room. The system does not notify of acknowledgements, and
/// a poll costs a few microseconds.
const ROOM: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_refusals_ends_after_a_gap() {
        let mut refusals = Refusals::default();
        let (start, ms) = (Time::from_secs(9), Duration::from_millis);
        assert!(!refusals.go_on(start));
        assert_eq!(refusals.add(start), Duration::ZERO);
        assert_eq!(refusals.add(start + ms(1_999)), ms(1_999));
        let next = start + ms(1_999) + LULL;
        assert!(refusals.go_on(start + ms(1_998) + LULL) && !refusals.go_on(next));
        assert_eq!(refusals.add(next), Duration::ZERO);
        assert_eq!(refusals.add(next + ms(5)), ms(5));
    }
}
