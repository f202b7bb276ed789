//! Conversion between rows of a run folder's tables and CSV cells.

use core::fmt::Display;
use core::time::Duration;

use serde::Serialize;
use serde::de::value::{Error as WordError, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};
use tidegate_core::media::Quality;
use tidegate_core::units::{Bytes, Time};

use crate::counts::{Bin, Count, Dummies, Totals};
use crate::rows::{
    BinRow, DropCauses, LinkSample, PacketRow, ReceivedFrame, SavableRow, SentFrame, ShownFrame,
    TotalsRow,
};

/// A row of a table.
pub(super) trait Row: Sized {
    /// Column names of the file.
    const HEADER: &'static [&'static str];

    /// Number of trailing columns that tables of earlier versions may lack. Missing cells are read
    /// as empty.
    const ADDED: usize = 0;

    /// Formats the row: one cell per column.
    fn cells(&self) -> Vec<String>;

    /// Parses a row; the inverse of `cells`.
    fn parse(cells: &mut Cells<'_>) -> Result<Self, NoRow>;
}

/// Error: the cells are not a valid row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRow;

/// Cells of one row, consumed from left to right.
pub(super) struct Cells<'a>(pub(super) csv::StringRecordIter<'a>);

impl Cells<'_> {
    fn text(&mut self) -> Result<&str, NoRow> {
        self.0.next().ok_or(NoRow)
    }

    fn number<T: core::str::FromStr>(&mut self) -> Result<T, NoRow> {
        self.text()?.parse().or(Err(NoRow))
    }

    fn time(&mut self) -> Result<Time, NoRow> {
        parse_time(self.text()?).ok_or(NoRow)
    }

    fn span(&mut self) -> Result<Duration, NoRow> {
        Ok(self.time()?.since(Time::ZERO))
    }

    fn count(&mut self) -> Result<Count, NoRow> {
        Ok(Count {
            packets: self.number()?,
            bytes: Bytes(self.number()?),
        })
    }

    fn word<T: DeserializeOwned>(&mut self) -> Result<T, NoRow> {
        parse_word(self.text()?).ok_or(NoRow)
    }

    /// `None` for an empty cell.
    fn maybe<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, NoRow> {
        match self.text()? {
            "" => Ok(None),
            text => parse(text).map(Some).ok_or(NoRow),
        }
    }

    /// `None` unless all four cells are present.
    fn quality(&mut self) -> Result<Option<Quality>, NoRow> {
        let mut cells = [None; 4];
        for cell in &mut cells {
            *cell = self.maybe(|t| t.parse().ok())?;
        }
        let [Some(psnr_y), Some(psnr_u), Some(psnr_v), Some(ssim)] = cells else {
            return Ok(None);
        };
        Ok(Some(Quality {
            psnr_y,
            psnr_u,
            psnr_v,
            ssim,
        }))
    }
}

impl Row for SentFrame {
    const HEADER: &'static [&'static str] = &[
        "frame",
        "rtp_timestamp",
        "captured_s",
        "type",
        "target_bits",
        "bits",
        "left_s",
        "dropped",
        "psnr_y",
        "psnr_u",
        "psnr_v",
        "ssim",
    ];

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            self.frame.to_string(),
            self.rtp_timestamp.to_string(),
            seconds(self.captured),
            word(&self.kind),
            self.target_bits.to_string(),
            self.bits.to_string(),
            self.left.map(seconds).unwrap_or_default(),
            self.dropped.as_ref().map(word).unwrap_or_default(),
        ];
        cells.extend(quality(self.quality));
        cells
    }

    fn parse(cells: &mut Cells<'_>) -> Result<Self, NoRow> {
        Ok(Self {
            frame: cells.number()?,
            rtp_timestamp: cells.number()?,
            captured: cells.time()?,
            kind: cells.word()?,
            target_bits: cells.number()?,
            bits: cells.number()?,
            left: cells.maybe(parse_time)?,
            dropped: cells.maybe(parse_word)?,
            quality: cells.quality()?,
        })
    }
}

impl Row for ReceivedFrame {
    const HEADER: &'static [&'static str] = &[
        "frame",
        "rtp_timestamp",
        "first_s",
        "complete_s",
        "type",
        "bits",
        "decodable",
        "psnr_y",
        "psnr_u",
        "psnr_v",
        "ssim",
    ];

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            self.frame.to_string(),
            self.rtp_timestamp.to_string(),
            seconds(self.first),
            self.complete.map(seconds).unwrap_or_default(),
            word(&self.kind),
            self.bits.to_string(),
            self.decodable.to_string(),
        ];
        cells.extend(quality(self.quality));
        cells
    }

    fn parse(cells: &mut Cells<'_>) -> Result<Self, NoRow> {
        Ok(Self {
            frame: cells.number()?,
            rtp_timestamp: cells.number()?,
            first: cells.time()?,
            complete: cells.maybe(parse_time)?,
            kind: cells.word()?,
            bits: cells.number()?,
            decodable: cells.number()?,
            quality: cells.quality()?,
        })
    }
}

