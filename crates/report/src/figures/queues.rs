//! Queues of links over time.

use std::sync::Arc;

use tidegate_core::units::{Rate, Time};
use tidegate_record::{LinkInfo, LinkSample};

use super::super::chart::{Chart, Mark, Reading, Sample, Vertical};
use super::super::scale::top_of;
use super::super::series::{Bin, Bins};
use super::super::summary_text;
use super::super::view::{View, outages};

pub(super) fn draw(view: &View<'_>, chart: &mut Chart) -> bool {
    let all = links(view, chart.resolution());
    let waited: Vec<&Link<'_>> = all.iter().filter(|link| link.waited()).collect();
    let mut shown = waited.clone();
    shown.sort_by(|a, b| b.busy().total_cmp(&a.busy()));
    shown.truncate(MAX_LINKS);
    // The busiest links are selected, but keep their order.
    shown.sort_by_key(|link| link.place);
    if shown.is_empty() {
        return false;
    }
    legend(view, chart, &shown);
    for link in &shown {
        draw_link(view, chart, link);
    }
    chart.time_axis();
    let (less, never) = (waited.len() - shown.len(), all.len() - waited.len());
    let links = |count: usize| if count == 1 { "link" } else { "links" };
    let mut left_out = Vec::new();
    if less > 0 {
        left_out.push(format!("{less} {} with shorter queues", links(less)));
    }
    if never > 0 {
        left_out.push(format!(
            "{never} {} with at most one packet queued",
            links(never)
        ));
    }
    if !left_out.is_empty() {
        chart.note(&format!("Not drawn: {}.", left_out.join(", ")));
    }
    true
}

/// Samples of a link.
struct Link<'a> {
    /// Index of the link, in the order of sampling.
    place: usize,
    name: Arc<str>,
    info: Option<&'a LinkInfo>,
    /// One per run: compared flows run one by one.
    runs: Vec<Samples>,
}

/// Samples of a link in one run.
struct Samples {
    run: Arc<str>,
    /// In ms, or in bytes where the link has no capacity.
    queue: Bins,
    dropped: Moments,
    marked: Moments,
    most_bytes: u64,
    /// Latest capacity above zero.
    rate: Option<Rate>,
}

/// Times at which a counter increased, in seconds, as far as strokes can be distinguished.
#[derive(Default)]
struct Moments {
    count: u64,
    at: Vec<f64>,
}

impl Moments {
    fn count(&mut self, at: f64, count: u64, apart: f64) {
        if count > self.count && self.at.last().is_none_or(|last| at >= last + apart) {
            self.at.push(at);
        }
        self.count = count;
    }
}

impl Samples {
    fn add(&mut self, info: Option<&LinkInfo>, row: &LinkSample, apart: f64) {
        let at = row.at.as_secs_f64();
        let rate = info.and_then(|info| info.nominal_capacity_at(row.at));
        self.rate = rate.filter(|rate| rate.as_bps() > 0).or(self.rate);
        // After the last capacity step, that rate continues.
        let drain = info
            .and_then(|info| info.drain_time(row.at, row.queue))
            .or_else(|| self.rate.map(|rate| row.queue / rate));
        let bytes = row.queue.get();
        let value = drain.map_or(bytes as f64, |drain| 1e3 * drain.as_secs_f64());
        self.queue.add(at, value);
        self.dropped.count(at, row.drops, apart);
        self.marked.count(at, row.marks, apart);
        self.most_bytes = self.most_bytes.max(bytes);
    }
}

impl Link<'_> {
    /// Whether the queue ever exceeded one packet.
    fn waited(&self) -> bool {
        self.runs.iter().any(|run| run.most_bytes > ONE_PACKET)
    }

    /// Mean queue of the run with the longest queue.
    fn busy(&self) -> f64 {
        let mean = |run: &Samples| {
            let (sum, count) = run.queue.filled().fold((0.0, 0), |(sum, count), (_, bin)| {
                (sum + bin.sum, count + bin.count)
            });
            if count > 0 { sum / count as f64 } else { 0.0 }
        };
        self.runs.iter().map(mean).fold(0.0, f64::max)
    }

    fn has_limit(&self) -> bool {
        self.info.is_some_and(|info| least_rate(info).is_some())
    }
}

