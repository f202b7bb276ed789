//! One flow over a path without randomness.

use core::time::Duration;
use std::collections::BTreeSet;

use tidegate_core::control::Algorithm;
use tidegate_core::units::{Rate, Time};
use tidegate_sim::model_flow::{ReceiverConfig, SenderConfig};

use crate::lab::{Lab, link, start};
use crate::table::Table;

/// A path, the packets that are lost after it, and the duration.
pub(crate) struct Path {
    /// 1.5 Mb/s and 20 ms after a queue of this many packets, with 10 Mb/s and 1 ms on both sides.
    /// `None`: 10 Mb/s and 49 ms.
    pub(crate) queue: Option<u32>,
    pub(crate) lost: BTreeSet<u64>,
    pub(crate) seconds: u64,
}

impl Path {
    /// Times at which packets arrive at the bottleneck, or leave if there is none.
    pub(crate) fn play(
        self,
        config: SenderConfig,
        algorithm: &dyn Algorithm,
        receiver: ReceiverConfig,
    ) -> Vec<Time> {
        let ms = Duration::from_millis;
        let (fast, slow) = (Rate::kbps(10_000), Rate::kbps(1_500));
        let mut lab = if let Some(limit) = self.queue {
            let links = vec![
                ("access", link(fast, ms(1), 1_000)),
                ("bottleneck", link(slow, ms(20), limit)),
                ("exit", link(fast, ms(1), 1_000)),
                ("exit back", link(fast, ms(1), 1_000)),
                ("back", link(slow, ms(20), 50)),
                ("access back", link(fast, ms(1), 1_000)),
            ];
            Lab::new(links, &[&[0, 1, 2], &[3, 4, 5]], 1)
        } else {
            let links = ["there", "back"].map(|name| (name, link(fast, ms(49), 1_000)));
            Lab::new(links.to_vec(), &[&[0], &[1]], 1)
        };
        // 0.8 ms on the wire and 1 ms of propagation up to the bottleneck.
        let way = match self.queue {
            Some(_) => Duration::from_micros(1_800),
            None => Duration::ZERO,
        };
        let controller = algorithm.start(&start(&config));
        lab.add(config, controller, receiver, [0, 1]);
        lab.flows[0].log = Some(Vec::new());
        lab.flows[0].dropped = self.lost;
        lab.run(Time::from_secs(self.seconds));
        let sent = lab.flows[0].log.take().expect("a log");
        let arrivals = sent.into_iter().map(|at| at + way);
        arrivals.filter(|at| *at <= lab.now).collect()
    }
}

/// Maximum difference between these send times and those of a reference trace, in microseconds.
pub(crate) fn furthest(sent: &[Time], table: &Table, trace: &str) -> u64 {
    let rows = table.rows(&[("trace", trace)]);
    assert!(rows.len() > 50, "{trace} has {} rows", rows.len());
    let apart = |row: usize| {
        let packet = table.number(row, "packet") as usize;
        let ns2 = table.number(row, "time_us") as u64;
        (sent[packet].as_nanos() / 1_000).abs_diff(ns2)
    };
    rows.into_iter().map(apart).max().unwrap_or(u64::MAX)
}
