//! Trace of a recorded encode: frame sizes and quality at several rates, as text.

use core::fmt::{self, Write as _};

use tidegate_core::media::{FrameRate, Quality};
use tidegate_core::units::Rate;

/// Sizes and quality of one sequence of frames, encoded at several rates.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameTrace {
    frame_rate: FrameRate,
    rates: Vec<Rate>,
    keys: Vec<bool>,
    /// Frame-major: one size per rate for each frame.
    sizes: Vec<u32>,
    /// Quality in the order of `sizes`, or empty.
    quality: Vec<Quality>,
}

/// A frame of a [`FrameTrace`] at one of its rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordedFrame {
    /// Size of the access unit, in bytes.
    pub size: u32,
    /// Quality relative to the source picture.
    pub quality: Option<Quality>,
}

/// A frame at all rates of a [`FrameTrace`].
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFrame {
    /// Whether it is a key frame.
    pub is_key: bool,
    /// The frame at each rate, in the order of the rates.
    pub at_each_rate: Vec<RecordedFrame>,
}

impl FrameTrace {
    /// Parses a trace. `docs/traffic.md` describes the format.
    ///
    /// # Errors
    /// The first error, with its line and the fix.
    pub fn parse(text: &str) -> Result<Self, FrameTraceError> {
        let mut lines = text
            .lines()
            .zip(1..)
            .map(|(line, number)| (line.trim(), number))
            .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let end = text.lines().count();
        let mut header = |fault| {
            let missing = FrameTraceError { line: end, fault };
            lines.next().ok_or(missing)
        };
        let (line, number) = header(FrameTraceFault::FrameRate)?;
        let frame_rate = frame_rate(line).ok_or(FrameTraceError {
            line: number,
            fault: FrameTraceFault::FrameRate,
        })?;
        let (line, number) = header(FrameTraceFault::Rates)?;
        let rates = rates(line).ok_or(FrameTraceError {
            line: number,
            fault: FrameTraceFault::Rates,
        })?;
        let mut trace = Self {
            frame_rate,
            rates,
            keys: Vec::new(),
            sizes: Vec::new(),
            quality: Vec::new(),
        };
        for (line, number) in lines {
            let read = trace.read_frame(line);
            read.map_err(|fault| FrameTraceError {
                line: number,
                fault,
            })?;
        }
        if !trace.keys.contains(&false) {
            return Err(FrameTraceError {
                line: end,
                fault: FrameTraceFault::NoDelta,
            });
        }
        Ok(trace)
    }

    fn read_frame(&mut self, line: &str) -> Result<(), FrameTraceFault> {
        let mut words = line.split_whitespace();
        let key = match words.next() {
            Some("key") => true,
            Some("-") => false,
            other => {
                return Err(FrameTraceFault::Kind(other.unwrap_or_default().to_owned()));
            }
        };
        if self.keys.is_empty() && !key {
            return Err(FrameTraceFault::FirstFrame);
        }
        let mut found = 0;
        for word in words {
            let frame = recorded(word)?;
            if frame.quality.is_some() == self.quality.is_empty() && !self.sizes.is_empty() {
                return Err(FrameTraceFault::Mixed);
            }
            self.sizes.push(frame.size);
            self.quality.extend(frame.quality);
            found += 1;
        }
        if found != self.rates.len() {
            return Err(FrameTraceFault::Count {
                found,
                wanted: self.rates.len(),
            });
        }
        self.keys.push(key);
        Ok(())
    }

    /// A trace from frames in order.
    ///
    /// # Errors
    /// As [`parse`](Self::parse) for the same trace as text.
    pub fn from_frames(
        frame_rate: FrameRate,
        rates: &[Rate],
        frames: &[TraceFrame],
    ) -> Result<Self, FrameTraceError> {
        let mut text = head(frame_rate, rates);
        for frame in frames {
            write_frame(&mut text, frame.is_key, frame.at_each_rate.iter().copied());
        }
        Self::parse(&text)
    }

    /// Frames per second.
    pub fn frame_rate(&self) -> FrameRate {
        self.frame_rate
    }

    /// Rates at which the frames were encoded, ascending.
    pub fn rates(&self) -> &[Rate] {
        &self.rates
    }

