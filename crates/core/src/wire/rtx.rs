//! Retransmission payloads (RFC 4588): a separate stream repeats packets of the original stream.

use super::bytes::{u8_at, u16_at};
use super::rtp::{PayloadType, RtpHeader, RtpPacket};

/// The payload of a retransmission packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtxPayload<'a> {
    /// Sequence number of the original packet.
    pub original_sequence: u16,
    /// Payload of the original packet.
    pub payload: &'a [u8],
}

impl<'a> RtxPayload<'a> {
    /// Parses the payload of an RTP packet of the retransmission stream.
    ///
    /// # Errors
    /// If it is too short for a sequence number. A stream may send such packets as padding; they
    /// repeat no packet.
    pub fn parse(payload: &'a [u8]) -> Result<Self, RtxError> {
        //= rfc4588-4-osn
        match payload.split_at_checked(OSN) {
            Some((osn, payload)) => Ok(Self {
                original_sequence: u16_at(osn, 0),
                payload,
            }),
            None => Err(RtxError {
                have: payload.len(),
            }),
        }
    }

    /// Appends the payload.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.original_sequence.to_be_bytes());
        out.extend_from_slice(self.payload);
    }
}

/// Identification of a stream within a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId {
    /// Payload type.
    pub payload_type: PayloadType,
    /// Synchronisation source.
    pub ssrc: u32,
}

/// Appends a packet of the retransmission stream `rtx`, with sequence number `sequence`, that
/// repeats `original`. It is two bytes longer than the original without padding.
pub fn wrap(original: &RtpPacket<'_>, rtx: StreamId, sequence: u16, out: &mut Vec<u8>) {
    let header = original.header();
    emit_as(
        original,
        RtpHeader {
            sequence,
            ..as_stream(header, rtx)
        },
        out,
    );
    let payload = RtxPayload {
        original_sequence: header.sequence,
        payload: original.payload(),
    };
    payload.emit(out);
}

/// Appends the packet of the stream `original` that `rtx` repeats.
///
/// # Errors
/// If `rtx` is too short for a sequence number; nothing is appended then.
pub fn unwrap(rtx: &RtpPacket<'_>, original: StreamId, out: &mut Vec<u8>) -> Result<(), RtxError> {
    let payload = RtxPayload::parse(rtx.payload())?;
    let header = as_stream(rtx.header(), original);
    //= rfc4588-4-restore
    emit_as(
        rtx,
        RtpHeader {
            sequence: payload.original_sequence,
            ..header
        },
        out,
    );
    out.extend_from_slice(payload.payload);
    Ok(())
}

/// The header for another stream; timestamp and marker are unchanged.
fn as_stream(header: RtpHeader, stream: StreamId) -> RtpHeader {
    //= rfc4588-4-timestamp
    //= rfc4588-4-payload-type
    RtpHeader {
        payload_type: stream.payload_type,
        ssrc: stream.ssrc,
        ..header
    }
}

/// Appends `header` with the contributing sources and the extension of `packet`, without padding.
fn emit_as(packet: &RtpPacket<'_>, header: RtpHeader, out: &mut Vec<u8>) {
    //= rfc4588-4-extension
    //= rfc4588-4-padding
    header.emit_first(u8_at(packet.as_bytes(), 0) & !PADDED, out);
    out.extend_from_slice(packet.header_tail());
}

/// A retransmission payload that is too short for the original sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("retransmission payload of {have} bytes is too short for a sequence number")]
pub struct RtxError {
    /// Length of the payload in bytes.
    pub have: usize,
}

/// Overhead of a retransmission in bytes: the original sequence number.
pub const OSN: usize = 2;
const PADDED: u8 = 0x20;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn stream(payload_type: u8, ssrc: u32) -> StreamId {
        StreamId {
            payload_type: PayloadType::new(payload_type).unwrap(),
            ssrc,
        }
    }

    proptest! {
        #[test]
        fn retransmissions_restore_the_original_packet(
            numbers: (u16, u32, u32, bool),
            csrcs in vec(any::<u32>(), 0..4),
            extended: bool,
            payload in vec(any::<u8>(), 0..60),
            padding in 0_u8..9,
            rtx_sequence: u16,
        ) {
            //= rfc4588-4-osn (test)
            //= rfc4588-4-timestamp (test)
            //= rfc4588-4-payload-type (test)
            //= rfc4588-4-extension (test)
            //= rfc4588-4-padding (test)
            //= rfc4588-4-restore (test)
            let (sequence, timestamp, ssrc, marker) = numbers;
            let media = stream(96, ssrc);
            let header = RtpHeader { payload_type: media.payload_type, sequence, timestamp, ssrc, marker };
            let mut plain = Vec::new();
            header.emit_first(0x80 | u8::from(extended) << 4 | csrcs.len() as u8, &mut plain);
            plain.extend(csrcs.iter().flat_map(|c| c.to_be_bytes()));
            if extended {
                plain.extend_from_slice(&[0xbe, 0xde, 0, 1, 0x10, 7, 0, 0]);
            }
            plain.extend_from_slice(&payload);
            let mut padded = plain.clone();
            padded.extend((0..padding).map(|_| padding));
            padded[0] |= u8::from(padding > 0) << 5;

            let rtx = stream(97, !ssrc);
            let mut wrapped = Vec::new();
            wrap(&RtpPacket::new_checked(&padded).unwrap(), rtx, rtx_sequence, &mut wrapped);
            prop_assert_eq!(wrapped.len(), plain.len() + 2);
            let packet = RtpPacket::new_checked(&wrapped).unwrap();
            let expected = RtpHeader {
                payload_type: rtx.payload_type, sequence: rtx_sequence, ssrc: rtx.ssrc, ..header
            };
            prop_assert_eq!(packet.header(), expected);
            let inner = RtxPayload { original_sequence: sequence, payload: &payload };
            prop_assert_eq!(RtxPayload::parse(packet.payload()), Ok(inner));

            let mut restored = Vec::new();
            unwrap(&packet, media, &mut restored).unwrap();
            prop_assert_eq!(restored, plain);
        }
    }

    #[test]
    fn padding_packets_repeat_no_packet() {
        let bytes = [0x80, 97, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 9];
        let packet = RtpPacket::new_checked(&bytes).unwrap();
        let mut out = Vec::new();
        assert_eq!(
            unwrap(&packet, stream(96, 1), &mut out),
            Err(RtxError { have: 1 })
        );
        assert!(out.is_empty());
    }
}
