//! A kernel trace of one tracepoint (tracefs).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A trace instance. It is read at the end only, so that reading does not disturb the measurement.
pub(crate) struct Trace {
    dir: PathBuf,
    event: &'static str,
}

impl Trace {
    /// Traces `event` of `group`, filtered. `None` without tracefs.
    pub(crate) fn start(group: &str, event: &'static str, filter: &str) -> Option<Self> {
        let root = Path::new("/sys/kernel/tracing");
        if !root.join("instances").exists() {
            // SAFETY: the strings end in zero.
            unsafe {
                libc::mount(
                    c"none".as_ptr(),
                    c"/sys/kernel/tracing".as_ptr(),
                    c"tracefs".as_ptr(),
                    0,
                    std::ptr::null(),
                )
            };
        }
        let dir = root.join(format!("instances/tidegate-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        let trace = Self { dir, event };
        let set = |file: &str, value: &str| fs::write(trace.dir.join(file), value).ok();
        // Per processor: room for 100,000 events and more.
        set("buffer_size_kb", "16384")?;
        set("trace_clock", "mono")?;
        set(&format!("events/{group}/{event}/filter"), filter)?;
        set(&format!("events/{group}/{event}/enable"), "1")?;
        Some(trace)
    }

    /// Times of the events (`CLOCK_MONOTONIC`), with a resolution of a microsecond.
    pub(crate) fn times(self) -> Vec<Duration> {
        let lines = fs::read_to_string(self.dir.join("trace")).unwrap();
        lines
            .lines()
            .filter_map(|l| time_of(l, self.event))
            .collect()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // Removing the folder ends the trace. A leftover trace costs very little.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// `task-pid [cpu] flags seconds.micros: event: fields`.
fn time_of(line: &str, event: &str) -> Option<Duration> {
    let (before, _) = line.split_once(&format!(": {event}: "))?;
    let (secs, micros) = before.split_whitespace().last()?.split_once('.')?;
    let (secs, micros) = (secs.parse().ok()?, micros.parse().ok()?);
    Some(Duration::from_secs(secs) + Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_has_its_time() {
        let line = "          <idle>-0       [001] ..s2.  5139.874068: tcp_retransmit_skb: skbaddr=00000000e9ee00f4 family=AF_INET sport=45774";
        let time = Duration::from_micros(5_139_874_068);
        assert_eq!(time_of(line, "tcp_retransmit_skb"), Some(time));
        assert_eq!(time_of(line, "tcp_probe"), None);
        assert_eq!(
            time_of(
                "# entries-in-buffer/entries-written: 2/2   #P:2",
                "tcp_probe"
            ),
            None
        );
    }
}
