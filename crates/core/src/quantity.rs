//! Numbers with units: `4Mb/s`, `400ms`, `60kB`, `50 packets`, `0.1%`.
//!
//! Decimals are exact: digits are scaled as integers. A value finer than the base unit is rejected,
//! not rounded. Rates and time spans also have the spellings of other programs: `5M`, `5Mbps`,
//! `5Mbit/s`, and `5` for five seconds.

use core::fmt;
use core::time::Duration;

use crate::link::Limit;
use crate::units::{Bytes, Rate};

/// Parses a rate, as `4Mb/s`, `4Mbps`, `4Mbit/s` or `4M`.
///
/// # Errors
/// [`QuantityError`] with the text and the cause.
pub fn rate(text: &str) -> Result<Rate, QuantityError> {
    read(text, Quantity::Rate).map(|(bps, _)| Rate::bps(bps))
}

/// Parses a time span, as `400ms`. A number without unit is in seconds.
///
/// # Errors
/// [`QuantityError`] with the text and the cause.
pub fn duration(text: &str) -> Result<Duration, QuantityError> {
    read(text, Quantity::Duration).map(|(nanos, _)| Duration::from_nanos(nanos))
}

/// Parses a size, as `60kB`.
///
/// # Errors
/// [`QuantityError`] with the text and the cause.
pub fn size(text: &str) -> Result<Bytes, QuantityError> {
    read(text, Quantity::Size).map(|(bytes, _)| Bytes(bytes))
}

/// Parses the size of a queue, as `60kB` or `50 packets`.
///
/// # Errors
/// [`QuantityError`] with the text and the cause.
pub fn limit(text: &str) -> Result<Limit, QuantityError> {
    let (value, unit) = read(text, Quantity::Limit)?;
    if unit.starts_with("packet") {
        count(text, value, Quantity::Limit).map(Limit::Packets)
    } else {
        Ok(Limit::Bytes(Bytes(value)))
    }
}

/// Parses a number of packets, as `50 packets`.
///
/// # Errors
/// [`QuantityError`] with the text and the cause.
pub fn packets(text: &str) -> Result<u32, QuantityError> {
    let (value, _) = read(text, Quantity::Packets)?;
    count(text, value, Quantity::Packets)
}

/// Parses a mean number of packets, as `9.375 packets`.
///
/// # Errors
/// [`QuantityError`] with the text and the cause.
pub fn mean_packets(text: &str) -> Result<f64, QuantityError> {
    // Decimals are allowed, so the unit check ignores the decimal point.
    let whole: String = text.chars().filter(|c| *c != '.').collect();
    let fault = |fault| QuantityError::new(text, Quantity::Packets, fault);
    read(&whole, Quantity::Packets).map_err(|error| fault(error.fault))?;
    let (digits, _) = split(text.trim());
    digits.parse().map_err(|_| fault(QuantityFault::NoNumber))
}

fn count(text: &str, value: u64, quantity: Quantity) -> Result<u32, QuantityError> {
    u32::try_from(value).map_err(|_| QuantityError::new(text, quantity, QuantityFault::TooLarge))
}

/// Parses a share, as `0.1%` or `0.001`. It may exceed one; the caller checks the range.
///
/// # Errors
/// [`QuantityError`] with the text and the cause.
pub fn share(text: &str) -> Result<f64, QuantityError> {
    let (number, divisor) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text.trim(), 1.0),
    };
    let fault = |fault| QuantityError::new(text, Quantity::Share, fault);
    let (digits, rest) = split(number);
    if digits.is_empty() {
        return Err(fault(no_number(number)));
    }
    if !rest.is_empty() {
        return Err(fault(QuantityFault::UnknownUnit(rest.to_owned())));
    }
    digits
        .parse::<f64>()
        .map(|value| value / divisor)
        .map_err(|_| fault(QuantityFault::NoNumber))
}

/// A malformed quantity. The message has the text, the cause and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    /// The text in the file.
    pub text: String,
    /// The expected quantity.
    pub quantity: Quantity,
    /// The cause.
    pub fault: QuantityFault,
}

