//! Tables of a run's metrics for a terminal.

use core::fmt::Write as _;

use tidegate_core::units::{Bytes, Rate};
use tidegate_record::metrics::LinkSummary;
use tidegate_record::{ExpectationResult, FlowInfo, Manifest, Run, Summary, Timing};

use tidegate_report::class::{Class, classes};

/// Notes on a run, for the lines below its tables: timing of the emulator, and warnings.
pub(crate) fn notes(manifest: &Manifest) -> impl Iterator<Item = String> + '_ {
    let timing = manifest.timing.iter().map(Timing::to_string);
    timing.chain(manifest.notes.iter().cloned())
}

/// Tables of videos, other flows and links, followed by the expectations. If a table is wider than
/// `room`, columns are dropped by rank, down to one.
pub(crate) fn render(run: &Run, summary: &Summary, room: Option<usize>) -> String {
    let is_video = |class: &Class<'_>| {
        let mut members = class.members.iter();
        let info = |name: &str| run.flow(name).map(|flow| &flow.info);
        members.any(|flow| info(&flow.name).is_some_and(FlowInfo::has_video))
    };
    let (videos, others): (Vec<_>, Vec<_>) = classes(summary).into_iter().partition(is_video);
    let mut tables = Vec::new();
    if !videos.is_empty() {
        let rows = videos.iter().map(|class| video(run, class));
        tables.push(table("flow", &VIDEO, rows.collect(), room));
    }
    if !others.is_empty() {
        let rows = others.iter().map(transport).collect();
        tables.push(table("flow", &TRANSPORT, rows, room));
    }
    let (links, left_out) = eventful(summary);
    if !links.is_empty() {
        let rows = links.into_iter().map(link).collect();
        let mut text = table("link", &LINK, rows, room);
        if left_out > 0 {
            let _ = writeln!(text, "{left_out} more in summary.json");
        }
        tables.push(text);
    }
    if let Some(span) = run.manifest.measure {
        let [from, to, whole] = [
            span.from.as_secs_f64(),
            span.to.as_secs_f64(),
            run.manifest.duration.as_secs_f64(),
        ]
        .map(|seconds| (1e3 * seconds).round() / 1e3);
        tables.push(format!("measured from {from} s to {to} s of {whole} s\n"));
    }
    if !summary.expect.is_empty() {
        tables.push(verdicts(summary));
    }
    tables.join("\n")
}

fn verdicts(summary: &Summary) -> String {
    let mut out = String::new();
    let width = match summary.all_held() {
        ExpectationResult::Unsure => 6,
        ExpectationResult::Yes | ExpectationResult::No => 5,
    };
    for verdict in &summary.expect {
        let mark = match summary.held(verdict.holds) {
            ExpectationResult::Yes => "holds",
            ExpectationResult::Unsure => "unsure",
            ExpectationResult::No => "FAILS",
        };
        let measured = number(verdict.measured, 4);
        let _ = writeln!(
            out,
            "{mark:width$}  {}  (measured {measured})",
            verdict.text
        );
    }
    out
}

