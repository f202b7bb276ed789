//! From the tree of a file to a plan, with every check.

use core::time::Duration;
use std::collections::BTreeMap;

use tidegate_core::controller::ControllerConfig;
use tidegate_core::controller::tfrc::{PacketSize, TfrcConfig};
use tidegate_core::link::{DropTailConfig, Outage, QueueConfig, RedConfig};
use tidegate_core::media::FrameRate;
use tidegate_core::random::Seed;
use tidegate_core::units::{Bytes, Rate, Time};
use toml::de::DeTable;

use super::error::{Fault, ScenarioError};
use super::table::{Document, Form, Table, Value};
use super::{
    BaselinePlan, BaselineRate, CapacityTrace, EncoderKind, FlowPlan, LinkPlan, MediaPlan,
    RatePlan, Scenario, VideoPlan,
};
use crate::run::{ExpectError, Expectation};

type Open<'a> = &'a dyn Fn(&str) -> Result<String, String>;

pub(super) fn scenario(file: &str, text: &str, open: Open<'_>) -> Result<Scenario, ScenarioError> {
    let document = Document { file, text };
    let tree = DeTable::parse(text).map_err(|error| ScenarioError {
        file: file.to_owned(),
        line: Some(document.line(error.span().map_or(0, |span| span.start))),
        place: String::new(),
        key: String::new(),
        fault: Box::new(Fault::Syntax(error.message().to_owned())),
    })?;
    let head = Table::new(&document, String::new(), &(0..0), tree.get_ref(), HEAD)?;
    let duration = length(&head.need("duration", "duration = \"60s\"")?)?;
    let mut names = Names::default();
    let mut scenario = Scenario {
        name: name(&head.need("name", "name = \"demo\"")?)?,
        about: match head.get("about") {
            Some(about) => about.text("one line in quotes")?.to_owned(),
            None => String::new(),
        },
        duration,
        seed: match head.get("seed") {
            // TOML integers are signed.
            Some(seed) => Seed(seed.whole(0..=i64::MAX as u64)?),
            None => Seed(1),
        },
        links: Vec::new(),
        flows: Vec::new(),
        baselines: Vec::new(),
        expect: Vec::new(),
    };
    let links = head.need("link", "a [[link]] with name, rate, delay and queue")?;
    for item in links.list("one or more [[link]]")? {
        scenario
            .links
            .push(link(&item, duration, &mut names, open)?);
    }
    let flows = head.need(
        "flow",
        "a [[flow]] with name, path, back, control and video",
    )?;
    for item in flows.list("one or more [[flow]]")? {
        let flow = flow(&item, &scenario, &mut names)?;
        scenario.flows.push(flow);
    }
    if let Some(baselines) = head.get("baseline") {
        for item in baselines.list("one or more [[baseline]]")? {
            let baseline = baseline(&item, &scenario, &mut names)?;
            scenario.baselines.push(baseline);
        }
    }
    unused_links(&scenario, &links)?;
    if let Some(list) = head.get("expect") {
        scenario.expect = expectations(&list, &scenario)?;
    }
    Ok(scenario)
}

/// Names of links, flows and baselines with the line of each: metrics address all of them alike.
#[derive(Default)]
struct Names(BTreeMap<String, usize>);

impl Names {
    fn take(&mut self, value: &Value<'_>) -> Result<String, ScenarioError> {
        let name = name(value)?;
        match self.0.insert(name.clone(), value.line()) {
            None => Ok(name),
            Some(first) => Err(value.fault(Fault::Duplicate { name, first })),
        }
    }
}

