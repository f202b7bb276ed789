//! The two ends of a video over kernel TCP.

use core::iter::from_fn;
use core::time::Duration;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use tidegate_core::session::tcp::{TcpReceiver, TcpStreamer};
use tidegate_core::tcp_rate::Mode;
use tidegate_core::trace::Event;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::ntp::Ntp;
use tidegate_kernel::{Connection, Events};
use tidegate_live::driver::RunLimits;
use tidegate_live::encoder_thread::EncoderThread;
use tidegate_live::tcp::{self, TcpError, TcpOptions, TcpSocket};
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::interactive::{Record, StreamPlan};
use tidegate_sim::scenario::VideoPlan;

use super::kernel::KernelTcp;
use super::netns_pair::TimedEvents;
use super::records::Records;
use super::service::Service;
use super::tcp_sampler::TcpSampler;
use crate::tcp::watch::KernelWatch;

/// A sender before the start of the clock.
#[derive(Debug)]
pub(super) struct Sender {
    streamer: TcpStreamer<EncoderThread>,
    options: TcpOptions,
    mode: Mode,
    start: Time,
    interval: Duration,
    first_target: Rate,
}

impl Sender {
    /// Creates the sender for the video of `instance` over `kernel`.
    pub(super) fn new(
        instance: &FlowInstance,
        video: &VideoPlan,
        plan: &StreamPlan,
        kernel: &KernelTcp,
        encoder: EncoderThread,
    ) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let epoch = Ntp::from_unix(since_1970.unwrap_or_default());
        let sender = plan.sender(&instance.plan, video, epoch);
        Self {
            start: Time::ZERO + instance.plan.start,
            first_target: sender.target(),
            streamer: TcpStreamer::new(sender, encoder),
            options: kernel.options(),
            mode: plan.mode,
            interval: video.frame_rate.interval(),
        }
    }

    /// How the application responds to events.
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Connects to `peer`, sends all frames, and waits until all data is acknowledged or the stop
    /// flag is set.
    ///
    /// # Errors
    /// The connection, the encoder or the event service failed.
    pub(super) fn play(
        mut self,
        peer: SocketAddr,
        conditions: &RunLimits,
        sources: Sources,
        records: &Records,
    ) -> Result<(FlowResult, TimedEvents)> {
        let clock = conditions.clock;
        conditions.sleep_until(self.start);
        if conditions.stop.is_set() {
            // The receiver may have ended already.
            return Ok(self.finish(clock.now(), Record::default(), records));
        }
        let end = conditions.until.unwrap_or(Time::FAR);
        let patience = end.since(clock.now()).max(Duration::from_millis(1));
        let stream = TcpStream::connect_timeout(&peer, patience)
            .context("cannot connect to the receiver")?;
        let watch = TcpSampler::start(sources.watch, &stream, clock)?;
        let shared = watch.shared();
        let mut socket = TcpSocket::new(stream, &self.options)?;
        if let Some(events) = sources.sender {
            let subscribed = self.streamer.sender.subscribed();
            let connection = Connection::new(events, &socket, subscribed)?;
            socket.set_watch(Box::new(KernelWatch {
                connection,
                fallback: None,
            }));
        }
        std::thread::sleep(clock.until(self.first_picture(clock.now())));
        let streamer = &mut self.streamer;
        tcp::drive(streamer, &mut socket, conditions, |streamer, _| {
            let waits = streamer.sender.backlog().queued > Bytes(0);
            shared.waiting.store(waits, Ordering::Relaxed);
            records.with(|results, said| streamer.sender.drain(&mut results.sent, said));
            ControlFlow::Continue(())
        })?;
        while !conditions.stop.is_set() && clock.now() < end {
            let (unsent, unacknowledged) = socket.backlog()?;
            if unsent + unacknowledged == Bytes(0) {
                break;
            }
            std::thread::sleep(GLANCE);
        }
        let mut record = Record::default();
        watch.finish(&mut record)?;
        if let Some(error) = streamer.error() {
            return Err(error.clone().into());
        }
        Ok(self.finish(clock.now(), record, records))
    }

    /// Time of the next frame of a camera that started with the flow. Connecting and subscribing
    /// take time, which must not shift the frames relative to the path's outages.
    fn first_picture(&self, now: Time) -> Time {
        let gone = now.since(self.start).as_nanos();
        self.start + self.interval * gone.div_ceil(self.interval.as_nanos().max(1)) as u32
    }

    fn finish(
        mut self,
        now: Time,
        mut record: Record,
        records: &Records,
    ) -> (FlowResult, TimedEvents) {
        let (mut results, mut said) = records.take();
        let sender = &mut self.streamer.sender;
        sender.on_closed(now);
        sender.drain(&mut results.sent, &mut said);
        results.sent.sort_by_key(|row| row.frame);
        record.note_frames(&results.sent);
        record.rate_reductions = sender.take_rate_reductions();
        let transport = |(_, event): &&(Time, Event)| matches!(event, Event::Transport { .. });
        record.delivered = said.iter().filter(transport).count() as u64;
        record.targets.push((self.start, self.first_target));
        let changes = said.iter().filter_map(|(at, event)| match event {
            Event::RateChanged { to, .. } => Some((*at, *to)),
            _ => None,
        });
        record.targets.extend(changes);
        results.stream = Some(record);
        (results, said)
    }
}

/// Event sources of a sender.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Events for the sender, if its mode uses events.
    sender: Option<Events>,
    /// Events for the sampler.
    watch: Option<Events>,
}

impl Sources {
    /// Opens the sources for a sender in `mode`. Without a service, the sender uses the events that
    /// an unprivileged process can observe.
    ///
    /// # Errors
    /// The service has ended, or a system call failed.
    pub(super) fn open(service: Option<&Service>, mode: Mode) -> Result<Self> {
        let uses_events = mode != Mode::Classic;
        Ok(match service {
            Some(service) => Self {
                sender: uses_events.then(|| service.open()).transpose()?,
                watch: Some(service.open()?),
            },
            None => Self {
                sender: uses_events.then(Events::unprivileged).transpose()?,
                watch: None,
            },
        })
    }
}

/// Receives the stream of one sender.
///
/// # Errors
/// The connection failed, or the stream is invalid.
pub(super) fn receive(
    listener: &TcpListener,
    conditions: &RunLimits,
    records: &Records,
) -> Result<(FlowResult, TimedEvents)> {
    // Outlives the sender, which would report a closed connection as an error.
    let end = conditions.until.map_or(Time::FAR, |until| until + LAST);
    let conditions = &RunLimits {
        until: Some(end),
        ..conditions.clone()
    };
    let over = || conditions.clock.now() >= end;
    let Some((stream, peer)) = tcp::accept(listener, conditions, over)? else {
        return Ok(records.take());
    };
    let mut socket = TcpSocket::of_peer(stream, peer, &TcpOptions::default())?;
    let mut receiver = TcpReceiver::new();
    let fetch = |receiver: &mut TcpReceiver| {
        records.with(|results, _| results.received.extend(from_fn(|| receiver.poll_frame())));
    };
    let received = tcp::receive(&mut receiver, &mut socket, conditions, |receiver, _| {
        fetch(receiver);
        ControlFlow::Continue(())
    });
    match received {
        // A stopped sender closes without a goodbye, or before it has sent any data.
        Ok(_) | Err(TcpError::Closed { .. } | TcpError::Silent { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    receiver.finish();
    fetch(&mut receiver);
    Ok(records.take())
}

/// Time that a receiver continues after the end of its sender.
const LAST: Duration = Duration::from_millis(300);
const GLANCE: Duration = Duration::from_millis(10);
