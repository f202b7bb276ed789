//! RTP packets (RFC 3550 section 5, header extensions of RFC 8285).

use super::bytes::{u8_at, u16_at, u32_at};

/// An RTP packet with validated version and lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpPacket<'a> {
    bytes: &'a [u8],
    /// Offset of the payload.
    start: usize,
    /// End of the payload, where the padding starts.
    end: usize,
}

impl<'a> RtpPacket<'a> {
    /// Validates all lengths, so that the accessors cannot fail.
    ///
    /// # Errors
    /// If the packet is shorter than its fields require, has another version, or has an invalid
    /// padding count.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, RtpError> {
        let have = bytes.len();
        let long_enough = |need: usize| {
            if have < need {
                Err(RtpError::Truncated { need, have })
            } else {
                Ok(())
            }
        };
        long_enough(RtpHeader::LEN)?;
        //= rfc3550-5.1-version
        let first = u8_at(bytes, 0);
        if first >> 6 != VERSION {
            return Err(RtpError::Version {
                version: first >> 6,
            });
        }
        //= rfc3550-5.1-csrc
        let mut start = RtpHeader::LEN + 4 * usize::from(first & 0x0f);
        //= rfc3550-5.3.1-extension
        if first & EXTENDED != 0 {
            long_enough(start + 4)?;
            start += 4 + 4 * usize::from(u16_at(bytes, start + 2));
        }
        long_enough(start)?;
        let mut end = have;
        //= rfc3550-5.1-padding
        if first & 0x20 != 0 {
            let padding = u8_at(bytes, have - 1);
            let room = have - start;
            if padding == 0 || usize::from(padding) > room {
                return Err(RtpError::Padding { padding, room });
            }
            end -= usize::from(padding);
        }
        Ok(Self { bytes, start, end })
    }

    /// The fixed header.
    pub fn header(&self) -> RtpHeader {
        let second = u8_at(self.bytes, 1);
        RtpHeader {
            payload_type: PayloadType(second & 0x7f),
            sequence: u16_at(self.bytes, 2),
            timestamp: u32_at(self.bytes, 4),
            ssrc: u32_at(self.bytes, 8),
            marker: second & 0x80 != 0,
        }
    }

    /// The contributing sources, at most 15.
    pub fn csrcs(&self) -> impl Iterator<Item = u32> + 'a {
        let bytes = self.bytes;
        (0..self.csrc_count()).map(move |i| u32_at(bytes, RtpHeader::LEN + 4 * i))
    }

    /// The header extension.
    pub fn extension(&self) -> Option<RtpExtension<'a>> {
        let at = RtpHeader::LEN + 4 * self.csrc_count();
        (u8_at(self.bytes, 0) & EXTENDED != 0).then(|| RtpExtension {
            profile: u16_at(self.bytes, at),
            data: self.bytes.get(at + 4..self.start).unwrap_or_default(),
        })
    }

    /// CSRCs and header extension: the bytes between the fixed header and the payload.
    pub fn header_tail(&self) -> &'a [u8] {
        self.bytes
            .get(RtpHeader::LEN..self.start)
            .unwrap_or_default()
    }

    /// The payload without padding.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Number of padding bytes after the payload.
    pub fn padding(&self) -> u8 {
        (self.bytes.len() - self.end) as u8
    }

    /// The whole packet.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn csrc_count(&self) -> usize {
        usize::from(u8_at(self.bytes, 0) & 0x0f)
    }
}

/// The fixed part of an RTP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpHeader {
    /// Payload type.
    pub payload_type: PayloadType,
    /// Sequence number, modulo 2¹⁶.
    pub sequence: u16,
    /// Sampling time of the first byte of the payload, in units of the payload's clock.
    pub timestamp: u32,
    /// Synchronisation source.
    pub ssrc: u32,
    /// For video: the last packet of a frame.
    pub marker: bool,
}

impl RtpHeader {
    /// Length of the fixed header in bytes.
    pub const LEN: usize = 12;
    /// Length of a header extension of one element of two bytes, its own header included.
    pub const ELEMENT_LEN: usize = 8;

    /// Appends the header, without padding, extension or contributing sources. The caller appends
    /// the payload.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.emit_first(VERSION << 6, out);
    }

    /// Like [`emit`](Self::emit), with a header extension of one element with a one-byte header
    /// (RFC 8285 section 4.2): identifier `id`, in 1..=14, and a value of two bytes. Adds
    /// [`ELEMENT_LEN`](Self::ELEMENT_LEN) bytes.
    pub fn emit_with_element(&self, id: u8, value: [u8; 2], out: &mut Vec<u8>) {
        self.emit_first(VERSION << 6 | EXTENDED, out);
        out.extend_from_slice(&ONE_BYTE.to_be_bytes());
        out.extend_from_slice(&[0, 1, id << 4 | 1, value[0], value[1], 0]);
    }

    /// Like `emit`, with the flags and the CSRC count of the first byte `first`.
    pub(super) fn emit_first(&self, first: u8, out: &mut Vec<u8>) {
        let mut bytes = [0; Self::LEN];
        bytes[0] = first;
        bytes[1] = u8::from(self.marker) << 7 | self.payload_type.0;
        bytes[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.timestamp.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.ssrc.to_be_bytes());
        out.extend_from_slice(&bytes);
    }
}