fn name(value: &Value<'_>) -> Result<String, ScenarioError> {
    let name = value.text("a name in quotes, as \"uplink\"")?;
    if name == "link" {
        return Err(value.range(
            "\"link\" is a word of the expectations",
            "choose another name",
        ));
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.len() <= 40
        && name.chars().all(fine)
    {
        return Ok(name.to_owned());
    }
    Err(value.range(
        &format!("\"{name}\" is no name"),
        "write at most 40 letters, digits, - and _, a letter first",
    ))
}

/// The length of the run: a day at most, which no event loop needs more of.
fn length(value: &Value<'_>) -> Result<Duration, ScenarioError> {
    let duration = value.positive_duration("a run of zero length shows nothing")?;
    if duration > Duration::from_hours(24) {
        return Err(value.range("longer than a day", "write at most \"24h\""));
    }
    Ok(duration)
}

fn expectations(list: &Value<'_>, scenario: &Scenario) -> Result<Vec<Expectation>, ScenarioError> {
    const WANTED: &str =
        "a list of statements in quotes, as [\"tidegate.on_time_of_savable >= 0.9\"]";
    let flows = scenario.flows.iter().map(|flow| flow.name.as_str());
    let baselines = scenario.baselines.iter().map(|plan| plan.name.as_str());
    let flows: Vec<&str> = flows.chain(baselines).collect();
    let links: Vec<&str> = scenario
        .links
        .iter()
        .map(|link| link.name.as_str())
        .collect();
    let statement = |item: &Value<'_>| {
        let fault = |error: ExpectError| item.fault(Fault::Expect(error));
        let statement: Expectation = item.text(WANTED)?.parse().map_err(fault)?;
        statement.check(&flows, &links).map_err(fault)?;
        Ok(statement)
    };
    list.list(WANTED)?.iter().map(statement).collect()
}

fn link(
    item: &Value<'_>,
    end: Duration,
    names: &mut Names,
    open: Open<'_>,
) -> Result<LinkPlan, ScenarioError> {
    let mut table = item.table(LINK, "a table")?;
    let name = names.take(&table.need("name", "name = \"uplink\"")?)?;
    table.place(format!("link \"{name}\""));
    let rate = table
        .get("rate")
        .map(|value| capacity(&value, end, open))
        .transpose()?;
    let queue = table.get("queue").map(|value| queue(&value)).transpose()?;
    if rate.is_some() && queue.is_none() {
        table.need("queue", "queue = { droptail = \"60kB\" }")?;
    }
    if let (None, Some(value)) = (&rate, table.get("queue")) {
        return Err(value.fault(Fault::Clash {
            why: "a link without a rate never queues".to_owned(),
            mend: "add a rate, as rate = \"4Mb/s\", or remove the queue".to_owned(),
        }));
    }
    let loss = match table.get("loss") {
        Some(loss) => loss.share()?,
        None => 0.0,
    };
    let delay = match table.get("delay") {
        Some(delay) => delay.duration()?,
        None => Duration::ZERO,
    };
    let outages = match table.get("outage") {
        Some(list) => outages(&list, end)?,
        None => Vec::new(),
    };
    Ok(LinkPlan {
        name,
        rate,
        delay,
        loss,
        queue,
        outages,
    })
}

fn capacity(value: &Value<'_>, end: Duration, open: Open<'_>) -> Result<RatePlan, ScenarioError> {
    const WANTED: &str = "a rate as \"4Mb/s\", steps as [[\"0s\", \"4Mb/s\"], [\"20s\", \"1Mb/s\"]], or { trace = \"file\" }";
    match value.kind() {
        Form::Text => Ok(RatePlan::Fixed(value.positive_rate(
            "a link of rate zero carries nothing; for a while without capacity use outage or steps",
        )?)),
        Form::List => steps(value, end).map(RatePlan::Steps),
        Form::Table => {
            let table = value.table(TRACE, WANTED)?;
            let trace = table.need("trace", "trace = \"file.mahi\"")?;
            let file = trace.text("a file name in quotes")?;
            let text = open(file).map_err(|why| {
                trace.fault(Fault::Unreadable {
                    file: file.to_owned(),
                    why,
                })
            })?;
            CapacityTrace::parse(file, &text)
                .map(RatePlan::Trace)
                .map_err(|cause| {
                    trace.fault(Fault::Trace {
                        file: file.to_owned(),
                        cause,
                    })
                })
        }
        Form::Other => Err(value.wrong(WANTED)),
    }
}

