//! Test application of the Coordination Protocol: an infinite source that sends at `k` times the
//! available bandwidth.
//!
//! `cp_sender LOCAL PEER APPLICATION FLOW SHARES K SECONDS`. Both endpoints run it, with exchanged
//! addresses. Without estimates it falls back to a controller of its own, which halves the rate.

use std::env;
use std::net::UdpSocket;
use std::process::ExitCode;
use std::time::Duration;

use tidegate_core::aggregate::sender::CpSenderConfig;
use tidegate_core::units::{Bytes, Time};
use tidegate_core::wire::cp::{ApplicationId, Shares};
use tidegate_live::clock::Clock;
use tidegate_live::cp::source::CpSource;
use tidegate_live::cp::{CpLabel, CpSocket};
use tidegate_live::driver::{RunLimits, StopFlag};

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
    let config = CpSenderConfig {
        application: label.application,
        flow: label.flow,
        shares: label.shares,
        part: part.parse()?,
        packet_size: SIZE,
        start: clock.now(),
    };
    let mut source = CpSource::new(socket, config);
    let end = clock.now() + Duration::from_secs(seconds.parse()?);
    let limits = RunLimits {
        clock,
        until: None,
        stop: StopFlag::new()?,
    };
    println!("   s   sent  received  kb/s  rtt_ms   loss  available  state");
    let (mut second, mut sent, mut received) = (0, 0, 0);
    while clock.now() < end {
        second += 1;
        source.run(&limits, Time::from_secs(second).min(end), |packet| {
            *if packet.is_arrival {
                &mut received
            } else {
                &mut sent
            } += 1;
        });
        show(&source, second, sent, received);
    }
    Ok(())
}

fn show(source: &CpSource, second: u64, sent: u64, received: u64) {
    let unknown = || "-".to_owned();
    let known = source.socket().estimates();
    let rtt = known.and_then(|all| all.rtt);
    let loss = known.and_then(|all| all.loss);
    let available = known.and_then(|all| all.available);
    println!(
        "{second:4} {sent:6} {received:9} {:5} {:>7} {:>6} {:>10}  {:?}",
        source.rate().as_bps() / 1_000,
        rtt.map_or_else(unknown, |rtt| format!("{:.1}", 1e3 * rtt.as_secs_f64())),
        loss.map_or_else(unknown, |loss| format!("{:.2}%", 100.0 * loss)),
        available.map_or_else(unknown, |rate| (rate.as_bps() / 1_000).to_string()),
        source.socket().state(),
    );
}

/// Size of a data packet, all headers included.
const SIZE: Bytes = Bytes(1_000);
