//! Resource limits of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit, and returns the resulting limit. A
/// failure to raise it is ignored.
pub fn open_files() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    let raised = setrlimit(Resource::Nofile, wanted);
    // `None` is no limit.
    raised.map_or(current, |()| maximum).unwrap_or(u64::MAX)
}
