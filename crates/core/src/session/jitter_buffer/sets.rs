//! Parameter sets that a decoder has, and those that a session description gives it.

use crate::wire::h264;
use crate::wire::sdp::ParameterSets;

/// Parameter sets of the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Sets {
    /// Those of the session description, in byte-stream format; empty without.
    described: Vec<u8>,
    /// A sequence and a picture parameter set were in the stream.
    in_band: (bool, bool),
    /// Key frames that were discarded for lack of parameter sets.
    pub(super) missing: u64,
}

impl Sets {
    pub(super) fn new(described: Option<&ParameterSets>) -> Self {
        let units = described.into_iter().flat_map(ParameterSets::units);
        Self {
            described: units
                .flat_map(|unit| [&[0, 0, 0, 1], unit].concat())
                .collect(),
            in_band: (false, false),
            missing: 0,
        }
    }

    /// Whether key frames are decodable although none has had parameter sets.
    pub(super) fn are_apart(&self) -> bool {
        !self.described.is_empty() && self.in_band == (false, false)
    }

    /// Whether a decoder has a sequence and a picture parameter set.
    pub(super) fn are_known(&self) -> bool {
        !self.described.is_empty() || self.in_band == (true, true)
    }

    /// Records the sets of a key frame, and adds those that it lacks. Returns whether a decoder has
    /// all sets.
    //= rfc6184-8.1-sprop
    pub(super) fn complete(&mut self, key_frame: &mut Vec<u8>) -> bool {
        let contents = h264::contents(key_frame);
        self.in_band.0 |= contents.sps;
        self.in_band.1 |= contents.pps;
        if self.in_band == (true, true) {
            return true;
        }
        // Sets of the stream come later, and replace described ones.
        key_frame.splice(0..0, self.described.iter().copied());
        self.are_known()
    }

    /// Another source may have other sets.
    pub(super) fn forget(&mut self) {
        self.in_band = (false, false);
    }
}
