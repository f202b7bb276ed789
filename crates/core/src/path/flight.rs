//! Packets without an outcome, and the bytes that are still in the network.

use std::collections::VecDeque;

/// Packets in flight, by number.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    packets: VecDeque<Departure>,
    /// Number of the first packet of `packets`.
    first: u64,
    bytes: f64,
}

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    /// Time of sending in seconds.
    pub(super) sent: f64,
    /// In bytes.
    pub(super) size: f64,
    /// Rate at which it was sent.
    pub(super) rate: f64,
    /// Whether the application had nothing more to send.
    pub(super) is_last: bool,
    pub(super) is_open: bool,
}

impl Flight {
    pub(super) fn with_capacity(packets: usize) -> Self {
        Self {
            packets: VecDeque::with_capacity(packets),
            first: 0,
            bytes: 0.0,
        }
    }

    pub(super) fn send(&mut self, seq: u64, packet: Departure) {
        if self.packets.is_empty() {
            self.first = seq;
        }
        if self.packets.len() == MAX_IN_FLIGHT
            && let Some(oldest) = self.packets.pop_front()
        {
            self.first += 1;
            self.bytes -= if oldest.is_open { oldest.size } else { 0.0 };
        }
        self.bytes += packet.size;
        self.packets.push_back(packet);
    }

    /// Takes a packet out of flight.
    pub(super) fn settle(&mut self, seq: u64) -> Option<Departure> {
        let index = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        let packet = self.packets.get_mut(index).filter(|p| p.is_open)?;
        packet.is_open = false;
        let packet = *packet;
        self.bytes = (self.bytes - packet.size).max(0.0);
        while self.packets.front().is_some_and(|p| !p.is_open) {
            self.packets.pop_front();
            self.first += 1;
        }
        Some(packet)
    }

    /// Bytes without outcome.
    pub(super) fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Packets sent after number `seq`; all of them without a number.
    pub(super) fn after(&self, seq: Option<u64>) -> impl Iterator<Item = &Departure> {
        let skipped = seq.map_or(0, |seq| seq.saturating_add(1).saturating_sub(self.first));
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        self.packets.iter().skip(skipped)
    }
}

/// More packets in flight have no outcome here: 25 s at 1,300 packets per second.
pub(super) const MAX_IN_FLIGHT: usize = 32_768;
