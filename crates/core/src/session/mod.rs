//! Sender and receiver of a media session, sans-I/O.
//!
//! [`sender::MediaSender`] turns frames into packets that keep a delay bound;
//! [`receiver::MediaReceiver`] turns packets into frames and says what it got;
//! [`stream::Streamer`] joins a sender with an encoder; [`bulk::Bulk`] sends as fast as its
//! controller lets it, to look at controllers alone.

pub mod assembler;
pub mod breaker;
pub mod bulk;
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
pub mod stream;
