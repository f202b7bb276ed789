//! Common parts of sending and receiving over a real network: random names, the run folder, frame
//! counts, picture sizes and frame rates.

mod json;
mod reporter;
mod run_folder;
mod sent;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use rand_core::Rng;
use tidegate_core::media::FrameRate;
use tidegate_core::quantity;
use tidegate_core::trace::{Event, Trace};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_core::wire::rtcp::Cname;
use tidegate_media::Size;
use tidegate_record::{FlowInfo, Manifest, World};

pub(crate) use json::{JsonArgs, JsonLines, rounded};
pub(crate) use reporter::{Interval, Reporter};
pub(crate) use run_folder::{Folder, claim, totals};
pub(crate) use sent::{SentReport, SentRows};
use tidegate_console::context::since_1970;
use tidegate_console::progress::counted;

/// Name of the only flow of a live run.
pub(crate) const FLOW: &str = "stream";

/// Seed of the generated scene: the same for each sender, so that a receiver can compare the
/// pictures.
pub(crate) const SCENE_SEED: u64 = 1;

/// Rate limits of the encoder.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Limits {
    /// Lowest rate of the encoder [default: 150kb/s]
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    pub(crate) floor: Option<Rate>,
    /// Highest rate of the encoder [default: 8Mb/s]
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    pub(crate) ceiling: Option<Rate>,
}

impl Limits {
    /// Lowest and highest rate.
    pub(crate) fn both(self) -> (Rate, Rate) {
        (self.floor.unwrap_or(FLOOR), self.ceiling.unwrap_or(CEILING))
    }

    /// # Errors
    /// The lowest rate is above the highest.
    pub(crate) fn check(self) -> Result<()> {
        let (floor, ceiling) = self.both();
        ensure!(
            floor <= ceiling,
            "the floor of {floor} is above the ceiling of {ceiling}: lower --floor or raise \
            --ceiling"
        );
        Ok(())
    }
}

/// Checks the size of packets and the delay bound.
///
/// # Errors
/// A value is out of range. The message names the option and the fix.
pub(crate) fn check_stream(packet_size: Bytes, delay_bound: Duration) -> Result<()> {
    ensure!(
        PACKET_SIZES.contains(&packet_size.get()),
        "packets of {} bytes are out of range: choose a --packet-size from {} to {} B",
        packet_size.get(),
        PACKET_SIZES.start(),
        PACKET_SIZES.end()
    );
    ensure!(
        !delay_bound.is_zero(),
        "a --delay-bound of zero makes every frame late: give a longer one"
    );
    Ok(())
}

/// Transport of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// RTP over UDP.
    Rtp,
    /// RTP over TCP (RFC 4571).
    Tcp,
}

/// Parses the name of a transport.
pub(crate) fn transport(text: &str) -> Result<Transport, String> {
    match text {
        "rtp" => Ok(Transport::Rtp),
        "tcp" => Ok(Transport::Tcp),
        other => Err(format!("\"{other}\" is not a transport: choose rtp or tcp")),
    }
}

/// Random CNAME that reveals nothing about this host (RFC 7022 section 4.2).
pub(crate) fn random_name(rng: &mut dyn Rng) -> Cname {
    let name = format!("{:016x}{:08x}", rng.next_u64(), rng.next_u32());
    Cname::new(name).expect("24 digits")
}

/// Buffer of events of the state machines, until they are written to the run folder.
#[derive(Debug, Default)]
pub(crate) struct TraceBuffer(RefCell<Vec<(Time, Event)>>);

impl Trace for &TraceBuffer {
    fn record(&mut self, at: Time, event: Event) {
        self.0.borrow_mut().push((at, event));
    }
}

impl TraceBuffer {
    /// Takes the events since the last call.
    pub(crate) fn take(&self) -> Vec<(Time, Event)> {
        self.0.take()
    }
}

/// Frames of a stream: number, size and period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    frames: u64,
    bits: u64,
    /// Begin of the first frame and end of the last.
    span: Option<(Time, Time)>,
}

impl Tally {
    /// Adds a frame of `bits` bits that lasted from `began` to `over`.
    pub(crate) fn add(&mut self, bits: u64, began: Time, over: Time) {
        self.frames += 1;
        self.bits += bits;
        let (first, last) = self.span.unwrap_or((began, over));
        self.span = Some((first.min(began), last.max(over)));
    }

    /// Number of frames.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Total size of the frames, without headers.
    pub(crate) fn size(&self) -> Bytes {
        Bytes(self.bits / 8)
    }

    /// Begin of the first frame and end of the last; `None` without frames.
    pub(crate) fn period(&self) -> Option<(Time, Time)> {
        self.span
    }

    /// Time from the begin of the first frame to the end of the last.
    pub(crate) fn span(&self) -> Duration {
        self.span
            .map_or(Duration::ZERO, |(first, last)| last.since(first))
    }

    /// Text for the user; `made` is the number of encoded frames.
    pub(crate) fn sent_of(&self, made: u64) -> String {
        let made = counted(made, "frame");
        if self.frames == 0 {
            return format!("sent 0 of {made}");
        }
        format!(
            "sent {} of {made} in {:.1} s, {} of video",
            self.frames,
            self.span().as_secs_f64(),
            self.rate(),
        )
    }

