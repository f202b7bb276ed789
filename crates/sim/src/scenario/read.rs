//! Conversion of a parsed file to a plan, with all checks.

mod baseline;
mod control;
mod coordination;
mod ecn;
mod flow;
mod link;
mod models;
mod over_time;
mod queue;
mod queue_size_check;
mod routes;
mod tcp;
mod transport;

use core::ops::Range;
use core::time::Duration;
use std::collections::BTreeMap;

use tidegate_core::controller::Controllers;
use tidegate_core::link::LinkForm;
use tidegate_core::random::Seed;
use tidegate_core::units::Bytes;
use tidegate_record::expect::Needs;
use tidegate_record::{ExpectError, Expectation};
use toml::de::DeTable;

use super::error::{Fault, ScenarioError};
use super::table::{Document, Form, Table, Value};
use super::{FlowPlan, LinkPlan, MediaPlan, Scenario, SendBuffer};
use baseline::BASELINE;
use coordination::{AGGREGATION, CP};
use flow::{ACCESS, FLOW, PAUSE, VIDEO};
use link::{JITTER, LINK, LOSS, OUTAGE};
use models::{BULK, ON_OFF, TCP, UDP, WEB};
use over_time::TRACE;
use queue::{CODEL, DUALPI2, FQ_CODEL, QUEUE, RED};
use routes::Nodes;
use transport::{FLAGS, TRANSPORT};

/// What a scenario refers to.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    /// Returns the text of a trace file, or the reason why it cannot be read.
    pub(super) open: &'a dyn Fn(&str) -> Result<String, String>,
    pub(super) controllers: &'a Controllers,
}

pub(super) fn scenario(
    file: &str,
    text: &str,
    sources: Sources<'_>,
) -> Result<Scenario, ScenarioError> {
    let document = Document { file, text };
    let parsed = parse(&document)?;
    let scenario = tree(&document, &parsed, sources)?;
    // Errors in the sweep are also reported when only the base scenario runs.
    super::sweep::check(&document, parsed, sources)?;
    Ok(scenario)
}

/// Parses the file into a TOML tree.
pub(super) fn parse<'a>(document: &Document<'a>) -> Result<DeTable<'a>, ScenarioError> {
    let tree = DeTable::parse(document.text).map_err(|error| ScenarioError {
        file: document.file.to_owned(),
        line: Some(document.line(error.span().map_or(0, |span| span.start))),
        table: String::new(),
        key: String::new(),
        fault: Box::new(Fault::Syntax(error.message().to_owned())),
    })?;
    Ok(tree.into_inner())
}

/// Converts a tree to a plan. The `[sweep]` table is ignored.
pub(super) fn tree<'a>(
    document: &'a Document<'a>,
    tree: &'a DeTable<'a>,
    sources: Sources<'_>,
) -> Result<Scenario, ScenarioError> {
    let head = Table::new(document, String::new(), &(0..0), tree, HEAD)?;
    if let Some(sweep) = head.get("sweep").filter(|s| s.kind() != Form::Table) {
        return Err(sweep.wrong("a table, [sweep], at the end of the file"));
    }
    let mut scenario = empty(&head)?;
    let (mut names, mut nodes) = (Names::default(), Nodes::default());
    let links = head.need("link", "a [[link]] with name, rate, delay and queue")?;
    let directions = read_links(&links, &mut scenario, &mut names, &mut nodes, sources)?;
    let mut points = Vec::new();
    if let Some(list) = head.get("aggregation") {
        points = list.list("one or more [[aggregation]]")?;
        for item in &points {
            let plan = coordination::aggregation(item, &mut names, sources)?;
            scenario.aggregations.push(plan);
        }
    }
    let flows = head.need(
        "flow",
        "a [[flow]] with name, path, back, control and video",
    )?;
    for item in flows.list("one or more [[flow]]")? {
        let flow = flow::flow(&item, &scenario, &nodes, &mut names, sources)?;
        queue_size_check::in_own_links(&flow, &item)?;
        scenario.flows.push(flow);
    }
    if scenario.flows.is_empty() {
        return Err(flows.range("nothing runs", "add a [[flow]]"));
    }
    if let Some(baselines) = head.get("baseline") {
        for item in baselines.list("one or more [[baseline]]")? {
            let baseline = baseline::baseline(&item, &scenario, &mut names, sources)?;
            scenario.baselines.push(baseline);
        }
    }
    coordination::check_used(&scenario, &points)?;
    unused_links(&scenario, &directions)?;
    queue_size_check::in_links(&scenario, &directions)?;
    if let Some(list) = head.get("expect") {
        scenario.expect = expectations(&list, &scenario)?;
    }
    Ok(scenario)
}