impl QuantityError {
    fn new(text: &str, quantity: Quantity, fault: QuantityFault) -> Self {
        Self {
            text: text.to_owned(),
            quantity,
            fault,
        }
    }
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            text,
            quantity,
            fault,
        } = self;
        let name = quantity.name();
        match fault {
            QuantityFault::Negative => write!(f, "\"{text}\" is negative")?,
            QuantityFault::NoNumber => write!(f, "\"{text}\" does not begin with a number")?,
            QuantityFault::NoUnit => write!(f, "\"{text}\" has no unit")?,
            QuantityFault::TooFine => write!(
                f,
                "\"{text}\" is finer than the smallest unit of {name}, {}",
                quantity.units()[0].0
            )?,
            QuantityFault::TooLarge => write!(f, "\"{text}\" is too large for {name}")?,
            QuantityFault::UnknownUnit(unit) => {
                write!(f, "\"{text}\": \"{unit}\" is not a unit of {name}")?;
            }
        }
        write!(f, "; write {}", quantity.example())?;
        let units: Vec<_> = quantity.units().iter().map(|(unit, _)| *unit).collect();
        if units.is_empty() {
            Ok(())
        } else {
            write!(f, " (units: {})", units.join(", "))
        }
    }
}

impl core::error::Error for QuantityError {}

/// Cause of a malformed quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuantityFault {
    /// It has a minus sign.
    Negative,
    /// It does not begin with a number.
    NoNumber,
    /// The number has no unit.
    NoUnit,
    /// It is not a whole number of base units.
    TooFine,
    /// The value exceeds the range of the type.
    TooLarge,
    /// The unit does not belong to this quantity.
    UnknownUnit(String),
}

/// The kinds of quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A time span.
    Duration,
    /// The size of a queue.
    Limit,
    /// A number of packets.
    Packets,
    /// Bits per second.
    Rate,
    /// A part of a whole.
    Share,
    /// Bytes.
    Size,
}

impl Quantity {
    /// Name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Duration => "a time span",
            Self::Limit => "a queue size",
            Self::Packets => "a number of packets",
            Self::Rate => "a rate",
            Self::Share => "a share",
            Self::Size => "a size",
        }
    }

    /// An example, quoted.
    pub const fn example(self) -> &'static str {
        match self {
            Self::Duration => "it as \"400ms\"",
            Self::Limit => "it as \"60kB\" or \"50 packets\"",
            Self::Packets => "it as \"50 packets\"",
            Self::Rate => "it as \"4Mb/s\"",
            Self::Share => "it as 0.001 or \"0.1%\"",
            Self::Size => "it as \"1200B\"",
        }
    }

    /// Units with their size in base units; the base unit first.
    const fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Duration => &[
                ("ns", 1),
                ("us", 1_000),
                ("ms", 1_000_000),
                ("s", 1_000_000_000),
                ("min", 60_000_000_000),
                ("h", 3_600_000_000_000),
            ],
            Self::Limit => &[
                ("B", 1),
                ("kB", 1_000),
                ("MB", 1_000_000),
                ("KiB", 1 << 10),
                ("MiB", 1 << 20),
                ("packet", 1),
                ("packets", 1),
            ],
            Self::Packets => &[("packets", 1), ("packet", 1)],
            Self::Rate => &[
                ("b/s", 1),
                ("kb/s", 1_000),
                ("Mb/s", 1_000_000),
                ("Gb/s", 1_000_000_000),
                ("Tb/s", 1_000_000_000_000),
            ],
            Self::Share => &[],
            Self::Size => &[
                ("B", 1),
                ("kB", 1_000),
                ("MB", 1_000_000),
                ("KiB", 1 << 10),
                ("MiB", 1 << 20),
            ],
        }
    }
}

impl Quantity {
    /// The unit of this program for the spelling of another one. Upper and lower case are
    /// distinguished, because `MBps` means bytes and `m` is a thousandth, a metre or a minute.
    fn standard(self, unit: &str) -> &str {
        match (self, unit) {
            (Self::Duration, "sec") => "s",
            (Self::Duration, "µs" | "μs") => "us",
            (Self::Rate, "bps" | "bit/s") => "b/s",
            (Self::Rate, "k" | "K" | "kbps" | "Kbps" | "kbit" | "kbit/s" | "Kb/s") => "kb/s",
            (Self::Rate, "M" | "Mbps" | "Mbit" | "Mbit/s") => "Mb/s",
            (Self::Rate, "G" | "Gbps" | "Gbit" | "Gbit/s") => "Gb/s",
            (Self::Rate, "T" | "Tbps" | "Tbit" | "Tbit/s") => "Tb/s",
            (_, unit) => unit,
        }
    }
}

