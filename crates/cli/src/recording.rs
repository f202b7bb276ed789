//! `tidegate sim convert`: recordings of other programs as recorded paths.
//!
//! A recorded path is CSV with the header `t_s,mbps[,rtt_ms,loss]`. The format of the input follows
//! from its content: mahimahi's delivery opportunities, JSON of iperf3 or ndt7, or CSV with the field
//! names of these.

use core::fmt::Write as _;
use core::time::Duration;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;
use tidegate_console::output::output;
use tidegate_core::link::{Capacity, Trace};
use tidegate_core::quantity;
use tidegate_core::units::{Bytes, Time};
use tidegate_sim::scenario::recorded_path::RecordedPath;

/// Arguments of `tidegate sim convert`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    /// Recording: mahimahi, JSON of iperf3 -J or ndt7, or CSV with their field names
    file: PathBuf,
    /// Interval of the rows from delivery opportunities
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = step)]
    step: Duration,
}

fn step(text: &str) -> Result<Duration, String> {
    let step = quantity::duration(text).map_err(|error| error.to_string())?;
    if step < Duration::from_millis(1) {
        return Err("below 1 ms, the resolution of such files: give at least 1ms".to_owned());
    }
    Ok(step)
}

/// Prints the path of a recording.
///
/// # Errors
/// The file cannot be read or has no known format, or its path is invalid.
pub(crate) fn run(args: &ConvertArgs) -> Result<ExitCode> {
    let name = args.file.display();
    let text = fs::read_to_string(&args.file).with_context(|| format!("cannot read {name}"))?;
    let csv = convert(&text, args.step).with_context(|| name.to_string())?;
    // The reader has further requirements, such as the order of the times.
    RecordedPath::parse(&csv).with_context(|| format!("the path in {name}"))?;
    write!(output(), "{csv}")?;
    Ok(ExitCode::SUCCESS)
}

fn convert(text: &str, step: Duration) -> Result<String> {
    let start = text.trim_start();
    let spans = if start.starts_with('{') {
        of_json(text)?
    } else if start.starts_with(|c: char| c.is_ascii_alphabetic()) {
        of_table(text)?
    } else {
        return of_opportunities(text, step);
    };
    as_csv(&spans)
}

/// Properties of a path during an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    /// Start and end in seconds.
    from: f64,
    to: f64,
    mbps: f64,
    rtt_ms: Option<f64>,
    loss: Option<f64>,
}

/// Rows from mahimahi's format. The second period is complete: at the start of the first one, the last
/// opportunity of its predecessor is missing.
fn of_opportunities(text: &str, step: Duration) -> Result<String> {
    let trace = Trace::parse(text)?;
    let (period, capacity) = (trace.period(), Capacity::Trace(trace));
    let mut csv = "t_s,mbps\n".to_owned();
    let mut at = Duration::ZERO;
    while at < period {
        let end = (at + step).min(period);
        let bounds = [at, end].map(|at| Time::ZERO + period + at);
        let bits = capacity
            .offered(bounds[0], bounds[1])
            .map_or(0, Bytes::bits);
        let mbps = bits as f64 / end.saturating_sub(at).as_secs_f64() / 1e6;
        let _ = writeln!(csv, "{},{mbps:.3}", at.as_secs_f64());
        at = end;
    }
    let _ = writeln!(csv, "{},0", period.as_secs_f64());
    Ok(csv)
}

/// One JSON document, or one per line.
fn of_json(text: &str) -> Result<Vec<Span>> {
    let documents: Vec<Value> = match serde_json::from_str(text) {
        Ok(document) => vec![document],
        Err(whole) => {
            let lines = text
                .lines()
                .enumerate()
                .filter(|(_, line)| !line.trim().is_empty());
            let parsed = lines.map(|(n, line)| {
                let parsed = serde_json::from_str(line);
                parsed.with_context(|| format!("line {}, or the whole file: {whole}", n + 1))
            });
            parsed.collect::<Result<_>>()?
        }
    };
    let intervals: Vec<&Value> = documents.iter().flat_map(iperf3_intervals).collect();
    if !intervals.is_empty() {
        return intervals.into_iter().map(iperf3).collect();
    }
    let points: Vec<&Value> = documents.iter().flat_map(ndt7_points).collect();
    if points.is_empty() {
        bail!(
            "neither iperf3 (intervals) nor ndt7 (measurements with TCPInfo or AppInfo): give the \
             output of iperf3 -J, or of ndt7 as JSON"
        );
    }
    ndt7(&points)
}

