//! Fuzz targets, one function each. They are used by the fuzzer (`fuzz/`), by the replay of its
//! corpora on a stable compiler (`tests/corpora.rs`), and by property tests.

pub mod aggregate;
pub mod controller;
pub mod decoder;
pub mod files;
pub mod privileged;
pub mod rtsp;
pub mod samples;
pub mod session;
pub mod wire;

/// A fuzz target. `fuzz/README.md` lists what each asserts.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target and of its corpus directory.
    pub name: &'static str,
    /// Runs the target. Panics if an invariant is violated.
    pub run: fn(&[u8]),
}

/// All targets, in alphabetical order.
pub fn targets() -> Vec<Target> {
    let mut targets = [
        &wire::TARGETS[..],
        &aggregate::TARGETS,
        &session::TARGETS,
        &controller::TARGETS,
        &decoder::TARGETS,
        &files::TARGETS,
        &privileged::TARGETS,
        &rtsp::TARGETS,
        &samples::TARGETS,
    ]
    .concat();
    targets.sort_by_key(|target| target.name);
    targets
}
