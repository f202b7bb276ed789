//! Reads a policy from a TOML file. Errors name the line, the key and the fix.

use std::ffi::{CStr, CString};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Limits, Policy, Rule};
use crate::bpf::events::EventRequest;
use crate::event::EventSet;
use crate::system::{group_number, user_and_group};
use crate::variables::VariableSet;

/// The policy in the text of a file.
pub(super) fn read(text: &str) -> Result<Policy, String> {
    let file = DeTable::parse(text).map_err(|e| e.to_string())?;
    let (source, file) = (Source(text), file.get_ref());
    source.check_keys(file, &["allow", "limits"])?;
    let mut notes = Vec::new();
    let limits = limits(source, file.get("limits"), &mut notes)?;
    let rules = source.list(file.get("allow"), "rules, each under a line [[allow]]")?;
    let rules = rules.iter().zip(1..);
    let rules = rules.map(|(rule, number)| source.rule(rule, number, &mut notes));
    let rules = rules.collect::<Result<Vec<_>, _>>()?;
    if rules
        .iter()
        .all(|rule| rule.wanted == EventRequest::default())
    {
        notes.push(
            "the policy allows nothing, not even to root: add a rule, [[allow]] with `users`, `events` and `variables`".into(),
        );
    } else if !rules.iter().any(|rule| rule.wanted.has_events()) {
        notes.push(
            "the policy allows no event but the end of a connection: name other `events` in a rule, or \"all\"".into(),
        );
    }
    Ok(Policy {
        rules,
        limits,
        notes,
    })
}

type Value<'a> = Spanned<DeValue<'a>>;

/// The text of the file, for the lines of errors.
#[derive(Clone, Copy)]
struct Source<'a>(&'a str);

impl Source<'_> {
    fn line(self, value: &Value<'_>) -> usize {
        line(self.0.as_bytes(), value.span().start)
    }

    fn error(self, value: &Value<'_>, message: impl Display) -> String {
        format!("line {}: {message}", self.line(value))
    }

    /// The error for a value of another type.
    fn mismatch(self, value: &Value<'_>, expected: &str) -> String {
        let found = self.0.get(value.span()).unwrap_or_default();
        self.error(value, format!("`{found}` is invalid: write {expected}"))
    }

    fn check_keys(self, table: &DeTable<'_>, known: &[&str]) -> Result<(), String> {
        let mut keys = table.iter();
        let unknown = keys.find(|(key, _)| !known.contains(&key.get_ref().as_ref()));
        unknown.map_or(Ok(()), |(key, value)| {
            let (key, known) = (key.get_ref(), known.join("`, `"));
            Err(self.error(
                value,
                format!("the key `{key}` is unknown: write `{known}`"),
            ))
        })
    }

    fn table<'v>(
        self,
        value: &'v Value<'v>,
        known: &[&str],
        expected: &str,
    ) -> Result<&'v DeTable<'v>, String> {
        let table = value.get_ref().as_table();
        let table = table.ok_or_else(|| self.mismatch(value, expected))?;
        self.check_keys(table, known)?;
        Ok(table)
    }

    /// The elements of a list; none without a value.
    fn list<'v>(
        self,
        value: Option<&'v Value<'v>>,
        expected: &str,
    ) -> Result<&'v [Value<'v>], String> {
        let Some(value) = value else {
            return Ok(&[]);
        };
        let list = value.get_ref().as_array();
        list.map(AsRef::as_ref)
            .ok_or_else(|| self.mismatch(value, expected))
    }

    /// The rule with this number, from one on.
    fn rule(
        self,
        rule: &Value<'_>,
        number: usize,
        notes: &mut Vec<String>,
    ) -> Result<Rule, String> {
        let keys = ["users", "groups", "everybody", "events", "variables"];
        let table = self.table(rule, &keys, "rules, each under a line [[allow]]")?;
        let list = |key: &str, expected| self.list(table.get(key), expected);
        let names = "a list of names and numbers, as [\"root\", 1000]";
        let (users, groups) = (list("users", names)?, list("groups", names)?);
        let everybody = table.get("everybody").map_or(Ok(false), |value| {
            let flag = value.get_ref().as_bool();
            flag.ok_or_else(|| self.mismatch(value, "true or false, without quotes"))
        })?;
        if users.is_empty() && groups.is_empty() && !everybody {
            let message = format!(
                "rule {number} has no user: give it `users`, `groups` or `everybody = true`"
            );
            return Err(self.error(rule, message));
        }
        let events = list("events", "a list of names, as [\"timeout\", \"state\"]")?;
        let variables = list("variables", "a list of names, as [\"window\", \"srtt\"]")?;
        let wanted = EventRequest {
            events: self.union(events, EventSet::NONE, EventSet::or)?,
            variables: self.union(variables, VariableSet::NONE, VariableSet::or)?,
        };
        if wanted == EventRequest::default() {
            let message = format!("rule {number} allows nothing: give it `events` or `variables`");
            notes.push(self.error(rule, message));
        }
        let user_number = |name: &CStr| user_and_group(name).map(|(user, _)| user);
        let numbers = |names: &[Value<'_>], find: fn(&CStr) -> Option<u32>, kind| {
            let number = |name| self.number(name, find, kind);
            names.iter().map(number).collect::<Result<Vec<_>, _>>()
        };
        Ok(Rule {
            users: numbers(users, user_number, "user")?,
            groups: numbers(groups, group_number, "group")?,
            everybody,
            wanted,
        })
    }

    /// The union of named sets.
    fn union<T: FromStr<Err: Display>>(
        self,
        names: &[Value<'_>],
        none: T,
        or: fn(T, T) -> T,
    ) -> Result<T, String> {
        names.iter().try_fold(none, |all, value| {
            let name = value.get_ref().as_str();
            let name = name.ok_or_else(|| self.mismatch(value, "a name in quotes, as \"all\""))?;
            let set = name.parse().map_err(|e| self.error(value, e))?;
            Ok(or(all, set))
        })
    }

    /// The number of a user or a group that is given by name or number.
    fn number(
        self,
        value: &Value<'_>,
        find: fn(&CStr) -> Option<u32>,
        kind: &str,
    ) -> Result<u32, String> {
        let expected = "a name or a number from 0 to 4294967295, as \"root\" or 1000";
        let Some(name) = value.get_ref().as_str() else {
            let number = integer(value).and_then(|number| u32::try_from(number).ok());
            return number.ok_or_else(|| self.mismatch(value, expected));
        };
        let found = CString::new(name).ok().and_then(|name| find(&name));
        found.ok_or_else(|| {
            let fix = match name.parse::<u32>() {
                Ok(number) => format!("write a number without quotes, as {number}"),
                Err(_) => "write another name, or its number".to_owned(),
            };
            let message = format!("there is no {kind} `{name}` on this system: {fix}");
            self.error(value, message)
        })
    }
}

