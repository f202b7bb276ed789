//! Captures of kernel TCP flows in the run folder of a lab.

use std::path::Path;

use anyhow::{Context as _, Result};
use tidegate_record::{CAPTURE, CONNECTION};
use tidegate_sim::interactive::Sample;

use super::capture::CapturedPacket;
use super::lab_run::LabResult;

/// Packets and connection state of each flow over kernel TCP.
#[derive(Debug)]
pub(crate) struct Captures(Vec<Flow>);

#[derive(Debug)]
struct Flow {
    name: String,
    there: Vec<CapturedPacket>,
    samples: Vec<Sample>,
}

/// Extracts the captures of a completed run.
pub(crate) fn captures(played: &LabResult) -> Captures {
    let samples = |name: &str| {
        let mut flows = played.take.flows.iter();
        let flow = flows.find(|(instance, _)| instance.name == name);
        let record = flow.and_then(|(_, results)| results.stream.as_ref());
        record.map_or_else(Vec::new, |record| record.samples.clone())
    };
    let flow = |(name, there): &(String, Vec<CapturedPacket>)| Flow {
        name: name.clone(),
        there: there.clone(),
        samples: samples(name),
    };
    Captures(played.captures.iter().map(flow).collect())
}

impl Captures {
    /// Writes [`CAPTURE`] and [`CONNECTION`] into the folder of each flow.
    ///
    /// # Errors
    /// A file or folder cannot be written.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        for flow in &self.0 {
            let folder = dir.join("flows").join(&flow.name);
            std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let table = |name: &str, columns: &[&str], rows: Vec<Vec<String>>| -> Result<()> {
                let path = folder.join(name);
                let context = || path.display().to_string();
                let mut table = csv::Writer::from_path(&path).with_context(context)?;
                table.write_record(columns).with_context(context)?;
                for row in rows {
                    table.write_record(row).with_context(context)?;
                }
                table.flush().with_context(context)
            };
            let columns = ["sent_s", "arrived_s", "size", "sequence", "payload"];
            table(CAPTURE, &columns, flow.there.iter().map(packet).collect())?;
            let columns = [
                "t_s",
                "cwnd_bytes",
                "ssthresh_bytes",
                "srtt_s",
                "backlog_bytes",
            ];
            table(
                CONNECTION,
                &columns,
                flow.samples.iter().map(state).collect(),
            )?;
        }
        Ok(())
    }
}

fn packet(passing: &CapturedPacket) -> Vec<String> {
    let arrived = passing
        .arrived
        .map(|(at, _)| format!("{:.9}", at.as_secs_f64()));
    let segment = passing.segment;
    vec![
        format!("{:.9}", passing.sent.as_secs_f64()),
        arrived.unwrap_or_default(),
        passing.size.get().to_string(),
        segment.map_or_else(String::new, |s| s.sequence.to_string()),
        segment.map_or_else(String::new, |s| s.payload.to_string()),
    ]
}

fn state(sample: &Sample) -> Vec<String> {
    vec![
        format!("{:.9}", sample.at.as_secs_f64()),
        sample.cwnd.get().to_string(),
        sample.ssthresh.get().to_string(),
        format!("{:.9}", sample.srtt.as_secs_f64()),
        sample.backlog.get().to_string(),
    ]
}
