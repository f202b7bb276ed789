//! A media session over kernel TCP, sans-I/O.
//!
//! TCP delivers everything in order and chooses its own rate, so what is left to the application is
//! what it makes and what it lets go before TCP has it. [`TcpSender`] captures, orders frames and
//! hands bytes to a driver that writes them when the socket takes them; [`RatePolicy`] decides the
//! rate of each frame and whether one that waits is still worth sending; [`Interactive`] does so by
//! what the connection tells of itself; [`TcpStreamer`] joins it
//! with its encoder. [`TcpReceiver`] turns bytes back into frames, and [`Punctuality`] says which of
//! them came in time. The drivers are `live::tcp` for sockets and `sim::interactive` for a model.
//!
//! On the wire: RTP packets (RFC 6184 or RFC 2250 payloads, told by their payload type), sender
//! reports and a goodbye, each behind its length (RFC 4571). A player that leaves says goodbye too,
//! for which a sender has a [`Listener`].

mod flight;
mod interactive;
mod packets;
mod rate_policy;
mod receiver;
mod sender;
mod shutdown;
mod streamer;

#[cfg(test)]
mod tests;

pub use interactive::Interactive;
pub use rate_policy::{
    Advice, Backlog, Classic, Follow, Place, RatePolicy, Verdict, Waiting, Work,
};
pub use receiver::{Punctuality, StreamFault, TcpReceiver};
pub use sender::{Capture, TcpSender, TcpSenderConfig};
pub use shutdown::Listener;
pub use streamer::TcpStreamer;