/// Intervals of `iperf3 -J`, and of `--json-stream` with an event per line.
fn iperf3_intervals(document: &Value) -> Vec<&Value> {
    let measured = |interval: &&Value| interval["sum"]["omitted"] != true;
    let whole = document["intervals"].as_array();
    let event = (document["event"] == "interval").then(|| &document["data"]);
    whole
        .into_iter()
        .flatten()
        .chain(event)
        .filter(measured)
        .collect()
}

fn iperf3(interval: &Value) -> Result<Span> {
    let sum = &interval["sum"];
    let number = |key: &str| {
        let number = sum[key].as_f64();
        number.ok_or_else(|| anyhow!("an interval of iperf3 has no number `sum.{key}`"))
    };
    let streams = interval["streams"].as_array();
    let rtts = streams
        .into_iter()
        .flatten()
        .filter_map(|stream| stream["rtt"].as_f64());
    let rtts: Vec<f64> = rtts.filter(|rtt| *rtt > 0.0).collect();
    Ok(Span {
        from: number("start")?,
        to: number("end")?,
        mbps: number("bits_per_second")? / 1e6,
        rtt_ms: (!rtts.is_empty()).then(|| rtts.iter().sum::<f64>() / rtts.len() as f64 / 1e3),
        loss: sum["lost_percent"].as_f64().map(|percent| percent / 100.0),
    })
}

/// Measurements of one direction: those of a client's output, one per line, or of the server in an
/// archived result.
fn ndt7_points(document: &Value) -> Vec<&Value> {
    let archived = ["Download", "Upload"].map(|test| &document[test]["ServerMeasurements"]);
    if let Some(points) = archived.into_iter().find_map(Value::as_array) {
        return points.iter().collect();
    }
    let point = match document["Key"].as_str() {
        Some("measurement") => &document["Value"],
        Some(_) => return Vec::new(),
        None => document,
    };
    let is_point = point["TCPInfo"].is_object() || point["AppInfo"].is_object();
    is_point.then_some(point).into_iter().collect()
}

/// Cumulative bytes at times in microseconds. The server counts those that the client acknowledged, or
/// that it received. If the points are of both directions, those of the first one count.
fn ndt7(points: &[&Value]) -> Result<Vec<Span>> {
    let counters = [
        ("TCPInfo", "BytesAcked"),
        ("TCPInfo", "BytesReceived"),
        ("AppInfo", "NumBytes"),
    ];
    let test = &points[0]["Test"];
    let count = |(part, key): (&str, &str)| -> Vec<Point> {
        let own = points.iter().filter(|point| point["Test"] == *test);
        let point = |point: &&Value| {
            Some(Point {
                at: point[part]["ElapsedTime"].as_f64()? / 1e6,
                bytes: point[part][key].as_f64()?,
                rtt_ms: point["TCPInfo"]["RTT"].as_f64().map(|micros| micros / 1e3),
            })
        };
        own.filter_map(point).collect()
    };
    let series = counters.map(count);
    // A counter of the other direction hardly moves.
    let moved = |series: &[Point]| match series {
        [first, .., last] => last.bytes - first.bytes,
        _ => 0.0,
    };
    let most = series.iter().max_by(|a, b| moved(a).total_cmp(&moved(b)));
    spans(most.map_or(&[][..], Vec::as_slice))
}

/// Bytes until a time in seconds.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: f64,
    bytes: f64,
    rtt_ms: Option<f64>,
}

fn spans(points: &[Point]) -> Result<Vec<Span>> {
    if points.len() < 2 {
        bail!("fewer than two measurements with a time and a number of bytes: record for longer");
    }
    let pairs = points.windows(2).filter(|pair| pair[1].at > pair[0].at);
    let span = |pair: &[Point]| Span {
        from: pair[0].at,
        to: pair[1].at,
        mbps: (pair[1].bytes - pair[0].bytes) * 8e-6 / (pair[1].at - pair[0].at),
        rtt_ms: pair[1].rtt_ms,
        loss: None,
    };
    Ok(pairs.map(span).collect())
}

