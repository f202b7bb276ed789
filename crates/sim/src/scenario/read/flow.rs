//! Flows: routes, controllers, media.

use core::time::Duration;
use std::sync::Arc;

use tidegate_core::control::Ecn;
use tidegate_core::endpoint::LOWER_EFFORT;
use tidegate_core::link::{DropTailConfig, QueueConfig};
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::units::Rate;

use super::control::{control_of, informed_window, prior_of};
use super::routes::{self, Nodes};
use super::{Names, Sources, models, over_time::TRACE};
use crate::interactive::StreamPlan;
use crate::scenario::error::{Fault, ScenarioError};
use crate::scenario::table::{Form, Table, Value};
use crate::scenario::{
    AccessPlan, EncoderKind, FlowPlan, MEDIA_PACKET, MediaPlan, Scenario, SendBuffer, VideoPlan,
};
use crate::traffic::video::FrameTrace;

pub(super) fn flow(
    item: &Value<'_>,
    scenario: &Scenario,
    nodes: &Nodes,
    names: &mut Names,
    sources: Sources<'_>,
) -> Result<FlowPlan, ScenarioError> {
    let mut table = item.table(FLOW, "a table")?;
    let name = names.take(&table.need("name", "name = \"camera\"")?)?;
    table.place(format!("flow \"{name}\""));
    let count = match table.get("count") {
        Some(value) => value.whole(1..=MAX_FLOWS)? as u32,
        None => 1,
    };
    if count > 1 {
        names.take_members(&table.need("name", "name = \"camera\"")?, count)?;
    }
    let (start, start_spread) = match table.get("start") {
        Some(start) => span(&start, scenario.duration)?,
        None => (Duration::ZERO, Duration::ZERO),
    };
    let start_step = start_step(&table, count, (start + start_spread, scenario.duration))?;
    let last = start + start_spread + start_step * (count - 1);
    let stop = stop(&table, last, scenario.duration)?;
    let (path, back) = routes::of_flow(&table, scenario, nodes)?;
    let prior = prior_of(&table)?;
    let plan = FlowPlan {
        name,
        count,
        path,
        back,
        access: access(&table, "access")?,
        exit: access(&table, "exit")?,
        control: control_of(&table, sources)?,
        prior,
        media: informed_window(
            &table,
            media(&table, count, (start, stop), scenario, sources)?,
            prior,
        )?,
        yielding: false,
        patience: table.get("patience").map_or(Ok(PATIENCE), |value| {
            value.positive_duration("a session without patience ends at its first pause")
        })?,
        parity: table
            .get("parity")
            .map_or(Ok(true), |value| value.boolean())?,
        ecn: Ecn::NotEct,
        dscp: table.get("dscp").map_or(Ok(0), |value| dscp(&value))?,
        start,
        start_spread,
        start_step,
        stop,
    };
    let plan = super::ecn::with(&table, plan)?;
    let yielding = yielding(&table, &plan)?;
    Ok(FlowPlan { yielding, ..plan })
}

/// End of the flows of a group, of which the last starts at `last`.
fn stop(flow: &Table<'_>, last: Duration, end: Duration) -> Result<Duration, ScenarioError> {
    let Some(value) = flow.get("stop") else {
        return Ok(end);
    };
    let stop = within(&value, end)?;
    if stop > last {
        return Ok(stop);
    }
    Err(value.range(
        &format!("the flow stops at {stop:?}, not after its start at {last:?}"),
        "choose a later stop",
    ))
}

/// Distance of the starts of the flows of a group, of which the first starts until `life.0` and all
/// before `life.1`.
fn start_step(
    flow: &Table<'_>,
    count: u32,
    life: (Duration, Duration),
) -> Result<Duration, ScenarioError> {
    let Some(value) = flow.get("every") else {
        return Ok(Duration::ZERO);
    };
    let step = value.duration()?;
    let last = step
        .checked_mul(count - 1)
        .map(|last| last.saturating_add(life.0));
    match last {
        Some(last) if last < life.1 => Ok(step),
        _ => Err(value.range(
            &format!(
                "the last of {count} flows does not start within the run of {:?}",
                life.1
            ),
            "shorten the distance, or lengthen the duration",
        )),
    }
}

/// A code point (RFC 2474), or the name of lower effort (RFC 8622).
fn dscp(value: &Value<'_>) -> Result<u8, ScenarioError> {
    if value.kind() == Form::Text {
        return value.choice(&["le"], &[LOWER_EFFORT]);
    }
    Ok(value.whole(0..=63)? as u8)
}

