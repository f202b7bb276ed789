//! Output of a gateway: a table or an object per second.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tidegate_console::output::{output, print_json};
use tidegate_core::aggregate::{ApplicationKey, ApplicationState};
use tidegate_live::gateway::{GatewayConfig, GatewayState};

/// Options of JSON output.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct OutputArgs {
    /// Print the state at the end as one JSON object
    #[arg(long)]
    json: bool,
    /// Print the state as a JSON object per second, and at the end
    #[arg(long, conflicts_with = "json")]
    json_lines: bool,
}

impl OutputArgs {
    /// Whether any output is JSON.
    pub(super) fn is_json(self) -> bool {
        self.json || self.json_lines
    }
}

/// Prints the state after a second.
pub(super) fn each_second(
    state: &GatewayState,
    config: &GatewayConfig,
    args: OutputArgs,
) -> Result<()> {
    if args.json_lines {
        return print_json(&object(state, config));
    }
    if args.is_json() {
        return Ok(());
    }
    let text = table(state, config);
    writeln!(output(), "{text}").context("cannot print the table")
}

/// Prints the state at the end, for `--json` and `--json-lines`; otherwise the counters.
pub(super) fn end(state: &GatewayState, config: &GatewayConfig, args: OutputArgs) -> Result<()> {
    if args.is_json() {
        return print_json(&object(state, config));
    }
    let text = irregularities(state);
    writeln!(output(), "{text}").context("cannot print the counters")
}

/// A line for each application.
fn table(state: &GatewayState, config: &GatewayConfig) -> String {
    let head = [
        "site", "app", "shares", "flows", "rtt_ms", "sent", "kb/s", "loss", "avail", "received",
        "kb/s", "loss", "avail", "state",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(state.applications.iter().map(|entry| row(entry, config)));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 14] = std::array::from_fn(width);
    let mut text = format!("{:.0} s\n", state.at.as_secs_f64());
    for row in rows {
        let mut cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:>width$}"));
        let _ = writeln!(text, "{}", cells.by_ref().collect::<Vec<_>>().join("  "));
    }
    text
}

fn row((key, state): &(ApplicationKey, ApplicationState), config: &GatewayConfig) -> [String; 14] {
    let kbps = |rate: tidegate_core::units::Rate| format!("{:.0}", rate.as_f64() / 1e3);
    let percent = |share: f64| format!("{:.2}%", 100.0 * share);
    [
        site(*key, config),
        key.application.0.to_string(),
        state.shares.get().to_string(),
        state.flows.to_string(),
        format!("{:.1}", 1e3 * state.rtt.as_secs_f64()),
        state.sent.to_string(),
        kbps(state.sending),
        percent(state.remote_loss),
        kbps(state.remote_available),
        state.received.to_string(),
        kbps(state.arriving),
        percent(state.loss),
        kbps(state.available),
        word(state).to_owned(),
    ]
}

/// First prefix of the hosts of a site.
fn site(key: ApplicationKey, config: &GatewayConfig) -> String {
    let rule = config.remote.get(key.site.0 as usize);
    let prefix = rule.and_then(|rule| rule.hosts.first());
    prefix.map_or_else(String::new, ToString::to_string)
}

fn word(state: &ApplicationState) -> &'static str {
    if state.is_stopped {
        "stopped"
    } else if state.peer_lost {
        "peer-lost"
    } else if state.rtt.is_zero() {
        "unanswered"
    } else {
        "open"
    }
}

/// Counters that are not zero.
fn irregularities(state: &GatewayState) -> String {
    let mut text = format!("{} frames", state.frames.frames);
    for (name, count) in counters(state) {
        if count > 0 {
            let _ = write!(text, ", {count} {}", name.replace('_', " "));
        }
    }
    text
}

