//! A policy as text.

use std::ffi::{CStr, CString};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::{Limits, Policy, Rule};
use crate::bpf::events::Wanted;
use crate::event::EventSet;
use crate::system::{group_number, user_and_group};
use crate::variables::VariableSet;

/// The policy of a file. The error names line, key and mend.
pub(super) fn read(text: &str) -> Result<Policy, String> {
    let file: PolicyFile = toml::from_str(text).map_err(|e| e.to_string())?;
    let mut notes = Vec::new();
    let limits = file.limits.read(text, &mut notes)?;
    let rules = file.allow.into_iter().enumerate();
    let rules = rules.map(|(number, rule)| RuleText::read(rule, number + 1, text, &mut notes));
    let rules = rules.collect::<Result<Vec<_>, _>>()?;
    if rules.iter().all(|rule| rule.wanted == Wanted::default()) {
        notes.push(
            "nobody may have anything, not even root: add a rule, [[allow]] with `users`, `events` and `variables`".into(),
        );
    } else if !rules.iter().any(|rule| rule.wanted.has_events()) {
        notes.push(
            "nobody hears of anything but the end of a connection: name other `events` in a rule, or \"all\"".into(),
        );
    }
    Ok(Policy {
        rules,
        limits,
        notes,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    limits: LimitsText,
    #[serde(default, deserialize_with = "rules")]
    allow: Vec<Spanned<RuleText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "rules, each under a line [[allow]]")]
struct RuleText {
    #[serde(default, deserialize_with = "names")]
    users: Vec<Spanned<Name>>,
    #[serde(default, deserialize_with = "names")]
    groups: Vec<Spanned<Name>>,
    #[serde(default, deserialize_with = "yes_or_no")]
    everybody: bool,
    #[serde(default, deserialize_with = "events")]
    events: Vec<Parsed<EventSet>>,
    #[serde(default, deserialize_with = "variables")]
    variables: Vec<Parsed<VariableSet>>,
}

impl RuleText {
    /// `number` counts rules from one.
    fn read(
        rule: Spanned<Self>,
        number: usize,
        text: &str,
        notes: &mut Vec<String>,
    ) -> Result<Rule, String> {
        let at = line(text.as_bytes(), rule.span().start);
        let rule = rule.into_inner();
        if rule.users.is_empty() && rule.groups.is_empty() && !rule.everybody {
            return Err(format!(
                "line {at}: rule {number} is for nobody: give it `users`, `groups` or `everybody = true`"
            ));
        }
        let events = rule.events.into_iter();
        let variables = rule.variables.into_iter();
        let wanted = Wanted {
            events: events.fold(EventSet::NONE, |a, b| a.or(b.0)),
            variables: variables.fold(VariableSet::NONE, |a, b| a.or(b.0)),
        };
        if wanted == Wanted::default() {
            notes.push(format!(
                "line {at}: rule {number} allows nothing: give it `events` or `variables`"
            ));
        }
        let user_number = |name: &CStr| user_and_group(name).map(|(user, _)| user);
        Ok(Rule {
            users: numbers(rule.users, user_number, "user", text)?,
            groups: numbers(rule.groups, group_number, "group", text)?,
            everybody: rule.everybody,
            wanted,
        })
    }
}

/// What a file says of limits; the others stay as they are.
#[derive(Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "limits under one line [limits]"
)]
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
    fn read(self, text: &str, notes: &mut Vec<String>) -> Result<Limits, String> {
        let usual = Limits::default();
        let key = |name, given| Key { name, given, text };
        let clients = key("clients", self.clients).number(usual.clients, 1..=4_096)?;
        let subscriptions = key("subscriptions", self.subscriptions);
        let subscriptions = subscriptions.number(usual.subscriptions, 1..=1 << 20)?;
        let of_clients = ("clients", clients);
        let of_subscriptions = ("subscriptions", subscriptions);
        // Half of them at most unless told, so that others have some too.
        let clients_per_user = key("clients-per-user", self.clients_per_user).share(
            usual.clients_per_user.min(clients.div_ceil(2)),
            of_clients,
            Some(notes),
        )?;
        let subscriptions_per_user = key("subscriptions-per-user", self.subscriptions_per_user)
            .share(subscriptions.div_ceil(2), of_subscriptions, Some(notes))?;
        let per_client = key("subscriptions-per-client", self.subscriptions_per_client);
        let subscriptions_per_client =
            per_client.share(usual.subscriptions_per_client, of_subscriptions, None)?;
        let rate = key("requests-per-second", self.requests_per_second);
        let requests_per_second = rate.number(usual.requests_per_second, 1..=1_000_000)?;
        let ring = key("ring-kib", self.ring_kib);
        Ok(Limits {
            clients,
            clients_per_user,
            subscriptions_per_client,
            subscriptions_per_user,
            subscriptions,
            ring_kib: ring.power_of_two(usual.ring_kib, 4..=1 << 18)?,
            requests_per_second,
        })
    }
}