/// Only flows with a delay bound can yield.
fn yielding(flow: &Table<'_>, plan: &FlowPlan) -> Result<bool, ScenarioError> {
    let Some(value) = flow.get("yielding") else {
        return Ok(false);
    };
    if plan.fixed_rate().is_some()
        || plan
            .media
            .video()
            .is_none_or(|video| video.stream.is_some())
    {
        return Err(value.fault(Fault::Conflict {
            why: "only a video with rate control over RTP has a delay bound that can yield"
                .to_owned(),
            fix: "leave it out, or send video = { … } with control = \"tfrc\"".to_owned(),
        }));
    }
    value.boolean()
}

/// A time span up to `end`, or a range from which each flow draws its own. Returns the lower end
/// and the width.
fn span(value: &Value<'_>, end: Duration) -> Result<(Duration, Duration), ScenarioError> {
    if value.kind() != Form::List {
        return Ok((within(value, end)?, Duration::ZERO));
    }
    let ends = value.list("two time spans, as [\"1ms\", \"20ms\"]")?;
    let [from, to] = ends.as_slice() else {
        return Err(value.range(
            &format!("a range of {} parts", ends.len()),
            "write the shortest and the longest, as [\"1ms\", \"20ms\"]",
        ));
    };
    let (low, high) = (within(from, end)?, within(to, end)?);
    if high < low {
        return Err(to.range(
            &format!("{high:?} is less than {low:?}"),
            "write the smaller one first",
        ));
    }
    Ok((low, high.saturating_sub(low)))
}

/// A link between the host of a flow and the network.
fn access(flow: &Table<'_>, key: &'static str) -> Result<Option<AccessPlan>, ScenarioError> {
    let Some(value) = flow.get(key) else {
        return Ok(None);
    };
    let table = value.table(ACCESS, "{ rate = \"100Mb/s\", delay = \"1ms\" }")?;
    let (delay, delay_spread) = match table.get("delay") {
        Some(delay) => span(&delay, Duration::MAX)?,
        None => (Duration::ZERO, Duration::ZERO),
    };
    let rate = match table.get("rate") {
        Some(rate) => Some(rate.positive_rate("a link of rate zero carries nothing")?),
        None => None,
    };
    Ok(Some(AccessPlan {
        rate,
        delay,
        delay_spread,
        queue: match table.get("queue") {
            Some(queue) => super::queue::queue(&queue, rate, delay)?,
            None => QueueConfig::DropTail(DropTailConfig::packets(ACCESS_QUEUE)),
        },
    }))
}

/// A time within the run.
fn within(value: &Value<'_>, end: Duration) -> Result<Duration, ScenarioError> {
    let moment = value.duration()?;
    if moment > end {
        return Err(value.range(
            &format!("{moment:?} is after the end of the run at {end:?}"),
            "choose an earlier time or lengthen the duration",
        ));
    }
    Ok(moment)
}

fn media(
    flow: &Table<'_>,
    count: u32,
    life: (Duration, Duration),
    scenario: &Scenario,
    sources: Sources<'_>,
) -> Result<MediaPlan, ScenarioError> {
    let end = scenario.duration;
    let kinds = ["bulk", "cp", "tcp", "udp", "video", "web"];
    let given: Vec<&str> = kinds
        .into_iter()
        .filter(|kind| flow.get(kind).is_some())
        .collect();
    let [kind] = given.as_slice() else {
        return Err(flow.fault(Fault::Conflict {
            why: match given.as_slice() {
                [] => "the flow has no data source".to_owned(),
                several => format!("the flow has {}", several.join(" and ")),
            },
            fix: "write one of video = { … }, bulk = { packet = \"1200B\" }, tcp = { … }, \
                   udp = { … }, cp = { … } and web = { … }"
                .to_owned(),
        }));
    };
    let value = flow.need(kind, "bulk = { packet = \"1200B\" }")?;
    if *kind == "video" {
        let bound = flow.need("delay_bound", "delay_bound = \"400ms\"")?;
        let bound = bound.positive_duration("a delay bound of zero cannot be met")?;
        let mut video = video_plan(&value, bound, life, sources)?;
        if let Some(value) = flow.get("transport") {
            video.stream = Some(transport(&value, &video)?);
        }
        return Ok(MediaPlan::Video(video));
    }
    if let Some(transport) = flow.get("transport") {
        return Err(transport.fault(Fault::Conflict {
            why: format!("{kind} data has its own transport"),
            fix: "remove it, or send video = { … }".to_owned(),
        }));
    }
    if let Some(bound) = flow.get("delay_bound") {
        return Err(bound.fault(Fault::Conflict {
            why: format!("{kind} data has no deadline"),
            fix: "remove it, or send video = { … }".to_owned(),
        }));
    }
    match *kind {
        "bulk" => models::bulk(&value, end).map(MediaPlan::Bulk),
        "cp" => super::coordination::cp(&value, flow, count, scenario).map(MediaPlan::Cp),
        "tcp" => models::tcp(&value, end).map(MediaPlan::Tcp),
        "udp" => models::udp(&value, end).map(MediaPlan::Udp),
        _ => models::browsers(&value, count).map(MediaPlan::Web),
    }
}

