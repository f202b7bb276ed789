//! Bodies of the fuzz targets, one function per target, shared by the fuzzer (`fuzz/`), by the replay
//! of its corpora on a stable compiler (`tests/corpora.rs`) and by property tests.

pub mod controller;
pub mod session;
pub mod wire;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Of the target, and of the directory of its corpus.
    pub name: &'static str,
    /// Its body; panics when something does not hold.
    pub run: fn(&[u8]),
}

/// All targets, in alphabetical order.
pub fn targets() -> Vec<Target> {
    let mut targets = [&wire::TARGETS[..], &session::TARGETS, &controller::TARGETS].concat();
    targets.sort_by_key(|target| target.name);
    targets
}