/// An RTP payload type: seven bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadType(u8);

impl PayloadType {
    /// `None` above 127.
    pub const fn new(number: u8) -> Option<Self> {
        if number < 0x80 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number, 0..=127.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Header extension of an RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpExtension<'a> {
    /// 0xBEDE for one-byte, 0x100x for two-byte element headers (RFC 8285); otherwise
    /// profile-specific.
    pub profile: u16,
    /// Data after the extension's own four-byte header; a multiple of four bytes.
    pub data: &'a [u8],
}

impl<'a> RtpExtension<'a> {
    /// The elements of RFC 8285, up to the first truncated one. Empty for other profiles.
    pub fn elements(&self) -> RtpElements<'a> {
        let (rest, two_byte) = match self.profile {
            ONE_BYTE => (self.data, false),
            profile if profile & 0xfff0 == TWO_BYTE => (self.data, true),
            _ => (&[][..], false),
        };
        RtpElements { rest, two_byte }
    }
}

/// See [`RtpExtension::elements`].
#[derive(Clone, Debug)]
pub struct RtpElements<'a> {
    rest: &'a [u8],
    two_byte: bool,
}

impl<'a> Iterator for RtpElements<'a> {
    /// Identifier and value.
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // A zero byte is padding in both forms.
        while let [0, rest @ ..] = self.rest {
            self.rest = rest;
        }
        let (id, len, rest) = match *self.rest {
            [id, len, ref rest @ ..] if self.two_byte => (id, usize::from(len), rest),
            // Identifier 15 is reserved: it ends the list (RFC 8285 section 4.2).
            [head, ref rest @ ..] if !self.two_byte && head >> 4 != 15 => {
                (head >> 4, usize::from(head & 0x0f) + 1, rest)
            }
            _ => return self.end(),
        };
        let Some((value, rest)) = rest.split_at_checked(len) else {
            return self.end();
        };
        self.rest = rest;
        Some((id, value))
    }
}

impl RtpElements<'_> {
    fn end<T>(&mut self) -> Option<T> {
        self.rest = &[];
        None
    }
}

/// Reason why bytes are not an RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RtpError {
    /// The padding count is zero or exceeds the bytes after the header.
    #[error("invalid RTP padding count {padding}: must be 1 to {room}")]
    Padding {
        /// Padding count in the last byte.
        padding: u8,
        /// Bytes after the header.
        room: usize,
    },
    /// The packet ends within its header.
    #[error("truncated RTP header: {have} of {need} bytes")]
    Truncated {
        /// Length of the header in bytes, as far as known.
        need: usize,
        /// Available bytes.
        have: usize,
    },
    /// The version is not 2.
    #[error("RTP version {version} where 2 is expected")]
    Version {
        /// Version in the packet.
        version: u8,
    },
}

