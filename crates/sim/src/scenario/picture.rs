//! A scenario as text for people.

use core::fmt::Write as _;
use core::time::Duration;

use tidegate_core::link::{Capacity, Limit, QueueConfig};
use tidegate_core::units::{Bytes, Time};

use super::{FlowPlan, LinkPlan, RatePlan, Scenario};

impl Scenario {
    /// The way of each flow and what its links do, in plain ASCII, one line each.
    pub fn topology(&self) -> String {
        let mut out = String::new();
        for flow in &self.flows {
            out.push_str(&self.ways(flow));
        }
        let width = self.links.iter().map(|link| link.name.len()).max();
        for link in &self.links {
            let width = width.unwrap_or(0);
            let _ = writeln!(out, "{:width$}  {}", link.name, description(link));
        }
        out
    }

    fn ways(&self, flow: &FlowPlan) -> String {
        let hops = |links: &[usize]| -> Vec<String> {
            links
                .iter()
                .filter_map(|link| self.links.get(*link))
                .map(|link| format!("[{}]", link.name))
                .collect()
        };
        let mut back = hops(&flow.back);
        back.reverse();
        let there = format!("--- {} ---", hops(&flow.path).join(" ---> "));
        let back = format!("<--- {} ---", back.join(" <--- "));
        let width = there.len().max(back.len().saturating_sub(1));
        let margin = flow.name.len();
        format!(
            "{} {there:-<width$}> receiver\n{:margin$} {back:-<long$}\n",
            flow.name,
            "",
            long = width + 1,
        )
    }
}

fn description(link: &LinkPlan) -> String {
    let mut parts = vec![match &link.rate {
        None => "no limit".to_owned(),
        Some(RatePlan::Fixed(rate)) => rate.to_string(),
        Some(RatePlan::Steps(steps)) => steps
            .iter()
            .map(|(at, rate)| match at {
                &Duration::ZERO => rate.to_string(),
                at => format!("{rate} from {at:?}"),
            })
            .collect::<Vec<_>>()
            .join(", "),
        Some(RatePlan::Trace(trace)) => {
            let mean = Capacity::Trace(trace.trace.clone()).nominal();
            let mean = mean.map_or(String::new(), |mean| format!(" (mean {mean})"));
            format!("{}{mean}", trace.file)
        }
    }];
    parts.extend(link.queue.as_ref().map(queue));
    parts.push(format!("delay {:?}", link.delay));
    if link.loss > 0.0 {
        parts.push(format!("loss {}", link.loss));
    }
    for outage in &link.outages {
        let moment = |time: Time| time.since(Time::ZERO);
        let (from, to) = (moment(outage.from), moment(outage.to));
        parts.push(format!("dark {from:?} to {to:?}"));
    }
    parts.join("; ")
}

/// A queue in words, as `droptail 60 kB`.
pub(super) fn queue(config: &QueueConfig) -> String {
    match config {
        QueueConfig::DropTail(config) => {
            let marks = match config.mark_above {
                Some(above) => format!(", marks above {}", bytes(above)),
                None => String::new(),
            };
            match config.limit {
                Limit::Bytes(limit) => format!("droptail {}{marks}", bytes(limit)),
                Limit::Packets(limit) => format!("droptail {limit} packets{marks}"),
            }
        }
        QueueConfig::Red(red) => {
            let ecn = if red.ecn { " with ECN" } else { "" };
            let (min, max) = (red.min_threshold, red.max_threshold);
            format!("red {min} to {max} of {} packets{ecn}", red.limit)
        }
    }
}

fn bytes(bytes: Bytes) -> String {
    match bytes.0 {
        kilos if kilos.is_multiple_of(1_000) => format!("{} kB", kilos / 1_000),
        bytes => format!("{bytes} B"),
    }
}
