//! MPEG video-specific header of each payload (RFC 2250 section 3.4).

use crate::wire::bytes::{u8_at, u32_at};

/// The fixed part of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VideoHeader {
    /// Temporal reference of the picture; ten bits.
    pub temporal_reference: u16,
    /// The payload contains a sequence header.
    pub sequence: bool,
    /// The payload begins with a slice, preceded only by headers.
    pub begins_slice: bool,
    /// The payload ends with the last byte of a slice.
    pub ends_slice: bool,
    /// 1 for I, 2 for P, 3 for B pictures; three bits.
    pub picture_type: u8,
    /// The four motion vector fields of the picture header, in the layout of the last byte.
    pub vectors: u8,
}

impl VideoHeader {
    /// Length of the fixed part in bytes.
    pub const LEN: usize = 4;

    /// Appends the header, without an extension. Excess bits of a field are truncated.
    pub fn emit(&self, out: &mut Vec<u8>) {
        //= rfc2250-3.4-fields
        let reference = self.temporal_reference.to_be_bytes();
        let flags = u8::from(self.sequence) << 5
            | u8::from(self.begins_slice) << 4
            | u8::from(self.ends_slice) << 3
            | self.picture_type & 7;
        out.extend_from_slice(&[reference[0] & 3, reference[1], flags, self.vectors]);
    }
}

/// A payload with validated lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoPayload<'a> {
    payload: &'a [u8],
    /// Offset of the elementary stream.
    start: usize,
}

impl<'a> VideoPayload<'a> {
    /// Validates all lengths, so that the accessors cannot fail.
    ///
    /// # Errors
    /// If the payload is shorter than its fields require.
    pub fn new_checked(payload: &'a [u8]) -> Result<Self, HeaderError> {
        let have = payload.len();
        let long_enough = |need: usize| {
            if have < need {
                Err(HeaderError { need, have })
            } else {
                Ok(())
            }
        };
        long_enough(VideoHeader::LEN)?;
        let mut start = VideoHeader::LEN;
        //= rfc2250-3.4.1-extension
        if u8_at(payload, 0) & EXTENDED != 0 {
            long_enough(start + WORD)?;
            let flags = u32_at(payload, start);
            start += WORD;
            if flags & COMPOSITE != 0 {
                start += WORD;
            }
            if flags & MORE != 0 {
                long_enough(start + 1)?;
                // The length counts 32-bit words, including itself.
                start += WORD * usize::from(u8_at(payload, start)).max(1);
            }
        }
        long_enough(start)?;
        Ok(Self { payload, start })
    }

    /// The fixed part of the header.
    pub fn header(&self) -> VideoHeader {
        let flags = u8_at(self.payload, 2);
        VideoHeader {
            temporal_reference: u16::from(u8_at(self.payload, 0) & 3) << 8
                | u16::from(u8_at(self.payload, 1)),
            sequence: flags & 0x20 != 0,
            begins_slice: flags & 0x10 != 0,
            ends_slice: flags & 0x08 != 0,
            picture_type: flags & 7,
            vectors: u8_at(self.payload, 3),
        }
    }

    /// The part of the elementary stream.
    pub fn data(&self) -> &'a [u8] {
        self.payload.get(self.start..).unwrap_or_default()
    }
}

/// A payload that ends within its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("truncated MPEG video header: {have} of {need} bytes")]
pub struct HeaderError {
    /// Length of the header in bytes, as far as known.
    pub need: usize,
    /// Available bytes.
    pub have: usize,
}

const WORD: usize = 4;
/// T flag in the first byte: an MPEG-2 extension follows.
const EXTENDED: u8 = 0x04;
/// E and D flags of the extension.
const MORE: u32 = 1 << 30;
const COMPOSITE: u32 = 1;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_round_trip(
            temporal_reference in 0_u16..1_024,
            flags: (bool, bool, bool),
            picture_type in 0_u8..8,
            vectors: u8,
            data in vec(any::<u8>(), 0..20),
        ) {
            //= rfc2250-3.4-fields (test)
            let (sequence, begins_slice, ends_slice) = flags;
            let header = VideoHeader {
                temporal_reference, sequence, begins_slice, ends_slice, picture_type, vectors,
            };
            let mut bytes = Vec::new();
            header.emit(&mut bytes);
            prop_assert_eq!(bytes.len(), VideoHeader::LEN);
            bytes.extend_from_slice(&data);
            let payload = VideoPayload::new_checked(&bytes).unwrap();
            prop_assert_eq!((payload.header(), payload.data()), (header, &data[..]));
        }

        #[test]
        fn random_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..40)) {
            if let Ok(payload) = VideoPayload::new_checked(&bytes) {
                let _ = payload.header();
                prop_assert!(payload.data().len() + VideoHeader::LEN <= bytes.len());
            }
        }
    }

    #[test]
    fn extensions_are_skipped() {
        //= rfc2250-3.4.1-extension (test)
        let data = |bytes: &[u8]| VideoPayload::new_checked(bytes).map(|p| p.data().to_vec());
        assert_eq!(data(&[4, 0, 0, 0, 0, 0, 0, 0, 9]), Ok(vec![9]));
        // A composite display extension, and two words of extension data.
        let both = [
            4, 0, 0, 0, 0x40, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 9,
        ];
        assert_eq!(data(&both), Ok(vec![9]));
        assert_eq!(data(&both[..19]), Err(HeaderError { need: 20, have: 19 }));
        assert_eq!(data(&both[..12]), Err(HeaderError { need: 13, have: 12 }));
        assert_eq!(data(&[4, 0, 0, 0]), Err(HeaderError { need: 8, have: 4 }));
        assert_eq!(data(&[0, 0]), Err(HeaderError { need: 4, have: 2 }));
    }
}