/// CSV with the field names of iperf3 or ndt7 in its first line.
fn of_table(text: &str) -> Result<Vec<Span>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    let place = |name: &str| header.iter().position(|column| column.trim() == name);
    let rows = reader.records().collect::<Result<Vec<_>, _>>()?;
    let number = |row: &csv::StringRecord, column: usize| -> Result<f64> {
        let line = row.position().map_or(0, csv::Position::line);
        let field = row.get(column).unwrap_or_default().trim();
        let found = || {
            format!(
                "line {line}: {} is `{field}`: give a number",
                &header[column]
            )
        };
        field.parse().with_context(found)
    };
    let maybe = |row: &csv::StringRecord, name: &str| {
        let column = place(name);
        column.map(|column| number(row, column)).transpose()
    };
    if let (Some(from), Some(to), Some(rate)) =
        (place("start"), place("end"), place("bits_per_second"))
    {
        let span = |row: &csv::StringRecord| {
            Ok(Span {
                from: number(row, from)?,
                to: number(row, to)?,
                mbps: number(row, rate)? / 1e6,
                rtt_ms: maybe(row, "rtt")?.map(|micros| micros / 1e3),
                loss: maybe(row, "lost_percent")?.map(|percent| percent / 100.0),
            })
        };
        return rows.iter().map(span).collect();
    }
    let bytes = ["BytesAcked", "BytesReceived", "NumBytes"];
    let (Some(at), Some(bytes)) = (place("ElapsedTime"), bytes.into_iter().find_map(place)) else {
        bail!(
            "line 1 names neither start, end and bits_per_second, as iperf3 does, nor ElapsedTime and \
             BytesAcked, BytesReceived or NumBytes, as ndt7 does: name the columns so"
        );
    };
    let point = |row: &csv::StringRecord| {
        Ok(Point {
            at: number(row, at)? / 1e6,
            bytes: number(row, bytes)?,
            rtt_ms: maybe(row, "RTT")?.map(|micros| micros / 1e3),
        })
    };
    spans(&rows.iter().map(point).collect::<Result<Vec<_>>>()?)
}

