//! Two endpoints with a shared secret, and an attacker who records, alters, replays and drops their
//! datagrams, and injects others.

use core::time::Duration;
use std::collections::BTreeSet;

use rand_pcg::Pcg64Mcg;

use super::{MEDIA, PEER, Story, cx};
use tidegate_core::control::{Context, Ecn, TimerReason};
use tidegate_core::endpoint::{Check, Datagram, Endpoint, Input, Output, SourceCheck, Transmit};
use tidegate_core::random::Seed;
use tidegate_core::units::Time;
use tidegate_secure::endpoint::PEER_SILENCE;
use tidegate_secure::handshake::MESSAGE;
use tidegate_secure::{SecureEndpoint, SharedSecret};

/// Asserts that only packets of the honest sender reach the receiver, each at most once; that
/// answers are no longer than what they answer; and that media arrives within `RECOVERY` after
/// the last hostile input.
pub fn secure(data: &[u8]) {
    let mut story = Story::new(data);
    let mut scene = Scene::new();
    while !story.is_over() {
        scene.act(&mut story);
    }
    // A sender without an answer for its patience has ended, or ends before its next hello; its user
    // starts another one.
    scene.pass(LAST_INTERVAL);
    if scene.left.has_failed() {
        scene.left = sender(&scene.secret, 0);
    }
    let before = scene.received;
    scene.pass(RECOVERY);
    assert!(scene.received > before, "no media after the attack");
}

struct Scene {
    left: SecureEndpoint<Talker>,
    right: SecureEndpoint<Talker>,
    secret: SharedSecret,
    now: Time,
    rng: Pcg64Mcg,
    starts: u8,
    /// Datagrams of both ends, the newest last.
    recorded: Vec<Vec<u8>>,
    /// Packets of the honest sender that have not arrived.
    sent: BTreeSet<Vec<u8>>,
    received: u64,
}

impl Scene {
    fn new() -> Self {
        let secret = SharedSecret::new([7; 32]);
        let mut scene = Self {
            left: sender(&secret, 1),
            right: receiver(&secret, 2),
            secret,
            now: Time::from_secs(1),
            rng: Seed(1).stream("fuzz"),
            starts: 2,
            recorded: Vec::new(),
            sent: BTreeSet::new(),
            received: 0,
        };
        scene.pass(Duration::from_millis(100));
        scene
    }

    fn act(&mut self, story: &mut Story<'_>) {
        match story.byte() % 8 {
            0 => self.pass(story.span().min(LONGEST)),
            1 => self.interrupt(story.span().min(LONGEST)),
            2 => {
                let length = usize::from(story.byte());
                let datagram = story.take(length).to_vec();
                self.attack(story, &datagram);
            }
            3 => {
                // The first byte of a handshake message.
                let mut datagram = vec![8 + story.byte() % 2; MESSAGE];
                let part = story.take(8);
                datagram[1..=part.len()].copy_from_slice(part);
                self.attack(story, &datagram);
            }
            4 => self.starts_again(story),
            _ => self.replay(story),
        }
    }

    /// A recorded datagram, perhaps with an altered byte.
    fn replay(&mut self, story: &mut Story<'_>) {
        let back = usize::from(story.byte());
        let index = self.recorded.len().saturating_sub(1 + back);
        let Some(mut datagram) = self.recorded.get(index).cloned() else {
            return;
        };
        let change = story.byte();
        let at = usize::from(story.byte()) % datagram.len().max(1);
        datagram[at] ^= change;
        self.attack(story, &datagram);
    }

    fn attack(&mut self, story: &mut Story<'_>, payload: &[u8]) {
        let is_left = story.byte() & 1 == 1;
        let end = if is_left {
            &mut self.left
        } else {
            &mut self.right
        };
        let mut cx = cx(self.now, &mut self.rng);
        // Reports on earlier packets, which were authentic.
        let mut buffer = Vec::new();
        while !is_left && end.poll(&mut cx, &mut buffer).transmit().is_some() {
            buffer.clear();
        }
        let datagram = Datagram {
            ecn: Ecn::NotEct,
            dscp: 0,
            payload,
        };
        let check = end.handle(&mut cx, Input::Datagram(datagram));
        let mut output = end.poll(&mut cx, &mut buffer);
        if output == Output::Answer {
            assert!(buffer.len() <= payload.len());
            buffer.clear();
            output = end.poll(&mut cx, &mut buffer);
        }
        // A datagram that the attacker has delayed rather than altered is authentic.
        if check.source == SourceCheck::Rejected {
            let sent = output.transmit();
            assert!(sent.is_none() || is_left, "an answer to the attacker");
        }
        self.collect();
    }

