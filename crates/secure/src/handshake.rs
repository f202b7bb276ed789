//! Key handshake: one round trip, authenticated by a shared secret.
//!
//! The pattern is `Noise_NNpsk0_25519_AESGCM_SHA256` (Noise Protocol Framework, revision 34). The
//! initiator sends a hello, the responder an answer of the same length. Both contain an ephemeral
//! key, so that a secret that becomes known later does not reveal earlier sessions. A hello is
//! authenticated by the secret: a responder drops others before it keeps any state.
//!
//! The first byte of both messages is in a range that no protocol uses on a port shared with RTP
//! (RFC 7983 section 7).

use hkdf::Hkdf;
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
pub const MESSAGE: usize = 1 + NOISE;

/// Whether a datagram is a hello, by its first byte.
pub fn is_hello(datagram: &[u8]) -> bool {
    datagram.first() == Some(&HELLO)
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

/// A handshake that waits for its answer.
#[derive(Debug)]
pub struct Initiator {
    noise: HandshakeState,
    hello: [u8; MESSAGE],
}

impl Initiator {
    /// Begins a handshake with a fresh ephemeral key.
    pub fn new(secret: &SharedSecret, generator: &mut Generator) -> Self {
        let builder = builder(secret, generator);
        let mut noise = builder.build_initiator().expect(COMPLETE);
        let mut hello = [HELLO; MESSAGE];
        noise.write_message(&[], &mut hello[1..]).expect(COMPLETE);
        Self { noise, hello }
    }

    /// The hello, which is sent until the answer arrives.
    pub fn hello(&self) -> &[u8; MESSAGE] {
        &self.hello
    }

    /// Keys of the session, if `datagram` is the authentic answer.
    pub fn read_answer(&mut self, datagram: &[u8]) -> Option<SessionKeys> {
        let message = datagram.strip_prefix(&[ANSWER])?;
        self.noise.read_message(message, &mut [0; NOISE]).ok()?;
        Some(keys(&mut self.noise))
    }
}

/// Answers a hello. `None` if it was not made with the secret.
pub fn answer(
    secret: &SharedSecret,
    generator: &mut Generator,
    datagram: &[u8],
) -> Option<([u8; MESSAGE], SessionKeys)> {
    let message = datagram.strip_prefix(&[HELLO])?;
    if message.len() != NOISE {
        return None;
    }
    let builder = builder(secret, generator);
    let mut noise = builder.build_responder().expect(COMPLETE);
    noise.read_message(message, &mut [0; NOISE]).ok()?;
    let mut answer = [ANSWER; MESSAGE];
    // An ephemeral key of low order makes the exchange fail.
    noise.write_message(&[], &mut answer[1..]).ok()?;
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
        expanded.expect("HKDF yields up to 8,160 bytes");
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
const PROLOGUE: &[u8] = b"tidegate srtp 1";
const HELLO: u8 = 8;
const ANSWER: u8 = 9;
/// An ephemeral key and the tag of an empty payload.
const NOISE: usize = 32 + 16;
const COMPLETE: &str = "pattern, secret and buffers are complete";

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> SharedSecret {
        SharedSecret::new([byte; 32])
    }

    fn generator(byte: u8) -> Generator {
        Generator::new([byte; 32])
    }

    #[test]
    fn both_ends_derive_the_same_keys_and_each_session_others() {
        let (mut left, mut right) = (generator(1), generator(2));
        let mut session = || {
            let mut initiator = Initiator::new(&secret(7), &mut left);
            let (reply, keys) = answer(&secret(7), &mut right, initiator.hello()).unwrap();
            assert!(is_hello(initiator.hello()) && is_answer(&reply));
            assert_eq!(reply.len(), initiator.hello().len());
            assert_eq!(initiator.read_answer(&reply), Some(keys.clone()));
            keys
        };
        let (first, second) = (session(), session());
        assert_ne!(first.initiator, first.responder);
        assert_ne!(first.initiator, second.initiator);
        assert_ne!(first.responder, second.responder);
    }

    #[test]
    fn messages_with_another_secret_or_altered_ones_are_rejected() {
        let mut initiator = Initiator::new(&secret(7), &mut generator(1));
        let hello = *initiator.hello();
        assert!(answer(&secret(8), &mut generator(2), &hello).is_none());
        let (reply, keys) = answer(&secret(7), &mut generator(2), &hello).unwrap();
        for at in 0..MESSAGE {
            let mut altered = hello;
            altered[at] ^= 1;
            // The highest bit of an X25519 key is ignored, but is part of the transcript.
            assert!(
                answer(&secret(7), &mut generator(2), &altered).is_none(),
                "{at}"
            );
            assert!(answer(&secret(7), &mut generator(2), &hello[..at]).is_none());
            let mut altered = reply;
            altered[at] ^= 1;
            assert_eq!(initiator.read_answer(&altered), None, "{at}");
        }
        // A forged answer does not prevent the authentic one.
        assert_eq!(initiator.read_answer(&reply), Some(keys));
    }

    #[test]
    fn a_replayed_hello_yields_other_keys() {
        let initiator = Initiator::new(&secret(7), &mut generator(1));
        let mut right = generator(2);
        let mut replay = || answer(&secret(7), &mut right, initiator.hello()).unwrap().1;
        assert_ne!(replay(), replay());
    }
}
