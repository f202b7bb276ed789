//! Options of a controller, as a file or a command line has them, and their conversion by serde.
//!
//! A configuration derives `serde::Deserialize` with `default`, `deny_unknown_fields` and `expecting`
//! (an example for messages). Numbers with a unit are texts: see [`positive_rate`],
//! [`positive_duration`] and [`share`].

use core::fmt::{self, Display};
use core::time::Duration;
use std::collections::{BTreeMap, btree_map};

use serde::de::{
    DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer as _, MapAccess, Unexpected,
    Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use crate::quantity::{self, QuantityError};
use crate::units::Rate;

/// A value of a file or of a command line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// A text, such as a number with its unit.
    Text(String),
    /// Values with their keys.
    Table(BTreeMap<String, Self>),
}

impl Setting {
    /// The error of a value of another type than `wanted`.
    pub(super) fn wrong(&self, wanted: &dyn Display) -> SettingError {
        let found = match self {
            Self::Boolean(_) => "true or false",
            Self::Integer(_) | Self::Float(_) => "a bare number",
            Self::Text(_) => "a text",
            Self::Table(_) => "a table",
        };
        SettingError::custom(format_args!("is {found}; write {wanted}"))
    }
}

/// The first invalid option.
///
/// Displayed as `key: cause; fix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// Keys from the outermost table to the option.
    pub path: Vec<String>,
    /// Cause and fix.
    pub fault: SettingFault,
}

/// Cause of an invalid option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingFault {
    /// Cause and fix in words.
    Invalid(String),
    /// There is no such key.
    UnknownKey {
        /// The keys of this table.
        allowed: &'static [&'static str],
    },
    /// A word that is not one of the allowed ones.
    UnknownWord {
        /// The word.
        word: String,
        /// The allowed words.
        allowed: &'static [&'static str],
    },
}

impl SettingError {
    /// The same error of the value of `key`.
    pub(super) fn of(mut self, key: &str) -> Self {
        self.path.insert(0, key.to_owned());
        self
    }
}

impl Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for key in &self.path {
            write!(f, "{key}: ")?;
        }
        match &self.fault {
            SettingFault::Invalid(text) => f.write_str(text),
            SettingFault::UnknownKey { allowed } => {
                write!(f, "no such key; the keys here are {}", allowed.join(", "))
            }
            SettingFault::UnknownWord { word, allowed } => {
                write!(
                    f,
                    "\"{word}\" is not known here; use one of {}",
                    allowed.join(", ")
                )
            }
        }
    }
}

impl core::error::Error for SettingError {}

impl Error for SettingError {
    fn custom<T: Display>(message: T) -> Self {
        Self {
            path: Vec::new(),
            fault: SettingFault::Invalid(message.to_string()),
        }
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Bool(_) => "true or false",
            Unexpected::Signed(_) | Unexpected::Unsigned(_) | Unexpected::Float(_) => {
                "a bare number"
            }
            Unexpected::Map => "a table",
            _ => "a text",
        };
        let wanted = wanted.to_string();
        let wanted = match wanted.as_str() {
            "a boolean" => "true or false",
            "i64" => "a whole number",
            other => other,
        };
        Self::custom(format_args!("is {found}; write {wanted}"))
    }

    fn unknown_field(_key: &str, allowed: &'static [&'static str]) -> Self {
        Self {
            path: Vec::new(),
            fault: SettingFault::UnknownKey { allowed },
        }
    }

    fn unknown_variant(word: &str, allowed: &'static [&'static str]) -> Self {
        Self {
            path: Vec::new(),
            fault: SettingFault::UnknownWord {
                word: word.to_owned(),
                allowed,
            },
        }
    }
}

