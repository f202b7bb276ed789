//! A sender and its encoder as one [`Endpoint`].

use core::fmt::Debug;
use core::time::Duration;

use super::sender::MediaSender;
use crate::control::Context;
use crate::endpoint::{Check, Endpoint, Input, Output};
use crate::media::{EncodeError, Encoded, FrameEncoder, FrameOrder};

/// An asynchronous encoder. At most one order is open at a time.
pub trait EncodePipe: Debug + Send {
    /// Starts to encode the ordered frame.
    fn submit(&mut self, order: FrameOrder);

    /// Returns the result when the encoder has finished. The driver passes [`Input::Timeout`]
    /// when a result may be available.
    fn poll(&mut self) -> Option<Result<Encoded, EncodeError>>;

    /// Encoding time of the result that [`poll`](Self::poll) returned last.
    fn took(&self) -> Duration {
        Duration::ZERO
    }
}

/// A synchronous encoder, as in simulated time.
#[derive(Debug)]
pub struct Direct<E> {
    encoder: E,
    ready: Option<Result<Encoded, EncodeError>>,
}

impl<E: FrameEncoder> Direct<E> {
    /// Wraps an encoder.
    pub fn new(encoder: E) -> Self {
        Self {
            encoder,
            ready: None,
        }
    }
}

impl<E: FrameEncoder> EncodePipe for Direct<E> {
    fn submit(&mut self, order: FrameOrder) {
        self.ready = Some(self.encoder.encode(&order));
    }

    fn poll(&mut self) -> Option<Result<Encoded, EncodeError>> {
        self.ready.take()
    }
}

impl<E: FrameEncoder + ?Sized> FrameEncoder for Box<E> {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        (**self).encode(order)
    }

    fn frame_rate(&self) -> crate::media::FrameRate {
        (**self).frame_rate()
    }
}

/// A sender with its encoder: captures, encodes and sends.
#[derive(Debug)]
pub struct Streamer<P> {
    sender: MediaSender,
    pipe: P,
    error: Option<EncodeError>,
}

impl<P: EncodePipe> Streamer<P> {
    /// Joins a sender with an encoder.
    pub fn new(sender: MediaSender, pipe: P) -> Self {
        Self {
            sender,
            pipe,
            error: None,
        }
    }

    /// The sender.
    pub fn sender(&self) -> &MediaSender {
        &self.sender
    }

    /// The sender, for example to drain its rows or to stop it.
    pub fn sender_mut(&mut self) -> &mut MediaSender {
        &mut self.sender
    }

    /// The encoder, for example to change its position in a stored stream.
    pub fn pipe_mut(&mut self) -> &mut P {
        &mut self.pipe
    }

    /// Encoder error that ended the stream before the end of the source.
    pub fn error(&self) -> Option<&EncodeError> {
        self.error.as_ref()
    }

    fn turn(&mut self, cx: &mut Context<'_>) {
        loop {
            while let Some(result) = self.pipe.poll() {
                if let Err(error) = &result
                    && error.is_failure()
                {
                    self.error.get_or_insert(error.clone());
                }
                self.sender.on_encoded(cx.now, result);
            }
            match self.sender.poll_order(cx) {
                Some(order) => self.pipe.submit(order),
                None => return,
            }
        }
    }
}

impl<P: EncodePipe> Endpoint for Streamer<P> {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        let check = self.sender.handle(cx, input);
        self.turn(cx);
        check
    }

    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        self.sender.poll(cx, buffer)
    }
}
