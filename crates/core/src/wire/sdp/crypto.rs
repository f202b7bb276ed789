//! SRTP keys in session descriptions (RFC 4568).

use core::fmt;

/// Crypto-suite of SRTP and SRTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CryptoSuite {
    /// AES-GCM with a key of 128 bits (RFC 7714).
    AeadAes128Gcm,
    /// AES-GCM with a key of 256 bits (RFC 7714).
    AeadAes256Gcm,
    /// AES in counter mode with a tag of 32 bits for SRTP, and of 80 bits for SRTCP (RFC 4568
    /// section 6.2.2).
    AesCm128HmacSha1_32,
    /// AES in counter mode with a tag of 80 bits (RFC 4568 section 6.2.1).
    AesCm128HmacSha1_80,
}

impl CryptoSuite {
    /// All suites.
    pub const ALL: [Self; 4] = [
        Self::AeadAes128Gcm,
        Self::AeadAes256Gcm,
        Self::AesCm128HmacSha1_32,
        Self::AesCm128HmacSha1_80,
    ];

    /// Name in session descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Self::AeadAes128Gcm => "AEAD_AES_128_GCM",
            Self::AeadAes256Gcm => "AEAD_AES_256_GCM",
            Self::AesCm128HmacSha1_32 => "AES_CM_128_HMAC_SHA1_32",
            Self::AesCm128HmacSha1_80 => "AES_CM_128_HMAC_SHA1_80",
        }
    }

    /// Length of the master key in bytes.
    pub fn key_len(self) -> usize {
        match self {
            Self::AeadAes256Gcm => 32,
            _ => 16,
        }
    }

    /// Length of the master salt in bytes (RFC 3711 section 8.2, RFC 7714 section 12).
    pub fn salt_len(self) -> usize {
        match self {
            Self::AeadAes128Gcm | Self::AeadAes256Gcm => 12,
            Self::AesCm128HmacSha1_32 | Self::AesCm128HmacSha1_80 => 14,
        }
    }
}

/// A master key and salt of the sender, as in an `a=crypto` line.
#[derive(Clone, PartialEq, Eq)]
pub struct Crypto {
    suite: CryptoSuite,
    key_and_salt: Vec<u8>,
}

impl Crypto {
    /// From a master key followed by its salt; `None` if the length is not that of the suite.
    pub fn new(suite: CryptoSuite, key_and_salt: Vec<u8>) -> Option<Self> {
        let is_whole = key_and_salt.len() == suite.key_len() + suite.salt_len();
        is_whole.then_some(Self {
            suite,
            key_and_salt,
        })
    }

    /// The suite.
    pub fn suite(&self) -> CryptoSuite {
        self.suite
    }

    /// Master key.
    pub fn key(&self) -> &[u8] {
        &self.key_and_salt[..self.suite.key_len()]
    }

    /// Master salt.
    pub fn salt(&self) -> &[u8] {
        &self.key_and_salt[self.suite.key_len()..]
    }

    /// Master key followed by the salt.
    pub(super) fn key_and_salt(&self) -> &[u8] {
        &self.key_and_salt
    }
}

/// Without the key, which must not appear in logs.
impl fmt::Debug for Crypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Crypto");
        shown.field("suite", &self.suite).finish_non_exhaustive()
    }
}
