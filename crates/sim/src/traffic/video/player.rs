//! A recorded encode in the role of an encoder.

use std::sync::Arc;

use rand_pcg::Pcg64Mcg;
use tidegate_core::media::{EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};

use super::trace::FrameTrace;
use crate::video_model::{FrameModel, FrameShape, dress, unit_size};

/// Repeats the frames of a [`FrameTrace`] in a loop, at any target rate.
///
/// Key frames follow the requests, as with a live encoder. A requested key frame is replaced by the
/// nearest recorded key frame, and a recorded key frame that is not requested by the frame before
/// it. Later frames compensate the difference in size, so that the mean rate stays at the target.
#[derive(Clone, Debug)]
pub struct TracePlayer {
    trace: Arc<FrameTrace>,
    offset: u64,
    /// Bytes sent in excess of the recording.
    owed: f64,
}

impl TracePlayer {
    /// Starts at frame `offset`, so that several players of one trace are not synchronised.
    pub fn new(trace: Arc<FrameTrace>, offset: u64) -> Self {
        Self {
            trace,
            offset,
            owed: 0.0,
        }
    }

    /// Replacement for frame `n` if it has to be a key frame, or must not be one.
    fn stand_in(&self, n: usize, key: bool) -> usize {
        let len = self.trace.len();
        if self.trace.is_key(n) == key {
            return n;
        }
        let back = |d: usize| (n + len - d) % len;
        if !key {
            // Every trace has a frame that is not a key frame.
            return (1..len)
                .map(back)
                .find(|n| !self.trace.is_key(*n))
                .unwrap_or(n);
        }
        (1..len)
            .flat_map(|d| [back(d), (n + d) % len])
            .find(|n| self.trace.is_key(*n))
            .unwrap_or(n)
    }
}

impl FrameModel for TracePlayer {
    fn shape(&mut self, order: &FrameOrder) -> FrameShape {
        let n = order.frame.wrapping_add(self.offset) % self.trace.len() as u64;
        let n = n as usize;
        let stand_in = self.stand_in(n, order.key);
        let recorded = self.trace.size_at(stand_in, order.rate);
        let wanted = if order.key {
            recorded
        } else {
            let share = order.rate.as_f64() / 8.0 / self.frame_rate().as_f64();
            let wanted = recorded - self.owed / REPAID_IN;
            wanted.clamp(MIN * recorded, MAX * recorded.max(share))
        };
        let size = unit_size(order.key, (wanted.max(SMALLEST_FRAME) + 0.5) as usize);
        self.owed += size as f64 - self.trace.size_at(n, order.rate);
        FrameShape {
            size,
            key: order.key,
            quality: self.trace.quality_at(stand_in, order.rate),
        }
    }

    fn frame_rate(&self) -> FrameRate {
        self.trace.frame_rate()
    }
}

/// A [`TracePlayer`] that fills frames with random bytes, for sessions. A packetiser accepts them,
/// a decoder does not.
#[derive(Clone, Debug)]
pub struct TraceEncoder {
    player: TracePlayer,
    rng: Pcg64Mcg,
}

impl TraceEncoder {
    /// An encoder that draws its bytes from `rng`.
    pub fn new(player: TracePlayer, rng: Pcg64Mcg) -> Self {
        Self { player, rng }
    }
}

impl FrameEncoder for TraceEncoder {
    /// Never fails: the trace repeats.
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let shape = self.player.shape(order);
        Ok(dress(order, &shape, &mut self.rng))
    }

    fn frame_rate(&self) -> FrameRate {
        self.player.frame_rate()
    }
}

