//! Rates of RCS and of encoders that follow it, and the buffer between them.

use tidegate_core::media::{FrameEncoder, FrameOrder};
use tidegate_core::random::Seed;
use tidegate_core::units::{Rate, Time};
use tidegate_sim::runner::{Keep, LinkRecords};
use tidegate_sim::scenario::VideoPlan;

use crate::papers::rcs::path::{Control, Group, Path};
use crate::papers::rcs::traces::{Step, steps};
use crate::papers::runs::scenario;
use crate::papers::sweep::{ScenarioText as _, mean, play};
use crate::papers::{Options, PapersError, Progress};
use crate::parallel::in_parallel;

/// Bits per frame interval of one run.
#[derive(Clone, Debug)]
pub(super) struct Track {
    /// What RCS permits: S(t).
    pub(super) permitted: Vec<f64>,
    /// Output of the encoder whose target is S(t): R(t).
    pub(super) adaptive: Vec<f64>,
    /// Output of the encoder whose target is the mean of S(t).
    pub(super) fixed: Vec<f64>,
    /// Mean PSNR of Y of the adaptive and of the fixed encoder in dB, if the encoder measures it.
    pub(super) quality: [Option<f64>; 2],
}

/// Contents of a buffer in bits, and what it does to the data.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffered {
    /// At the end of each frame interval.
    pub(super) level: Vec<f64>,
    /// Time until the newest bit leaves, in seconds, at the same times.
    pub(super) delay: Vec<f64>,
    /// Share of the data that found the buffer full.
    pub(super) lost: f64,
}

/// A fluid buffer of `limit` bits. The bits of a frame arrive within its interval.
pub(super) fn buffer(made: &[f64], permitted: &[f64], limit: f64) -> Buffered {
    let mut out = Buffered::default();
    let (mut level, mut lost) = (0.0_f64, 0.0);
    for (made, permitted) in made.iter().zip(permitted) {
        let next = level + made - permitted;
        lost += (next - limit).max(0.0);
        level = next.clamp(0.0, limit);
        out.level.push(level);
    }
    // The delay is that of the service which follows.
    let served: Vec<f64> = permitted
        .iter()
        .scan(0.0, |sum, bits| {
            *sum += bits;
            Some(*sum)
        })
        .collect();
    let mut at = 0;
    for (n, level) in out.level.iter().enumerate() {
        at = at.max(n);
        while at + 1 < served.len() && served[at] < served[n] + level {
            at += 1;
        }
        let before = served[at] - permitted[at];
        let part = ((served[n] + level - before) / permitted[at]).clamp(0.0, 1.0);
        let frames = (at - n) as f64 - if at > n { 1.0 - part } else { 0.0 };
        out.delay.push(frames * FRAME);
    }
    out.lost = lost / made.iter().sum::<f64>();
    out
}

pub(super) fn total(values: &[f64]) -> f64 {
    values.iter().sum()
}

/// Plays all seeds.
pub(super) fn tracks(options: &Options, progress: Progress<'_>) -> Result<Vec<Track>, PapersError> {
    let seeds = options.seeds as usize;
    in_parallel(seeds, options.threads, progress, |n| {
        track(options, n as u64 + 1)
    })
}

fn track(options: &Options, seed: u64) -> Result<Track, PapersError> {
    let group = |name, count| Group {
        name,
        control: Control::Rcs,
        count,
        is_satellite: true,
    };
    let path = Path {
        duration: f64::from(SECONDS),
        ..Path::with(vec![group(SOURCE, 1), group("others", 9)])
    };
    let keep = Keep {
        events: true,
        links: LinkRecords::None,
        packets: false,
        ..Keep::ALL
    };
    let run = play(&path.text(), seed, keep)?;
    let own: Vec<_> = run
        .events
        .into_iter()
        .filter(|row| row.flow == SOURCE)
        .collect();
    let permitted = permitted(&steps(&own));
    let plan = video(options)?;
    let (adaptive, first) = encode(options, &plan, seed, &permitted)?;
    let constant = vec![mean(&permitted); permitted.len()];
    let (fixed, second) = encode(options, &plan, seed, &constant)?;
    Ok(Track {
        permitted,
        adaptive,
        fixed,
        quality: [first, second],
    })
}

