//! Assembler: RTP payloads to an access unit.

use super::annexb::Contents;
use super::{END, FU_A, IMPORTANCE, STAP_A, START, TYPE, is_sendable};
use crate::wire::bytes::u16_at;

/// Joins the RTP payloads of one access unit, passed in sequence number order and without gaps, to
/// the byte-stream format.
///
/// A rejected payload is ignored, except that it discards a partly received fragmented unit.
/// [`take`](Self::take) then fails, because the access unit is incomplete.
#[derive(Clone, Debug)]
pub struct Depacketiser {
    data: Vec<u8>,
    max_len: usize,
    contents: Contents,
    /// First byte of the unit whose fragments are arriving, and its offset in `data`.
    fragment: Option<(u8, usize)>,
    broken: Option<AssembleError>,
}

impl Depacketiser {
    /// Limits an access unit to `max_len` bytes, start codes included.
    pub const fn new(max_len: usize) -> Self {
        Self {
            data: Vec::new(),
            max_len,
            contents: Contents {
                idr: false,
                sps: false,
                pps: false,
            },
            fragment: None,
            broken: None,
        }
    }

    /// Adds the next payload.
    ///
    /// # Errors
    /// If it is malformed, has a type that packetisation mode 1 excludes, does not continue the
    /// previous payload, or exceeds the size limit.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), AssembleError> {
        let taken = match *payload {
            [] => Err(AssembleError::Empty),
            [indicator, head, ref body @ ..] if indicator & !IMPORTANCE == FU_A => {
                self.fragment(indicator, head, body)
            }
            [_, ref units @ ..] if payload[0] & !IMPORTANCE == STAP_A => self.aggregate(units),
            _ => self.single(payload),
        };
        if let Err(error) = taken {
            if let Some((_, start)) = self.fragment.take() {
                self.data.truncate(start);
            }
            self.broken.get_or_insert(error);
        }
        taken
    }

    /// Returns the access unit, and resets the assembler even on failure.
    ///
    /// # Errors
    /// If a payload was rejected, a fragmented unit has no end, or no payload was added.
    pub fn take(&mut self) -> Result<AccessUnit, AssembleError> {
        let fresh = Self::new(self.max_len);
        let Self {
            data,
            contents,
            fragment,
            broken,
            ..
        } = core::mem::replace(self, fresh);
        match (broken, fragment) {
            (Some(error), _) => Err(error),
            (None, Some(_)) => Err(AssembleError::NoEnd),
            (None, None) if data.is_empty() => Err(AssembleError::Empty),
            (None, None) => Ok(AccessUnit { data, contents }),
        }
    }

    /// Bytes of the access unit so far.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether the access unit has no bytes yet.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    fn single(&mut self, nal: &[u8]) -> Result<(), AssembleError> {
        self.not_inside_fragment()?;
        self.unit(nal)
    }

    fn aggregate(&mut self, units: &[u8]) -> Result<(), AssembleError> {
        self.not_inside_fragment()?;
        let before = (self.data.len(), self.contents);
        let mut rest = units;
        while !rest.is_empty() {
            //= rfc6184-5.7.1-sizes
            let size = usize::from(u16_at(rest, 0));
            let taken = match rest
                .get(SIZE..)
                .and_then(|rest| rest.split_at_checked(size))
            {
                Some((nal, after)) => {
                    rest = after;
                    self.unit(nal)
                }
                None => Err(AssembleError::UnitCutOff {
                    size,
                    have: rest.len().saturating_sub(SIZE),
                }),
            };
            if taken.is_err() {
                self.data.truncate(before.0);
                self.contents = before.1;
                return taken;
            }
        }
        if self.data.len() == before.0 {
            Err(AssembleError::Empty)
        } else {
            Ok(())
        }
    }

    fn fragment(&mut self, indicator: u8, head: u8, body: &[u8]) -> Result<(), AssembleError> {
        //= rfc6184-5.8-header
        let first = indicator & IMPORTANCE | head & TYPE;
        if body.is_empty() {
            return Err(AssembleError::Empty);
        }
        if head & START != 0 {
            self.not_inside_fragment()?;
            //= rfc6184-5.8-not-both
            if head & END != 0 {
                return Err(AssembleError::StartAndEnd);
            }
            self.check_room(START_CODE.len() + 1 + body.len())?;
            let start = self.data.len();
            self.unit(&[first])?;
            self.fragment = Some((first, start));
        } else {
            //= rfc6184-5.8-continuity
            let (started, _) = self.fragment.ok_or(AssembleError::NoStart)?;
            if started != first {
                return Err(AssembleError::OtherUnit {
                    started,
                    found: first,
                });
            }
            self.check_room(body.len())?;
        }
        self.data.extend_from_slice(body);
        if head & END != 0 {
            self.fragment = None;
        }
        Ok(())
    }

    /// Appends a unit, or the first byte of one.
    fn unit(&mut self, nal: &[u8]) -> Result<(), AssembleError> {
        //= rfc6184-5.2-types
        if !is_sendable(nal) {
            return Err(nal.first().map_or(AssembleError::Empty, |first| {
                AssembleError::NalHeader { first: *first }
            }));
        }
        self.check_room(START_CODE.len() + nal.len())?;
        self.data.extend_from_slice(&START_CODE);
        self.data.extend_from_slice(nal);
        self.contents.add(nal);
        Ok(())
    }

    fn not_inside_fragment(&self) -> Result<(), AssembleError> {
        if self.fragment.is_some() {
            Err(AssembleError::NoEnd)
        } else {
            Ok(())
        }
    }

    fn check_room(&self, more: usize) -> Result<(), AssembleError> {
        let max_len = self.max_len;
        if self.data.len() + more > max_len {
            Err(AssembleError::TooLarge { max_len })
        } else {
            Ok(())
        }
    }
}

