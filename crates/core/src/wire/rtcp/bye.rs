//! BYE packets (RFC 3550 section 6.6).

use super::{BYE, Fault, MAX_COUNT, RtcpError, RtcpPacket, Writer};
use crate::wire::bytes::u32_at;

/// A BYE packet: sources that leave the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bye<'a> {
    ssrcs: &'a [u8],
    reason: Option<&'a str>,
}

impl<'a> Bye<'a> {
    /// # Errors
    /// If the body is too short for the sources, or the reason is truncated or not UTF-8.
    pub fn new_checked(packet: RtcpPacket<'a>) -> Result<Self, RtcpError> {
        let end = 4 * usize::from(packet.count());
        let (ssrcs, rest) = packet.body_of(end)?.split_at(end);
        //= rfc3550-6.6-reason
        let reason = match *rest {
            [] => None,
            [len, ref text @ ..] => {
                let text = text.get(..usize::from(len));
                let text = text.ok_or(packet.malformed(Fault::ItemCutOff))?;
                Some(core::str::from_utf8(text).map_err(|_| packet.malformed(Fault::NotUtf8))?)
            }
        };
        Ok(Self { ssrcs, reason })
    }

    /// SSRCs of the leaving sources; may be empty.
    pub fn ssrcs(&self) -> impl Iterator<Item = u32> + 'a {
        self.ssrcs.chunks_exact(4).map(|ssrc| u32_at(ssrc, 0))
    }

    /// Human-readable reason for leaving.
    pub fn reason(&self) -> Option<&'a str> {
        self.reason
    }
}

/// Appends BYE packets for `ssrcs`, one per 31 sources. A reason longer than 255 bytes is
/// truncated.
pub fn emit_bye(ssrcs: &[u32], reason: Option<&str>, out: &mut Vec<u8>) {
    let reason = reason.map(|reason| &reason[..reason.floor_char_boundary(255)]);
    for ssrcs in ssrcs.chunks(MAX_COUNT) {
        let mut writer = Writer::begin(BYE, ssrcs.len() as u8, out);
        for ssrc in ssrcs {
            writer.put_u32(*ssrc);
        }
        if let Some(reason) = reason {
            writer.put(&[reason.len() as u8]);
            writer.put(reason.as_bytes());
        }
        writer.finish();
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::{Rtcp, packets};
    use super::*;

    proptest! {
        #[test]
        fn byes_round_trip(ssrcs in vec(any::<u32>(), 0..70), reason in proptest::option::of("[a-zå日 ]{0,80}")) {
            //= rfc3550-6.6-reason (test)
            let mut bytes = Vec::new();
            emit_bye(&ssrcs, reason.as_deref(), &mut bytes);
            let mut found = Vec::new();
            for packet in packets(&bytes) {
                let Ok(Rtcp::Bye(bye)) = packet else { panic!("{packet:?}") };
                prop_assert_eq!(bye.reason(), reason.as_deref());
                found.extend(bye.ssrcs());
            }
            prop_assert_eq!(found, ssrcs);
        }
    }

    #[test]
    fn long_reasons_are_truncated_at_a_character_boundary() {
        let mut bytes = Vec::new();
        emit_bye(&[1], Some(&"日".repeat(100)), &mut bytes);
        let Some(Ok(Rtcp::Bye(bye))) = packets(&bytes).next() else {
            panic!()
        };
        assert_eq!(bye.reason().unwrap().chars().count(), 85);
    }

    #[test]
    fn malformed_byes_are_rejected() {
        let fault = |bytes| match packets(bytes).next() {
            Some(Err(RtcpError::Malformed { fault, .. })) => fault,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            fault(&[0x82, 203, 0, 1, 0, 0, 0, 1]),
            Fault::TooShort { need: 8, have: 4 }
        );
        assert_eq!(
            fault(&[0x80, 203, 0, 1, 4, b'a', b'b', b'c']),
            Fault::ItemCutOff
        );
        assert_eq!(fault(&[0x80, 203, 0, 1, 1, 0xff, 0, 0]), Fault::NotUtf8);
    }
}
