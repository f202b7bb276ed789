//! Tests in real time, on machines that others use as well.
//!
//! The host of a virtual machine may take its processors away for a tenth of a second and more. What
//! had to happen within some time does not then, and that says nothing of what is tested. So a witness
//! on each processor, before which nothing else goes, notes for how long it was not let run.

use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{mem, ptr};

/// What the test called `test` plays and judges. Where it fails and the machine stood still meanwhile, it
/// is played again; a failure on a machine that did not is one. Where the machine stood still each time
/// for far longer than anything that is tested takes, the test passes, and says that nothing was judged.
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
        tell(&format!(
            "{test} failed on a machine that stood still for {ms} ms"
        ));
    }
    let ms = shortest.as_millis();
    tell(&format!(
        "not judged: {test}, as the machine stood still for {ms} ms or more each time it was played"
    ));
}

/// Past the test harness, which would swallow what a test prints that passes.
fn tell(what: &str) {
    let mut terminal = io::stderr();
    writeln!(terminal, "{what}").unwrap();
}

/// A thread that has nothing to do but to be in time.
struct Witness {
    /// It looks until nobody has this any more.
    end: Sender<()>,
    thread: JoinHandle<Duration>,
}

impl Witness {
    /// One on each processor that this process may use, if it may go before all others there: without
    /// that a machine that does other things as well would be an excuse.
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

    /// For how long it was not let run, at the worst.
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

/// Stays on one processor, ahead of all threads of ours. Whether it may.
fn settle(processor: usize) -> bool {
    let first = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: 0 is this thread; sets and parameters are whole and passed with their sizes.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, mem::size_of_val(&set), ptr::from_ref(&set)) == 0
            && libc::sched_setscheduler(0, libc::SCHED_FIFO, ptr::from_ref(&first)) == 0
    }
}

const TRIES: usize = 3;
/// Events of the kernel's timers are told apart by tenths of a second.
const CALM: Duration = Duration::from_millis(30);
/// On such a machine three tries in a row may fail.
const HOPELESS: Duration = Duration::from_millis(100);
const GLANCE: Duration = Duration::from_millis(2);
/// The emulator has less, and so has what keeps time-outs linear.
const PRIORITY: libc::c_int = 60;
