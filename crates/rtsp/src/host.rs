//! Interface of a connection to titles and streams.

use core::fmt;
use core::time::Duration;

use rtsp_types::StatusCode;
use tidegate_core::units::Time;

use crate::description::Description;
use crate::transport::ClientTransport;

/// Titles, and the streams to the client of one connection.
pub trait Host {
    /// Describes a title.
    ///
    /// # Errors
    /// The title does not exist, cannot be read, or cannot be sent to this client.
    fn describe(&mut self, title: &str) -> Result<Description, Refusal>;

    /// Reserves a stream of a title to ports of the client's host, or in its connection. Nothing is
    /// sent before [`play`](Self::play).
    ///
    /// # Errors
    /// As for [`describe`](Self::describe), or a limit is reached.
    fn set_up(&mut self, title: &str, transport: ClientTransport) -> Result<Reserved, Refusal>;

    /// Starts the stream, or continues it, at `from`; `None` is the present position.
    ///
    /// # Errors
    /// The position does not exist, or the stream has ended.
    fn play(&mut self, session: SessionId, from: Option<Duration>) -> Result<Playing, Refusal>;

    /// Stops the stream at its present position.
    fn pause(&mut self, session: SessionId);

    /// Ends the stream and forgets the session.
    fn tear_down(&mut self, session: SessionId);

    /// Time of the last datagram of the client.
    fn last_received(&self, session: SessionId) -> Option<Time>;
}

/// Identifier of a session: a secret of its client, which the host draws at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u128);

impl SessionId {
    /// Parses the 32 digits that [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let is_valid = text.len() == 32 && text.bytes().all(is_digit);
        let number = u128::from_str_radix(text, 16).ok();
        number.filter(|_| is_valid).map(Self)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A log must not contain the identifier.
impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(..)")
    }
}

/// A reserved stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The session.
    pub session: SessionId,
    /// Ports that RTP and RTCP over UDP are sent from.
    pub server_ports: (u16, u16),
    /// SSRC of the media.
    pub ssrc: u32,
}

/// A stream that plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Playing {
    /// Position of the first picture: that of the key frame at or before the requested one.
    pub from: Duration,
    /// Duration of the title; `None` without an end.
    pub end: Option<Duration>,
    /// RTP sequence number and timestamp of the first packet, if known.
    pub first: Option<(u16, u32)>,
}

/// A request that the host rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the response.
    pub status: Status,
    /// Explanation for the client, after the reason phrase.
    pub why: String,
}

/// Status codes of refusals (RFC 2326 section 11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 404
    NotFound,
    /// 415
    UnsupportedMediaType,
    /// 453
    NotEnoughBandwidth,
    /// 455
    NotValidInThisState,
    /// 457
    InvalidRange,
    /// 503
    ServiceUnavailable,
}

impl Status {
    pub(crate) fn code(self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NotFound,
            Self::UnsupportedMediaType => StatusCode::UnsupportedMediaType,
            Self::NotEnoughBandwidth => StatusCode::NotEnoughBandwidth,
            Self::NotValidInThisState => StatusCode::MethodNotValidInThisState,
            Self::InvalidRange => StatusCode::InvalidRange,
            Self::ServiceUnavailable => StatusCode::ServiceUnavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_read_as_they_are_written() {
        let id = SessionId(0x1f);
        assert_eq!(SessionId::parse(&id.to_string()), Some(id));
        assert_eq!(format!("{id:?}"), "SessionId(..)");
        for wrong in [
            "",
            "1f",
            "0000000000000000000000000000001F",
            "+000000000000000000000000000001f",
        ] {
            assert_eq!(SessionId::parse(wrong), None, "{wrong}");
        }
    }
}
