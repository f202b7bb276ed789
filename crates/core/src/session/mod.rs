//! Sender and receiver of an RTP media session, sans-I/O.
//!
//! [`sender::MediaSender`] packetises and paces frames so that they meet a delay bound.
//! [`receiver::MediaReceiver`] reassembles frames and generates feedback. [`stream::Streamer`]
//! joins a sender with an encoder.

pub mod breaker;
pub mod config;
mod contradictions;
pub mod feedback;
pub mod history;
pub mod jitter_buffer;
pub mod pacer;
mod packet_size;
mod parity;
pub mod pauses;
mod probes;
pub mod receiver;
pub mod receiver_reports;
pub mod receiver_stats;
pub mod relay_reports;
pub mod reordering;
mod report_clock;
pub mod sender;
pub mod setup;
mod slowdown_detector;
pub mod stream;
pub mod tcp;
