//! RTP and RTCP packets on a byte stream, each preceded by a two-byte length (RFC 4571).

/// Appends a length field and the packet that `write` appends.
///
/// # Errors
/// If the packet exceeds 65,535 bytes; nothing is appended then.
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

/// Extracts the packets of a byte stream, which may arrive in arbitrary pieces.
///
/// Buffers pushed bytes until they are extracted: less than one packet, if all packets are
/// extracted after each push.
#[derive(Clone, Debug)]
pub struct Deframer {
    bytes: Vec<u8>,
    /// Bytes before this offset have been extracted.
    at: usize,
    max_packet: usize,
}

impl Deframer {
    /// Accepts packets of up to `max_packet` bytes; the format is limited to 65,535.
    pub const fn new(max_packet: usize) -> Self {
        Self {
            bytes: Vec::new(),
            at: 0,
            max_packet,
        }
    }

    /// Appends bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next packet, once it is complete. Empty packets are skipped.
    ///
    /// # Errors
    /// If the packet exceeds the limit. The rest of the stream is then unusable.
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

    /// The available bytes of an incomplete packet.
    pub fn partial(&self) -> &[u8] {
        self.bytes.get(self.at + LENGTH..).unwrap_or_default()
    }

    /// Bytes of an incomplete packet, its length field included.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.at
    }
}

/// A packet that exceeds the maximum length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packet of {length} bytes exceeds the maximum of {max}")]
pub struct PacketTooLong {
    /// Length of the packet in bytes.
    pub length: usize,
    /// Maximum length in bytes.
    pub max: usize,
}

/// Size of the length field in bytes.
pub const LENGTH: usize = 2;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packets_are_extracted_from_any_fragmentation(
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
    fn too_long_packets_are_rejected_by_both_ends() {
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