/// Name, length and seed of the scenario, without links and flows.
fn empty(head: &Table<'_>) -> Result<Scenario, ScenarioError> {
    let duration = length(&head.need("duration", "duration = \"60s\"")?)?;
    Ok(Scenario {
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
        measure: match head.get("measure") {
            Some(value) => measure(&value, duration)?,
            None => (Duration::ZERO, duration),
        },
        links: Vec::new(),
        flows: Vec::new(),
        aggregations: Vec::new(),
        baselines: Vec::new(),
        expect: Vec::new(),
        link_form: LinkForm::Fast,
    })
}

/// Adds the links to the plan, and their ends to `nodes`. Returns the links of each `[[link]]`, one
/// per direction.
fn read_links<'a>(
    links: &Value<'a>,
    scenario: &mut Scenario,
    names: &mut Names,
    nodes: &mut Nodes,
    sources: Sources<'_>,
) -> Result<Vec<(Value<'a>, Range<usize>)>, ScenarioError> {
    let mut directions = Vec::new();
    for item in links.list("one or more [[link]]")? {
        let first = scenario.links.len();
        let plan = link::link(&item, scenario.duration, names, sources)?;
        let ends = link::ends(&item)?;
        if let Some(name) = link::duplex(&item, names)? {
            nodes.push(ends.clone());
            nodes.push(ends.map(|(from, to)| (to, from)));
            scenario.links.push(plan.clone());
            scenario.links.push(LinkPlan { name, ..plan });
        } else {
            nodes.push(ends);
            scenario.links.push(plan);
        }
        directions.push((item, first..scenario.links.len()));
    }
    Ok(directions)
}

/// Names of links, flows and baselines with their lines. Metrics address all of them in one
/// namespace.
#[derive(Default)]
struct Names(BTreeMap<String, usize>);

impl Names {
    fn take(&mut self, value: &Value<'_>) -> Result<String, ScenarioError> {
        self.take_as(value, &str::to_owned)
    }

    /// Registers a name that is derived from the name in `value`.
    fn take_as(
        &mut self,
        value: &Value<'_>,
        make: &dyn Fn(&str) -> String,
    ) -> Result<String, ScenarioError> {
        let name = make(&name(value)?);
        match self.0.insert(name.clone(), value.line()) {
            None => Ok(name),
            Some(first) => Err(value.fault(Fault::Duplicate { name, first })),
        }
    }

    /// Registers the names of the flows of a group.
    fn take_members(&mut self, value: &Value<'_>, count: u32) -> Result<(), ScenarioError> {
        for number in 1..=count {
            self.take_as(value, &|name| format!("{name}-{number}"))?;
        }
        Ok(())
    }
}

fn name(value: &Value<'_>) -> Result<String, ScenarioError> {
    let name = value.text("a name in quotes, as \"uplink\"")?;
    if name == "link" {
        return Err(value.range(
            "\"link\" is a keyword of expectations",
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
        &format!("\"{name}\" is not a valid name"),
        "write at most 40 letters, digits, - and _, a letter first",
    ))
}

/// Duration of the run: at least a millisecond, in which a link of 10 Mb/s carries no full packet;
/// at most a day, which is beyond the need of any test.
fn length(value: &Value<'_>) -> Result<Duration, ScenarioError> {
    let duration = value.positive_duration("the run has zero length")?;
    if duration < Duration::from_millis(1) {
        return Err(value.range("too short for a packet to arrive", "write at least \"1ms\""));
    }
    if duration > Duration::from_hours(24) {
        return Err(value.range("longer than a day", "write at most \"24h\""));
    }
    Ok(duration)
}

/// Interval over which totals are counted.
fn measure(value: &Value<'_>, end: Duration) -> Result<(Duration, Duration), ScenarioError> {
    let ends = value.list("two times, as [\"10s\", \"60s\"]")?;
    let [from, to] = ends.as_slice() else {
        return Err(value.range(
            &format!("an interval of {} parts", ends.len()),
            "write when it begins and when it ends, as [\"10s\", \"60s\"]",
        ));
    };
    let (begin, over) = (from.duration()?, to.duration()?);
    if begin >= over || over > end {
        return Err(to.range(
            &format!("{over:?} is not after {begin:?} and by the end of the run at {end:?}"),
            "choose an interval within the run",
        ));
    }
    Ok((begin, over))
}

fn expectations(list: &Value<'_>, scenario: &Scenario) -> Result<Vec<Expectation>, ScenarioError> {
    const WANTED: &str =
        "a list of statements in quotes, as [\"tidegate.on_time_of_savable >= 0.9\"]";
    let flows = scenario.flow_infos();
    let names = flows.iter().flat_map(|flow| [&flow.class, &flow.name]);
    let mut flows: Vec<&str> = names.map(String::as_str).collect();
    flows.dedup();
    let links: Vec<&str> = scenario
        .links
        .iter()
        .map(|link| link.name.as_str())
        .collect();
    let statement = |item: &Value<'_>| {
        let fault = |error: ExpectError| item.fault(Fault::Expect(error));
        let statement: Expectation = item.text(WANTED)?.parse().map_err(fault)?;
        statement.check(&flows, &links).map_err(fault)?;
        check_is_recorded(&statement, scenario).map_err(fault)?;
        Ok(statement)
    };
    list.list(WANTED)?.iter().map(statement).collect()
}