    /// Number of frames, at least two.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether frame `n` is a key frame. Panics if `n` is out of range.
    pub fn is_key(&self, n: usize) -> bool {
        self.keys[n]
    }

    /// Frame `n` at the rate of index `rate`. Panics if an index is out of range.
    pub fn frame(&self, n: usize, rate: usize) -> RecordedFrame {
        let at = n * self.rates.len() + rate;
        RecordedFrame {
            size: self.sizes[at],
            quality: self.quality.get(at).copied(),
        }
    }

    /// Size of frame `n` at any rate, in bytes. Linear between the two adjacent recorded rates, so
    /// that a mean that holds at both holds between them. Proportional to the rate outside of the
    /// recorded range.
    pub fn size_at(&self, n: usize, rate: Rate) -> f64 {
        let size = |i| f64::from(self.frame(n, i).size);
        let (first, last) = (0, self.rates.len() - 1);
        if rate <= self.rates[first] {
            return size(first) * rate.as_f64() / self.rates[first].as_f64();
        }
        if rate >= self.rates[last] {
            return size(last) * rate.as_f64() / self.rates[last].as_f64();
        }
        let above = self.rates.partition_point(|known| *known < rate);
        let (low, high) = (self.rates[above - 1].as_f64(), self.rates[above].as_f64());
        let weight = (rate.as_f64() - low) / (high - low);
        size(above - 1) * (1.0 - weight) + size(above) * weight
    }

    /// Quality of frame `n` at any rate, if recorded. Linear in the logarithm of the rate, and
    /// extrapolated by at most one doubling.
    pub fn quality_at(&self, n: usize, rate: Rate) -> Option<Quality> {
        let known = |i: usize| self.frame(n, i).quality;
        let above = self
            .rates
            .partition_point(|known| *known < rate)
            .clamp(1, self.rates.len().max(2) - 1);
        let (Some(low), Some(high)) = (self.rates.get(above - 1), self.rates.get(above)) else {
            return known(0);
        };
        let log = |rate: Rate| libm::log2(rate.as_f64().max(1.0));
        let span = log(*high) - log(*low);
        let weight = (log(rate) - log(*low)) / span;
        let weight = weight.clamp(-1.0 / span, 1.0 + 1.0 / span);
        let (a, b) = (known(above - 1)?, known(above)?);
        let mix = |a: f64, b: f64| a + weight * (b - a);
        let psnr = |a, b| mix(a, b).clamp(0.0, 99.0);
        Some(Quality {
            psnr_y: psnr(a.psnr_y, b.psnr_y),
            psnr_u: psnr(a.psnr_u, b.psnr_u),
            psnr_v: psnr(a.psnr_v, b.psnr_v),
            ssim: mix(a.ssim, b.ssim).clamp(0.0, 1.0),
        })
    }
}

/// The format of [`FrameTrace::parse`]. Quality is rounded to 0.01 dB.
impl fmt::Display for FrameTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = head(self.frame_rate, &self.rates);
        for n in 0..self.len() {
            let frames = (0..self.rates.len()).map(|rate| self.frame(n, rate));
            write_frame(&mut text, self.keys[n], frames);
        }
        f.write_str(&text)
    }
}

fn head(frame_rate: FrameRate, rates: &[Rate]) -> String {
    let mut text = match frame_rate {
        FrameRate { num, den: 1 } => format!("frame_rate {num}\nrates"),
        FrameRate { num, den } => format!("frame_rate {num}/{den}\nrates"),
    };
    for rate in rates {
        push(&mut text, format_args!(" {}", rate.as_bps()));
    }
    text.push('\n');
    text
}

fn write_frame(text: &mut String, key: bool, frames: impl Iterator<Item = RecordedFrame>) {
    text.push_str(if key { "key" } else { "-" });
    for frame in frames {
        push(text, format_args!(" {}", frame.size));
        if let Some(q) = frame.quality {
            let Quality {
                psnr_y,
                psnr_u,
                psnr_v,
                ssim,
            } = q;
            push(
                text,
                format_args!(",{psnr_y:.2},{psnr_u:.2},{psnr_v:.2},{ssim:.4}"),
            );
        }
    }
    text.push('\n');
}

