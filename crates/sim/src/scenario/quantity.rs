//! Numbers with units as people write them: `4Mb/s`, `400ms`, `60kB`, `50 packets`, `0.1%`.
//!
//! Decimals are exact: the digits are scaled as integers, and what is finer than the base unit is
//! refused rather than rounded.

use core::fmt;
use core::time::Duration;

use tidegate_core::link::Limit;
use tidegate_core::units::{Bytes, Rate};

/// Reads a rate, as `4Mb/s`.
///
/// # Errors
/// [`QuantityError`] with the text and what is wrong with it.
pub fn rate(text: &str) -> Result<Rate, QuantityError> {
    read(text, Quantity::Rate).map(|(bps, _)| Rate::bps(bps))
}

/// Reads a time span, as `400ms`.
///
/// # Errors
/// [`QuantityError`] with the text and what is wrong with it.
pub fn duration(text: &str) -> Result<Duration, QuantityError> {
    read(text, Quantity::Duration).map(|(nanos, _)| Duration::from_nanos(nanos))
}

/// Reads a size, as `60kB`.
///
/// # Errors
/// [`QuantityError`] with the text and what is wrong with it.
pub fn size(text: &str) -> Result<Bytes, QuantityError> {
    read(text, Quantity::Size).map(|(bytes, _)| Bytes(bytes))
}

/// Reads the size of a queue, as `60kB` or `50 packets`.
///
/// # Errors
/// [`QuantityError`] with the text and what is wrong with it.
pub fn limit(text: &str) -> Result<Limit, QuantityError> {
    let (value, unit) = read(text, Quantity::Limit)?;
    if unit.starts_with("packet") {
        count(text, value, Quantity::Limit).map(Limit::Packets)
    } else {
        Ok(Limit::Bytes(Bytes(value)))
    }
}

/// Reads a number of packets, as `50 packets`.
///
/// # Errors
/// [`QuantityError`] with the text and what is wrong with it.
pub fn packets(text: &str) -> Result<u32, QuantityError> {
    let (value, _) = read(text, Quantity::Packets)?;
    count(text, value, Quantity::Packets)
}

/// Reads a mean number of packets, as `9.375 packets`.
///
/// # Errors
/// [`QuantityError`] with the text and what is wrong with it.
pub fn mean_packets(text: &str) -> Result<f64, QuantityError> {
    // The text is checked as if its digits were whole: they need not be.
    let whole: String = text.chars().filter(|c| *c != '.').collect();
    let fault = |fault| QuantityError::new(text, Quantity::Packets, fault);
    read(&whole, Quantity::Packets).map_err(|error| fault(error.fault))?;
    let (digits, _) = split(text.trim());
    digits.parse().map_err(|_| fault(QuantityFault::NoNumber))
}

fn count(text: &str, value: u64, quantity: Quantity) -> Result<u32, QuantityError> {
    u32::try_from(value).map_err(|_| QuantityError::new(text, quantity, QuantityFault::TooLarge))
}

/// Reads a share, as `0.1%` or `0.001`; it may exceed one, the caller judges.
///
/// # Errors
/// [`QuantityError`] with the text and what is wrong with it.
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

/// Why a text is no quantity. The message names the text, the fault and the mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    /// As it was written.
    pub text: String,
    /// What was expected.
    pub quantity: Quantity,
    /// What is wrong.
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
                write!(f, "\"{text}\": \"{unit}\" is no unit of {name}")?;
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

/// What is wrong with the text of a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuantityFault {
    /// It has a minus sign.
    Negative,
    /// It begins with something else.
    NoNumber,
    /// A bare number.
    NoUnit,
    /// It is not a whole number of base units.
    TooFine,
    /// It does not fit.
    TooLarge,
    /// The unit is not one of this quantity.
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
    /// How it is called in messages.
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

    /// A correct one, quoted.
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

    /// Units with their worth in base units, the base unit first.
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

/// The value in base units, and the unit it was written in.
fn read(text: &str, quantity: Quantity) -> Result<(u64, &'static str), QuantityError> {
    let fault = |fault| QuantityError::new(text, quantity, fault);
    let (digits, unit) = split(text.trim());
    if digits.is_empty() {
        return Err(fault(no_number(text.trim())));
    }
    if unit.is_empty() {
        return Err(fault(QuantityFault::NoUnit));
    }
    let &(unit, worth) = quantity
        .units()
        .iter()
        .find(|(known, _)| *known == unit)
        .ok_or_else(|| fault(QuantityFault::UnknownUnit(unit.to_owned())))?;
    exact(digits, worth)
        .map(|value| (value, unit))
        .map_err(fault)
}

/// `digits` (at most one point) times `worth`, if it is a whole number.
fn exact(digits: &str, worth: u64) -> Result<u64, QuantityFault> {
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return Err(QuantityFault::NoNumber);
    }
    let part = part.trim_end_matches('0');
    // 10^19 < 2^64, and the finest unit asked of is 3.6e12 of its base: nothing beyond 19 digits is whole.
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

/// Digits and points at the front, and what follows, without the space between.
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
    fn people_write_quantities_in_many_ways() {
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

    /// 0.1 + 0.2 style errors would show here: 0.3 Gb/s is 300,000,000 b/s and nothing else.
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
    fn faults_are_named_with_their_mend() {
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
                "\"4MB/s\": \"MB/s\" is no unit of a rate; write it as \"4Mb/s\" (units: b/s, kb/s, Mb/s, Gb/s, Tb/s)",
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
            "\"0.1 permille\": \"permille\" is no unit of a share; write it as 0.001 or \"0.1%\""
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
        fn what_is_printed_in_base_units_is_read_back(value: u64) {
            prop_assert_eq!(rate(&format!("{value}b/s")), Ok(Rate::bps(value)));
            prop_assert_eq!(duration(&format!("{value} ns")), Ok(Duration::from_nanos(value)));
            prop_assert_eq!(size(&format!("{value}B")), Ok(Bytes(value)));
        }
    }
}