    /// Mean rate of the frames over their period.
    pub(crate) fn rate(&self) -> Rate {
        self.size() / self.span().max(Duration::from_millis(1))
    }
}

/// Manifest of a live run with a limit of `duration`, if there is one.
pub(crate) fn manifest(name: &str, duration: Option<Duration>, flow: FlowInfo) -> Manifest {
    let mut manifest = Manifest::new(World::Live, name, duration.unwrap_or(ENDLESS));
    manifest.started = Some(rfc3339(since_1970()));
    manifest.host = Some(host());
    manifest.flows = vec![flow];
    manifest
}

/// The only flow of a live run, with a rate of `control`.
pub(crate) fn flow_info(control: &str) -> FlowInfo {
    FlowInfo::new(FLOW.to_owned(), control)
}

/// Parses a picture size such as `640x360`.
pub(crate) fn picture_size(text: &str) -> Result<Size, String> {
    let sides = text.split_once(['x', 'X']);
    let sides = sides.and_then(|(w, h)| Some((w.trim().parse().ok()?, h.trim().parse().ok()?)));
    let Some((width, height)) = sides else {
        return Err(format!(
            "\"{text}\" is not a picture size: write it as 640x360"
        ));
    };
    Size::new(width, height).map_err(|e| e.to_string())
}

/// Parses a frame rate such as `30`, `29.97` or `30000/1001`.
pub(crate) fn frame_rate(text: &str) -> Result<FrameRate, String> {
    let wrong = || format!("\"{text}\" is not a frame rate: write it as 30, 29.97 or 30000/1001");
    let rate = match text.split_once('/') {
        Some((num, den)) => FrameRate {
            num: num.trim().parse().map_err(|_| wrong())?,
            den: den.trim().parse().map_err(|_| wrong())?,
        },
        None => decimal_rate(text.trim()).ok_or_else(wrong)?,
    };
    // No camera exceeds 1000 frames/s, and the RTP clock of 90 kHz still distinguishes such frames.
    if rate.den > 0 && (MIN_FPS..=MAX_FPS).contains(&rate.as_f64()) {
        Ok(rate)
    } else {
        Err(format!(
            "a frame rate of {text} is out of range: choose one from {MIN_FPS} to {MAX_FPS}"
        ))
    }
}

/// At most three decimals.
fn decimal_rate(text: &str) -> Option<FrameRate> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || part.len() > 3 || !digits(whole) || !digits(part) {
        return None;
    }
    let den = 10_u32.pow(part.len() as u32);
    let whole: u32 = whole.parse().ok()?;
    let part: u32 = if part.is_empty() {
        0
    } else {
        part.parse().ok()?
    };
    let num = whole.checked_mul(den)?.checked_add(part)?;
    Some(FrameRate { num, den })
}

/// Timestamp of RFC 3339 in UTC, in whole seconds.
fn rfc3339(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years start in March, so that the leap day is the last day. There are 719,468 days from
    // 0000-03-01 to 1970-01-01, and 146,097 days in 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, each five months have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = year + era * 400 + u64::from(month >= 10);
    let month = if month < 10 { month + 3 } else { month - 9 };
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Properties of this machine for the manifest.
fn host() -> BTreeMap<String, String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    let cpus = std::thread::available_parallelism();
    let facts = [
        ("kernel", kernel.ok().map(|k| k.trim().to_owned())),
        ("processors", cpus.ok().map(|n| n.to_string())),
        ("architecture", Some(std::env::consts::ARCH.to_owned())),
    ];
    let facts = facts.into_iter();
    facts
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

/// From the minimum that each IPv4 host must accept (RFC 791) to a jumbo frame.
const PACKET_SIZES: std::ops::RangeInclusive<u64> = 576..=9_000;
const FLOOR: Rate = Rate::kbps(150);
const CEILING: Rate = Rate::kbps(8_000);
/// Ten years: the manifest needs a duration even if a run has no limit.
const ENDLESS: Duration = Duration::from_hours(87_600);
const MIN_FPS: f64 = 1.0;
const MAX_FPS: f64 = 1_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_follow_the_gregorian_calendar() {
        let text = |seconds| rfc3339(Duration::from_secs(seconds));
        assert_eq!(text(0), "1970-01-01T00:00:00Z");
        assert_eq!(text(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(text(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(text(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn frame_rates_are_parsed_exactly() {
        let rate = |num, den| Ok(FrameRate { num, den });
        assert_eq!(frame_rate("30"), rate(30, 1));
        assert_eq!(frame_rate("29.97"), rate(2_997, 100));
        assert_eq!(frame_rate("30000/1001"), rate(30_000, 1_001));
        for wrong in [
            "",
            "x",
            "-1",
            "0",
            "1/0",
            "0/1",
            ".5",
            "29.9701",
            "1e3",
            "5000000000",
        ] {
            assert!(frame_rate(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn an_unknown_transport_is_named_in_the_error() {
        assert_eq!(transport("tcp"), Ok(Transport::Tcp));
        assert!(transport("quic").unwrap_err().contains("\"quic\""));
    }

    #[test]
    fn picture_sizes_have_two_numbers() {
        assert_eq!(picture_size("640x360"), Ok(Size::new(640, 360).unwrap()));
        for wrong in ["640", "640x", "axb", "640x361", "0x0"] {
            assert!(picture_size(wrong).is_err(), "{wrong}");
        }
    }
}
