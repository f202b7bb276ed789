//! Processor time of SRTP per packet, relative to that of a socket: `cargo run --release -p
//! tidegate-tests --example srtp_cost`.
//!
//! Packets of 1,200 bytes go from one UDP socket to another on this host. Rounds with and without
//! protection alternate; the ratio of the medians is printed. The rest of a sender's work (encoder,
//! packetiser, pacer, rate control) is not included, so the ratio for a whole stream is lower.

use std::net::UdpSocket;
use std::time::Duration;

use tidegate_core::endpoint::Transmit;
use tidegate_core::wire::sdp::CryptoSuite;
use tidegate_live::clock::Clock;
use tidegate_live::udp::Socket;
use tidegate_secure::MasterKey;
use tidegate_secure::keys::fresh;
use tidegate_secure::random::Generator;
use tidegate_secure::srtp::{Protector, Unprotector};

fn main() {
    for suite in CryptoSuite::ALL {
        let [mut plain, mut protected] = [Vec::new(), Vec::new()];
        let mut path = Path::new(suite);
        for _ in 0..ROUNDS {
            plain.push(path.round(false));
            protected.push(path.round(true));
        }
        let [plain, protected] = [median(plain), median(protected)];
        println!(
            "{}: {plain:.2} us per packet without, {protected:.2} us with, ratio {:.2}",
            suite.name(),
            protected / plain
        );
    }
}

/// Two sockets, and the contexts of one direction.
struct Path {
    sockets: [Socket; 2],
    contexts: (Protector, Unprotector),
    clock: Clock,
    sequence: u16,
}

impl Path {
    fn new(suite: CryptoSuite) -> Self {
        let sockets = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").expect("a free port"));
        let addresses = [0, 1].map(|i: usize| sockets[i].local_addr().expect("it is bound"));
        let [left, right] = sockets;
        let key = MasterKey::from_description(&fresh(suite, &mut Generator::new([1; 32])));
        Self {
            sockets: [
                Socket::connected(left, addresses[1]).expect("loopback"),
                Socket::connected(right, addresses[0]).expect("loopback"),
            ],
            contexts: (Protector::new(&key), Unprotector::new(&key)),
            clock: Clock::start(),
            sequence: 0,
        }
    }

    /// Microseconds of processor time per packet, sent and received.
    fn round(&mut self, is_protected: bool) -> f64 {
        let mut packet = Vec::with_capacity(LENGTH + 64);
        let mut received = vec![0; 2 * LENGTH];
        let began = processor_time();
        for _ in 0..PACKETS {
            packet.clear();
            packet.extend_from_slice(&[0x80, 96]);
            packet.extend_from_slice(&self.sequence.to_be_bytes());
            packet.resize(LENGTH, 7);
            self.sequence = self.sequence.wrapping_add(1);
            if is_protected {
                let protected = self.contexts.0.protect(&mut packet);
                protected.expect("the numbers increase");
            }
            let sent = self.sockets[0].send(&packet, Transmit::default());
            sent.expect("loopback");
            let arrival = self.sockets[1].receive(self.clock, &mut received);
            let arrival = arrival.expect("loopback").expect("it was sent");
            if is_protected {
                packet.clear();
                packet.extend_from_slice(&received[..arrival.length]);
                let unprotected = self.contexts.1.unprotect(&mut packet);
                unprotected.expect("the keys are equal");
            }
        }
        processor_time().saturating_sub(began).as_secs_f64() * 1e6 / f64::from(PACKETS)
    }
}

fn processor_time() -> Duration {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is a valid output buffer, and the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut ts) };
    Duration::new(ts.tv_sec as u64, ts.tv_nsec as u32)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const LENGTH: usize = 1_172;
const PACKETS: u32 = 2_000;
const ROUNDS: usize = 41;
