use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::Ecn;
use tidegate_core::wire::sdp::CryptoSuite;

use super::*;
use crate::keys;

/// Sends an RTP packet every 10 ms, or an RTCP packet for each received datagram.
#[derive(Debug, Default)]
struct Peer {
    ssrc: u32,
    is_sender: bool,
    sequence: u16,
    next: Time,
    ready: u32,
    received: Vec<Vec<u8>>,
    changes: u32,
}

impl Endpoint for Peer {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) => {
                self.received.push(datagram.payload.to_vec());
                self.ready += u32::from(!self.is_sender);
            }
            Input::PeerChanged => self.changes += 1,
            Input::Timeout if self.is_sender && cx.now >= self.next => {
                self.next = cx.now + INTERVAL;
                self.ready = 1;
            }
            Input::Timeout | Input::PathChanged | Input::Stream(_) => {}
        }
        Check::default()
    }

    fn poll(&mut self, _: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        if self.ready == 0 {
            let timer = (self.next, TimerReason::Schedule);
            return Output::Wait(self.is_sender.then_some(timer));
        }
        self.ready -= 1;
        if self.is_sender {
            buffer.extend_from_slice(&[0x80, 96]);
            buffer.extend_from_slice(&self.sequence.to_be_bytes());
            buffer.extend_from_slice(&[0; 4]);
            self.sequence += 1;
        } else {
            buffer.extend_from_slice(&[0x80, 201, 0, 1]);
        }
        buffer.extend_from_slice(&self.ssrc.to_be_bytes());
        Output::Send(Transmit::default())
    }
}

type End = SecureEndpoint<Peer>;

fn secret() -> SharedSecret {
    SharedSecret::new([7; 32])
}

fn sender(ssrc: u32) -> End {
    let peer = Peer {
        ssrc,
        is_sender: true,
        ..Peer::default()
    };
    SecureEndpoint::initiator(peer, secret(), [ssrc as u8; 32], EPOCH)
}

fn receiver(seed: u8) -> End {
    let peer = Peer {
        ssrc: 99,
        ..Peer::default()
    };
    SecureEndpoint::responder(peer, secret(), [seed; 32])
}

fn with_cx<T>(now: Time, then: impl FnOnce(&mut Context<'_>) -> T) -> T {
    let mut rng = Pcg64Mcg::new(1);
    let (rng, trace) = (&mut rng, &mut ());
    then(&mut Context { now, rng, trace })
}

/// Datagrams that an end sends now.
fn drain(end: &mut End, now: Time) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    loop {
        let mut buffer = Vec::new();
        let more = with_cx(now, |cx| end.poll(cx, &mut buffer).transmit().is_some());
        if !more {
            return sent;
        }
        sent.push(buffer);
    }
}

fn deliver(end: &mut End, now: Time, payload: &[u8]) -> SourceCheck {
    let ecn = Ecn::NotEct;
    let datagram = Datagram {
        ecn,
        dscp: 0,
        payload,
    };
    with_cx(now, |cx| end.handle(cx, Input::Datagram(datagram))).source
}

/// What an end waits for. All its datagrams were fetched.
fn waits(end: &mut End, now: Time) -> Output {
    let output = with_cx(now, |cx| end.poll(cx, &mut Vec::new()));
    assert_eq!(output.transmit(), None);
    output
}

/// Runs both ends for a time without delay. Returns what the left one has sent.
fn run(left: &mut End, right: &mut End, from: Time, span: Duration) -> Vec<Vec<u8>> {
    let (mut now, mut sent) = (from, Vec::new());
    while now < from + span {
        with_cx(now, |cx| left.handle(cx, Input::Timeout));
        let mut there = drain(left, now);
        sent.extend_from_slice(&there);
        while !there.is_empty() {
            for datagram in &there {
                deliver(right, now, datagram);
            }
            let back = drain(right, now);
            for datagram in &back {
                deliver(left, now, datagram);
            }
            there = drain(left, now);
            sent.extend_from_slice(&there);
        }
        let timer = waits(left, now).timer();
        let next = timer.map_or(from + span, |(at, _)| at);
        now = next.max(now + Duration::from_millis(1));
    }
    sent
}

/// Runs both ends over a path with a delay in each direction.
fn run_delayed(left: &mut End, right: &mut End, delay: Duration, span: Duration) {
    type Path = VecDeque<(Time, Vec<u8>)>;
    let turn = |end: &mut End, arriving: &mut Path, leaving: &mut Path, now: Time| {
        while arriving.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, datagram)) = arriving.pop_front() {
                deliver(end, now, &datagram);
            }
        }
        with_cx(now, |cx| end.handle(cx, Input::Timeout));
        let sent = drain(end, now).into_iter();
        leaving.extend(sent.map(|datagram| (now + delay, datagram)));
    };
    let (mut there, mut back) = (Path::new(), Path::new());
    let mut now = Time::ZERO;
    while now < Time::ZERO + span {
        turn(left, &mut back, &mut there, now);
        turn(right, &mut there, &mut back, now);
        now += INTERVAL;
    }
}

