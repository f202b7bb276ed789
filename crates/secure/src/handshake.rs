//! Key handshake: one round trip, authenticated by a shared secret.
//!
//! The pattern is `Noise_NNpsk0_25519_AESGCM_SHA256` (Noise Protocol Framework, revision 34). The
//! initiator sends a hello, the responder an answer of the same length. Both contain an ephemeral
//! key, so that a secret that becomes known later does not reveal earlier sessions.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | type: hello or answer |
//! | 1 | version |
//! | 8 | time stamp of the hello, ns since 1970; the answer repeats it |
//! | 48 | message of the pattern |
//! | 16 | authentication code of all before, HMAC-SHA-256 |
//!
//! As in `WireGuard`, the code is compared before any key agreement, so that a forged message costs a
//! hash, and the time stamp makes a recorded hello older than one that the responder has seen.
//! There, the code is keyed with a public key, and cookies limit what strangers can cause; here its
//! key is derived from the secret, and a stranger cannot make one.
//!
//! The first byte is in a range that no protocol uses on a port shared with RTP (RFC 7983 section
//! 7).

use core::fmt;

use hkdf::Hkdf;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use tidegate_core::wire::sdp::CryptoSuite;

use crate::keys::MasterKey;
use crate::random::Generator;
use crate::secret::SharedSecret;

/// Length of each message in bytes.
pub const MESSAGE: usize = HEADER + NOISE + CODE;

/// Whether a datagram is a hello, by its first byte.
pub fn is_hello(datagram: &[u8]) -> bool {
    datagram.first() == Some(&HELLO)
}

/// Whether a datagram is a hello of version 1, by its first byte and its length.
pub fn is_outdated(datagram: &[u8]) -> bool {
    is_hello(datagram) && datagram.len() == OUTDATED
}

/// Whether a datagram is an answer, by its first byte.
pub fn is_answer(datagram: &[u8]) -> bool {
    datagram.first() == Some(&ANSWER)
}

/// Suite of the keys that a handshake yields.
pub const SUITE: CryptoSuite = CryptoSuite::AeadAes128Gcm;

/// Master keys of both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionKeys {
    /// Key of the initiator's packets.
    pub initiator: MasterKey,
    /// Key of the responder's packets.
    pub responder: MasterKey,
}

/// The secret of both ends, and the keys of the authentication codes.
pub struct Secret {
    shared: SharedSecret,
    hello: Hmac<Sha256>,
    answer: Hmac<Sha256>,
}

impl Secret {
    /// Derives the keys.
    pub fn new(shared: SharedSecret) -> Self {
        let code = |purpose: &[u8]| {
            let mut key = [0; 32];
            let derived = Hkdf::<Sha256>::new(Some(PROLOGUE), shared.bytes());
            derived.expand(purpose, &mut key).expect(HKDF_LIMIT);
            Hmac::new_from_slice(&key).expect("HMAC takes any length")
        };
        Self {
            hello: code(b"hello"),
            answer: code(b"answer"),
            shared,
        }
    }

    /// Time stamp of a message that was made with the secret; `None` of all others.
    pub fn verify(&self, datagram: &[u8]) -> Option<u64> {
        let message: &[u8; MESSAGE] = datagram.try_into().ok()?;
        let (head, code) = message.split_at(HEADER + NOISE);
        if message[1] != VERSION {
            return None;
        }
        let mac = self.code(message[0]).chain_update(head);
        mac.verify_truncated_left(code).ok()?;
        let stamp = message[2..HEADER].try_into().ok()?;
        Some(u64::from_be_bytes(stamp))
    }

    /// A message around that of the pattern.
    fn seal(
        &self,
        kind: u8,
        stamp: u64,
        noise: &mut HandshakeState,
    ) -> Result<[u8; MESSAGE], snow::Error> {
        let mut message = [0; MESSAGE];
        message[..2].copy_from_slice(&[kind, VERSION]);
        message[2..HEADER].copy_from_slice(&stamp.to_be_bytes());
        let (head, code) = message.split_at_mut(HEADER + NOISE);
        noise.write_message(&[], &mut head[HEADER..])?;
        let mac = self.code(kind).chain_update(&*head).finalize();
        code.copy_from_slice(&mac.into_bytes()[..CODE]);
        Ok(message)
    }

    fn code(&self, kind: u8) -> Hmac<Sha256> {
        match kind {
            HELLO => self.hello.clone(),
            _ => self.answer.clone(),
        }
    }
}

/// Without the secret, which must not appear in logs.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

/// A handshake that waits for its answer.
#[derive(Debug)]
pub struct Initiator {
    noise: HandshakeState,
    stamp: u64,
    hello: [u8; MESSAGE],
}

impl Initiator {
    /// Begins a handshake with a fresh ephemeral key at `stamp`, in ns since 1970. A responder
    /// ignores hellos that are not later than the ones before.
    pub fn new(secret: &Secret, generator: &mut Generator, stamp: u64) -> Self {
        let builder = builder(&secret.shared, generator);
        let mut noise = builder.build_initiator().expect(COMPLETE);
        let hello = secret.seal(HELLO, stamp, &mut noise).expect(COMPLETE);
        Self {
            noise,
            stamp,
            hello,
        }
    }

    /// The hello, which is sent until the answer arrives.
    pub fn hello(&self) -> &[u8; MESSAGE] {
        &self.hello
    }

