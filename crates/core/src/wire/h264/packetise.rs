//! Packetiser: access unit to RTP payloads.

use super::annexb::{NalUnits, find_start_code, nal_units};
use super::{END, FU_A, IMPORTANCE, STAP_A, START, TYPE, is_sendable};

/// Splits an access unit in byte-stream format into RTP payloads of at most `max_payload` bytes,
/// and at most 65,535 bytes, the limit of a datagram.
///
/// Consecutive units that fit together are aggregated (STAP-A), units that exceed a payload are
/// fragmented (FU-A), and the others are sent as single units. Nothing is allocated: a payload
/// refers to `access_unit` until [`Payload::emit`] copies it.
///
/// # Errors
/// If `max_payload` is below 16, or the access unit does not begin with a start code, has no NAL
/// unit, or has one that RTP cannot carry.
pub fn packetise(access_unit: &[u8], max_payload: usize) -> Result<Payloads<'_>, PacketiseError> {
    if max_payload < MIN_PAYLOAD {
        return Err(PacketiseError::MaxPayload { max_payload });
    }
    let start = find_start_code(access_unit).ok_or(PacketiseError::NoStartCode)?;
    if access_unit[..start].iter().any(|byte| *byte != 0) {
        return Err(PacketiseError::NoStartCode);
    }
    let mut units = nal_units(access_unit);
    for nal in units.clone() {
        //= rfc6184-5.2-types
        if !is_sendable(nal) {
            return Err(PacketiseError::NalHeader { first: nal[0] });
        }
    }
    let next = Unit::take(&mut units).ok_or(PacketiseError::NoNalUnit)?;
    let max_payload = max_payload.min(usize::from(u16::MAX));
    Ok(Payloads {
        max_payload,
        units,
        next: Some(next),
        fragment: None,
    })
}

/// See [`packetise`].
#[derive(Clone, Debug)]
pub struct Payloads<'a> {
    max_payload: usize,
    /// The units after `next`.
    units: NalUnits<'a>,
    /// The next unit to be sent.
    next: Option<Unit<'a>>,
    /// The unit that is being fragmented: its first byte, and the unsent rest.
    fragment: Option<(u8, &'a [u8])>,
}

impl<'a> Iterator for Payloads<'a> {
    type Item = Payload<'a>;

    fn next(&mut self) -> Option<Payload<'a>> {
        if let Some((first, rest)) = self.fragment {
            return Some(self.fragment(first, rest, 0));
        }
        let unit = self.next.take()?;
        self.next = Unit::take(&mut self.units);
        //= rfc6184-5.6-single
        if unit.nal.len() <= self.max_payload {
            return Some(self.aggregate(unit));
        }
        //= rfc6184-5.8-header
        let (first, rest) = unit.nal.split_first()?;
        Some(self.fragment(*first, rest, START))
    }
}

