//! Ciphers of one direction: encryption and authentication of packets with session keys.

use core::fmt;

use aes::Aes128;
use aes::cipher::{InnerIvInit as _, KeyInit as _, StreamCipher as _};
use aes_gcm::aead::AeadInPlace;
use aes_gcm::{Aes128Gcm, Aes256Gcm, Nonce};
use ctr::{Ctr128BE, CtrCore};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use tidegate_core::wire::sdp::CryptoSuite;

use crate::keys::{Label, MasterKey};

/// Cipher of SRTP or SRTCP packets of one sender.
#[derive(Clone)]
pub(crate) enum Cipher {
    CounterMode {
        cipher: Box<Aes128>,
        salt: [u8; 14],
        /// Keyed, and copied for each packet.
        mac: Box<Hmac<Sha1>>,
        tag_len: usize,
    },
    Gcm {
        aead: Gcm,
        salt: [u8; 12],
    },
}

/// AES-GCM with either key length.
#[derive(Clone)]
pub(crate) enum Gcm {
    Aes128(Box<Aes128Gcm>),
    Aes256(Box<Aes256Gcm>),
}

/// Protocol of the packets of a cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Rtp,
    Rtcp,
}

/// Position of a packet in the key stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) ssrc: u32,
    /// RTP: roll-over counter and sequence number, 48 bits. RTCP: the SRTCP index, 31 bits.
    pub(crate) index: u64,
}

impl Cipher {
    pub(crate) fn new(master: &MasterKey, protocol: Protocol) -> Self {
        let [encryption, authentication, salting] = match protocol {
            Protocol::Rtp => [
                Label::RtpEncryption,
                Label::RtpAuthentication,
                Label::RtpSalt,
            ],
            Protocol::Rtcp => [
                Label::RtcpEncryption,
                Label::RtcpAuthentication,
                Label::RtcpSalt,
            ],
        };
        let suite = master.suite();
        let mut key = vec![0; suite.key_len()];
        master.derive(encryption, &mut key);
        let mut salt = vec![0; suite.salt_len()];
        master.derive(salting, &mut salt);
        let mut mac_key = [0; MAC_KEY];
        master.derive(authentication, &mut mac_key);
        Self::of_session(suite, protocol, &key, &salt, &mac_key)
    }

    /// From session keys.
    pub(crate) fn of_session(
        suite: CryptoSuite,
        protocol: Protocol,
        key: &[u8],
        salt: &[u8],
        mac_key: &[u8],
    ) -> Self {
        let length = "the length is that of the suite";
        let salt_of_gcm = || salt.try_into().expect(length);
        match suite {
            CryptoSuite::AeadAes128Gcm => Self::Gcm {
                aead: Gcm::Aes128(Box::new(Aes128Gcm::new(key.into()))),
                salt: salt_of_gcm(),
            },
            CryptoSuite::AeadAes256Gcm => Self::Gcm {
                aead: Gcm::Aes256(Box::new(Aes256Gcm::new(key.into()))),
                salt: salt_of_gcm(),
            },
            CryptoSuite::AesCm128HmacSha1_32 | CryptoSuite::AesCm128HmacSha1_80 => {
                Self::CounterMode {
                    cipher: Box::new(Aes128::new(key.into())),
                    salt: salt.try_into().expect(length),
                    mac: Box::new(hmac(mac_key)),
                    tag_len: tag_len(suite, protocol),
                }
            }
        }
    }

    pub(crate) fn tag_len(&self) -> usize {
        match self {
            Self::CounterMode { tag_len, .. } => *tag_len,
            Self::Gcm { .. } => GCM_TAG,
        }
    }

    /// Encrypts `packet` after its first `clear` bytes, and returns the tag. `trailer` is
    /// authenticated in addition: the roll-over counter (only in counter mode; AES-GCM has it in
    /// the nonce), or the SRTCP index.
    pub(crate) fn seal(
        &self,
        at: Position,
        packet: &mut [u8],
        clear: usize,
        trailer: Trailer,
    ) -> [u8; 16] {
        let mut tag = [0; 16];
        match self {
            Self::CounterMode {
                cipher, salt, mac, ..
            } => {
                key_stream(cipher, salt, at).apply_keystream(&mut packet[clear..]);
                let mac = Hmac::clone(mac).chain_update(packet);
                let digest = mac.chain_update(trailer.counter_mode()).finalize();
                tag.copy_from_slice(&digest.into_bytes()[..16]);
            }
            Self::Gcm { aead, salt } => {
                let (header, body) = packet.split_at_mut(clear);
                let nonce = nonce(salt, at);
                with_header(header, trailer, |aad| {
                    let sealed = match aead {
                        Gcm::Aes128(aead) => aead.encrypt_in_place_detached(&nonce, aad, body),
                        Gcm::Aes256(aead) => aead.encrypt_in_place_detached(&nonce, aad, body),
                    };
                    tag.copy_from_slice(&sealed.expect("a datagram is below 64 GiB"));
                });
            }
        }
        tag
    }

