//! The recorded encode in `scenarios/traces`, and the frame model held against it.

use tidegate_core::media::{FrameOrder, FrameRate};
use tidegate_core::random::Seed;
use tidegate_core::units::{Rate, Time};
use tidegate_sim::traffic::video::FrameTrace;
use tidegate_sim::video_model::{FrameModel, VideoModel, VideoModelConfig};

fn trace() -> FrameTrace {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scenarios/traces/scene.frames"
    );
    FrameTrace::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Frames in shares of the rate: what a frame is, over what it would be if all were equal.
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

    /// As many frames of the model, with key frames at the same places.
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

    /// Of frames other than key frames, `lag` apart.
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
fn show() {
    let trace = trace();
    for rate in 0..3 {
        for s in [
            Shares::recorded(&trace, rate),
            Shares::modelled(&trace, rate, 1),
            Shares::modelled(&trace, rate, 2),
        ] {
            println!(
                "{:?} mean {:.3} keys {:.2} ({:.2}..{:.2}) deltas {:.3} sd {:.3} q {:?} ac {:?}",
                trace.rates()[rate],
                mean(&s.all),
                mean(&s.keys),
                s.keys.iter().copied().fold(9.0, f64::min),
                s.keys.iter().copied().fold(0.0, f64::max),
                mean(&s.deltas),
                s.deviation(),
                [0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0].map(|q| (s.quantile(q) * 100.0) as u32),
                [1, 2, 3, 5, 10, 30].map(|l| (s.autocorrelation(l) * 100.0) as i32)
            );
        }
    }
}
