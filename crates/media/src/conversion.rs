//! Conversion of decoded pictures: upright, progressive, with square pixels, 4:2:0 with 8 bits and
//! limited range. FFmpeg's filters do it.

use ffmpeg_the_third as ffmpeg;
use ffmpeg_the_third::format::Pixel;
use tidegate_core::media::FrameRate;

use crate::colour::Colour;
use crate::orientation::Orientation;
use crate::picture::Size;

/// Converts pictures to one size. Some pictures leave only when the next one has entered.
pub(crate) struct Conversion {
    size: Size,
    orientation: Orientation,
    /// Some pictures are interlaced.
    interlaced: bool,
    graph: Option<(Input, ffmpeg::filter::Graph)>,
    /// A picture that needs no conversion, and its time.
    unchanged: Option<(ffmpeg::frame::Video, i64)>,
}

/// Properties of the pictures that a filter graph was made for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Input {
    format: Pixel,
    width: u32,
    height: u32,
    /// Code point of the matrix (ITU-T H.273).
    matrix: u8,
    full_range: bool,
    interlaced: bool,
}

impl Input {
    fn of(frame: &ffmpeg::frame::Video, interlaced: bool) -> Self {
        let colour = Colour::of(frame);
        Self {
            format: frame.format(),
            width: frame.width(),
            height: frame.height(),
            matrix: colour.matrix,
            full_range: is_full_range(frame),
            interlaced,
        }
    }
}

impl Conversion {
    /// Converts to pictures of `size`.
    pub(crate) const fn new(size: Size, orientation: Orientation) -> Self {
        Self {
            size,
            orientation,
            interlaced: false,
            graph: None,
            unchanged: None,
        }
    }

    /// Takes a picture with its time in ns, and leaves `frame` empty.
    ///
    /// # Errors
    /// FFmpeg has no filter for this format.
    pub(crate) fn push(
        &mut self,
        frame: &mut ffmpeg::frame::Video,
        time: i64,
    ) -> Result<(), ffmpeg::Error> {
        self.interlaced |= frame.is_interlaced();
        if self.is_identity(frame) {
            let frame = std::mem::replace(frame, ffmpeg::frame::Video::empty());
            self.unchanged = Some((frame, time));
            return Ok(());
        }
        let input = Input::of(frame, self.interlaced);
        let graph = match &mut self.graph {
            Some((made_for, graph)) if *made_for == input => graph,
            other => {
                // A picture inside the old graph is lost with it.
                let graph = graph(input, self.orientation, self.size)?;
                &mut other.insert((input, graph)).1
            }
        };
        frame.set_pts(Some(time / NANOS_PER_TICK));
        let mut entry = graph.get(ENTRY).ok_or(ffmpeg::Error::FilterNotFound)?;
        entry.source().add(frame)
    }

    /// All pictures have been pushed.
    pub(crate) fn finish(&mut self) {
        if let Some((_, graph)) = &mut self.graph
            && let Some(mut entry) = graph.get(ENTRY)
        {
            // Fails if the graph is finished already.
            let _ = entry.source().flush();
        }
    }

    /// Moves the next converted picture into `frame` and returns its time in ns; `None` if another
    /// one must be pushed first.
    pub(crate) fn pull(&mut self, frame: &mut ffmpeg::frame::Video) -> Option<i64> {
        if let Some((picture, time)) = self.unchanged.take() {
            *frame = picture;
            return Some(time);
        }
        let (_, graph) = self.graph.as_mut()?;
        let mut exit = graph.get(EXIT)?;
        // SAFETY: the filter is an open buffer sink; one field is read.
        let unit = unsafe { ffmpeg::ffi::av_buffersink_get_time_base(exit.as_ptr()) };
        exit.sink().frame(frame).ok()?;
        let ticks = i128::from(frame.pts().unwrap_or_default());
        let nanos = ticks * i128::from(unit.num) * 1_000_000_000 / i128::from(unit.den.max(1));
        Some(nanos as i64)
    }

