//! Clouds: networks whose clients share their samples.

use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network cloud: the clients of an IPv4 /24 or of an IPv6 /48 (the network-locality heuristic of
/// Savage et al. 1999 and Zhang et al. 2000).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cloud {
    /// First 24 bits of an IPv4 address.
    V4([u8; 3]),
    /// First 48 bits of an IPv6 address.
    V6([u8; 6]),
}

impl Cloud {
    /// Cloud of a client. IPv4-mapped IPv6 addresses belong to IPv4.
    ///
    /// # Errors
    /// The address is that of no single host: unspecified, broadcast or multicast.
    pub fn of(address: IpAddr) -> Result<Self, AddressError> {
        let address = address.to_canonical();
        let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
        if address.is_unspecified() || address.is_multicast() || is_broadcast {
            return Err(AddressError(address.to_string()));
        }
        Ok(match address {
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                Self::V4([a, b, c])
            }
            IpAddr::V6(v6) => {
                let mut head = [0; 6];
                head.copy_from_slice(&v6.octets()[..6]);
                Self::V6(head)
            }
        })
    }
}

/// `192.0.2.0/24` or `2001:db8:7::/48`.
impl Display for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4([a, b, c]) => write!(f, "{}/24", Ipv4Addr::new(a, b, c, 0)),
            Self::V6(head) => {
                let mut octets = [0; 16];
                octets[..6].copy_from_slice(&head);
                write!(f, "{}/48", Ipv6Addr::from(octets))
            }
        }
    }
}

/// From a prefix as [`Display`] writes it, or from the address of a client.
impl FromStr for Cloud {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError(text.chars().take(MAX_SHOWN).collect());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let wanted = if address.is_ipv4() { "24" } else { "48" };
        if length.is_some_and(|length| length != wanted) {
            return Err(error());
        }
        Self::of(address)
    }
}

/// The text is no address of a host, and no prefix of 24 (IPv4) or 48 bits (IPv6).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no address of a host: give one as 192.0.2.7 or 2001:db8::7, or a prefix as \
     192.0.2.0/24 or 2001:db8:7::/48"
)]
pub struct AddressError(pub(crate) String);

/// Maximum length of a wrong address in a message.
const MAX_SHOWN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_share_a_cloud_by_their_prefix() {
        for (address, cloud) in [
            ("192.0.2.7", "192.0.2.0/24"),
            ("192.0.2.255", "192.0.2.0/24"),
            ("::ffff:192.0.2.9", "192.0.2.0/24"),
            ("2001:db8:7:1::9", "2001:db8:7::/48"),
            ("2001:db8:7::/48", "2001:db8:7::/48"),
            ("127.0.0.1", "127.0.0.0/24"),
        ] {
            let of: Cloud = address.parse().expect(address);
            assert_eq!(of.to_string(), cloud);
            assert_eq!(cloud.parse(), Ok(of));
        }
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        for text in [
            "",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "192.0.2.0/16",
            "192.0.2.7:5004",
            "host.example",
            "1.2.3",
        ] {
            assert!(text.parse::<Cloud>().is_err(), "{text}");
        }
        let long = "x".repeat(100_000).parse::<Cloud>().unwrap_err();
        assert!(long.to_string().len() < 300);
    }
}
