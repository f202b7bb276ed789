//! Receivers of other projects: rates from receiver reports and from transport-wide feedback.

mod session_lab;
use std::time::Duration;
use session_lab::{PlainFeedback, SessionSetup};
use tidegate_core::link::{Capacity, Steps};
use tidegate_core::units::{Rate, Time};

#[test]
fn explore() {
    for (what, reports, transport, ceiling) in [("rr5", 5_000, None, false), ("rr1", 1_000, None, false), ("twcc", 5_000, Some(50), false)] {
        for caps in [vec![(0,4_000),(30,1_000),(60,3_000)], vec![(0,4_000)], vec![(0,8_000)]] {
        let mut play = SessionSetup::new();
        play.plain = Some(PlainFeedback { reports: Duration::from_millis(reports), transport: transport.map(Duration::from_millis) });
        play.seconds = 100;
        let steps: Vec<_> = caps.iter().map(|(s,k)| (Time::from_secs(*s), Rate::kbps(*k))).collect();
        play.uplink.capacity = Capacity::Steps(Steps::new(&steps).unwrap());
        let run = play.run(Duration::from_secs(1));
        let line: Vec<_> = (0..20).map(|i| run.arrival_rate(i*5, i*5+5).as_bps()/1000).collect();
        let sent: Vec<_> = (0..20).map(|i| run.wire_rate(i*5, i*5+5).as_bps()/1000).collect();
        println!("{what} {caps:?} {ceiling}\n  arr {line:?}\n  sent {sent:?} drops {:?} fail {:?}", run.links[0].queue_drops, run.failure);
        }
    }
}
