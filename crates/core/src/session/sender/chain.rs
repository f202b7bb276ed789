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
    /// The last leading picture of the last key frame. Nothing depends on leading pictures.
    leading: Option<u64>,
    /// The receiver lacks a frame before the last key frame, to which leading pictures may refer.
    is_broken_before: bool,
}

impl Default for ReferenceChain {
    fn default() -> Self {
        Self {
            last_key: None,
            broken: Some((0, KeyCause::First)),
            repaired: None,
            leading: None,
            is_broken_before: true,
        }
    }
}

impl ReferenceChain {
    /// A key frame was encoded. Later frames do not refer to earlier ones, but for its leading
    /// pictures.
    pub(super) fn on_key(&mut self, frame: u64) {
        self.is_broken_before = self.broken.is_some();
        if let Some((from, _)) = self.broken.take() {
            self.repaired = Some((from, frame));
        }
        (self.last_key, self.leading) = (Some(frame), None);
    }

    /// A leading picture of the last key frame was encoded.
    pub(super) fn on_leading(&mut self, frame: u64) {
        self.leading = Some(frame);
    }

    /// The receiver will not have `frame`.
    pub(super) fn break_at(&mut self, frame: u64, cause: KeyCause) {
        if self.is_leading(frame) {
            return;
        }
        self.is_broken_before |= !self.is_current(frame);
        if self.is_current(frame) {
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
        self.is_broken_before && self.is_leading(frame)
            || self.broken.is_some_and(|(from, _)| frame > from)
            || self
                .repaired
                .is_some_and(|(from, to)| frame > from && frame < to)
    }

    fn is_leading(&self, frame: u64) -> bool {
        let is_after_key = self.last_key.is_some_and(|key| frame > key);
        is_after_key && self.leading.is_some_and(|last| frame <= last)
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

    #[test]
    fn leading_pictures_depend_on_frames_before_the_key_frame() {
        let mut chain = ReferenceChain::default();
        chain.on_key(0);
        chain.on_key(9);
        chain.on_leading(10);
        chain.on_leading(12);
        // Nothing depends on them.
        chain.break_at(10, KeyCause::Repair);
        assert!(chain.broken().is_none() && !chain.is_orphan(12) && !chain.is_orphan(13));
        chain.break_at(8, KeyCause::Repair);
        assert!(chain.is_orphan(10) && chain.is_orphan(12) && !chain.is_orphan(13));
        assert!(chain.broken().is_none());
        // The next key frame follows a whole group.
        chain.on_key(19);
        chain.on_leading(20);
        assert!(!chain.is_orphan(20));
        chain.break_at(21, KeyCause::Repair);
        chain.on_key(29);
        chain.on_leading(30);
        assert!(chain.is_orphan(30) && !chain.is_orphan(31));
    }
}
