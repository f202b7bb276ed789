//! Orientation of pictures, as cameras state it in display matrices.

/// Turn that makes a picture upright.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Orientation {
    #[default]
    Upright,
    /// By 90 degrees.
    Clockwise,
    /// By 180 degrees.
    UpsideDown,
    /// By 90 degrees.
    CounterClockwise,
    /// Left and right exchanged.
    Mirrored,
    /// Top and bottom exchanged.
    Flipped,
    /// Mirrored at the diagonal from the top left.
    Transposed,
    /// Mirrored at the other diagonal.
    Transversed,
}

impl Orientation {
    /// From a display matrix (ISO/IEC 14496-12 section 8.5.2.3, 3×3 row by row): the nearest turn
    /// by a multiple of 90 degrees. A point (x, y) is displayed at (m0 x + m3 y, m1 x + m4 y).
    pub(crate) fn of_matrix(matrix: [i32; 9]) -> Self {
        let [a, b, _, c, d, ..] = matrix;
        if b.unsigned_abs().max(c.unsigned_abs()) > a.unsigned_abs().max(d.unsigned_abs()) {
            match (b > 0, c > 0) {
                (true, false) => Self::Clockwise,
                (false, true) => Self::CounterClockwise,
                (true, true) => Self::Transposed,
                (false, false) => Self::Transversed,
            }
        } else {
            match (a < 0, d < 0) {
                (false, false) => Self::Upright,
                (true, true) => Self::UpsideDown,
                (true, false) => Self::Mirrored,
                (false, true) => Self::Flipped,
            }
        }
    }

    /// From the bytes of a display matrix in memory.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 36] = bytes.first_chunk()?;
        let mut matrix = [0; 9];
        for (number, bytes) in matrix.iter_mut().zip(bytes.as_chunks().0) {
            *number = i32::from_ne_bytes(*bytes);
        }
        Some(Self::of_matrix(matrix))
    }

    /// Whether width and height are exchanged.
    pub(crate) const fn is_sideways(self) -> bool {
        matches!(
            self,
            Self::Clockwise | Self::CounterClockwise | Self::Transposed | Self::Transversed
        )
    }

    /// FFmpeg's filter that makes the picture upright.
    pub(crate) const fn filter(self) -> Option<&'static str> {
        Some(match self {
            Self::Upright => return None,
            Self::Clockwise => "transpose=clock",
            Self::UpsideDown => "hflip,vflip",
            Self::CounterClockwise => "transpose=cclock",
            Self::Mirrored => "hflip",
            Self::Flipped => "vflip",
            Self::Transposed => "transpose=cclock_flip",
            Self::Transversed => "transpose=clock_flip",
        })
    }

    /// Text for the user.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Upright => "upright",
            Self::Clockwise => "turned clockwise",
            Self::UpsideDown => "turned by 180 degrees",
            Self::CounterClockwise => "turned counter-clockwise",
            Self::Mirrored | Self::Flipped => "mirrored",
            Self::Transposed | Self::Transversed => "turned and mirrored",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_turns() {
        let one = 1 << 16;
        let matrix = |[a, b, c, d]: [i32; 4]| [a, b, 0, c, d, 0, 0, 0, 1 << 30];
        let cases = [
            ([one, 0, 0, one], Orientation::Upright),
            ([0, one, -one, 0], Orientation::Clockwise),
            ([-one, 0, 0, -one], Orientation::UpsideDown),
            ([0, -one, one, 0], Orientation::CounterClockwise),
            ([-one, 0, 0, one], Orientation::Mirrored),
            ([one, 0, 0, -one], Orientation::Flipped),
            ([0, one, one, 0], Orientation::Transposed),
            ([0, -one, -one, 0], Orientation::Transversed),
        ];
        for (numbers, turn) in cases {
            assert_eq!(Orientation::of_matrix(matrix(numbers)), turn);
        }
        assert_eq!(Orientation::of_bytes(&[0; 35]), None);
    }
}
