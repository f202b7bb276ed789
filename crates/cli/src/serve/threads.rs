//! Threads that drive the streams.

use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use tidegate_console::context::secret_seed;
use tidegate_console::progress::say;
use tidegate_live::clock::Clock;
use tidegate_live::driver::{Driver, RunLimits, StopFlag};
use tidegate_live::transport::UdpTransport;
use tidegate_live::udp::Socket;

use super::contained::Contained;
use super::stream::Stream;

/// One thread per processor, each with the driver of many streams. A thread starts with its first
/// stream.
#[derive(Debug)]
pub(super) struct StreamThreads {
    clock: Clock,
    threads: Vec<StreamThread>,
    /// Number of streams so far.
    started: usize,
}

#[derive(Debug)]
struct StreamThread {
    inbox: Sender<NewStream>,
    wake: StopFlag,
    thread: JoinHandle<()>,
}

/// A stream to drive, with its sockets and the flag that wakes it.
type NewStream = (Stream, Vec<Socket>, StopFlag);

impl StreamThreads {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            threads: Vec::new(),
            started: 0,
        }
    }

    /// Starts a stream. The threads take turns, since streams are alike.
    ///
    /// # Errors
    /// The system has no thread or no descriptor.
    pub(super) fn start(
        &mut self,
        stream: Stream,
        sockets: Vec<Socket>,
        wake: StopFlag,
    ) -> io::Result<()> {
        let most = thread::available_parallelism().map_or(1, usize::from);
        let number = self.started % most;
        self.started += 1;
        if number == self.threads.len() {
            self.threads.push(StreamThread::start(self.clock)?);
        }
        let thread = &mut self.threads[number];
        if thread.thread.is_finished() {
            // It has failed, and said why.
            *thread = StreamThread::start(self.clock)?;
        }
        let sent = thread.inbox.send((stream, sockets, wake));
        thread.wake.wake();
        sent.map_err(|_| io::Error::other("the thread has ended"))
    }

    /// Waits until all streams have ended. Their owners have closed them.
    pub(super) fn finish(&mut self) {
        for StreamThread {
            inbox,
            wake,
            thread,
        } in self.threads.drain(..)
        {
            drop(inbox);
            wake.wake();
            // A panic was printed by the thread.
            let _ = thread.join();
        }
    }
}

impl StreamThread {
    fn start(clock: Clock) -> io::Result<Self> {
        let (inbox, streams) = channel();
        let wake = StopFlag::new()?;
        let limits = RunLimits {
            clock,
            until: None,
            stop: wake.clone(),
        };
        let thread = thread::Builder::new().name("streams".into());
        let thread = thread.spawn(move || {
            if let Err(error) = run(&limits, &streams) {
                say(format_args!("streams ended: {error}"));
            }
        })?;
        Ok(Self {
            inbox,
            wake,
            thread,
        })
    }
}

/// Drives streams until there are no more and none can come.
fn run(limits: &RunLimits, inbox: &Receiver<NewStream>) -> io::Result<()> {
    let mut rng = secret_seed().stream("streams");
    let mut trace = ();
    let mut driver = Driver::new(limits, &mut rng, &mut trace)?;
    loop {
        match inbox.try_recv() {
            Ok((stream, sockets, wake)) => {
                // Without it, the stream has ended.
                let (stream, transport) = (Contained::new(stream), UdpTransport::new(sockets));
                if let Err(error) = driver.add(stream, transport, Some(wake)) {
                    say(format_args!("cannot start a stream: {error}"));
                }
                continue;
            }
            Err(TryRecvError::Disconnected) if driver.is_empty() => return Ok(()),
            Err(TryRecvError::Disconnected | TryRecvError::Empty) => {}
        }
        let on_turn = |_, stream: &mut Contained<Stream>, now| {
            let turned = stream.run(|stream| stream.turn(now));
            turned.unwrap_or(ControlFlow::Break(()))
        };
        for ended in driver.turn(on_turn)? {
            let error = ended.result.err().map(|error| error.to_string());
            if let Some(stream) = ended.endpoint.into_inner() {
                stream.finish(limits.clock.now(), error);
            }
        }
    }
}
