//! Test application of the Coordination Protocol: an infinite source that sends at `k` times the
//! available bandwidth.
//!
//! `cp_sender LOCAL PEER APPLICATION FLOW SHARES K SECONDS`. Both endpoints run it, with exchanged
//! addresses. Without estimates it falls back to a controller of its own, which halves the rate.

use std::env;
use std::net::UdpSocket;
use std::process::ExitCode;
use std::time::Duration;

use tidegate_core::aggregate::sender::{CpContent, CpSender, CpSenderConfig};
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::cp::{ApplicationId, LEN, Shares};
use tidegate_live::clock::Clock;
use tidegate_live::cp::{CpLabel, CpSocket};

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [local, peer, application, flow, shares, part, seconds] = &words[..] else {
        return Err("usage: cp_sender LOCAL PEER APPLICATION FLOW SHARES K SECONDS".into());
    };
    let label = CpLabel {
        application: ApplicationId(application.parse()?),
        flow: flow.parse()?,
        shares: Shares::new(shares.parse()?).ok_or("SHARES is not in 1 to 64")?,
    };
    let clock = Clock::start();
    let socket = CpSocket::connected(UdpSocket::bind(local)?, peer.parse()?, label, clock)?;
    let sender = CpSender::new(CpSenderConfig {
        application: label.application,
        flow: label.flow,
        shares: label.shares,
        part: part.parse()?,
        packet_size: Bytes(SIZE as u64 + HEADERS),
        start: clock.now(),
    });
    let end = clock.now() + Duration::from_secs(seconds.parse()?);
    let mut endpoint = Endpoint {
        socket,
        sender,
        clock,
        sent: 0,
        received: 0,
    };
    println!("   s   sent  received  kb/s  rtt_ms   loss  available  state");
    let mut second = 0;
    while clock.now() < end {
        let report = Time::from_secs(second + 1).min(end);
        endpoint.run(report);
        second += 1;
        endpoint.show(second);
    }
    Ok(())
}

struct Endpoint {
    socket: CpSocket,
    sender: CpSender,
    clock: Clock,
    sent: u64,
    received: u64,
}

impl Endpoint {
    fn run(&mut self, until: Time) {
        let data = [0; SIZE - LEN];
        while self.clock.now() < until {
            while let Some(packet) = self.sender.poll(self.clock.now()) {
                let is_data = packet.content == CpContent::Data;
                // An absent peer or a full buffer: the packet is lost, as in the network.
                let _ = self.socket.send(if is_data { &data } else { &[] });
                self.sent += u64::from(is_data);
            }
            let _ = self.socket.wait(self.sender.next_timeout().min(until));
            // An error concerns a packet that was sent.
            while let Ok(Some(arrival)) = self.socket.receive() {
                self.received += u64::from(!arrival.data.is_empty());
                self.sender.on_header(arrival.at, &arrival.header);
            }
        }
    }

    fn show(&self, second: u64) {
        let unknown = || "-".to_owned();
        let known = self.socket.estimates();
        let rtt = known.and_then(|all| all.rtt);
        let loss = known.and_then(|all| all.loss);
        let available = known.and_then(|all| all.available);
        println!(
            "{second:4} {:6} {:9} {:5} {:>7} {:>6} {:>10}  {:?}",
            self.sent,
            self.received,
            self.sender.rate().as_bps() / 1_000,
            rtt.map_or_else(unknown, |rtt| format!("{:.1}", 1e3 * rtt.as_secs_f64())),
            loss.map_or_else(unknown, |loss| format!("{:.2}%", 100.0 * loss)),
            available.map_or_else(unknown, |rate| (rate.as_bps() / 1_000).to_string()),
            self.socket.state(),
        );
    }
}

/// UDP payload of a data packet.
const SIZE: usize = 972;
/// IPv4 and UDP.
const HEADERS: u64 = 28;
