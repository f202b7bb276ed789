//! Recognition of the packets of applications, by host pair and port.

use core::fmt;
use core::net::IpAddr;
use core::ops::RangeInclusive;
use core::str::FromStr;

use super::{Direction, SiteId};
use crate::wire::cp::ApplicationId;
use crate::wire::udp::Datagram;

/// Another site: its hosts, and the packets that applications exchange with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SiteRule {
    /// Hosts of the other site.
    pub hosts: Vec<Prefix>,
    /// Hosts of this site; empty: all.
    #[cfg_attr(feature = "serde", serde(default))]
    pub local: Vec<Prefix>,
    /// UDP ports. One of the two ports of a packet is among them.
    pub ports: Vec<Numbers>,
    /// Applications that are allowed; empty: all.
    #[cfg_attr(feature = "serde", serde(default))]
    pub applications: Vec<Numbers>,
}

/// The other sites of an aggregation point. A site has the number of its place in the list; the
/// first site that matches a packet counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteTable(pub Vec<SiteRule>);

impl SiteTable {
    /// Site of a packet; `None` if it belongs to none.
    pub fn find(&self, direction: Direction, packet: &Datagram) -> Option<SiteId> {
        let (local, remote) = match direction {
            Direction::Inbound => (packet.destination, packet.source),
            Direction::Outbound => (packet.source, packet.destination),
        };
        let ports = [packet.source_port, packet.destination_port];
        let matches = |rule: &SiteRule| {
            rule.hosts.iter().any(|prefix| prefix.contains(remote))
                && (rule.local.is_empty() || rule.local.iter().any(|p| p.contains(local)))
                && rule
                    .ports
                    .iter()
                    .any(|range| ports.iter().any(|port| range.contains(*port)))
        };
        let place = self.0.iter().position(matches)?;
        Some(SiteId(place as u32))
    }

    /// Whether an application may exchange packets with a site under rate control.
    pub fn allows(&self, site: SiteId, application: ApplicationId) -> bool {
        self.0.get(site.0 as usize).is_some_and(|rule| {
            rule.applications.is_empty()
                || rule
                    .applications
                    .iter()
                    .any(|range| range.contains(application.0))
        })
    }
}

/// Addresses with a common start, such as `192.0.2.0/24` or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Whether the address begins with the prefix.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                shared(u128::from(own.to_bits() ^ other.to_bits()) << 96) >= self.length
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                shared(own.to_bits() ^ other.to_bits()) >= self.length
            }
            _ => false,
        }
    }

    /// First address of the prefix.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Length in bits, at most that of an address.
    pub fn length(&self) -> u8 {
        self.length
    }
}

/// Leading bits without a difference.
fn shared(difference: u128) -> u8 {
    difference.leading_zeros() as u8
}

impl FromStr for Prefix {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let invalid = || RuleError::Prefix(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let (bits, longest) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let length = match length {
            Some(length) => length.parse().map_err(|_| invalid())?,
            None => longest,
        };
        if length > longest {
            return Err(invalid());
        }
        if bits.checked_shl(u32::from(length)).unwrap_or(0) != 0 {
            return Err(RuleError::HostBits(text.to_owned()));
        }
        Ok(Self { address, length })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl TryFrom<String> for Prefix {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

/// A range of ports or applications, such as `5008` or `6000-6100`, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Written", into = "String"))]
pub struct Numbers(RangeInclusive<u16>);

impl Numbers {
    /// The numbers from `first` to `last`.
    pub fn new(first: u16, last: u16) -> Self {
        Self(first..=last)
    }

    /// Whether the number is in the range.
    pub fn contains(&self, number: u16) -> bool {
        self.0.contains(&number)
    }

    /// First and last number.
    pub fn ends(&self) -> (u16, u16) {
        (*self.0.start(), *self.0.end())
    }
}

impl FromStr for Numbers {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(RuleError::Numbers(text.to_owned())),
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = self.ends();
        if first == last {
            write!(f, "{first}")
        } else {
            write!(f, "{first}-{last}")
        }
    }
}

impl From<Numbers> for String {
    fn from(numbers: Numbers) -> Self {
        numbers.to_string()
    }
}

/// A range in a file: a number or a text.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, or a range such as \"6000-6100\""
)]
enum Written {
    Number(u16),
    Text(String),
}

#[cfg(feature = "serde")]
impl TryFrom<Written> for Numbers {
    type Error = RuleError;

    fn try_from(written: Written) -> Result<Self, RuleError> {
        match written {
            Written::Number(number) => Ok(Self(number..=number)),
            Written::Text(text) => text.parse(),
        }
    }
}

