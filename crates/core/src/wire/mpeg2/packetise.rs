//! Packetiser: access unit to RTP payloads.

use super::header::VideoHeader;
use super::stream::{Kind, PictureHeader, picture_header, unit};

/// Splits an access unit of an elementary stream (a picture with the headers before it) into RTP
/// payloads of at most `max_payload` bytes, and at most 65,535 bytes, the limit of a datagram.
///
/// Headers are not fragmented. Slices that fit are sent whole, several per payload if possible;
/// others are fragmented. Zero stuffing (H.262 section 5.2.3, `zero_byte`) is omitted before the
/// first start code, and after a header as far as it does not fit. Nothing is allocated: a payload refers to `access_unit` until
/// [`Payload::emit`] copies it.
///
/// # Errors
/// If `max_payload` is below 265, or the access unit does not begin with a start code, has no
/// picture, or has a header that does not fit.
pub fn packetise(access_unit: &[u8], max_payload: usize) -> Result<Payloads<'_>, PacketiseError> {
    //= rfc2250-3.1-headers
    if max_payload < MIN_PAYLOAD {
        return Err(PacketiseError::MaxPayload { max_payload });
    }
    let max = max_payload.min(usize::from(u16::MAX)) - VideoHeader::LEN;
    let first = access_unit.iter().position(|byte| *byte != 0);
    if !first.is_some_and(|at| at >= 2 && access_unit[at] == 1) {
        return Err(PacketiseError::NoStartCode);
    }
    let mut picture = None;
    let start = skip_stuffing(access_unit, 0);
    let mut at = start;
    while let Some((kind, end)) = unit(access_unit, at) {
        if kind == Kind::Picture && picture.is_none() {
            picture = Some(picture_header(&access_unit[at..end]));
        }
        let len = header_len(&access_unit[at..end]);
        if kind != Kind::Slice && len > max {
            return Err(PacketiseError::Header { len, max });
        }
        at = end;
    }
    Ok(Payloads {
        data: access_unit,
        at: start,
        max,
        slice_end: None,
        picture: picture.ok_or(PacketiseError::NoPicture)?,
    })
}

/// See [`packetise`].
#[derive(Clone, Debug)]
pub struct Payloads<'a> {
    data: &'a [u8],
    at: usize,
    /// Maximum bytes of the elementary stream per payload.
    max: usize,
    /// End of the slice that is being fragmented.
    slice_end: Option<usize>,
    picture: PictureHeader,
}

impl<'a> Iterator for Payloads<'a> {
    type Item = Payload<'a>;

    fn next(&mut self) -> Option<Payload<'a>> {
        if self.at >= self.data.len() {
            return None;
        }
        let mut found = Found::default();
        let end = match self.slice_end {
            // The rest of a fragmented slice has a payload of its own: the next slice begins
            // another.
            //= rfc2250-3.1-slices
            Some(end) => self.fragment(end, &mut found),
            None => self.gather(&mut found),
        };
        let data = self.data.get(self.at..end)?;
        self.at = match self.slice_end {
            Some(_) => end,
            None => skip_stuffing(self.data, end),
        };
        Some(Payload {
            data,
            header: VideoHeader {
                temporal_reference: self.picture.temporal_reference,
                sequence: found.sequence,
                begins_slice: found.begins_slice,
                ends_slice: found.ends_slice,
                picture_type: self.picture.coding_type,
                vectors: self.picture.vectors,
            },
            //= rfc2250-3.3-marker
            marker: self.at == self.data.len(),
        })
    }
}

/// Contents of the payload so far.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
struct Found {
    sequence: bool,
    group: bool,
    picture: bool,
    begins_slice: bool,
    ends_slice: bool,
}

impl Found {
    /// Whether a unit must begin a new payload.
    fn refuses(self, kind: Kind) -> bool {
        //= rfc2250-3.1-order
        let after_picture = self.picture || self.begins_slice;
        match kind {
            Kind::Sequence => true,
            Kind::Group => self.group || after_picture,
            Kind::Picture => after_picture,
            Kind::Slice | Kind::Other => false,
        }
    }
}

impl Payloads<'_> {
    /// Gathers as many whole units as fit, or the beginning of a slice that does not fit. Returns
    /// the end.
    fn gather(&mut self, found: &mut Found) -> usize {
        let mut end = self.at;
        while let Some((kind, unit_end)) = unit(self.data, end) {
            let first = end == self.at;
            if !first && (found.refuses(kind) || unit_end - self.at > self.max) {
                break;
            }
            match kind {
                Kind::Sequence => found.sequence = true,
                Kind::Group => found.group = true,
                Kind::Picture => {
                    found.picture = true;
                    self.picture = picture_header(&self.data[end..unit_end]);
                }
                Kind::Slice => found.begins_slice = true,
                Kind::Other => {}
            }
            found.ends_slice = kind == Kind::Slice;
            if unit_end - self.at > self.max {
                return match kind {
                    Kind::Slice => self.fragment(unit_end, found),
                    // What exceeds the payload is stuffing: `packetise` has checked headers.
                    _ => self.at + self.max,
                };
            }
            end = unit_end;
        }
        end
    }

    /// The next fragment of a slice that ends at `slice_end`. Returns its end.
    fn fragment(&mut self, slice_end: usize, found: &mut Found) -> usize {
        let end = slice_end.min(self.at + self.max);
        found.ends_slice = end == slice_end;
        self.slice_end = (end < slice_end).then_some(slice_end);
        end
    }
}

