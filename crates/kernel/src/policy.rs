//! The administrator's policy: who may subscribe to what and read what.

mod file;

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

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

    /// The same rules within other limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
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
        let (limits, rules) = file::read(text)?;
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
    /// Subscriptions of one user other than root.
    pub subscriptions_per_user: u32,
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
            subscriptions_per_user: 8_192,
            subscriptions: 16_384,
            ring_kib: 4_096,
            requests_per_second: 5_000,
        }
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
    fn one_user_has_half_of_the_subscriptions_unless_told() {
        for (text, most) in [
            ("", 8_192),
            ("[limits]\nsubscriptions = 9", 5),
            ("[limits]\nsubscriptions = 9\nsubscriptions-per-user = 9", 9),
        ] {
            let limits = Policy::parse(text).unwrap().limits();
            assert_eq!(limits.subscriptions_per_user, most, "{text}");
        }
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
