//! Every packet of a modelled flow, as rows of a run folder.

use std::collections::VecDeque;

use tidegate_core::control::Kind;
use tidegate_core::control::{Ecn, Outcome};
use tidegate_core::session::history::PacketRow;
use tidegate_core::units::{Bytes, RemoteTime, Time};

/// Writes down what was sent and what became of it. Each packet is known by when it entered the
/// network; of several at one moment the first that was sent is taken to arrive first.
#[derive(Clone, Debug, Default)]
pub(super) struct PacketLog {
    rows: Vec<PacketRow>,
    /// Rows whose packets are under way: when they entered, and where they are.
    open: VecDeque<(Time, usize)>,
}

impl PacketLog {
    /// A packet entered the network.
    pub(super) fn sent(&mut self, at: Time, size: Bytes) {
        self.open.push_back((at, self.rows.len()));
        self.rows.push(PacketRow {
            seq: self.rows.len() as u64,
            kind: Kind::Media,
            size,
            sent: at,
            outcome: None,
        });
    }

    /// The packet that entered then arrived.
    pub(super) fn arrived(&mut self, at: Time, entered: Time, ecn: Ecn) {
        let place = self.open.partition_point(|(sent, _)| *sent < entered);
        if let Some((sent, row)) = self.open.get(place).copied()
            && sent == entered
        {
            self.open.remove(place);
            let at = RemoteTime(at.as_nanos());
            self.rows[row].outcome = Some(Outcome::Received { at, ecn });
        }
        // What was sent long before anything that arrives now is lost.
        while let Some((sent, row)) = self.open.front().copied()
            && at.since(sent) > 4 * at.since(entered) + PATIENCE
        {
            self.open.pop_front();
            self.rows[row].outcome = Some(Outcome::Lost);
        }
    }

    /// All rows, at the end. What is still under way is lost if it left `before` then.
    pub(super) fn finish(mut self, before: Time) -> Vec<PacketRow> {
        for (sent, row) in self.open {
            if sent < before {
                self.rows[row].outcome = Some(Outcome::Lost);
            }
        }
        self.rows
    }
}

/// No jitter holds a packet back for so much longer than others.
const PATIENCE: core::time::Duration = core::time::Duration::from_secs(10);
