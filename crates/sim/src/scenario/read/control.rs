//! The controller of a flow.

use tidegate_core::control::Prior;
use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::rap::RapConfig;
use tidegate_core::controller::rcs::RcsConfig;
use tidegate_core::controller::tfrc::{Flavour, PacketSize, StartRule, TfrcConfig};
use tidegate_core::controller::tide::{Friend, TideConfig};
use tidegate_core::units::Bytes;

use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Form, Table, Value};
use crate::scenario::{MediaPlan, TcpSender};
use crate::tcp::{InitialWindow, classic};

pub(super) fn control(value: &Value<'_>) -> Result<ControllerConfig, ScenarioError> {
    const WANTED: &str = "\"tfrc\", { tfrc = { … } }, \"rap\", { rap = { … } }, \"rcs\", { rcs = { … } }, \"tide\", { tide = { … } } or { fixed = \"2Mb/s\" }";
    match value.kind() {
        Form::Text => match value.text(WANTED)? {
            "rap" => Ok(ControllerConfig::Rap(RapConfig::default())),
            "rcs" => Ok(ControllerConfig::Rcs(RcsConfig::default())),
            "tide" => Ok(ControllerConfig::Tide(TideConfig::default())),
            "tfrc" => Ok(ControllerConfig::Tfrc(TfrcConfig::default())),
            other => Err(value.range(
                &format!("there is no controller \"{other}\""),
                &format!("write {WANTED}"),
            )),
        },
        Form::Table => {
            let table = value.table(CONTROL, WANTED)?;
            let mut given = CONTROL
                .iter()
                .filter_map(|name| Some((*name, table.get(name)?)));
            match (given.next(), given.next()) {
                (Some(("tfrc", config)), None) => tfrc(&config).map(ControllerConfig::Tfrc),
                (Some(("rap", config)), None) => rap(&config).map(ControllerConfig::Rap),
                (Some(("rcs", config)), None) => rcs(&config).map(ControllerConfig::Rcs),
                (Some(("tide", config)), None) => tide(&config).map(ControllerConfig::Tide),
                (Some((_, rate)), None) => Ok(ControllerConfig::Fixed {
                    rate: rate.positive_rate("a flow of rate zero sends nothing")?,
                }),
                _ => Err(value.range(
                    "exactly one controller is needed",
                    &format!("write {WANTED}"),
                )),
            }
        }
        Form::List | Form::Other => Err(value.wrong(WANTED)),
    }
}

fn rap(value: &Value<'_>) -> Result<RapConfig, ScenarioError> {
    let table = value.table(RAP, "{ fine_grain = true }")?;
    let mut config = RapConfig::default();
    if let Some(value) = table.get("fine_grain") {
        config.fine_grain = value.boolean()?;
    }
    if let Some(value) = table.get("start") {
        config.start = start_rule(&value)?;
    }
    Ok(config)
}

fn start_rule(value: &Value<'_>) -> Result<StartRule, ScenarioError> {
    value.choice(
        &["slow-start", "informed-paper"],
        &[StartRule::SlowStart, StartRule::InformedPaper],
    )
}

fn rcs(value: &Value<'_>) -> Result<RcsConfig, ScenarioError> {
    let table = value.table(RCS, "{ target = \"10Mb/s\" }")?;
    let mut config = RcsConfig::default();
    if let Some(value) = table.get("target") {
        config.target = Some(value.positive_rate("a stream needs a target rate above zero")?);
    }
    if let Some(value) = table.get("rtt") {
        config.rtt = Some(value.positive_duration("a path has a round-trip time above zero")?);
    }
    if let Some(value) = table.get("backoff") {
        config.backoff = value.boolean()?;
    }
    if let Some(value) = table.get("backoff_timeout") {
        config.backoff_timeout = value.positive_duration("a timeout is above zero")?;
    }
    if let Some(value) = table.get("reserve") {
        config.reserve = value.share()?;
    }
    Ok(config)
}

fn tide(value: &Value<'_>) -> Result<TideConfig, ScenarioError> {
    let table = value.table(TIDE, "{ friend = \"cubic\" }")?;
    let mut config = TideConfig::default();
    if let Some(value) = table.get("friend") {
        config.friend = value.choice(&["reno", "cubic"], &[Friend::Reno, Friend::Cubic])?;
    }
    Ok(config)
}

fn tfrc(value: &Value<'_>) -> Result<TfrcConfig, ScenarioError> {
    let table = value.table(TFRC, "{ damping = true }")?;
    let mut config = TfrcConfig::default();
    if let Some(value) = table.get("flavour") {
        config.flavour = value.choice(
            &["rfc3448", "rfc5348", "multfrc"],
            &[Flavour::Rfc3448, Flavour::Rfc5348, Flavour::Multfrc],
        )?;
        // On by default in this flavour, as in ns-2, and off in RFC 5348.
        config.damping = config.flavour == Flavour::Rfc3448;
    }
    if let Some(value) = table.get("damping") {
        config.damping = value.boolean()?;
    }
    if let Some(value) = table.get("discounting") {
        config.discounting = value.boolean()?;
    }
    if let Some(value) = table.get("packet_size") {
        config.packet_size = value.choice(
            &["mean", "nominal"],
            &[PacketSize::Mean, PacketSize::Nominal],
        )?;
    }
    older_tfrc(&table, &mut config)?;
    Ok(config)
}