/// The value in base units, and its unit in the text.
fn read(text: &str, quantity: Quantity) -> Result<(u64, &'static str), QuantityError> {
    let fault = |fault| QuantityError::new(text, quantity, fault);
    let (digits, unit) = split(text.trim());
    if digits.is_empty() {
        return Err(fault(no_number(text.trim())));
    }
    let unit = match (unit, quantity) {
        ("", Quantity::Duration) if digits != "." => "s",
        ("", _) => return Err(fault(QuantityFault::NoUnit)),
        (unit, _) => quantity.standard(unit),
    };
    let &(unit, worth) = quantity
        .units()
        .iter()
        .find(|(known, _)| *known == unit)
        .ok_or_else(|| fault(QuantityFault::UnknownUnit(unit.to_owned())))?;
    exact(digits, worth)
        .map(|value| (value, unit))
        .map_err(fault)
}

/// `digits` (at most one decimal point) times `worth`, if the product is an integer.
fn exact(digits: &str, worth: u64) -> Result<u64, QuantityFault> {
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return Err(QuantityFault::NoNumber);
    }
    let part = part.trim_end_matches('0');
    // 10^19 < 2^64, and the largest unit is 3.6e12 base units, so no value with more than 19
    // decimals is an integer.
    if part.len() > 19 {
        return Err(QuantityFault::TooFine);
    }
    let parse = |digits: &str| match digits {
        "" => Ok(0_u128),
        digits => digits.parse().map_err(|_| QuantityFault::TooLarge),
    };
    let worth = u128::from(worth);
    let scale = 10_u128.pow(part.len() as u32);
    let fine = parse(part)? * worth;
    if !fine.is_multiple_of(scale) {
        return Err(QuantityFault::TooFine);
    }
    parse(whole)?
        .checked_mul(worth)
        .and_then(|coarse| coarse.checked_add(fine / scale))
        .and_then(|value| u64::try_from(value).ok())
        .ok_or(QuantityFault::TooLarge)
}

