use std::net::UdpSocket;
use std::thread;

use tidegate_core::control::{Context, Ecn, TimerReason};
use tidegate_core::endpoint::{Check, Datagram, Input, Output, Transmit};
use tidegate_core::random::Seed;

use super::*;
use crate::udp::{Recognition, SourceFilter, bind_shared};

mod departures;
mod lower_effort;

/// Sends `left` datagrams at intervals of `every`, and keeps the received ones.
#[derive(Debug, Default)]
struct Talker {
    left: u64,
    every: Duration,
    next: Time,
    ready: bool,
    timeouts: Vec<Time>,
    heard: Vec<(Time, Ecn, Vec<u8>)>,
    /// Whether datagrams of this source are believed, by their SSRC.
    trusted: Option<u8>,
}

impl Talker {
    fn new(left: u64, every: Duration) -> Self {
        Self {
            left,
            every,
            ..Self::default()
        }
    }
}

impl Endpoint for Talker {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        let mut check = Check::default();
        match input {
            Input::Datagram(Datagram { ecn, payload, .. }) => {
                self.heard.push((cx.now, ecn, payload.to_vec()));
                check.is_believed =
                    self.trusted.is_some() && payload.get(7) == self.trusted.as_ref();
            }
            Input::PeerChanged | Input::PathChanged | Input::Stream(_) => {}
            Input::Timeout => {
                self.timeouts.push(cx.now);
                self.ready |= cx.now >= self.next;
            }
        }
        check
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        if self.left > 0 && core::mem::take(&mut self.ready) {
            self.left -= 1;
            self.next = cx.now + self.every;
            buffer.extend_from_slice(b"word");
            return Output::Send(Transmit {
                ecn: Ecn::Ect0,
                dscp: 0,
            });
        }
        match self.left {
            0 if self.every > Duration::ZERO => Output::Done(None),
            0 => Output::Wait(None),
            _ => Output::Wait(Some((self.next, TimerReason::Pacing))),
        }
    }
}

fn conditions(until: Option<Time>) -> RunLimits {
    RunLimits {
        clock: Clock::start(),
        until,
        stop: StopFlag::new().unwrap(),
    }
}

fn any() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

fn go(
    talker: &mut Talker,
    socket: Socket,
    conditions: &RunLimits,
    on_turn: impl FnMut(&mut Talker, Time) -> ControlFlow<()>,
) -> Result<DriverReport, DriveError> {
    let mut rng = Seed(1).stream("test");
    drive(
        talker,
        &mut vec![socket],
        conditions,
        &mut rng,
        &mut (),
        on_turn,
    )
}

const ON: ControlFlow<()> = ControlFlow::Continue(());
/// Ends a test that hangs. No result depends on it.
const GUARD: Time = Time::from_secs(300);

#[test]
fn datagrams_are_sent_on_time_and_the_sender_ends() {
    let (here, there) = (any(), any());
    let far = there.local_addr().unwrap();
    let every = Duration::from_millis(5);
    let listening = Socket::listening(there, Recognition::any(), SourceFilter::default()).unwrap();
    let ears = conditions(Some(GUARD));
    let stop = ears.stop.clone();
    let listener = thread::spawn(move || {
        let mut listener = Talker::default();
        let ended = go(&mut listener, listening, &ears, |listener, _| {
            if listener.heard.len() == 10 {
                ControlFlow::Break(())
            } else {
                ON
            }
        });
        (listener, ended.unwrap())
    });
    let mut talker = Talker::new(10, every);
    let socket = Socket::connected(here, far).unwrap();
    let ended = go(&mut talker, socket, &conditions(None), |_, _| ON).unwrap();
    assert_eq!((ended.why, ended.sent), (EndReason::Done, 10));
    let words: Vec<_> = talker
        .timeouts
        .windows(2)
        .map(|w| w[1].since(w[0]))
        .collect();
    assert!(words.iter().all(|&gap| gap >= every), "{words:?}");
    let (listener, ended) = listener.join().unwrap();
    drop(stop);
    assert_eq!((ended.why, ended.received), (EndReason::Callback, 10));
    assert!(
        listener
            .heard
            .iter()
            .all(|(_, ecn, word)| *ecn == Ecn::Ect0 && word == b"word")
    );
    assert!(listener.heard.is_sorted_by_key(|(at, ..)| *at));
}

