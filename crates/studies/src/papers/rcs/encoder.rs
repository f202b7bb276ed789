//! Encoders behind RCS (section III-F, Figures 7 to 9).
//!
//! As in the paper, the data rate S(t) of a simulated RCS flow is the target of a real encoder, whose
//! output is R(t). The buffer of Figure 6 between them is a fluid: it fills at R(t) and drains at S(t).

mod track;

use tidegate_report::plot::{Cell, Figure, Point, Series, Table};

use super::sweep::mean;
use crate::papers::{Claim, Entry, Options, PapersError, Progress};
use track::{Buffered, FRAME, SECONDS, Track, buffer, total, tracks};

type Played = Result<Figure, PapersError>;

/// Sums over windows of so many frames.
fn windows(values: &[f64], frames: usize) -> Vec<f64> {
    values.chunks_exact(frames).map(total).collect()
}

/// Mean distance of R from S in windows of so many frames, as a share of the mean of S.
fn distance(track: &Track, frames: usize) -> f64 {
    let (made, permitted) = (
        windows(&track.adaptive, frames),
        windows(&track.permitted, frames),
    );
    let off: f64 = made
        .iter()
        .zip(&permitted)
        .map(|(r, s)| (r - s).abs())
        .sum();
    off / total(&permitted)
}

/// A series in so many values per second of seed 1; `scale` converts bits of a window.
fn line(name: &str, unit: &str, values: &[f64], frames: usize, scale: f64) -> Series {
    let points = windows(values, frames);
    let point = |(n, value): (usize, f64)| {
        Point::single((n as f64 + 0.5) * frames as f64 * FRAME, value * scale)
    };
    let points = points.into_iter().enumerate().map(point).collect();
    Series::new(name.to_owned(), ("s", unit), points)
}

fn percent(value: f64) -> f64 {
    100.0 * value
}

fn means(tracks: &[Track], of: impl Fn(&Track) -> f64) -> Vec<f64> {
    tracks.iter().map(of).collect()
}

/// Figure 7: R(t) and S(t).
pub(super) fn rates(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let tracks = tracks(options, progress)?;
    let mut figure = entry.figure();
    if let Some(first) = tracks.first() {
        let kb = 1e-3 / (HALF_SECOND as f64 * FRAME);
        for (name, values) in [
            ("S(t), seed 1", &first.permitted),
            ("R(t), seed 1", &first.adaptive),
        ] {
            figure
                .series
                .push(line(name, "kb/s", values, HALF_SECOND, kb));
        }
    }
    let single = mean(&means(&tracks, |track| distance(track, 1)));
    figure.claims.push(
        Claim::new(
        "real adaptive encoders do not comply exactly with S(t): frames differ from their share of S(t) \
         (the mean distance, % of S)".to_owned(),
        None,
        percent(single),
        single > 0.005,
        )
        .by_construction(),
    );
    let half = mean(&means(&tracks, |track| distance(track, HALF_SECOND)));
    figure.claim(
        "R(t) is as close to S(t) as possible (the mean distance in half a second, % of S, at most 10)",
        None,
        percent(half),
        half <= 0.1,
    );
    figure.notes.push(note(options));
    Ok(figure)
}

/// Figure 8: buffer and delay.
pub(super) fn buffers(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let tracks = tracks(options, progress)?;
    let mut figure = entry.figure();
    let limited = |track: &Track| buffer(&track.adaptive, &track.permitted, LIMIT);
    if let Some(first) = tracks.first() {
        let run = limited(first);
        let per_frame = 1.0 / HALF_SECOND as f64;
        for (name, unit, values, scale) in [
            ("buffer: k(t), seed 1", "kb", &run.level, 1e-3),
            ("delay: d(t), seed 1", "ms", &run.delay, 1e3),
        ] {
            figure
                .series
                .push(line(name, unit, values, HALF_SECOND, scale * per_frame));
        }
    }
    figure.table = Some(architectures(&tracks));
    let level = mean(&means(&tracks, |track| mean(&limited(track).level)));
    figure.claims.push(
        Claim::new(
            "the differences between R(t) and S(t) result in a buffer (its mean size, kb)"
                .to_owned(),
            None,
            level / 1e3,
            level > 0.0,
        )
        .by_construction(),
    );
    let ours = longest(&tracks, limited);
    figure.claim(
        "with a buffer of 16 kb the delay can be higher than 30 s (the longest, s)",
        Some(30.0),
        ours,
        ours > 30.0,
    );
    let queue = |track: &Track| buffer(&track.fixed, &track.permitted, f64::INFINITY);
    let ratio = delay_ratio(&tracks, queue);
    figure.claim(
        "behind a fixed encoder the delay is low when S(t) is high, and high when it is low (ratio of the \
         mean delays, lowest to highest quarter of S)",
        None,
        ratio,
        ratio > 1.0,
    );
    let lost = mean(&means(&tracks, |track| {
        buffer(&track.fixed, &track.permitted, LIMIT).lost
    }));
    figure.claims.push(
        Claim::new(
            "information is lost by overflows of the buffer behind a fixed encoder (%)".to_owned(),
            None,
            percent(lost),
            lost > 0.0,
        )
        .by_construction(),
    );
    figure.notes.push(limits(&tracks));
    figure.notes.push(note(options));
    Ok(figure)
}

