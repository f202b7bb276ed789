//! Output of the server: who is served, at what rate, from which rendition.

use anyhow::Result;
use serde_json::{Value, json};
use tidegate_console::progress::{counted, millis, say};
use tidegate_core::units::{Rate, Time};

use super::REPORT_INTERVAL;
use super::stream::Snapshot;
use super::streams::{Stream, Streams};
use crate::live::{JsonArgs, JsonLines, rounded};

/// Lines and objects per second.
#[derive(Debug)]
pub(super) struct Report {
    json: JsonArgs,
    lines: Option<JsonLines>,
    next: Time,
}

impl Report {
    pub(super) fn new(json: JsonArgs) -> Self {
        Self {
            json,
            lines: json.lines(),
            next: Time::ZERO + REPORT_INTERVAL,
        }
    }

    /// Prints what is due.
    pub(super) fn turn(&mut self, now: Time, streams: &Streams) {
        if let Some(lines) = &mut self.lines {
            lines.print_if_due(now, || object(now, streams));
        }
        if now < self.next {
            return;
        }
        self.next = now + REPORT_INTERVAL;
        let running: Vec<(&Stream, Snapshot)> = running(streams).collect();
        for (stream, state) in running.iter().take(MAX_LINES) {
            say(line(now, stream, state));
        }
        let rest = running.get(MAX_LINES..).unwrap_or_default();
        if !rest.is_empty() {
            let rates = rest.iter().map(|(_, state)| state.rate.as_bps());
            say(format_args!(
                "{:6.1} s  and {} at {}",
                now.as_secs_f64(),
                counted(rest.len() as u64, "more stream"),
                Rate::bps(rates.sum())
            ));
        }
    }

    /// Prints the totals.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub(super) fn finish(&self, streams: &Streams) -> Result<()> {
        let totals = &streams.totals;
        let late = totals.lateness.quantile(0.99);
        let pacing = late.map_or_else(String::new, |late| {
            format!("; pacing error {} p99", millis(late))
        });
        say(format_args!(
            "served {}, {}, {:.1} MB{pacing}",
            counted(totals.streams, "stream"),
            counted(totals.frames, "frame"),
            totals.bytes.get() as f64 / 1e6,
        ));
        if self.json.summary() {
            let summary = json!({
                "streams": totals.streams,
                "frames": totals.frames,
                "bytes": totals.bytes.get(),
                "paced": totals.lateness.count(),
                "pacing_p99_ms": late.map(|late| rounded(late.as_secs_f64() * 1e3)),
            });
            tidegate_console::output::print_json(&summary)?;
        }
        Ok(())
    }
}

/// The streams that play or pause.
fn running(streams: &Streams) -> impl Iterator<Item = (&Stream, Snapshot)> {
    let states = streams.iter().map(|stream| (stream, stream.snapshot()));
    states.filter_map(|(stream, state)| Some((stream, state?)))
}

fn line(now: Time, stream: &Stream, state: &Snapshot) -> String {
    let video = &stream.title.renditions()[state.rendition];
    let (width, height) = video.size();
    let rtt = state.status.rtt.map_or_else(|| "-".to_owned(), millis);
    let paused = if state.is_paused { "  paused" } else { "" };
    format!(
        "{:6.1} s  {}  {} at {:.1} s  {width}x{height}  {} of {}  loss {:.1} %  RTT {rtt}  {}{paused}",
        now.as_secs_f64(),
        stream.client,
        stream.name,
        state.position.as_secs_f64(),
        state.rate,
        state.status.target.media,
        state.status.loss * 100.0,
        stream.start.text(),
    )
}

fn object(now: Time, streams: &Streams) -> Value {
    let streams = running(streams).map(|(stream, state)| {
        let video = &stream.title.renditions()[state.rendition];
        let millis = |span: std::time::Duration| rounded(span.as_secs_f64() * 1e3);
        json!({
            "client": stream.client.to_string(),
            "title": stream.name,
            "position_s": rounded(state.position.as_secs_f64()),
            "rendition": video.path().file_name().map(|name| name.to_string_lossy()),
            "rate_bps": state.rate.as_f64(),
            "target_bps": state.status.target.media.as_f64(),
            "loss": rounded(state.status.loss),
            "rtt_ms": state.status.rtt.map(millis),
            "start": stream.start.name(),
            "knowledge": stream.start.knowledge(),
            "paused": state.is_paused,
            "pacing_p99_ms": state.lateness.quantile(0.99).map(millis),
        })
    });
    json!({
        "time_s": rounded(now.as_secs_f64()),
        "streams": streams.collect::<Vec<_>>(),
    })
}

/// Lines per second; further streams share one.
const MAX_LINES: usize = 20;