#[test]
fn another_thread_wakes_and_stops_the_driver() {
    let conditions = conditions(Some(GUARD));
    let stop = conditions.stop.clone();
    let mut talker = Talker::default();
    let socket = Socket::listening(any(), Recognition::any(), SourceFilter::default()).unwrap();
    let mut woken = false;
    let ended = go(&mut talker, socket, &conditions, |talker, _| {
        if !core::mem::replace(&mut woken, true) {
            let stop = stop.clone();
            thread::spawn(move || stop.wake());
        } else if !talker.timeouts.is_empty() {
            stop.set();
        }
        ON
    });
    assert_eq!(ended.unwrap().why, EndReason::Stopped);
    assert_eq!(talker.timeouts.len(), 1);
}

#[test]
fn callback_is_called_without_events_and_the_time_limit_ends_the_driver() {
    let idle = || Socket::listening(any(), Recognition::any(), SourceFilter::default()).unwrap();
    let mut turns = 0;
    let conditions_without_end = conditions(Some(GUARD));
    let ended = go(
        &mut Talker::default(),
        idle(),
        &conditions_without_end,
        |_, _| {
            turns += 1;
            if turns == 3 {
                ControlFlow::Break(())
            } else {
                ON
            }
        },
    );
    assert_eq!(ended.unwrap().why, EndReason::Callback);

    let until = Time::from_millis(250);
    let mut last = Time::ZERO;
    let timed = conditions(Some(until));
    let ended = go(&mut Talker::default(), idle(), &timed, |_, now| {
        assert!(last < until, "no end at the time limit");
        last = now;
        ON
    });
    assert_eq!(ended.unwrap().why, EndReason::TimeOver);
    assert!(last >= until, "{last:?}");
}

#[test]
fn closed_port_is_an_error_after_three_seconds() {
    let closed = any().local_addr().unwrap();
    let mut talker = Talker::new(u64::MAX, Duration::from_millis(20));
    let socket = Socket::connected(any(), closed).unwrap();
    let conditions = conditions(Some(GUARD));
    let error = go(&mut talker, socket, &conditions, |_, _| ON).unwrap_err();
    assert!(conditions.clock.now() >= Time::ZERO + session::REFUSALS);
    let text = error.to_string();
    assert!(
        text.contains("connection refused") && text.contains(&closed.to_string()),
        "{text}"
    );
}

/// An empty receiver report of the SSRC `from`.
fn report(from: u8) -> [u8; 8] {
    [0x80, 201, 0, 1, 0, 0, 0, from]
}

/// The receiver's host sends RTCP from any port, to the port of the media and to the next one. Those
/// sockets are closed by a believed report at the media socket, and by nothing else.
#[test]
fn rtcp_from_other_ports_is_received_until_the_peer_multiplexes() {
    let peer = any();
    let media = bind_shared("127.0.0.1:0".parse().unwrap()).unwrap();
    let here = media.local_addr().unwrap();
    let media = Socket::connected(media, peer.local_addr().unwrap()).unwrap();
    let others = Socket::from_host(bind_shared(here).unwrap(), here.ip()).unwrap();
    let control = any();
    let next = control.local_addr().unwrap();
    let control = Socket::from_host(control, here.ip()).unwrap();
    let mut sockets = vec![media, others, control];
    let mut talker = Talker {
        trusted: Some(1),
        ..Talker::default()
    };
    let (stranger, conditions) = (any(), conditions(Some(GUARD)));
    let mut rng = Seed(1).stream("test");
    let mut hear = |sockets: &mut Vec<Socket>, source: &UdpSocket, to, from| {
        source.send_to(&report(from), to).unwrap();
        let before = talker.heard.len();
        let on_turn = |talker: &mut Talker, _: Time| {
            if talker.heard.len() > before {
                ControlFlow::Break(())
            } else {
                ON
            }
        };
        let ended = drive(
            &mut talker,
            sockets,
            &conditions,
            &mut rng,
            &mut (),
            on_turn,
        );
        assert_eq!(ended.unwrap().why, EndReason::Callback);
        sockets.len()
    };
    // Believed or not, at the other sockets.
    for from in [1, 2] {
        assert_eq!(hear(&mut sockets, &stranger, here, from), 3);
        assert_eq!(hear(&mut sockets, &stranger, next, from), 3);
    }
    // RTCP of the peer's port about another stream.
    assert_eq!(hear(&mut sockets, &peer, here, 2), 3);
    assert_eq!(hear(&mut sockets, &peer, here, 1), 1);
}

