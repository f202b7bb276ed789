//! The administrator's policy: who may subscribe to what and read what.

use std::ffi::{CStr, CString};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io, mem};

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use crate::bpf::monitor::Wanted;
use crate::event::EventSet;
use crate::peer::Peer;
use crate::variables::VariableSet;

/// Who may have what, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    limits: Limits,
}

impl Policy {
    /// Only root may have anything.
    pub fn root_only() -> Self {
        Self {
            rules: vec![Rule {
                users: vec![0],
                groups: Vec::new(),
                everybody: false,
                wanted: everything(),
            }],
            limits: Limits::default(),
        }
    }

    /// Everybody may have everything of sockets that are theirs to hand over.
    pub fn everybody() -> Self {
        Self {
            rules: vec![Rule {
                users: Vec::new(),
                groups: Vec::new(),
                everybody: true,
                wanted: everything(),
            }],
            limits: Limits::default(),
        }
    }

    /// Reads a policy file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or something in it is wrong; the message has file, line and key.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        let text = fs::read_to_string(path).map_err(|e| PolicyError::Unreadable {
            path: path.into(),
            cause: e,
        })?;
        Self::parse(&text).map_err(|text| PolicyError::Wrong {
            path: path.into(),
            text,
        })
    }

    /// Reads the text of a policy file. The error says where it is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file: PolicyFile = toml::from_str(text).map_err(|e| e.to_string())?;
        let limits = file.limits.read(text)?;
        let mut rules = Vec::with_capacity(file.allow.len());
        for (number, rule) in file.allow.into_iter().enumerate() {
            let at = line(text, rule.span().start);
            let rule = rule.into_inner();
            if rule.users.0.is_empty() && rule.groups.0.is_empty() && !rule.everybody {
                return Err(format!(
                    "line {at}: rule {} is for nobody: give it `users`, `groups` or `everybody = true`",
                    number + 1
                ));
            }
            let number_of = |names: Names, find: fn(&CStr) -> Option<u32>, what: &str| {
                let find = |name: Spanned<Name>| {
                    let at = line(text, name.span().start);
                    let number = name.into_inner().number(find, what);
                    number.map_err(|why| format!("line {at}: {why}"))
                };
                names.0.into_iter().map(find).collect::<Result<Vec<_>, _>>()
            };
            rules.push(Rule {
                users: number_of(rule.users, user_number, "user")?,
                groups: number_of(rule.groups, group_number, "group")?,
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
            });
        }
        Ok(Self { rules, limits })
    }

    /// What a process may have: all that the rules for it allow together.
    pub(crate) fn allows(&self, peer: &Peer) -> Wanted {
        let mut all = Wanted::default();
        for rule in self.rules.iter().filter(|rule| rule.is_for(peer)) {
            all.events = all.events.or(rule.wanted.events);
            all.variables = all.variables.or(rule.wanted.variables);
        }
        all
    }

    /// How much there is of everything.
    pub fn limits(&self) -> Limits {
        self.limits
    }
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients at a time.
    pub clients: u32,
    /// Of one user other than root.
    pub clients_per_user: u32,
    /// Subscriptions of one client.
    pub subscriptions_per_client: u32,
    /// Subscriptions of all.
    pub subscriptions: u32,
    /// Largest ring of a client, in KiB: a power of two.
    pub ring_kib: u32,
    /// Requests of a client in a second; the daemon lets those above wait.
    pub requests_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 64,
            clients_per_user: 16,
            subscriptions_per_client: 4_096,
            subscriptions: 16_384,
            ring_kib: 4_096,
            requests_per_second: 5_000,
        }
    }
}

/// What a file says of limits; the others stay as they are.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct LimitsText {
    clients: Option<Spanned<Number>>,
    clients_per_user: Option<Spanned<Number>>,
    subscriptions_per_client: Option<Spanned<Number>>,
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
            subscriptions: read(
                "subscriptions",
                self.subscriptions,
                usual.subscriptions,
                1..=1 << 20,
            )?,
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

/// The line of a place in a text, from one on.
fn line(text: &str, place: usize) -> usize {
    let before = text.bytes().take(place);
    1 + before.filter(|&byte| byte == b'\n').count()
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

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    users: Vec<u32>,
    groups: Vec<u32>,
    everybody: bool,
    wanted: Wanted,
}

impl Rule {
    fn is_for(&self, peer: &Peer) -> bool {
        self.everybody
            || self.users.contains(&peer.user)
            || self.groups.iter().any(|g| peer.groups.contains(g))
    }
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

/// Users or groups.
#[derive(Default)]
struct Names(Vec<Spanned<Name>>);

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

/// Why there is no policy.
#[derive(Debug)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file cannot be read.
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Something in it is wrong.
    Wrong {
        /// In which file.
        path: PathBuf,
        /// Where and what.
        text: String,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, cause } => {
                write!(
                    f,
                    "the policy {} cannot be read ({cause}): name a file that is there and that this user may read",
                    path.display()
                )
            }
            Self::Wrong { path, text } => {
                write!(
                    f,
                    "the policy {} is wrong: {}",
                    path.display(),
                    text.trim_end()
                )
            }
        }
    }
}

