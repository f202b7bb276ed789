//! Source descriptions (RFC 3550 section 6.5).

use super::{Fault, RtcpError, RtcpPacket, SDES, Writer};
use crate::wire::bytes::u32_at;

/// A source description packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sdes<'a> {
    body: &'a [u8],
    count: u8,
}

impl<'a> Sdes<'a> {
    /// # Errors
    /// If a chunk or an item is truncated.
    pub fn new_checked(packet: RtcpPacket<'a>) -> Result<Self, RtcpError> {
        let body = packet.body();
        let mut rest = body;
        for _ in 0..packet.count() {
            let Some((_, after)) = split_chunk(rest) else {
                return Err(packet.malformed(Fault::ItemCutOff));
            };
            rest = after;
        }
        Ok(Self {
            body,
            count: packet.count(),
        })
    }

    /// The chunks, at most 31.
    pub fn chunks(&self) -> impl Iterator<Item = SdesChunk<'a>> {
        let mut rest = self.body;
        (0..self.count).map_while(move |_| {
            let (chunk, after) = split_chunk(rest)?;
            rest = after;
            Some(chunk)
        })
    }
}

/// Description of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdesChunk<'a> {
    /// SSRC of the source.
    pub ssrc: u32,
    items: &'a [u8],
}

impl<'a> SdesChunk<'a> {
    /// The items of the chunk.
    pub fn items(&self) -> impl Iterator<Item = SdesItem<'a>> {
        let mut rest = self.items;
        core::iter::from_fn(move || {
            let (item, after) = split_item(rest)?;
            rest = after;
            Some(item)
        })
    }

    /// The canonical name, if the chunk has one and it is UTF-8.
    pub fn cname(&self) -> Option<&'a str> {
        let item = self.items().find(|item| item.kind == CNAME)?;
        core::str::from_utf8(item.text).ok()
    }
}

/// One item of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdesItem<'a> {
    /// Item type; 1 is CNAME.
    pub kind: u8,
    /// Text as on the wire, at most 255 bytes.
    pub text: &'a [u8],
}

/// A canonical name: 1 to 255 bytes of UTF-8 without control characters, which would corrupt the
/// lines of a session description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cname(String);

impl Cname {
    /// `None` if `name` is empty, longer than 255 bytes or contains control characters.
    pub fn new(name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        //= rfc3550-6.5-item
        let plain = (1..=255).contains(&name.len()) && !name.contains(char::is_control);
        plain.then_some(Self(name))
    }

    /// The name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Appends a source description with the CNAME of `ssrc`.
pub fn emit_sdes(ssrc: u32, cname: &Cname, out: &mut Vec<u8>) {
    let mut writer = Writer::begin(SDES, 1, out);
    writer.put_u32(ssrc);
    //= rfc3550-6.5.1-cname
    writer.put(&[CNAME, cname.0.len() as u8]);
    writer.put(cname.0.as_bytes());
    //= rfc3550-6.5-end
    writer.put(&[END]);
    writer.finish();
}

/// Splits off the chunk at the start of `bytes`. `None` if it is truncated.
fn split_chunk(bytes: &[u8]) -> Option<(SdesChunk<'_>, &[u8])> {
    let (ssrc, after) = bytes.split_at_checked(4)?;
    let mut rest = after;
    while let Some((_, next)) = split_item(rest) {
        rest = next;
    }
    // A zero byte ends the list, and more zeros pad it to a multiple of four. Chunks start at
    // multiples of four and the body is one, so the remainder is a multiple of four bytes.
    if rest.first() != Some(&END) {
        return None;
    }
    let items = after.get(..after.len() - rest.len())?;
    let rest = after.get((items.len() + 1).next_multiple_of(4)..)?;
    Some((
        SdesChunk {
            ssrc: u32_at(ssrc, 0),
            items,
        },
        rest,
    ))
}

/// Splits off the item at the start of `bytes`. `None` at the end of the list.
fn split_item(bytes: &[u8]) -> Option<(SdesItem<'_>, &[u8])> {
    match *bytes {
        [END, ..] => None,
        [kind, len, ref rest @ ..] => {
            let (text, rest) = rest.split_at_checked(usize::from(len))?;
            Some((SdesItem { kind, text }, rest))
        }
        _ => None,
    }
}

const CNAME: u8 = 1;
const END: u8 = 0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Rtcp, packets};
    use super::*;

    proptest! {
        #[test]
        fn names_round_trip(ssrc: u32, name in "[a-zåλ日@.]{1,80}") {
            //= rfc3550-6.5.1-cname (test)
            //= rfc3550-6.5-end (test)
            let mut bytes = Vec::new();
            emit_sdes(ssrc, &Cname::new(name.as_str()).unwrap(), &mut bytes);
            prop_assert_eq!(bytes.len() % 4, 0);
            let Some(Ok(Rtcp::Sdes(sdes))) = packets(&bytes).next() else { panic!() };
            let chunks: Vec<_> = sdes.chunks().map(|c| (c.ssrc, c.cname())).collect();
            prop_assert_eq!(chunks, [(ssrc, Some(name.as_str()))]);
        }
    }

    #[test]
    fn several_chunks_with_several_items() {
        let bytes = [
            0x82, 202, 0, 6, 0, 0, 0, 1, 2, 1, b'x', 1, 2, b'a', b'b', 0, 0, 0, 0, 2, 1, 3, b'c',
            b'd', b'e', 0, 0, 0,
        ];
        let Some(Ok(Rtcp::Sdes(sdes))) = packets(&bytes).next() else {
            panic!()
        };
        let chunks: Vec<_> = sdes
            .chunks()
            .map(|c| (c.ssrc, c.cname(), c.items().count()))
            .collect();
        assert_eq!(chunks, [(1, Some("ab"), 2), (2, Some("cde"), 1)]);
    }

    #[test]
    fn unterminated_chunks_are_rejected() {
        for body in [
            [0, 0, 0, 1, 1, 9, b'a', 0],
            [0, 0, 0, 1, 1, 2, b'a', b'b'],
            [0, 0, 0, 1, 1, 1, b'a', 1],
        ] {
            let bytes = [&[0x81, 202, 0, 2][..], &body].concat();
            let error = RtcpError::Malformed {
                at: 0,
                packet_type: 202,
                fault: Fault::ItemCutOff,
            };
            assert_eq!(packets(&bytes).next(), Some(Err(error)));
        }
    }

    #[test]
    fn names_outside_the_length_limits_are_rejected() {
        //= rfc3550-6.5-item (test)
        assert_eq!(Cname::new(""), None);
        assert_eq!(Cname::new("a\nb"), None);
        assert_eq!(Cname::new("x".repeat(256)), None);
        assert_eq!(Cname::new("x".repeat(255)).unwrap().as_str().len(), 255);
    }
}
