//! A TCP transfer of this process, over an emulated path or to a host.

use std::io::{self, Read as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tidegate_core::link::{Capacity, DropTailConfig, LinkConfig, LossConfig, Outage, QueueConfig};
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_kernel::{Events, set_congestion_control};
use tidegate_live::clock::Clock;
use tidegate_live::driver::{Interrupts, RunLimits, StopFlag};
use tidegate_live::emulator::{Emulator, EmulatorConfig, Host};

use crate::tcp::endpoints;
use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::say;

/// Parameters of the emulated path.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) rate: Rate,
    /// One-way delay.
    pub(super) delay: Duration,
    pub(super) queue: Bytes,
    pub(super) loss: f64,
    /// Begin and end of the outage, after the start.
    pub(super) outage: Option<(Duration, Duration)>,
    pub(super) seed: Seed,
}

/// Connection with its receiver.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Arc<TcpStream>,
    sink: Option<(Emulator, JoinHandle<()>)>,
}

/// Limits of the wait for a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectLimits<'a> {
    pub(super) interrupts: &'a Interrupts,
    pub(super) span: Duration,
}

impl ConnectLimits<'_> {
    /// Waits for a connection attempt. `None` after Ctrl-C.
    fn wait(self, attempt: &Receiver<Result<TcpStream>>) -> Result<Option<TcpStream>> {
        let end = Instant::now() + self.span;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match attempt.recv_timeout(left.min(GLANCE)) {
                Ok(stream) => return stream.map(Some),
                Err(_) if self.interrupts.count() > 0 => return Ok(None),
                Err(RecvTimeoutError::Timeout) if left > GLANCE => {}
                Err(RecvTimeoutError::Timeout) => bail!(EnvironmentError::new(format_args!(
                    "no connection within {:?}: give a longer --for, or a path with more capacity",
                    self.span
                ))),
                Err(RecvTimeoutError::Disconnected) => bail!(EnvironmentError::new(format_args!(
                    "the attempt to connect broke off"
                ))),
            }
        }
    }
}

impl Connection {
    /// Connects over an emulated path between two namespaces. `None` after Ctrl-C.
    pub(super) fn emulated(
        path: &Path,
        congestion: Option<&str>,
        patience: ConnectLimits<'_>,
    ) -> Result<Option<Self>> {
        let emulator = Emulator::start(&path.config())?;
        let listen = || TcpListener::bind((Host::B.address(), PORT));
        let listener = emulator.namespace(Host::B).within(listen)?;
        let listener = listener.context("cannot listen at the receiver")?;
        let sink = thread::spawn(move || discard(&listener));
        let (answer, attempt) = mpsc::channel();
        let connect = move || {
            let stream = TcpStream::connect((Host::B.address(), PORT)).context("no connection");
            // After a timeout the receiver of this channel is gone.
            let _ = answer.send(stream);
        };
        // After a timeout the thread is abandoned.
        let _ = emulator.namespace(Host::A).run(connect)?;
        Self::made(&attempt, congestion, patience, Some((emulator, sink)))
    }

    /// Connects to a host that discards the data. `None` after Ctrl-C.
    pub(super) fn to(
        host: String,
        congestion: Option<&str>,
        patience: ConnectLimits<'_>,
    ) -> Result<Option<Self>> {
        let (answer, attempt) = mpsc::channel();
        let conditions = RunLimits {
            clock: Clock::start(),
            until: None,
            stop: StopFlag::new().context(
                "cannot create the event that ends the connection \
            attempt",
            )?,
        };
        let connect = move || {
            let stream = endpoints::connect_to(&host, &conditions, || false);
            let (stream, _) = stream?.context("the attempt to connect broke off")?;
            Ok(stream)
        };
        // After a timeout the receiver of this channel is gone.
        thread::spawn(move || drop(answer.send(connect())));
        Self::made(&attempt, congestion, patience, None)
    }