/// Number of frames over which a size difference is compensated, and the limits of the change per
/// frame relative to the recording, or upwards to its share of the rate. They resemble the outer
/// loop of an encoder.
const REPAID_IN: f64 = 4.0;
const MIN: f64 = 0.3;
const MAX: f64 = 1.2;
/// Bytes: headers and a few macroblocks.
const SMALLEST_FRAME: f64 = 24.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_core::random::Seed;
    use tidegate_core::units::{Rate, Time};

    use super::*;

    /// Key frames at 0 and 4 of eight; delta frames of 100 and 400 bytes.
    const EIGHT: &str = "frame_rate 30\nrates 30000 120000\n\
        key 300 1200\n- 80 310\n- 70 300\n- 75 305\n\
        key 310 1300\n- 90 350\n- 80 325\n- 95 360\n";

    fn player() -> TracePlayer {
        TracePlayer::new(Arc::new(FrameTrace::parse(EIGHT).unwrap()), 0)
    }

    fn order(frame: u64, bps: u64, key: bool) -> FrameOrder {
        FrameOrder {
            frame,
            captured: Time::ZERO,
            rate: Rate::bps(bps),
            key,
        }
    }

    #[test]
    fn recorded_key_frames_reproduce_the_recording() {
        let mut player = player();
        let mut sizes = |bps| {
            let size = |n| player.shape(&order(n, bps, n % 4 == 0)).size;
            (0..16).map(size).collect::<Vec<_>>()
        };
        let low = [300, 80, 70, 75, 310, 90, 80, 95];
        assert_eq!(sizes(30_000), [low, low].concat());
        let high = [1_200, 310, 300, 305, 1_300, 350, 325, 360];
        assert_eq!(sizes(120_000), [high, high].concat());
    }

    #[test]
    fn key_frames_follow_requests() {
        let mut player = player();
        assert_eq!(player.shape(&order(0, 30_000, true)).size, 300);
        // The first key frame repeats. Later frames return its excess, with a limit per frame.
        assert_eq!(player.shape(&order(1, 30_000, true)).size, 300);
        assert_eq!(player.shape(&order(2, 30_000, false)).size, 24);
        let mut fresh = self::player();
        assert_eq!(fresh.shape(&order(0, 30_000, true)).size, 300);
        // The frame before it replaces the recorded key frame, and the saving is spent.
        assert_eq!(fresh.shape(&order(4, 30_000, false)).size, 75);
        assert_eq!(fresh.shape(&order(5, 30_000, false)).size, 149);
        let mut offset = TracePlayer::new(Arc::clone(&player.trace), 3);
        assert_eq!(offset.shape(&order(u64::MAX - 2, 30_000, true)).size, 300);
    }

    #[test]
    fn encoder_fills_frames_with_bytes() {
        let mut encoder = TraceEncoder::new(player(), Seed(1).stream("video"));
        let encoded = encoder.encode(&order(4, 120_000, true)).unwrap();
        assert_eq!(
            (encoded.data.len(), encoded.key, encoded.frame),
            (1_300, true, 4)
        );
        assert_eq!(encoded.data[..5], [0, 0, 0, 1, 0x67]);
        assert_eq!(encoder.frame_rate(), FrameRate::fps(30));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The mean rate is independent of key frame requests: here that of the recording, with
        /// 1100 and 4450 bytes per eight frames.
        #[test]
        fn mean_rate_is_independent_of_key_frames(bps in 30_000_u64..200_000, every in 3_u64..500) {
            let mut player = player();
            let mut sum = 0;
            for n in 0..4_000 {
                let shape = player.shape(&order(n, bps, n % every == 0));
                prop_assert_eq!(shape.key, n % every == 0);
                sum += shape.size;
            }
            let recorded: f64 = (0..8).map(|n| player.trace.size_at(n, Rate::bps(bps))).sum();
            let error = sum as f64 / (500.0 * recorded) - 1.0;
            prop_assert!(error.abs() < 0.01, "off by {error} with a key every {every}");
        }

        #[test]
        fn any_request_yields_a_frame(orders in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 1..30)) {
            let mut player = player();
            for (frame, bps, key) in orders {
                // A gigabit exceeds any encoder, and its frames fit into memory.
                let shape = player.shape(&order(frame, bps % 1_000_000_000, key));
                prop_assert!(shape.size >= 6 && shape.key == key);
            }
        }
    }
}
