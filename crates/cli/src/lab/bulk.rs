//! The two ends of a transfer over kernel TCP: a `tcp` flow of a scenario.

use core::time::Duration;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use anyhow::{Context as _, Result};
use tidegate_core::units::{Bytes, Time};
use tidegate_live::driver::{RunLimits, StopFlag};
use tidegate_live::tcp::{TcpOptions, TcpSocket, accept};
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::model_flow::Application;
use tidegate_sim::scenario::TcpPlan;
use tidegate_sim::tcp::SourceKind;

use super::kernel::KernelTcp;
use super::netns_pair::{Endpoint, NetnsPair, RECEIVER, SENDER};

/// Starts sender and receiver of a transfer on the hosts of `place`.
///
/// # Errors
/// The receiver cannot listen, or a host cannot be entered.
pub(super) fn endpoints(
    place: &NetnsPair<'_>,
    kernel: KernelTcp,
    plan: TcpPlan,
    flag: &StopFlag,
) -> Result<[Endpoint; 2]> {
    let listener = place.listen(RECEIVER, &kernel)?;
    let receiver = place.inside(RECEIVER, place.stop, move |conditions| {
        receive(&listener, conditions)?;
        Ok(Default::default())
    })?;
    let (instance, peer) = (place.instance.clone(), place.listener_of(RECEIVER));
    let sender = place.inside(SENDER, flag, move |conditions| {
        let done = send(&instance, &kernel, &plan, peer, conditions)?;
        let results = FlowResult {
            done,
            ..FlowResult::default()
        };
        Ok((results, Vec::new()))
    })?;
    Ok([sender, receiver])
}

/// Sends the data of the flow until its stop time. Returns the time, to within a few ms, at which
/// all data was acknowledged. Returns `None` for an unlimited flow and for one that does not
/// complete.
///
/// # Errors
/// The connection failed.
fn send(
    instance: &FlowInstance,
    kernel: &KernelTcp,
    plan: &TcpPlan,
    peer: SocketAddr,
    conditions: &RunLimits,
) -> Result<Option<Time>> {
    let clock = conditions.clock;
    conditions.sleep_until(Time::ZERO + instance.plan.start);
    if conditions.stop.is_set() {
        return Ok(None);
    }
    let end = Time::ZERO + instance.plan.stop;
    let patience = end.since(clock.now()).max(Duration::from_millis(1));
    let Ok(mut stream) = TcpStream::connect_timeout(&peer, patience) else {
        // A modelled flow also reports no result over a dead path.
        return Ok(None);
    };
    let options = TcpOptions {
        // Limits the data that is left to send when the flow stops.
        notsent_lowat: Some(Bytes(CHUNK as u64)),
        ..kernel.options()
    };
    let socket = TcpSocket::new(stream.try_clone()?, &options)?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut left = match plan.amount {
        SourceKind::Bytes(bytes) => bytes,
        _ => u64::MAX,
    };
    let mut writer = Writer::new(plan, Time::ZERO + instance.plan.start);
    let chunk = vec![0; CHUNK];
    let over = || conditions.stop.is_set() || clock.now() >= end;
    while left > 0 && !over() {
        let Some(part) = writer.part(clock.now(), left, &socket)? else {
            std::thread::sleep(GLANCE);
            continue;
        };
        match stream.write(&chunk[..part]) {
            Ok(count) => {
                left -= count as u64;
                writer.on_written(clock.now(), count);
            }
            Err(e) if waits(&e) => {}
            Err(e) => return Err(e).context("sending a bulk transfer failed"),
        }
    }
    while left == 0 && !over() {
        let (unsent, unacknowledged) = socket.backlog()?;
        if unsent + unacknowledged == Bytes(0) {
            return Ok(Some(clock.now()));
        }
        std::thread::sleep(GLANCE);
    }
    Ok(None)
}

/// Sizes and times of the writes.
#[derive(Debug)]
struct Writer {
    /// Demand of the application and size of the send buffer, if the plan has them.
    application: Option<Application>,
    buffer: Option<Bytes>,
    /// Size of a write: one segment of the application, or a chunk.
    payload: usize,
    /// Bytes of the current segment that are not yet written.
    rest: usize,
}

impl Writer {
    fn new(plan: &TcpPlan, start: Time) -> Self {
        let socket = plan.socket.as_ref();
        let demand = socket.and_then(|socket| socket.demand.as_ref());
        Self {
            application: demand.map(|rate| Application::of(rate, start, plan.packet_size())),
            buffer: socket.map(|socket| socket.buffer),
            payload: match socket {
                Some(_) => plan.payload().get() as usize,
                None => CHUNK,
            },
            rest: 0,
        }
    }

    /// Number of bytes, at most `left`, that may be written now. `None` while the write must wait
    /// for the application or for buffer space.
    fn part(&mut self, now: Time, left: u64, socket: &TcpSocket) -> io::Result<Option<usize>> {
        let most = |part: usize| usize::try_from(left).map_or(part, |left| left.min(part));
        if self.rest > 0 {
            return Ok(Some(most(self.rest)));
        }
        let part = most(self.payload);
        if let Some(application) = &mut self.application
            && application.ready(now).is_none_or(|at| at > now)
        {
            return Ok(None);
        }
        if let Some(buffer) = self.buffer {
            let (unsent, unacknowledged) = socket.backlog()?;
            if unsent + unacknowledged + Bytes(part as u64) > buffer {
                return Ok(None);
            }
        }
        Ok(Some(part))
    }

    fn on_written(&mut self, now: Time, count: usize) {
        let Some(application) = &mut self.application else {
            return;
        };
        if self.rest == 0 {
            application.take(now);
            self.rest = self.payload;
        }
        self.rest = self.rest.saturating_sub(count);
    }
}

/// Reads and discards the data of one sender.
///
/// # Errors
/// The connection failed.
fn receive(listener: &TcpListener, conditions: &RunLimits) -> Result<()> {
    let end = conditions.until.unwrap_or(Time::FAR);
    let over = || conditions.stop.is_set() || conditions.clock.now() >= end;
    let Some((mut stream, _)) = accept(listener, conditions, over)? else {
        return Ok(());
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; 1 << 16];
    while !over() {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Err(e) if !waits(&e) => return Err(e).context("receiving a bulk transfer failed"),
            _ => {}
        }
    }
    Ok(())
}

fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Size of a write.
const CHUNK: usize = 1 << 16;
/// Polling interval of a writer that waits for the application or for buffer space.
const GLANCE: Duration = Duration::from_micros(500);
/// Socket timeout, after which the stop flag is checked.
const PATIENCE: Duration = Duration::from_millis(50);