impl std::error::Error for PolicyError {}

fn everything() -> Wanted {
    Wanted {
        events: EventSet::ALL,
        variables: VariableSet::ALL,
    }
}

fn user_number(name: &CStr) -> Option<u32> {
    user_and_group(name).map(|(user, _)| user)
}

fn group_number(name: &CStr) -> Option<u32> {
    let mut room = vec![0; ENTRY];
    let mut found = std::ptr::null_mut();
    // SAFETY: the entry is pointers and integers, for which zero is a value; all buffers outlive
    // the call and are passed with their sizes.
    unsafe {
        let mut entry: libc::group = mem::zeroed();
        libc::getgrnam_r(
            name.as_ptr(),
            &raw mut entry,
            room.as_mut_ptr(),
            room.len(),
            &raw mut found,
        );
        (!found.is_null()).then_some(entry.gr_gid)
    }
}

/// User and group of a name, for whoever is to run as one.
pub(crate) fn user_and_group(name: &CStr) -> Option<(u32, u32)> {
    let mut room = vec![0; ENTRY];
    let mut found = std::ptr::null_mut();
    // SAFETY: as above.
    unsafe {
        let mut entry: libc::passwd = mem::zeroed();
        libc::getpwnam_r(
            name.as_ptr(),
            &raw mut entry,
            room.as_mut_ptr(),
            room.len(),
            &raw mut found,
        );
        (!found.is_null()).then_some((entry.pw_uid, entry.pw_gid))
    }
}

/// Long enough for an entry of a group with a thousand members.
const ENTRY: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;
    use crate::variables::Variable;

    fn peer(user: u32, groups: &[u32]) -> Peer {
        Peer {
            process: 1,
            user,
            groups: groups.to_vec(),
        }
    }

    #[test]
    fn rules_add_up_and_everything_else_is_refused() {
        let policy = Policy::parse(
            r#"
            [limits]
            clients = 3

            [[allow]]
            users = ["root", 1000]
            events = ["timeout", "recovery"]
            variables = ["window"]

            [[allow]]
            groups = [44]
            events = ["state"]
            variables = ["srtt"]
            "#,
        )
        .unwrap();
        assert_eq!(policy.limits().clients, 3);
        let both = policy.allows(&peer(1000, &[7, 44]));
        assert!(both.events.contains(EventKind::Timeout) && both.events.contains(EventKind::State));
        assert!(both.variables.contains(Variable::Srtt) && both.variables.contains(Variable::Cwnd));
        let one = policy.allows(&peer(0, &[0]));
        assert!(one.events.contains(EventKind::Timeout) && !one.events.contains(EventKind::State));
        assert_eq!(policy.allows(&peer(1001, &[7])), Wanted::default());
        assert_eq!(
            Policy::root_only().allows(&peer(1, &[0])),
            Wanted::default()
        );
        assert_eq!(Policy::everybody().allows(&peer(1, &[0])), everything());
    }

    #[test]
    fn a_policy_that_is_not_there_has_a_mend() {
        let error = Policy::load(Path::new("/nosuch/policy.toml")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("/nosuch/policy.toml") && error.contains("name a file"),
            "{error}"
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            (
                "[[allow]]\nusers = [0]\nevents = [\"rto\"]",
                ["`rto`", "timeout"],
            ),
            (
                "[[allow]]\nusers = [0]\nvariables = [\"cwdn\"]",
                ["`cwdn`", "cwnd"],
            ),
            ("[[allow]]\nevents = [\"all\"]", ["rule 1", "everybody"]),
            (
                "[[allow]]\nusers = [\"no such user\"]",
                ["`no such user`", "number"],
            ),
            ("[[alow]]\nusers = [0]", ["alow", "allow"]),
            ("[limits]\nring-kib = 100", ["ring-kib = 100", "128"]),
            ("[limits]\nclients = 0", ["clients = 0", "from 1"]),
            ("[limits]\nclient = 1", ["client", "clients"]),
            ("[[allow]\n", ["line 1", "allow"]),
            ("[[allow]]\nevents = [\"all\"]", ["line 1", "everybody"]),
            (
                "[[allow]]\nusers = [0,\n\"no such user\"]",
                ["line 3: there is no user", "its number"],
            ),
            (
                "[[allow]]\nusers = [\"0\"]",
                ["line 2: there is no user `0`", "without quotes, as 0"],
            ),
            ("[[allow]]\nusers = [-1]", ["line 2", "from 0 to"]),
            (
                "[[allow]]\nusers = \"root\"",
                ["line 2", "a list of names and numbers, as [\"root\", 1000]"],
            ),
            ("[limits]\nclients = -4", ["line 2", "from 1 to 4096"]),
            ("[limits]\nclients = \"4\"", ["line 2", "without quotes"]),
            ("[limits]\n\nring-kib = 100", ["line 3", "128"]),
        ] {
            let error = Policy::parse(text).unwrap_err();
            for word in named {
                assert!(error.contains(word), "{text}\n{error}");
            }
        }
    }
}