impl Row for ShownFrame {
    const HEADER: &'static [&'static str] = &[
        "frame",
        "shown_frame",
        "on_time",
        "psnr_y",
        "psnr_u",
        "psnr_v",
        "ssim",
    ];

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            self.frame.to_string(),
            self.shown_frame.map(text).unwrap_or_default(),
            self.on_time.to_string(),
        ];
        cells.extend(quality(self.quality));
        cells
    }

    fn parse(cells: &mut Cells<'_>) -> Result<Self, NoRow> {
        Ok(Self {
            frame: cells.number()?,
            shown_frame: cells.maybe(|t| t.parse().ok())?,
            on_time: cells.number()?,
            quality: cells.quality()?,
        })
    }
}

impl Row for PacketRow {
    const HEADER: &'static [&'static str] =
        &["seq", "kind", "size", "sent_s", "arrived_s", "outcome"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.seq.to_string(),
            word(&self.kind),
            self.size.get().to_string(),
            seconds(self.sent),
            self.arrived.map(seconds).unwrap_or_default(),
            word(&self.outcome),
        ]
    }

    fn parse(cells: &mut Cells<'_>) -> Result<Self, NoRow> {
        Ok(Self {
            seq: cells.number()?,
            kind: cells.word()?,
            size: Bytes(cells.number()?),
            sent: cells.time()?,
            arrived: cells.maybe(parse_time)?,
            outcome: cells.word()?,
        })
    }
}

impl Row for SavableRow {
    const HEADER: &'static [&'static str] = &["frame", "savable"];

    fn cells(&self) -> Vec<String> {
        vec![self.frame.to_string(), self.savable.to_string()]
    }

    fn parse(cells: &mut Cells<'_>) -> Result<Self, NoRow> {
        Ok(Self {
            frame: cells.number()?,
            savable: cells.number()?,
        })
    }
}

impl Row for LinkSample {
    const HEADER: &'static [&'static str] = &[
        "t_s",
        "run",
        "link",
        "queue_bytes",
        "drops",
        "marks",
        "delivered_bytes",
        "drops_random",
        "drops_outage",
    ];

    const ADDED: usize = 2;

    fn cells(&self) -> Vec<String> {
        vec![
            seconds(self.at),
            self.run.to_string(),
            self.link.to_string(),
            self.queue.get().to_string(),
            self.drops.to_string(),
            self.marks.to_string(),
            self.delivered.get().to_string(),
            self.causes.map(|c| text(c.random)).unwrap_or_default(),
            self.causes.map(|c| text(c.outage)).unwrap_or_default(),
        ]
    }

    fn parse(cells: &mut Cells<'_>) -> Result<Self, NoRow> {
        Ok(Self {
            at: cells.time()?,
            run: cells.text()?.into(),
            link: cells.text()?.into(),
            queue: Bytes(cells.number()?),
            drops: cells.number()?,
            marks: cells.number()?,
            delivered: Bytes(cells.number()?),
            causes: {
                let random = cells.maybe(|text| text.parse().ok())?;
                let outage = cells.maybe(|text| text.parse().ok())?;
                let causes = random.zip(outage);
                causes.map(|(random, outage)| DropCauses { random, outage })
            },
        })
    }
}

impl Row for BinRow {
    const HEADER: &'static [&'static str] = &[
        "t_s",
        "flow",
        "sent_packets",
        "sent_bytes",
        "received_packets",
        "received_bytes",
        "delay_sum_s",
        "delay_max_s",
        "dropped",
    ];

    const ADDED: usize = 1;

    fn cells(&self) -> Vec<String> {
        let bin = &self.bin;
        vec![
            seconds(self.at),
            self.flow.clone(),
            bin.sent.packets.to_string(),
            bin.sent.bytes.get().to_string(),
            bin.received.packets.to_string(),
            bin.received.bytes.get().to_string(),
            span(bin.delay_sum),
            span(bin.delay_max),
            bin.dropped.map(text).unwrap_or_default(),
        ]
    }

    fn parse(cells: &mut Cells<'_>) -> Result<Self, NoRow> {
        Ok(Self {
            at: cells.time()?,
            flow: cells.text()?.to_owned(),
            bin: Bin {
                sent: cells.count()?,
                received: cells.count()?,
                delay_sum: cells.span()?,
                delay_max: cells.span()?,
                dropped: cells.maybe(|text| text.parse().ok())?,
            },
        })
    }
}

