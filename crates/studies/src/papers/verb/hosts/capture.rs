//! Packet captures of a run by `tcpdump` at both ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::remote_process::RemoteProcess;
use tidegate_console::context::LiveContext;

/// A running capture.
#[derive(Debug)]
pub(super) struct Capture {
    process: RemoteProcess,
    file: PathBuf,
}

impl Capture {
    /// Starts `command`, which runs [`SCRIPT`] on the host `place`. The packets are written to
    /// `dir`/`side`.pcap. None after Ctrl-C.
    ///
    /// # Errors
    /// `tcpdump` is missing or has no permission.
    pub(super) fn start(
        command: Command,
        place: &str,
        (dir, side): (&Path, &str),
        around: &LiveContext,
    ) -> Result<Option<Self>> {
        let file = dir.join(format!("{side}.pcap"));
        let output = File::create(&file).with_context(|| file.display().to_string())?;
        let log = dir.join(format!("{side}-capture.log"));
        let name = format!("no packet capture on {place}");
        let started = RemoteProcess::start(name, command, Stdio::from(output), &log);
        let ready = started.and_then(|mut process| {
            let ready = process.says(READY, around)?;
            Ok(ready.map(|_| process))
        });
        if !matches!(ready, Ok(Some(_))) {
            // Removes the empty file. A failure to do so is harmless.
            let _ = fs::remove_file(&file);
        }
        let ready = ready.context(
            "install tcpdump there and permit captures (root or CAP_NET_RAW), or remove \
             --capture",
        )?;
        Ok(ready.map(|process| Self { process, file }))
    }

    /// Ends the capture and returns its file.
    ///
    /// # Errors
    /// The packets cannot be retrieved.
    pub(super) fn end(self) -> Result<PathBuf> {
        self.process.end()?;
        Ok(self.file)
    }
}

/// Script of a capture. `$1` is the TCP port. Packets are stored on the host during the run, so
/// that their transfer does not compete with the stream, and are written to standard output at the
/// end of standard input. Only headers are captured. The shell opens the file, because tcpdump
/// drops its privileges before it opens files.
pub(super) const SCRIPT: &str = "command -v tcpdump >/dev/null || \
        { echo 'there is no tcpdump' >&2; exit 84; }; \
    f=$(mktemp) || exit 83; exec 3<&0; \
    tcpdump -i any -s 128 -U -w - \"tcp port $1\" </dev/null >\"$f\" 3<&- & p=$!; \
    { read -r x; kill -TERM $p; } <&3 >/dev/null 2>&1 & w=$!; \
    wait $p; r=$?; kill $w 2>/dev/null; cat \"$f\"; rm -f \"$f\"; exit $r";
/// Message of tcpdump when it has started.
const READY: &str = "listening on";