fn push(text: &mut String, arguments: fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("writing to a string does not fail");
}

fn frame_rate(line: &str) -> Option<FrameRate> {
    let value = line.strip_prefix("frame_rate ")?.trim();
    let (num, den) = value.split_once('/').unwrap_or((value, "1"));
    let rate = FrameRate {
        num: num.parse().ok()?,
        den: den.parse().ok()?,
    };
    (rate.den > 0 && (1.0..=240.0).contains(&rate.as_f64())).then_some(rate)
}

fn rates(line: &str) -> Option<Vec<Rate>> {
    let words = line.strip_prefix("rates ")?.split_whitespace();
    let rates: Vec<Rate> = words
        .map(|word| word.parse().ok().map(Rate::bps))
        .collect::<Option<_>>()?;
    let ascending = rates.windows(2).all(|pair| pair[0] < pair[1]);
    (ascending && *rates.first()? > Rate::ZERO).then_some(rates)
}

fn recorded(word: &str) -> Result<RecordedFrame, FrameTraceFault> {
    let fault = || FrameTraceFault::Number(word.to_owned());
    let (size, rest) = match word.split_once(',') {
        Some((size, rest)) => (size, Some(rest)),
        None => (word, None),
    };
    let size: u32 = size.parse().map_err(|_| fault())?;
    let Some(rest) = rest else {
        return Ok(RecordedFrame {
            size,
            quality: None,
        });
    };
    let numbers: Vec<f64> = rest
        .split(',')
        .map(|word| word.parse().map_err(|_| fault()))
        .collect::<Result<_, _>>()?;
    let [psnr_y, psnr_u, psnr_v, ssim] = numbers[..] else {
        return Err(fault());
    };
    let plausible = [psnr_y, psnr_u, psnr_v]
        .iter()
        .all(|psnr| (0.0..=99.0).contains(psnr));
    if !plausible || !(0.0..=1.0).contains(&ssim) {
        return Err(fault());
    }
    Ok(RecordedFrame {
        size,
        quality: Some(Quality {
            psnr_y,
            psnr_u,
            psnr_v,
            ssim,
        }),
    })
}

/// Position and kind of an error in a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct FrameTraceError {
    /// Line number from one; the last line if data is missing.
    pub line: usize,
    /// The error.
    pub fault: FrameTraceFault,
}

/// Errors of a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameTraceFault {
    /// The number of sizes of a frame differs from the number of rates.
    #[error("{found} sizes for {wanted} rates: write one size for each rate")]
    Count {
        /// Number of sizes.
        found: usize,
        /// Number of rates.
        wanted: usize,
    },
    /// The first frame is not a key frame.
    #[error(
        "the first frame is not a key frame, so no frame can be decoded: cut the trace at a \
         line with `key`"
    )]
    FirstFrame,
    /// The first line is not a frame rate.
    #[error(
        "a trace begins with frames per second, from 1 to 240: write `frame_rate 30` or \
         `frame_rate 30000/1001`"
    )]
    FrameRate,
    /// Unknown kind of frame.
    #[error("a frame begins with `key` or `-`, not with `{0}`")]
    Kind(String),
    /// Only some of the sizes have a quality.
    #[error("some sizes come with a quality and some without: write it for all or for none")]
    Mixed,
    /// All frames are key frames.
    #[error("the trace has key frames only: add lines with `-`")]
    NoDelta,
    /// Neither a size nor a size with a quality.
    #[error(
        "`{0}` is not a frame: write bytes, or bytes,psnr_y,psnr_u,psnr_v,ssim with decibels up \
         to 99 and ssim up to 1"
    )]
    Number(String),
    /// The second line is not a list of rates.
    #[error(
        "the second line names the rates in bits per second, ascending: write `rates 300000 1000000`"
    )]
    Rates,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "\
# Ten words about where it comes from.
frame_rate 30000/1001
rates 100000 400000