impl<'a> Payloads<'a> {
    /// The next fragment of a unit with first byte `first` and unsent rest `rest`.
    fn fragment(&mut self, first: u8, rest: &'a [u8], start: u8) -> Payload<'a> {
        //= rfc6184-5.8-not-both
        // The unit exceeds a payload, so its first fragment is never its last one.
        let (body, rest) = rest.split_at(rest.len().min(self.max_payload - FU_HEADER));
        self.fragment = (!rest.is_empty()).then_some((first, rest));
        let end = if rest.is_empty() { END } else { 0 };
        let prefix = [first & IMPORTANCE | FU_A, start | end | first & TYPE];
        self.payload(Form::Fragment { prefix, body })
    }

    /// Aggregates `unit` with as many of its successors as fit.
    fn aggregate(&mut self, unit: Unit<'a>) -> Payload<'a> {
        let mut len = STAP_HEADER + SIZE + unit.nal.len();
        let (mut count, mut importance) = (1, unit.nal[0] & IMPORTANCE);
        while let Some(next) = &self.next
            && len + SIZE + next.nal.len() <= self.max_payload
        {
            //= rfc6184-5.7-header
            importance = importance.max(next.nal[0] & IMPORTANCE);
            len += SIZE + next.nal.len();
            count += 1;
            self.next = Unit::take(&mut self.units);
        }
        self.payload(match count {
            1 => Form::Single(unit.nal),
            _ => Form::Aggregate {
                header: importance | STAP_A,
                len,
                count,
                units: unit.remaining,
            },
        })
    }

    fn payload(&self, form: Form<'a>) -> Payload<'a> {
        //= rfc6184-5.1-marker
        Payload {
            form,
            marker: self.next.is_none() && self.fragment.is_none(),
        }
    }
}

/// One RTP payload, not serialised yet.
#[derive(Clone, Debug)]
pub struct Payload<'a> {
    form: Form<'a>,
    marker: bool,
}

impl Payload<'_> {
    /// Number of bytes that [`emit`](Self::emit) appends.
    #[expect(clippy::len_without_is_empty, reason = "no payload is empty")]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Aggregate { len, .. } => *len,
            Form::Fragment { body, .. } => FU_HEADER + body.len(),
            Form::Single(nal) => nal.len(),
        }
    }

    /// Whether this is the last payload of the access unit: the RTP marker bit.
    pub const fn marker(&self) -> bool {
        self.marker
    }

    /// Appends the payload.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match &self.form {
            Form::Aggregate {
                header,
                count,
                units,
                ..
            } => {
                out.push(*header);
                //= rfc6184-5.7.1-sizes
                for nal in units.clone().take(*count) {
                    out.extend_from_slice(&(nal.len() as u16).to_be_bytes());
                    out.extend_from_slice(nal);
                }
            }
            Form::Fragment { prefix, body } => {
                out.extend_from_slice(prefix);
                out.extend_from_slice(body);
            }
            Form::Single(nal) => out.extend_from_slice(nal),
        }
    }
}

#[derive(Clone, Debug)]
enum Form<'a> {
    /// STAP-A of the first `count` of `units`.
    Aggregate {
        header: u8,
        len: usize,
        count: usize,
        units: NalUnits<'a>,
    },
    /// FU-A.
    Fragment {
        prefix: [u8; FU_HEADER],
        body: &'a [u8],
    },
    Single(&'a [u8]),
}

#[derive(Clone, Debug)]
struct Unit<'a> {
    nal: &'a [u8],
    /// The unit and its successors.
    remaining: NalUnits<'a>,
}

impl<'a> Unit<'a> {
    fn take(units: &mut NalUnits<'a>) -> Option<Self> {
        let remaining = units.clone();
        units.next().map(|nal| Self { nal, remaining })
    }
}

/// Reason why an access unit cannot be packetised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketiseError {
    /// The maximum payload size is too small.
    #[error("payloads of {max_payload} bytes are too small: allow at least {MIN_PAYLOAD}")]
    MaxPayload {
        /// The requested maximum.
        max_payload: usize,
    },
    /// A NAL unit has the error bit, or a type that RFC 6184 redefines.
    #[error("a NAL unit begins with {first:#04x}, which RTP cannot carry: types 1 to 23 only")]
    NalHeader {
        /// First byte of the unit.
        first: u8,
    },
    /// The access unit has start codes only.
    #[error("the access unit has no NAL unit")]
    NoNalUnit,
    /// The access unit does not begin with a start code: not the byte-stream format.
    #[error(
        "the access unit does not begin with a start code: have the encoder write the \
         byte-stream format"
    )]
    NoStartCode,
}

