//! The paper's test application: sources that send at `k` times the available bandwidth, and
//! receivers that only answer.

use std::time::Duration;

use tidegate_core::aggregate::sender::{CpContent, CpSender, CpSenderConfig};
use tidegate_core::endpoint::OVERHEAD;
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::cp::LEN;

use super::CpSocket;
use crate::driver::RunLimits;

/// An infinite source of data.
#[derive(Debug)]
pub struct CpSource {
    socket: CpSocket,
    sender: CpSender,
    /// Data of a packet: the time of its departure, then zeros.
    data: Vec<u8>,
}

/// A data packet that was sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpPassage {
    /// Time of the event.
    pub at: Time,
    /// Departure from the source, on its clock.
    pub sent: Time,
    /// Size on the wire, all headers included.
    pub size: Bytes,
    /// Whether it was received.
    pub is_arrival: bool,
}

impl CpSource {
    /// A source that sends from this socket. Packets are at least 56 bytes long.
    pub fn new(socket: CpSocket, config: CpSenderConfig) -> Self {
        let data = config.packet_size.get().saturating_sub(HEADERS);
        Self {
            socket,
            sender: CpSender::new(config),
            data: vec![0; (data as usize).max(STAMP)],
        }
    }

    /// Sends and receives until a time or a stop.
    pub fn run(&mut self, limits: &RunLimits, until: Time, mut passed: impl FnMut(CpPassage)) {
        while limits.clock.now() < until && !limits.stop.is_set() {
            self.send(limits.clock.now(), &mut passed);
            let next = self.sender.next_timeout().min(until);
            let sender = &mut self.sender;
            receive(&mut self.socket, limits, next, |socket, at| {
                // An error concerns a packet that was sent.
                while let Ok(Some(arrival)) = socket.receive() {
                    sender.on_header(arrival.at, &arrival.header);
                    arrived(at, arrival.data, &mut passed);
                }
            });
        }
    }

    /// The socket, with the estimates.
    pub fn socket(&self) -> &CpSocket {
        &self.socket
    }

    /// Sending rate.
    pub fn rate(&self) -> Rate {
        self.sender.rate()
    }

    fn send(&mut self, now: Time, passed: &mut impl FnMut(CpPassage)) {
        loop {
            let due = self.sender.next_timeout();
            if due > now {
                return;
            }
            // A late wake-up does not change the schedule, except for a long one: the packets of
            // the pause would be a burst.
            let Some(packet) = self.sender.poll(due.max(now.before(CATCH_UP))) else {
                continue;
            };
            // An absent peer or a full buffer: the packet is lost, as in the network.
            if packet.content == CpContent::KeepAlive {
                let _ = self.socket.send(&[]);
                continue;
            }
            self.data[..STAMP].copy_from_slice(&now.as_nanos().to_be_bytes());
            let _ = self.socket.send(&self.data);
            passed(CpPassage {
                at: now,
                sent: now,
                size: Bytes(self.data.len() as u64 + HEADERS),
                is_arrival: false,
            });
        }
    }
}

/// Answers each data packet with one of this size, until a time or a stop.
pub fn answer(
    socket: &mut CpSocket,
    size: Bytes,
    limits: &RunLimits,
    until: Time,
    mut passed: impl FnMut(CpPassage),
) {
    let data = vec![0; size.get().saturating_sub(HEADERS) as usize];
    while limits.clock.now() < until && !limits.stop.is_set() {
        receive(socket, limits, until, |socket, at| {
            while let Ok(Some(arrival)) = socket.receive() {
                // Notifications of an aggregation point have no answer.
                if arrived(at, arrival.data, &mut passed) {
                    let _ = socket.send(&data);
                }
            }
        });
    }
}

/// Waits until a time, but not longer than the stop flag allows, and passes the time to `take`.
fn receive(
    socket: &mut CpSocket,
    limits: &RunLimits,
    until: Time,
    take: impl FnOnce(&mut CpSocket, Time),
) {
    let glance = limits.clock.now() + GLANCE;
    // An interrupted wait is repeated by the caller.
    let _ = socket.wait(until.min(glance));
    take(socket, limits.clock.now());
}

/// Reports a data packet. Returns whether it is one.
fn arrived(at: Time, data: &[u8], passed: &mut impl FnMut(CpPassage)) -> bool {
    let Some(sent) = data.first_chunk() else {
        return false;
    };
    passed(CpPassage {
        at,
        sent: Time::from_nanos(u64::from_be_bytes(*sent)),
        size: Bytes(data.len() as u64 + HEADERS),
        is_arrival: true,
    });
    true
}

/// Headers of IP, UDP and CP.
const HEADERS: u64 = OVERHEAD.get() + LEN as u64;
/// Length of the time in the data.
const STAMP: usize = 8;
/// Interval in which the stop flag is noticed.
const GLANCE: Duration = Duration::from_millis(50);
/// Longest delay that later packets make up for.
const CATCH_UP: Duration = Duration::from_millis(10);
