//! Writes log lines on a thread of its own.
//!
//! The reader of the log may stop: a terminal that is held, a full pipe. The thread then blocks,
//! and the server does not. Lines that find no room in the queue are dropped and counted.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

use crate::system;

/// Receives the lines.
pub(super) type Sink = Box<dyn FnMut(&str) + Send>;

/// Dropping it waits up to [`FLUSH_LIMIT`] until all lines are written.
pub(super) struct LogWriter {
    sink: Arc<Mutex<Sink>>,
    /// Started with the first line: capabilities are per thread, and the server may have dropped
    /// its own by then.
    thread: Option<Thread>,
    /// Dropped lines that are not reported yet.
    dropped: u64,
    flush_limit: Duration,
}

struct Thread {
    queue: SyncSender<String>,
    /// Disconnected when the last line is written.
    end: Receiver<()>,
    handle: JoinHandle<()>,
}

impl LogWriter {
    pub(super) fn new(sink: Sink) -> Self {
        Self {
            sink: Arc::new(Mutex::new(sink)),
            thread: None,
            dropped: 0,
            flush_limit: FLUSH_LIMIT,
        }
    }

    /// Queues a line, or drops it if the queue is full.
    pub(super) fn write(&mut self, line: String) {
        self.report_dropped();
        if self.dropped > 0 || !self.enqueue(line) {
            self.dropped += 1;
        }
    }

    /// Queues the number of dropped lines once there is room.
    pub(super) fn report_dropped(&mut self) {
        let many = self.dropped;
        if many > 0 && self.enqueue(format!("{many} lines dropped, since the log was not read")) {
            self.dropped = 0;
        }
    }

    /// Whether dropped lines are still to be reported.
    pub(super) fn has_dropped(&self) -> bool {
        self.dropped > 0
    }

    fn enqueue(&mut self, line: String) -> bool {
        if self.thread.is_none() {
            // If the system refuses a thread the next line tries again.
            self.thread = Thread::start(&self.sink).ok();
        }
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| thread.queue.try_send(line).is_ok())
    }
}

impl Thread {
    fn start(sink: &Arc<Mutex<Sink>>) -> io::Result<Self> {
        let (queue, lines) = mpsc::sync_channel::<String>(CAPACITY);
        let (running, end) = mpsc::channel();
        let sink = Arc::clone(sink);
        let write = move || {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            for line in &lines {
                sink(&line);
            }
            drop(running);
        };
        let handle = system::spawn("tcp-events-log", write)?;
        Ok(Self { queue, end, handle })
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.report_dropped();
        let Some(Thread { queue, end, handle }) = self.thread.take() else {
            return;
        };
        drop(queue);
        // A thread that blocks is left alone.
        if end.recv_timeout(self.flush_limit) == Err(RecvTimeoutError::Disconnected) {
            // A panic has printed its message.
            let _ = handle.join();
        }
    }
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriter")
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}

/// Lines in the queue.
const CAPACITY: usize = 256;
/// Limit of the wait for lines that are not written yet.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer whose sink passes each line on and then blocks until it receives a word.
    fn blocking() -> (LogWriter, Receiver<String>, mpsc::Sender<()>) {
        let (sender, lines) = mpsc::channel();
        let (go, wait) = mpsc::channel();
        let sink = move |line: &str| {
            sender.send(line.to_owned()).unwrap();
            // It does not block any more once the other end is dropped.
            let _ = wait.recv();
        };
        (LogWriter::new(Box::new(sink)), lines, go)
    }

    #[test]
    fn dropped_lines_are_counted_and_reported_once_there_is_room() {
        let (mut writer, lines, go) = blocking();
        writer.write("first".into());
        assert_eq!(lines.recv().unwrap(), "first");
        // The sink blocks, and the queue fills up.
        for number in 0..CAPACITY + 3 {
            writer.write(number.to_string());
        }
        assert!(writer.has_dropped());
        go.send(()).unwrap();
        // The queue has room for one line from here on.
        assert_eq!(lines.recv().unwrap(), "0");
        writer.report_dropped();
        assert!(!writer.has_dropped());
        drop(go);
        drop(writer);
        let last = lines.iter().last().unwrap();
        assert_eq!(last, "3 lines dropped, since the log was not read");
    }

    #[test]
    fn the_drop_does_not_wait_for_a_sink_that_blocks() {
        let (mut writer, lines, go) = blocking();
        writer.write("first".into());
        assert_eq!(lines.recv().unwrap(), "first");
        writer.write("second".into());
        writer.flush_limit = Duration::ZERO;
        drop(writer);
        assert!(lines.try_recv().is_err());
        drop(go);
        assert_eq!(lines.recv().unwrap(), "second");
    }
}
