//! All packets of a modelled flow, as rows of a run folder.

use std::collections::VecDeque;

use tidegate_core::control::Kind;
use tidegate_core::control::{Ecn, Outcome};
use tidegate_core::session::history::PacketRow;
use tidegate_core::units::{Bytes, RemoteTime, Time};

/// Logs sent packets and their fate. A packet is identified by its time of entry into the network.
/// Packets of one instant are taken to arrive in order.
#[derive(Clone, Debug, Default)]
pub(super) struct PacketLog {
    rows: Vec<PacketRow>,
    /// Entry time and row index of each packet in flight.
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

    /// The packet that entered at `entered` arrived.
    pub(super) fn arrived(&mut self, at: Time, entered: Time, ecn: Ecn) {
        let place = self.open.partition_point(|(sent, _)| *sent < entered);
        if let Some((sent, row)) = self.open.get(place).copied()
            && sent == entered
        {
            self.open.remove(place);
            let at = RemoteTime(at.as_nanos());
            self.rows[row].outcome = Some(Outcome::Received { at, ecn });
        }
        // A packet sent long before the arriving one is lost.
        while let Some((sent, row)) = self.open.front().copied()
            && at.since(sent) > 4 * at.since(entered) + PATIENCE
        {
            self.open.pop_front();
            self.rows[row].outcome = Some(Outcome::Lost);
        }
    }

    /// Returns all rows at the end. A packet still in flight that was sent before `before` is lost.
    pub(super) fn finish(mut self, before: Time) -> Vec<PacketRow> {
        for (sent, row) in self.open {
            if sent < before {
                self.rows[row].outcome = Some(Outcome::Lost);
            }
        }
        self.rows
    }
}

/// Upper bound of the reordering delay.
const PATIENCE: core::time::Duration = core::time::Duration::from_secs(10);