/// The transport of `video` over TCP.
pub(super) fn transport(
    value: &Value<'_>,
    video: &VideoPlan,
) -> Result<Box<StreamPlan>, ScenarioError> {
    if !video.pauses.is_empty() {
        return Err(value.fault(Fault::Conflict {
            why: "video over TCP does not support pauses".to_owned(),
            fix: "remove pause, or use stop or the frames of the transport".to_owned(),
        }));
    }
    if video.buffer != SendBuffer::Bound {
        return Err(value.fault(Fault::Conflict {
            why: "video over TCP has the buffer of its socket".to_owned(),
            fix: "remove the buffer of the video, or set the backlog of the transport".to_owned(),
        }));
    }
    super::transport::transport(value).map(Box::new)
}

fn video_plan(
    value: &Value<'_>,
    delay_bound: Duration,
    life: (Duration, Duration),
    sources: Sources<'_>,
) -> Result<VideoPlan, ScenarioError> {
    let table = value.table(
        VIDEO,
        "{ size = \"640x360\", fps = 30, encoder = \"model\" }",
    )?;
    let (width, height) = match table.get("size") {
        Some(size) => picture_size(&size)?,
        None => (640, 360),
    };
    let floor = match table.get("floor") {
        Some(floor) => floor.positive_rate("an encoder needs a rate above zero")?,
        None => FLOOR,
    };
    let ceiling = match table.get("ceiling") {
        Some(ceiling) => ceiling.rate()?,
        None => CEILING.max(floor),
    };
    if let Some(value) = table.get("ceiling").filter(|_| ceiling < floor) {
        return Err(value.range(
            &format!("the ceiling, {ceiling}, is below the floor, {floor}"),
            "raise the ceiling or lower the floor",
        ));
    }
    let encoder = match table.get("encoder") {
        Some(kind) => encoder(&kind, sources)?,
        None => EncoderKind::Model,
    };
    Ok(VideoPlan {
        width,
        height,
        frame_rate: match (table.get("fps"), &encoder) {
            (fps, EncoderKind::Trace(trace)) => recorded_rate(fps, trace)?,
            (Some(fps), _) => frame_rate(&fps)?,
            (None, _) => FrameRate::fps(30),
        },
        encoder,
        floor,
        ceiling,
        delay_bound,
        packet: match table.get("packet") {
            Some(size) => super::media_packet(&size)?,
            None => MEDIA_PACKET,
        },
        buffer: match table.get("buffer") {
            Some(buffer) => super::send_buffer(&buffer)?,
            None => SendBuffer::Bound,
        },
        stream: None,
        pauses: match table.get("pause") {
            Some(list) => pauses(&list, life)?,
            None => Vec::new(),
        },
    })
}

/// The frame rate of a recording. The file may state it but cannot change it.
fn recorded_rate(fps: Option<Value<'_>>, trace: &FrameTrace) -> Result<FrameRate, ScenarioError> {
    if let Some(fps) = fps
        && frame_rate(&fps)? != trace.frame_rate()
    {
        return Err(fps.range(
            &format!(
                "the trace has {} frames a second",
                trace.frame_rate().as_f64()
            ),
            "leave fps out",
        ));
    }
    Ok(trace.frame_rate())
}

fn encoder(value: &Value<'_>, sources: Sources<'_>) -> Result<EncoderKind, ScenarioError> {
    if value.kind() == Form::Table {
        let table = value.table(TRACE, "{ trace = \"traces/scene.frames\" }")?;
        let trace = table.need("trace", "trace = \"traces/scene.frames\"")?;
        let file = trace.text("a file name in quotes")?;
        let text = (sources.open)(file).map_err(|why| {
            trace.fault(Fault::Unreadable {
                file: file.to_owned(),
                why,
            })
        })?;
        let recorded = FrameTrace::parse(&text)
            .map_err(|error| trace.range(&format!("{file}: {error}"), "record it again"))?;
        return Ok(EncoderKind::Trace(Arc::new(recorded)));
    }
    let codecs = [None, Some(Codec::H264), Some(Codec::Mpeg2)];
    let codec = value.choice(&["model", "x264", "mpeg2"], &codecs)?;
    Ok(codec.map_or(EncoderKind::Model, EncoderKind::Real))
}