impl<'de> Deserializer<'de> for Setting {
    type Error = SettingError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingError> {
        match self {
            Self::Boolean(value) => visitor.visit_bool(value),
            Self::Integer(value) => visitor.visit_i64(value),
            Self::Float(value) => visitor.visit_f64(value),
            Self::Text(value) => visitor.visit_string(value),
            Self::Table(entries) => visitor.visit_map(Entries {
                rest: entries.into_iter(),
                open: None,
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SettingError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, SettingError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SettingError> {
        match self {
            Self::Text(word) => visitor.visit_enum(word.into_deserializer()),
            other => Err(other.wrong(&"one of the allowed words in quotes")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The entries of a table, of which `open` is being read.
struct Entries {
    rest: btree_map::IntoIter<String, Setting>,
    open: Option<(String, Setting)>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = SettingError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, SettingError> {
        self.open = self.rest.next();
        let Some((key, _)) = &self.open else {
            return Ok(None);
        };
        let read = seed.deserialize(key.as_str().into_deserializer());
        read.map(Some).map_err(|error: SettingError| error.of(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, SettingError> {
        let (key, value) = self
            .open
            .take()
            .expect("serde reads a key before its value");
        seed.deserialize(value).map_err(|error| error.of(&key))
    }
}

/// Reads a rate above zero, as `"4Mb/s"`, for `deserialize_with`.
///
/// # Errors
/// The value is not a rate, or is zero.
pub fn positive_rate<'de, D: Deserializer<'de>, T: From<Rate>>(from: D) -> Result<T, D::Error> {
    match text(from, "a rate in quotes, as \"4Mb/s\"", quantity::rate)? {
        Rate::ZERO => Err(D::Error::custom(
            "the rate is zero; write a rate above zero, as \"2Mb/s\"",
        )),
        rate => Ok(rate.into()),
    }
}

/// Reads a time span above zero, as `"400ms"`, for `deserialize_with`.
///
/// # Errors
/// The value is not a time span, or is zero.
pub fn positive_duration<'de, D: Deserializer<'de>, T: From<Duration>>(
    from: D,
) -> Result<T, D::Error> {
    match text(
        from,
        "a time span in quotes, as \"400ms\"",
        quantity::duration,
    )? {
        Duration::ZERO => Err(D::Error::custom(
            "the time span is zero; write a time span above zero, as \"400ms\"",
        )),
        span => Ok(span.into()),
    }
}

/// Reads a share in 0..=1, as `0.001` or `"0.1%"`, for `deserialize_with`.
///
/// # Errors
/// The value is not a number, or is out of range.
pub fn share<'de, D: Deserializer<'de>, T: From<f64>>(from: D) -> Result<T, D::Error> {
    let value = match Setting::deserialize(from)? {
        Setting::Integer(value) => value as f64,
        Setting::Float(value) => value,
        Setting::Text(text) => quantity::share(&text).map_err(D::Error::custom)?,
        other => {
            return Err(D::Error::custom(
                other.wrong(&"a share as 0.001 or \"0.1%\""),
            ));
        }
    };
    if (0.0..=1.0).contains(&value) {
        return Ok(value.into());
    }
    Err(D::Error::custom(format_args!(
        "{value} is not between 0 and 1; write a number from 0 to 1, as 0.001 or \"0.1%\""
    )))
}

/// Reads a whole number from `LEAST` to `MOST`, for `deserialize_with`.
///
/// # Errors
/// The value is not a whole number, or is out of range.
pub fn whole<'de, D: Deserializer<'de>, T: From<u8>, const LEAST: u8, const MOST: u8>(
    from: D,
) -> Result<T, D::Error> {
    let value = i64::deserialize(from)?;
    let found = u8::try_from(value)
        .ok()
        .filter(|value| (LEAST..=MOST).contains(value));
    found.map(T::from).ok_or_else(|| {
        D::Error::custom(format_args!(
            "{value} is out of range; write a whole number from {LEAST} to {MOST}"
        ))
    })
}

/// Reads a number with its unit.
fn text<'de, D: Deserializer<'de>, T>(
    from: D,
    wanted: &str,
    parse: fn(&str) -> Result<T, QuantityError>,
) -> Result<T, D::Error> {
    match Setting::deserialize(from)? {
        Setting::Text(text) => parse(&text).map_err(D::Error::custom),
        other => Err(D::Error::custom(other.wrong(&wanted))),
    }
}