impl Row for TotalsRow {
    const HEADER: &'static [&'static str] = &[
        "flow",
        "span_s",
        "sent_packets",
        "sent_bytes",
        "received_packets",
        "received_bytes",
        "dropped",
        "loss_events",
        "rtt_s",
        "delay_min_s",
        "delay_mean_s",
        "delay_p50_s",
        "delay_p95_s",
        "delay_p99_s",
        "delay_max_s",
        "first_sent_s",
        "done_s",
        "dummies_sent",
        "dummies_received",
    ];

    const ADDED: usize = 4;

    fn cells(&self) -> Vec<String> {
        let totals = &self.totals;
        vec![
            self.flow.clone(),
            span(totals.span),
            totals.sent.packets.to_string(),
            totals.sent.bytes.get().to_string(),
            totals.received.packets.to_string(),
            totals.received.bytes.get().to_string(),
            totals.dropped.to_string(),
            totals.loss_events.to_string(),
            totals.rtt.map(span).unwrap_or_default(),
            span(totals.delay_min),
            span(totals.delay_mean),
            span(totals.delay_p50),
            span(totals.delay_p95),
            span(totals.delay_p99),
            span(totals.delay_max),
            totals.first_sent.map(seconds).unwrap_or_default(),
            totals.done.map(seconds).unwrap_or_default(),
            totals.dummies.sent.to_string(),
            totals.dummies.received.to_string(),
        ]
    }

    fn parse(cells: &mut Cells<'_>) -> Result<Self, NoRow> {
        Ok(Self {
            flow: cells.text()?.to_owned(),
            totals: Totals {
                span: cells.span()?,
                sent: cells.count()?,
                received: cells.count()?,
                dropped: cells.number()?,
                loss_events: cells.number()?,
                rtt: cells.maybe(|text| Some(parse_time(text)?.since(Time::ZERO)))?,
                delay_min: cells.span()?,
                delay_mean: cells.span()?,
                delay_p50: cells.span()?,
                delay_p95: cells.span()?,
                delay_p99: cells.span()?,
                delay_max: cells.span()?,
                first_sent: cells.maybe(parse_time)?,
                done: cells.maybe(parse_time)?,
                dummies: Dummies {
                    sent: cells.maybe(number)?.unwrap_or(0),
                    received: cells.maybe(number)?.unwrap_or(0),
                },
            },
        })
    }
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// Formats a duration as [`seconds`] does.
fn span(span: Duration) -> String {
    seconds(Time::ZERO + span)
}

/// Formats seconds with nine decimals, which represents nanoseconds exactly.
pub(super) fn seconds(at: Time) -> String {
    let nanos = at.as_nanos();
    format!("{}.{:09}", nanos / NANOS, nanos % NANOS)
}

/// Inverse of [`seconds`], exact. Fewer decimals are accepted; decimals beyond the ninth are
/// ignored.
fn parse_time(text: &str) -> Option<Time> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let decimals = part.get(..part.len().min(9))?;
    let nanos: u64 = format!("{decimals:0<9}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    Some(Time::from_nanos(
        whole.checked_mul(NANOS)?.checked_add(nanos)?,
    ))
}

/// Name that serde gives to a unit variant.
pub(super) fn word<T: Serialize>(value: &T) -> String {
    let json = serde_json::to_string(value).unwrap_or_default();
    json.trim_matches('"').to_owned()
}

fn parse_word<T: DeserializeOwned>(text: &str) -> Option<T> {
    let deserializer: StrDeserializer<'_, WordError> = text.into_deserializer();
    T::deserialize(deserializer).ok()
}

fn text(value: impl Display) -> String {
    value.to_string()
}

/// Formats with a fixed number of decimals, so that the same run gives the same bytes. A thousandth
/// of a dB and a hundred-thousandth of SSIM are far below what a viewer can distinguish.
fn quality(quality: Option<Quality>) -> [String; 4] {
    quality.map_or_else(Default::default, |q| {
        [
            format!("{:.3}", q.psnr_y),
            format!("{:.3}", q.psnr_u),
            format!("{:.3}", q.psnr_v),
            format!("{:.5}", q.ssim),
        ]
    })
}

/// Rounds a quality to the precision of the tables, so that numbers of a run in memory equal those
/// of its folder.
pub(super) fn as_kept(exact: Quality) -> Quality {
    let cells = quality(Some(exact));
    let [psnr_y, psnr_u, psnr_v, ssim] = cells.map(|cell| cell.parse().unwrap_or(f64::NAN));
    Quality {
        psnr_y,
        psnr_u,
        psnr_v,
        ssim,
    }
}

const NANOS: u64 = 1_000_000_000;

/// Columns of all tables, for the test of the documentation.
#[cfg(test)]
pub(super) fn columns() -> impl Iterator<Item = &'static str> {
    [
        SentFrame::HEADER,
        ReceivedFrame::HEADER,
        ShownFrame::HEADER,
        PacketRow::HEADER,
        SavableRow::HEADER,
        LinkSample::HEADER,
        BinRow::HEADER,
        TotalsRow::HEADER,
    ]
    .into_iter()
    .flatten()
    .copied()
}