    fn starts_again(&mut self, story: &mut Story<'_>) {
        self.starts = self.starts.wrapping_add(1);
        if story.byte() & 1 == 1 {
            self.left = sender(&self.secret, self.starts);
        } else {
            self.right = receiver(&self.secret, self.starts);
        }
    }

    /// Time without attack.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.exchange(true);
            self.now += STEP;
        }
    }

    /// Time in which all datagrams are lost.
    fn interrupt(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.exchange(false);
            self.now += STEP;
        }
    }

    fn exchange(&mut self, delivers: bool) {
        let mut rng = self.rng.clone();
        let mut cx = cx(self.now, &mut rng);
        self.left.handle(&mut cx, Input::Timeout);
        self.right.handle(&mut cx, Input::Timeout);
        for _ in 0..ROUNDS {
            for is_left in [true, false] {
                let (from, to) = if is_left {
                    (&mut self.left, &mut self.right)
                } else {
                    (&mut self.right, &mut self.left)
                };
                let mut buffer = Vec::new();
                while from.poll(&mut cx, &mut buffer).transmit().is_some() {
                    let payload = &buffer[..];
                    let ecn = Ecn::NotEct;
                    if delivers {
                        let datagram = Datagram {
                            ecn,
                            dscp: 0,
                            payload,
                        };
                        to.handle(&mut cx, Input::Datagram(datagram));
                    }
                    self.recorded.push(core::mem::take(&mut buffer));
                }
            }
        }
        let excess = self.recorded.len().saturating_sub(MAX_RECORDED);
        self.recorded.drain(..excess);
        self.collect();
    }

    fn collect(&mut self) {
        self.sent.extend(self.left.inner_mut().sent.drain(..));
        for packet in self.right.inner_mut().received.drain(..) {
            assert!(self.sent.remove(&packet), "not a packet of the sender");
            self.received += 1;
        }
    }
}

fn sender(secret: &SharedSecret, seed: u8) -> SecureEndpoint<Talker> {
    let talker = Talker {
        ssrc: MEDIA + u32::from(seed),
        is_sender: true,
        ..Talker::default()
    };
    // A sender that starts again has a later time, if only by a little.
    let epoch = Duration::from_nanos(u64::from(seed));
    SecureEndpoint::initiator(talker, secret.clone(), [seed; 32], epoch)
}

fn receiver(secret: &SharedSecret, seed: u8) -> SecureEndpoint<Talker> {
    let talker = Talker {
        ssrc: PEER,
        ..Talker::default()
    };
    SecureEndpoint::responder(talker, secret.clone(), [seed; 32])
}

/// Sends an RTP packet every 20 ms, or RTCP for each packet.
#[derive(Debug, Default)]
struct Talker {
    ssrc: u32,
    is_sender: bool,
    number: u32,
    next: Time,
    ready: u32,
    sent: Vec<Vec<u8>>,
    received: Vec<Vec<u8>>,
}

impl Endpoint for Talker {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) if !self.is_sender => {
                self.received.push(datagram.payload.to_vec());
                self.ready += 1;
            }
            Input::Timeout if self.is_sender && cx.now >= self.next => {
                self.next = cx.now + STEP;
                self.ready = 1;
            }
            _ => {}
        }
        Check::default()
    }

    fn poll(&mut self, _: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        if self.ready == 0 {
            let timer = (self.next, TimerReason::Schedule);
            return Output::Wait(self.is_sender.then_some(timer));
        }
        self.ready -= 1;
        self.number += 1;
        let kind = if self.is_sender { 96 } else { 201 };
        let number = (self.number as u16).to_be_bytes();
        buffer.extend_from_slice(&[0x80, kind, number[0], number[1]]);
        if self.is_sender {
            buffer.extend_from_slice(&self.number.to_be_bytes());
        }
        buffer.extend_from_slice(&self.ssrc.to_be_bytes());
        if self.is_sender {
            self.sent.push(buffer.clone());
        }
        Output::Send(Transmit::default())
    }
}

/// Longest interval between two hellos.
const LAST_INTERVAL: Duration = Duration::from_secs(1);
/// The sender notices the silence, and a hello is sent every second.
const RECOVERY: Duration = PEER_SILENCE.saturating_add(Duration::from_secs(2));
const STEP: Duration = Duration::from_millis(20);
/// Longest step of time.
const LONGEST: Duration = Duration::from_secs(4);
/// Passes over both ends at one time: hello, answer, packet, report.
const ROUNDS: u32 = 3;
const MAX_RECORDED: usize = 256;