/// The limits of the file; the defaults for those that it does not have.
fn limits(
    source: Source<'_>,
    value: Option<&Value<'_>>,
    notes: &mut Vec<String>,
) -> Result<Limits, String> {
    let table = value.map(|v| source.table(v, &LIMITS, "limits under one line [limits]"));
    let file = LimitsTable {
        source,
        table: table.transpose()?,
    };
    let usual = Limits::default();
    let clients = file.number("clients", usual.clients, 1..=4_096, "")?;
    let subscriptions = file.number("subscriptions", usual.subscriptions, 1..=1 << 20, "")?;
    let of_clients = ("clients", clients);
    let of_subscriptions = ("subscriptions", subscriptions);
    // By default a user has half of them, so that others have some, too.
    let half = usual.clients_per_user.min(clients.div_ceil(2));
    let clients_per_user = file.share("clients-per-user", half, of_clients)?;
    let half = subscriptions.div_ceil(2);
    let subscriptions_per_user = file.share("subscriptions-per-user", half, of_subscriptions)?;
    notes.extend(file.whole_share("clients-per-user", clients_per_user, of_clients));
    let name = "subscriptions-per-user";
    notes.extend(file.whole_share(name, subscriptions_per_user, of_subscriptions));
    let most = usual.subscriptions_per_client.min(subscriptions);
    let rate = usual.requests_per_second;
    Ok(Limits {
        clients,
        clients_per_user,
        subscriptions_per_client: file.share("subscriptions-per-client", most, of_subscriptions)?,
        subscriptions_per_user,
        subscriptions,
        ring_kib: file.ring(usual.ring_kib)?,
        requests_per_second: file.number("requests-per-second", rate, 1..=1_000_000, "")?,
    })
}

/// The limits that a policy may have.
const LIMITS: [&str; 7] = [
    "clients",
    "clients-per-user",
    "subscriptions-per-client",
    "subscriptions-per-user",
    "subscriptions",
    "ring-kib",
    "requests-per-second",
];

/// The table of limits.
struct LimitsTable<'a> {
    source: Source<'a>,
    table: Option<&'a DeTable<'a>>,
}

impl LimitsTable<'_> {
    fn given(&self, name: &str) -> Option<&Value<'_>> {
        self.table?.get(name)
    }

    /// A limit; `note` follows the upper bound in the error.
    fn number(
        &self,
        name: &str,
        usual: u32,
        bounds: RangeInclusive<u32>,
        note: &str,
    ) -> Result<u32, String> {
        let Some(value) = self.given(name) else {
            return Ok(usual);
        };
        let expected = "a whole number without quotes, as 64";
        let given = integer(value).ok_or_else(|| self.source.mismatch(value, expected))?;
        let fits = u32::try_from(given).ok().filter(|n| bounds.contains(n));
        fits.ok_or_else(|| {
            let (least, most) = (bounds.start(), bounds.end());
            let message =
                format!("limits.{name} = {given}: write a number from {least} to {most}{note}");
            self.source.error(value, message)
        })
    }

    /// A limit that is a share of another one.
    fn share(&self, name: &str, usual: u32, (whole, all): (&str, u32)) -> Result<u32, String> {
        self.number(name, usual, 1..=all, &format!(", which is limits.{whole}"))
    }

    /// The warning about a share of a user that is the whole.
    fn whole_share(&self, name: &str, share: u32, (whole, all): (&str, u32)) -> Option<String> {
        let value = self.given(name).filter(|_| share == all && all > 1)?;
        let message = format!(
            "limits.{name} = {share}: one user can take them all: write a number below {all}, which is limits.{whole}"
        );
        Some(self.source.error(value, message))
    }

    fn ring(&self, usual: u32) -> Result<u32, String> {
        let kib = self.number("ring-kib", usual, 4..=1 << 18, "")?;
        match self.given("ring-kib") {
            Some(value) if !kib.is_power_of_two() => {
                let next = kib.next_power_of_two();
                let message =
                    format!("limits.ring-kib = {kib}: write a power of two, for example {next}");
                Err(self.source.error(value, message))
            }
            _ => Ok(kib),
        }
    }
}

fn integer(value: &Value<'_>) -> Option<i64> {
    let integer = value.get_ref().as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// The line of a byte in a text, from one on.
pub(super) fn line(text: &[u8], offset: usize) -> usize {
    let before = text.iter().take(offset);
    1 + before.filter(|&&byte| byte == b'\n').count()
}