/// Rank, width and title of a column, from left to right. If there is no room, the column with the
/// highest rank is dropped first. All text, including the names of flows, is ASCII.
type Column = (u8, usize, &'static str);

/// A name and a cell for each column. A column without any number is dropped.
type Row = (String, Vec<String>);

fn table(title: &str, columns: &[Column], rows: Vec<Row>, room: Option<usize>) -> String {
    let names = rows.iter().map(|(name, _)| name.chars().count());
    let width = names.fold(title.len(), usize::max);
    let told = |i: &usize| {
        rows.iter()
            .any(|(_, cells)| cells[*i].chars().any(|c| c.is_ascii_digit()))
    };
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    shown.retain(|i| columns[*i].0 == 0 || told(i));
    let left_out = fit(&mut shown, columns, width, room);
    let titles = columns.iter().map(|(_, _, title)| (*title).to_owned());
    let head = (title.to_owned(), titles.collect());
    let mut out = String::new();
    for (name, cells) in core::iter::once(head).chain(rows) {
        let mut line = format!("{name:width$}");
        for i in &shown {
            let _ = write!(line, "  {:>1$}", cells[*i], columns[*i].1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    if !left_out.is_empty() {
        let _ = writeln!(out, "no room for {}", left_out.join(", "));
    }
    out
}

/// Drops columns until the table fits beside names of that width. Returns the titles of the dropped
/// columns.
fn fit(
    shown: &mut Vec<usize>,
    columns: &[Column],
    width: usize,
    room: Option<usize>,
) -> Vec<&'static str> {
    let mut left_out = Vec::new();
    let wide = |shown: &[usize]| shown.iter().map(|i| columns[*i].1 + 2).sum::<usize>();
    while shown.len() > 1 && room.is_some_and(|room| width + wide(shown) > room) {
        let last = (0..shown.len()).max_by_key(|i| columns[shown[*i]].0);
        left_out.extend(last.map(|i| columns[shown.remove(i)].2));
    }
    left_out
}

/// Row of a class of videos: frames are totals, other values are means.
fn video(run: &Run, class: &Class<'_>) -> Row {
    let made = class.sum(|flow| flow.frames.made);
    let on_time = match (class.sum(|flow| flow.frames.on_time), made) {
        (Some(n), Some(made)) if made > 0 => {
            format!("{n} ({:.1} %)", 100.0 * n as f64 / made as f64)
        }
        (Some(n), _) => n.to_string(),
        (None, _) => NOTHING.to_owned(),
    };
    let delays = [
        class.mean(|flow| flow.delay_ms.p50),
        class.mean(|flow| flow.delay_ms.p95),
        class.mean(|flow| flow.delay_ms.p99),
    ];
    let savable = class.sum(|flow| flow.frames.savable);
    let freezes = class.sum(|flow| flow.freezes);
    let cells = vec![
        on_time,
        number(savable.map(|n| n as f64), 0),
        several(&delays),
        number(class.mean(|flow| flow.psnr_y_db), 2),
        number(class.mean(|flow| flow.ssim), 3),
        number(freezes.map(|n| n as f64), 0),
        rate(class.mean(|flow| flow.rate_bps)),
        bits_used(run, class),
        percent(class.mean(|flow| flow.loss)),
    ];
    (name(class), cells)
}

/// Row of a class of other flows: means, and the range of the rates.
fn transport(class: &Class<'_>) -> Row {
    let received = class.spread(|flow| flow.receive_bps);
    let range = received.filter(|spread| spread.count > 1).map_or_else(
        || NOTHING.to_owned(),
        |spread| {
            format!(
                "{} to {}",
                rate(Some(spread.least)),
                rate(Some(spread.most))
            )
        },
    );
    let delays = [
        class.mean(|flow| flow.packet_delay_ms.p50),
        class.mean(|flow| flow.packet_delay_ms.p95),
    ];
    let cells = vec![
        rate(class.mean(|flow| flow.rate_bps)),
        rate(received.map(|spread| spread.mean)),
        range,
        percent(class.mean(|flow| flow.loss)),
        number(class.mean(|flow| flow.rtt_ms), 1),
        several(&delays),
        number(class.mean(|flow| flow.queue_ms.p95), 1),
        completion(class),
    ];
    (name(class), cells)
}

fn link(link: &LinkSummary) -> Row {
    // Few links have random loss.
    let some = |count: Option<u64>| count.filter(|n| *n > 0).map(|n| n as f64);
    let cells = vec![
        percent(link.utilisation),
        number(link.drops.map(|n| n as f64), 0),
        number(some(link.drops_random), 0),
        number(some(link.drops_outage), 0),
        number(link.marks.map(|n| n as f64), 0),
        number(link.queue_p95_ms, 1),
    ];
    (link.name.clone(), cells)
}

/// Links with traffic, queueing or loss, and the number of omitted links. Of many links the busiest
/// are shown.
fn eventful(summary: &Summary) -> (Vec<&LinkSummary>, usize) {
    let happened = |link: &&LinkSummary| {
        let some = |count: Option<u64>| count.is_some_and(|count| count > 0);
        let waited = link.queue_p95_ms.is_some_and(|wait| wait >= 1.0);
        let used = link.utilisation.is_some_and(|share| share >= 0.05);
        some(link.drops) || some(link.marks) || waited || used
    };
    let mut links: Vec<&LinkSummary> = summary.links.iter().filter(happened).collect();
    let left_out = links.len().saturating_sub(MAX_LINKS);
    if left_out > 0 {
        let used = |link: &LinkSummary| link.utilisation.unwrap_or(0.0);
        links.sort_by(|a, b| used(b).total_cmp(&used(a)));
        links.truncate(MAX_LINKS);
    }
    (links, left_out)
}

/// Mean completion time, with the number of completed flows if some did not complete.
fn completion(class: &Class<'_>) -> String {
    let spread = class.spread(|flow| flow.completion_s);
    let text = number(spread.map(|spread| spread.mean), 2);
    match (spread, class.members.len()) {
        (Some(spread), all) if spread.count < all => format!("{text} ({} of {all})", spread.count),
        _ => text,
    }
}

fn name(class: &Class<'_>) -> String {
    match class.members.len() {
        1 => class.class().to_owned(),
        several => format!("{} (each of {several})", class.class()),
    }
}

/// Data on the wire in the measured interval, including all headers.
fn bits_used(run: &Run, class: &Class<'_>) -> String {
    let flows = class.members.iter().filter_map(|flow| run.flow(&flow.name));
    let packets = flows.flat_map(|flow| &flow.packets);
    let mut packets = packets
        .filter(|row| run.manifest.measures(row.sent))
        .peekable();
    if packets.peek().is_none() {
        return NOTHING.to_owned();
    }
    let bytes: Bytes = packets.map(|row| row.size).sum();
    let each = bytes.bits() as f64 / class.members.len() as f64;
    format!("{:.1} Mbit", each / 1e6)
}

fn rate(bps: Option<f64>) -> String {
    bps.map_or_else(|| NOTHING.to_owned(), |bps| Rate::from_f64(bps).to_string())
}

/// Share as a percentage.
fn percent(share: Option<f64>) -> String {
    let Some(share) = share else {
        return NOTHING.to_owned();
    };
    let percent = 100.0 * share;
    // A loss of 0.03 % matters to many controllers, and 0.0 % would hide it.
    let digits = if percent > 0.0 && percent < 0.1 { 3 } else { 1 };
    format!("{percent:.digits$} %")
}

fn several(values: &[Option<f64>]) -> String {
    let texts: Vec<String> = values.iter().map(|value| number(*value, 0)).collect();
    texts.join(" / ")
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |v| format!("{v:.digits$}"))
}

const NOTHING: &str = "-";

/// Maximum number of links in a table.
const MAX_LINKS: usize = 10;

const VIDEO: [Column; 9] = [
    (0, 13, "on time"),
    (6, 8, "savable"),
    (1, 17, "delay 50/95/99 ms"),
    (2, 7, "PSNR dB"),
    (7, 6, "SSIM"),
    (5, 7, "freezes"),
    (3, 9, "rate"),
    (8, 10, "bits used"),
    (4, 6, "loss"),
];

const TRANSPORT: [Column; 8] = [
    (1, 9, "sent"),
    (0, 9, "received"),
    (6, 22, "least to most"),
    (3, 7, "loss"),
    (4, 6, "RTT ms"),
    (5, 21, "packet delay 50/95 ms"),
    (7, 12, "queue p95 ms"),
    (2, 9, "done in s"),
];

const LINK: [Column; 6] = [
    (0, 7, "used"),
    (1, 7, "dropped"),
    (4, 9, "at random"),
    (5, 10, "in outages"),
    (3, 6, "marked"),
    (2, 12, "queue p95 ms"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_are_dropped_by_rank() {
        let titles = |room| {
            let mut shown: Vec<usize> = (0..VIDEO.len()).collect();
            fit(&mut shown, &VIDEO, 8, room);
            let titles = shown.into_iter().map(|i| VIDEO[i].2);
            titles.collect::<Vec<_>>()
        };
        assert_eq!(titles(None).len(), VIDEO.len());
        assert_eq!(titles(Some(109)).len(), VIDEO.len());
        let known = [
            "on time",
            "delay 50/95/99 ms",
            "PSNR dB",
            "freezes",
            "rate",
            "loss",
        ];
        assert_eq!(titles(Some(80)), known);
        assert_eq!(titles(Some(1)), ["on time"]);
    }

    #[test]
    fn an_empty_column_is_dropped() {
        let rows = vec![
            ("a".to_owned(), vec!["1".to_owned(), "-".to_owned()]),
            ("b".to_owned(), vec!["-".to_owned(), "- / -".to_owned()]),
        ];
        let columns = [(0, 3, "one"), (1, 5, "two")];
        assert_eq!(
            table("flow", &columns, rows, None),
            "flow  one\na       1\nb       -\n"
        );
    }

    #[test]
    fn a_small_share_is_not_printed_as_zero() {
        let texts = [0.0, 0.0003, 0.012, 1.0].map(|share| percent(Some(share)));
        assert_eq!(texts, ["0.0 %", "0.030 %", "1.2 %", "100.0 %"]);
    }
}
