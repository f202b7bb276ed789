//! Messages between a program and its decoder process.
//!
//! Requests go to the process and replies come back over one stream socket, strictly in turn. A
//! picture is in a file in memory (memfd) that both have, planes without gaps, when its reply
//! arrives. The program does not trust the process: a reply has a fixed length, and each field is
//! validated.

use crate::picture::Size;

/// Message to the decoder process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Decode an access unit, whose bytes follow. The process replies.
    Decode {
        /// Length of the access unit in bytes.
        len: u32,
    },
    /// Discard all reference pictures. No reply.
    Reset,
}

impl Request {
    /// Length of a request in bytes, without the access unit.
    pub const LEN: usize = 5;

    /// The bytes of the request.
    pub fn emit(self) -> [u8; Self::LEN] {
        let (kind, len) = match self {
            Self::Decode { len } => (DECODE, len),
            Self::Reset => (RESET, 0),
        };
        let [a, b, c, d] = len.to_be_bytes();
        [kind, a, b, c, d]
    }

    /// Parses a request. `None` if it is unknown.
    pub fn parse([kind, a, b, c, d]: [u8; Self::LEN]) -> Option<Self> {
        let len = u32::from_be_bytes([a, b, c, d]);
        match kind {
            DECODE => Some(Self::Decode { len }),
            RESET if len == 0 => Some(Self::Reset),
            _ => None,
        }
    }
}

/// Message from the decoder process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The process is ready. Sent once, before any request.
    Ready {
        /// System calls are filtered.
        filtered: bool,
    },
    /// The access unit has no picture.
    Nothing,
    /// The picture is displayed after a later one.
    Delayed,
    /// A picture without detected damage.
    Whole(Output),
    /// A picture with concealed parts.
    Damaged(Output),
}

/// A picture of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its size.
    pub size: Size,
    /// Number of access units by which its own precedes the one decoded last.
    pub behind: u8,
}

impl Reply {
    /// Length of a reply in bytes.
    pub const LEN: usize = 9;

    /// The bytes of the reply.
    pub fn emit(self) -> [u8; Self::LEN] {
        let (kind, width, height) = match self {
            Self::Ready { filtered } => (READY, u32::from(filtered), 0),
            Self::Nothing => (NOTHING, 0, 0),
            Self::Delayed => (DELAYED, 0, 0),
            Self::Whole(output) => (WHOLE, first_word(output), output.size.height()),
            Self::Damaged(output) => (DAMAGED, first_word(output), output.size.height()),
        };
        let mut bytes = [kind; Self::LEN];
        bytes[1..5].copy_from_slice(&width.to_be_bytes());
        bytes[5..].copy_from_slice(&height.to_be_bytes());
        bytes
    }

    /// Parses a reply of a decoder with the limit `max`.
    ///
    /// # Errors
    /// If the reply is unknown, or its picture is larger than the limit.
    pub fn parse(bytes: [u8; Self::LEN], max: Size) -> Result<Self, ReplyError> {
        let [kind, w0, w1, w2, w3, h0, h1, h2, h3] = bytes;
        let [width, height] = [[w0, w1, w2, w3], [h0, h1, h2, h3]].map(u32::from_be_bytes);
        let output = || {
            let size = Size::new(width & WIDTH, height).ok();
            size.filter(|size| size.luma() as u64 <= max.coded_samples())
                .map(|size| Output { size, behind: w0 })
                .ok_or(ReplyError {
                    kind,
                    width: width & WIDTH,
                    height,
                })
        };
        match (kind, width, height) {
            (READY, 0 | 1, 0) => Ok(Self::Ready {
                filtered: width == 1,
            }),
            (NOTHING, 0, 0) => Ok(Self::Nothing),
            (DELAYED, 0, 0) => Ok(Self::Delayed),
            (WHOLE, ..) => Ok(Self::Whole(output()?)),
            (DAMAGED, ..) => Ok(Self::Damaged(output()?)),
            _ => Err(ReplyError {
                kind,
                width,
                height,
            }),
        }
    }
}

/// A reply that a decoder process does not send unless it is faulty or taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid reply {kind:#04x} with a picture of {width}x{height}")]
pub struct ReplyError {
    /// Kind of the reply.
    pub kind: u8,
    /// Width of its picture.
    pub width: u32,
    /// Height of its picture.
    pub height: u32,
}

const DECODE: u8 = 1;
const RESET: u8 = 2;
const READY: u8 = 0x81;
const NOTHING: u8 = 0x82;
const WHOLE: u8 = 0x83;
const DAMAGED: u8 = 0x84;
const DELAYED: u8 = 0x85;
/// Width in its word; the highest byte is the number of access units that the picture is behind.
const WIDTH: u32 = 0x00ff_ffff;

fn first_word(output: Output) -> u32 {
    u32::from(output.behind) << 24 | output.size.width()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_reply_is_valid_or_an_error(bytes: [u8; Reply::LEN], kind in READY..=DELAYED) {
            let mut known = bytes;
            known[0] = kind;
            for bytes in [bytes, known] {
                if let Ok(reply) = Reply::parse(bytes, Size::LEVEL_5_2) {
                    prop_assert_eq!(reply.emit(), bytes);
                }
            }
        }

        #[test]
        fn requests_round_trip(len: u32) {
            for request in [Request::Decode { len }, Request::Reset] {
                prop_assert_eq!(Request::parse(request.emit()), Some(request));
            }
        }
    }

    #[test]
    fn replies_round_trip_up_to_the_limit() {
        let max = Size::new(640, 360).unwrap();
        let at_once = |size| Output { size, behind: 0 };
        for reply in [
            Reply::Ready { filtered: true },
            Reply::Ready { filtered: false },
            Reply::Nothing,
            Reply::Delayed,
            Reply::Whole(at_once(max)),
            Reply::Damaged(Output {
                size: Size::new(320, 720).unwrap(),
                behind: 16,
            }),
        ] {
            assert_eq!(Reply::parse(reply.emit(), max), Ok(reply));
        }
        let larger = Reply::Whole(at_once(Size::new(640, 386).unwrap())).emit();
        let error = Reply::parse(larger, max).unwrap_err();
        assert_eq!((error.width, error.height), (640, 386));
    }
}
