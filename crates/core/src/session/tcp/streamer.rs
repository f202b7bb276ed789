//! A TCP sender joined with its encoder.

use super::player::PlayerRtcp;
use super::sender::TcpSender;
use crate::control::{Context, TimerReason};
use crate::endpoint::{Check, Endpoint, Input, Output, StreamInput};
use crate::media::EncodeError;
use crate::session::stream::EncodePipe;
use crate::units::Time;

/// A sender with its encoder: an [`Endpoint`] over a byte stream. Of the peer's data all but a BYE is
/// ignored.
///
/// It is done when the whole stream and its BYE were accepted by the connection, or when the player
/// has sent a BYE.
#[derive(Debug)]
pub struct TcpStreamer<P> {
    /// The sender.
    pub sender: TcpSender,
    pipe: P,
    error: Option<EncodeError>,
    player: PlayerRtcp,
    /// The connection accepted none of the last bytes, and nothing has happened since.
    is_full: bool,
    is_closed: bool,
}

impl<P: EncodePipe> TcpStreamer<P> {
    /// Joins a sender with an encoder.
    pub fn new(sender: TcpSender, pipe: P) -> Self {
        Self {
            sender,
            pipe,
            error: None,
            player: PlayerRtcp::default(),
            is_full: false,
            is_closed: false,
        }
    }

    /// Encoder error that ended the stream before the end of the source.
    pub const fn error(&self) -> Option<&EncodeError> {
        self.error.as_ref()
    }

    /// Whether the player has sent a BYE.
    pub const fn has_player_left(&self) -> bool {
        self.player.has_left()
    }

    /// Passes orders and encoded frames between sender and encoder, until the connection or the clock
    /// is needed.
    fn encode(&mut self, now: Time) {
        loop {
            while let Some(result) = self.pipe.poll() {
                if let Err(error) = &result
                    && error.is_failure()
                {
                    self.error.get_or_insert(error.clone());
                }
                self.sender.on_encoded(now, self.pipe.took(), result);
            }
            match self.sender.poll_order(now) {
                Some(order) => self.pipe.submit(order),
                None => return,
            }
        }
    }

    fn on_stream(&mut self, now: Time, input: StreamInput<'_>) {
        let sender = &mut self.sender;
        match input {
            StreamInput::Bytes(bytes) => {
                // Packets of another format are ignored once the player is served.
                let _ = self.player.on_bytes(bytes);
            }
            StreamInput::Closed => {
                sender.on_closed(now);
                self.is_closed = true;
            }
            StreamInput::Event(notification, view) => sender.on_event(now, notification, view),
            StreamInput::Queue {
                unsent,
                unacknowledged,
            } => sender.on_kernel(unsent, unacknowledged),
            StreamInput::View(view) => sender.on_view(now, view),
            StreamInput::Written(count) => sender.on_written(now, count),
        }
    }
}

impl<P: EncodePipe> Endpoint for TcpStreamer<P> {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        // The view that follows a write does not tell of more room.
        match input {
            Input::Stream(StreamInput::Written(count)) => self.is_full = count == 0,
            Input::Stream(StreamInput::View(_)) => {}
            _ => self.is_full = false,
        }
        match input {
            Input::Stream(input) => self.on_stream(cx.now, input),
            Input::Timeout => self.sender.on_timeout(cx.now),
            Input::Datagram(_) | Input::PeerChanged | Input::PathChanged => {}
        }
        Check::default()
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        if self.player.has_left() {
            return Output::Done(None);
        }
        self.encode(cx.now);
        if !self.is_full {
            buffer.extend_from_slice(self.sender.poll_write(cx.now));
            if !buffer.is_empty() {
                return Output::Write;
            }
        }
        let timer = self.sender.next_timeout();
        let timer = timer.map(|at| (at, TimerReason::Capture));
        if self.sender.is_done() && !self.is_closed {
            Output::Done(None)
        } else if self.sender.waits_for_room() {
            Output::WaitForRoom(timer)
        } else {
            Output::Wait(timer)
        }
    }
}