/// Position of the start code after the zero stuffing at `at`; `at` if there is no stuffing, and the
/// end of the stream if only zeros follow.
fn skip_stuffing(stream: &[u8], at: usize) -> usize {
    let zeros = stream[at..].iter().position(|byte| *byte != 0);
    match zeros {
        Some(zeros) if stream[at + zeros] == 1 => at + zeros.saturating_sub(START_CODE_ZEROS),
        Some(_) => at,
        None => stream.len(),
    }
}

/// Length of a header without the zeros at its end, which may be stuffing.
fn header_len(unit: &[u8]) -> usize {
    unit.iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1)
}

/// One RTP payload, not serialised yet.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    header: VideoHeader,
    data: &'a [u8],
    marker: bool,
}

impl Payload<'_> {
    /// Number of bytes that [`emit`](Self::emit) appends.
    #[expect(clippy::len_without_is_empty, reason = "no payload is empty")]
    pub const fn len(&self) -> usize {
        VideoHeader::LEN + self.data.len()
    }

    /// Whether this is the last payload of the access unit: the RTP marker bit.
    pub const fn marker(&self) -> bool {
        self.marker
    }

    /// Appends the payload.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.header.emit(out);
        out.extend_from_slice(self.data);
    }
}

/// Reason why an access unit cannot be packetised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketiseError {
    /// A header does not fit, and headers must not be fragmented.
    #[error(
        "a header of {len} bytes does not fit into payloads for {max}: allow larger ones, or \
         have the encoder write less user data"
    )]
    Header {
        /// Length of the header.
        len: usize,
        /// Maximum length in a payload.
        max: usize,
    },
    /// The maximum payload size is too small.
    #[error("payloads of {max_payload} bytes are too small: allow at least {MIN_PAYLOAD}")]
    MaxPayload {
        /// The requested maximum.
        max_payload: usize,
    },
    /// The access unit has no picture header.
    #[error("the access unit has no picture")]
    NoPicture,
    /// The access unit does not begin with a start code: not an elementary stream.
    #[error(
        "the access unit does not begin with a start code: have the encoder write an elementary stream"
    )]
    NoStartCode,
}