/// An invalid part of a [`SiteRule`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The address of a prefix has bits after its length.
    #[error("`{0}` has bits after the prefix: write a smaller length, or the first address")]
    HostBits(String),
    /// Not a range of numbers from 0 to 65,535.
    #[error("`{0}` is no range: write a number from 0 to 65535, or two as 6000-6100")]
    Numbers(String),
    /// Not a prefix.
    #[error("`{0}` is no prefix: write an address, or one with a length as 192.0.2.0/24")]
    Prefix(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Ecn;

    fn packet(source: &str, destination: &str, ports: (u16, u16)) -> Datagram {
        Datagram {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: ports.0,
            destination_port: ports.1,
            ecn: Ecn::NotEct,
            header: 20,
            payload: 28..48,
        }
    }

    fn table() -> SiteTable {
        let rule = |hosts: &str, local: &[&str], applications: &[&str]| SiteRule {
            hosts: vec![hosts.parse().unwrap()],
            local: local.iter().map(|text| text.parse().unwrap()).collect(),
            ports: vec!["5008".parse().unwrap(), "6000-6100".parse().unwrap()],
            applications: applications
                .iter()
                .map(|text| text.parse().unwrap())
                .collect(),
        };
        SiteTable(vec![
            rule("198.51.100.0/24", &["192.0.2.0/25"], &["1-3", "9"]),
            rule("2001:db8::/33", &[], &[]),
            rule("198.51.0.0/16", &[], &[]),
        ])
    }

    #[test]
    fn packets_are_recognised_by_host_pair_and_port() {
        let table = table();
        let out = |packet| table.find(Direction::Outbound, &packet).map(|site| site.0);
        let (here, there) = ("192.0.2.7", "198.51.100.9");
        assert_eq!(out(packet(here, there, (5_008, 1))), Some(0));
        assert_eq!(out(packet(here, there, (1, 6_100))), Some(0));
        assert_eq!(out(packet(here, there, (1, 6_101))), None);
        // Other hosts here, and another direction.
        assert_eq!(out(packet("192.0.2.130", there, (1, 5_008))), Some(2));
        assert_eq!(out(packet(there, here, (1, 5_008))), None);
        let inbound = packet(there, here, (1, 5_008));
        assert_eq!(table.find(Direction::Inbound, &inbound), Some(SiteId(0)));
        assert_eq!(out(packet("::1", "2001:db8:7fff::1", (1, 5_008))), Some(1));
        assert_eq!(out(packet("::1", "2001:db8:8000::1", (1, 5_008))), None);
    }

    #[test]
    fn only_listed_applications_are_allowed() {
        let table = table();
        for (application, is_allowed) in [(0, false), (1, true), (3, true), (4, false), (9, true)] {
            assert_eq!(
                table.allows(SiteId(0), ApplicationId(application)),
                is_allowed
            );
        }
        assert!(table.allows(SiteId(1), ApplicationId(4)));
        assert!(!table.allows(SiteId(3), ApplicationId(4)));
    }

    #[test]
    fn ends_of_prefixes() {
        let all: Prefix = "0.0.0.0/0".parse().unwrap();
        let one: Prefix = "192.0.2.1".parse().unwrap();
        assert!(all.contains("255.1.2.3".parse().unwrap()));
        assert!(!all.contains("::1".parse().unwrap()));
        assert!(one.contains("192.0.2.1".parse().unwrap()));
        assert!(!one.contains("192.0.2.0".parse().unwrap()));
        let six: Prefix = "::/0".parse().unwrap();
        assert!(six.contains("ffff::".parse().unwrap()));
        assert_eq!(one.to_string(), "192.0.2.1/32");
    }

    #[test]
    fn errors_name_the_valid_form() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap_err().to_string();
        assert!(prefix("192.0.2.1/24").contains("bits after the prefix"));
        for text in [
            "",
            "192.0.2",
            "192.0.2.0/33",
            "::/129",
            "192.0.2.0/",
            "a/8",
            "::/-1",
        ] {
            assert!(prefix(text).contains("192.0.2.0/24"), "{text}");
        }
        for text in ["", "-", "7-", "65536", "9-8", "-1", "1-2-3"] {
            let error = text.parse::<Numbers>().unwrap_err().to_string();
            assert!(error.contains("6000-6100"), "{text}");
        }
        assert_eq!("6000 - 6100".parse(), Ok(Numbers::new(6_000, 6_100)));
    }
}