/// Keys that only RFC 3448 has.
fn older_tfrc(table: &Table<'_>, config: &mut TfrcConfig) -> Result<(), ScenarioError> {
    for key in TFRC_3448 {
        if let Some(value) = table
            .get(key)
            .filter(|_| config.flavour != Flavour::Rfc3448)
        {
            return Err(value.fault(Fault::Conflict {
                why: "RFC 5348 has no such option".to_owned(),
                fix: "remove it, or add flavour = \"rfc3448\"".to_owned(),
            }));
        }
    }
    let options = &mut config.rfc3448;
    if let Some(value) = table.get("tick") {
        options.tick = value.positive_duration("a clock needs a tick above zero")?;
    }
    if let Some(value) = table.get("slow_increase") {
        options.slow_increase = value.boolean()?;
    }
    if let Some(value) = table.get("initial_window") {
        options.initial_window = Some(value.whole(1..=100)? as f64);
    }
    if let Some(value) = table.get("first_rate") {
        options.first_rate = value.positive_rate("a flow needs an initial rate above zero")?;
    }
    if let Some(value) = table.get("intervals") {
        options.intervals = value.whole(2..=32)? as u8;
    }
    if let Some(value) = table.get("start") {
        options.start = start_rule(&value)?;
    }
    if let Some(value) = table.get("discount_floor") {
        options.discount_floor = value.share()?;
    }
    Ok(())
}

/// Kinds of flows that control their own rate.
const OWN_CONTROL: [&str; 5] = ["cp", "tcp", "udp", "web", "transport"];

/// The controller, if the kind of the flow does not include one.
pub(super) fn control_of(flow: &Table<'_>) -> Result<Option<ControllerConfig>, ScenarioError> {
    let kind = OWN_CONTROL.iter().find(|kind| flow.get(kind).is_some());
    match (flow.get("control"), kind) {
        (None, None) => Ok(Some(ControllerConfig::default())),
        (None, Some(_)) => Ok(None),
        (Some(value), None) => control(&value).map(Some),
        (Some(value), Some(kind)) => Err(value.fault(Fault::Conflict {
            why: format!("a {kind} flow has its own rate control"),
            fix: "remove it, or send bulk or video over RTP".to_owned(),
        })),
    }
}

/// What a flow knows about its path.
pub(super) fn prior_of(flow: &Table<'_>) -> Result<Option<Prior>, ScenarioError> {
    let Some(value) = flow.get("prior") else {
        return Ok(None);
    };
    let mut others = OWN_CONTROL.iter().filter(|kind| **kind != "tcp");
    if others.any(|kind| flow.get(kind).is_some()) {
        return Err(value.fault(Fault::Conflict {
            why: "only a flow with control or tcp has a use for a prior".to_owned(),
            fix: "remove it, or send bulk or video over RTP".to_owned(),
        }));
    }
    let table = value.table(PRIOR, "{ rate = \"500kb/s\", rtt = \"40ms\" }")?;
    let rate = table.need("rate", "rate = \"500kb/s\"")?;
    let rtt = table.need("rtt", "rtt = \"40ms\"")?;
    Ok(Some(Prior {
        rate: rate.positive_rate("a path that carries nothing has no prior")?,
        rtt: rtt.positive_duration("a path has a round-trip time above zero")?,
        confidence: table
            .get("confidence")
            .map_or(Ok(1.0), |value| value.share())?,
    }))
}

/// The window of a TCP that knows its path: congestion avoidance begins at once.
pub(super) fn informed_window(
    flow: &Table<'_>,
    mut media: MediaPlan,
    prior: Option<Prior>,
) -> Result<MediaPlan, ScenarioError> {
    let (Some(prior), MediaPlan::Tcp(plan)) = (prior, &mut media) else {
        return Ok(media);
    };
    let conflict = |why: &str, fix: &str| {
        let value = flow.need("prior", "prior = { rate = \"500kb/s\", rtt = \"40ms\" }")?;
        let (why, fix) = (why.to_owned(), fix.to_owned());
        Err(value.fault(Fault::Conflict { why, fix }))
    };
    let TcpSender::Classic(sender) = &mut plan.sender else {
        return conflict(
            "the TCP of Linux has no prior",
            "remove it, or choose kind = \"reno\", \"newreno\" or \"sack\"",
        );
    };
    if sender.initial_window != classic::Config::default().initial_window {
        return conflict("it is an initial window too", "write one of both");
    }
    let packets = prior.window(Bytes(sender.packet_size.into())) as u32;
    sender.initial_window = InitialWindow::Segments(packets);
    sender.initial_ssthresh = Some(packets.min(sender.window));
    Ok(media)
}

pub(super) const PRIOR: &[&str] = &["rate", "rtt", "confidence"];

pub(super) const CONTROL: &[&str] = &["tfrc", "rap", "rcs", "tide", "fixed"];

pub(super) const TIDE: &[&str] = &["friend"];

pub(super) const RCS: &[&str] = &["target", "rtt", "backoff", "backoff_timeout", "reserve"];

pub(super) const RAP: &[&str] = &["fine_grain", "start"];

pub(super) const TFRC: &[&str] = &[
    "flavour",
    "damping",
    "discounting",
    "packet_size",
    "tick",
    "slow_increase",
    "initial_window",
    "first_rate",
    "intervals",
    "discount_floor",
    "start",
];

const TFRC_3448: &[&str] = &[
    "tick",
    "slow_increase",
    "initial_window",
    "first_rate",
    "intervals",
    "discount_floor",
    "start",
];