fn steps(value: &Value<'_>, end: Duration) -> Result<Vec<(Duration, Rate)>, ScenarioError> {
    const WANTED: &str = "a list of steps, as [[\"0s\", \"4Mb/s\"], [\"20s\", \"1Mb/s\"]]";
    let mut steps: Vec<(Duration, Rate)> = Vec::new();
    for item in value.list(WANTED)? {
        let pair = item.list("a step, as [\"20s\", \"1Mb/s\"]")?;
        let [at, rate] = pair.as_slice() else {
            return Err(item.range(
                &format!("a step of {} parts", pair.len()),
                "write the moment and the rate, as [\"20s\", \"1Mb/s\"]",
            ));
        };
        let moment = at.duration()?;
        match steps.last() {
            None if moment > Duration::ZERO => {
                return Err(at.range(
                    &format!("the first step is at {moment:?}, so there is no rate before it"),
                    "let the first step be at \"0s\"",
                ));
            }
            Some((last, _)) if moment <= *last => {
                return Err(at.range(
                    &format!("the step at {moment:?} does not follow the one at {last:?}"),
                    "sort the steps by their moments, each once",
                ));
            }
            _ => {}
        }
        if moment >= end {
            return Err(at.range(
                &format!("the step at {moment:?} is not within the run of {end:?}"),
                "move it forward or lengthen the duration",
            ));
        }
        steps.push((moment, rate.rate()?));
    }
    if steps.iter().all(|(_, rate)| *rate == Rate::ZERO) {
        return Err(value.range(
            "the link carries nothing at all",
            "write at least one step with a rate above zero",
        ));
    }
    Ok(steps)
}

fn queue(value: &Value<'_>) -> Result<QueueConfig, ScenarioError> {
    let table = value.table(
        QUEUE,
        "{ droptail = \"60kB\" }, { droptail = \"50 packets\" } or { red = { … } }",
    )?;
    match (
        table.get("droptail"),
        table.get("red"),
        table.get("mark_above"),
    ) {
        (Some(limit), None, mark) => Ok(QueueConfig::DropTail(DropTailConfig {
            limit: limit.limit()?,
            mark_above: mark.map(|mark| mark.size()).transpose()?,
        })),
        (None, Some(config), None) => red(&config).map(QueueConfig::Red),
        (None, Some(_), Some(mark)) => Err(mark.fault(Fault::Clash {
            why: "only a droptail queue marks above a size".to_owned(),
            mend: "write ecn = true within red instead".to_owned(),
        })),
        (drop_tail, ..) => Err(table.fault(Fault::Clash {
            why: match drop_tail {
                Some(_) => "it is droptail and red".to_owned(),
                None => "it is neither droptail nor red".to_owned(),
            },
            mend: "write either droptail = \"60kB\" or red = { … }".to_owned(),
        })),
    }
}

fn red(value: &Value<'_>) -> Result<RedConfig, ScenarioError> {
    let table = value.table(
        RED,
        "{ min = \"25 packets\", max = \"125 packets\", limit = \"300 packets\" }",
    )?;
    let low = table.need("min", "min = \"25 packets\"")?.packets()?;
    let value = table.need("max", "max = \"125 packets\"")?;
    let high = value.packets()?;
    if low >= high {
        return Err(value.range(
            &format!("max ({high}) is not above min ({low})"),
            "let max be at least twice min",
        ));
    }
    let standard = RedConfig::default();
    let share = |key, standard| table.get(key).map_or(Ok(standard), |value| value.share());
    let flag = |key, standard| table.get(key).map_or(Ok(standard), |value| value.boolean());
    let weight = share("weight", standard.weight)?;
    if let Some(value) = table.get("weight").filter(|_| weight <= 0.0) {
        return Err(value.range("with a weight of zero the mean never moves", "write 0.002"));
    }
    Ok(RedConfig {
        limit: table.need("limit", "limit = \"300 packets\"")?.packets()?,
        min_threshold: f64::from(low),
        max_threshold: f64::from(high),
        weight,
        max_probability: share("max_p", standard.max_probability)?,
        gentle: flag("gentle", standard.gentle)?,
        wait: flag("wait", standard.wait)?,
        ecn: flag("ecn", standard.ecn)?,
        mean_packet: match table.get("mean_packet") {
            Some(value) => packet_size(&value)?,
            None => standard.mean_packet,
        },
    })
}