/// A complete access unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessUnit {
    /// Data in byte-stream format: a four-byte start code before every unit.
    pub data: Vec<u8>,
    /// Kinds of NAL units in the access unit.
    pub contents: Contents,
}

/// Reason why payloads do not form an access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// No payload was added, or a payload is empty.
    #[error("the H.264 payload is empty")]
    Empty,
    /// A unit has the error bit, or a type that packetisation mode 1 excludes.
    #[error(
        "H.264 payload or unit with first byte {first:#04x} is not allowed in packetisation mode 1"
    )]
    NalHeader {
        /// First byte of the unit.
        first: u8,
    },
    /// A fragmented unit has no end.
    #[error("the last fragment of the NAL unit is missing")]
    NoEnd,
    /// A fragmented unit has no start.
    #[error("the first fragment of the NAL unit is missing")]
    NoStart,
    /// A fragment follows a fragment of another unit.
    #[error("fragment of NAL unit {found:#04x} among those of {started:#04x}")]
    OtherUnit {
        /// First byte of the unit that was started.
        started: u8,
        /// First byte of the unit of this fragment.
        found: u8,
    },
    /// A fragment has both the start and the end bit.
    #[error("the fragment has both the start and the end bit")]
    StartAndEnd,
    /// The access unit exceeds the size limit.
    #[error("the access unit exceeds {max_len} bytes: raise the limit if its size is legitimate")]
    TooLarge {
        /// As given to [`Depacketiser::new`].
        max_len: usize,
    },
    /// A unit of an aggregate exceeds the payload.
    #[error("aggregated NAL unit of {size} bytes exceeds the payload: {have} bytes are left")]
    UnitCutOff {
        /// Size of the unit according to the payload.
        size: usize,
        /// Available bytes.
        have: usize,
    },
}

