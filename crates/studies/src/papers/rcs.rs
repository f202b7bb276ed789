//! The figures of the paper of RCS (IEEE/ACM Transactions on Networking 13(3), 2005).
//!
//! The paper's plots give no numbers; its text does. Each statement of the text is a claim.

mod blockage;
mod fairness;
mod path;
mod sweep;
mod throughput;
mod traces;

use super::{Encoder, Entry, Make, Nodes};

/// An entry of this paper. Flows have packets of 1,000 bytes and always data to send.
const fn entry(name: &'static str, about: &'static str, source: &'static str, make: Make) -> Entry {
    Entry {
        name,
        about,
        source,
        nodes: Nodes::Flows,
        encoder: Encoder::Model,
        tcps: &[],
        bounds: "",
        compares_growth: false,
        make,
    }
}

macro_rules! source {
    ($figure:literal) => {
        concat!(
            "Akyildiz, Akan, Morabito, IEEE/ACM Trans. Networking 13(3), 2005, ",
            $figure
        )
    };
}

pub(super) const FIG12: Entry = entry(
    "rcs/fig12",
    "Data rate around a packet loss by a link error",
    source!("Figure 12"),
    traces::link_error,
);

pub(super) const FIG14: Entry = entry(
    "rcs/fig14",
    "Data rate around a packet loss by congestion",
    source!("Figure 14"),
    traces::congestion,
);

pub(super) const FIG16: Entry = entry(
    "rcs/fig16",
    "Data rate around a loss of the signal",
    source!("Figure 16"),
    traces::signal_loss,
);

pub(super) const FIG17A: Entry = entry(
    "rcs/fig17a",
    "Throughput for the loss probability of the link",
    source!("Figure 17(a)"),
    throughput::by_loss,
);

pub(super) const FIG17B: Entry = entry(
    "rcs/fig17b",
    "Throughput for the round-trip time",
    source!("Figure 17(b)"),
    throughput::by_rtt,
);

pub(super) const FIG17C: Entry = entry(
    "rcs/fig17c",
    "Throughput for the rate of low-priority background traffic",
    source!("Figure 17(c)"),
    throughput::by_background,
);

pub(super) const FIG17D: Entry = entry(
    "rcs/fig17d",
    "Throughput for the size of the buffer",
    source!("Figure 17(d)"),
    throughput::by_buffer,
);

pub(super) const FIG18: Entry = entry(
    "rcs/fig18",
    "Overhead of dummy packets, and gain over RAP, for the loss probability",
    source!("Figure 18"),
    throughput::overhead_by_loss,
);

pub(super) const FIG19: Entry = entry(
    "rcs/fig19",
    "Overhead of dummy packets for the round-trip time",
    source!("Figure 19"),
    throughput::overhead_by_rtt,
);

pub(super) const HOMOGENEOUS: Entry = entry(
    "rcs/homogeneous",
    "Shares of RCS flows among themselves",
    source!("section V-D1"),
    fairness::homogeneous,
);

pub(super) const FIG20: Entry = entry(
    "rcs/fig20",
    "Throughput of RCS and TCP on one lossy path",
    source!("Figure 20"),
    fairness::one_path,
);

pub(super) const FIG21A: Entry = entry(
    "rcs/fig21a",
    "Fairness between RCS on a lossy path and TCP on a short one, for the loss probability",
    source!("Figure 21(a)"),
    fairness::by_loss,
);

pub(super) const FIG21B: Entry = entry(
    "rcs/fig21b",
    "Fairness between RCS on a lossy path and TCP on a short one, for the buffer",
    source!("Figure 21(b)"),
    fairness::by_buffer,
);

pub(super) const FIG21C: Entry = entry(
    "rcs/fig21c",
    "Fairness between RCS on a lossy path and TCP on a short one, for low-priority traffic",
    source!("Figure 21(c)"),
    fairness::by_background,
);

pub(super) const FIG22A: Entry = entry(
    "rcs/fig22a",
    "Throughput for the duration of a loss of the signal",
    source!("Figure 22(a)"),
    blockage::throughput,
);

pub(super) const FIG22B: Entry = entry(
    "rcs/fig22b",
    "Dummy packets for the duration of a loss of the signal",
    source!("Figure 22(b)"),
    blockage::overhead,
);
