//! Adapter from an agent to an endpoint: modelled packets become datagrams for real sockets.

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Context, Ecn, Kind, TimerReason};
use tidegate_core::endpoint::{Check, Datagram, Endpoint, Input, OVERHEAD, Output, Transmit};
use tidegate_core::units::Time;

use super::Actor;
use crate::packet_agent::{
    Ack, Agent, AgentCx, Arrival, Body, Outbox, Outgoing, ReceivedRun, Request, Segment,
};

/// An agent over real sockets. Each datagram encodes its body and is padded with zeros to its size.
/// A body that needs more makes it larger (a TCP acknowledgement by 36 bytes).
#[derive(Debug)]
pub struct Framed {
    actor: Actor,
    rng: Pcg64Mcg,
    outbox: Outbox,
    waiting: std::vec::IntoIter<Outgoing>,
    log: Vec<Passage>,
    done: Option<Time>,
}

/// A packet sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Time of the event.
    pub at: Time,
    /// Departure from the sender.
    pub sent: Time,
    /// Size on the wire, with IP and UDP headers.
    pub size: u32,
    /// `true` for an arrival, `false` for a departure.
    pub arrived: bool,
    /// Content of the packet.
    pub kind: Kind,
}

impl Framed {
    /// Wraps `actor`, which draws from `rng`, for a driver of endpoints.
    pub fn new(actor: Actor, rng: Pcg64Mcg) -> Self {
        Self {
            actor,
            rng,
            outbox: Outbox::default(),
            waiting: Vec::new().into_iter(),
            log: Vec::new(),
            done: None,
        }
    }

    /// Time since which the agent is done.
    pub fn done(&self) -> Option<Time> {
        self.done
    }

    /// Moves the packets since the last call into `passages`.
    pub fn drain(&mut self, passages: &mut Vec<Passage>) {
        passages.append(&mut self.log);
    }

    fn run(&mut self, cx: &mut Context<'_>, what: impl FnOnce(&mut Actor, &mut AgentCx<'_>)) {
        let mut inner = AgentCx::new(cx.now, &mut self.rng, cx.trace, &mut self.outbox);
        what(&mut self.actor, &mut inner);
        self.done = self.done.or(Some(cx.now)).filter(|_| self.actor.is_done());
        if self.outbox.len() > 0 {
            let mut all: Vec<Outgoing> = self.waiting.by_ref().collect();
            all.extend(self.outbox.drain());
            self.waiting = all.into_iter();
        }
    }

    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        let size = datagram.payload.len() as u32 + OVERHEAD.get() as u32;
        let Some((sent, mut body)) = read(datagram.payload) else {
            return;
        };
        self.log.push(Passage {
            at: cx.now,
            sent,
            size,
            arrived: true,
            kind: kind(&body),
        });
        let arrival = Arrival {
            size,
            ecn: datagram.ecn,
            dscp: datagram.dscp,
        };
        self.run(cx, |actor, cx| actor.on_packet(cx, &arrival, &mut body));
    }

    /// A receiver or server has no work of its own and is never done, because its peer may not be.
    fn is_done(&self) -> bool {
        let serves = matches!(self.actor, Actor::UdpSink(_) | Actor::Server(_));
        !serves && self.actor.is_done()
    }
}

impl Endpoint for Framed {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) => self.on_datagram(cx, datagram),
            Input::PeerChanged | Input::PathChanged | Input::Stream(_) => {}
            Input::Timeout => self.run(cx, Agent::on_timer),
        }
        Check::default()
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        let Some(packet) = self.waiting.next() else {
            let at = self.actor.next_timer();
            let why = || self.actor.why().unwrap_or(TimerReason::Schedule);
            let timer = (at != Time::FAR).then(|| (at, why()));
            return if self.is_done() {
                Output::Done(timer)
            } else {
                Output::Wait(timer)
            };
        };
        write(cx.now, &packet.body, buffer);
        let size = (packet.size as usize).saturating_sub(OVERHEAD.get() as usize);
        buffer.resize(buffer.len().max(size), 0);
        self.log.push(Passage {
            at: cx.now,
            sent: cx.now,
            size: buffer.len() as u32 + OVERHEAD.get() as u32,
            arrived: false,
            kind: kind(&packet.body),
        });
        Output::Send(Transmit {
            ecn: packet.ecn,
            dscp: packet.dscp.unwrap_or(0),
        })
    }
}

fn kind(body: &Body) -> Kind {
    match body {
        Body::Data { is_dummy: true, .. } => Kind::Dummy,
        _ => Kind::Media,
    }
}