    fn is_identity(&self, frame: &ffmpeg::frame::Video) -> bool {
        !self.interlaced
            && self.orientation == Orientation::Upright
            && frame.format() == Pixel::YUV420P
            && !is_full_range(frame)
            && (frame.width(), frame.height()) == (self.size.width(), self.size.height())
    }
}

/// What the conversion to `size` changes, for the user.
pub(crate) fn changes(
    frame: &ffmpeg::frame::Video,
    orientation: Orientation,
    pixel: (u32, u32),
) -> Vec<String> {
    let mut changes = Vec::new();
    if orientation != Orientation::Upright {
        changes.push(orientation.name().to_owned());
    }
    if pixel.0 != pixel.1 {
        changes.push(format!("pixels of {}:{} made square", pixel.0, pixel.1));
    }
    if frame.is_interlaced() {
        changes.push("deinterlaced".to_owned());
    }
    let format = frame.format();
    if !matches!(format, Pixel::YUV420P | Pixel::YUVJ420P) {
        let name = format.descriptor().map_or("unknown", |d| d.name());
        changes.push(format!("{name} to 4:2:0 with 8 bits"));
    }
    if is_full_range(frame) {
        changes.push("full range to limited".to_owned());
    }
    changes
}

/// Size of upright pictures with square pixels, of which coded ones have the shape `pixel`. One
/// side is stretched; both are even and at least the minimum.
pub(crate) fn square(
    (width, height): (u32, u32),
    pixel: (u32, u32),
    orientation: Orientation,
) -> (u32, u32) {
    let scaled = |n: u32, (to, from): (u32, u32)| {
        (u64::from(n) * u64::from(to) + u64::from(from) / 2) / u64::from(from.max(1))
    };
    let even = |n: u64| {
        u32::try_from(n)
            .unwrap_or(u32::MAX - 1)
            .next_multiple_of(2)
            .max(16)
    };
    let (width, height) = if pixel.0 >= pixel.1 {
        (scaled(width, pixel), u64::from(height))
    } else {
        (u64::from(width), scaled(height, (pixel.1, pixel.0)))
    };
    let (width, height) = (even(width), even(height));
    if orientation.is_sideways() {
        (height, width)
    } else {
        (width, height)
    }
}

/// Filters from an entry to an exit.
fn graph(
    input: Input,
    orientation: Orientation,
    size: Size,
) -> Result<ffmpeg::filter::Graph, ffmpeg::Error> {
    let filter = |name| ffmpeg::filter::find(name).ok_or(ffmpeg::Error::FilterNotFound);
    let Input {
        format,
        width,
        height,
        ..
    } = input;
    let name = format.descriptor().map_or("none", |d| d.name());
    let mut graph = ffmpeg::filter::Graph::new();
    let entry = format!("video_size={width}x{height}:pix_fmt={name}:time_base=1/1000000");
    graph.add(&filter("buffer")?, ENTRY, &entry)?;
    graph.add(&filter("buffersink")?, EXIT, "")?;
    let spec = specification(input, orientation, size);
    graph.output(ENTRY, 0)?.input(EXIT, 0)?.parse(&spec)?;
    graph.validate()?;
    Ok(graph)
}

