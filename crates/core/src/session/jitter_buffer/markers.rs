//! Reliability of the RTP marker as the end of a picture.

/// Whether a marker ends a picture.
///
/// A marker on the last packet of a picture lets a receiver release the picture at once, but
/// receivers must not rely on it (RFC 6184 section 5.1): some senders set it on each NAL unit, and
/// some on none. Without it, a picture ends where the next one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Markers {
    /// Markers end pictures, as far as known.
    #[default]
    Assumed,
    /// Markers have ended pictures. A picture without a marker was left unfinished by its sender, as
    /// by senders that drop late frames; this number of them came in a row.
    Used(u8),
    /// This number of pictures in a row must end with a marker.
    Doubted(u8),
    /// Like `Used`, after a doubt.
    Proven(u8),
    /// A picture had a marker before its end.
    Unreliable,
}

impl Markers {
    pub(super) fn are_trusted(self) -> bool {
        matches!(self, Self::Assumed | Self::Used(_) | Self::Proven(_))
    }

    /// A packet with nothing but parameter sets, a delimiter or supplemental information has a
    /// marker: perhaps each unit has one.
    pub(super) fn on_marked_lead(&mut self) {
        if matches!(self, Self::Assumed | Self::Used(_)) {
            *self = Self::Doubted(DOUBTS);
        }
    }

    /// A picture went on after a marker.
    pub(super) fn on_contradiction(&mut self) {
        *self = Self::Unreliable;
    }

    /// A picture was complete with its marker.
    pub(super) fn on_use(&mut self) {
        *self = match *self {
            Self::Assumed | Self::Used(_) => Self::Used(0),
            Self::Proven(_) => Self::Proven(0),
            other => other,
        };
    }

    /// Another picture begins after a packet with a marker or without. Returns whether the one
    /// before has ended there; otherwise its rest was never sent.
    pub(super) fn on_end(&mut self, is_marked: bool) -> bool {
        let is_end = is_marked || !matches!(self, Self::Used(_) | Self::Proven(_));
        *self = match *self {
            Self::Unreliable => Self::Unreliable,
            Self::Used(missing) if !is_marked && missing < MAX_MISSING => Self::Used(missing + 1),
            Self::Proven(missing) if !is_marked && missing < MAX_MISSING => {
                Self::Proven(missing + 1)
            }
            _ if !is_marked => Self::Doubted(DOUBTS),
            Self::Doubted(1) => Self::Proven(0),
            Self::Doubted(left) => Self::Doubted(left - 1),
            settled => settled,
        };
        is_end
    }
}

/// A third of a second: more than the pictures of one slice that follow a key frame of several.
const DOUBTS: u8 = 10;
/// Unfinished pictures in a row, after which a sender is assumed to set no markers.
const MAX_MISSING: u8 = 2;