fn write(now: Time, body: &Body, out: &mut Vec<u8>) {
    out.extend(now.as_nanos().to_le_bytes());
    match body {
        Body::Data {
            seq,
            sent,
            rtt,
            open,
            is_dummy,
        } => {
            out.push(DATA);
            out.extend(seq.to_le_bytes());
            out.extend(sent.as_nanos().to_le_bytes());
            out.extend(rtt.to_le_bytes());
            out.extend(open.to_le_bytes());
            out.push(u8::from(*is_dummy));
        }
        Body::Report { sent, seen } => {
            out.push(REPORT);
            out.extend(sent.as_nanos().to_le_bytes());
            out.extend((seen.len().min(MAX_SEEN) as u16).to_le_bytes());
            for run in seen.iter().rev().take(MAX_SEEN).rev() {
                out.extend(run.seq.to_le_bytes());
                out.extend(run.run.to_le_bytes());
                out.extend(run.at.as_nanos().to_le_bytes());
                out.push(run.ecn.bits());
            }
        }
        Body::Segment(segment) => {
            out.push(SEGMENT);
            out.extend(segment.seq.to_le_bytes());
            out.extend(segment.sent.as_nanos().to_le_bytes());
            out.push(u8::from(segment.again) | u8::from(segment.cwr) << 1);
        }
        Body::Ack(ack) => {
            out.push(ACK);
            write_ack(ack, out);
        }
        Body::Request(request) => {
            out.push(REQUEST);
            out.extend(request.number.to_le_bytes());
            out.extend(request.group.to_le_bytes());
            out.extend(request.first.to_le_bytes());
            out.extend(request.bytes.to_le_bytes());
        }
        Body::Coordinated { header, sent } => {
            out.push(COORDINATED);
            out.extend(header);
            out.extend(sent.as_nanos().to_le_bytes());
        }
        Body::Datagram(bytes) => {
            out.push(BYTES);
            out.extend(bytes);
        }
    }
}

fn write_ack(ack: &Ack, out: &mut Vec<u8>) {
    out.extend(ack.next.to_le_bytes());
    out.extend(ack.echo.as_nanos().to_le_bytes());
    out.push(u8::from(ack.again) | u8::from(ack.ece) << 1);
    out.extend(ack.marks.to_le_bytes());
    for (from, to) in ack.sack {
        out.extend(from.to_le_bytes());
        out.extend(to.to_le_bytes());
    }
}

/// Departure and body of a packet; none if its format is unknown.
fn read(payload: &[u8]) -> Option<(Time, Body)> {
    let mut rest = Rest(payload);
    let sent = rest.time()?;
    let body = match rest.byte()? {
        DATA => Body::Data {
            seq: rest.u64()?,
            sent: rest.time()?,
            rtt: rest.u64()?,
            open: rest.u32()?,
            is_dummy: rest.byte()? != 0,
        },
        REPORT => {
            let sent = rest.time()?;
            let runs = u16::from_le_bytes(rest.take()?);
            let run = |rest: &mut Rest<'_>| {
                Some(ReceivedRun {
                    seq: rest.u64()?,
                    run: rest.u32()?,
                    at: rest.time()?,
                    ecn: Ecn::from_bits(rest.byte()?),
                })
            };
            let seen = (0..runs).map(|_| run(&mut rest)).collect::<Option<_>>()?;
            Body::Report { sent, seen }
        }
        SEGMENT => {
            let (seq, sent, flags) = (rest.u32()?, rest.time()?, rest.byte()?);
            Body::Segment(Segment {
                seq,
                sent,
                again: flags & 1 != 0,
                cwr: flags & 2 != 0,
            })
        }
        ACK => Body::Ack(read_ack(&mut rest)?),
        REQUEST => Body::Request(Request {
            number: rest.u32()?,
            group: rest.u32()?,
            first: rest.u32()?,
            bytes: rest.u64()?,
        }),
        COORDINATED => Body::Coordinated {
            header: rest.take()?,
            sent: rest.time()?,
        },
        BYTES => Body::Datagram(rest.0.to_vec()),
        _ => return None,
    };
    Some((sent, body))
}

fn read_ack(rest: &mut Rest<'_>) -> Option<Ack> {
    let (next, echo, flags) = (rest.u32()?, rest.time()?, rest.byte()?);
    let marks = u16::from_le_bytes(rest.take()?);
    let mut sack = [(0, 0); 3];
    for block in &mut sack {
        *block = (rest.u32()?, rest.u32()?);
    }
    Some(Ack {
        next,
        echo,
        sack,
        ece: flags & 2 != 0,
        again: flags & 1 != 0,
        marks,
    })
}

/// The unread part of a payload.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Time> {
        self.u64().map(Time::from_nanos)
    }
}