/// Intervals within the `life` of a flow in which its camera is off.
fn pauses(
    list: &Value<'_>,
    life: (Duration, Duration),
) -> Result<Vec<(Duration, Duration)>, ScenarioError> {
    const WANTED: &str = "a list, as [{ at = \"40s\", lasts = \"20s\" }]";
    let mut pauses: Vec<(Duration, Duration)> = Vec::new();
    for item in list.list(WANTED)? {
        let table = item.table(PAUSE, "{ at = \"40s\", lasts = \"20s\" }")?;
        let at = table.need("at", "at = \"40s\"")?;
        let lasts = table.need("lasts", "lasts = \"20s\"")?;
        let start = at.duration()?;
        let over =
            start.saturating_add(lasts.positive_duration("a pause of zero length does nothing")?);
        if start < life.0 {
            return Err(at.range(
                &format!(
                    "the pause begins at {start:?}, before the flow does at {:?}",
                    life.0
                ),
                "choose a later time, or an earlier start of the flow",
            ));
        }
        if over > life.1 {
            return Err(lasts.range(
                &format!(
                    "the pause ends at {over:?}, but the flow stops at {:?}",
                    life.1
                ),
                "move it forward or shorten it; to end the flow, use stop",
            ));
        }
        if pauses.last().is_some_and(|last| last.1 > start) {
            return Err(at.range(
                &format!("the pause at {start:?} begins before the previous one ends"),
                "sort the pauses and remove overlaps",
            ));
        }
        pauses.push((start, over));
    }
    Ok(pauses)
}

fn picture_size(value: &Value<'_>) -> Result<(u32, u32), ScenarioError> {
    let text = value.text("a size in pixels in quotes, as \"640x360\"")?;
    let side = |side: &str| {
        side.parse()
            .ok()
            .filter(|side: &u32| side.is_multiple_of(2) && (16..=4_096).contains(side))
    };
    text.split_once('x')
        .and_then(|(width, height)| side(width).zip(side(height)))
        .ok_or_else(|| {
            value.range(
                &format!("\"{text}\" is not a valid picture size"),
                "write width and height in pixels, even, from 16 to 4096, as \"640x360\"",
            )
        })
}

fn frame_rate(value: &Value<'_>) -> Result<FrameRate, ScenarioError> {
    if value.kind() != Form::Text {
        return value.whole(1..=240).map(|fps| FrameRate::fps(fps as u32));
    }
    let text = value.text("frames per second, as 30 or \"30000/1001\"")?;
    text.split_once('/')
        .and_then(|(num, den)| num.parse().ok().zip(den.parse().ok()))
        .map(|(num, den)| FrameRate { num, den })
        // From 1 to 240 frames per second; `den` of at least one keeps the quotient finite.
        .filter(|rate| rate.den >= 1 && (1.0..=240.0).contains(&rate.as_f64()))
        .ok_or_else(|| {
            value.range(
                &format!("\"{text}\" is not a valid frame rate"),
                "write frames per second from 1 to 240, as 30 or \"30000/1001\"",
            )
        })
}

/// Default minimum rate of the encoder: about the lowest at which 640x360 is watchable.
const FLOOR: Rate = Rate::kbps(150);
/// Default maximum rate: above 6 Mb/s the quality of 640x360 hardly improves.
const CEILING: Rate = Rate::kbps(6_000);

/// The largest number that a run folder can list.
const MAX_FLOWS: u64 = 100_000;
/// Default queue of an access link in packets, as in the interface of a host.
const ACCESS_QUEUE: u32 = 1_000;

/// As of `tidegate send`.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) const FLOW: &[&str] = &[
    "name",
    "count",
    "path",
    "back",
    "from",
    "to",
    "access",
    "exit",
    "control",
    "prior",
    "video",
    "bulk",
    "cp",
    "tcp",
    "udp",
    "web",
    "transport",
    "delay_bound",
    "yielding",
    "parity",
    "patience",
    "ecn",
    "dscp",
    "start",
    "every",
    "stop",
];

pub(super) const ACCESS: &[&str] = &["rate", "delay", "queue"];

pub(super) const VIDEO: &[&str] = &[
    "size", "fps", "encoder", "floor", "ceiling", "packet", "buffer", "pause",
];

pub(super) const PAUSE: &[&str] = &["at", "lasts"];
