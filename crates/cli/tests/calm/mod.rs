//! Real-time tests on shared machines.
//!
//! The host of a virtual machine may suspend its processors for 100 ms and more. Deadlines are then
//! missed for reasons unrelated to the code under test. A witness thread on each processor, at a
//! high real-time priority, measures for how long it was not scheduled.

use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{mem, ptr};

/// Runs the body of the test named `test`. A failure counts if the machine did not stall meanwhile;
/// otherwise the body is repeated. If the machine stalled in each attempt for much longer than the
/// tested deadlines, the test passes with a note that it was not judged.
pub(crate) fn judged(test: &str, body: impl Fn()) {
    let mut shortest = Duration::MAX;
    for left in (0..TRIES).rev() {
        let witnesses = Witness::everywhere();
        let outcome = catch_unwind(AssertUnwindSafe(&body));
        let still = witnesses.into_iter().map(Witness::end).max();
        let Err(failure) = outcome else {
            return;
        };
        let still = still.unwrap_or_default();
        shortest = shortest.min(still);
        if still < CALM || (left == 0 && shortest < HOPELESS) {
            resume_unwind(failure);
        }
        let ms = still.as_millis();
        note(&format!(
            "{test} failed while the machine stalled for {ms} ms"
        ));
    }
    let ms = shortest.as_millis();
    note(&format!(
        "not judged: {test}, as the machine stalled for {ms} ms or more in each attempt"
    ));
}

/// Writes to standard error directly: the test harness captures the output of passing tests.
fn note(text: &str) {
    let mut terminal = io::stderr();
    writeln!(terminal, "{text}").unwrap();
}

/// A thread that wakes up periodically and measures its delays.
struct Witness {
    /// Dropping the sender ends the thread.
    end: Sender<()>,
    thread: JoinHandle<Duration>,
}

impl Witness {
    /// Starts one on each processor that this process may use. A witness without real-time priority
    /// reports no stalls, since it could be delayed by other processes of the machine.
    fn everywhere() -> Vec<Self> {
        processors().into_iter().map(Self::on).collect()
    }

    fn on(processor: usize) -> Self {
        let (end, over) = channel::<()>();
        let thread = thread::spawn(move || {
            if !settle(processor) {
                return Duration::ZERO;
            }
            let (mut worst, mut before) = (Duration::ZERO, Instant::now());
            while over.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
                let now = Instant::now();
                worst = worst.max((now - before).saturating_sub(GLANCE));
                before = now;
            }
            worst
        });
        Self { end, thread }
    }

    /// Ends the thread. Returns its longest delay.
    fn end(self) -> Duration {
        drop(self.end);
        self.thread.join().unwrap()
    }
}

fn processors() -> Vec<usize> {
    // SAFETY: a set is integers, for which zero is a value; it is passed with its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        let read = libc::sched_getaffinity(0, mem::size_of_val(&set), &raw mut set);
        assert_eq!(read, 0, "{}", io::Error::last_os_error());
        set
    };
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: the numbers are below the size of the set.
    all.filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// Pins the thread to a processor at real-time priority. Returns whether that is permitted.
fn settle(processor: usize) -> bool {
    let first = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: 0 is this thread; sets and parameters are initialised and passed with their sizes.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, mem::size_of_val(&set), ptr::from_ref(&set)) == 0
            && libc::sched_setscheduler(0, libc::SCHED_FIFO, ptr::from_ref(&first)) == 0
    }
}

const TRIES: usize = 3;
/// The tests distinguish kernel timer events at a resolution of 100 ms.
const CALM: Duration = Duration::from_millis(30);
/// On such a machine, three attempts in a row may fail.
const HOPELESS: Duration = Duration::from_millis(100);
const GLANCE: Duration = Duration::from_millis(2);
/// Above the priority of the emulator.
const PRIORITY: libc::c_int = 60;