pub(super) const VERSION: u8 = 2;
/// The X bit of the first byte.
const EXTENDED: u8 = 0x10;
const ONE_BYTE: u16 = 0xbede;
const TWO_BYTE: u16 = 0x1000;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn header() -> impl Strategy<Value = RtpHeader> {
        (0_u8..128, any::<(u16, u32, u32, bool)>()).prop_map(
            |(pt, (sequence, timestamp, ssrc, marker))| RtpHeader {
                payload_type: PayloadType(pt),
                sequence,
                timestamp,
                ssrc,
                marker,
            },
        )
    }

    proptest! {
        #[test]
        fn headers_round_trip(header in header(), payload in vec(any::<u8>(), 0..64)) {
            let mut bytes = Vec::new();
            header.emit(&mut bytes);
            prop_assert_eq!(bytes.len(), RtpHeader::LEN);
            bytes.extend_from_slice(&payload);
            let packet = RtpPacket::new_checked(&bytes).unwrap();
            prop_assert_eq!(packet.header(), header);
            prop_assert_eq!(packet.payload(), &payload);
            prop_assert_eq!((packet.padding(), packet.csrcs().count(), packet.extension()), (0, 0, None));
        }

        #[test]
        fn elements_round_trip(header in header(), id in 1_u8..15, value: [u8; 2]) {
            let mut bytes = Vec::new();
            header.emit_with_element(id, value, &mut bytes);
            prop_assert_eq!(bytes.len(), RtpHeader::LEN + RtpHeader::ELEMENT_LEN);
            let packet = RtpPacket::new_checked(&bytes).unwrap();
            prop_assert_eq!(packet.header(), header);
            let elements: Vec<_> = packet.extension().unwrap().elements().collect();
            prop_assert_eq!(elements, [(id, &value[..])]);
        }

        #[test]
        fn all_optional_parts_are_parsed(
            header in header(),
            csrcs in vec(any::<u32>(), 0..=15),
            words in proptest::option::of(vec(any::<u32>(), 0..5)),
            payload in vec(any::<u8>(), 0..64),
            padding: u8,
        ) {
            //= rfc3550-5.1-csrc (test)
            //= rfc3550-5.1-padding (test)
            //= rfc3550-5.3.1-extension (test)
            let mut bytes = Vec::new();
            let flags = u8::from(words.is_some()) << 4 | u8::from(padding > 0) << 5;
            header.emit_first(0x80 | flags | csrcs.len() as u8, &mut bytes);
            bytes.extend(csrcs.iter().flat_map(|c| c.to_be_bytes()));
            let data: Vec<u8> = words.iter().flatten().flat_map(|w| w.to_be_bytes()).collect();
            if let Some(words) = &words {
                bytes.extend_from_slice(&[0xab, 0xac, 0, words.len() as u8]);
                bytes.extend_from_slice(&data);
            }
            bytes.extend_from_slice(&payload);
            bytes.extend((0..padding).map(|i| if i + 1 == padding { padding } else { 0 }));

            let packet = RtpPacket::new_checked(&bytes).unwrap();
            prop_assert_eq!(packet.header(), header);
            prop_assert_eq!(packet.csrcs().collect::<Vec<_>>(), csrcs);
            prop_assert_eq!(packet.extension().map(|e| (e.profile, e.data)), words.map(|_| (0xabac, &data[..])));
            prop_assert_eq!(packet.payload(), &payload);
            prop_assert_eq!(packet.padding(), padding);
            for cut in 0..bytes.len() - payload.len() - usize::from(padding) {
                prop_assert!(RtpPacket::new_checked(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn random_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..80)) {
            if let Ok(packet) = RtpPacket::new_checked(&bytes) {
                let whole = RtpHeader::LEN + packet.header_tail().len() + packet.payload().len();
                prop_assert_eq!(whole + usize::from(packet.padding()), bytes.len());
                let _ = packet.extension().map(|e| e.elements().count());
            }
        }
    }

    #[test]
    fn errors_name_the_invalid_field() {
        //= rfc3550-5.1-version (test)
        let mut bytes = [0; 14];
        assert_eq!(
            RtpPacket::new_checked(&bytes),
            Err(RtpError::Version { version: 0 })
        );
        assert_eq!(
            RtpPacket::new_checked(&[0x80; 5]),
            Err(RtpError::Truncated { need: 12, have: 5 })
        );
        bytes[0] = 0xa0;
        assert_eq!(
            RtpPacket::new_checked(&bytes),
            Err(RtpError::Padding {
                padding: 0,
                room: 2
            })
        );
        bytes[13] = 3;
        assert_eq!(
            RtpPacket::new_checked(&bytes),
            Err(RtpError::Padding {
                padding: 3,
                room: 2
            })
        );
        bytes[13] = 2;
        assert!(RtpPacket::new_checked(&bytes).unwrap().payload().is_empty());
        bytes[0] = 0x90;
        bytes[13] = 0;
        assert_eq!(
            RtpPacket::new_checked(&bytes),
            Err(RtpError::Truncated { need: 16, have: 14 })
        );
    }

    #[test]
    fn both_forms_of_extension_elements_are_parsed() {
        let one = RtpExtension {
            profile: 0xbede,
            data: &[0x10, 7, 0, 0, 0x21, 8, 9, 0xf0],
        };
        assert_eq!(
            one.elements().collect::<Vec<_>>(),
            [(1, &[7][..]), (2, &[8, 9][..])]
        );
        let two = RtpExtension {
            profile: 0x1003,
            data: &[1, 0, 0, 2, 2, 8, 9, 0],
        };
        assert_eq!(
            two.elements().collect::<Vec<_>>(),
            [(1, &[][..]), (2, &[8, 9][..])]
        );
        let cut = RtpExtension {
            profile: 0xbede,
            data: &[0x13, 1, 2, 3],
        };
        assert_eq!(cut.elements().count(), 0);
        let other = RtpExtension {
            profile: 1,
            data: &[0x10, 7, 0, 0],
        };
        assert_eq!(other.elements().count(), 0);
    }
}
