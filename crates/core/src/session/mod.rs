//! Sender and receiver of a media session, sans-I/O.
//!
//! [`sender::MediaSender`] turns frames into packets that keep a delay bound;
//! [`receiver::MediaReceiver`] turns packets into frames and says what it got;
//! [`stream::Streamer`] joins a sender with an encoder.

pub mod assembler;
pub mod breaker;
pub mod config;
pub mod feedback;
pub mod fuzzing;
pub mod history;
pub mod pacer;
mod path;
pub mod receiver;
pub mod reception;
pub mod reports_only;
pub mod sender;
mod slowing;
pub mod stream;
pub mod tcp;