#[test]
fn oversized_datagram_is_an_error() {
    #[derive(Debug)]
    struct Giant;
    impl Endpoint for Giant {
        fn handle(&mut self, _: &mut Context<'_>, _: Input<'_>) -> Check {
            Check::default()
        }
        fn poll(&mut self, _: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
            buffer.resize(LARGEST + 1, 0);
            Output::Send(Transmit::default())
        }
    }
    let there = any();
    let socket = Socket::connected(any(), there.local_addr().unwrap()).unwrap();
    let mut rng = Seed(1).stream("test");
    let conditions = conditions(Some(GUARD));
    let result = drive(
        &mut Giant,
        &mut vec![socket],
        &conditions,
        &mut rng,
        &mut (),
        |_, _| ON,
    );
    assert!(
        matches!(result, Err(DriveError::TooLarge { length }) if length == LARGEST + 1),
        "{result:?}"
    );
}

/// Forty sessions on one thread send and answer at their own times, and each ends by itself.
#[test]
fn one_driver_serves_many_sessions() {
    let limits = conditions(Some(GUARD));
    let (mut rng, mut trace) = (Seed(1).stream("test"), ());
    let mut driver = Driver::new(&limits, &mut rng, &mut trace).unwrap();
    let mut peers = Vec::new();
    for n in 0..SESSIONS {
        let (here, there) = (any(), any());
        let socket = Socket::connected(here, there.local_addr().unwrap()).unwrap();
        let talker = Talker::new(n + 1, Duration::from_millis(n % 7 + 1));
        let added = driver.add(talker, UdpTransport::new(vec![socket]), None);
        assert_eq!(added.unwrap(), n as usize);
        peers.push(there);
    }
    let mut left = SESSIONS;
    while left > 0 {
        for ended in driver.turn(|_, _, _| ON).unwrap() {
            let report = ended.result.unwrap();
            assert_eq!(
                (report.why, report.sent),
                (EndReason::Done, ended.number as u64 + 1)
            );
            left -= 1;
        }
    }
    assert!(driver.is_empty());
    for (n, peer) in peers.iter().enumerate() {
        peer.set_nonblocking(true).unwrap();
        let received = std::iter::from_fn(|| peer.recv(&mut [0; 8]).ok());
        assert_eq!(received.count(), n + 1);
    }
    // The numbers are used again.
    let socket = Socket::connected(any(), peers[0].local_addr().unwrap()).unwrap();
    let again = driver.add(Talker::default(), UdpTransport::new(vec![socket]), None);
    assert!(again.unwrap() < SESSIONS as usize);
}

#[test]
fn a_session_is_woken_alone_and_ended_by_its_callback() {
    let limits = conditions(Some(GUARD));
    let (mut rng, mut trace) = (Seed(1).stream("test"), ());
    let mut driver = Driver::new(&limits, &mut rng, &mut trace).unwrap();
    let flag = StopFlag::new().unwrap();
    for wake in [Some(flag.clone()), None] {
        let socket = Socket::connected(any(), any().local_addr().unwrap()).unwrap();
        let transport = UdpTransport::new(vec![socket]);
        driver.add(Talker::default(), transport, wake).unwrap();
    }
    flag.wake();
    let ended = std::iter::repeat_with(|| {
        let turn = driver.turn(|_, talker, _| match talker.timeouts.len() {
            0 => ON,
            _ => ControlFlow::Break(()),
        });
        turn.unwrap().pop()
    });
    let ended = ended.flatten().next().unwrap();
    assert_eq!(ended.number, 0);
    assert_eq!(ended.result.unwrap().why, EndReason::Callback);
    limits.stop.wake();
    let mut timeouts = 0;
    while timeouts == 0 {
        let turn = driver.turn(|number, talker, _| {
            assert_eq!(number, 1);
            timeouts = talker.timeouts.len();
            ON
        });
        assert!(turn.unwrap().is_empty());
    }
    assert_eq!(timeouts, 1);
}

const SESSIONS: u64 = 40;
