//! Memory needed for the packet logs of a run.

use anyhow::{Result, bail};
use tidegate_sim::scenario::{PacketEstimate, Scenario};

use tidegate_console::exit::EnvironmentError;
use tidegate_console::progress::say;

/// Checks that memory suffices for the packet logs of `times` concurrent runs. Prints a warning if
/// it might not.
///
/// # Errors
/// The logs exceed the free memory in any case. The message names the flow with the most packets.
pub(crate) fn check(scenario: &Scenario, times: usize) -> Result<()> {
    let Some(available) = available() else {
        return Ok(());
    };
    let available = available / times as f64;
    let logged = scenario.logged_packets();
    if let Some(why) = lacks(&logged, available, |logged| logged.sure) {
        bail!(EnvironmentError::new(why));
    }
    if let Some(why) = lacks(&logged, available, |_| true) {
        say(format_args!(
            "warning: {why}; this applies if the path is always full"
        ));
    }
    Ok(())
}

/// Describes the shortage if the flows of `counted` send at their maximum.
fn lacks(
    logged: &[PacketEstimate<'_>],
    available: f64,
    counted: fn(&PacketEstimate<'_>) -> bool,
) -> Option<String> {
    let counted = || logged.iter().filter(|logged| counted(logged));
    let packets: f64 = counted().map(|logged| logged.packets).sum();
    let first = counted().next()?;
    let wanted = packets * PACKET;
    (wanted > available).then(|| {
        format!(
            "the flow {:?} sends about {:.0} million packets, and the log of {} takes about \
             {:.1} GB of memory, of which {:.1} GB are free: shorten the duration or lower the \
             rate; \
             or set count = 2 with half the rate each, because flows with a count have no packet \
             log",
            first.flow,
            first.packets / 1e6,
            if counted().count() > 1 {
                "those and others"
            } else {
                "them"
            },
            wanted / 1e9,
            available / 1e9,
        )
    })
}

/// Available memory in bytes, if the system reports it.
fn available() -> Option<f64> {
    of_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn of_meminfo(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024.0)
}

/// Maximum size of a logged packet in bytes. Logs of 2 and 4 million packets took 100 and 101 bytes
/// per packet more than a run without log; a vector that has just grown has spare capacity.
const PACKET: f64 = 110.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_names_the_flow_and_the_fix() {
        let logged = |flow, packets, sure| PacketEstimate {
            flow,
            packets,
            sure,
        };
        let flows = [logged("flood", 1e9, true), logged("tcp", 5e8, false)];
        let sure = |available| lacks(&flows, available, |logged| logged.sure);
        let why = sure(64e9).unwrap();
        assert!(
            why.contains("\"flood\" sends about 1000 million packets"),
            "{why}"
        );
        assert!(
            why.contains("110.0 GB of memory, of which 64.0 GB"),
            "{why}"
        );
        assert_eq!(sure(111e9), None);
        assert!(lacks(&flows, 111e9, |_| true).is_some());
        assert_eq!(lacks(&[], 0.0, |_| true), None);
    }

    #[test]
    fn available_memory_is_parsed() {
        let text = "MemTotal:       24683000 kB\nMemFree:  1 kB\nMemAvailable:    2000 kB\n";
        assert_eq!(of_meminfo(text), Some(2_048_000.0));
        assert_eq!(of_meminfo("nothing"), None);
    }
}