    /// Verifies `tag` and decrypts `packet` after its first `clear` bytes. Returns whether the tag
    /// is valid; if not, `packet` is unchanged.
    pub(crate) fn open(
        &self,
        at: Position,
        packet: &mut [u8],
        clear: usize,
        trailer: Trailer,
        tag: &[u8],
    ) -> bool {
        match self {
            Self::CounterMode {
                cipher, salt, mac, ..
            } => {
                let mac = Hmac::clone(mac).chain_update(&*packet);
                let mac = mac.chain_update(trailer.counter_mode());
                // The comparison takes constant time.
                if mac.verify_truncated_left(tag).is_err() {
                    return false;
                }
                if trailer.is_encrypted() {
                    key_stream(cipher, salt, at).apply_keystream(&mut packet[clear..]);
                }
                true
            }
            Self::Gcm { aead, salt } => {
                let clear = if trailer.is_encrypted() {
                    clear
                } else {
                    packet.len()
                };
                let (header, body) = packet.split_at_mut(clear);
                let (nonce, tag) = (nonce(salt, at), tag.into());
                with_header(header, trailer, |aad| {
                    match aead {
                        Gcm::Aes128(aead) => aead.decrypt_in_place_detached(&nonce, aad, body, tag),
                        Gcm::Aes256(aead) => aead.decrypt_in_place_detached(&nonce, aad, body, tag),
                    }
                    .is_ok()
                })
            }
        }
    }
}

fn hmac(key: &[u8]) -> Hmac<Sha1> {
    <Hmac<Sha1> as Mac>::new_from_slice(key).expect("HMAC takes any length")
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher").finish_non_exhaustive()
    }
}

/// What is authenticated in addition to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trailer {
    /// Roll-over counter of SRTP.
    Rollover(u32),
    /// Encryption flag and index of SRTCP, as in the packet.
    Index([u8; 4]),
}

impl Trailer {
    fn counter_mode(self) -> [u8; 4] {
        match self {
            Self::Rollover(counter) => counter.to_be_bytes(),
            Self::Index(word) => word,
        }
    }

    fn is_encrypted(self) -> bool {
        match self {
            Self::Rollover(_) => true,
            Self::Index(word) => word[0] & 0x80 != 0,
        }
    }
}

/// Calls `then` with the associated data: `header`, followed by the SRTCP index.
fn with_header<T>(header: &[u8], trailer: Trailer, then: impl FnOnce(&[u8]) -> T) -> T {
    match trailer {
        Trailer::Rollover(_) => then(header),
        Trailer::Index(word) => then(&[header, &word].concat()),
    }
}

/// RFC 3711 section 4.1.1.
fn key_stream(cipher: &Aes128, salt: &[u8; 14], at: Position) -> Ctr128BE<Aes128> {
    let mut iv = [0; 16];
    iv[..14].copy_from_slice(salt);
    xor(&mut iv[4..8], &at.ssrc.to_be_bytes());
    xor(&mut iv[8..14], &at.index.to_be_bytes()[2..]);
    Ctr128BE::from_core(CtrCore::inner_iv_init(cipher.clone(), &iv.into()))
}

/// RFC 7714 sections 8.1 and 9.1.
fn nonce(salt: &[u8; 12], at: Position) -> Nonce<aes::cipher::consts::U12> {
    let mut nonce = *salt;
    xor(&mut nonce[2..6], &at.ssrc.to_be_bytes());
    // The SRTCP index has 32 bits after two bytes of zeros, so it is at the same place.
    xor(&mut nonce[6..12], &at.index.to_be_bytes()[2..]);
    nonce.into()
}

fn xor(bytes: &mut [u8], with: &[u8]) {
    bytes.iter_mut().zip(with).for_each(|(a, b)| *a ^= b);
}

/// Length of an authentication tag in bytes.
pub(crate) fn tag_len(suite: CryptoSuite, protocol: Protocol) -> usize {
    match suite {
        CryptoSuite::AeadAes128Gcm | CryptoSuite::AeadAes256Gcm => GCM_TAG,
        // RFC 4568 section 6.2.2: the tag of SRTCP is never shortened.
        CryptoSuite::AesCm128HmacSha1_32 if protocol == Protocol::Rtp => 4,
        CryptoSuite::AesCm128HmacSha1_32 | CryptoSuite::AesCm128HmacSha1_80 => 10,
    }
}

const GCM_TAG: usize = 16;
/// RFC 3711 section 5.2.
const MAC_KEY: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::srtp::tests::bytes;

    /// RFC 3711 appendix B.2.
    #[test]
    fn the_key_stream_is_that_of_the_rfc() {
        let cipher = Aes128::new(bytes("2b7e151628aed2a6abf7158809cf4f3c")[..].into());
        let salt = bytes("f0f1f2f3f4f5f6f7f8f9fafbfcfd");
        let at = Position { ssrc: 0, index: 0 };
        let mut stream = [0; 48];
        key_stream(&cipher, &salt.try_into().unwrap(), at).apply_keystream(&mut stream);
        let expected = "e03ead0935c95e80e166b16dd92b4eb4d23513162b02d0f72a43a2fe4a5f97ab\
                        41e95b3bb0a2e8dd477901e4fca894c0";
        assert_eq!(stream[..], bytes(expected));
    }
}