const DATA: u8 = 1;
const REPORT: u8 = 2;
const SEGMENT: u8 = 3;
const ACK: u8 = 4;
const BYTES: u8 = 5;
const REQUEST: u8 = 6;
const COORDINATED: u8 = 7;
/// Runs per datagram: 60 runs of 21 bytes fit into an Ethernet frame.
const MAX_SEEN: usize = 60;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::traffic::Distribution;
    use crate::traffic::web;

    /// Delivers all packets from `from` to `to`. Returns whether there were any.
    fn carry(from: &mut Framed, to: &mut Framed, cx: &mut Context<'_>) -> bool {
        let (mut any, mut payload) = (false, Vec::new());
        while from.poll(cx, &mut payload).transmit().is_some() {
            let datagram = Datagram {
                ecn: Ecn::NotEct,
                dscp: 0,
                payload: &payload,
            };
            to.handle(cx, Input::Datagram(datagram));
            (any, payload) = (true, Vec::new());
        }
        any
    }

    #[test]
    fn server_is_never_done() {
        let config = web::Config {
            think: Distribution::Constant(1.0),
            objects: Distribution::Constant(2.0),
            size: Distribution::Constant(5_000.0),
            ..web::Config::default()
        };
        let (client, server) = web::browser(&Arc::new(config)).unwrap();
        let rng = || Pcg64Mcg::new(1);
        let mut client = Framed::new(Actor::Browser(Box::new(client)), rng());
        let mut server = Framed::new(Actor::Server(Box::new(server)), rng());
        let mut rng = rng();
        let (mut pages, mut now) = (0, Time::ZERO);
        while pages < 3 {
            let mut cx = Context {
                now,
                rng: &mut rng,
                trace: &mut (),
            };
            let mut timers = Vec::new();
            for end in [&mut client, &mut server] {
                let output = end.poll(&mut cx, &mut Vec::new());
                assert!(matches!(output, Output::Wait(_)), "after {pages} pages");
                timers.extend(output.timer().map(|(at, _)| at));
            }
            now = timers.into_iter().min().unwrap();
            cx.now = now;
            for end in [&mut client, &mut server] {
                end.handle(&mut cx, Input::Timeout);
            }
            while carry(&mut client, &mut server, &mut cx)
                || carry(&mut server, &mut client, &mut cx)
            {}
            let Actor::Browser(browser) = &client.actor else {
                unreachable!("the endpoint contains this agent");
            };
            pages = browser.counters().pages;
        }
    }

    fn body() -> impl Strategy<Value = Body> {
        let time = any::<u64>().prop_map(Time::from_nanos);
        let seen =
            (any::<u64>(), any::<u32>(), time.clone(), 0..4_u8).prop_map(|(seq, run, at, ecn)| {
                ReceivedRun {
                    seq,
                    run,
                    at,
                    ecn: Ecn::from_bits(ecn),
                }
            });
        let sack = [(); 3].map(|()| (any::<u32>(), any::<u32>()));
        prop_oneof![
            (
                any::<u64>(),
                time.clone(),
                any::<u64>(),
                any::<u32>(),
                any::<bool>()
            )
                .prop_map(|(seq, sent, rtt, open, is_dummy)| Body::Data {
                    seq,
                    sent,
                    rtt,
                    open,
                    is_dummy,
                }),
            (time.clone(), prop::collection::vec(seen, 0..MAX_SEEN))
                .prop_map(|(sent, seen)| Body::Report { sent, seen }),
            (any::<[u8; 20]>(), time.clone())
                .prop_map(|(header, sent)| Body::Coordinated { header, sent }),
            (any::<[u32; 3]>(), any::<u64>()).prop_map(|([number, group, first], bytes)| {
                Body::Request(Request {
                    number,
                    group,
                    first,
                    bytes,
                })
            }),
            (any::<u32>(), time.clone(), any::<bool>(), any::<bool>()).prop_map(
                |(seq, sent, again, cwr)| Body::Segment(Segment {
                    seq,
                    sent,
                    again,
                    cwr
                })
            ),
            (any::<u32>(), time, sack, any::<[bool; 2]>(), any::<u16>()).prop_map(
                |(next, echo, sack, [ece, again], marks)| Body::Ack(Ack {
                    next,
                    echo,
                    sack,
                    ece,
                    again,
                    marks
                })
            ),
        ]
    }

    proptest! {
        #[test]
        fn encoded_bodies_round_trip(body in body(), now in any::<u64>(), padding in 0..100_usize) {
            let mut bytes = Vec::new();
            write(Time::from_nanos(now), &body, &mut bytes);
            bytes.resize(bytes.len() + padding, 0);
            prop_assert_eq!(read(&bytes), Some((Time::from_nanos(now), body)));
        }

        #[test]
        fn anything_may_arrive(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