/// Fits every path, and keeps the share of headers small.
const MIN_PAYLOAD: usize = 16;
const FU_HEADER: usize = 2;
const STAP_HEADER: usize = 1;
/// Length field of each unit in a STAP-A.
const SIZE: usize = 2;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::Depacketiser;
    use super::*;

    fn stream(nals: &[Vec<u8>]) -> Vec<u8> {
        nals.iter()
            .flat_map(|nal| [&[0, 0, 0, 1][..], nal].concat())
            .collect()
    }

    fn payloads(access_unit: &[u8], max_payload: usize) -> Vec<Vec<u8>> {
        let payloads = packetise(access_unit, max_payload).unwrap();
        let written = payloads.map(|payload| {
            let mut out = Vec::new();
            payload.emit(&mut out);
            assert_eq!(out.len(), payload.len());
            out
        });
        written.collect()
    }

    /// A NAL unit of `len` bytes without start codes in it.
    fn nal(first: u8, len: usize) -> Vec<u8> {
        let mut nal = vec![0x55; len];
        nal[0] = first;
        nal
    }

    proptest! {
        #[test]
        fn payloads_reassemble_to_the_access_unit(
            units in vec((1_u8..24, 0_u8..4, 1_usize..400), 1..8),
            max_payload in MIN_PAYLOAD..300,
        ) {
            //= rfc6184-5.1-marker (test)
            //= rfc6184-5.6-single (test)
            let nals: Vec<_> = units.iter().map(|(kind, nri, len)| nal(nri << 5 | kind, *len)).collect();
            let access_unit = stream(&nals);
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
        fn accepted_access_units_are_accepted_by_the_assembler(
            bytes in vec(prop_oneof![2 => Just(0_u8), 2 => Just(1), 1 => any::<u8>()], 0..400),
            max_payload in 0_usize..60,
        ) {
            let access_unit = [&[0, 0, 1, 0x65][..], &bytes].concat();
            for access_unit in [&access_unit[..], &bytes] {
                let Ok(payloads) = packetise(access_unit, max_payload) else {
                    continue;
                };
                // Start codes of three bytes become four bytes long.
                let codes = nal_units(access_unit).count();
                let mut assembler = Depacketiser::new(access_unit.len() + codes);
                for payload in payloads {
                    let mut out = Vec::new();
                    payload.emit(&mut out);
                    prop_assert_eq!(assembler.push(&out), Ok(()));
                }
                let joined = assembler.take().unwrap();
                prop_assert!(nal_units(&joined.data).eq(nal_units(access_unit)));
            }
        }
    }

    #[test]
    fn parameter_sets_are_aggregated() {
        //= rfc6184-5.7-header (test)
        //= rfc6184-5.7.1-sizes (test)
        let access_unit = stream(&[nal(0x27, 3), nal(0x68, 2), nal(0x65, 40)]);
        let found = payloads(&access_unit, 32);
        assert_eq!(found[0], [0x78, 0, 3, 0x27, 0x55, 0x55, 0, 2, 0x68, 0x55]);
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn large_units_are_fragmented() {
        //= rfc6184-5.8-header (test)
        //= rfc6184-5.8-not-both (test)
        let heads = |len| {
            let found = payloads(&stream(&[nal(0x65, len)]), 16);
            found
                .iter()
                .map(|p| (p[0], p[1], p.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(heads(16), [(0x65, 0x55, 16)]);
        assert_eq!(heads(17), [(0x7c, 0x85, 16), (0x7c, 0x45, 4)]);
        assert_eq!(heads(29), [(0x7c, 0x85, 16), (0x7c, 0x45, 16)]);
        assert_eq!(
            heads(30),
            [(0x7c, 0x85, 16), (0x7c, 0x05, 16), (0x7c, 0x45, 3)]
        );
    }

    #[test]
    fn invalid_access_units_are_rejected() {
        //= rfc6184-5.2-types (test)
        let error = |bytes: &[u8], max| packetise(bytes, max).unwrap_err();
        assert_eq!(
            error(&[0, 0, 1, 0x65], 15),
            PacketiseError::MaxPayload { max_payload: 15 }
        );
        assert_eq!(error(&[0, 0, 0, 9, 0x65], 100), PacketiseError::NoStartCode);
        assert_eq!(error(&[9, 0, 0, 1, 0x65], 100), PacketiseError::NoStartCode);
        assert_eq!(
            error(&[0, 0, 1, 0, 0, 0, 1], 100),
            PacketiseError::NoNalUnit
        );
        for first in [0x60, 0x78, 0x1f, 0xe5] {
            assert_eq!(
                error(&[0, 0, 1, 0x65, 1, 0, 0, 1, first], 100),
                PacketiseError::NalHeader { first }
            );
        }
    }
}
