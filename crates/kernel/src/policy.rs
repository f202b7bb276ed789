//! The administrator's policy: the events and variables that users may have.

mod file;

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::bpf::events::EventRequest;
use crate::peer_cred::{PeerCred, effective_user};
use crate::trusted_path::{self, PathError};

/// Rules and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    limits: Limits,
    notes: Vec<String>,
}

impl Policy {
    /// A policy that allows everything to root only.
    pub fn root_only() -> Self {
        Self::of_one(vec![0])
    }

    /// The same rules with other limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// A policy that allows everything to all users, for the sockets that they have.
    pub fn everybody() -> Self {
        Self::of_one(Vec::new())
    }

    /// One rule that allows everything to these users, or to all if the list is empty.
    fn of_one(users: Vec<u32>) -> Self {
        Self {
            rules: vec![Rule {
                everybody: users.is_empty(),
                users,
                groups: Vec::new(),
                wanted: EventRequest::ALL,
            }],
            limits: Limits::default(),
            notes: Vec::new(),
        }
    }

    /// Reads a policy file. The file, and the folders and symbolic links of its path, have to belong
    /// to root or to the effective user of this thread, and others may not write to them, except to
    /// sticky folders.
    ///
    /// # Errors
    ///
    /// The file cannot be read, others can change it, or it has an error; the message names file,
    /// line and key.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        Self::load_of(path, effective_user())
    }

    /// As [`Self::load`], with the user who may own the file beside root.
    pub(crate) fn load_of(path: &Path, user: u32) -> Result<Self, PolicyError> {
        let bytes = read_trusted(path, user).map_err(|e| match e {
            PathError::System(cause) => PolicyError::Unreadable {
                path: path.into(),
                cause,
            },
            untrusted @ PathError::Untrusted { .. } => PolicyError::Exposed {
                path: path.into(),
                why: untrusted.to_string(),
            },
        })?;
        let text = str::from_utf8(&bytes).map_err(|e| {
            let at = file::line(&bytes, e.valid_up_to());
            format!("line {at}: the text is not UTF-8: save the file in that encoding")
        });
        text.and_then(Self::parse)
            .map_err(|text| PolicyError::Wrong {
                path: path.into(),
                text,
            })
    }

    /// Reads the text of a policy file. The error names the line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        file::read(text)
    }

    /// The union of what the rules for a process allow.
    pub(crate) fn allows(&self, peer: &PeerCred) -> EventRequest {
        let mut all = EventRequest::default();
        for rule in self.rules.iter().filter(|rule| rule.applies_to(peer)) {
            all.events = all.events.or(rule.wanted.events);
            all.variables = all.variables.or(rule.wanted.variables);
        }
        all
    }

    #[cfg(feature = "fuzzing")]
    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Warnings about valid policies that are probably not intended, each with a fix.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Reads a file that only root or `user` can change or exchange.
fn read_trusted(path: &Path, user: u32) -> Result<Vec<u8>, PathError> {
    let path = trusted_path::resolve(path, user)?;
    let mut options = fs::File::options();
    // Opening a FIFO would wait for a writer.
    let options = options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file = options.open(&path).map_err(PathError::System)?;
    let found = file.metadata().map_err(PathError::System)?;
    if !found.is_file() {
        let kind = io::Error::other("it is not a regular file");
        return Err(PathError::System(kind));
    }
    trusted_path::check(&path, &found, user)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(PathError::System)?;
    Ok(bytes)
}

/// Limits of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients at the same time.
    pub clients: u32,
    /// Clients of one user other than root.
    pub clients_per_user: u32,
    /// Subscriptions of one client.
    pub subscriptions_per_client: u32,
    /// Subscriptions of one user other than root.
    pub subscriptions_per_user: u32,
    /// Subscriptions of all clients.
    pub subscriptions: u32,
    /// Largest ring of a client, in KiB: a power of two.
    pub ring_kib: u32,
    /// Requests of a client per second; the daemon delays the others.
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

/// Users, and what they may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) users: Vec<u32>,
    pub(crate) groups: Vec<u32>,
    pub(crate) everybody: bool,
    pub(crate) wanted: EventRequest,
}

