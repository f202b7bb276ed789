//! Processor time of a thread, and its waits for a processor.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Times of the calling thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// On a processor.
    pub running: Duration,
    /// On a run queue; zero on a kernel without scheduler statistics.
    pub waiting: Duration,
}

impl ThreadTime {
    /// Times up to now.
    pub fn now() -> Self {
        let running = clock_gettime(ClockId::ThreadCPUTime);
        Self {
            running: Duration::new(running.tv_sec as u64, running.tv_nsec as u32),
            waiting: run_queue_wait().unwrap_or_default(),
        }
    }

    /// Times since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            running: self.running.saturating_sub(earlier.running),
            waiting: self.waiting.saturating_sub(earlier.waiting),
        }
    }

    /// Time in which the thread was not asleep.
    pub fn total(self) -> Duration {
        self.running + self.waiting
    }
}

fn run_queue_wait() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    // Time on the processor, time on the run queue (both in ns), number of time slices.
    let wait = text.split_ascii_whitespace().nth(1)?;
    Some(Duration::from_nanos(wait.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::clock::Clock;

    /// Four threads per processor that compute wait for three quarters of their time.
    #[test]
    fn threads_that_share_a_processor_wait() {
        if run_queue_wait().is_none() {
            return;
        }
        let work = || {
            let (clock, before) = (Clock::start(), ThreadTime::now());
            while clock.now().as_nanos() < 500_000_000 {}
            ThreadTime::now().since(before)
        };
        let threads = thread::available_parallelism().map_or(1, usize::from) * 4;
        let times: Vec<ThreadTime> = thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let waited = times.iter().map(|time| time.waiting).max().unwrap();
        assert!(waited > Duration::from_millis(150), "{times:?}");
        assert!(
            times.iter().all(|time| time.running > Duration::ZERO),
            "{times:?}"
        );
    }
}