const INTERVAL: Duration = Duration::from_millis(10);
/// In the year 2033.
const EPOCH: Duration = Duration::from_secs(2_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn packets_flow_after_one_round_trip_and_none_in_the_clear() {
    let (mut left, mut right) = (sender(1), receiver(2));
    let sent = run(&mut left, &mut right, Time::ZERO, SECOND);
    assert!(handshake::is_hello(&sent[0]) && !sent[1..].iter().any(|d| handshake::is_hello(d)));
    assert!(right.inner().received.len() >= 90);
    let received = &right.inner().received;
    assert!(received.iter().all(|plain| !sent.contains(plain)));
    assert!(left.inner().received.len() >= 90 && left.is_ready());
    assert_eq!((right.counts().sessions, right.counts().rejected), (1, 0));
}

#[test]
fn another_secret_gives_no_answer_and_an_error_after_the_patience() {
    let (mut left, mut right) = (sender(1), receiver(2));
    right.keying = Keying::Responder(Box::new(Responder::new(
        SharedSecret::new([8; 32]),
        Generator::new([2; 32]),
    )));
    run(
        &mut left,
        &mut right,
        Time::ZERO,
        PATIENCE.saturating_sub(SECOND),
    );
    assert!(!left.has_failed());
    assert!(!waits(&mut left, Time::ZERO + PATIENCE).is_done());
    let sent = run(
        &mut left,
        &mut right,
        Time::ZERO + PATIENCE.saturating_sub(SECOND),
        SECOND * 3,
    );
    assert!(left.has_failed());
    assert_eq!(waits(&mut left, Time::ZERO + PATIENCE), Output::Done(None));
    assert!(sent.len() <= 3, "a hello a second");
    assert!(right.counts().rejected > 10 && drain(&mut right, Time::ZERO).is_empty());
}

#[test]
fn a_sender_that_restarts_is_received_at_once() {
    let (mut left, mut right) = (sender(1), receiver(2));
    run(&mut left, &mut right, Time::ZERO, SECOND);
    let before = right.inner().received.len();
    let mut again = sender(3);
    run(&mut again, &mut right, Time::ZERO + SECOND, INTERVAL * 3);
    assert!(right.inner().received.len() > before);
    assert_eq!(right.inner().changes, 1);
    // The former sender has no session any more.
    let check = drain_one(&mut left, Time::ZERO + SECOND * 2);
    assert_eq!(
        deliver(&mut right, Time::ZERO + SECOND * 2, &check),
        SourceCheck::Rejected
    );
}

fn drain_one(end: &mut End, now: Time) -> Vec<u8> {
    with_cx(now, |cx| end.handle(cx, Input::Timeout));
    drain(end, now).pop().unwrap()
}

#[test]
fn a_receiver_that_restarts_gets_new_keys() {
    let (mut left, mut right) = (sender(1), receiver(2));
    run(&mut left, &mut right, Time::ZERO, SECOND);
    let mut again = receiver(3);
    run(
        &mut left,
        &mut again,
        Time::ZERO + SECOND,
        PEER_SILENCE + SECOND,
    );
    assert!(again.inner().received.len() >= 90);
    assert_eq!(left.counts().sessions, 2);
}

/// The stream continues with its SSRC: the receiver must not start over.
#[test]
fn an_interruption_that_renews_the_keys_does_not_change_the_peer() {
    let (mut left, mut right) = (sender(1), receiver(2));
    run(&mut left, &mut right, Time::ZERO, SECOND);
    let mut now = Time::ZERO + SECOND;
    for _ in 0..300 {
        now += INTERVAL;
        with_cx(now, |cx| left.handle(cx, Input::Timeout));
        drain(&mut left, now);
    }
    run(&mut left, &mut right, now, SECOND);
    let received = right.inner().received.len();
    assert!(received >= 180, "{received}");
    assert_eq!(right.inner().changes, 0);
}

/// Packets with the former keys are on their way in both directions at each renewal.
#[test]
fn keys_are_renewed_without_a_loss() {
    let (mut left, mut right) = (sender(1), receiver(2));
    let delay = Duration::from_millis(100);
    run_delayed(&mut left, &mut right, delay, KEY_LIFETIME * 2 + SECOND * 60);
    assert_eq!((left.counts().sessions, right.counts().sessions), (3, 3));
    assert_eq!((left.counts().rejected, right.counts().rejected), (0, 0));
    assert_eq!(right.inner().changes, 0);
    // All but those of the last trip.
    let [sent, arrived] = [left.inner().sequence, right.inner().received.len() as u16];
    assert!(arrived + 11 >= sent && sent > 29_000, "{arrived} of {sent}");
}

/// 2.2 s each way: the first packet arrives within the 5 s for which a responder keeps its answer.
#[test]
fn a_handshake_completes_over_a_round_trip_of_several_seconds() {
    for delay in [300, 1_000, 1_500, 2_200] {
        let (mut left, mut right) = (sender(1), receiver(2));
        let delay = Duration::from_millis(delay);
        run_delayed(&mut left, &mut right, delay, SECOND * 15);
        assert!(!left.has_failed() && left.is_ready(), "{delay:?}");
        let (sent, answered) = (right.inner().received.len(), left.inner().received.len());
        assert!(
            sent >= 500 && answered >= 400,
            "{delay:?}: {sent}, {answered}"
        );
        assert_eq!((left.counts().sessions, right.counts().sessions), (1, 1));
    }
}

#[test]
fn a_replayed_hello_changes_nothing_and_gets_no_longer_answer() {
    let (mut left, mut right) = (sender(1), receiver(2));
    let sent = run(&mut left, &mut right, Time::ZERO, SECOND);
    let mut other = sender(3);
    let recorded = drain_one(&mut other, Time::ZERO);
    let now = Time::ZERO + SECOND;
    for hello in [&recorded, &recorded, &sent[0]] {
        assert_eq!(deliver(&mut right, now, hello), SourceCheck::Rejected);
        let mut answer = Vec::new();
        let output = with_cx(now, |cx| right.poll(cx, &mut answer));
        assert!(matches!(output, Output::Answer | Output::Wait(_)));
        assert!(answer.len() <= hello.len());
    }
    let before = right.inner().received.len();
    run(&mut left, &mut right, now, SECOND);
    assert!(right.inner().received.len() >= before + 90);
    assert_eq!((right.counts().sessions, right.inner().changes), (1, 0));
}

#[test]
fn replayed_and_altered_packets_are_rejected() {
    let (mut left, mut right) = (sender(1), receiver(2));
    let sent = run(&mut left, &mut right, Time::ZERO, SECOND);
    let before = right.inner().received.len();
    for packet in &sent {
        deliver(&mut right, Time::ZERO + SECOND, packet);
        let mut altered = packet.clone();
        *altered.last_mut().unwrap() ^= 1;
        deliver(&mut right, Time::ZERO + SECOND, &altered);
    }
    assert_eq!(right.inner().received.len(), before);
    assert_eq!(right.counts().rejected as usize, 2 * sent.len());
}

/// Hellos that were recorded within the last hour before [`EPOCH`], the oldest first.
fn recorded(count: u64) -> Vec<[u8; MESSAGE]> {
    let (secret, mut generator) = (Secret::new(secret()), Generator::new([9; 32]));
    let first = nanos(EPOCH) - nanos(SECOND) * 3_600;
    (0..count)
        .map(|n| *Initiator::new(&secret, &mut generator, first + n).hello())
        .collect()
}

/// In the order of their recording: each is later than the ones before, and none was received by
/// this receiver. A sender that begins meanwhile has its session with the second hello at the latest.
#[test]
fn a_flood_of_recorded_hellos_delays_no_handshake() {
    let recorded = recorded(344);
    let (mut left, mut right) = (sender(1), receiver(2));
    let mut answers = 0;
    let mut attacked_until = |left: &mut End, right: &mut End, from: u64, to: u64| {
        for n in from..to {
            let now = Time::from_micros(n * 100);
            deliver(right, now, &recorded[n as usize % recorded.len()]);
            answers += drain(right, now).len();
            with_cx(now, |cx| left.handle(cx, Input::Timeout));
            for datagram in drain(left, now) {
                deliver(right, now, &datagram);
                for answer in drain(right, now) {
                    deliver(left, now, &answer);
                }
            }
        }
        answers
    };
    // The budget is exhausted when the sender begins, after 30 ms.
    let mut idle = sender(5);
    idle.keying = Keying::Plain;
    attacked_until(&mut idle, &mut right, 0, 300);
    attacked_until(&mut left, &mut right, 300, 20_000);
    assert!(left.is_ready());
    let received = right.inner().received.len();
    assert!(received >= 150, "{received} packets in 1.97 s");
    assert_eq!(right.counts().sessions, 1);
}

/// Forged answers, hellos and packets reach no key agreement: none is answered or accepted, and the
/// handshake goes on.
#[test]
fn forged_messages_change_nothing() {
    let (mut left, mut right) = (sender(1), receiver(2));
    let now = Time::ZERO;
    let hello = drain_one(&mut left, now);
    let mut forged = [9; MESSAGE];
    forged[1..10].copy_from_slice(&hello[1..10]);
    assert_eq!(deliver(&mut left, now, &forged), SourceCheck::Rejected);
    // As an answer of an earlier session.
    let other = drain_one(&mut sender(3), now + INTERVAL);
    deliver(&mut right, now, &other);
    let earlier = drain(&mut right, now).remove(0);
    assert_eq!(deliver(&mut left, now, &earlier), SourceCheck::Rejected);
    let mut left = self::sender(1);
    let now = now + SECOND;
    let hello = drain_one(&mut left, now);
    forged[0] = 8;
    deliver(&mut right, now, &forged);
    assert!(drain(&mut right, now).is_empty());
    deliver(&mut right, now, &hello);
    let answer = drain(&mut right, now).remove(0);
    assert_eq!(deliver(&mut left, now, &answer), SourceCheck::NewSession);
}

#[test]
fn an_initiator_replaces_a_hello_without_answer() {
    let mut left = sender(1);
    let mut hellos = std::collections::BTreeSet::new();
    let mut now = Time::ZERO;
    while !left.has_failed() {
        with_cx(now, |cx| left.handle(cx, Input::Timeout));
        hellos.extend(drain(&mut left, now));
        now = waits(&mut left, now).timer().map_or(now, |(at, _)| at);
    }
    assert!((4..=5).contains(&hellos.len()), "{}", hellos.len());
}

#[test]
fn reflected_packets_are_rejected_where_both_directions_share_a_key() {
    let mut generator = Generator::new([1; 32]);
    let key = MasterKey::from_description(&keys::fresh(CryptoSuite::AeadAes128Gcm, &mut generator));
    let with_key = |end: End| SecureEndpoint::with_key(end.inner, &key, vec![]);
    let (mut left, mut right) = (with_key(sender(1)), with_key(receiver(2)));
    let sent = run(&mut left, &mut right, Time::ZERO, SECOND);
    let now = Time::ZERO + SECOND;
    assert_eq!(deliver(&mut left, now, &sent[5]), SourceCheck::Rejected);
    with_cx(now, |cx| left.handle(cx, Input::Timeout));
    let media = drain(&mut left, now).remove(0);
    assert_eq!(deliver(&mut right, now, &media), SourceCheck::Newest);
    let report = drain(&mut right, now).remove(0);
    assert_eq!(deliver(&mut right, now, &report), SourceCheck::Rejected);
    assert_eq!(deliver(&mut left, now, &report), SourceCheck::Newest);
}

#[test]
fn a_lost_answer_is_sent_again() {
    let (mut left, mut right) = (sender(1), receiver(2));
    let mut now = Time::ZERO;
    let hello = drain_one(&mut left, now);
    deliver(&mut right, now, &hello);
    let lost = drain(&mut right, now);
    now += FIRST_INTERVAL;
    let timer = Some((now, TimerReason::Handshake));
    assert_eq!(waits(&mut left, now), Output::Wait(timer));
    let again = drain_one(&mut left, now);
    assert_eq!(again, hello);
    deliver(&mut right, now, &again);
    let answer = drain(&mut right, now);
    assert_eq!(answer, lost);
    assert_eq!(deliver(&mut left, now, &answer[0]), SourceCheck::NewSession);
    let media = drain_one(&mut left, now);
    assert_eq!(deliver(&mut right, now, &media), SourceCheck::NewSession);
}

#[test]
fn keys_of_a_description_need_no_handshake() {
    let mut generator = Generator::new([1; 32]);
    for suite in CryptoSuite::ALL {
        let key = MasterKey::from_description(&keys::fresh(suite, &mut generator));
        let with_key = |end: End, ssrcs| SecureEndpoint::with_key(end.inner, &key, ssrcs);
        let mut left = with_key(sender(1), vec![]);
        let mut right = with_key(receiver(2), vec![1, 2]);
        let sent = run(&mut left, &mut right, Time::ZERO, SECOND);
        assert!(right.inner().received.len() >= 90, "{suite:?}");
        assert!(left.inner().received.len() >= 90, "{suite:?}");
        assert!(sent.iter().all(|d| d[0] == 0x80));
        let mut strange = with_key(sender(3), vec![]);
        let strange = drain_one(&mut strange, Time::ZERO + SECOND);
        assert_eq!(
            deliver(&mut right, Time::ZERO, &strange),
            SourceCheck::Rejected
        );
    }
}

#[test]
fn without_keys_datagrams_pass_unchanged() {
    let mut left = SecureEndpoint::plain(sender(1).inner);
    let mut right = SecureEndpoint::plain(receiver(2).inner);
    let sent = run(&mut left, &mut right, Time::ZERO, SECOND);
    assert_eq!(right.inner().received, sent);
    let check = deliver(&mut right, Time::ZERO + SECOND, &sent[0]);
    assert_eq!(check, SourceCheck::Unchecked);
}
