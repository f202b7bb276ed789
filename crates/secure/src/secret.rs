//! Secrets that two hosts share.

use core::fmt;

use tidegate_core::wire::base64;

/// A secret of 256 bits that both ends of a session know.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret([u8; 32]);

impl SharedSecret {
    /// From 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Parses 64 hexadecimal digits or 44 characters of base64, on one line.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        let bytes = if text.len() == 64 {
            hex(text)
        } else {
            base64::decode(text)
        };
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(SecretError)
    }

    /// Hexadecimal digits, as [`parse`](Self::parse) reads them.
    pub fn to_hex(&self) -> String {
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]);
        let digits = digits.map(|digit| char::from_digit(u32::from(digit), 16));
        digits.map(|digit| digit.expect("below 16")).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Without the secret, which must not appear in logs.
impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSecret").finish_non_exhaustive()
    }
}

/// The text is not a secret of 256 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is one line of 64 hexadecimal digits or of base64 of 32 bytes")]
pub struct SecretError;

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<_>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let pairs = digits?;
    Some(
        pairs
            .chunks(2)
            .map(|pair| (pair[0] << 4 | pair[1]) as u8)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hexadecimal_or_base64() {
        let secret = SharedSecret::new(core::array::from_fn(|i| i as u8));
        assert_eq!(SharedSecret::parse(&secret.to_hex()), Ok(secret.clone()));
        let text = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
        assert_eq!(SharedSecret::parse(text), Ok(secret.clone()));
        assert_eq!(format!("{secret:?}"), "SharedSecret { .. }");
        for wrong in ["", "00", &"g".repeat(64), &secret.to_hex()[1..], "AAEC"] {
            assert_eq!(SharedSecret::parse(wrong), Err(SecretError), "{wrong}");
        }
    }
}
