//! One session of a driver.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use rand_core::Rng;
use tidegate_core::control::Context;
use tidegate_core::endpoint::{Datagram, Endpoint, Input, Output};
use tidegate_core::trace::Trace;
use tidegate_core::units::Time;

use super::{DriveError, DriverReport, EndReason, RunLimits, StopFlag, TICK};
use crate::clock::Clock;
use crate::transport::{Arrival, Transport};

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
            counts: Counts::default(),
            refusals: Refusals::default(),
        }
    }

    /// Processes the timer of the endpoint, if it is due, and asks the application. Returns the
    /// result of a session that has ended.
    pub(super) fn step(
        &mut self,
        shared: &mut Shared<'_>,
        limits: &RunLimits,
        on_turn: impl FnOnce(&mut E, Time) -> ControlFlow<()>,
    ) -> Result<Option<EndReason>, DriveError> {
        if self.last.is_none() {
            self.drain(shared)?;
        }
        if self.timer() <= shared.clock.now() {
            self.time_out(shared)?;
        }
        self.advance(shared.clock.now());
        let asked = on_turn(&mut self.endpoint, self.now).is_break();
        // The application may have changed the endpoint.
        self.drain(shared)?;
        Ok(match () {
            () if self.last.is_some_and(Output::is_done) => Some(EndReason::Done),
            () if asked => Some(EndReason::Callback),
            () if limits.stop.is_set() => Some(EndReason::Stopped),
            () if limits.until.is_some_and(|until| self.now >= until) => Some(EndReason::TimeOver),
            () => None,
        })
    }

    /// Time of the next [`step`](Self::step) without other inputs.
    pub(super) fn next_step(&self, limits: &RunLimits) -> Time {
        let until = limits.until.unwrap_or(Time::FAR);
        self.timer().min(self.now + TICK).min(until)
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

    /// Reads up to [`BATCH`] datagrams of a source. The event queue is level-triggered and reports the
    /// rest.
    pub(super) fn hear(
        &mut self,
        shared: &mut Shared<'_>,
        source: usize,
    ) -> Result<(), DriveError> {
        let mut buffer = core::mem::take(&mut shared.incoming);
        let mut result = Ok(());
        for _ in 0..BATCH {
            result = match self.transport.receive(source, shared.clock, &mut buffer) {
                Ok(Some(arrival)) => self.on_arrival(shared, arrival, &buffer),
                Ok(None) => break,
                Err(e) => self.on_failure(shared, e),
            };
            if result.is_err() {
                break;
            }
        }
        shared.incoming = buffer;
        result
    }

    fn on_arrival(
        &mut self,
        shared: &mut Shared<'_>,
        arrival: Arrival,
        buffer: &[u8],
    ) -> Result<(), DriveError> {
        self.advance(arrival.at);
        self.counts.received += 1;
        let payload = &buffer[..arrival.length];
        let (mut cx, endpoint) = self.cx(shared);
        if arrival.is_new_peer {
            endpoint.handle(&mut cx, Input::PeerChanged);
        }
        let Arrival { ecn, dscp, .. } = arrival;
        let datagram = Datagram { ecn, dscp, payload };
        let check = endpoint.handle(&mut cx, Input::Datagram(datagram));
        self.transport.on_check(check, payload);
        self.drain(shared)
    }

    /// Another thread has woken this session.
    pub(super) fn wake_up(&mut self, shared: &mut Shared<'_>) -> Result<(), DriveError> {
        if let Some(wake) = &self.wake {
            wake.clear_wake();
        }
        self.time_out(shared)
    }

    pub(super) fn time_out(&mut self, shared: &mut Shared<'_>) -> Result<(), DriveError> {
        self.advance(shared.clock.now());
        let (mut cx, endpoint) = self.cx(shared);
        endpoint.handle(&mut cx, Input::Timeout);
        self.drain(shared)
    }

    /// Sends the datagrams of the endpoint. The time of each poll is taken right before it: a time of
    /// arrival, or one from before another datagram was sent, would make the delay of the path look
    /// longer by the time in which the system ran another process.
    fn drain(&mut self, shared: &mut Shared<'_>) -> Result<(), DriveError> {
        let mut buffer = core::mem::take(&mut shared.outgoing);
        let result = loop {
            buffer.clear();
            self.advance(shared.clock.now());
            let (mut cx, endpoint) = self.cx(shared);
            let output = endpoint.poll(&mut cx, &mut buffer);
            if output.transmit().is_none() {
                self.last = Some(output);
                break Ok(());
            }
            if let Err(e) = self.send(shared, output, &buffer) {
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
            Ok(()) => self.counts.sent += 1,
            // It concerns the source of one datagram only, which need not exist.
            Err(_) if output == Output::Answer => self.counts.failures += 1,
            Err(e) if e.raw_os_error() == Some(libc::EMSGSIZE) => {
                let length = payload.len();
                return Err(DriveError::TooLarge { length });
            }
            Err(e) => self.on_failure(shared, e)?,
        }
        Ok(())
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
