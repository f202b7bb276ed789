//! Syntax of hosts with players.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};

/// A host with a player: the ssh login, and the destination of the video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// Name in tables and folders.
    pub(super) name: String,
    /// `[user@]host` in ssh's syntax.
    pub(super) login: String,
    /// Port of the ssh server [default: ssh's configuration].
    pub(super) ssh_port: Option<u16>,
    /// Destination of the video: a name or an address, with IPv6 in brackets.
    pub(super) address: String,
    /// Port of the player; 0 selects a free one.
    pub(super) port: u16,
    /// Path of the program on the host.
    pub(super) tidegate: String,
}

impl Host {
    /// Listen address of the player.
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
        let how = "use [USER@]HOST[:PORT][,to=ADDRESS[:PORT]][,tidegate=PATH][,name=NAME]";
        let wrong = |why: &str| format!("invalid host \"{text}\": {why}; {how}");
        let mut parts = text.split(',').map(str::trim);
        let login = parts.next().unwrap_or_default();
        let (user, place) = match login.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, login),
        };
        let (place, ssh_port) = split(place).map_err(|why| wrong(&why))?;
        // ssh would parse a user or host with this prefix as an option.
        let option = user.unwrap_or(place).starts_with('-') || place.starts_with('-');
        let blank = |part: &str| part.is_empty() || part.contains(char::is_whitespace);
        if option || blank(place) || user.is_some_and(blank) {
            return Err(wrong("user or host is not a word"));
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
                Some((key, _)) => return Err(wrong(&format!("unknown key \"{key}\""))),
            }
        }
        Ok(host)
    }
}

/// Splits a name or an address from its port. IPv6 addresses have brackets.
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
            Err(_) => Err(format!("\"{digits}\" is not a port")),
        },
        _ => Err(format!("\"{text}\" is not an address")),
    }
}

/// Hosts of the command line and of a file with one host per line; `#` begins a comment.
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
    ensure!(!hosts.is_empty(), "the list of hosts is empty: add one");
    let mut seen = BTreeSet::new();
    for host in &hosts {
        ensure!(
            seen.insert(folder(&host.name)),
            "two hosts have the name {}: change one with \",name=\"",
            host.name
        );
    }
    Ok(hosts)
}

/// A name as a folder name: letters, digits, dots, hyphens and underscores.
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

/// Default port, as in the examples of `tidegate recv`.
const PORT: u16 = 5004;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    #[test]
    fn host_alone_has_defaults() {
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
    fn all_keys_are_parsed() {
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
    fn errors_name_the_invalid_part() {
        for (text, word) in [
            ("", "not an address"),
            ("ann@", "not an address"),
            ("@h", "not a word"),
            ("-oProxyCommand=x", "not a word"),
            ("ann@-h", "not a word"),
            ("a b", "not a word"),
            ("h:ssh", "\"ssh\" is not a port"),
            ("h:70000", "\"70000\" is not a port"),
            ("2001:db8::7", "in brackets"),
            ("[::1]x", "not an address"),
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
    fn duplicate_names_are_rejected() {
        let twice = [host("h"), host("h,to=192.0.2.7")];
        assert!(all(&twice, None).unwrap_err().to_string().contains("name="));
        let named = [host("h"), host("h,name=other")];
        assert_eq!(all(&named, None).unwrap(), named);
        assert!(all(&[], None).is_err());
    }

    #[test]
    fn folder_names_have_no_path_separators() {
        assert_eq!(folder("iopt --law paper"), Path::new("iopt-law-paper"));
        assert_eq!(folder("../a@b.example"), Path::new("a-b.example"));
        assert_eq!(folder(".."), Path::new("_"));
    }
}