fn outages(list: &Value<'_>, end: Duration) -> Result<Vec<Outage>, ScenarioError> {
    const WANTED: &str = "a list, as [{ at = \"50s\", lasts = \"2s\" }]";
    let mut outages: Vec<Outage> = Vec::new();
    for item in list.list(WANTED)? {
        let table = item.table(OUTAGE, "{ at = \"50s\", lasts = \"2s\" }")?;
        let at = table.need("at", "at = \"50s\"")?;
        let lasts = table.need("lasts", "lasts = \"2s\"")?;
        let start = at.duration()?;
        let over =
            start.saturating_add(lasts.positive_duration("an outage of zero length does nothing")?);
        if over > end {
            return Err(lasts.range(
                &format!("the outage lasts until {over:?}, but the run ends at {end:?}"),
                "move it forward, shorten it or lengthen the duration",
            ));
        }
        let outage = Outage {
            from: Time::ZERO + start,
            to: Time::ZERO + over,
        };
        if outages.last().is_some_and(|last| last.to > outage.from) {
            return Err(at.range(
                &format!("the outage at {start:?} begins before the one above is over"),
                "sort the outages and let them not overlap",
            ));
        }
        outages.push(outage);
    }
    Ok(outages)
}

fn flow(
    item: &Value<'_>,
    scenario: &Scenario,
    names: &mut Names,
) -> Result<FlowPlan, ScenarioError> {
    let mut table = item.table(FLOW, "a table")?;
    let name = names.take(&table.need("name", "name = \"camera\"")?)?;
    table.place(format!("flow \"{name}\""));
    let start = match table.get("start") {
        Some(start) => within(&start, scenario.duration)?,
        None => Duration::ZERO,
    };
    let stop = match table.get("stop") {
        Some(value) => {
            let stop = within(&value, scenario.duration)?;
            if stop <= start {
                return Err(value.range(
                    &format!("the flow stops at {stop:?}, not after its start at {start:?}"),
                    "let it stop later",
                ));
            }
            stop
        }
        None => scenario.duration,
    };
    Ok(FlowPlan {
        name,
        path: route(&table.need("path", "path = [\"uplink\"]")?, scenario)?,
        back: route(&table.need("back", "back = [\"downlink\"]")?, scenario)?,
        control: control(&table.need("control", "control = \"tfrc\"")?)?,
        media: media(&table)?,
        ecn: match table.get("ecn") {
            Some(value) => value.boolean()?,
            None => false,
        },
        start,
        stop,
    })
}

/// A moment of the run.
fn within(value: &Value<'_>, end: Duration) -> Result<Duration, ScenarioError> {
    let moment = value.duration()?;
    if moment > end {
        return Err(value.range(
            &format!("{moment:?} is after the end of the run at {end:?}"),
            "choose an earlier moment or lengthen the duration",
        ));
    }
    Ok(moment)
}

fn route(value: &Value<'_>, scenario: &Scenario) -> Result<Vec<usize>, ScenarioError> {
    const WANTED: &str = "a list of link names, as [\"uplink\"]";
    let mut route = Vec::new();
    for item in value.list(WANTED)? {
        let name = item.text("a link name in quotes")?;
        let found = scenario.links.iter().position(|link| link.name == name);
        let Some(link) = found else {
            return Err(item.fault(Fault::Name {
                what: "link",
                value: name.to_owned(),
                known: scenario
                    .links
                    .iter()
                    .map(|link| link.name.clone())
                    .collect(),
            }));
        };
        if route.contains(&link) {
            return Err(item.range(
                &format!("the link \"{name}\" is passed twice"),
                "name each link once, in order of travel",
            ));
        }
        route.push(link);
    }
    if route.is_empty() {
        return Err(value.range("no link at all", "name at least one, as [\"uplink\"]"));
    }
    Ok(route)
}