/// Bits that the steps permit in each frame interval from the first step on, without headers.
fn permitted(steps: &[Step]) -> Vec<f64> {
    let steady = steps.iter().position(|step| step.rate > 0.0);
    let steps = &steps[steady.unwrap_or(steps.len())..];
    let Some(begin) = steps.first().map(|step| step.at) else {
        return Vec::new();
    };
    let frames = ((f64::from(SECONDS) - begin) / FRAME) as usize;
    let mut bits = vec![0.0; frames];
    let ends = steps.iter().skip(1).map(|step| step.at);
    for (step, end) in steps.iter().zip(ends.chain([f64::from(SECONDS)])) {
        let (mut from, end) = ((step.at - begin) / FRAME, (end - begin) / FRAME);
        while from < end {
            let until = (from.floor() + 1.0).min(end);
            if let Some(frame) = bits.get_mut(from as usize) {
                *frame += (until - from) * FRAME * step.rate * PAYLOAD_BITS;
            }
            from = until;
        }
    }
    bits
}

/// The video of the paper's time: SIF pictures.
fn video(options: &Options) -> Result<VideoPlan, PapersError> {
    let encoder = options.encoder().name();
    let text = format!(
        "name = \"encoder\"\nduration = \"1s\"\n[[link]]\nname = \"there\"\n[[link]]\nname = \"back\"\n\
         [[flow]]\nname = \"{SOURCE}\"\npath = [\"there\"]\nback = [\"back\"]\ncontrol = \"tfrc\"\nvideo = \
         {{ size = \"352x240\", encoder = \"{encoder}\" }}\ndelay_bound = \"1s\"\n"
    );
    let scenario = scenario("encoder", &text)?;
    let plan = scenario.flows[0].media.video();
    plan.cloned().ok_or(PapersError::NoVideo)
}

/// Bits of each frame at these targets, and the mean PSNR of Y.
fn encode(
    options: &Options,
    plan: &VideoPlan,
    seed: u64,
    targets: &[f64],
) -> Result<(Vec<f64>, Option<f64>), PapersError> {
    let pictures = options.world.pictures();
    let encoder = pictures.encoder(SOURCE, plan, Seed(seed));
    let mut encoder = encoder.map_err(PapersError::Pictures)?;
    let mut psnr = Vec::new();
    let mut frame = |(n, target): (usize, &f64)| {
        let order = FrameOrder {
            frame: n as u64,
            captured: Time::ZERO + plan.frame_rate.at(n as u64),
            rate: Rate::from_f64((target / FRAME).max(1.0)),
            key: n == 0,
        };
        let encoded = encoder.encode(&order).map_err(PapersError::Pictures)?;
        psnr.extend(encoded.quality.map(|quality| quality.psnr_y));
        Ok(encoded.data.len() as f64 * 8.0)
    };
    let bits: Result<Vec<f64>, PapersError> = targets.iter().enumerate().map(&mut frame).collect();
    let quality = (!psnr.is_empty()).then(|| mean(&psnr));
    Ok((bits?, quality))
}

const SOURCE: &str = "source";
/// Duration of a run.
pub(super) const SECONDS: u32 = 120;
/// Frame interval in seconds.
pub(super) const FRAME: f64 = 1.0 / 30.0;
/// Bits of a packet of 1,000 bytes without the headers of IPv4, UDP and RTP.
const PAYLOAD_BITS: f64 = 960.0 * 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_delays_what_exceeds_the_rate_and_loses_what_exceeds_the_limit() {
        let made = [100.0, 300.0, 0.0, 100.0];
        let permitted = [100.0; 4];
        let all = buffer(&made, &permitted, 1e9);
        assert_eq!(all.level, [0.0, 200.0, 100.0, 100.0]);
        assert!((all.delay[1] - 2.0 * FRAME).abs() < 1e-9, "{all:?}");
        assert!(all.lost.abs() < 1e-9);
        let small = buffer(&made, &permitted, 50.0);
        assert_eq!(small.level, [0.0, 50.0, 0.0, 0.0]);
        assert!((small.lost - 150.0 / 500.0).abs() < 1e-9);
    }

    #[test]
    fn steps_become_bits_of_frame_intervals() {
        let step = |at, rate| Step {
            at,
            rate,
            state: tidegate_core::trace::ControllerState::Steady,
        };
        let bits = permitted(&[step(0.5, 0.0), step(1.0, 30.0), step(1.05, 60.0)]);
        assert_eq!(bits.len(), (119.0 / FRAME) as usize);
        let packets: Vec<f64> = bits.iter().map(|bits| bits / PAYLOAD_BITS).collect();
        assert!((packets[0] - 1.0).abs() < 1e-9);
        // The rate doubles in the middle of the interval.
        assert!((packets[1] - 1.5).abs() < 1e-9, "{}", packets[1]);
        assert!((packets[2] - 2.0).abs() < 1e-9);
    }
}