key 1000,30.00,33.00,34.00,0.9000 4000,36.00,39.00,40.00,0.9600
- 300,31.00,34.00,35.00,0.9100 1500,37.00,40.00,41.00,0.9700
";

    #[test]
    fn text_round_trips() {
        let trace = FrameTrace::parse(SMALL).unwrap();
        assert_eq!(
            trace.frame_rate(),
            FrameRate {
                num: 30_000,
                den: 1_001
            }
        );
        assert_eq!(trace.rates(), [Rate::kbps(100), Rate::kbps(400)]);
        assert_eq!(
            (trace.len(), trace.is_key(0), trace.is_key(1)),
            (2, true, false)
        );
        assert_eq!(trace.frame(1, 1).size, 1_500);
        assert_eq!(FrameTrace::parse(&trace.to_string()), Ok(trace));
        let plain = FrameTrace::parse("frame_rate 25\nrates 1000\nkey 9\n- 3\n").unwrap();
        assert_eq!(plain.frame(0, 0).quality, None);
        assert_eq!(plain.to_string(), "frame_rate 25\nrates 1000\nkey 9\n- 3\n");
    }

    #[test]
    fn sizes_are_interpolated_between_rates() {
        let trace = FrameTrace::parse(SMALL).unwrap();
        let size = |kbps| trace.size_at(1, Rate::kbps(kbps)) as u64;
        assert_eq!(
            [50, 100, 200, 250, 400, 800].map(size),
            [150, 300, 700, 900, 1_500, 3_000]
        );
        let psnr = |kbps| trace.quality_at(1, Rate::kbps(kbps)).unwrap().psnr_y;
        // 3 dB per doubling of the rate, and at most one doubling beyond the recorded rates.
        let known = [100, 200, 400, 800, 6_400, 50, 1].map(psnr);
        for (found, wanted) in known.iter().zip([31.0, 34.0, 37.0, 40.0, 40.0, 28.0, 28.0]) {
            assert!((found - wanted).abs() < 1e-9, "{known:?}");
        }
        let alone = "frame_rate 25\nrates 1000\nkey 9,40,40,40,1\n- 3,20,20,20,0.5\n";
        let alone = FrameTrace::parse(alone).unwrap();
        assert_eq!(alone.size_at(0, Rate::bps(2_000)) as u64, 18);
        assert_eq!(alone.quality_at(1, Rate::MAX).unwrap().psnr_y as u64, 20);
    }

    #[test]
    fn errors_name_line_and_fix() {
        let fault = |text: &str| FrameTrace::parse(text).unwrap_err().to_string();
        let lines = |frames: &str| format!("frame_rate 30\nrates 1000 2000\n{frames}");
        assert!(fault("").starts_with("line 0: a trace begins with frames per second"));
        assert!(fault("# x\nframe_rate 30/0\n").starts_with("line 2: a trace begins"));
        assert!(fault("frame_rate 30\n").starts_with("line 1: the second line names"));
        assert!(fault("frame_rate 30\nrates 5 5\n").starts_with("line 2: the second line"));
        assert!(fault("frame_rate 30\nrates 0 5\n").starts_with("line 2: the second line"));
        assert_eq!(
            fault(&lines("key 1 2\n- 1\n")),
            "line 4: 1 sizes for 2 rates: write one size for each rate"
        );
        assert_eq!(
            fault(&lines("- 1 2\n")),
            "line 3: the first frame is not a key frame, so no frame can be decoded: \
             cut the trace at a line with `key`"
        );
        assert_eq!(
            fault(&lines("key 1 2\nP 1 2\n")),
            "line 4: a frame begins with `key` or `-`, not with `P`"
        );
        assert!(fault(&lines("key 1 2,1,1,1,0.5\n")).starts_with("line 3: some sizes come"));
        assert!(fault(&lines("key 1,1,1,1,0.5 2\n")).starts_with("line 3: some sizes come"));
        assert!(fault(&lines("key 1 2\n")).starts_with("line 3: the trace has key frames only"));
        for word in ["x", "-3", "1,2", "1,1,1,1,2", "1,100,1,1,1", "1,NaN,1,1,1"] {
            let found = fault(&lines(&format!("key {word} 2\n")));
            assert!(
                found.starts_with(&format!("line 3: `{word}` is not a frame")),
                "{found}"
            );
        }
    }
}