fn control(value: &Value<'_>) -> Result<ControllerConfig, ScenarioError> {
    const WANTED: &str = "\"tfrc\", { tfrc = { … } } or { fixed = \"2Mb/s\" }";
    match value.kind() {
        Form::Text => match value.text(WANTED)? {
            "tfrc" => Ok(ControllerConfig::Tfrc(TfrcConfig::default())),
            other => Err(value.range(
                &format!("there is no controller \"{other}\""),
                "write \"tfrc\", { tfrc = { … } } or { fixed = \"2Mb/s\" }",
            )),
        },
        Form::Table => {
            let table = value.table(CONTROL, WANTED)?;
            match (table.get("tfrc"), table.get("fixed")) {
                (Some(config), None) => tfrc(&config).map(ControllerConfig::Tfrc),
                (None, Some(rate)) => Ok(ControllerConfig::Fixed {
                    rate: rate.positive_rate("a flow of rate zero sends nothing")?,
                }),
                _ => Err(value.range(
                    "exactly one controller is needed",
                    "write \"tfrc\", { tfrc = { … } } or { fixed = \"2Mb/s\" }",
                )),
            }
        }
        Form::List | Form::Other => Err(value.wrong(WANTED)),
    }
}

fn tfrc(value: &Value<'_>) -> Result<TfrcConfig, ScenarioError> {
    let table = value.table(TFRC, "{ damping = true }")?;
    let mut config = TfrcConfig::default();
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
    Ok(config)
}

fn media(flow: &Table<'_>) -> Result<MediaPlan, ScenarioError> {
    match (flow.get("video"), flow.get("bulk")) {
        (Some(video), None) => {
            let bound = flow.need("delay_bound", "delay_bound = \"400ms\"")?;
            let bound = bound.positive_duration("no frame arrives at once")?;
            self::video(&video, bound).map(MediaPlan::Video)
        }
        (None, Some(bulk)) => {
            if let Some(bound) = flow.get("delay_bound") {
                return Err(bound.fault(Fault::Clash {
                    why: "bulk data has no deadline".to_owned(),
                    mend: "remove it, or send video = { … }".to_owned(),
                }));
            }
            let table = bulk.table(BULK, "{ packet = \"1200B\" }")?;
            let packet = table.need("packet", "packet = \"1200B\"")?;
            packet_size(&packet).map(|packet| MediaPlan::Bulk { packet })
        }
        (both, _) => Err(flow.fault(Fault::Clash {
            why: match both {
                Some(_) => "it has video and bulk".to_owned(),
                None => "it carries nothing".to_owned(),
            },
            mend: "write either video = { … } or bulk = { packet = \"1200B\" }".to_owned(),
        })),
    }
}

/// Small enough for an Ethernet frame, large enough for the headers of the session.
fn packet_size(value: &Value<'_>) -> Result<Bytes, ScenarioError> {
    let size = value.size()?;
    if (Bytes(100)..=Bytes(1_500)).contains(&size) {
        return Ok(size);
    }
    Err(value.range(
        &format!("a packet of {} B", size.0),
        "write a size from \"100B\" to \"1500B\"",
    ))
}

fn video(value: &Value<'_>, delay_bound: Duration) -> Result<VideoPlan, ScenarioError> {
    let table = value.table(
        VIDEO,
        "{ size = \"640x360\", fps = 30, encoder = \"model\" }",
    )?;
    let (width, height) = match table.get("size") {
        Some(size) => picture_size(&size)?,
        None => (640, 360),
    };
    let floor = match table.get("floor") {
        Some(floor) => floor.positive_rate("no encoder makes pictures without bits")?,
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
    Ok(VideoPlan {
        width,
        height,
        frame_rate: match table.get("fps") {
            Some(fps) => frame_rate(&fps)?,
            None => FrameRate::fps(30),
        },
        encoder: match table.get("encoder") {
            Some(kind) => {
                kind.choice(&["model", "x264"], &[EncoderKind::Model, EncoderKind::X264])?
            }
            None => EncoderKind::Model,
        },
        floor,
        ceiling,
        delay_bound,
    })
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
                &format!("\"{text}\" is no size of a picture"),
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
        // One to 240 a second; `den` of at least one keeps the quotient finite.
        .filter(|rate| rate.den >= 1 && (1.0..=240.0).contains(&rate.as_f64()))
        .ok_or_else(|| {
            value.range(
                &format!("\"{text}\" is no frame rate"),
                "write frames per second from 1 to 240, as 30 or \"30000/1001\"",
            )
        })
}

fn baseline(
    item: &Value<'_>,
    scenario: &Scenario,
    names: &mut Names,
) -> Result<BaselinePlan, ScenarioError> {
    let mut table = item.table(BASELINE, "a table")?;
    let name = names.take(&table.need("name", "name = \"fixed-mean\"")?)?;
    table.place(format!("baseline \"{name}\""));
    let value = table.need("of", "of = \"camera\"")?;
    let flow = value.text("the name of a flow in quotes")?;
    let videos = scenario
        .flows
        .iter()
        .filter(|flow| flow.media.video().is_some());
    let Some(of) = scenario
        .flows
        .iter()
        .position(|known| known.name == flow && known.media.video().is_some())
    else {
        return Err(value.fault(Fault::Name {
            what: "flow with video",
            value: flow.to_owned(),
            known: videos.map(|flow| flow.name.clone()).collect(),
        }));
    };
    let rate = table.need("rate", "rate = \"mean\" or rate = \"2Mb/s\"")?;
    let rate = match rate.text("\"mean\" or a rate, as \"2Mb/s\"")? {
        "mean" => BaselineRate::Mean,
        word if word.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            return Err(rate.fault(Fault::Choice {
                value: word.to_owned(),
                allowed: &["mean", "2Mb/s"],
            }));
        }
        _ => BaselineRate::Fixed(rate.positive_rate("a stream of rate zero sends nothing")?),
    };
    Ok(BaselinePlan { name, of, rate })
}

