//! Real-time priority, for threads whose lateness is the point.

use libc::{SCHED_FIFO, SCHED_RR, c_int, sched_param};

/// Asks that this thread goes before all ordinary ones (`SCHED_FIFO`), and before those of its kind
/// with a lower `priority`, of 1 to 99. One that has as much already keeps what it has. Whether it has
/// it now: that takes root, `CAP_SYS_NICE` or a limit (`RLIMIT_RTPRIO`).
pub(crate) fn ask(priority: c_int) -> bool {
    let mut parameters = sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; `parameters` is whole and ours.
    let policy = unsafe { libc::sched_getscheduler(0) };
    // SAFETY: as above.
    let read = unsafe { libc::sched_getparam(0, &raw mut parameters) } == 0;
    if read && matches!(policy, SCHED_FIFO | SCHED_RR) && parameters.sched_priority >= priority {
        return true;
    }
    parameters.sched_priority = priority;
    // SAFETY: as above.
    unsafe { libc::sched_setscheduler(0, SCHED_FIFO, &raw const parameters) == 0 }
}