const START_CODE: [u8; 4] = [0, 0, 0, 1];
const SIZE: usize = 2;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn join(payloads: &[&[u8]]) -> Result<AccessUnit, AssembleError> {
        let mut assembler = Depacketiser::new(40);
        for payload in payloads {
            let _ = assembler.push(payload);
        }
        let joined = assembler.take();
        assert!(assembler.is_empty());
        joined
    }

    #[test]
    fn single_aggregated_and_fragmented_units_are_joined() {
        let joined = join(&[
            &[0x78, 0, 2, 0x67, 1, 0, 1, 0x68],
            &[0x06, 9],
            &[0x7c, 0x85, 2, 3],
            &[0x7c, 0x45, 4],
        ]);
        let data = vec![
            0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x68, 0, 0, 0, 1, 6, 9, 0, 0, 0, 1, 0x65, 2, 3, 4,
        ];
        let contents = Contents {
            idr: true,
            sps: true,
            pps: true,
        };
        assert_eq!(joined, Ok(AccessUnit { data, contents }));
    }

    #[test]
    fn malformed_payloads_are_rejected() {
        //= rfc6184-5.2-types (test)
        //= rfc6184-5.7.1-sizes (test)
        //= rfc6184-5.8-not-both (test)
        let error = |payload: &[u8]| join(&[payload]).unwrap_err();
        assert_eq!(error(&[]), AssembleError::Empty);
        assert_eq!(error(&[0x18]), AssembleError::Empty);
        assert_eq!(error(&[0x1c, 0x81]), AssembleError::Empty);
        assert_eq!(error(&[0x18, 0, 0]), AssembleError::Empty);
        assert_eq!(
            error(&[0x18, 0, 1, 0x65, 0]),
            AssembleError::UnitCutOff { size: 0, have: 0 }
        );
        assert_eq!(
            error(&[0x18, 0, 3, 0x65, 0]),
            AssembleError::UnitCutOff { size: 3, have: 2 }
        );
        for first in [0x00, 0x1c, 0x19, 0x1d, 0x1e, 0xe5] {
            assert_eq!(error(&[first]), AssembleError::NalHeader { first });
        }
        assert_eq!(
            error(&[0x18, 0, 1, 0x18]),
            AssembleError::NalHeader { first: 0x18 }
        );
        assert_eq!(
            error(&[0x1c, 0x98, 1]),
            AssembleError::NalHeader { first: 0x18 }
        );
        assert_eq!(error(&[0x1c, 0xc5, 1]), AssembleError::StartAndEnd);
    }

    #[test]
    fn incomplete_fragmented_units_are_rejected() {
        //= rfc6184-5.8-continuity (test)
        let start: &[u8] = &[0x7c, 0x85, 2];
        assert_eq!(join(&[start]), Err(AssembleError::NoEnd));
        assert_eq!(join(&[start, start]), Err(AssembleError::NoEnd));
        assert_eq!(join(&[start, &[0x06, 9]]), Err(AssembleError::NoEnd));
        assert_eq!(join(&[&[0x7c, 0x45, 2]]), Err(AssembleError::NoStart));
        let other = AssembleError::OtherUnit {
            started: 0x65,
            found: 0x61,
        };
        assert_eq!(join(&[start, &[0x7c, 0x41, 2]]), Err(other));
    }

    #[test]
    fn memory_is_bounded() {
        let too_large = Err(AssembleError::TooLarge { max_len: 40 });
        assert_eq!(join(&[&[1; 37]]), too_large);
        assert_eq!(
            join(&[&[0x1c, 0x81], &[0x1c; 39]]),
            Err(AssembleError::Empty)
        );
        assert_eq!(
            join(&[&[0x1c, 0x81, 1], &[&[0x1c, 1][..], &[2; 35]].concat()]),
            too_large
        );
        assert_eq!(join(&[&[1; 36]]).map(|unit| unit.data.len()), Ok(40));
    }

    proptest! {
        #[test]
        fn joined_units_fit_the_limit_and_begin_with_a_start_code(
            payloads in vec((0_u8..32, vec(any::<u8>(), 0..20)), 0..8),
        ) {
            let mut assembler = Depacketiser::new(64);
            for (first, rest) in payloads {
                let before = assembler.clone();
                if assembler.push(&[&[first][..], &rest].concat()).is_err() {
                    prop_assert!(assembler.len() <= before.len());
                }
                prop_assert!(assembler.len() <= 64);
            }
            if let Ok(unit) = assembler.take() {
                prop_assert!(unit.data.starts_with(&START_CODE));
            }
        }
    }
}
