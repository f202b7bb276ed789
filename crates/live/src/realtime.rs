//! Real-time priority for latency-critical threads.

use libc::{SCHED_FIFO, SCHED_RR, c_int, sched_param};

/// Requests `SCHED_FIFO` with `priority`, 1 to 99, for the calling thread. A higher existing
/// priority is kept. Returns whether the thread has the priority, which requires root,
/// `CAP_SYS_NICE` or `RLIMIT_RTPRIO`.
pub fn ask(priority: c_int) -> bool {
    let mut parameters = sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; `parameters` is initialised and not shared.
    unsafe {
        let policy = libc::sched_getscheduler(0);
        let read = libc::sched_getparam(0, &raw mut parameters) == 0;
        let is_realtime = matches!(policy, SCHED_FIFO | SCHED_RR);
        if read && is_realtime && parameters.sched_priority >= priority {
            return true;
        }
        parameters.sched_priority = priority;
        libc::sched_setscheduler(0, SCHED_FIFO, &raw const parameters) == 0
    }
}
