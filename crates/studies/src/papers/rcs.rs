//! The figures of the paper of RCS (IEEE/ACM Transactions on Networking 13(3), 2005).
//!
//! The paper's plots give no numbers; its text does. Each statement of the text is a claim.

mod beside_tcp;
mod blockage;
mod encoder;
mod fairness;
mod lab;
mod lower_effort;
mod path;
mod throughput;
mod traces;

use super::{Encoder, Entry, Make, Nodes, sweep};

/// An entry of this paper. Flows have packets of 1,000 bytes and always data to send.
const fn entry(name: &'static str, about: &'static str, make: Make) -> Entry {
    Entry {
        name,
        about,
        source: "Akyildiz, Akan, Morabito: A Rate Control Scheme for Adaptive Real-Time Applications in IP \
                 Networks With Lossy Links and Long Round Trip Times (2005)",
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

/// An entry whose video is that of the paper's encoder.
const fn encoded(name: &'static str, about: &'static str, make: Make) -> Entry {
    Entry {
        encoder: Encoder::Mpeg2,
        ..entry(name, about, make)
    }
}

pub(super) const FIG7: Entry = encoded(
    "rcs/fig7",
    "rate of RCS and of an adaptive encoder",
    encoder::rates,
);

pub(super) const FIG8: Entry = encoded(
    "rcs/fig8",
    "buffer behind the encoder, its delay, and three architectures",
    encoder::buffers,
);

pub(super) const FIG9: Entry = encoded(
    "rcs/fig9",
    "averages of the rates of RCS and of an adaptive encoder",
    encoder::averages,
);

pub(super) const FIG12: Entry = real(
    "rcs/fig12",
    "data rate around a packet loss by a link error",
    traces::link_error,
);

pub(super) const FIG14: Entry = real(
    "rcs/fig14",
    "data rate around a packet loss by congestion",
    traces::congestion,
);

pub(super) const FIG16: Entry = real(
    "rcs/fig16",
    "data rate around a loss of the signal",
    traces::signal_loss,
);

pub(super) const FIG17A: Entry = real(
    "rcs/fig17a",
    "throughput for the loss probability of the link",
    throughput::by_loss,
);

pub(super) const FIG17B: Entry = entry(
    "rcs/fig17b",
    "throughput for the round-trip time",
    throughput::by_rtt,
);

pub(super) const FIG17C: Entry = entry(
    "rcs/fig17c",
    "throughput for the rate of low-priority background traffic",
    throughput::by_background,
);

pub(super) const FIG17D: Entry = entry(
    "rcs/fig17d",
    "throughput for the size of the buffer",
    throughput::by_buffer,
);

pub(super) const FIG18: Entry = entry(
    "rcs/fig18",
    "overhead of dummy packets, and gain over RAP, for the loss probability",
    throughput::overhead_by_loss,
);

pub(super) const FIG19: Entry = entry(
    "rcs/fig19",
    "overhead of dummy packets for the round-trip time",
    throughput::overhead_by_rtt,
);

pub(super) const SHARES: Entry = entry(
    "rcs/shares",
    "shares of RCS flows among themselves (section V-D1)",
    fairness::homogeneous,
);

pub(super) const FIG20: Entry = real(
    "rcs/fig20",
    "throughput of RCS and TCP on one lossy path",
    fairness::one_path,
);

pub(super) const BESIDE_TCP: Entry = entry(
    "rcs/beside-tcp",
    "shares of RCS beside TCP for losses, round-trip time, buffer and queue",
    beside_tcp::shares,
);

pub(super) const FIG21A: Entry = entry(
    "rcs/fig21a",
    "fairness between RCS on a lossy path and TCP on a short one, for the loss probability",
    fairness::by_loss,
);

pub(super) const FIG21B: Entry = entry(
    "rcs/fig21b",
    "fairness between RCS on a lossy path and TCP on a short one, for the buffer",
    fairness::by_buffer,
);

pub(super) const FIG21C: Entry = entry(
    "rcs/fig21c",
    "fairness between RCS on a lossy path and TCP on a short one, for low-priority traffic",
    fairness::by_background,
);

pub(super) const FIG22A: Entry = real(
    "rcs/fig22a",
    "throughput for the duration of a loss of the signal",
    blockage::throughput,
);

pub(super) const LOWER_EFFORT: Entry = entry(
    "rcs/lower-effort",
    "a video under RCS where networks treat lower effort in different ways (not in the paper)",
    lower_effort::table,
);

pub(super) const FIG22B: Entry = entry(
    "rcs/fig22b",
    "dummy packets for the duration of a loss of the signal",
    blockage::overhead,
);
