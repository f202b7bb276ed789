//! The table of controllers: their names in files and on command lines.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};

use super::fixed::FixedConfig;
use super::rap::RapConfig;
use super::rcs::RcsConfig;
use super::settings::{Setting, SettingError, SettingFault};
use super::tfrc::TfrcConfig;
use super::tide::TideConfig;
use super::{Configuration, ControllerConfig};

/// The controllers of this crate.
pub const CONTROLLERS: &[Entry] = &[
    Entry::of::<TfrcConfig>(),
    Entry::of::<RapConfig>(),
    Entry::of::<RcsConfig>(),
    Entry::of::<TideConfig>(),
    Entry::of::<FixedConfig>(),
];

/// A controller that files and command lines can name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Unique name.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// An example of the value of its configuration, if it has no default.
    pub example: Option<&'static str>,
    /// Conversion of the value of its configuration: a table of options, or a single value.
    pub parse: fn(Setting) -> Result<ControllerConfig, SettingError>,
}

impl Entry {
    /// The entry of a configuration.
    pub const fn of<C: Configuration + DeserializeOwned>() -> Self {
        Self {
            name: C::NAME,
            about: C::ABOUT,
            example: C::EXAMPLE,
            parse: |value| C::deserialize(value).map(ControllerConfig::from),
        }
    }

    /// Keys of its options.
    pub fn keys(&self) -> &'static [&'static str] {
        // No option has an empty key, and the error names all keys.
        let unknown = BTreeMap::from([(String::new(), Setting::Boolean(false))]);
        match (self.parse)(Setting::Table(unknown)) {
            Err(SettingError {
                fault: SettingFault::UnknownKey { allowed },
                ..
            }) => allowed,
            _ => &[],
        }
    }
}

/// The controllers of an application: by default those of this crate.
#[derive(Clone, Debug)]
pub struct Controllers(Vec<Entry>);

impl Default for Controllers {
    fn default() -> Self {
        Self(CONTROLLERS.to_vec())
    }
}

impl Controllers {
    /// Adds a controller. It replaces one of the same name.
    pub fn with(mut self, entry: Entry) -> Self {
        match self.0.iter_mut().find(|known| known.name == entry.name) {
            Some(known) => *known = entry,
            None => self.0.push(entry),
        }
        self
    }

    /// All controllers.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// Reads a value of a file: `"tfrc"`, `{ tfrc = { damping = true } }`, or the latter as
    /// `{ algorithm = "tfrc", damping = true }`.
    ///
    /// # Errors
    /// The value names no controller, or its configuration is invalid. The message has the fix.
    pub fn read(&self, value: Setting) -> Result<ControllerConfig, SettingError> {
        let mut table = match value {
            Setting::Text(name) => return self.named(&name, None),
            Setting::Table(table) => table,
            other => return Err(other.wrong(&self.forms())),
        };
        if let Some(name) = table.remove("algorithm") {
            let Setting::Text(name) = name else {
                return Err(name.wrong(&"a name in quotes").of("algorithm"));
            };
            return self.named(&name, Some(Setting::Table(table)));
        }
        match (table.pop_first(), table.is_empty()) {
            (Some((name, value)), true) => {
                let read = self.named(&name, Some(value));
                read.map_err(|error| error.of(&name))
            }
            _ => Err(SettingError::custom(format_args!(
                "exactly one controller is needed; write {}",
                self.forms()
            ))),
        }
    }

    /// Reads an argument of a command line: `tfrc`, or `fixed:2Mb/s` with the value of the
    /// configuration.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn argument(&self, text: &str) -> Result<ControllerConfig, SettingError> {
        let (name, value) = match text.split_once(':') {
            None => (text, None),
            Some((name, value)) => (name, Some(Setting::Text(value.to_owned()))),
        };
        self.configured(name, value).unwrap_or_else(|| {
            Err(SettingError::custom(format_args!(
                "\"{text}\" is not a rate control: choose {}",
                self.arguments()
            )))
        })
    }

    /// The arguments of a command line, as `tfrc, tide or fixed:2Mb/s`.
    pub fn arguments(&self) -> String {
        alternatives(self.0.iter().map(|entry| match entry.example {
            None => entry.name.to_owned(),
            Some(value) => format!("{}:{value}", entry.name),
        }))
    }

    /// The values of a file.
    fn forms(&self) -> String {
        alternatives(
            self.0
                .iter()
                .map(|Entry { name, example, .. }| match example {
                    None => format!("\"{name}\", {{ {name} = {{ … }} }}"),
                    Some(value) => format!("{{ {name} = \"{value}\" }}"),
                }),
        )
    }

    fn named(&self, name: &str, value: Option<Setting>) -> Result<ControllerConfig, SettingError> {
        self.configured(name, value).unwrap_or_else(|| {
            Err(SettingError::custom(format_args!(
                "there is no controller \"{name}\"; write {}",
                self.forms()
            )))
        })
    }

    /// None if there is no such controller, or no value although it has no default.
    fn configured(
        &self,
        name: &str,
        value: Option<Setting>,
    ) -> Option<Result<ControllerConfig, SettingError>> {
        let entry = self.0.iter().find(|entry| entry.name == name)?;
        let value = match (value, entry.example) {
            (None, Some(_)) => return None,
            (None, None) => Setting::Table(BTreeMap::new()),
            (Some(value), _) => value,
        };
        Some((entry.parse)(value))
    }
}

