//! Measurements of a run with one video.

use core::time::Duration;
use std::collections::BTreeMap;

use tidegate_core::media::Quality;
use tidegate_core::session::sender::SentFrame;
use tidegate_core::units::{Bytes, Time};

use super::PapersError;
use tidegate_sim::flow_endpoints::{FlowInstance, FlowResult};
use tidegate_sim::interactive::Record;
use tidegate_sim::offline_optimum::FloorSender;

/// A frame of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) captured: Time,
    /// Arrival time of the last packet. None if the frame is incomplete.
    pub(super) complete: Option<Time>,
    /// Target size and actual size.
    pub(super) target_bits: u64,
    pub(super) bits: u64,
    /// Signal-to-noise ratio of Y, U and V in dB: relative to the variance of the original as in
    /// the papers, or relative to the peak if there is no original.
    pub(super) snr: Option<[f64; 3]>,
    /// Whether an offline optimum delivers the frame in time over this connection.
    pub(super) savable: bool,
    /// The same if only the time-outs limit the connection.
    pub(super) savable_by_path: bool,
}

/// Frames and TCP record of a run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) seed: u64,
    pub(super) start: Time,
    pub(super) bound: Duration,
    /// Size of a frame at the full rate, in bits.
    pub(super) full: f64,
    pub(super) frames: Vec<Frame>,
    pub(super) record: Record,
}

impl Frame {
    /// Delay from capture to arrival, in seconds.
    pub(super) fn delay(&self) -> Option<f64> {
        Some(self.complete?.since(self.captured).as_secs_f64())
    }
}

impl Outcome {
    fn on_time(&self, frame: &Frame) -> bool {
        frame
            .complete
            .is_some_and(|at| at <= frame.captured + self.bound)
    }

    fn share(&self, of: impl Fn(&Frame) -> bool, that: impl Fn(&Frame) -> bool) -> f64 {
        let all: Vec<&Frame> = self.frames.iter().filter(|f| of(f)).collect();
        let good = all.iter().filter(|f| that(f)).count();
        good as f64 / all.len().max(1) as f64
    }

    /// Share of all frames that arrive within the bound.
    pub(super) fn accepted(&self) -> f64 {
        self.share(|_| true, |f| self.on_time(f))
    }

    /// Share of the savable frames that arrive within the bound.
    pub(super) fn of_savable(&self) -> f64 {
        self.share(|f| f.savable, |f| self.on_time(f))
    }

    /// Share of the frames savable by path that arrive within the bound.
    pub(super) fn of_savable_by_path(&self) -> f64 {
        self.share(|f| f.savable_by_path, |f| self.on_time(f))
    }

    /// Mean delay of the frames that arrived, in seconds.
    pub(super) fn mean_delay(&self) -> f64 {
        mean(self.frames.iter().filter_map(Frame::delay))
    }

    /// Bits of the frames in time, relative to the savable frames at the full rate.
    pub(super) fn bits_kept(&self) -> f64 {
        let kept = self.frames.iter().filter(|f| self.on_time(f));
        let kept: u64 = kept.map(|f| f.bits).sum();
        let savable = self.frames.iter().filter(|f| f.savable).count();
        kept as f64 / (savable as f64 * self.full)
    }

    /// Target bits and actual bits, relative to all frames at the full rate.
    pub(super) fn bits_of_full(&self) -> (f64, f64) {
        let full = self.full * self.frames.len() as f64;
        let target: u64 = self.frames.iter().map(|f| f.target_bits).sum();
        let made: u64 = self.frames.iter().map(|f| f.bits).sum();
        (target as f64 / full, made as f64 / full)
    }

    /// Frames that were late, dropped or never encoded.
    pub(super) fn broken(&self) -> f64 {
        self.frames.iter().filter(|f| !self.on_time(f)).count() as f64
    }

    /// Frames that never arrived.
    pub(super) fn missing(&self) -> f64 {
        let missing = self.frames.iter().filter(|f| f.complete.is_none());
        missing.count() as f64
    }

    /// Largest delay of the frames that arrived, in seconds.
    pub(super) fn worst_delay(&self) -> f64 {
        self.frames
            .iter()
            .filter_map(Frame::delay)
            .fold(0.0, f64::max)
    }

    /// Mean signal-to-noise ratio of Y, U and V over the encoded frames, in dB.
    pub(super) fn mean_snr(&self) -> [f64; 3] {
        [0, 1, 2].map(|plane| mean(self.frames.iter().filter_map(|f| Some(f.snr?[plane]))))
    }

