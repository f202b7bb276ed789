//! The UDP sockets of a session.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};

use tidegate_core::endpoint::{Check, Datagram, Input, Output};
use tidegate_core::units::Time;
use tidegate_core::wire::rtcp;

use super::{Arrival, Failure, Received, Transport};
use crate::clock::Clock;
use crate::route_watch::RouteWatch;
use crate::udp::Socket;

/// UDP sockets. Datagrams of all of them are received. Datagrams are sent from the first socket, RTCP
/// from that of [`Socket::rtcp`], if there is one.
///
/// Sockets for RTCP from other ports ([`Socket::from_host`]) are closed when a report that the endpoint
/// believes arrives at the first socket: the peer multiplexes RTCP with RTP (RFC 5761 section 5.1.1).
#[derive(Debug)]
pub struct UdpTransport {
    sockets: Vec<Socket>,
    /// Number of the source of the routes, and the route to the peer, if the session follows it.
    route: Option<(usize, RouteWatch)>,
    /// The socket of the last received datagram, and whether this was RTCP.
    heard: usize,
    is_rtcp: bool,
}

impl UdpTransport {
    /// A transport of these sockets.
    ///
    /// # Panics
    ///
    /// Without a socket, or with [`MAX_SOURCES`](super::MAX_SOURCES) or more.
    pub fn new(sockets: Vec<Socket>) -> Self {
        assert!(
            (1..super::MAX_SOURCES).contains(&sockets.len()),
            "a session has one to three sockets"
        );
        Self {
            sockets,
            route: None,
            heard: 0,
            is_rtcp: false,
        }
    }

    /// The first socket, which is connected, sends from another address of this host when the route to
    /// the peer has another one, as after a change from Wi-Fi to a cellular network. Without effect where
    /// the process may not watch the routes.
    #[must_use]
    pub fn following_route(mut self) -> Self {
        let watch = self.peer().and_then(|peer| RouteWatch::new(peer).ok());
        self.route = watch.map(|watch| (self.sockets.len(), watch));
        self
    }

    /// The open sockets.
    pub fn into_sockets(self) -> Vec<Socket> {
        self.sockets
    }
}

impl Transport for UdpTransport {
    fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let route = self.route.iter().map(|(_, route)| route.as_fd());
        self.sockets.iter().map(Socket::as_fd).chain(route)
    }

    fn receive<'a>(
        &'a mut self,
        source: usize,
        clock: Clock,
        buffer: &'a mut [u8],
    ) -> Result<Option<Received<'a>>, Failure> {
        if let Some((_, route)) = self.route.as_mut().filter(|(number, _)| *number == source) {
            route.on_readable(clock.now());
            return Ok(None);
        }
        // The socket may have been closed since the event.
        let Some(socket) = self.sockets.get_mut(source) else {
            return Ok(None);
        };
        self.heard = source;
        let Some(arrival) = socket.receive(clock, buffer).map_err(Failure::Lost)? else {
            return Ok(None);
        };
        let Arrival { at, ecn, dscp, .. } = arrival;
        let payload = &buffer[..arrival.length];
        self.is_rtcp = rtcp::is_rtcp(payload);
        Ok(Some(Received {
            at,
            is_new_peer: arrival.is_new_peer,
            input: Input::Datagram(Datagram { ecn, dscp, payload }),
        }))
    }

    fn on_check(&mut self, check: Check) {
        if let Some(socket) = self.sockets.get_mut(self.heard) {
            socket.on_check(check.source);
        }
        if self.heard == 0 && check.is_believed && self.is_rtcp {
            self.sockets.retain(|socket| !socket.is_rtcp_fallback());
        }
    }

    fn poll_state(&mut self, now: Time) -> Result<Option<Input<'_>>, Failure> {
        let Some((_, route)) = self.route.as_mut() else {
            return Ok(None);
        };
        if !route.poll(now) {
            return Ok(None);
        }
        if let Err(e) = self.sockets[0].reconnect() {
            route.retry(now);
            return Err(Failure::Lost(e));
        }
        Ok(Some(Input::PathChanged))
    }

    fn timer(&self) -> Option<Time> {
        self.route.as_ref()?.1.due()
    }

    fn transmit(&mut self, output: Output, payload: &[u8]) -> Result<usize, Failure> {
        let sent = match output {
            Output::Answer => self
                .sockets
                .get_mut(self.heard)
                .map_or(Ok(()), |socket| socket.answer(payload)),
            Output::Send(how) => {
                let for_rtcp = self.sockets.iter().position(Socket::is_for_rtcp);
                let from = for_rtcp.filter(|_| rtcp::is_rtcp(payload)).unwrap_or(0);
                self.sockets[from].send(payload, how)
            }
            _ => Ok(()),
        };
        sent.map(|()| payload.len()).map_err(Failure::Lost)
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.sockets[0].peer()
    }
}
