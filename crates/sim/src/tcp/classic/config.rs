//! Configuration of a classic [`Sender`](super::Sender).

use core::time::Duration;

use super::super::{HEADER, InitialWindow, RtoConfig};

/// Loss recovery algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Fast recovery ends with the first acknowledgement of new data (RFC 2581).
    #[default]
    Reno,
    /// Fast recovery ends when all data outstanding at its start is acknowledged (RFC 2582).
    NewReno,
    /// Selective acknowledgements with an estimate of the data in flight (pipe), after Fall and
    /// Floyd, "Simulation-based comparisons of Tahoe, Reno, and SACK TCP" (1996). The sink must
    /// send SACK blocks; otherwise losses are repaired by timeouts only.
    Sack,
}

/// Parameters of a [`Sender`](super::Sender). The defaults are those of ns-2.35, except for a
/// window that does not limit the flow.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of ns-2"
)]
pub struct Config {
    /// Loss recovery algorithm.
    pub flavour: Flavour,
    /// Size of a full packet including headers, in bytes.
    pub packet_size: u32,
    /// Headers in each packet, in bytes.
    pub header_size: u32,
    /// Whether the first segment is a SYN of `header_size` (`syn_`). Only its acknowledgement
    /// opens the initial window.
    pub syn: bool,
    /// Receiver window, in segments (`window_`).
    pub window: u32,
    /// The first congestion window.
    pub initial_window: InitialWindow,
    /// Initial slow start threshold, in segments; `None` is `window`.
    pub initial_ssthresh: Option<u32>,
    /// Whether a window equal to `ssthresh` grows as in slow start, which RFC 5681 section 3.1
    /// leaves open: 4.4BSD and its descendants do so, ns-2 and Linux do not. After successive
    /// timeouts, when the threshold is two segments, it saves at least one round trip.
    pub slow_start_at_threshold: bool,
    /// The retransmission timer.
    pub rto: RtoConfig,
    /// Whether every acknowledgement yields a round-trip sample from its time stamp
    /// (`timestamps_`). Otherwise one segment at a time is timed, and retransmitted segments are
    /// not (Karn's algorithm).
    pub timestamps: bool,
    /// Maximum of the random delay of a packet before it leaves (`overhead_`). It breaks up the
    /// phase effects of deterministic simulation. During such a delay, acknowledgements do not
    /// start another one; at its end, all segments that the window allows leave.
    pub overhead: Duration,
    /// Number of duplicate acknowledgements that indicate a loss (`numdupacks_`).
    pub dup_acks: u32,
    /// Whether each duplicate acknowledgement below this number releases a new segment
    /// (`singledup_`, RFC 3042).
    pub limited_transmit: bool,
    /// Maximum number of segments per acknowledgement; zero is no limit (`maxburst_`).
    pub max_burst: u32,
    /// Whether the window falls to one segment after an idle time of one timeout
    /// (`slow_start_restart_`).
    pub slow_start_restart: bool,
    /// Whether losses of data sent before the last reduction cause no second fast retransmit
    /// (`bugFix_`).
    pub bug_fix: bool,
    /// Whether the window only grows while it is fully used (`control_increase_`). By default, as
    /// in ns-2, it grows with every acknowledgement.
    pub control_increase: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Options of [`Flavour::NewReno`].
    pub newreno: NewReno,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            flavour: Flavour::default(),
            packet_size: 1_000,
            header_size: HEADER,
            syn: true,
            window: 10_000,
            initial_window: InitialWindow::Segments(2),
            initial_ssthresh: None,
            slow_start_at_threshold: false,
            rto: RtoConfig::default(),
            timestamps: false,
            overhead: Duration::ZERO,
            dup_acks: 3,
            limited_transmit: true,
            max_burst: 0,
            slow_start_restart: true,
            bug_fix: true,
            control_increase: false,
            ecn: false,
            newreno: NewReno::default(),
        }
    }
}

/// Variants of `NewReno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of ns-2"
)]
pub struct NewReno {
    /// Whether only the first partial acknowledgement restarts the retransmission timer
    /// (`newreno_changes1_`, the impatient variant of RFC 2582).
    pub impatient: bool,
    /// Whether a partial acknowledgement deflates the window by the acknowledged amount
    /// (`partial_window_deflation_`).
    pub deflate: bool,
    /// Whether the window is limited to the outstanding data when recovery ends
    /// (`exit_recovery_fix_`).
    pub exit_fix: bool,
    /// Hoe's changes (`newreno_changes_`): `ssthresh` from the spacing of the first
    /// acknowledgements, and a new segment for every second duplicate acknowledgement.
    pub changes: bool,
}

impl Default for NewReno {
    fn default() -> Self {
        Self {
            impatient: true,
            deflate: true,
            exit_fix: false,
            changes: false,
        }
    }
}
