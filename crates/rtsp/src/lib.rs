//! RTSP 1.0 server (RFC 2326), sans-I/O.
//!
//! A [`Connection`] reads the requests of one client, calls a [`Host`] that has the titles and the
//! streams, and writes the responses. It has no clock, socket or thread. Messages are parsed by
//! `rtsp-types`; the headers that it does not parse safely from untrusted clients (`Transport`) are
//! parsed here.
//!
//! A title has one video stream, which is sent over UDP to the host of the connection and to no
//! other, or interleaved in the connection: the owner of the socket writes its packets between the
//! responses. Streams end with their connection.

mod connection;
mod description;
mod host;
mod range;
mod request;
mod transport;

pub use connection::{Connection, Limits};
pub use description::Description;
pub use host::{Host, Playing, Refusal, Reserved, SessionId, Status};
pub use range::{RangeError, start_of_range};
pub use transport::{
    Channels, ClientPorts, ClientTransport, Profile, TransportError, choose_transport,
};