/// The words with commas, and "or" before the last.
fn alternatives(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    let last = words.pop().unwrap_or_default();
    match words.as_slice() {
        [] => last,
        others => format!("{} or {last}", others.join(", ")),
    }
}

/// One of the controllers of this crate.
impl<'de> Deserialize<'de> for ControllerConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Setting::deserialize(from)?;
        let read = Controllers::default().read(value);
        read.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::units::Rate;

    fn parse(text: &str) -> Result<ControllerConfig, String> {
        #[derive(Deserialize)]
        struct File {
            control: Setting,
        }
        let file: File = toml::from_str(&format!("control = {text}")).unwrap();
        let read = Controllers::default().read(file.control);
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn files_select_a_controller_and_its_options() {
        let rate = Rate::kbps(4_000);
        let damped = TfrcConfig {
            damping: true,
            ..TfrcConfig::default()
        };
        for (text, config) in [
            ("'tide'", ControllerConfig::default()),
            ("{ fixed = '4Mb/s' }", FixedConfig { rate }.into()),
            ("{ tfrc = { damping = true } }", damped.clone().into()),
            ("{ algorithm = 'tfrc', damping = true }", damped.into()),
            (
                "{ rap = { fine_grain = true, increase = 2 } }",
                ControllerConfig::from(RapConfig {
                    fine_grain: true,
                    increase: 2.0,
                    ..RapConfig::default()
                }),
            ),
            (
                "{ rcs = { target = '4Mb/s', rtt = '550ms', reserve = '50%' } }",
                ControllerConfig::from(RcsConfig {
                    target: Some(rate),
                    rtt: Some(Duration::from_millis(550)),
                    reserve: 0.5,
                    ..RcsConfig::default()
                }),
            ),
        ] {
            assert_eq!(parse(text), Ok(config), "{text}");
        }
        let config: ControllerConfig = toml::from_str("algorithm = 'rap'").unwrap();
        assert_eq!(config, RapConfig::default().into());
    }

    #[test]
    fn errors_name_the_key_the_cause_and_the_fix() {
        for (text, error) in [
            ("2", "is a bare number; write \"tfrc\", { tfrc = { … } }, "),
            (
                "'magic'",
                "there is no controller \"magic\"; write \"tfrc\", ",
            ),
            (
                "'fixed'",
                "there is no controller \"fixed\"; write \"tfrc\", ",
            ),
            ("{}", "exactly one controller is needed; write "),
            (
                "{ rap = {}, tide = {} }",
                "exactly one controller is needed; write ",
            ),
            (
                "{ rap = 2 }",
                "rap: is a bare number; write { fine_grain = true }",
            ),
            (
                "{ tfrc = { damping = 1 } }",
                "tfrc: damping: is a bare number; write true or false",
            ),
            (
                "{ tfrc = { dampen = true } }",
                "tfrc: dampen: no such key; the keys here are damping, ",
            ),
            (
                "{ tide = { friend = 'vegas' } }",
                "tide: friend: \"vegas\" is not known here; use ",
            ),
            (
                "{ rcs = { rtt = '0s' } }",
                "rcs: rtt: the time span is zero; write a time span",
            ),
            (
                "{ rcs = { rtt = 'soon' } }",
                "rcs: rtt: \"soon\" does not begin with a number",
            ),
            (
                "{ rcs = { target = 9 } }",
                "rcs: target: is a bare number; write a rate in quotes",
            ),
            (
                "{ rcs = { reserve = 2 } }",
                "rcs: reserve: 2 is not between 0 and 1; write ",
            ),
            (
                "{ fixed = '0b/s' }",
                "fixed: the rate is zero; write a rate above zero",
            ),
            (
                "{ fixed = {} }",
                "fixed: is a table; write a rate in quotes, as \"4Mb/s\"",
            ),
            (
                "{ algorithm = 2 }",
                "algorithm: is a bare number; write a name in quotes",
            ),
        ] {
            let given = parse(text).unwrap_err();
            assert!(given.starts_with(error), "{text}: {given}");
        }
    }

    #[test]
    fn arguments_have_a_name_and_at_most_one_value() {
        let controllers = Controllers::default();
        let rate = Rate::kbps(2_000);
        let fixed = controllers.argument("fixed:2Mb/s");
        assert_eq!(fixed, Ok(FixedConfig { rate }.into()));
        assert_eq!(
            controllers.argument("tide"),
            Ok(ControllerConfig::default())
        );
        for wrong in ["", "cubic", "fixed"] {
            assert_eq!(
                controllers.argument(wrong).unwrap_err().to_string(),
                format!(
                    "\"{wrong}\" is not a rate control: choose tfrc, rap, rcs, tide or fixed:2Mb/s"
                )
            );
        }
        for wrong in ["fixed:", "fixed:2", "fixed:0b/s", "tfrc:1"] {
            assert!(controllers.argument(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn entries_have_unique_names_and_the_keys_of_their_options() {
        let controllers = Controllers::default();
        let mut names: Vec<&str> = controllers.iter().map(|entry| entry.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for entry in controllers.iter() {
            assert_eq!(
                entry.keys().is_empty(),
                entry.example.is_some(),
                "{}",
                entry.name
            );
        }
        let own = Entry {
            about: "another",
            ..Entry::of::<RapConfig>()
        };
        let mut entries = controllers.with(own).0.into_iter();
        assert!(entries.any(|entry| entry.name == "rap" && entry.about == "another"));
        assert_eq!(entries.filter(|entry| entry.name == "rap").count(), 0);
    }
}
