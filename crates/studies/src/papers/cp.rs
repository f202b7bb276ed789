//! The figures of the paper of the Coordination Protocol (INFOCOM 2004).
//!
//! The paper's plots give no numbers; its text does.

mod flowshares;
mod network;
mod tcp;

use super::{Encoder, Entry, Make, Nodes};

/// An entry of this paper.
const fn entry(name: &'static str, about: &'static str, make: Make) -> Entry {
    Entry {
        name,
        about,
        source: "Ott, Sparks, Mayer-Patel: Aggregate Congestion Control for Distributed Multimedia \
                 Applications (2004)",
        nodes: Nodes::Flows,
        encoder: Encoder::Model,
        tcps: &[],
        bounds: "",
        compares_growth: false,
        make,
    }
}

/// An entry that can also be played in the lab.
const fn real(name: &'static str, about: &'static str, make: Make) -> Entry {
    Entry {
        nodes: Nodes::LabFlows,
        ..entry(name, about, make)
    }
}

/// Trials of the simulations (section IV-C). Those of the other figures are not stated.
pub(super) fn published_runs(name: &str) -> Option<u64> {
    let simulated = [FIG5, FIG6, FIG7, FIG10];
    simulated
        .iter()
        .any(|entry| entry.name == name)
        .then_some(20)
}

pub(super) const FIG5: Entry = entry(
    "cp/fig5",
    "one flowshare of 24 flows, for the number of competing flows",
    flowshares::competing_flows,
);

pub(super) const FIG6: Entry = entry(
    "cp/fig6",
    "one flowshare beside 24 flows, for the number of its flows",
    flowshares::own_flows,
);

pub(super) const FIG7: Entry = entry(
    "cp/fig7",
    "several flowshares by the naive approach beside 24 flows",
    flowshares::naive,
);

pub(super) const FIG10: Entry = entry(
    "cp/fig10",
    "several flowshares by BFLD beside 24 flows",
    flowshares::bfld,
);

pub(super) const FIG12: Entry = real(
    "cp/fig12",
    "throughput of TCP over that of a flowshare, for the delay",
    tcp::throughput_by_delay,
);

pub(super) const FIG13: Entry = real(
    "cp/fig13",
    "variation of the throughput of TCP over that of CP, for the delay",
    tcp::variation_by_delay,
);

pub(super) const FIG14: Entry = real(
    "cp/fig14",
    "throughput of TCP over that of a flowshare, for the bandwidth",
    tcp::throughput_by_bandwidth,
);

pub(super) const FIG15: Entry = real(
    "cp/fig15",
    "variation of the throughput of TCP over that of CP, for the bandwidth",
    tcp::variation_by_bandwidth,
);

pub(super) const FIG16: Entry = real(
    "cp/fig16",
    "throughput of TCP over that of a flowshare, for random loss",
    tcp::throughput_by_loss,
);

pub(super) const FIG17: Entry = real(
    "cp/fig17",
    "variation of the throughput of TCP over that of CP, for random loss",
    tcp::variation_by_loss,
);

pub(super) const FIG18: Entry = real(
    "cp/fig18",
    "loss rates at the bottleneck, for the number of browsers",
    tcp::loss_by_browsers,
);

pub(super) const FIG19: Entry = real(
    "cp/fig19",
    "throughput of TCP over that of a flowshare, for the number of browsers",
    tcp::throughput_by_browsers,
);

pub(super) const FIG20: Entry = real(
    "cp/fig20",
    "variation of the throughput of TCP over that of CP, for the number of browsers",
    tcp::variation_by_browsers,
);
