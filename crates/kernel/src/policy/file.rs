//! A policy as text.

use std::ffi::{CStr, CString};
use std::fmt;
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::{Limits, Rule};
use crate::bpf::monitor::Wanted;
use crate::event::EventSet;
use crate::system::{group_number, user_and_group};
use crate::variables::VariableSet;

/// Limits and rules of a file. The error names line, key and mend.
pub(super) fn read(text: &str) -> Result<(Limits, Vec<Rule>), String> {
    let file: PolicyFile = toml::from_str(text).map_err(|e| e.to_string())?;
    let limits = file.limits.read(text)?;
    let rules = file.allow.into_iter().enumerate();
    let rules = rules.map(|(number, rule)| RuleText::read(rule, number + 1, text));
    Ok((limits, rules.collect::<Result<_, _>>()?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    limits: LimitsText,
    #[serde(default)]
    allow: Vec<Spanned<RuleText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    #[serde(default)]
    users: Names,
    #[serde(default)]
    groups: Names,
    #[serde(default)]
    everybody: bool,
    #[serde(default)]
    events: Vec<Parsed<EventSet>>,
    #[serde(default)]
    variables: Vec<Parsed<VariableSet>>,
}

impl RuleText {
    /// `number` counts rules from one.
    fn read(rule: Spanned<Self>, number: usize, text: &str) -> Result<Rule, String> {
        let at = line(text, rule.span().start);
        let rule = rule.into_inner();
        if rule.users.0.is_empty() && rule.groups.0.is_empty() && !rule.everybody {
            return Err(format!(
                "line {at}: rule {number} is for nobody: give it `users`, `groups` or `everybody = true`"
            ));
        }
        let user_number = |name: &CStr| user_and_group(name).map(|(user, _)| user);
        Ok(Rule {
            users: rule.users.numbers(user_number, "user", text)?,
            groups: rule.groups.numbers(group_number, "group", text)?,
            everybody: rule.everybody,
            wanted: Wanted {
                events: rule
                    .events
                    .into_iter()
                    .fold(EventSet::NONE, |a, b| a.or(b.0)),
                variables: rule
                    .variables
                    .into_iter()
                    .fold(VariableSet::NONE, |a, b| a.or(b.0)),
            },
        })
    }
}

/// What a file says of limits; the others stay as they are.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct LimitsText {
    clients: Option<Spanned<Number>>,
    clients_per_user: Option<Spanned<Number>>,
    subscriptions_per_client: Option<Spanned<Number>>,
    subscriptions_per_user: Option<Spanned<Number>>,
    subscriptions: Option<Spanned<Number>>,
    ring_kib: Option<Spanned<Number>>,
    requests_per_second: Option<Spanned<Number>>,
}

impl LimitsText {
    /// `text` is that of the file, for the lines of what is out of range.
    fn read(self, text: &str) -> Result<Limits, String> {
        let usual = Limits::default();
        let read = |key, given: Option<Spanned<Number>>, usual, bounds: RangeInclusive<u32>| {
            let Some(given) = given else { return Ok(usual) };
            let Number(value) = *given.get_ref();
            let fits = u32::try_from(value).ok().filter(|n| bounds.contains(n));
            fits.ok_or_else(|| {
                let (at, least, most) =
                    (line(text, given.span().start), bounds.start(), bounds.end());
                format!("line {at}: limits.{key} = {value}: write a number from {least} to {most}")
            })
        };
        let ring_at = self.ring_kib.as_ref().map_or(0, |ring| ring.span().start);
        let all = 1..=1 << 20;
        let subscriptions = read(
            "subscriptions",
            self.subscriptions,
            usual.subscriptions,
            all.clone(),
        )?;
        let limits = Limits {
            clients: read("clients", self.clients, usual.clients, 1..=4_096)?,
            clients_per_user: read(
                "clients-per-user",
                self.clients_per_user,
                usual.clients_per_user,
                1..=4_096,
            )?,
            subscriptions_per_client: read(
                "subscriptions-per-client",
                self.subscriptions_per_client,
                usual.subscriptions_per_client,
                1..=1 << 20,
            )?,
            // Half of them unless told, so that others have some too.
            subscriptions_per_user: read(
                "subscriptions-per-user",
                self.subscriptions_per_user,
                subscriptions.div_ceil(2),
                all,
            )?,
            subscriptions,
            ring_kib: read("ring-kib", self.ring_kib, usual.ring_kib, 4..=1 << 18)?,
            requests_per_second: read(
                "requests-per-second",
                self.requests_per_second,
                usual.requests_per_second,
                1..=1_000_000,
            )?,
        };
        if !limits.ring_kib.is_power_of_two() {
            let (at, ring) = (line(text, ring_at), limits.ring_kib);
            let next = ring.next_power_of_two();
            return Err(format!(
                "line {at}: limits.ring-kib = {ring}: write a power of two, for example {next}"
            ));
        }
        Ok(limits)
    }
}

/// Users or groups.
#[derive(Default)]
struct Names(Vec<Spanned<Name>>);

impl Names {
    fn numbers(
        self,
        find: fn(&CStr) -> Option<u32>,
        what: &str,
        text: &str,
    ) -> Result<Vec<u32>, String> {
        let number = |name: Spanned<Name>| {
            let at = line(text, name.span().start);
            let number = name.into_inner().number(find, what);
            number.map_err(|why| format!("line {at}: {why}"))
        };
        self.0.into_iter().map(number).collect()
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names and numbers, as [\"root\", 1000]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }
        deserializer.deserialize_seq(Reader)
    }
}

/// A user or a group, by name or number.
enum Name {
    Number(u32),
    Text(String),
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name or a number from 0 to 4294967295, as \"root\" or 1000")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Name, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Signed(number), &self);
                u32::try_from(number).map(Name::Number).map_err(wrong)
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Name, E> {
                Ok(Name::Text(name.to_owned()))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Name {
    fn number(self, find: fn(&CStr) -> Option<u32>, what: &str) -> Result<u32, String> {
        let name = match self {
            Self::Number(number) => return Ok(number),
            Self::Text(name) => name,
        };
        let found = CString::new(name.as_str()).ok();
        found.and_then(|name| find(&name)).ok_or_else(|| {
            let mend = match name.parse::<u32>() {
                Ok(number) => format!("write a number without quotes, as {number}"),
                Err(_) => "write another name, or its number".to_owned(),
            };
            format!("there is no {what} `{name}` on this system: {mend}")
        })
    }
}

/// What is written as text.
struct Parsed<T>(T);

impl<'de, T: std::str::FromStr<Err: fmt::Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

/// An integer of any size.
struct Number(i64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number without quotes, as 64")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Number, E> {
                Ok(Number(number))
            }
        }
        deserializer.deserialize_i64(Reader)
    }
}

/// The line of a place in a text, from one on.
fn line(text: &str, place: usize) -> usize {
    let before = text.bytes().take(place);
    1 + before.filter(|&byte| byte == b'\n').count()
}
