//! RTP and RTCP packets on a byte stream, each behind its length in two bytes (RFC 4571).

use core::fmt;

/// Appends the length of a packet whose bytes `write` appends behind it.
///
/// # Errors
/// When the packet has more than 65,535 bytes; nothing is appended then.
pub fn emit(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), PacketTooLong> {
    //= rfc4571-2-length
    let at = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    write(out);
    let length = out.len() - at - LENGTH;
    let Ok(field) = u16::try_from(length) else {
        out.truncate(at);
        return Err(PacketTooLong {
            length,
            max: usize::from(u16::MAX),
        });
    };
    out[at..at + LENGTH].copy_from_slice(&field.to_be_bytes());
    Ok(())
}

/// Finds the packets in a byte stream, in whatever pieces it comes.
///
/// It holds what was pushed and not yet taken: who takes all packets after each push makes it hold
/// less than one packet.
#[derive(Clone, Debug)]
pub struct Deframer {
    bytes: Vec<u8>,
    /// What is before has been taken.
    at: usize,
    max_packet: usize,
}

impl Deframer {
    /// Takes packets of up to `max_packet` bytes; more than 65,535 cannot come.
    pub const fn new(max_packet: usize) -> Self {
        Self {
            bytes: Vec::new(),
            at: 0,
            max_packet,
        }
    }

    /// What came next on the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next packet, once all of it is there. Empty ones are passed over.
    ///
    /// # Errors
    /// When it is longer than it may be. The stream is of no use then: nothing in it says where the
    /// packet after it begins, except this length.
    pub fn next_packet(&mut self) -> Result<Option<&[u8]>, PacketTooLong> {
        loop {
            let rest = &self.bytes[self.at..];
            let Some((field, rest)) = rest.split_first_chunk::<LENGTH>() else {
                return Ok(None);
            };
            let length = usize::from(u16::from_be_bytes(*field));
            if length > self.max_packet {
                let max = self.max_packet;
                return Err(PacketTooLong { length, max });
            }
            if rest.len() < length {
                return Ok(None);
            }
            let start = self.at + LENGTH;
            self.at = start + length;
            //= rfc4571-2-null
            if length > 0 {
                return Ok(self.bytes.get(start..self.at));
            }
        }
    }

    /// What there is of a packet that is not whole.
    pub fn partial(&self) -> &[u8] {
        self.bytes.get(self.at + LENGTH..).unwrap_or_default()
    }

    /// Bytes of a packet that is not whole, its length included.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.at
    }
}

/// A packet that is longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketTooLong {
    /// Its length in bytes.
    pub length: usize,
    /// The longest one.
    pub max: usize,
}

impl fmt::Display for PacketTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { length, max } = self;
        write!(
            f,
            "a packet of {length} bytes where at most {max} are possible"
        )
    }
}

impl core::error::Error for PacketTooLong {}

/// Of the length field.
pub const LENGTH: usize = 2;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packets_come_back_however_the_stream_is_cut(
            packets in vec(vec(any::<u8>(), 0..300), 0..20),
            cuts in vec(1_usize..400, 1..60),
        ) {
            //= rfc4571-2-length (test)
            //= rfc4571-2-null (test)
            let mut stream = Vec::new();
            for packet in &packets {
                emit(&mut stream, |out| out.extend_from_slice(packet)).unwrap();
            }
            let mut deframer = Deframer::new(300);
            let mut found = Vec::new();
            let mut rest = &stream[..];
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                deframer.push(piece);
                while let Some(packet) = deframer.next_packet().unwrap() {
                    found.push(packet.to_vec());
                }
                prop_assert!(deframer.waiting() < 302);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            let sent: Vec<_> = packets.into_iter().filter(|p| !p.is_empty()).collect();
            prop_assert_eq!(found, sent);
            prop_assert_eq!(deframer.waiting(), 0);
        }
    }

    #[test]
    fn what_is_too_long_is_refused_at_both_ends() {
        let mut out = vec![7];
        let emitted = emit(&mut out, |out| out.resize(out.len() + 65_536, 0));
        let too_long = PacketTooLong {
            length: 65_536,
            max: 65_535,
        };
        assert_eq!((emitted, out), (Err(too_long), vec![7]));
        let mut deframer = Deframer::new(10);
        deframer.push(&[0, 11]);
        for _ in 0..2 {
            let refused = deframer.next_packet();
            assert_eq!(
                refused,
                Err(PacketTooLong {
                    length: 11,
                    max: 10
                })
            );
        }
    }
}
