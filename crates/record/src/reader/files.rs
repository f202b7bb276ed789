//! Files of a run folder, for links to them.

use crate::reader::Run;
use crate::writer::{
    BINS, CAPTURE, CONNECTION, EVENTS, FLOWS, FRAMES_RECEIVED, FRAMES_SENT, LINKS, MANIFEST,
    PACKETS, SAVABLE, SHOWN, SUMMARY, TOTALS,
};

/// A file of a run folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFile {
    /// Path below the run folder, with `/` between its parts.
    pub path: String,
    /// Name without folders.
    pub name: &'static str,
    /// Flow of the file; `None` for a file of the whole run.
    pub flow: Option<String>,
    /// Subject of a line of a table, or of the file.
    pub subject: &'static str,
}

impl Run {
    /// Existing files of the run folder: those of the run, then those of each flow, in the order
    /// of the manifest.
    pub fn files(&self) -> Vec<RunFile> {
        let of_run = OF_RUN.iter().map(|(name, subject)| RunFile {
            path: (*name).to_owned(),
            name,
            flow: None,
            subject,
        });
        let of_flow = self.flows.iter().flat_map(|flow| {
            let flow = &flow.info.name;
            OF_FLOW.iter().map(move |(name, subject)| RunFile {
                path: format!("{FLOWS}/{flow}/{name}"),
                name,
                flow: Some(flow.clone()),
                subject,
            })
        });
        let all = of_run.chain(of_flow);
        all.filter(|file| self.dir.join(&file.path).is_file())
            .collect()
    }
}

const OF_RUN: [(&str, &str); 6] = [
    (MANIFEST, "the run, its flows and links"),
    (SUMMARY, "metrics of flows and links"),
    (TOTALS, "flow"),
    (BINS, "flow and 200 ms"),
    (LINKS, "link and sampling time"),
    (EVENTS, "event"),
];

const OF_FLOW: [(&str, &str); 7] = [
    (FRAMES_SENT, "captured frame"),
    (FRAMES_RECEIVED, "frame with a received packet"),
    (SHOWN, "frame, at its display time"),
    (SAVABLE, "frame, by the offline optimum"),
    (PACKETS, "packet"),
    (CAPTURE, "packet at the emulator"),
    (CONNECTION, "sample of the TCP connection"),
];