impl Rule {
    fn applies_to(&self, peer: &PeerCred) -> bool {
        self.everybody
            || self.users.contains(&peer.user)
            || self.groups.iter().any(|g| peer.groups.contains(g))
    }
}

/// Reason why a policy cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Other users can change the file, or exchange it.
    #[error("other users could change the policy {path}: {why}")]
    Exposed {
        /// Its path.
        path: PathBuf,
        /// The file or folder that they can change, and the fix.
        why: String,
    },
    /// The file cannot be read.
    #[error(
        "the policy {path} cannot be read ({cause}): name a file that exists and that this user \
         may read"
    )]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The file has an error.
    #[error("the policy {path} is wrong: {}", .text.trim_end())]
    Wrong {
        /// Its path.
        path: PathBuf,
        /// Line and error.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::event::EventKind;
    use crate::variables::Variable;

    fn peer(user: u32, groups: &[u32]) -> PeerCred {
        PeerCred {
            process: 1,
            user,
            groups: groups.to_vec(),
        }
    }

    #[test]
    fn rules_add_up_and_the_default_is_to_refuse() {
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
        assert_eq!(policy.allows(&peer(1001, &[7])), EventRequest::default());
        assert_eq!(
            Policy::root_only().allows(&peer(1, &[0])),
            EventRequest::default()
        );
        assert_eq!(
            Policy::everybody().allows(&peer(1, &[0])),
            EventRequest::ALL
        );
    }

    #[test]
    fn by_default_a_user_has_half_of_the_subscriptions() {
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
    fn by_default_a_client_has_no_more_subscriptions_than_there_are() {
        for (text, most) in [("", 4_096), ("[limits]\nsubscriptions = 160", 160)] {
            let limits = Policy::parse(text).unwrap().limits();
            assert_eq!(limits.subscriptions_per_client, most, "{text}");
        }
    }

    #[test]
    fn by_default_a_user_has_at_most_half_of_the_clients() {
        for (text, most) in [
            ("", 16),
            ("[limits]\nclients = 5", 3),
            ("[limits]\nclients = 1", 1),
            ("[limits]\nclients = 5\nclients-per-user = 5", 5),
        ] {
            let limits = Policy::parse(text).unwrap().limits();
            assert_eq!(limits.clients_per_user, most, "{text}");
        }
    }

    #[test]
    fn policies_that_are_probably_not_intended_have_notes() {
        let rule = "[[allow]]\nusers = [0]\nevents = [\"all\"]\n";
        for (text, note) in [
            (String::new(), "the policy allows nothing"),
            ("[limits]\nclients = 4".into(), "[[allow]]"),
            (
                "[[allow]]\nusers = [0]".into(),
                "line 1: rule 1 allows nothing",
            ),
            (
                "[[allow]]\nusers = [0]\nevents = [\"ended\"]".into(),
                "allows no event but the end",
            ),
            (
                "[[allow]]\nusers = [0]\nvariables = [\"all\"]".into(),
                "name other `events`",
            ),
            (
                format!("{rule}[limits]\nclients = 2\nclients-per-user = 2"),
                "line 6: limits.clients-per-user = 2",
            ),
            (
                format!("{rule}[limits]\nsubscriptions = 2\nsubscriptions-per-user = 2"),
                "one user can take them all",
            ),
        ] {
            let policy = Policy::parse(&text).unwrap();
            let told = policy.notes().iter().any(|n| n.contains(note));
            assert!(told, "{text}\n{:?}", policy.notes());
        }
        for text in [rule.into(), format!("{rule}[limits]\nclients = 1")] {
            assert_eq!(Policy::parse(&text).unwrap().notes(), [""; 0], "{text}");
        }
        assert_eq!(Policy::everybody().notes(), [""; 0]);
    }

    /// An empty file that only this user can write, whatever the umask.
    fn own_file(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tg-{}-{name}.toml", std::process::id()));
        fs::write(&path, "").unwrap();
        chmod(&path, 0o600);
        path
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_policy_that_others_can_write_is_refused() {
        let path = own_file("writable");
        let named = path.display();
        for mode in [0o620, 0o602, 0o666] {
            chmod(&path, mode);
            let error = Policy::load(&path).unwrap_err().to_string();
            for words in [
                format!("could change the policy {named}"),
                format!("write to the file {named} (mode {mode:04o})"),
                format!("chmod go-w {named}"),
            ] {
                assert!(error.contains(&words), "{error}");
            }
        }
        chmod(&path, 0o644);
        assert_eq!(Policy::load(&path).unwrap(), Policy::parse("").unwrap());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_policy_of_another_user_is_refused() {
        let path = own_file("foreign");
        let own = effective_user();
        // The file belongs to this user, or to the user `nobody` if that is root.
        let other = if own == 0 {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            0
        } else {
            own + 1
        };
        let error = Policy::load_of(&path, other).unwrap_err().to_string();
        let owner = if own == 0 { 65_534 } else { own };
        let words = format!("user {owner} owns the file {}", path.display());
        assert!(
            error.contains(&words) && error.contains("chown root"),
            "{error}"
        );
        assert!(Policy::load_of(&path, owner).is_ok());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_policy_in_a_folder_that_others_can_write_is_refused() {
        let folder = std::env::temp_dir().join(format!("tg-{}-policies", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (path, file) = (folder.join("policy.toml"), own_file("linked"));
        std::os::unix::fs::symlink(&file, &path).unwrap();
        chmod(&folder, 0o755);
        Policy::load(&path).unwrap();
        chmod(&folder, 0o777);
        let error = Policy::load(&path).unwrap_err().to_string();
        let words = format!("write to the folder {}", folder.display());
        assert!(error.contains(&words), "{error}");
        fs::remove_file(file).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    /// Opening a FIFO would wait for a writer, and reading a device might not end.
    #[test]
    fn a_policy_has_to_be_a_regular_file() {
        let error = Policy::load(Path::new("/dev/zero"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not a regular file"), "{error}");
    }

    #[test]
    fn a_policy_in_another_encoding_is_an_error_with_a_fix() {
        let path = own_file("latin");
        // "für" in Latin-1.
        fs::write(&path, b"[limits]\nclients = 4 # f\xfcr\n").unwrap();
        let error = Policy::load(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(
            error.contains("line 2") && error.contains("UTF-8"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_policy_is_an_error_with_a_fix() {
        let error = Policy::load(Path::new("/nosuch/policy.toml")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("/nosuch/policy.toml") && error.contains("name a file"),
            "{error}"
        );
    }

    #[test]
    fn errors_name_the_line_and_the_fix() {
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
            (
                "[[allow]]\neverybody = \"yes\"",
                ["line 2", "true or false, without quotes"],
            ),
            ("[[allow]]\neverybody = 1", ["line 2", "true or false"]),
            (
                "[[allow]]\nusers = [0]\nevents = \"timeout\"",
                ["line 3", "a list of names, as [\"timeout\", \"state\"]"],
            ),
            (
                "[[allow]]\nusers = [0]\nevents = [7]",
                ["line 3", "a name in quotes, as \"all\""],
            ),
            (
                "[[allow]]\nusers = [0]\nvariables = true",
                ["line 3", "a list of names, as [\"window\", \"srtt\"]"],
            ),
            ("[allow]\nusers = [0]", ["line 1", "[[allow]]"]),
            ("allow = [1]", ["line 1", "[[allow]]"]),
            ("limits = 3", ["line 1", "[limits]"]),
            ("[[limits]]\nclients = 3", ["line 1", "[limits]"]),
            ("[limits]\nclients = 1.5", ["line 2", "a whole number"]),
            (
                "[limits]\nclients = 4\nclients-per-user = 8",
                ["line 3: limits.clients-per-user = 8", "from 1 to 4"],
            ),
            (
                "[limits]\nsubscriptions = 4\nsubscriptions-per-user = 8",
                ["line 3", "from 1 to 4"],
            ),
            (
                "[limits]\nsubscriptions-per-client = 8\nsubscriptions = 4",
                ["line 2", "from 1 to 4"],
            ),
        ] {
            let error = Policy::parse(text).unwrap_err();
            for word in named {
                assert!(error.contains(word), "{text}\n{error}");
            }
        }
    }
}