/// The rows of all spans. Columns that a span lacks are left out.
fn as_csv(spans: &[Span]) -> Result<String> {
    let last = spans
        .last()
        .ok_or_else(|| anyhow!("no interval: record for longer"))?;
    let has_rtt = spans.iter().all(|span| span.rtt_ms.is_some());
    let has_loss = spans.iter().all(|span| span.loss.is_some());
    let mut csv = "t_s,mbps".to_owned();
    let names = [(has_rtt, ",rtt_ms"), (has_loss, ",loss")];
    csv.extend(names.iter().filter(|(has, _)| *has).map(|(_, name)| *name));
    csv.push('\n');
    let rows = spans.iter().map(|span| (span.from, span));
    for (at, span) in rows.chain([(last.to, last)]) {
        let _ = write!(csv, "{at:.6},{:.3}", span.mbps);
        for (value, _) in [(span.rtt_ms, has_rtt), (span.loss, has_loss)]
            .iter()
            .filter(|(_, has)| *has)
        {
            let _ = write!(csv, ",{:.4}", value.unwrap_or_default());
        }
        csv.push('\n');
    }
    Ok(csv)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(text: &str) -> String {
        let csv = convert(text, Duration::from_millis(200)).unwrap();
        RecordedPath::parse(&csv).unwrap();
        csv
    }

    #[test]
    fn opportunities_keep_their_bytes() {
        // Ten opportunities in 0.5 s; that of 500 ms is also the first one of the next period.
        let csv = converted("0\n100\n100\n150\n200\n300\n350\n350\n450\n500\n");
        assert_eq!(csv, "t_s,mbps\n0,0.300\n0.2,0.240\n0.4,0.120\n0.5,0\n");
    }

    #[test]
    fn json_of_iperf3() {
        let interval = |start: u32, bps: u32, rest: &str| {
            let end = start + 1;
            format!(
                r#"{{"streams":[{{"rtt":20000}},{{"rtt":40000}}],"sum":{{"start":{start},"end":{end},"bits_per_second":{bps}{rest}}}}}"#
            )
        };
        let (first, second) = (interval(0, 5_000_000, ""), interval(1, 2_500_000, ""));
        let omitted = interval(0, 9, r#","omitted":true"#);
        let whole = format!(r#"{{"start":{{}},"intervals":[{omitted},{first},{second}]}}"#);
        let expected = "t_s,mbps,rtt_ms\n0.000000,5.000,30.0000\n1.000000,2.500,30.0000\n2.000000,2.500,30.0000\n";
        assert_eq!(converted(&whole), expected);
        let event = |data: &str| format!(r#"{{"event":"interval","data":{data}}}"#);
        let stream = format!(
            "{{\"event\":\"start\"}}\n{}\n{}\n",
            event(&first),
            event(&second)
        );
        assert_eq!(converted(&stream), expected);
        let udp = r#"{"intervals":[{"streams":[],"sum":{"start":0,"end":2,"bits_per_second":1e6,"lost_percent":1.5}}]}"#;
        assert_eq!(
            converted(udp),
            "t_s,mbps,loss\n0.000000,1.000,0.0150\n2.000000,1.000,0.0150\n"
        );
    }

    #[test]
    fn json_of_ndt7() {
        let point = |micros: u32, bytes: u32| {
            format!(
                r#"{{"TCPInfo":{{"ElapsedTime":{micros},"BytesAcked":{bytes},"BytesReceived":300,"RTT":25000}}}}"#
            )
        };
        let points = [
            point(0, 0),
            point(250_000, 250_000),
            point(500_000, 375_000),
        ];
        let expected = "t_s,mbps,rtt_ms\n0.000000,8.000,25.0000\n0.250000,4.000,25.0000\n0.500000,4.000,25.0000\n";
        let archived = format!(
            r#"{{"Download":{{"ServerMeasurements":[{}]}}}}"#,
            points.join(",")
        );
        assert_eq!(converted(&archived), expected);
        let lines = points.map(|point| format!(r#"{{"Key":"measurement","Value":{point}}}"#));
        let lines = format!("{{\"Key\":\"starting\"}}\n{}\n", lines.join("\n"));
        assert_eq!(converted(&lines), expected);
        let client = "{\"AppInfo\":{\"ElapsedTime\":0,\"NumBytes\":0},\"Test\":\"download\"}\n{\"AppInfo\":{\"ElapsedTime\":1000000,\"NumBytes\":125000},\"Test\":\"download\"}\n{\"AppInfo\":{\"ElapsedTime\":5,\"NumBytes\":9},\"Test\":\"upload\"}\n";
        assert_eq!(
            converted(client),
            "t_s,mbps\n0.000000,1.000\n1.000000,1.000\n"
        );
    }

    #[test]
    fn tables_with_the_names_of_both() {
        let iperf3 = "start,end,bits_per_second,lost_percent\n0,1,2000000,0\n1,2,1000000,10\n";
        let expected =
            "t_s,mbps,loss\n0.000000,2.000,0.0000\n1.000000,1.000,0.1000\n2.000000,1.000,0.1000\n";
        assert_eq!(converted(iperf3), expected);
        let ndt7 = "RTT,ElapsedTime,NumBytes\n9000,0,0\n10000,500000,62500\n";
        let expected = "t_s,mbps,rtt_ms\n0.000000,1.000,10.0000\n0.500000,1.000,10.0000\n";
        assert_eq!(converted(ndt7), expected);
    }

    #[test]
    fn errors_name_the_line_and_the_fix() {
        for (text, part) in [
            ("", "the trace is empty"),
            ("1\nx\n", "line 2 of the trace"),
            ("{}", "give the output of iperf3 -J"),
            ("{\n{}\n", "line 1, or the whole file"),
            (
                "{\"intervals\":[{\"sum\":{\"start\":0}}]}",
                "no number `sum.end`",
            ),
            (
                "{\"AppInfo\":{\"ElapsedTime\":0,\"NumBytes\":0}}",
                "fewer than two measurements",
            ),
            ("time,rate\n0,1\n", "name the columns so"),
            (
                "start,end,bits_per_second\n0,1,fast\n",
                "line 2: bits_per_second is `fast`",
            ),
        ] {
            let error = convert(text, Duration::from_millis(200)).unwrap_err();
            assert!(format!("{error:#}").contains(part), "{text}: {error:#}");
        }
    }
}
