//! A scenario as text for people.

use core::fmt::Write as _;
use core::time::Duration;

use super::{FlowPlan, LinkPlan, QueuePlan, RatePlan, Scenario};

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
            format!("{} (mean {})", trace.file, trace.mean_rate())
        }
    }];
    match &link.queue {
        None => {}
        Some(QueuePlan::DropTail(limit)) => parts.push(format!("drop-tail {limit}")),
        Some(QueuePlan::Red(red)) => {
            let marks = if red.ecn { " with ECN" } else { "" };
            parts.push(format!("RED{marks} {}", red.limit));
        }
    }
    parts.push(format!("delay {:?}", link.delay));
    if link.loss > 0.0 {
        parts.push(format!("loss {}", link.loss));
    }
    for outage in &link.outages {
        let end = outage.at + outage.lasts;
        parts.push(format!("dark {:?} to {end:?}", outage.at));
    }
    parts.join("; ")
}
