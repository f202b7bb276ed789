//! Processor time of hostile datagrams at both ends of a stream with a key file: `cargo run --release -p
//! tidegate-tests --example handshake_cost`. Sockets are not included.

use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Context, Ecn};
use tidegate_core::endpoint::{Check, Datagram, Endpoint, Input, Output, Transmit};
use tidegate_core::units::Time;
use tidegate_live::clock::Clock;
use tidegate_secure::handshake::MESSAGE;
use tidegate_secure::{SecureEndpoint, SharedSecret};

/// Sends one RTP packet for each timeout.
#[derive(Debug, Default)]
struct Source {
    ready: bool,
}

impl Endpoint for Source {
    fn handle(&mut self, _: &mut Context<'_>, input: Input<'_>) -> Check {
        self.ready |= matches!(input, Input::Timeout);
        Check::default()
    }

    fn poll(&mut self, _: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        if !std::mem::take(&mut self.ready) {
            return Output::Wait(None);
        }
        buffer.extend([0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        buffer.resize(1_172, 0);
        Output::Send(Transmit::default())
    }
}

type End = SecureEndpoint<Source>;

fn with_cx<T>(now: Time, then: impl FnOnce(&mut Context<'_>) -> T) -> T {
    let (rng, trace) = (&mut Pcg64Mcg::new(1), &mut ());
    then(&mut Context { now, rng, trace })
}

/// The datagram that an end sends now.
fn sent(end: &mut End, now: Time, is_timeout: bool) -> Vec<u8> {
    let mut buffer = Vec::new();
    with_cx(now, |cx| {
        if is_timeout {
            end.handle(cx, Input::Timeout);
        }
        end.poll(cx, &mut buffer);
    });
    buffer
}

fn deliver(end: &mut End, now: Time, payload: &[u8]) {
    let (ecn, dscp) = (Ecn::NotEct, 0);
    let datagram = Datagram { ecn, dscp, payload };
    with_cx(now, |cx| end.handle(cx, Input::Datagram(datagram)));
}

/// Time per datagram, and the share of a processor at the rate of the attack.
fn measure(name: &str, end: &mut End, now: Time, mut datagram: impl FnMut(u32) -> Vec<u8>) {
    let all: Vec<_> = (0..COUNT).map(&mut datagram).collect();
    let clock = Clock::start();
    for datagram in &all {
        deliver(end, now, datagram);
        sent(end, now, false);
    }
    let each = clock.now().since(Time::ZERO) / COUNT;
    let share = 100.0 * each.as_secs_f64() * RATE;
    println!("{name}: {each:?} each, {share:.1} % of a processor at {RATE}/s");
}

fn main() {
    let secret = || SharedSecret::new([7; 32]);
    let epoch = Duration::from_secs(1);
    let sender = |seed| SecureEndpoint::initiator(Source::default(), secret(), [seed; 32], epoch);
    let receiver = || SecureEndpoint::responder(Source::default(), secret(), [2; 32]);
    let now = Time::from_secs(10);
    let (mut left, mut right) = (sender(1), receiver());
    let recorded = sent(&mut sender(3), Time::from_secs(9), true);
    let hello = sent(&mut left, now, true);
    deliver(&mut right, now, &hello);
    let answer = sent(&mut right, now, false);
    let forged = |first: &[u8], size: usize, number: u32| {
        let mut datagram = first.to_vec();
        datagram.resize(size - 4, 0);
        datagram.extend(number.to_be_bytes());
        datagram
    };
    let rtp = |number| forged(&[0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1], 1_188, number);
    measure("recorded hello", &mut right, now, |_| recorded.clone());
    measure("forged hello", &mut right, now, |n| {
        forged(&hello[..58], MESSAGE, n)
    });
    measure("forged answer", &mut left, now, |n| {
        forged(&answer[..58], MESSAGE, n)
    });
    deliver(&mut left, now, &answer);
    let first = sent(&mut left, now, true);
    deliver(&mut right, now, &first);
    measure("forged packet", &mut right, now, rtp);
    let again = sent(&mut sender(4), now + SECOND, true);
    deliver(&mut right, now, &again);
    sent(&mut right, now, false);
    measure("forged packet, handshake pending", &mut right, now, rtp);
    // Each later than the one before, received for the first time.
    let hellos: Vec<_> = (0..COUNT)
        .map(|n| sent(&mut sender(n as u8), now + SECOND + SECOND * n, true))
        .collect();
    measure("recorded hello, unseen", &mut right, now, |n| {
        hellos[n as usize].clone()
    });
    assert_eq!(right.counts().sessions, 1, "the handshake of the sender");
}

const COUNT: u32 = 20_000;
const SECOND: Duration = Duration::from_secs(1);
/// Datagrams per second of an attack.
const RATE: f64 = 10_000.0;
