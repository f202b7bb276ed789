//! Times of sending on a busy machine.

use super::*;
use crate::transport::{Failure, Received};

/// Answers a datagram with three.
#[derive(Debug, Default)]
struct Responder {
    heard: Option<Time>,
    sent: Vec<Time>,
}

impl Endpoint for Responder {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        if let Input::Datagram(_) = input {
            self.heard = Some(cx.now);
        }
        Check::default()
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        if self.heard.is_none() || self.sent.len() == 3 {
            return Output::Wait(None);
        }
        self.sent.push(cx.now);
        buffer.extend_from_slice(b"word");
        Output::Send(Transmit::default())
    }
}

/// The system runs another process for [`PAUSE`] after each datagram that is received or sent.
#[derive(Debug)]
struct Preempted {
    udp: UdpTransport,
    clock: Clock,
    /// When this process ran again.
    resumed: Vec<Time>,
}

fn pause(clock: Clock, resumed: &mut Vec<Time>) {
    let until = clock.now() + PAUSE;
    while clock.now() < until {
        core::hint::spin_loop();
    }
    resumed.push(until);
}

impl Transport for Preempted {
    fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.udp.sources()
    }

    fn receive<'a>(
        &'a mut self,
        source: usize,
        clock: Clock,
        buffer: &'a mut [u8],
    ) -> Result<Option<Received<'a>>, Failure> {
        let received = self.udp.receive(source, clock, buffer)?;
        if received.is_some() {
            pause(self.clock, &mut self.resumed);
        }
        Ok(received)
    }

    fn on_check(&mut self, check: Check) {
        self.udp.on_check(check);
    }

    fn transmit(&mut self, output: Output, payload: &[u8]) -> Result<usize, Failure> {
        let sent = self.udp.transmit(output, payload);
        pause(self.clock, &mut self.resumed);
        sent
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.udp.peer()
    }
}

/// The time of sending is not that of the datagram that caused it, nor of the one before.
#[test]
fn a_datagram_is_sent_at_the_time_of_its_poll() {
    let limits = conditions(Some(GUARD));
    let (here, there) = (any(), any());
    let near = here.local_addr().unwrap();
    let socket = Socket::connected(here, there.local_addr().unwrap()).unwrap();
    let transport = Preempted {
        udp: UdpTransport::new(vec![socket]),
        clock: limits.clock,
        resumed: Vec::new(),
    };
    let (mut rng, mut trace) = (Seed(1).stream("test"), ());
    let mut driver = Driver::new(&limits, &mut rng, &mut trace).unwrap();
    driver.add(Responder::default(), transport, None).unwrap();
    there.send_to(b"word", near).unwrap();
    let ended = std::iter::repeat_with(|| {
        let turn = driver.turn(|_, responder, _| match responder.sent.len() {
            3 => ControlFlow::Break(()),
            _ => ON,
        });
        turn.unwrap().pop()
    });
    let ended = ended.flatten().next().unwrap();
    let (sent, resumed) = (ended.endpoint.sent, ended.transport.resumed);
    assert_eq!((sent.len(), resumed.len()), (3, 4));
    let in_time = |(sent, resumed): (&Time, &Time)| sent >= resumed;
    assert!(
        sent.iter().zip(&resumed).all(in_time),
        "{sent:?} {resumed:?}"
    );
}

const PAUSE: Duration = Duration::from_millis(2);