/// Lowest capacity above zero; `None` if the link is unlimited at any time.
fn least_rate(info: &LinkInfo) -> Option<Rate> {
    let steps = info.capacity.iter();
    if steps.clone().any(|step| step.rate.is_none()) {
        return None;
    }
    let rates = steps.filter_map(|step| step.rate);
    rates.filter(|rate| rate.as_bps() > 0).min()
}

/// All links, in the order of sampling.
fn links<'a>(view: &View<'a>, pixel: f64) -> Vec<Link<'a>> {
    let infos = &view.run.manifest.links;
    let (from, to) = view.span;
    let mut links: Vec<Link<'_>> = Vec::new();
    // Index of the next sample if links are sampled in rotation, which they are.
    let mut order: Vec<(usize, usize)> = Vec::new();
    let mut turn = 0;
    for row in &view.run.links {
        let is_of = |place: &(usize, usize), links: &[Link<'_>]| {
            let link = &links[place.0];
            link.name == row.link && link.runs[place.1].run == row.run
        };
        turn = if order.get(turn).is_some_and(|p| is_of(p, &links)) {
            turn
        } else if let Some(known) = order.iter().position(|p| is_of(p, &links)) {
            known
        } else {
            order.push(place(&mut links, infos, &row));
            let (link, _) = order[order.len() - 1];
            let info = links[link].info;
            let rate = info.and_then(least_rate);
            links[link].runs.push(Samples {
                run: Arc::clone(&row.run),
                queue: Bins::empty(from, to, (PIXELS * pixel).max(SHORTEST_BIN)),
                dropped: Moments::default(),
                marked: Moments::default(),
                most_bytes: 0,
                rate,
            });
            order.len() - 1
        };
        let (link, run) = order[turn];
        let Link { info, runs, .. } = &mut links[link];
        if row.at <= Time::ZERO + core::time::Duration::from_secs_f64(to) {
            runs[run].add(*info, &row, pixel / 2.0);
        }
        turn = (turn + 1) % order.len();
    }
    links
}

/// Link of a sample, created if necessary, and the index of its run.
fn place<'a>(links: &mut Vec<Link<'a>>, infos: &'a [LinkInfo], row: &LinkSample) -> (usize, usize) {
    let known = links.iter().position(|link| link.name == row.link);
    let place = known.unwrap_or(links.len());
    if place == links.len() {
        links.push(Link {
            place,
            name: Arc::clone(&row.link),
            info: infos.iter().find(|info| *info.name == *row.link),
            runs: Vec::new(),
        });
    }
    (place, links[place].runs.len())
}

fn legend(view: &View<'_>, chart: &mut Chart, shown: &[&Link<'_>]) {
    let runs = || shown.iter().flat_map(|link| &link.runs);
    let several = shown.iter().any(|link| link.runs.len() > 1);
    let mut entries = if several {
        view.legend(|flow| runs().any(|run| *run.run == *flow.name))
    } else {
        vec![(Sample::of(Mark::Flow, "queue"), "queue")]
    };
    let colours = || runs().map(|run| colour(view, several, run));
    let ranges = Sample::each(Mark::Band, colours());
    entries.push((ranges, "shortest to longest"));
    let strokes = [
        (
            runs().any(|run| run.dropped.count > 0),
            DROPPED,
            "packet dropped",
        ),
        (
            runs().any(|run| run.marked.count > 0),
            MARKED,
            "packet marked",
        ),
    ];
    for (_, class, name) in strokes.iter().filter(|(any, ..)| *any) {
        let sample = if several {
            Sample::each(Mark::Tick, colours())
        } else {
            Sample::of(Mark::Tick, class)
        };
        entries.push((sample, name));
    }
    let dark = |link: &&Link<'_>| !outages(link.info, view.span.1).is_empty();
    if shown.iter().any(dark) {
        entries.push((Sample::of(Mark::Square, "outage"), "outage"));
    }
    chart.legend(&entries);
}