/// Leading digits and decimal points, and the rest without the space between.
fn split(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn no_number(text: &str) -> QuantityFault {
    match text.strip_prefix('-') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => QuantityFault::Negative,
        _ => QuantityFault::NoNumber,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_have_several_notations() {
        assert_eq!(rate("4Mb/s"), Ok(Rate::kbps(4_000)));
        assert_eq!(rate(" 1.5 Mb/s "), Ok(Rate::kbps(1_500)));
        assert_eq!(rate("0.001kb/s"), Ok(Rate::bps(1)));
        assert_eq!(rate("0b/s"), Ok(Rate::ZERO));
        assert_eq!(duration("400ms"), Ok(Duration::from_millis(400)));
        assert_eq!(duration("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2min"), Ok(Duration::from_mins(2)));
        assert_eq!(size("60kB"), Ok(Bytes(60_000)));
        assert_eq!(size("1KiB"), Ok(Bytes(1_024)));
        assert_eq!(limit("50 packets"), Ok(Limit::Packets(50)));
        assert_eq!(limit("1 packet"), Ok(Limit::Packets(1)));
        assert_eq!(packets("25 packets"), Ok(25));
        assert_eq!(mean_packets("9.375 packets"), Ok(9.375));
        assert!(mean_packets("1.2.3 packets").is_err() && mean_packets("1.5kB").is_err());
        assert_eq!(limit("60kB"), Ok(Limit::Bytes(Bytes(60_000))));
        assert_eq!(share("0.1%"), Ok(0.001));
        assert_eq!(share("0.25"), Ok(0.25));
    }

    #[test]
    fn spellings_of_other_programs_are_read() {
        for text in [
            "5Mb/s",
            "5M",
            "5Mbps",
            "5 Mb/s",
            "5 Mbps",
            "5Mbit/s",
            "5Mbit",
            "5000k",
            "5000kbps",
            "5000K",
            "5000Kbps",
            "0.005G",
            "5000000bps",
        ] {
            assert_eq!(rate(text), Ok(Rate::kbps(5_000)), "{text}");
        }
        assert_eq!(rate("500k"), Ok(Rate::kbps(500)));
        for text in ["5", "5s", "5 s", "5.0", "5sec", "5000ms", "5000000µs"] {
            assert_eq!(duration(text), Ok(Duration::from_secs(5)), "{text}");
        }
        // Bytes, thousandths, and a rate without its magnitude.
        for text in ["5MB/s", "5MBps", "5m", "5mbps", "5", "5s"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["", ".", "5M", "5m", "5x"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    /// Detects errors as in 0.1 + 0.2: 0.3 Gb/s is exactly 300,000,000 b/s.
    #[test]
    fn decimals_are_exact() {
        assert_eq!(rate("0.3Gb/s"), Ok(Rate::bps(300_000_000)));
        assert_eq!(rate("1Tb/s"), Ok(Rate::bps(1_000_000_000_000)));
        assert_eq!(
            duration("0.000000001s"),
            Ok(Duration::from_nanos(1)),
            "the finest"
        );
        assert_eq!(
            rate("18446744073.709551615Gb/s"),
            Ok(Rate::MAX),
            "the largest"
        );
    }

    #[test]
    fn errors_name_cause_and_fix() {
        for (text, message) in [
            (
                "fast",
                "\"fast\" does not begin with a number; write it as \"4Mb/s\" (units: b/s, kb/s, Mb/s, Gb/s, Tb/s)",
            ),
            (
                "",
                "\"\" does not begin with a number; write it as \"4Mb/s\" (units: b/s, kb/s, Mb/s, Gb/s, Tb/s)",
            ),
            (
                ".",
                "\".\" has no unit; write it as \"4Mb/s\" (units: b/s, kb/s, Mb/s, Gb/s, Tb/s)",
            ),
            (
                "1.2.3Mb/s",
                "\"1.2.3Mb/s\" does not begin with a number; write it as \"4Mb/s\" (units: b/s, kb/s, Mb/s, Gb/s, Tb/s)",
            ),
            (
                "-4Mb/s",
                "\"-4Mb/s\" is negative; write it as \"4Mb/s\" (units: b/s, kb/s, Mb/s, Gb/s, Tb/s)",
            ),
            (
                "4",
                "\"4\" has no unit; write it as \"4Mb/s\" (units: b/s, kb/s, Mb/s, Gb/s, Tb/s)",
            ),
            (
                "4MB/s",
                "\"4MB/s\": \"MB/s\" is not a unit of a rate; write it as \"4Mb/s\" (units: b/s, kb/s, Mb/s, Gb/s, Tb/s)",
            ),
            (
                "0.5b/s",
                "\"0.5b/s\" is finer than the smallest unit of a rate, b/s; write it as \"4Mb/s\" (units: b/s, kb/s, Mb/s, Gb/s, Tb/s)",
            ),
            (
                "99999999999Gb/s",
                "\"99999999999Gb/s\" is too large for a rate; write it as \"4Mb/s\" (units: b/s, kb/s, Mb/s, Gb/s, Tb/s)",
            ),
        ] {
            assert_eq!(rate(text).unwrap_err().to_string(), message);
        }
        assert_eq!(
            share("0.1 permille").unwrap_err().to_string(),
            "\"0.1 permille\": \"permille\" is not a unit of a share; write it as 0.001 or \"0.1%\""
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn no_text_panics(text in "\\PC{0,24}", number in "[0-9.\\-]{0,40}", unit in "(b/s|Mb/s|ms|h|kB|packets|%)?") {
            for text in [text, format!("{number}{unit}")] {
                let _ = (rate(&text), duration(&text), size(&text), limit(&text), packets(&text), mean_packets(&text), share(&text));
            }
        }

        #[test]
        fn base_units_round_trip(value: u64) {
            prop_assert_eq!(rate(&format!("{value}b/s")), Ok(Rate::bps(value)));
            prop_assert_eq!(duration(&format!("{value} ns")), Ok(Duration::from_nanos(value)));
            prop_assert_eq!(size(&format!("{value}B")), Ok(Bytes(value)));
        }
    }
}
