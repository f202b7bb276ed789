//! Writes lines on a thread of its own.
//!
//! Whoever reads them may stop: a terminal that is held, a pipe that nobody empties. Then the thread
//! waits and nobody else; what finds no room in its queue is left out and counted.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

/// What takes the lines.
pub(super) type Sink = Box<dyn FnMut(&str) + Send>;

/// Dropping it waits a little until all is written.
pub(super) struct LogWriter {
    sink: Arc<Mutex<Sink>>,
    /// From the first line on, so that it has no more rights than who writes that.
    desk: Option<Desk>,
    /// For how many lines there was no room, if nothing was said of them yet.
    left_out: u64,
    /// How long the end waits for what is not written yet.
    last_words: Duration,
}

/// The thread, and the way to it.
struct Desk {
    queue: SyncSender<String>,
    /// Ends when the last line is written.
    end: Receiver<()>,
    thread: JoinHandle<()>,
}

impl LogWriter {
    pub(super) fn new(sink: Sink) -> Self {
        Self {
            sink: Arc::new(Mutex::new(sink)),
            desk: None,
            left_out: 0,
            last_words: LAST_WORDS,
        }
    }

    /// Writes a line, or counts it where there is no room.
    pub(super) fn put(&mut self, line: String) {
        self.catch_up();
        if self.left_out > 0 || !self.queue(line) {
            self.left_out += 1;
        }
    }

    /// Says how many lines were left out, once there is room for that.
    pub(super) fn catch_up(&mut self) {
        let many = self.left_out;
        if many > 0 && self.queue(format!("{many} lines left out, since nobody read the log")) {
            self.left_out = 0;
        }
    }

    /// Whether lines were left out of which nothing was said yet.
    pub(super) fn is_behind(&self) -> bool {
        self.left_out > 0
    }

    fn queue(&mut self, line: String) -> bool {
        if self.desk.is_none() {
            // Where there is no thread now, there may be one for the next line.
            self.desk = Desk::open(&self.sink).ok();
        }
        let desk = self.desk.as_ref();
        desk.is_some_and(|desk| desk.queue.try_send(line).is_ok())
    }
}

impl Desk {
    fn open(sink: &Arc<Mutex<Sink>>) -> io::Result<Self> {
        let (queue, lines) = mpsc::sync_channel::<String>(ROOM);
        let (writes, end) = mpsc::channel();
        let sink = Arc::clone(sink);
        let write = move || {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            for line in &lines {
                sink(&line);
            }
            drop(writes);
        };
        let thread = thread::Builder::new().name("tcp-events-log".into());
        let thread = thread.spawn(write)?;
        Ok(Self { queue, end, thread })
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.catch_up();
        let Some(Desk { queue, end, thread }) = self.desk.take() else {
            return;
        };
        drop(queue);
        // One that cannot write is left to itself: the end waits for no reader.
        if end.recv_timeout(self.last_words) == Err(RecvTimeoutError::Disconnected) {
            // If it panicked it has said so.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriter")
            .field("left_out", &self.left_out)
            .finish_non_exhaustive()
    }
}

/// LogLimiter that wait to be written.
const ROOM: usize = 256;
/// How long the end waits for what is not written yet.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// A sink that tells of each line, and then waits until it may go on.
    fn held() -> (LogWriter, Receiver<String>, mpsc::Sender<()>) {
        let (say, heard) = mpsc::channel();
        let (go, wait) = mpsc::channel();
        let sink = move |line: &str| {
            say.send(line.to_owned()).unwrap();
            // It goes on for good once nobody holds it any more.
            let _ = wait.recv();
        };
        (LogWriter::new(Box::new(sink)), heard, go)
    }

    #[test]
    fn what_finds_no_room_is_counted_and_told_when_there_is_some() {
        let (mut scribe, heard, go) = held();
        scribe.put("first".into());
        assert_eq!(heard.recv().unwrap(), "first");
        // It waits, and so do these.
        for number in 0..ROOM + 3 {
            scribe.put(number.to_string());
        }
        assert!(scribe.is_behind());
        go.send(()).unwrap();
        // From here on there is room for one.
        assert_eq!(heard.recv().unwrap(), "0");
        scribe.catch_up();
        assert!(!scribe.is_behind());
        drop(go);
        drop(scribe);
        let last = heard.iter().last().unwrap();
        assert_eq!(last, "3 lines left out, since nobody read the log");
    }

    #[test]
    fn the_end_does_not_wait_for_a_reader_who_has_stopped() {
        let (mut scribe, heard, go) = held();
        scribe.put("first".into());
        assert_eq!(heard.recv().unwrap(), "first");
        scribe.put("second".into());
        scribe.last_words = Duration::ZERO;
        drop(scribe);
        assert!(heard.try_recv().is_err());
        drop(go);
        assert_eq!(heard.recv().unwrap(), "second");
    }
}
