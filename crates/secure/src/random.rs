//! Random bytes for keys, from a secret seed.

use core::fmt;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Deterministic generator: HMAC-SHA-256 of a counter, keyed with the seed.
///
/// The output is unpredictable without the seed, unlike that of the generators in `core::random`.
#[derive(Clone)]
pub struct Generator {
    seed: [u8; 32],
    blocks: u64,
}

impl Generator {
    /// From a seed of the system's randomness. Two generators with the same seed produce the same
    /// keys.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, blocks: 0 }
    }

    /// The next 32 bytes.
    pub fn block(&mut self) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.seed).expect("HMAC takes any length");
        mac.update(&self.blocks.to_be_bytes());
        self.blocks += 1;
        mac.finalize().into_bytes().into()
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(32) {
            part.copy_from_slice(&self.block()[..part.len()]);
        }
    }
}

/// Without the seed.
impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_differ_and_depend_on_the_seed() {
        let mut one = Generator::new([1; 32]);
        let first = one.block();
        let mut bytes = [0; 40];
        one.fill(&mut bytes);
        assert_ne!(bytes[..32], first);
        assert_ne!(bytes[32..], bytes[..8]);
        assert_eq!(Generator::new([1; 32]).block(), first);
        assert_ne!(Generator::new([2; 32]).block(), first);
    }
}
