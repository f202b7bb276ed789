//! Allocations of a simulation: lists that grow to their final length, and metrics that grow with
//! time, but none per packet.

use core::time::Duration;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::media::EncodeError;
use tidegate_sim::runner;
use tidegate_sim::scenario::Scenario;

/// The system's allocator with a counter of calls.
struct Counting;

static ASKED: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls are forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and packet-hops of a run.
fn count(text: &str, seconds: u64) -> (u64, u64) {
    let mut scenario = Scenario::parse("t", text, &|_| Err("no files here".to_owned())).unwrap();
    scenario.duration = Duration::from_secs(seconds);
    let no_video = |_: &str, _: &_, _| Err(EncodeError::Source("no video here".to_owned()));
    let before = ASKED.load(Ordering::Relaxed);
    let takes = runner::scenario(&scenario, scenario.seed, &no_video, &mut |_| {}).unwrap();
    (ASKED.load(Ordering::Relaxed) - before, takes[0].hops)
}

/// A single test, because other tests in the same program would be counted, too. 300 flows have
/// 1202 links, so that data structures for many links are also covered.
#[test]
fn packets_cause_no_allocations() {
    for (flow, flows) in [
        ("control = \"tfrc\"\nbulk = { packet = \"1000B\" }", 10),
        ("tcp = { kind = \"sack\", packet = \"1000B\" }", 10),
        ("tcp = { kind = \"cubic\", packet = \"1000B\" }", 10),
        ("tcp = { kind = \"bbr\", packet = \"1000B\" }", 10),
        ("control = \"rap\"\nbulk = { packet = \"1000B\" }", 10),
        ("tcp = { kind = \"sack\", packet = \"1000B\" }", 300),
    ] {
        for queue in ["droptail = \"5 packets\"", "fq_codel = {}", "dualpi2 = {}"] {
            let text = format!(
                r#"name = "t"
duration = "60s"
[[link]]
name = "shared"
from = "left"
to = "right"
duplex = true
rate = "{flows}Mb/s"
delay = "20ms"
queue = {{ {queue} }}
[[flow]]
name = "flow"
count = {flows}
from = "left"
to = "right"
access = {{ rate = "100Mb/s", delay = "1ms" }}
exit = {{ rate = "100Mb/s", delay = ["1ms", "20ms"] }}
start = ["0s", "1s"]
{flow}
"#
            );
            let seconds = if flows > 10 { 4 } else { 10 };
            let (few, hops) = count(&text, seconds);
            let (many, more) = count(&text, 2 * seconds);
            let each = (many - few) as f64 / (more - hops) as f64;
            println!(
                "{flow:50} {flows:4} {queue:24} {each:.6} of {}",
                more - hops
            );
            assert!(more > hops + 10_000);
            // Bins of each flow and samples of each link, some of them 5 times per second.
            assert!(each < 0.005, "{flow} {queue}: {each}");
        }
    }
}