/// Checks that the flows of an expectation record the metrics that it compares. Baselines are
/// videos.
fn check_is_recorded(statement: &Expectation, scenario: &Scenario) -> Result<(), ExpectError> {
    for (name, metric) in statement.of_flows() {
        let is_of = |plan: &&FlowPlan| {
            plan.name == name || (1..=plan.count).any(|number| plan.name_of(number) == name)
        };
        let media = scenario.flows.iter().find(is_of).map(|plan| &plan.media);
        let has = |needs: &Needs| match needs {
            Needs::Limit => media.is_some_and(MediaPlan::is_finite),
            Needs::Video => media.is_none_or(|media| media.video().is_some()),
        };
        if let Some(needs) = Needs::of(metric).filter(|needs| !has(needs)) {
            return Err(ExpectError::NeverRecorded {
                text: statement.text().to_owned(),
                name: name.to_owned(),
                metric,
                needs,
            });
        }
    }
    Ok(())
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

/// Large enough for the headers of each kind of packet, small enough for an Ethernet frame.
fn media_packet(value: &Value<'_>) -> Result<Bytes, ScenarioError> {
    let size = value.size()?;
    if (Bytes(200)..=Bytes(1_500)).contains(&size) {
        return Ok(size);
    }
    Err(value.range(
        &format!("a packet of {} B", size.0),
        "write a size from \"200B\" to \"1500B\"",
    ))
}

/// The buffer behind an encoder: a size, or none.
fn send_buffer(value: &Value<'_>) -> Result<SendBuffer, ScenarioError> {
    if value.kind() == Form::Text && value.text("a size")? == "none" {
        return Ok(SendBuffer::None);
    }
    let size = value.size()?;
    if size == Bytes::ZERO {
        return Err(value.range(
            "a buffer without room",
            "write \"none\", or a size, as \"2kB\"",
        ));
    }
    Ok(SendBuffer::Limit(size))
}

/// Rejects a link that no flow uses, most likely a mistake in a path. Of a duplex link, one used
/// direction is enough.
fn unused_links(
    scenario: &Scenario,
    directions: &[(Value<'_>, Range<usize>)],
) -> Result<(), ScenarioError> {
    let used = |link: usize| {
        let mut flows = scenario.flows.iter();
        flows.any(|flow| flow.path.contains(&link) || flow.back.contains(&link))
    };
    let mut links = directions.iter();
    let Some((item, idle)) = links.find(|(_, links)| !links.clone().any(used)) else {
        return Ok(());
    };
    Err(item.fault(Fault::Conflict {
        why: format!(
            "no flow uses the link \"{}\"",
            scenario.links[idle.start].name
        ),
        fix: "name it in the path or back of a flow, or remove it".to_owned(),
    }))
}

const HEAD: &[&str] = &[
    "name",
    "about",
    "duration",
    "seed",
    "measure",
    "expect",
    "link",
    "aggregation",
    "flow",
    "baseline",
    "sweep",
];

/// Table of each key, for hints about misplaced keys.
pub(super) const HOMES: &[(&str, &[&str])] = &[
    ("at the head of the file, before the first [[link]]", HEAD),
    ("in a [[link]]", LINK),
    ("in an [[aggregation]]", AGGREGATION),
    ("in a [[flow]]", FLOW),
    ("in the video of a flow", VIDEO),
    ("in a pause of a video", PAUSE),
    ("in a [[baseline]]", BASELINE),
    ("in the queue of a link", QUEUE),
    ("in the red queue of a link", RED),
    ("in the codel queue of a link", CODEL),
    ("in the fq_codel queue of a link", FQ_CODEL),
    ("in the dualpi2 queue of a link", DUALPI2),
    ("in the jitter of a link", JITTER),
    ("in the loss of a link", LOSS),
    ("in an outage of a link", OUTAGE),
    ("in the rate of a link", TRACE),
    ("in the access or exit of a flow", ACCESS),
    ("in the transport of a flow", TRANSPORT),
    ("in the flags of a transport", FLAGS),
    ("in the bulk of a flow", BULK),
    ("in the cp of a flow", CP),
    ("in the tcp of a flow", TCP),
    ("in the udp of a flow", UDP),
    ("in the web of a flow", WEB),
    ("in the spacing of a udp flow", ON_OFF),
];
