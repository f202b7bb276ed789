//! Configuration of a classic [`Sender`](super::Sender).

use core::time::Duration;

use super::super::{HEADER, InitialWindow, RtoConfig};

/// How losses are repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Fast recovery ends with the first acknowledgement of new data (RFC 2581).
    #[default]
    Reno,
    /// It lasts until everything is acknowledged that was out when it began (RFC 2582).
    NewReno,
    /// Selective acknowledgements and an estimate of what is in the pipe, after Fall and Floyd,
    /// "Simulation-based comparisons of Tahoe, Reno, and SACK TCP" (1996). The sink must send
    /// SACK blocks; without them losses are repaired by timeouts only.
    Sack,
}

/// Parameters of a [`Sender`](super::Sender). The defaults are those of ns-2.35, but for a window that does not
/// limit the flow.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of ns-2"
)]
pub struct Config {
    /// How losses are repaired.
    pub flavour: Flavour,
    /// A full packet on the wire, headers included, in bytes.
    pub packet_size: u32,
    /// Headers in each packet, in bytes.
    pub header_size: u32,
    /// Whether the first segment is a SYN of `header_size` (`syn_`). Only its acknowledgement
    /// opens the initial window.
    pub syn: bool,
    /// What the receiver allows, in segments (`window_`).
    pub window: u32,
    /// The first congestion window.
    pub initial_window: InitialWindow,
    /// Where the first slow start ends, in segments; `None` is `window`.
    pub initial_ssthresh: Option<u32>,
    /// Whether a window that is as large as `ssthresh` still grows as in slow start, which RFC 5681
    /// section 3.1 leaves open: 4.4BSD and its descendants do so, ns-2 and Linux do not. Behind
    /// time-outs in a row, when the threshold is two segments, it saves a round trip and more.
    pub slow_start_at_threshold: bool,
    /// The retransmission timer.
    pub rto: RtoConfig,
    /// Whether every acknowledgement gives a sample of the round trip from its time stamp
    /// (`timestamps_`). Otherwise one segment at a time is timed, and none that was repeated.
    pub timestamps: bool,
    /// Packets are held back for a random time below this before they leave (`overhead_`), which
    /// breaks up the phase effects of deterministic simulation. While one such wait lasts,
    /// acknowledgements start no other; at its end all leaves that the window allows.
    pub overhead: Duration,
    /// Duplicate acknowledgements that stand for a loss (`numdupacks_`).
    pub dup_acks: u32,
    /// Whether each duplicate acknowledgement before these lets a new segment out (`singledup_`,
    /// RFC 3042).
    pub limited_transmit: bool,
    /// Segments per acknowledgement, at most; zero is no limit (`maxburst_`).
    pub max_burst: u32,
    /// Whether the window falls to one segment when nothing was out for a timeout
    /// (`slow_start_restart_`).
    pub slow_start_restart: bool,
    /// Whether losses of data from before the last reduction cause no other fast retransmit
    /// (`bugFix_`).
    pub bug_fix: bool,
    /// Whether the window only grows while it is used up (`control_increase_`). ns-2's default is
    /// that it grows with every acknowledgement.
    pub control_increase: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// For [`Flavour::NewReno`].
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
    /// Whether a partial acknowledgement takes what it acknowledges off the window
    /// (`partial_window_deflation_`).
    pub deflate: bool,
    /// Whether the window is no larger than what is out when recovery ends
    /// (`exit_recovery_fix_`).
    pub exit_fix: bool,
    /// Hoe's changes (`newreno_changes_`): `ssthresh` from the spacing of the first
    /// acknowledgements, and a new segment for every second duplicate one.
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
