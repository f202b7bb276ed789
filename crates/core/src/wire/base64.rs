//! Base64 (RFC 4648 section 4), for parameter sets and keys.

/// Encodes with padding.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            // One byte yields two digits, two yield three.
            let digit = (bits >> (18 - 6 * i) & 0x3f) as usize;
            text.push(if i <= group.len() {
                char::from(DIGITS[digit])
            } else {
                PAD
            });
        }
    }
    text
}

/// Decodes `text`; `None` if it is not base64. Padding is optional, since some senders omit it.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches(PAD).as_bytes();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        if group.len() == 1 {
            return None;
        }
        let mut bits = 0_u32;
        for i in 0..4 {
            let digit = group
                .get(i)
                .map_or(Some(0), |c| DIGITS.iter().position(|d| d == c))?;
            bits = bits << 6 | digit as u32;
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const PAD: char = '=';

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in ".{0,20}") {
            let _ = decode(&text);
        }
    }

    /// The examples of RFC 4648 section 10.
    #[test]
    fn known_examples() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text), Some(plain.as_bytes().to_vec()));
        }
        assert_eq!(decode("Zg"), Some(vec![b'f']));
        assert_eq!(
            (decode("Z"), decode("Z!"), decode("日")),
            (None, None, None)
        );
    }
}
