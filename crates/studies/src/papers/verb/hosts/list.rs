//! How hosts with players are written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};

/// A host with a player: how ssh comes to it, and where video goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// What it is called in tables and folders.
    pub(super) name: String,
    /// `[user@]host`, as ssh takes it.
    pub(super) login: String,
    /// Of its ssh; as ssh is configured unless told.
    pub(super) ssh_port: Option<u16>,
    /// Where video goes: a name or an address, IPv6 in brackets.
    pub(super) address: String,
    /// The player listens there; with 0 at one that is free.
    pub(super) port: u16,
    /// The program there.
    pub(super) tidegate: String,
}

impl Host {
    /// Where the player is to listen.
    pub(super) fn listen(&self) -> String {
        let any = if self.address.starts_with('[') {
            "[::]"
        } else {
            "0.0.0.0"
        };
        format!("{any}:{}", self.port)
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let how = "write it as [USER@]HOST[:PORT][,to=ADDRESS[:PORT]][,tidegate=PATH][,name=NAME]";
        let wrong = |why: &str| format!("\"{text}\" is no host with a player: {why}; {how}");
        let mut parts = text.split(',').map(str::trim);
        let login = parts.next().unwrap_or_default();
        let (user, place) = match login.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, login),
        };
        let (place, ssh_port) = split(place).map_err(|why| wrong(&why))?;
        // A user or host that begins so would be an option of ssh.
        let option = user.unwrap_or(place).starts_with('-') || place.starts_with('-');
        let blank = |part: &str| part.is_empty() || part.contains(char::is_whitespace);
        if option || blank(place) || user.is_some_and(blank) {
            return Err(wrong("user and host are words"));
        }
        let bare = place.trim_matches(['[', ']']);
        let mut host = Self {
            name: user.map_or(bare.to_owned(), |user| format!("{user}@{bare}")),
            login: user.map_or(bare.to_owned(), |user| format!("{user}@{bare}")),
            ssh_port,
            address: place.to_owned(),
            port: PORT,
            tidegate: "tidegate".to_owned(),
        };
        for part in parts {
            match part.split_once('=') {
                Some((_, "")) | None => return Err(wrong(&format!("\"{part}\" has no value"))),
                Some(("to", to)) => {
                    let (address, port) = split(to).map_err(|why| wrong(&why))?;
                    address.clone_into(&mut host.address);
                    host.port = port.unwrap_or(PORT);
                }
                Some(("tidegate", path)) => path.clone_into(&mut host.tidegate),
                Some(("name", name)) => name.clone_into(&mut host.name),
                Some((key, _)) => return Err(wrong(&format!("nothing is called \"{key}\""))),
            }
        }
        Ok(host)
    }
}

/// A name or an address, and a port behind it. IPv6 addresses have brackets.
fn split(text: &str) -> Result<(&str, Option<u16>), String> {
    let (place, port) = match text.rfind(']') {
        Some(end) if text.starts_with('[') => text.split_at(end + 1),
        _ => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    match port.strip_prefix(':') {
        None if port.is_empty() && !place.is_empty() => Ok((place, None)),
        Some(digits) if !place.is_empty() => match digits.parse() {
            Ok(port) => Ok((place, Some(port))),
            Err(_) if digits.contains(':') => Err(format!("write \"{text}\" in brackets")),
            Err(_) => Err(format!("\"{digits}\" is no port")),
        },
        _ => Err(format!("\"{text}\" is no address")),
    }
}

/// The hosts of the command line, and those of a file: one per line, `#` begins a comment.
pub(super) fn all(given: &[Host], file: Option<&Path>) -> Result<Vec<Host>> {
    let mut hosts = given.to_vec();
    if let Some(file) = file {
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            match line.parse() {
                Ok(host) => hosts.push(host),
                Err(why) => bail!("{name}, line {}: {why}", number + 1),
            }
        }
    }
    ensure!(!hosts.is_empty(), "there is no host in the list: name one");
    let mut seen = BTreeSet::new();
    for host in &hosts {
        ensure!(
            seen.insert(folder(&host.name)),
            "two hosts are called {}: give one another name with \",name=\"",
            host.name
        );
    }
    Ok(hosts)
}

/// A name as that of a folder: letters, digits, points and strokes.
pub(super) fn folder(name: &str) -> PathBuf {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    let words: Vec<&str> = name
        .split(|c| !plain(c))
        .map(|word| word.trim_start_matches('.'))
        .filter(|word| !word.is_empty())
        .collect();
    PathBuf::from(if words.is_empty() {
        "_".to_owned()
    } else {
        words.join("-")
    })
}

/// As in the examples of `tidegate recv`.
const PORT: u16 = 5004;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    #[test]
    fn a_host_is_enough() {
        let plain = host("node.example");
        assert_eq!(
            (plain.login.as_str(), plain.ssh_port),
            ("node.example", None)
        );
        assert_eq!((plain.address.as_str(), plain.port), ("node.example", 5004));
        assert_eq!(plain.tidegate, "tidegate");
        assert_eq!(plain.listen(), "0.0.0.0:5004");
    }

    #[test]
    fn all_can_be_told() {
        let text = "ann@gw:2222,to=192.0.2.7:6000,tidegate=/opt/tide gate/tidegate,name=isi";
        let expected = Host {
            name: "isi".to_owned(),
            login: "ann@gw".to_owned(),
            ssh_port: Some(2222),
            address: "192.0.2.7".to_owned(),
            port: 6000,
            tidegate: "/opt/tide gate/tidegate".to_owned(),
        };
        assert_eq!(host(text), expected);
    }

    #[test]
    fn ipv6_has_brackets_except_for_ssh() {
        let six = host("bo@[2001:db8::7]:2022");
        assert_eq!(
            (six.login.as_str(), six.ssh_port),
            ("bo@2001:db8::7", Some(2022))
        );
        assert_eq!((six.address.as_str(), six.port), ("[2001:db8::7]", 5004));
        assert_eq!(six.listen(), "[::]:5004");
        assert_eq!(host("h,to=[::1]:0").address, "[::1]");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("", "no address"),
            ("ann@", "no address"),
            ("@h", "words"),
            ("-oProxyCommand=x", "words"),
            ("ann@-h", "words"),
            ("a b", "words"),
            ("h:ssh", "\"ssh\" is no port"),
            ("h:70000", "\"70000\" is no port"),
            ("2001:db8::7", "in brackets"),
            ("[::1]x", "no address"),
            ("h,to=", "no value"),
            ("h,tidegate", "no value"),
            ("h,path=/x", "\"path\""),
        ] {
            let why = text.parse::<Host>().unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
            assert!(why.contains("[USER@]HOST[:PORT]"), "{text}: {why}");
        }
    }

    #[test]
    fn hosts_of_the_same_name_are_refused() {
        let twice = [host("h"), host("h,to=192.0.2.7")];
        assert!(all(&twice, None).unwrap_err().to_string().contains("name="));
        let named = [host("h"), host("h,name=other")];
        assert_eq!(all(&named, None).unwrap(), named);
        assert!(all(&[], None).is_err());
    }

    #[test]
    fn folders_stay_where_they_belong() {
        assert_eq!(folder("iopt --law paper"), Path::new("iopt-law-paper"));
        assert_eq!(folder("../a@b.example"), Path::new("a-b.example"));
        assert_eq!(folder(".."), Path::new("_"));
    }
}
