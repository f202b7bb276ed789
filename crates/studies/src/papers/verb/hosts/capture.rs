//! Packets of a run as `tcpdump` sees them at either end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::remote_process::RemoteProcess;
use tidegate_console::context::LiveContext;

/// A capture that was started and not yet ended.
#[derive(Debug)]
pub(super) struct Capture {
    helper: RemoteProcess,
    file: PathBuf,
}

impl Capture {
    /// Starts `command`, which is to run [`SCRIPT`] on a host called `place`; the packets come to
    /// `dir`/`side`.pcap. None if somebody interrupts.
    ///
    /// # Errors
    /// There is no `tcpdump`, or it may not.
    pub(super) fn start(
        command: Command,
        place: &str,
        (dir, side): (&Path, &str),
        around: &LiveContext,
    ) -> Result<Option<Self>> {
        let file = dir.join(format!("{side}.pcap"));
        let output = File::create(&file).with_context(|| file.display().to_string())?;
        let log = dir.join(format!("{side}-capture.log"));
        let name = format!("no packets are captured on {place}");
        let started = RemoteProcess::start(name, command, Stdio::from(output), &log);
        let ready = started.and_then(|mut helper| {
            let ready = helper.says(READY, around)?;
            Ok(ready.map(|_| helper))
        });
        if !matches!(ready, Ok(Some(_))) {
            // An empty file is no capture. Should it stay, that is no reason to fail.
            let _ = fs::remove_file(&file);
        }
        let ready = ready.context(
            "install tcpdump there and let the login capture (root, or CAP_NET_RAW), or leave \
             --capture out",
        )?;
        Ok(ready.map(|helper| Self { helper, file }))
    }

    /// Ends it and returns the file.
    ///
    /// # Errors
    /// The packets did not come back.
    pub(super) fn end(self) -> Result<PathBuf> {
        self.helper.end()?;
        Ok(self.file)
    }
}

/// `$1` is a port of TCP. Packets are kept there while the run lasts, so that they are not in its way,
/// and come as output at the end, which is when the standard input is over. Headers are enough. It is
/// the shell that writes the file, as tcpdump gives its rights up before it does.
pub(super) const SCRIPT: &str = "command -v tcpdump >/dev/null || \
        { echo 'there is no tcpdump' >&2; exit 84; }; \
    f=$(mktemp) || exit 83; exec 3<&0; \
    tcpdump -i any -s 128 -U -w - \"tcp port $1\" </dev/null >\"$f\" 3<&- & p=$!; \
    { read -r x; kill -TERM $p; } <&3 >/dev/null 2>&1 & w=$!; \
    wait $p; r=$?; kill $w 2>/dev/null; cat \"$f\"; rm -f \"$f\"; exit $r";
/// What tcpdump says when it has begun.
const READY: &str = "listening on";
