//! Session descriptions for RTSP (RFC 2326 appendix C).

use core::time::Duration;
use std::fmt::Write as _;

use tidegate_core::wire::sdp::Sdp;

/// Description of a title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The stream, with port 0 (RFC 2326 appendix C.1.2).
    pub sdp: Sdp,
    /// Duration; `None` without an end.
    pub duration: Option<Duration>,
}

impl Description {
    /// The description with the attributes of its only stream: control URL and range.
    pub(crate) fn text(&self) -> String {
        let mut text = self.sdp.to_string();
        let end = self.duration.map_or_else(String::new, npt);
        // Writing to a string cannot fail.
        let _ = write!(text, "a=range:npt=0-{end}\r\na=control:{CONTROL}\r\n");
        text
    }
}

/// Seconds of normal play time (RFC 2326 section 3.6).
pub(crate) fn npt(at: Duration) -> String {
    format!("{:.3}", at.as_secs_f64())
}

/// Control URL of the stream, relative to that of the title.
pub(crate) const CONTROL: &str = "video";
