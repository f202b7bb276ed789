//! Names of clients in the store: addresses, hashed, truncated or plain.

use std::fmt::{self, Debug, Display};
use std::net::IpAddr;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Name of a client: 1 to [`LONGEST_NAME`] printable ASCII characters without space, comma and
/// quote.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(Box<str>);

impl Client {
    /// A client by its name; `None` if the name has another form.
    pub fn new(name: &str) -> Option<Self> {
        let plain = |c: u8| c.is_ascii_graphic() && !matches!(c, b',' | b'"' | b'\'');
        let fits = !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(plain);
        fits.then(|| Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.0)
    }
}

/// What the store keeps of the address of a client. The cloud is kept in each case.
#[derive(Clone, Debug)]
pub enum AddressPolicy {
    /// A keyed hash (HMAC-SHA-256, truncated to 64 bits). Without the key, an address cannot be
    /// recovered by trying all addresses of the cloud.
    Hashed(HashKey),
    /// The cloud only. All clients of a cloud count as one.
    Truncated,
    /// The whole address.
    Plain,
}

impl AddressPolicy {
    /// Name of a client under this policy.
    pub fn client(&self, address: IpAddr) -> Client {
        let address = address.to_canonical();
        let name = match self {
            Self::Hashed(key) => key.hash(address),
            Self::Truncated => TRUNCATED.to_owned(),
            Self::Plain => address.to_string(),
        };
        Client(name.into())
    }

    /// Name of the policy in the store: `hashed`, `truncated` or `plain`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hashed(_) => "hashed",
            Self::Truncated => "truncated",
            Self::Plain => "plain",
        }
    }
}

/// Key of hashed addresses.
#[derive(Clone)]
pub struct HashKey(Box<[u8]>);

impl HashKey {
    /// A key of any length. It should have 256 random bits.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    fn hash(&self, address: IpAddr) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is a key");
        match address {
            IpAddr::V4(v4) => mac.update(&v4.octets()),
            IpAddr::V6(v6) => mac.update(&v6.octets()),
        }
        let digest = mac.finalize().into_bytes();
        let head = digest[..8].try_into().expect("the digest has 32 bytes");
        format!("{:016x}", u64::from_be_bytes(head))
    }
}

/// Does not print the key.
impl Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

/// Longest name of a client: longer than any address.
pub const LONGEST_NAME: usize = 48;

/// Name of every client whose address is truncated to its cloud.
const TRUNCATED: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;

    fn name(policy: &AddressPolicy, address: &str) -> String {
        policy.client(address.parse().expect(address)).to_string()
    }

    #[test]
    fn a_hash_needs_its_key() {
        let [a, b] = [1, 2].map(|byte| AddressPolicy::Hashed(HashKey::new(&[byte; 32])));
        let hashed = name(&a, "192.0.2.7");
        assert_eq!(hashed.len(), 16);
        assert_eq!(hashed, name(&a, "::ffff:192.0.2.7"));
        assert_ne!(hashed, name(&a, "192.0.2.8"));
        assert_ne!(hashed, name(&b, "192.0.2.7"));
        assert!(!format!("{a:?}").contains('1'), "{a:?}");
    }

    #[test]
    fn truncation_keeps_nothing_of_a_client() {
        let policy = AddressPolicy::Truncated;
        assert_eq!(name(&policy, "192.0.2.7"), name(&policy, "198.51.100.9"));
        assert_eq!(name(&AddressPolicy::Plain, "2001:db8::7"), "2001:db8::7");
    }

    #[test]
    fn names_are_bounded() {
        assert!(Client::new("00ff00ff00ff00ff").is_some());
        let long = "a".repeat(LONGEST_NAME + 1);
        for wrong in ["", "a b", "a,b", "é", "a\n", long.as_str()] {
            assert_eq!(Client::new(wrong), None, "{wrong}");
        }
    }
}