    /// From the first capture to the last arrival, in seconds.
    pub(super) fn lasted(&self) -> f64 {
        let last = self.frames.iter().filter_map(|f| f.complete).max();
        last.map_or(0.0, |at| at.since(self.start).as_secs_f64())
    }
}

/// Mean; zero if there are no values.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// Converts PSNR to the SNR of the papers if the variance of the original is known.
fn snr(quality: Quality, variance: Option<&[f64; 3]>) -> [f64; 3] {
    let peak = [quality.psnr_y, quality.psnr_u, quality.psnr_v];
    let Some(variance) = variance else {
        return peak;
    };
    let less = variance.map(|v| 10.0 * libm::log10(255.0 * 255.0 / v));
    [0, 1, 2].map(|plane| peak[plane] - less[plane])
}

/// Measures a run. `variances` has the variances of the original frames, if known.
pub(super) fn outcome(
    role: &FlowInstance,
    result: &FlowResult,
    seed: u64,
    variances: &[[f64; 3]],
) -> Result<Outcome, PapersError> {
    let video = role.plan.media.video().ok_or(PapersError::NoVideo)?;
    let record = result.stream.clone().unwrap_or_default();
    let captured: Vec<Time> = result.sent.iter().map(|f| f.captured).collect();
    let optimum = FloorSender {
        floor: video.floor,
        frame_rate: video.frame_rate,
        payload: Bytes(1_448),
        overhead: Bytes(52),
        bound: video.delay_bound,
    };
    let connection = record.connection();
    let savable = optimum.savable_over(&connection, &captured);
    let by_path = optimum.savable_after_time_outs(&connection, &captured);
    // Receivers of real streams unwrap time stamps from their own origin. Only the low 32 bits
    // match the sender's.
    let complete: BTreeMap<u32, Time> = result
        .received
        .iter()
        .filter_map(|f| Some((f.timestamp as u32, f.complete?)))
        .collect();
    let frame = |(i, f): (usize, &SentFrame)| Frame {
        captured: f.captured,
        complete: complete.get(&f.timestamp).copied(),
        target_bits: f.target_bits,
        bits: f.bits,
        snr: f.quality.map(|q| snr(q, variances.get(f.frame as usize))),
        savable: savable[i],
        savable_by_path: by_path[i],
    };
    Ok(Outcome {
        seed,
        start: Time::ZERO + role.plan.start,
        bound: video.delay_bound,
        full: (video.ceiling * video.frame_rate.interval()).bits() as f64,
        frames: result.sent.iter().enumerate().map(frame).collect(),
        record,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::runs::{Job, NoPictures, Simulator, Testbed as _};
    use super::*;

    #[test]
    fn snr_is_relative_to_the_variance_if_known() {
        let quality = Quality {
            psnr_y: 40.0,
            psnr_u: 42.0,
            psnr_v: 44.0,
            ssim: 1.0,
        };
        let check = |variance: Option<[f64; 3]>, expected: [f64; 3]| {
            let ours = snr(quality, variance.as_ref());
            let off = |n: usize| (ours[n] - expected[n]).abs();
            assert!((0..3).all(|n| off(n) < 1e-9), "{ours:?}");
        };
        check(None, [40.0, 42.0, 44.0]);
        // At the maximum variance SNR equals PSNR. At a hundredth of it, SNR is 20 dB lower.
        let most = 255.0 * 255.0;
        check(
            Some([most, most / 100.0, most / 1_000.0]),
            [40.0, 22.0, 14.0],
        );
    }

    /// Receivers of real streams unwrap time stamps from their own origin.
    #[test]
    fn frames_match_independently_of_the_time_stamp_origin() {
        let text = r#"name = "t"
duration = "5s"
[[link]]
name = "path"
rate = "1Mb/s"
delay = "20ms"
queue = { droptail = "20kB" }
[[flow]]
name = "video"
path = ["path"]
back = ["path"]
delay_bound = "200ms"
video = { size = "176x120", fps = 10, ceiling = "900kb/s" }
transport = { tcp = "cubic", mode = "classic" }
"#;
        let job = Job::new("A label: of 2", text.to_owned()).unwrap();
        assert_eq!(job.label, "a-label--of-2");
        assert!(job.video().is_some());
        let (role, mut result) = Simulator::new(Arc::new(NoPictures))
            .play(&job)
            .unwrap()
            .unwrap();
        let accepted = outcome(&role, &result, 1, &[]).unwrap().accepted();
        assert!((0.3..1.0).contains(&accepted), "{accepted}");
        for frame in &mut result.received {
            frame.timestamp += 7 << 32;
        }
        let unwrapped = outcome(&role, &result, 1, &[]).unwrap().accepted();
        assert!((unwrapped - accepted).abs() < 1e-12);
    }
}
