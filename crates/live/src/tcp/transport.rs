//! A TCP connection, plain or under TLS.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};

use tidegate_core::endpoint::{Input, Output, StreamInput};
use tidegate_core::tcp_rate::TcpView;
use tidegate_core::units::Time;

use super::{TcpError, TcpSocket};
use crate::clock::Clock;
use crate::transport::{Failure, Received, Transport};

/// The connection of a session. Of a connection with an observer, its events and its state are inputs
/// as well.
#[derive(Debug)]
pub struct TcpTransport<'a> {
    socket: &'a mut TcpSocket,
    /// Next part of the state to pass on.
    next: Part,
    view: Option<TcpView>,
    is_full: bool,
}

/// A part of the state of the connection, in the order in which they are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Queue,
    Events,
    View,
    End,
}

impl<'a> TcpTransport<'a> {
    /// A transport over a connected socket.
    pub fn new(socket: &'a mut TcpSocket) -> Self {
        Self {
            socket,
            next: Part::Queue,
            view: None,
            is_full: false,
        }
    }
}

impl Transport for TcpTransport<'_> {
    fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        core::iter::once(self.socket.as_fd()).chain(self.socket.events())
    }

    fn receive<'b>(
        &'b mut self,
        source: usize,
        clock: Clock,
        buffer: &'b mut [u8],
    ) -> Result<Option<Received<'b>>, Failure> {
        // The events are read with the state.
        if source != CONNECTION {
            return Ok(None);
        }
        let read = self.socket.read(buffer);
        let Some(count) = read.map_err(Failure::Broken)? else {
            return Ok(None);
        };
        if count == 0 {
            let peer = self.socket.peer();
            let closed = TcpError::Closed { peer, cause: None };
            return Err(broken(closed));
        }
        Ok(Some(Received {
            at: clock.now(),
            is_new_peer: false,
            input: Input::Stream(StreamInput::Bytes(&buffer[..count])),
        }))
    }

    fn poll_state(&mut self, now: Time) -> Result<Option<Input<'_>>, Failure> {
        if self.next == Part::Queue {
            self.next = Part::Events;
            // The session offers the rest again.
            self.is_full = false;
            let queue = self.socket.backlog();
            let (unsent, unacknowledged) = queue.map_err(Failure::Broken)?;
            let stalled = self.socket.check_stall(now, unsent + unacknowledged);
            stalled.map_err(broken)?;
            return Ok(Some(Input::Stream(StreamInput::Queue {
                unsent,
                unacknowledged,
            })));
        }
        if self.next == Part::Events {
            let event = self.socket.next_event(now);
            if let Some((event, view)) = event.map_err(Failure::Broken)? {
                let view = self.view.insert(view);
                return Ok(Some(Input::Stream(StreamInput::Event(event, view))));
            }
            self.next = Part::View;
        }
        if self.next == Part::View {
            self.next = Part::End;
            let view = self.socket.view(now);
            if let Some(view) = view.map_err(Failure::Broken)? {
                let view = self.view.insert(view);
                return Ok(Some(Input::Stream(StreamInput::View(view))));
            }
        }
        self.next = Part::Queue;
        Ok(None)
    }

    fn transmit(&mut self, _: Output, payload: &[u8]) -> Result<usize, Failure> {
        let count = self.socket.write(payload).map_err(Failure::Broken)?;
        self.is_full = count == 0;
        // The written data affects the next decision.
        self.next = Part::View;
        Ok(count)
    }

    fn is_full(&self) -> bool {
        self.is_full
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(self.socket.peer())
    }
}

/// The caller of the driver gets the error again.
fn broken(error: TcpError) -> Failure {
    Failure::Broken(io::Error::other(error))
}

/// Source number of the connection.
const CONNECTION: usize = 0;
