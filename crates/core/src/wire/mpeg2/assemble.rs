//! Assembler: RTP payloads to an access unit.

use super::header::{HeaderError, VideoPayload};
use super::stream::{Contents, contents};

/// Joins the RTP payloads of one access unit, passed in sequence number order and without gaps.
///
/// A rejected payload is ignored, and [`take`](Self::take) then fails, because the access unit is
/// incomplete.
#[derive(Clone, Debug)]
pub struct Depacketiser {
    data: Vec<u8>,
    max_len: usize,
    broken: Option<AssembleError>,
}

impl Depacketiser {
    /// Limits an access unit to `max_len` bytes.
    pub const fn new(max_len: usize) -> Self {
        Self {
            data: Vec::new(),
            max_len,
            broken: None,
        }
    }

    /// Adds the next payload.
    ///
    /// # Errors
    /// If it is not an RFC 2250 payload, is the first one and does not begin with a start code, or
    /// exceeds the size limit.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), AssembleError> {
        let joined = self.join(payload);
        if let Err(error) = joined {
            self.broken.get_or_insert(error);
        }
        joined
    }

    /// Returns the access unit, and resets the assembler even on failure.
    ///
    /// # Errors
    /// The first error of the access unit.
    pub fn take(&mut self) -> Result<Picture, AssembleError> {
        let data = core::mem::take(&mut self.data);
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let contents = contents(&data);
        if !contents.slices {
            return Err(AssembleError::Empty);
        }
        Ok(Picture { data, contents })
    }

    /// Bytes of the access unit so far.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether the access unit has no bytes yet.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    fn join(&mut self, payload: &[u8]) -> Result<(), AssembleError> {
        let data = VideoPayload::new_checked(payload)
            .map_err(AssembleError::Header)?
            .data();
        let code = data.iter().position(|byte| *byte != 0);
        if self.data.is_empty() && !code.is_some_and(|at| at >= 2 && data[at] == 1) {
            return Err(AssembleError::NoStart);
        }
        if self.data.len() + data.len() > self.max_len {
            return Err(AssembleError::TooLarge {
                max_len: self.max_len,
            });
        }
        self.data.extend_from_slice(data);
        Ok(())
    }
}

/// A complete access unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Data in elementary stream format.
    pub data: Vec<u8>,
    /// Kinds of units in the access unit.
    pub contents: Contents,
}

/// Reason why payloads do not form an access unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// The access unit has no slice.
    #[error("the MPEG picture has no slice")]
    Empty,
    /// A payload ends within its header.
    #[error("{0}")]
    Header(HeaderError),
    /// The first payload begins within a slice.
    #[error("the first payload of the MPEG picture is missing")]
    NoStart,
    /// The access unit exceeds the size limit.
    #[error("the access unit exceeds {max_len} bytes: raise the limit if its size is legitimate")]
    TooLarge {
        /// As given to [`Depacketiser::new`].
        max_len: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(payloads: &[&[u8]]) -> Result<Picture, AssembleError> {
        let mut assembler = Depacketiser::new(24);
        for payload in payloads {
            let _ = assembler.push(payload);
        }
        let joined = assembler.take();
        assert!(assembler.is_empty());
        joined
    }

    #[test]
    fn key_frames_are_detected() {
        let head = [0, 0, 0x31, 0, 0, 0, 1, 0xb3, 0, 0, 1, 0, 0, 0x08];
        let slice = [0, 0, 0x19, 0, 0, 0, 1, 1, 7];
        let picture = join(&[&head, &slice]).unwrap();
        assert_eq!(picture.data.len(), 15);
        assert!(picture.contents.is_key_frame());
        let delta = [0, 0, 0x32, 0, 0, 0, 1, 0xb3, 0, 0, 1, 0, 0, 0x10];
        assert!(!join(&[&delta, &slice]).unwrap().contents.is_key_frame());
    }

    #[test]
    fn malformed_payloads_are_rejected() {
        assert_eq!(join(&[]), Err(AssembleError::Empty));
        assert_eq!(
            join(&[&[0, 0, 0, 0, 0, 0, 1, 0]]),
            Err(AssembleError::Empty)
        );
        assert_eq!(join(&[&[0, 0, 0, 0, 7]]), Err(AssembleError::NoStart));
        let cut = HeaderError { need: 4, have: 1 };
        assert_eq!(join(&[&[0]]), Err(AssembleError::Header(cut)));
        let whole = [0, 0, 0x19, 0, 0, 0, 1, 1, 7];
        assert_eq!(join(&[&whole, &[0]]), Err(AssembleError::Header(cut)));
        let many = [&whole[..]; 5];
        assert_eq!(join(&many), Err(AssembleError::TooLarge { max_len: 24 }));
        assert_eq!(join(&many[..4]).map(|p| p.data.len()), Ok(20));
    }
}
