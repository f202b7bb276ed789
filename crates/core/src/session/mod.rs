//! Sender and receiver of a media session, sans-I/O.
//!
//! [`sender::MediaSender`] turns frames into packets that keep a delay bound;
//! [`receiver::MediaReceiver`] turns packets into frames and says what it got;
//! [`stream::Streamer`] joins a sender with an encoder.

pub mod breaker;
pub mod config;
pub mod feedback;
pub mod fuzzing;
pub mod history;
pub mod jitter_buffer;
pub mod pacer;
mod path;
pub mod receiver;
pub mod receiver_stats;
pub mod rr_fallback;
pub mod sender;
mod slowdown_detector;
pub mod stream;
pub mod tcp;