/// A link that no flow passes is most likely a slip in a path.
fn unused_links(scenario: &Scenario, links: &Value<'_>) -> Result<(), ScenarioError> {
    let used = |link: &usize| {
        let mut flows = scenario.flows.iter();
        flows.any(|flow| flow.path.contains(link) || flow.back.contains(link))
    };
    let Some(idle) = (0..scenario.links.len()).find(|link| !used(link)) else {
        return Ok(());
    };
    let item = &links.list("one or more [[link]]")?[idle];
    Err(item.fault(Fault::Clash {
        why: format!("no flow passes the link \"{}\"", scenario.links[idle].name),
        mend: "name it in the path or back of a flow, or remove it".to_owned(),
    }))
}

/// The lowest rate of the encoder unless the file says otherwise: 150 kb/s is about the least at
/// which 640x360 is worth watching.
const FLOOR: Rate = Rate::kbps(150);
/// The highest: beyond 6 Mb/s quality of 640x360 hardly grows.
const CEILING: Rate = Rate::kbps(6_000);

const HEAD: &[&str] = &[
    "name", "about", "duration", "seed", "expect", "link", "flow", "baseline",
];
const LINK: &[&str] = &["name", "rate", "delay", "loss", "queue", "outage"];
const TRACE: &[&str] = &["trace"];
const QUEUE: &[&str] = &["droptail", "mark_above", "red"];
const RED: &[&str] = &[
    "min",
    "max",
    "limit",
    "max_p",
    "weight",
    "gentle",
    "wait",
    "ecn",
    "mean_packet",
];
const OUTAGE: &[&str] = &["at", "lasts"];
const FLOW: &[&str] = &[
    "name",
    "path",
    "back",
    "control",
    "video",
    "bulk",
    "delay_bound",
    "ecn",
    "start",
    "stop",
];
const CONTROL: &[&str] = &["tfrc", "fixed"];
const TFRC: &[&str] = &["damping", "discounting", "packet_size"];
const BULK: &[&str] = &["packet"];
const VIDEO: &[&str] = &["size", "fps", "encoder", "floor", "ceiling"];
const BASELINE: &[&str] = &["name", "of", "rate"];

/// Where each key belongs, for those that stand in the wrong place.
pub(super) const HOMES: &[(&str, &[&str])] = &[
    ("at the head of the file, before the first [[link]]", HEAD),
    ("in a [[link]]", LINK),
    ("in a [[flow]]", FLOW),
    ("in the video of a flow", VIDEO),
    ("in a [[baseline]]", BASELINE),
    ("in the queue of a link", QUEUE),
    ("in the red queue of a link", RED),
    ("in an outage of a link", OUTAGE),
    ("in the rate of a link", TRACE),
    ("in the control of a flow", CONTROL),
    ("in the tfrc of a control", TFRC),
    ("in the bulk of a flow", BULK),
];