/// The largest header of MPEG-2 has 261 bytes (RFC 2250 section 3.1).
const MIN_PAYLOAD: usize = 261 + VideoHeader::LEN;
/// Zeros of a start code; any before them are stuffing.
const START_CODE_ZEROS: usize = 2;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::{Depacketiser, VideoPayload};
    use super::*;
    use crate::wire::h264::nal_units;

    /// A unit of `len` bytes behind its start code.
    fn part(code: u8, len: usize) -> Vec<u8> {
        let mut part = vec![0, 0, 1, code];
        part.resize(4 + len, 0x55);
        part
    }

    /// Sequence header and extension, group, picture (P, temporal reference 515) and its extension.
    fn headers() -> Vec<u8> {
        let picture = [0, 0, 1, 0, 0x80, 0xd7, 0xff, 0xfb, 0x80];
        [
            part(0xb3, 8),
            part(0xb5, 6),
            part(0xb8, 4),
            picture.to_vec(),
            part(0xb5, 5),
        ]
        .concat()
    }

    fn cut(access_unit: &[u8], max_payload: usize) -> Vec<(VideoHeader, Vec<u8>)> {
        let payloads = packetise(access_unit, max_payload).unwrap();
        let read = payloads.map(|payload| {
            let mut out = Vec::new();
            payload.emit(&mut out);
            assert_eq!(out.len(), payload.len());
            let view = VideoPayload::new_checked(&out).unwrap();
            (view.header(), view.data().to_vec())
        });
        read.collect()
    }

    proptest! {
        #[test]
        fn payloads_reassemble_to_the_access_unit(
            slices in vec(1_usize..900, 1..40),
            max_payload in MIN_PAYLOAD..1_500,
        ) {
            //= rfc2250-3.3-marker (test)
            let mut access_unit = headers();
            for (n, len) in slices.iter().enumerate() {
                access_unit.extend(part(1 + n as u8, *len));
            }
            let mut assembler = Depacketiser::new(access_unit.len());
            let mut markers = Vec::new();
            for payload in packetise(&access_unit, max_payload).unwrap() {
                let mut out = Vec::new();
                payload.emit(&mut out);
                prop_assert!(out.len() <= max_payload && out.len() == payload.len());
                assembler.push(&out).unwrap();
                markers.push(payload.marker());
            }
            prop_assert_eq!(assembler.take().unwrap().data, access_unit);
            prop_assert_eq!(markers.pop(), Some(true));
            prop_assert!(!markers.contains(&true));
        }

        #[test]
        fn stuffed_access_units_reassemble_to_the_same_units(
            units in vec((any::<u8>(), 0_usize..300, 0_usize..700), 1..12),
            before in 2_usize..700,
            max_payload in MIN_PAYLOAD..600,
        ) {
            let mut access_unit = vec![0; before - 2];
            for (code, len, stuffing) in units {
                // Every second unit is a picture or a slice.
                let code = if code % 2 == 0 { code } else { code % 4 / 2 };
                access_unit.extend(part(code, len));
                access_unit.resize(access_unit.len() + stuffing, 0);
            }
            check(&access_unit, max_payload);
        }

        #[test]
        fn random_bytes_reassemble_to_the_same_units(
            bytes in vec(0_u8..3, 0..600),
            max_payload in 260_usize..300,
        ) {
            check(&[&[0, 0, 1, 0][..], &bytes].concat(), max_payload);
            check(&bytes, max_payload);
        }
    }

    /// If the access unit is accepted, the assembler accepts every payload, and returns the same
    /// units. Start codes are those of H.264, and so is stuffing.
    fn check(access_unit: &[u8], max_payload: usize) {
        let Ok(payloads) = packetise(access_unit, max_payload) else {
            return;
        };
        let mut assembler = Depacketiser::new(access_unit.len());
        let mut joined = Vec::new();
        let mut marker = false;
        for payload in payloads {
            let mut out = Vec::new();
            payload.emit(&mut out);
            assert!(out.len() <= max_payload && !marker);
            assembler.push(&out).unwrap();
            joined.extend_from_slice(&out[VideoHeader::LEN..]);
            marker = payload.marker();
        }
        assert!(marker);
        assert!(nal_units(&joined).eq(nal_units(access_unit)));
        let slices = super::super::contents(access_unit).slices;
        assert_eq!(assembler.take().is_ok(), slices);
    }

    #[test]
    fn stuffing_has_no_payload_of_its_own() {
        // Zeros before a slice before the picture, as before the sequence header, and zeros after
        // the picture header: more than a payload holds.
        let stuffing = vec![0; 700];
        let picture = part(0x00, 5);
        for first in [part(1, 40), part(0xb3, 8)] {
            let access_unit = [
                stuffing.clone(),
                first,
                picture.clone(),
                stuffing.clone(),
                part(2, 40),
            ]
            .concat();
            check(&access_unit, 300);
            let found = cut(&access_unit, 300);
            let heads: Vec<_> = found.iter().map(|(_, data)| data[..3].to_vec()).collect();
            assert_eq!(heads, vec![vec![0, 0, 1]; found.len()]);
        }
    }

    #[test]
    fn slices_begin_payloads_or_follow_complete_slices() {
        //= rfc2250-3.1-slices (test)
        //= rfc2250-3.1-headers (test)
        //= rfc2250-3.4-vectors (test)
        let access_unit = [
            headers(),
            part(1, 100),
            part(2, 700),
            part(3, 50),
            part(4, 50),
        ]
        .concat();
        let found = cut(&access_unit, 304);
        let flags: Vec<_> = found
            .iter()
            .map(|(h, data)| (h.sequence, h.begins_slice, h.ends_slice, data.len()))
            .collect();
        let headers = headers().len();
        assert_eq!(
            flags,
            [
                (true, true, true, headers + 104),
                (false, true, false, 300),
                (false, false, false, 300),
                (false, false, true, 104),
                (false, true, true, 108),
            ]
        );
        for (header, _) in found {
            assert_eq!((header.temporal_reference, header.picture_type), (515, 2));
            // forward_f_code is 7, as MPEG-2 requires.
            assert_eq!(header.vectors, 0x07);
        }
    }

    #[test]
    fn headers_are_placed_as_rfc_2250_requires() {
        //= rfc2250-3.1-order (test)
        let picture = [part(0x00, 5), part(1, 40)].concat();
        // Two fields, and a late sequence header.
        let access_unit = [
            headers(),
            part(1, 40),
            picture,
            part(0xb3, 8),
            part(0xb8, 4),
        ]
        .concat();
        let found = cut(&access_unit, 1_000);
        let heads: Vec<_> = found.iter().map(|(_, data)| data[3]).collect();
        assert_eq!(heads, [0xb3, 0x00, 0xb3]);
    }

    #[test]
    fn invalid_access_units_are_rejected() {
        let error = |bytes: &[u8], max| packetise(bytes, max).unwrap_err();
        assert_eq!(
            error(&headers(), 264),
            PacketiseError::MaxPayload { max_payload: 264 }
        );
        assert_eq!(error(&[0, 1, 0], 300), PacketiseError::NoStartCode);
        assert_eq!(error(&[], 300), PacketiseError::NoStartCode);
        assert_eq!(error(&part(1, 9), 300), PacketiseError::NoPicture);
        assert_eq!(error(&[0, 0, 1], 300), PacketiseError::NoPicture);
        let long = [headers(), part(0xb2, 293)].concat();
        assert_eq!(
            error(&long, 300),
            PacketiseError::Header { len: 297, max: 296 }
        );
    }
}