    /// Whether an authentic answer with this time stamp is one to this hello.
    pub fn is_at(&self, stamp: u64) -> bool {
        self.stamp == stamp
    }

    /// Keys of the session, if `answer`, which is authentic, is one to this hello.
    pub fn read_answer(&mut self, answer: &[u8]) -> Option<SessionKeys> {
        let message = answer.get(HEADER..HEADER + NOISE)?;
        self.noise.read_message(message, &mut [0; NOISE]).ok()?;
        Some(keys(&mut self.noise))
    }
}

/// Answers an authentic hello. `None` if its ephemeral key is unusable.
pub fn answer(
    secret: &Secret,
    generator: &mut Generator,
    hello: &[u8; MESSAGE],
    stamp: u64,
) -> Option<([u8; MESSAGE], SessionKeys)> {
    let message = &hello[HEADER..HEADER + NOISE];
    let mut noise = builder(&secret.shared, generator)
        .build_responder()
        .expect(COMPLETE);
    noise.read_message(message, &mut [0; NOISE]).ok()?;
    // An ephemeral key of low order makes the exchange fail.
    let answer = secret.seal(ANSWER, stamp, &mut noise).ok()?;
    Some((answer, keys(&mut noise)))
}

fn builder<'a>(secret: &'a SharedSecret, generator: &mut Generator) -> Builder<'a> {
    let pattern: NoiseParams = PATTERN.parse().expect("the pattern is valid");
    let resolver = Resolver(Generator::new(generator.block()));
    let builder = Builder::with_resolver(pattern, Box::new(resolver));
    let builder = builder.prologue(PROLOGUE).expect(COMPLETE);
    builder.psk(0, secret.bytes()).expect(COMPLETE)
}

fn keys(noise: &mut HandshakeState) -> SessionKeys {
    let (initiator, responder) = noise.dangerously_get_raw_split();
    let expand = |secret: &[u8; 32]| {
        let mut key = [0; 64];
        let key = &mut key[..SUITE.key_len() + SUITE.salt_len()];
        let expanded = Hkdf::<Sha256>::new(None, secret).expand(PROLOGUE, key);
        expanded.expect(HKDF_LIMIT);
        MasterKey::new(SUITE, key)
    };
    SessionKeys {
        initiator: expand(&initiator),
        responder: expand(&responder),
    }
}

/// The default algorithms with a generator of the caller.
struct Resolver(Generator);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SeededRandom(self.0.clone())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

struct SeededRandom(Generator);

impl Random for SeededRandom {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill(dest);
        Ok(())
    }
}

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// Name and version of the protocol: other versions have other keys.
const PROLOGUE: &[u8] = b"tidegate srtp 2";
const VERSION: u8 = 2;
const HELLO: u8 = 8;
const ANSWER: u8 = 9;
/// Messages of version 1 had a type and the message of the pattern.
const OUTDATED: usize = 1 + NOISE;
/// Type, version and time stamp.
const HEADER: usize = 1 + 1 + 8;
/// Half of the hash, as in `WireGuard`.
const CODE: usize = 16;
const HKDF_LIMIT: &str = "HKDF yields up to 8,160 bytes";
/// An ephemeral key and the tag of an empty payload.
const NOISE: usize = 32 + 16;
const COMPLETE: &str = "pattern, secret and buffers are complete";

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::new(SharedSecret::new([byte; 32]))
    }

    fn generator(byte: u8) -> Generator {
        Generator::new([byte; 32])
    }

    #[test]
    fn both_ends_derive_the_same_keys_and_each_session_others() {
        let (mut left, mut right) = (generator(1), generator(2));
        let mut session = || {
            let mut initiator = Initiator::new(&secret(7), &mut left, 5);
            let hello = *initiator.hello();
            assert_eq!(secret(7).verify(&hello), Some(5));
            let (reply, keys) = answer(&secret(7), &mut right, &hello, 5).unwrap();
            assert!(is_hello(&hello) && is_answer(&reply));
            assert_eq!(secret(7).verify(&reply), Some(5));
            assert_eq!(initiator.read_answer(&reply), Some(keys.clone()));
            keys
        };
        let (first, second) = (session(), session());
        assert_ne!(first.initiator, first.responder);
        assert_ne!(first.initiator, second.initiator);
        assert_ne!(first.responder, second.responder);
    }

    #[test]
    fn messages_with_another_secret_or_altered_ones_are_not_authentic() {
        let initiator = Initiator::new(&secret(7), &mut generator(1), 5);
        let hello = *initiator.hello();
        assert_eq!(secret(8).verify(&hello), None);
        let (reply, _) = answer(&secret(7), &mut generator(2), &hello, 5).unwrap();
        for message in [hello, reply] {
            for at in 0..MESSAGE {
                let mut altered = message;
                altered[at] ^= 1;
                assert_eq!(secret(7).verify(&altered), None, "{at}");
                assert_eq!(secret(7).verify(&message[..at]), None);
            }
        }
    }

    #[test]
    fn a_replayed_hello_yields_other_keys() {
        let initiator = Initiator::new(&secret(7), &mut generator(1), 5);
        let mut right = generator(2);
        let mut replay = || {
            let answered = answer(&secret(7), &mut right, initiator.hello(), 5);
            answered.unwrap().1
        };
        assert_ne!(replay(), replay());
    }
}
