//! The recorded encode in `scenarios/traces`, compared with the frame model.

use std::sync::Arc;

use tidegate_core::media::{FrameOrder, FrameRate};
use tidegate_core::random::Seed;
use tidegate_core::units::{Rate, Time};
use tidegate_sim::traffic::video::{FrameTrace, TracePlayer};
use tidegate_sim::video_model::{FrameModel, VideoModel, VideoModelConfig};

fn trace() -> FrameTrace {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scenarios/traces/scene.frames"
    );
    FrameTrace::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Frame sizes relative to the mean frame size.
struct Shares {
    all: Vec<f64>,
    keys: Vec<f64>,
    deltas: Vec<f64>,
}

impl Shares {
    fn new(frames: impl Iterator<Item = (bool, f64)>, rate: Rate) -> Self {
        let share = rate.as_f64() / 8.0 / 30.0;
        let frames: Vec<(bool, f64)> = frames.map(|(key, size)| (key, size / share)).collect();
        let of = |wanted| {
            let some = frames.iter().filter(move |(key, _)| *key == wanted);
            some.map(|frame| frame.1).collect()
        };
        Self {
            all: frames.iter().map(|frame| frame.1).collect(),
            keys: of(true),
            deltas: of(false),
        }
    }

    fn recorded(trace: &FrameTrace, rate: usize) -> Self {
        let frame = |n| (trace.is_key(n), f64::from(trace.frame(n, rate).size));
        Self::new((0..trace.len()).map(frame), trace.rates()[rate])
    }

    /// The same number of frames of the model, with key frames at the same positions.
    fn modelled(trace: &FrameTrace, rate: usize, seed: u64) -> Self {
        let config = VideoModelConfig {
            width: 640,
            height: 360,
            frame_rate: FrameRate::fps(30),
        };
        let mut model = VideoModel::new(config, Seed(seed).stream("video"));
        let rate = trace.rates()[rate];
        let frames = (0..trace.len()).map(|n| {
            let shape = model.shape(&FrameOrder {
                frame: n as u64,
                captured: Time::ZERO + FrameRate::fps(30).at(n as u64),
                rate,
                key: trace.is_key(n),
            });
            (shape.key, shape.size as f64)
        });
        Self::new(frames, rate)
    }

    /// The quantile `q` of frames other than key frames.
    fn quantile(&self, q: f64) -> f64 {
        let mut sorted = self.deltas.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[(q * (sorted.len() - 1) as f64) as usize]
    }

    /// Autocorrelation of frames other than key frames at distance `lag`.
    fn autocorrelation(&self, lag: usize) -> f64 {
        let mean = mean(&self.deltas);
        let off: Vec<f64> = self.deltas.iter().map(|x| x - mean).collect();
        let product = off.iter().zip(&off[lag..]).map(|(a, b)| a * b).sum::<f64>();
        product / off.iter().map(|x| x * x).sum::<f64>()
    }

    fn deviation(&self) -> f64 {
        let mean = mean(&self.deltas);
        let squares = self.deltas.iter().map(|x| (x - mean) * (x - mean));
        (squares.sum::<f64>() / self.deltas.len() as f64).sqrt()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn recording_meets_its_rates() {
    let trace = trace();
    assert_eq!(trace.len(), 300);
    assert_eq!((0..300).filter(|n| trace.is_key(*n)).count(), 5);
    for rate in 0..3 {
        let recorded = Shares::recorded(&trace, rate);
        assert!((mean(&recorded.all) - 1.0).abs() < 0.005);
        // Also within half a second, including the one with the key frame.
        for window in recorded.all.chunks(15) {
            assert!((mean(window) - 1.0).abs() < 0.03, "{}", mean(window));
        }
        let psnr = |n| trace.frame(n, rate).quality.unwrap().psnr_y;
        let psnr = (0..trace.len()).map(psnr).sum::<f64>() / 300.0;
        assert!((psnr - [30.5, 38.2, 44.0][rate]).abs() < 0.1, "{psnr}");
    }
}

/// Intermediate and extreme rates are met as well, with any key frame requests.
#[test]
fn player_meets_any_rate() {
    let trace = Arc::new(trace());
    for (kbps, key_every) in [
        (150, 300),
        (450, 60),
        (700, 1_000_000),
        (2_000, 20),
        (5_000, 97),
    ] {
        let mut player = TracePlayer::new(Arc::clone(&trace), 40);
        let size = |n: u64| {
            player.shape(&FrameOrder {
                frame: n,
                captured: Time::ZERO,
                rate: Rate::kbps(kbps),
                key: n.is_multiple_of(key_every),
            })
        };
        let bytes: usize = (0..3_000).map(size).map(|shape| shape.size).sum();
        let error = bytes as f64 * 8.0 / 100.0 / (kbps as f64 * 1e3) - 1.0;
        assert!(error.abs() < 0.01, "off by {error} at {kbps} kb/s");
    }
}

/// The validation of the model against the recording in `docs/traffic.md`.
#[test]
fn model_agrees_with_frame_sizes_of_the_recording() {
    let trace = trace();
    for rate in 0..3 {
        let recorded = Shares::recorded(&trace, rate);
        for seed in 1..=5 {
            let modelled = Shares::modelled(&trace, rate, seed);
            assert!((mean(&modelled.all) - 1.0).abs() < 0.005);
            let ratio = |shares: &Shares| mean(&shares.keys) / mean(&shares.deltas);
            let (wanted, found) = (ratio(&recorded), ratio(&modelled));
            assert!(
                (1.0..1.25).contains(&(found / wanted)),
                "{found} for {wanted}"
            );
            for q in [0.05, 0.25, 0.5, 0.75, 0.95] {
                let (wanted, found) = (recorded.quantile(q), modelled.quantile(q));
                assert!((found - wanted).abs() < 0.15, "{found} for {wanted} at {q}");
            }
            let (wanted, found) = (recorded.deviation(), modelled.deviation());
            assert!(
                (0.0..0.06).contains(&(found - wanted)),
                "{found} for {wanted}"
            );
            // Neighbouring frames are correlated, less in the model; after a third of a second
            // there is no correlation.
            let (wanted, found) = (recorded.autocorrelation(1), modelled.autocorrelation(1));
            assert!(
                (0.4..0.7).contains(&wanted) && (0.1..0.45).contains(&found),
                "{wanted} {found}"
            );
            for lag in [10, 30] {
                let (wanted, found) =
                    (recorded.autocorrelation(lag), modelled.autocorrelation(lag));
                assert!(
                    (found - wanted).abs() < 0.2,
                    "{found} for {wanted} at {lag}"
                );
            }
        }
    }
}
