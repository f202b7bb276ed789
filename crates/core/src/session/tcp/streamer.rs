//! A TCP sender joined with its encoder.

use super::sender::TcpSender;
use crate::media::EncodeError;
use crate::session::stream::EncodePipe;
use crate::units::Time;

/// A sender with its encoder, shared by the drivers of a [`TcpSender`] over kernel TCP and over a
/// model.
#[derive(Debug)]
pub struct TcpStreamer<P> {
    /// The sender.
    pub sender: TcpSender,
    pipe: P,
    error: Option<EncodeError>,
}

impl<P: EncodePipe> TcpStreamer<P> {
    /// Joins a sender with an encoder.
    pub fn new(sender: TcpSender, pipe: P) -> Self {
        Self {
            sender,
            pipe,
            error: None,
        }
    }

    /// Encoder error that ended the stream before the end of the source.
    pub const fn error(&self) -> Option<&EncodeError> {
        self.error.as_ref()
    }

    /// Captures due frames and passes orders and encoded frames between sender and encoder, until
    /// the socket or the clock is needed. Drivers call this after each input, and after each
    /// written frame, which may have made room for the next one.
    pub fn turn(&mut self, now: Time) {
        self.sender.on_timeout(now);
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
}