fn draw_link(view: &View<'_>, chart: &mut Chart, link: &Link<'_>) {
    let vertical = vertical(link);
    chart.set_outages(&outages(link.info, view.span.1));
    let panel = chart.panel(Some(("", &link.name, &about(link))), HEIGHT, &vertical);
    let several = link.runs.len() > 1;
    let colour = |run: &Samples| colour(view, several, run);
    chart.begin_clip(&panel);
    let mut lines = Vec::new();
    for run in &link.runs {
        let colour = colour(run);
        let range = panel.band(&run.queue);
        chart.svg().path(&format!("{colour} band"), &range);
        let pieces = run.queue.pieces(Bin::mean);
        chart.line(&panel, &format!("{colour} line"), &pieces);
        let name = if several { &run.run } else { "queue" };
        chart.read(&panel, &link.name, Reading::lines(name, colour, &pieces));
        let most = run.queue.filled().map(|(at, bin)| (at, bin.max));
        lines.push((colour, most.collect::<Vec<_>>()));
    }
    chart.svg().end_clip();
    let lines = lines.iter().map(|(colour, points)| (*colour, &points[..]));
    if link.has_limit() {
        chart.beyond(&panel, lines, summary_text::millis);
    } else {
        chart.beyond(&panel, lines, |bytes| format!("{:.1} kB", bytes / 1e3));
    }
    let kinds: [Kind; 2] = [
        ("drops", DROPPED, |run| &run.dropped),
        ("marks", MARKED, |run| &run.marked),
    ];
    for (name, class, moments) in kinds {
        let happened = link.runs.iter().filter(|run| moments(run).count > 0);
        for (i, run) in happened.enumerate() {
            let lane = chart.lane(LANE_GAP, LANE);
            if i == 0 {
                chart.label(&lane, name);
            }
            let class = if several { colour(run) } else { class };
            chart.strokes(&lane, class, moments(run).at.iter().copied());
        }
    }
}