/// A limit and what a file says of it.
struct Key<'a> {
    name: &'static str,
    given: Option<Spanned<Number>>,
    text: &'a str,
}

impl Key<'_> {
    fn number(self, usual: u32, bounds: RangeInclusive<u32>) -> Result<u32, String> {
        let Some(value) = self.value() else {
            return Ok(usual);
        };
        let fits = u32::try_from(value).ok().filter(|n| bounds.contains(n));
        fits.ok_or_else(|| {
            let (here, least, most) = (self.here(value), bounds.start(), bounds.end());
            format!("{here}: write a number from {least} to {most}")
        })
    }

    fn power_of_two(self, usual: u32, bounds: RangeInclusive<u32>) -> Result<u32, String> {
        let here = self.value().map(|value| self.here(value));
        let number = self.number(usual, bounds)?;
        if number.is_power_of_two() {
            return Ok(number);
        }
        let next = number.next_power_of_two();
        Err(format!(
            "{}: write a power of two, for example {next}",
            here.unwrap_or_default()
        ))
    }

    /// What one may have of something that there is so much of. The notes hear of one who may have
    /// it all.
    fn share(
        self,
        usual: u32,
        (whole, all): (&str, u32),
        notes: Option<&mut Vec<String>>,
    ) -> Result<u32, String> {
        let here = self.value().map(|value| self.here(value));
        let number = self.number(usual, 1..=all);
        let number = number.map_err(|why| format!("{why}, which is limits.{whole}"))?;
        if let (Some(notes), Some(here)) = (notes, here)
            && number == all
            && all > 1
        {
            notes.push(format!(
                "{here}: one user can take them all, and others find none: write a number below {all}, which is limits.{whole}"
            ));
        }
        Ok(number)
    }

    fn value(&self) -> Option<i64> {
        self.given.as_ref().map(|given| given.get_ref().0)
    }

    fn here(&self, value: i64) -> String {
        let place = self.given.as_ref().map_or(0, |given| given.span().start);
        let at = line(self.text.as_bytes(), place);
        format!("line {at}: limits.{} = {value}", self.name)
    }
}

/// Numbers of users or groups.
fn numbers(
    names: Vec<Spanned<Name>>,
    find: fn(&CStr) -> Option<u32>,
    what: &str,
    text: &str,
) -> Result<Vec<u32>, String> {
    let number = |name: Spanned<Name>| {
        let at = line(text.as_bytes(), name.span().start);
        let number = name.into_inner().number(find, what);
        number.map_err(|why| format!("line {at}: {why}"))
    };
    names.into_iter().map(number).collect()
}

fn rules<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Spanned<RuleText>>, D::Error> {
    list(from, "rules, each under a line [[allow]]")
}

fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Spanned<Name>>, D::Error> {
    list(from, "a list of names and numbers, as [\"root\", 1000]")
}

fn events<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Parsed<EventSet>>, D::Error> {
    list(from, "a list of names, as [\"timeout\", \"state\"]")
}

fn variables<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Parsed<VariableSet>>, D::Error> {
    list(from, "a list of names, as [\"window\", \"srtt\"]")
}

/// A list; `like` says how one is written.
fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
    like: &'static str,
) -> Result<Vec<T>, D::Error> {
    struct Reader<T>(&'static str, PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut parts = Vec::new();
            while let Some(part) = list.next_element()? {
                parts.push(part);
            }
            Ok(parts)
        }
    }
    from.deserialize_seq(Reader(like, PhantomData))
}

fn yes_or_no<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    struct Reader;
    impl Visitor<'_> for Reader {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("true or false, without quotes")
        }

        fn visit_bool<E: de::Error>(self, value: bool) -> Result<bool, E> {
            Ok(value)
        }
    }
    from.deserialize_bool(Reader)
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
        struct Reader<T>(PhantomData<T>);
        impl<T: std::str::FromStr<Err: fmt::Display>> Visitor<'_> for Reader<T> {
            type Value = Parsed<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name in quotes, as \"all\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Parsed<T>, E> {
                text.parse().map(Parsed).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_str(Reader(PhantomData))
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
pub(super) fn line(text: &[u8], place: usize) -> usize {
    let before = text.iter().take(place);
    1 + before.filter(|&&byte| byte == b'\n').count()
}