fn counters(state: &GatewayState) -> [(&'static str, u64); 19] {
    let (packets, frames, ports) = (state.packets, state.frames, state.ports);
    [
        ("datagrams", frames.datagrams),
        ("rewritten", packets.rewritten),
        ("invalid", packets.invalid),
        ("forbidden", frames.forbidden),
        ("refused", packets.refused),
        ("unknown", packets.unknown),
        ("late", packets.late),
        ("jumps", packets.jumps),
        ("invalid_echoes", packets.invalid_echoes),
        ("expired", packets.expired),
        ("stopped", packets.stopped),
        ("fragments", frames.fragments),
        ("truncated", frames.truncated),
        ("too_large", ports.too_large),
        ("not_sent", ports.not_sent),
        ("notifications", ports.notifications),
        ("batches", ports.batches),
        ("failed", ports.failed),
        ("missed", ports.missed),
    ]
}

fn object(state: &GatewayState, config: &GatewayConfig) -> Value {
    let applications = state.applications.iter();
    let applications = applications.map(|(key, state)| {
        json!({
            "site": site(*key, config),
            "application": key.application.0,
            "shares": state.shares.get(),
            "flows": state.flows,
            "rtt_ms": 1e3 * state.rtt.as_secs_f64(),
            "sent": state.sent,
            "sending_bps": state.sending.as_bps(),
            "sending_loss": state.remote_loss,
            "sending_available_bps": state.remote_available.as_bps(),
            "received": state.received,
            "lost": state.lost,
            "arriving_bps": state.arriving.as_bps(),
            "arriving_loss": state.loss,
            "arriving_available_bps": state.available.as_bps(),
            "sampled": state.fraction,
            "state": word(state),
        })
    });
    let counters = counters(state).into_iter();
    let counters = counters.map(|(name, count)| (name.to_owned(), count.into()));
    json!({
        "time_s": state.at.as_secs_f64(),
        "applications": applications.collect::<Vec<_>>(),
        "frames": state.frames.frames,
        "counters": counters.collect::<serde_json::Map<_, Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::aggregate::bridge::BridgeCounters;
    use tidegate_core::aggregate::{AggregateConfig, Counters, SiteId};
    use tidegate_core::units::{Rate, Time};
    use tidegate_core::wire::cp::{ApplicationId, Shares};
    use tidegate_live::gateway::PortCounters;

    use super::*;

    fn state() -> GatewayState {
        let key = ApplicationKey {
            site: SiteId(0),
            application: ApplicationId(7),
        };
        let application = ApplicationState {
            shares: Shares::ONE,
            flows: 3,
            rtt: Duration::from_micros(40_200),
            sent: 1_000,
            received: 980,
            lost: 20,
            sending: Rate::kbps(800),
            remote_loss: 0.0,
            remote_available: Rate::kbps(900),
            loss: 0.02,
            available: Rate::kbps(700),
            arriving: Rate::kbps(650),
            fraction: 1.0,
            peer_lost: false,
            is_stopped: false,
        };
        GatewayState {
            at: Time::from_secs(5),
            applications: vec![(key, application)],
            packets: Counters {
                late: 2,
                ..Counters::default()
            },
            frames: BridgeCounters {
                frames: 2_000,
                ..BridgeCounters::default()
            },
            ports: PortCounters::default(),
        }
    }

    fn config() -> GatewayConfig {
        GatewayConfig {
            site_interface: "a".into(),
            path_interface: "b".into(),
            aggregation: AggregateConfig::default(),
            remote: vec![tidegate_core::aggregate::sites::SiteRule {
                hosts: vec!["198.51.100.0/24".parse().unwrap()],
                ..Default::default()
            }],
        }
    }

    #[test]
    fn table_has_a_line_per_application() {
        let text = table(&state(), &config());
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["5", "s"]);
        assert_eq!(lines[1].len(), 14);
        let expected = [
            "198.51.100.0/24",
            "7",
            "1",
            "3",
            "40.2",
            "1000",
            "800",
            "0.00%",
            "900",
            "980",
            "650",
            "2.00%",
            "700",
            "open",
        ];
        assert_eq!(lines[2], expected);
        assert_eq!(irregularities(&state()), "2000 frames, 2 late");
    }

    #[test]
    fn object_has_all_numbers() {
        let object = object(&state(), &config());
        assert_eq!(object["applications"][0]["rtt_ms"], 40.2);
        assert_eq!(object["applications"][0]["lost"], 20);
        assert_eq!(object["counters"]["late"], 2);
        assert_eq!(
            object["counters"].as_object().map(serde_json::Map::len),
            Some(19)
        );
    }
}