/// Colour of the queue of a run: that of its flow where runs are compared.
fn colour(view: &View<'_>, several: bool, run: &Samples) -> &'static str {
    let mut flows = view.flows.iter();
    let flow = flows.find(|flow| several && *flow.name == *run.run);
    flow.map_or("queue", |flow| flow.colour)
}

/// Description of a link: capacity, queue, drops and marks.
fn about(link: &Link<'_>) -> String {
    let mut parts = Vec::new();
    if let Some(info) = link.info {
        let mut rates: Vec<Rate> = info.capacity.iter().filter_map(|step| step.rate).collect();
        rates.sort_unstable();
        match (rates.first(), rates.last()) {
            (Some(least), Some(most)) if least != most => {
                parts.push(format!("{least} to {most}"));
            }
            (Some(only), _) => parts.push(only.to_string()),
            _ => {}
        }
        if !info.queue.is_empty() {
            parts.push(info.queue.clone());
        }
    }
    if let [run] = &link.runs[..] {
        for (count, one, many) in [
            (run.dropped.count, "drop", "drops"),
            (run.marked.count, "mark", "marks"),
        ] {
            if count > 0 {
                let word = if count == 1 { one } else { many };
                parts.push(format!("{} {word}", summary_text::count(count)));
            }
        }
    }
    parts.join(", ")
}

fn vertical(link: &Link<'_>) -> Vertical {
    let bins = link.runs.iter().flat_map(|run| run.queue.filled());
    let most: Vec<f64> = bins.map(|(_, bin)| bin.max).collect();
    let plain = |unit: f64, name| Vertical {
        from: 0.0,
        to: unit * top_of(most.iter().map(|value| value / unit), 3),
        unit,
        name,
        ticks: 3,
    };
    let highest = most.iter().copied().fold(0.0, f64::max);
    if !link.has_limit() {
        plain(1e3, "kB")
    } else if highest < 0.5 {
        plain(1e-3, "µs")
    } else {
        plain(1.0, "ms")
    }
}

/// Name, class and times of events that are drawn as strokes below a panel.
type Kind = (&'static str, &'static str, fn(&Samples) -> &Moments);

const DROPPED: &str = "bad";
const MARKED: &str = "marked";

/// The busiest links are drawn; more would fill a page.
const MAX_LINKS: usize = 6;
const HEIGHT: f64 = 84.0;
const LANE: f64 = 9.0;
/// Labels beside the rows are 11 pixels high.
const LANE_GAP: f64 = 4.0;

/// A mean over this many pixels gives a readable line.
const PIXELS: f64 = 2.0;

/// In seconds: three samples of a link.
const SHORTEST_BIN: f64 = 0.06;

/// In bytes: a full packet.
const ONE_PACKET: u64 = 1_500;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_core::units::Bytes;
    use tidegate_record::{CapacityStep, Manifest, Run, World};

    use super::super::super::chart::Form;
    use super::*;

    /// Links with increasing queues; the last one drops and marks.
    fn run(queues: &[u64]) -> Run {
        let length = core::time::Duration::from_secs(10);
        let mut manifest = Manifest::new(World::Sim, "queues", length);
        for number in 0..queues.len() {
            manifest.links.push(LinkInfo {
                name: format!("link-{number}"),
                capacity: vec![CapacityStep {
                    from: Time::ZERO,
                    rate: Some(Rate::kbps(1_000)),
                }],
                queue: "droptail 90 kB".to_owned(),
                delay: core::time::Duration::ZERO,
                loss: 0.0,
                outages: Vec::new(),
            });
        }
        let mut run = Run::new(Path::new("none"), manifest);
        for step in 0..500 {
            for (number, queue) in queues.iter().enumerate() {
                let last = number + 1 == queues.len();
                run.links.push(LinkSample {
                    at: Time::from_millis(20 * step),
                    run: "flow".into(),
                    link: format!("link-{number}").as_str().into(),
                    queue: Bytes(*queue),
                    drops: if last { step / 100 } else { 0 },
                    causes: None,
                    marks: if last { step / 250 } else { 0 },
                    delivered: Bytes(2_500 * step),
                });
            }
        }
        run
    }

    fn drawn(run: &Run) -> Option<String> {
        let view = View::new(run);
        let mut chart = Chart::new("c", Form::Wide, view.span, &[]);
        let some = draw(&view, &mut chart);
        let (svg, height) = chart.finish();
        some.then(|| svg.into_element(height, "", ""))
    }

    #[test]
    fn the_busiest_links_are_drawn_and_the_others_are_counted() {
        let queues = [2_000, 9_000, 40, 5_000, 6_000, 7_000, 8_000, 20_000];
        let svg = drawn(&run(&queues)).expect("queues");
        for (number, there) in [true; 8].into_iter().enumerate() {
            let there = there && ![0, 2].contains(&number);
            let title = format!(">link-{number}<");
            assert_eq!(svg.contains(&title), there, "{number}");
        }
        let left_out =
            "Not drawn: 1 link with shorter queues, 1 link with at most one packet queued.";
        assert!(svg.contains(left_out), "{svg}");
        assert!(svg.contains("4 drops, 1 mark<") && svg.contains(">ms<"));
    }

    #[test]
    fn a_queue_without_a_capacity_is_drawn_in_bytes() {
        let mut run = run(&[4_000]);
        run.manifest.links[0].capacity[0].rate = None;
        let svg = drawn(&run).expect("queues");
        assert!(svg.contains(">kB<") && !svg.contains("Not drawn"));
        run.manifest.links.clear();
        assert!(drawn(&run).expect("queues").contains(">kB<"));
    }

    #[test]
    fn empty_queues_are_not_drawn() {
        assert_eq!(drawn(&run(&[40, 0])), None);
        assert_eq!(drawn(&run(&[])), None);
    }
}