    fn made(
        attempt: &Receiver<Result<TcpStream>>,
        congestion: Option<&str>,
        patience: ConnectLimits<'_>,
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

    /// Runs `job` in the network namespace of the connection. An unprivileged process sees the
    /// timers of its own namespace only.
    pub(super) fn inside<T: Send>(&self, job: impl FnOnce() -> T + Send) -> Result<T> {
        match &self.sink {
            Some((emulator, _)) => Ok(emulator.namespace(Host::A).within(job)?),
            None => Ok(job()),
        }
    }

    /// Writes on a thread until the time is over, without a limit or at a rate.
    pub(super) fn write(
        &self,
        events: &Arc<Events>,
        rate: Option<Rate>,
        span: Duration,
    ) -> Transfer {
        let (running, asked) = mpsc::channel();
        let order = Order { rate, span, asked };
        let (stream, events) = (Arc::clone(&self.stream), Arc::clone(events));
        let writer = thread::spawn(move || order.carry_out(&stream, &events));
        Transfer {
            stream: Arc::clone(&self.stream),
            end: Instant::now() + span,
            running: Some(running),
            writer,
        }
    }

    /// Ends the path and waits for the receiver.
    pub(super) fn end(self) -> Result<()> {
        drop(self.stream);
        if let Some((emulator, sink)) = self.sink {
            let report = emulator.stop()?.0;
            if !report.kept_up {
                say(
                    "events: the emulator did not keep up, so the path differed from the \
                requested one",
                );
            }
            // Without the emulator the receiver gets no more packets.
            drop(sink);
        }
        Ok(())
    }
}

/// Running transfer.
#[derive(Debug)]
pub(super) struct Transfer {
    stream: Arc<TcpStream>,
    end: Instant,
    /// Dropped to end the transfer.
    running: Option<Sender<()>>,
    writer: JoinHandle<io::Result<u64>>,
}

impl Transfer {
    /// Whether the transfer has ended. The caller polls, because a blocked transfer ends only when
    /// polled after its time.
    pub(super) fn is_over(&mut self) -> bool {
        let is_over = self.writer.is_finished();
        if !is_over && Instant::now() >= self.end {
            self.stop();
        }
        is_over
    }

    /// Ends the transfer, even while a write blocks.
    pub(super) fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            // Dropped before the shutdown, so that the writer knows the reason of its write error.
            drop(running);
            // An error here means that the connection is closed already, so no write blocks.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    /// Number of written bytes.
    pub(super) fn written(self) -> Result<u64> {
        let written = self.writer.join().expect("the writer does not panic");
        // Without its source, because callers interpret an I/O error as one of standard output.
        written
            .map_err(|why| EnvironmentError::new(format_args!("the transfer failed: {why}")).into())
    }
}

/// Parameters of the writer.
struct Order {
    rate: Option<Rate>,
    span: Duration,
    /// Disconnected when the transfer is to end.
    asked: Receiver<()>,
}

impl Order {
    fn carry_out(self, stream: &TcpStream, events: &Events) -> io::Result<u64> {
        let (start, chunk) = (Instant::now(), vec![0_u8; CHUNK]);
        let mut written = 0;
        loop {
            let due = self.rate.map_or(Duration::ZERO, |r| Bytes(written) / r);
            let wait = due.min(self.span).saturating_sub(start.elapsed());
            let running = self.asked.recv_timeout(wait) == Err(RecvTimeoutError::Timeout);
            if !running || start.elapsed() >= self.span {
                return Ok(written);
            }
            match events.write(stream, &chunk) {
                Ok(many) => written += many as u64,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // The stream was shut down to end the transfer.
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
            ..LinkConfig::default()
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

/// Accepts one connection and discards its data.
fn discard(listener: &TcpListener) {
    let Ok((mut stream, _)) = listener.accept() else {
        return;
    };
    let mut buffer = vec![0; 1 << 16];
    while stream.read(&mut buffer).is_ok_and(|many| many > 0) {}
}

fn why(congestion: &str) -> String {
    format!(
        "no connection with congestion control `{congestion}` (see the sysctl \
        net.ipv4.tcp_available_congestion_control)"
    )
}

const PORT: u16 = 5_001;
const CHUNK: usize = 16 << 10;
/// Interval between checks for Ctrl-C and for the end of a wait.
pub(super) const GLANCE: Duration = Duration::from_millis(50);
