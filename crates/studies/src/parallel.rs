//! Independent runs on several threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Number of threads: as given, or one per core.
pub(crate) fn threads(given: Option<NonZeroUsize>) -> usize {
    let threads = given.or_else(|| std::thread::available_parallelism().ok());
    threads.map_or(1, NonZeroUsize::get)
}

/// Results of `work` for the numbers below `jobs`, in their order. `progress` receives the completed
/// share, in 0..=1.
///
/// # Errors
/// The first error of the work.
pub(crate) fn in_parallel<T: Send, E: Send>(
    jobs: usize,
    threads: usize,
    progress: &(dyn Fn(f64) + Sync),
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<T, E>)>> = Mutex::default();
    let thread = || {
        while let Some(n) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < jobs) {
            let result = work(n);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((n, result));
            progress(done.len() as f64 / jobs as f64);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.max(1)) {
            scope.spawn(thread);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}
