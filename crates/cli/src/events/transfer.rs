//! A TCP transfer of our own, over an emulated path or to a host.

use std::io::{self, Read as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use tidegate_core::link::{Capacity, DropTailConfig, LinkConfig, LossConfig, Outage, QueueConfig};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_kernel::{Events, set_congestion_control};
use tidegate_live::clock::Clock;
use tidegate_live::driver::{Conditions, Interrupts, StopFlag};
use tidegate_live::emulator::{Emulator, EmulatorConfig, Host};

use crate::tcp::ends;
use tidegate_console::progress::say;

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

/// How long a connection may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience<'a> {
    pub(super) interrupts: &'a Interrupts,
    pub(super) span: Duration,
}

impl Patience<'_> {
    /// What comes of an attempt to connect; `None` after Ctrl-C.
    fn wait(self, attempt: &Receiver<Result<TcpStream>>) -> Result<Option<TcpStream>> {
        let end = Instant::now() + self.span;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match attempt.recv_timeout(left.min(GLANCE)) {
                Ok(stream) => return stream.map(Some),
                Err(_) if self.interrupts.count() > 0 => return Ok(None),
                Err(RecvTimeoutError::Timeout) if left > GLANCE => {}
                Err(RecvTimeoutError::Timeout) => bail!(
                    "no connection within {:?}: give it more time with --for, or a path that carries something",
                    self.span
                ),
                Err(RecvTimeoutError::Disconnected) => bail!("the attempt to connect broke off"),
            }
        }
    }
}

impl Connection {
    /// Over an emulated path between two namespaces; `None` after Ctrl-C.
    pub(super) fn emulated(
        path: &Path,
        congestion: Option<&str>,
        patience: Patience<'_>,
    ) -> Result<Option<Self>> {
        let emulator = Emulator::start(&path.config())?;
        let listen = || TcpListener::bind((Host::B.address(), PORT));
        let listener = emulator.namespace(Host::B).within(listen)?;
        let listener = listener.context("the receiver cannot listen")?;
        let sink = thread::spawn(move || swallow(&listener));
        let (answer, attempt) = mpsc::channel();
        let connect = move || {
            let stream = TcpStream::connect((Host::B.address(), PORT)).context("no connection");
            // Nobody hears it who has given up.
            let _ = answer.send(stream);
        };
        // If it takes too long it is left to itself.
        let _ = emulator.namespace(Host::A).run(connect)?;
        Self::made(&attempt, congestion, patience, Some((emulator, sink)))
    }

    /// To a host that swallows what it gets; `None` after Ctrl-C.
    pub(super) fn to(
        host: String,
        congestion: Option<&str>,
        patience: Patience<'_>,
    ) -> Result<Option<Self>> {
        let (answer, attempt) = mpsc::channel();
        let conditions = Conditions {
            clock: Clock::start(),
            until: None,
            stop: StopFlag::new().context("no event to wake a connection by")?,
        };
        let connect = move || {
            let stream = ends::connect_to(&host, &conditions, || false);
            let (stream, _) = stream?.context("the attempt to connect broke off")?;
            Ok(stream)
        };
        // As above.
        thread::spawn(move || drop(answer.send(connect())));
        Self::made(&attempt, congestion, patience, None)
    }

    fn made(
        attempt: &Receiver<Result<TcpStream>>,
        congestion: Option<&str>,
        patience: Patience<'_>,
        sink: Option<(Emulator, JoinHandle<()>)>,
    ) -> Result<Option<Self>> {
        let Some(stream) = patience.wait(attempt)? else {
            return Ok(None);
        };
        if let Some(name) = congestion {
            set_congestion_control(&stream, name).with_context(|| why(name))?;
        }
        let stream = Arc::new(stream);
        Ok(Some(Self { stream, sink }))
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
    ) -> Transfer {
        let (goes_on, asked) = mpsc::channel();
        let order = Order { rate, span, asked };
        let (stream, events) = (Arc::clone(&self.stream), Arc::clone(events));
        let writer = thread::spawn(move || order.carry_out(&stream, &events));
        Transfer {
            stream: Arc::clone(&self.stream),
            end: Instant::now() + span,
            goes_on: Some(goes_on),
            writer,
        }
    }

    /// Ends the path and waits for the other end.
    pub(super) fn end(self) -> Result<()> {
        drop(self.stream);
        if let Some((emulator, sink)) = self.sink {
            let report = emulator.stop()?.0;
            if !report.kept_up {
                say("events: the emulator did not keep up, so the path was not quite as asked");
            }
            // Without the path it hears of nothing more.
            drop(sink);
        }
        Ok(())
    }
}

/// Data on their way.
#[derive(Debug)]
pub(super) struct Transfer {
    stream: Arc<TcpStream>,
    end: Instant,
    /// Until it is to end.
    goes_on: Option<Sender<()>>,
    writer: JoinHandle<io::Result<u64>>,
}

impl Transfer {
    /// Whether it has ended. To be asked now and then, since it does not end before that where the
    /// other end takes nothing.
    pub(super) fn is_over(&mut self) -> bool {
        let is_over = self.writer.is_finished();
        if !is_over && Instant::now() >= self.end {
            self.stop();
        }
        is_over
    }

    /// Ends it, whatever it waits for.
    pub(super) fn stop(&mut self) {
        if let Some(goes_on) = self.goes_on.take() {
            // First, so that the writer knows why it fails.
            drop(goes_on);
            // It fails where there is no connection any more, and then nobody waits for it.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    /// How many bytes were written.
    pub(super) fn written(self) -> Result<u64> {
        let written = self.writer.join().expect("the writer does not panic");
        // As words: an error of the system here is not one of who reads what is printed.
        written.map_err(|why| anyhow!("the transfer broke: {why}"))
    }
}

/// What is to be written.
struct Order {
    rate: Option<Rate>,
    span: Duration,
    /// Nobody is at its other end once it is to end.
    asked: Receiver<()>,
}

impl Order {
    fn carry_out(self, stream: &TcpStream, events: &Events) -> io::Result<u64> {
        let (start, chunk) = (Instant::now(), vec![0_u8; CHUNK]);
        let mut written = 0;
        loop {
            let due = self.rate.map_or(Duration::ZERO, |r| Bytes(written) / r);
            let wait = due.min(self.span).saturating_sub(start.elapsed());
            let goes_on = self.asked.recv_timeout(wait) == Err(RecvTimeoutError::Timeout);
            if !goes_on || start.elapsed() >= self.span {
                return Ok(written);
            }
            match events.write(stream, &chunk) {
                Ok(many) => written += many as u64,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // The stream was shut down for that.
                Err(_) if self.asked.try_recv() == Err(TryRecvError::Disconnected) => {
                    return Ok(written);
                }
                Err(e) => return Err(e),
            }
        }
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

fn why(congestion: &str) -> String {
    format!(
        "no connection with congestion control `{congestion}` (see the sysctl net.ipv4.tcp_available_congestion_control)"
    )
}

const PORT: u16 = 5_001;
const CHUNK: usize = 16 << 10;
/// How long the end of what is waited for, and Ctrl-C, may go unseen.
pub(super) const GLANCE: Duration = Duration::from_millis(50);