/// The graph in FFmpeg's notation. Range and matrix are stated, since versions of FFmpeg differ in
/// what they take from a frame.
fn specification(input: Input, orientation: Orientation, size: Size) -> String {
    let mut chain = Vec::new();
    if input.interlaced {
        // One picture per frame, and only of frames that are marked as interlaced.
        chain.push("bwdif=mode=send_frame:deint=interlaced".to_owned());
    }
    chain.extend(orientation.filter().map(str::to_owned));
    let (width, height) = (size.width(), size.height());
    let colours = if is_rgb(input.format) {
        let matrix = Colour::matrix_for_rgb(size);
        format!("out_color_matrix={}", matrix_name(matrix))
    } else {
        let range = if input.full_range { "full" } else { "limited" };
        let matrix = matrix_name(input.matrix);
        format!("in_range={range}:in_color_matrix={matrix}:out_color_matrix={matrix}")
    };
    // The same result on every machine, for reproducible runs.
    let flags = "bicubic+accurate_rnd+bitexact";
    chain.push(format!(
        "scale=w={width}:h={height}:flags={flags}:out_range=limited:{colours}"
    ));
    chain.push("format=yuv420p".to_owned());
    chain.join(",")
}

/// Name of a matrix in FFmpeg's filter `scale`; unspecified ones are converted like BT.601, which
/// does not matter between two formats of the same matrix.
const fn matrix_name(code: u8) -> &'static str {
    match code {
        1 => "bt709",
        4 => "fcc",
        7 => "smpte240m",
        9 | 10 => "bt2020",
        _ => "bt601",
    }
}

/// Whether black is 0 and white 255.
pub(crate) fn is_full_range(frame: &ffmpeg::frame::Video) -> bool {
    use ffmpeg::color::Range;
    let old_names = [
        Pixel::YUVJ420P,
        Pixel::YUVJ422P,
        Pixel::YUVJ444P,
        Pixel::YUVJ440P,
    ];
    old_names.contains(&frame.format())
        || frame.color_range() == Range::JPEG && !is_rgb(frame.format())
}

/// Whether the format is RGB, also with a palette.
pub(crate) fn is_rgb(format: Pixel) -> bool {
    let descriptor = format.descriptor();
    // SAFETY: descriptors are constants of FFmpeg; one integer is read.
    let flags = descriptor.map_or(0, |d| unsafe { (*d.as_ptr()).flags });
    flags & u64::from(ffmpeg::ffi::AV_PIX_FMT_FLAG_RGB as u32) != 0 || format == Pixel::PAL8
}

/// Grid of times on which each picture of a stream with these rates has a place of its own, and
/// whether it has places without a picture. `base` is the lowest rate of which all timestamps are
/// multiples, as far as FFmpeg found one.
pub(crate) fn grid(mean: FrameRate, base: Option<FrameRate>) -> (FrameRate, bool) {
    match base {
        Some(base) if base.as_f64() > mean.as_f64() * VARIABLE => (base, true),
        _ => (mean, false),
    }
}

const ENTRY: &str = "in";
const EXIT: &str = "out";
const NANOS_PER_TICK: i64 = 1_000;
/// Ratio of the base rate to the mean rate above which a stream has a variable rate. Means are
/// rounded.
const VARIABLE: f64 = 1.02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_become_square_by_stretching() {
        let upright = Orientation::Upright;
        assert_eq!(square((360, 288), (64, 45), upright), (512, 288));
        assert_eq!(square((1440, 1080), (4, 3), upright), (1920, 1080));
        assert_eq!(square((720, 480), (8, 9), upright), (720, 540));
        assert_eq!(square((640, 360), (1, 1), upright), (640, 360));
        assert_eq!(
            square((360, 288), (64, 45), Orientation::Clockwise),
            (288, 512)
        );
        // Odd and tiny pictures.
        assert_eq!(square((641, 9), (1, 1), upright), (642, 16));
    }

    #[test]
    fn a_base_above_the_mean_is_a_variable_rate() {
        let fps = FrameRate::fps;
        assert_eq!(grid(fps(17), Some(fps(30))), (fps(30), true));
        assert_eq!(grid(fps(30), Some(fps(30))), (fps(30), false));
        assert_eq!(grid(fps(30), None), (fps(30), false));
        let ntsc = FrameRate {
            num: 30_000,
            den: 1_001,
        };
        assert_eq!(grid(ntsc, Some(fps(30))), (ntsc, false));
    }
}
