//! A sender over TCP and its encoder as one.

use super::sender::TcpSender;
use crate::media::EncodeError;
use crate::session::stream::EncodePipe;
use crate::units::Time;

/// A sender with the encoder that it orders frames from: what every driver of a [`TcpSender`] has,
/// whether its TCP is a kernel's or a model.
#[derive(Debug)]
pub struct TcpStreamer<P> {
    /// The sender.
    pub sender: TcpSender,
    pipe: P,
    error: Option<EncodeError>,
}

impl<P: EncodePipe> TcpStreamer<P> {
    /// Joins the two.
    pub fn new(sender: TcpSender, pipe: P) -> Self {
        Self {
            sender,
            pipe,
            error: None,
        }
    }

    /// Why the encoder gave up, if it did before the end of its source.
    pub const fn error(&self) -> Option<&EncodeError> {
        self.error.as_ref()
    }

    /// Captures what is due and moves orders and frames between the two, until there is nothing
    /// left to do without the socket or more time. A driver calls this after each input, and again
    /// after each frame that was written: it may have made room for the next one.
    pub fn turn(&mut self, now: Time) {
        self.sender.on_timeout(now);
        loop {
            while let Some(result) = self.pipe.poll() {
                if let Err(error) = &result
                    && *error != EncodeError::EndOfSource
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
