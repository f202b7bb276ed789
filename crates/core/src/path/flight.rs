//! Packets without an outcome, and the bytes that are still in the network.

use std::collections::VecDeque;

/// Packets in flight, by number. Some transports leave numbers out (RFC 9000 section 21.4).
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// In the order of their numbers.
    packets: VecDeque<Departure>,
    /// Number of the newest packet sent.
    newest: u64,
    bytes: f64,
}

/// A packet in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    /// Number of the packet.
    pub(super) seq: u64,
    /// Difference from the number of the packet sent before; at most that of the type.
    pub(super) step: u32,
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
            newest: 0,
            bytes: 0.0,
        }
    }

    pub(super) fn send(&mut self, packet: Departure) {
        if self.packets.len() == MAX_IN_FLIGHT
            && let Some(oldest) = self.packets.pop_front()
        {
            self.bytes -= if oldest.is_open { oldest.size } else { 0.0 };
        }
        self.bytes += packet.size;
        self.newest = packet.seq;
        self.packets.push_back(packet);
    }

    /// Takes a packet out of flight.
    pub(super) fn settle(&mut self, seq: u64) -> Option<Departure> {
        let place = self.packets.partition_point(|p| p.seq < seq);
        let packet = self.packets.get_mut(place);
        let packet = packet.filter(|p| p.seq == seq && p.is_open)?;
        packet.is_open = false;
        let packet = *packet;
        self.bytes = (self.bytes - packet.size).max(0.0);
        while self.packets.front().is_some_and(|p| !p.is_open) {
            self.packets.pop_front();
        }
        Some(packet)
    }

    /// Difference of the number `seq` from that of the newest packet sent.
    pub(super) fn step(&self, seq: u64) -> u32 {
        u32::try_from(seq.saturating_sub(self.newest)).unwrap_or(u32::MAX)
    }

    /// Bytes without outcome.
    pub(super) fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Packets sent after number `seq`; all of them without a number.
    pub(super) fn after(&self, seq: Option<u64>) -> impl Iterator<Item = &Departure> {
        let place = seq.map_or(0, |seq| self.packets.partition_point(|p| p.seq <= seq));
        self.packets.range(place..)
    }
}

/// More packets in flight have no outcome here: 25 s at 1,300 packets per second.
pub(super) const MAX_IN_FLIGHT: usize = 32_768;
