//! Master keys, and session keys derived from them (RFC 3711 section 4.3).

use core::fmt;

use aes::cipher::{KeyIvInit as _, StreamCipher as _};
use aes::{Aes128, Aes256};
use ctr::Ctr128BE;
use tidegate_core::wire::sdp::{Crypto, CryptoSuite};

use crate::random::Generator;

/// Master key and salt of one sender.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey {
    suite: CryptoSuite,
    key: Vec<u8>,
    salt: Vec<u8>,
}

impl MasterKey {
    /// From a key of a session description.
    pub fn from_description(crypto: &Crypto) -> Self {
        Self {
            suite: crypto.suite(),
            key: crypto.key().to_vec(),
            salt: crypto.salt().to_vec(),
        }
    }

    /// The suite.
    pub fn suite(&self) -> CryptoSuite {
        self.suite
    }

    pub(crate) fn new(suite: CryptoSuite, key_and_salt: &[u8]) -> Self {
        let (key, salt) = key_and_salt.split_at(suite.key_len());
        Self {
            suite,
            key: key.to_vec(),
            salt: salt.to_vec(),
        }
    }

    /// Fills `out` with a session key.
    pub(crate) fn derive(&self, label: Label, out: &mut [u8]) {
        // The label is in the byte above the 48-bit index, which is zero: keys are derived once.
        // Salts of AES-GCM are padded at the end (RFC 7714 section 11).
        let mut iv = [0; 16];
        iv[..self.salt.len()].copy_from_slice(&self.salt);
        iv[7] ^= label as u8;
        out.fill(0);
        match self.key.len() {
            32 => Ctr128BE::<Aes256>::new(self.key[..].into(), &iv.into()).apply_keystream(out),
            _ => Ctr128BE::<Aes128>::new(self.key[..].into(), &iv.into()).apply_keystream(out),
        }
    }
}

/// Without the key, which must not appear in logs.
impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("MasterKey");
        shown.field("suite", &self.suite).finish_non_exhaustive()
    }
}

/// A fresh key for a session description.
pub fn fresh(suite: CryptoSuite, generator: &mut Generator) -> Crypto {
    let mut key = vec![0; suite.key_len() + suite.salt_len()];
    generator.fill(&mut key);
    Crypto::new(suite, key).expect("the length is that of the suite")
}

/// Purpose of a session key (RFC 3711 section 4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    RtpEncryption = 0,
    RtpAuthentication = 1,
    RtpSalt = 2,
    RtcpEncryption = 3,
    RtcpAuthentication = 4,
    RtcpSalt = 5,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::srtp::tests::bytes;

    /// RFC 3711 appendix B.3.
    #[test]
    fn session_keys_are_those_of_the_rfc() {
        let key = bytes("e1f97a0d3e018be0d64fa32c06de41390ec675ad498afeebb6960b3aabe6");
        let master = MasterKey::new(CryptoSuite::AesCm128HmacSha1_80, &key);
        for (label, expected) in [
            (Label::RtpEncryption, "c61e7a93744f39ee10734afe3ff7a087"),
            (Label::RtpSalt, "30cbbc08863d8c85d49db34a9ae1"),
            (
                Label::RtpAuthentication,
                "cebe321f6ff7716b6fd4ab49af256a156d38baa4",
            ),
        ] {
            let expected = bytes(expected);
            let mut derived = vec![0; expected.len()];
            master.derive(label, &mut derived);
            assert_eq!(derived, expected, "{label:?}");
        }
        assert!(!format!("{master:?}").contains("key"));
    }

    #[test]
    fn fresh_keys_have_the_length_of_their_suite() {
        let mut generator = Generator::new([7; 32]);
        for suite in CryptoSuite::ALL {
            let crypto = fresh(suite, &mut generator);
            assert_eq!(MasterKey::from_description(&crypto).suite(), suite);
        }
    }
}