/// Mean delay where the permitted rate is low, relative to that where it is high.
fn delay_ratio(tracks: &[Track], queue: impl Fn(&Track) -> Buffered) -> f64 {
    let by_rate = |low: bool| mean(&means(tracks, |track| delay_at(track, &queue(track), low)));
    by_rate(true) / by_rate(false)
}

/// The experiment on the longest delay.
fn limits(tracks: &[Track]) -> String {
    let unlimited = |of: fn(&Track) -> &Vec<f64>| {
        longest(tracks, |track| {
            buffer(of(track), &track.permitted, f64::INFINITY)
        })
    };
    let slowest = means(tracks, |track| {
        let rates = windows(&track.permitted, HALF_SECOND).into_iter();
        rates.fold(f64::INFINITY, f64::min) / (HALF_SECOND as f64 * FRAME)
    });
    let slowest = slowest.into_iter().fold(f64::INFINITY, f64::min);
    format!(
        "16 kb wait for 30 s if S(t) is {:.0} b/s, less than a packet in 10 s; the lowest S(t) of half a \
         second is {:.0} kb/s. Without a limit of the buffer the longest delay is {:.1} s behind the \
         adaptive encoder, and {:.1} s behind the fixed one.",
        LIMIT / 30.0,
        slowest / 1e3,
        unlimited(|track| &track.adaptive),
        unlimited(|track| &track.fixed),
    )
}

/// The longest delay of all runs, in seconds.
fn longest(tracks: &[Track], of: impl Fn(&Track) -> Buffered) -> f64 {
    let each = tracks.iter().flat_map(|track| of(track).delay);
    each.fold(0.0, f64::max)
}

/// Mean delay in the quarter of the frames with the lowest or highest S.
fn delay_at(track: &Track, buffered: &Buffered, low: bool) -> f64 {
    let mut frames: Vec<usize> = (0..track.permitted.len()).collect();
    frames.sort_by(|a, b| track.permitted[*a].total_cmp(&track.permitted[*b]));
    let quarter = frames.len() / 4;
    let range = if low {
        0..quarter
    } else {
        frames.len() - quarter..frames.len()
    };
    mean(
        &frames[range]
            .iter()
            .map(|n| buffered.delay[*n])
            .collect::<Vec<_>>(),
    )
}

/// Buffer, sent share of S(t), and PSNR.
type Outcome = (Buffered, f64, Option<f64>);

/// The three architectures beside one another.
fn architectures(tracks: &[Track]) -> Table {
    type Of<'a> = &'a dyn Fn(&Track) -> Outcome;
    let with = |made: fn(&Track) -> &Vec<f64>, quality: usize, limit: f64| {
        move |track: &Track| {
            let run = buffer(made(track), &track.permitted, limit);
            let sent = total(made(track)) * (1.0 - run.lost) / total(&track.permitted);
            (run, sent, track.quality[quality])
        }
    };
    let fixed = with(|track| &track.fixed, 1, LIMIT);
    let unlimited = with(|track| &track.fixed, 1, f64::INFINITY);
    let adaptive = with(|track| &track.adaptive, 0, LIMIT);
    let none = |track: &Track| {
        let still = Buffered {
            delay: vec![0.0; track.adaptive.len()],
            ..Buffered::default()
        };
        let sent = total(&track.adaptive) / total(&track.permitted);
        (still, sent, track.quality[0])
    };
    let forms: [(&str, Of<'_>); 4] = [
        ("fixed encoder, buffer of 16 kb", &fixed),
        ("fixed encoder, buffer without limit", &unlimited),
        ("adaptive encoder, buffer of 16 kb", &adaptive),
        ("adaptive encoder, no buffer", &none),
    ];
    let columns = [
        "architecture",
        "delay p95 ms",
        "longest delay ms",
        "lost %",
        "sent, % of S",
        "PSNR of Y, dB",
    ];
    let row = |(name, of): (&str, Of<'_>)| {
        let runs: Vec<_> = tracks.iter().map(of).collect();
        let each = |f: &dyn Fn(&Outcome) -> f64| mean(&runs.iter().map(f).collect::<Vec<_>>());
        let quality: Option<Vec<f64>> = runs.iter().map(|run| run.2).collect();
        vec![
            Cell::from(name),
            Cell::from(each(&|run| 1e3 * quantile(&run.0.delay, 0.95))),
            Cell::from(each(&|run| 1e3 * quantile(&run.0.delay, 1.0))),
            Cell::from(each(&|run| percent(run.0.lost))),
            Cell::from(each(&|run| percent(run.1))),
            quality.map_or(Cell::Empty, |quality| Cell::from(mean(&quality))),
        ]
    };
    Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: forms.into_iter().map(row).collect(),
    }
}

