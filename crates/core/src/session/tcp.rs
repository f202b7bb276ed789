//! A media session over kernel TCP, sans-I/O.
//!
//! TCP delivers in order and chooses its own rate. The application can only choose the rate of each
//! frame and drop data before TCP accepts it. [`TcpSender`] captures and orders frames and passes
//! bytes to a driver, which writes them to the socket. [`RatePolicy`] decides the rate of each
//! frame and whether a waiting frame is still worth sending. [`Interactive`] is the policy that
//! uses the state of the connection. [`TcpStreamer`] joins a sender with its encoder.
//! [`TcpReceiver`] parses bytes to frames, and [`Punctuality`] decides which frames are in time.
//! The drivers are `live::tcp` for sockets and `sim::interactive` for a model.
//!
//! Wire format: RTP packets (payloads of RFC 6184 or RFC 2250, identified by their payload type),
//! sender reports and a BYE, each preceded by its length (RFC 4571). A player that connects sends a
//! receiver report first, and a player that leaves sends a BYE; [`PlayerRtcp`] detects both.

mod flight;
mod interactive;
mod packets;
mod player;
mod progress;
mod rate_policy;
mod receiver;
mod sender;
mod streamer;

#[cfg(test)]
mod tests;

pub use interactive::Interactive;
pub use player::{PlayerRtcp, first_report};
pub use progress::AckProgress;
pub use rate_policy::{
    Advice, Backlog, Classic, Follow, Place, RatePolicy, Verdict, Waiting, Work,
};
pub use receiver::{Punctuality, StreamFault, TcpReceiver};
pub use sender::{Capture, TcpSender, TcpSenderConfig};
pub use streamer::TcpStreamer;
