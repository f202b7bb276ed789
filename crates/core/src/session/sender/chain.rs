//! Reference chain: the dependency of each frame on its predecessors, back to a key frame.

use crate::trace::KeyCause;

/// Tracks which frames the receiver can decode, to the sender's knowledge.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReferenceChain {
    last_key: Option<u64>,
    /// First frame since the last key frame that the receiver will not have.
    broken: Option<(u64, KeyCause)>,
    /// Last break that a key frame has repaired: from, to.
    repaired: Option<(u64, u64)>,
}

impl Default for ReferenceChain {
    fn default() -> Self {
        Self {
            last_key: None,
            broken: Some((0, KeyCause::First)),
            repaired: None,
        }
    }
}

impl ReferenceChain {
    /// A key frame was encoded. Later frames do not refer to earlier ones.
    pub(super) fn on_key(&mut self, frame: u64) {
        if let Some((from, _)) = self.broken.take() {
            self.repaired = Some((from, frame));
        }
        self.last_key = Some(frame);
    }

    /// The receiver will not have `frame`.
    pub(super) fn break_at(&mut self, frame: u64, cause: KeyCause) {
        if self.last_key.is_none_or(|key| frame >= key) {
            let (first, cause) = self
                .broken
                .map_or((frame, cause), |(f, c)| (f.min(frame), c));
            self.broken = Some((first, cause));
        }
    }

    /// Reason for which the next frame must be a key frame.
    pub(super) fn broken(&self) -> Option<KeyCause> {
        self.broken.map(|(_, cause)| cause)
    }

    /// Whether a delta frame refers to a frame that the receiver will not have.
    pub(super) fn is_orphan(&self, frame: u64) -> bool {
        self.broken.is_some_and(|(from, _)| frame > from)
            || self
                .repaired
                .is_some_and(|(from, to)| frame > from && frame < to)
    }

    /// Whether frames may still refer to `frame`: no key frame has followed it.
    pub(super) fn is_current(&self, frame: u64) -> bool {
        self.last_key.is_none_or(|key| frame >= key)
    }

    /// Number of frames since the last key frame.
    pub(super) fn since_key(&self, frame: u64) -> Option<u64> {
        self.last_key.map(|key| frame.saturating_sub(key))
    }

    /// Number of the last key frame.
    pub(super) fn last_key(&self) -> Option<u64> {
        self.last_key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_orphans_later_frames_until_the_key_frame() {
        let mut chain = ReferenceChain::default();
        assert_eq!(chain.broken(), Some(KeyCause::First));
        chain.on_key(0);
        chain.break_at(7, KeyCause::Repair);
        chain.break_at(5, KeyCause::Requested);
        assert!(!chain.is_orphan(5) && chain.is_orphan(6));
        chain.on_key(9);
        assert!(chain.broken().is_none());
        assert!(chain.is_orphan(8) && !chain.is_orphan(9) && !chain.is_orphan(10));
        // A late loss report for a frame before the key frame has no effect.
        chain.break_at(8, KeyCause::Repair);
        assert!(chain.broken().is_none() && !chain.is_current(8));
    }
}