/// By nearest rank.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Figure 9: averages from the begin.
pub(super) fn averages(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let tracks = tracks(options, progress)?;
    let mut figure = entry.figure();
    if let Some(first) = tracks.first() {
        figure.series = vec![
            running_mean("μ_S(t), seed 1", &first.permitted),
            running_mean("μ_R(t), seed 1", &first.adaptive),
        ];
    }
    let ratios = means(&tracks, |track| {
        total(&track.adaptive) / total(&track.permitted)
    });
    let ours = mean(&ratios);
    figure.claim(
        "μ_R(t) ≈ μ_S(t) when t is high (their ratio at the end, 0.95 to 1.05 with each seed)",
        Some(1.0),
        ours,
        ratios.iter().all(|ratio| (0.95..=1.05).contains(ratio)),
    );
    let excess = |from: usize| {
        let each = tracks.iter().flat_map(|track| {
            let all = [&track.adaptive, &track.permitted].map(|all| windows(all, SECOND));
            let [made, permitted] = all.map(|all| all.into_iter().skip(from));
            made.zip(permitted).map(|(r, s)| r / s).collect::<Vec<_>>()
        });
        each.fold(0.0, f64::max)
    };
    let most = excess(0);
    figure.claim(
        "without the buffer the source stays TCP-friendly: it sends at most 1.5 times S(t) in any second \
         (the largest ratio)",
        None,
        most,
        most <= 1.5,
    );
    figure.notes.push(format!(
        "A flow whose first dummy packets are lost starts at a packet per round trip, less than the first \
         frame of any encoder. From 10 s on the largest ratio of a second is {:.2}.",
        excess(10)
    ));
    let off = |seconds| percent(mean(&means(&tracks, |track| off_at(track, seconds))));
    figure.notes.push(format!(
        "The distance of μ_R from μ_S is {:.1} % of μ_S at 1 s, {:.1} % at 10 s and {:.1} % at 100 s.",
        off(1.0),
        off(10.0),
        off(100.0)
    ));
    figure.notes.push(note(options));
    Ok(figure)
}

/// Mean rate from the start to each half second.
fn running_mean(name: &str, bits_of_frames: &[f64]) -> Series {
    let mut sum = 0.0;
    let point = |(n, bits): (usize, f64)| {
        sum += bits;
        let at = ((n + 1) * HALF_SECOND) as f64 * FRAME;
        Point::single(at, sum / at / 1e3)
    };
    let points = windows(bits_of_frames, HALF_SECOND).into_iter().enumerate();
    Series::new(name.to_owned(), ("s", "kb/s"), points.map(point).collect())
}

/// Distance of the averages at a time in seconds, relative to that of S.
fn off_at(track: &Track, seconds: f64) -> f64 {
    let frames = ((seconds / FRAME).round() as usize).min(track.permitted.len());
    let [made, permitted] = [&track.adaptive, &track.permitted].map(|all| total(&all[..frames]));
    (made / permitted - 1.0).abs()
}

fn note(options: &Options) -> String {
    format!(
        "S(t) is the data rate, without headers, of one of ten RCS flows over the satellite link of section \
         V-A for {SECONDS} s. {}, 352x240 at 30 frames per second, and its target is S(t) at the time of \
         each frame. The bits of a frame enter the buffer within a frame interval.",
        options.encoder().describe()
    )
}

const SECOND: usize = 30;
const HALF_SECOND: usize = 15;
/// Bits of the buffer in Figure 8.
const LIMIT: f64 = 16_000.0;
