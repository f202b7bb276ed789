//! A TCP transfer of our own, over an emulated path or to a host.

use std::io::{self, Read as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidegate_core::link::{Capacity, DropTailConfig, LinkConfig, LossConfig, Outage, QueueConfig};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_kernel::{Events, set_congestion_control};
use tidegate_live::emulator::{Emulator, EmulatorConfig, Host};

/// What the path is like.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) rate: Rate,
    /// One way.
    pub(super) delay: Duration,
    pub(super) queue: Bytes,
    pub(super) loss: f64,
    /// From and to, after the start.
    pub(super) outage: Option<(Duration, Duration)>,
    pub(super) seed: Seed,
}

/// A connection, and what is at its other end.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Arc<TcpStream>,
    sink: Option<(Emulator, JoinHandle<()>)>,
}

impl Connection {
    /// Over an emulated path between two namespaces.
    pub(super) fn emulated(path: &Path, congestion: Option<&str>) -> Result<Self> {
        let emulator = Emulator::start(&path.config())?;
        let listen = || TcpListener::bind((Host::B.address(), PORT));
        let listener = emulator.namespace(Host::B).within(listen)?;
        let listener = listener.context("the receiver cannot listen")?;
        let sink = thread::spawn(move || swallow(&listener));
        let connect = || -> io::Result<TcpStream> {
            let stream = TcpStream::connect((Host::B.address(), PORT))?;
            choose(&stream, congestion)?;
            Ok(stream)
        };
        let stream = emulator.namespace(Host::A).within(connect)?;
        let stream = stream.with_context(|| why(congestion))?;
        Ok(Self {
            stream: Arc::new(stream),
            sink: Some((emulator, sink)),
        })
    }

    /// To a host that swallows what it gets.
    pub(super) fn to(host: &str, congestion: Option<&str>) -> Result<Self> {
        let stream =
            TcpStream::connect(host).with_context(|| format!("{host} cannot be reached"))?;
        choose(&stream, congestion).with_context(|| why(congestion))?;
        Ok(Self {
            stream: Arc::new(stream),
            sink: None,
        })
    }

    /// Does something in the network namespace of the connection: without privilege, only who is
    /// there sees its timers.
    pub(super) fn inside<T: Send>(&self, job: impl FnOnce() -> T + Send) -> Result<T> {
        match &self.sink {
            Some((emulator, _)) => Ok(emulator.namespace(Host::A).within(job)?),
            None => Ok(job()),
        }
    }

    /// Writes on a thread of its own until the time is over: as much as goes, or at a rate.
    pub(super) fn write(
        &self,
        events: &Arc<Events>,
        rate: Option<Rate>,
        span: Duration,
        stop: &Arc<AtomicBool>,
    ) -> JoinHandle<io::Result<u64>> {
        let (stream, events, stop) = (
            Arc::clone(&self.stream),
            Arc::clone(events),
            Arc::clone(stop),
        );
        thread::spawn(move || {
            let (start, chunk) = (Instant::now(), vec![0_u8; CHUNK]);
            let mut written = 0;
            while start.elapsed() < span && !stop.load(Ordering::Relaxed) {
                if let Some(rate) = rate {
                    let due = Bytes(written) / rate;
                    thread::sleep(due.saturating_sub(start.elapsed()));
                }
                match events.write(&*stream, &chunk) {
                    Ok(many) => written += many as u64,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(written)
        })
    }

    /// Ends the path and waits for the other end.
    pub(super) fn end(self) -> Result<()> {
        drop(self.stream);
        if let Some((emulator, sink)) = self.sink {
            let report = emulator.stop()?.0;
            if !report.kept_up {
                eprintln!(
                    "events: the emulator did not keep up, so the path was not quite as asked"
                );
            }
            // Without the path it hears of nothing more.
            drop(sink);
        }
        Ok(())
    }
}

impl Path {
    fn config(&self) -> EmulatorConfig {
        let outage = |&(from, to): &(Duration, Duration)| Outage {
            from: Time::ZERO + from,
            to: Time::ZERO + to,
        };
        let there = LinkConfig {
            capacity: Capacity::Fixed(self.rate),
            queue: QueueConfig::DropTail(DropTailConfig::bytes(self.queue)),
            outages: self.outage.iter().map(outage).collect(),
            loss: LossConfig::Bernoulli(self.loss),
            delay: self.delay,
            jitter: None,
        };
        let back = LinkConfig {
            delay: self.delay,
            ..LinkConfig::default()
        };
        EmulatorConfig {
            seed: self.seed,
            ..EmulatorConfig::path(there, back)
        }
    }
}

/// Takes one connection and all that it brings.
fn swallow(listener: &TcpListener) {
    let Ok((mut stream, _)) = listener.accept() else {
        return;
    };
    let mut buffer = vec![0; 1 << 16];
    while stream.read(&mut buffer).is_ok_and(|many| many > 0) {}
}

fn choose(stream: &TcpStream, congestion: Option<&str>) -> io::Result<()> {
    congestion.map_or(Ok(()), |name| set_congestion_control(stream, name))
}

fn why(congestion: Option<&str>) -> String {
    match congestion {
        Some(name) => format!(
            "no connection with congestion control `{name}` (see the sysctl net.ipv4.tcp_available_congestion_control)"
        ),
        None => "no connection".into(),
    }
}

const PORT: u16 = 5_001;
const CHUNK: usize = 16 << 10;
