//! Advice for RTP packets of a stream that the receiver does not expect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tidegate_core::units::Time;
use tidegate_core::wire::payload;
use tidegate_core::wire::rtp::{PayloadType, RtpPacket};

/// The last RTP packet of another payload type than that of the expected stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Unexpected(Arc<AtomicU16>);

impl Unexpected {
    /// Records a packet.
    pub(super) fn record(&self, packet: &RtpPacket<'_>) {
        let number = u16::from(packet.header().payload_type.get());
        let is_h265 = payload::is_h265(packet.payload());
        let known = self.0.load(Ordering::Relaxed);
        // Not each packet of H.265 shows that it is one.
        let same = if known & NUMBER == number {
            known & H265
        } else {
            0
        };
        let codec = if is_h265 { H265 } else { same };
        self.0.store(number | codec | SEEN, Ordering::Relaxed);
    }

    /// What arrives instead of the stream `expected`, and the remedy.
    pub(super) fn advice(&self, expected: Expected) -> Option<String> {
        let seen = self.0.load(Ordering::Relaxed);
        if seen & SEEN == 0 {
            return None;
        }
        let number = seen & NUMBER;
        Some(match (number, expected) {
            _ if seen & H265 != 0 => H265_ADVICE.to_owned(),
            (TRANSPORT_STREAM, _) => format!(
                "an MPEG transport stream arrives (payload type {TRANSPORT_STREAM}), which is not \
                 supported: have the sender send H.264 in RTP itself (FFmpeg: -f rtp)"
            ),
            (MPEG_VIDEO, Expected::Default(_)) => {
                format!("MPEG video arrives (payload type {MPEG_VIDEO}): give --codec mpeg2")
            }
            (_, Expected::Default(own)) => format!(
                "RTP of payload type {number} arrives, and {} is expected: if it is H.264, give \
                 --payload-type {number}; --sdp with the description of the sender works, too",
                own.get()
            ),
            (_, Expected::Described(own)) => format!(
                "RTP of payload type {number} arrives, and the description names {}: give the \
                 description of this stream",
                own.get()
            ),
        })
    }
}

/// Payload type of the expected media, and its origin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    /// An option, or the customary one.
    Default(PayloadType),
    /// A session description.
    Described(PayloadType),
}

/// Prints advice once, if no stream has begun [`PATIENCE`] after the first unexpected packet.
#[derive(Debug)]
pub(super) struct Adviser {
    unexpected: Unexpected,
    expected: Expected,
    since: Option<Time>,
    is_done: bool,
}

impl Adviser {
    pub(super) fn new(unexpected: Unexpected, expected: Expected) -> Self {
        Self {
            unexpected,
            expected,
            since: None,
            is_done: false,
        }
    }

    /// Advice that is due, while no stream has begun.
    pub(super) fn due(&mut self, now: Time) -> Option<String> {
        if self.is_done {
            return None;
        }
        let advice = self.unexpected.advice(self.expected)?;
        let since = *self.since.get_or_insert(now);
        self.is_done = now.since(since) >= PATIENCE;
        self.is_done.then_some(advice)
    }
}

pub(super) const H265_ADVICE: &str =
    "the stream is H.265, which is not supported: have the sender encode H.264";
/// Retransmissions may arrive before the media.
const PATIENCE: Duration = Duration::from_secs(1);
/// Static payload types (RFC 3551 table 5).
const MPEG_VIDEO: u16 = 32;
const TRANSPORT_STREAM: u16 = 33;
const NUMBER: u16 = 0x7f;
const H265: u16 = 0x100;
const SEEN: u16 = 0x200;

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(number: u8, payloads: &[&[u8]], expected: fn(PayloadType) -> Expected) -> String {
        let unexpected = Unexpected::default();
        let own = PayloadType::new(96).unwrap();
        assert_eq!(unexpected.advice(expected(own)), None);
        for payload in payloads {
            let mut packet = vec![0x80, number, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
            packet.extend_from_slice(payload);
            unexpected.record(&RtpPacket::new_checked(&packet).unwrap());
        }
        unexpected.advice(expected(own)).unwrap()
    }

    #[test]
    fn advice_fits_the_payload_type() {
        let h264: &[&[u8]] = &[&[0x67, 0x42], &[0x65, 0x88]];
        let h265: &[&[u8]] = &[&[0x40, 1, 0x0c], &[0x02, 1, 0xd0]];
        for (number, payloads, words) in [
            (98, h264, "--payload-type 98"),
            (98, h265, "H.265"),
            (33, &[&[0x47, 0x40][..]][..], "transport stream"),
            (32, &[&[0, 0, 0, 0][..]], "--codec mpeg2"),
        ] {
            let advice = advice(number, payloads, Expected::Default);
            assert!(advice.contains(words), "{advice}");
        }
        let advice = advice(98, h264, Expected::Described);
        assert!(advice.contains("the description names 96"), "{advice}");
    }

    #[test]
    fn advice_waits_for_the_media_of_early_retransmissions() {
        let unexpected = Unexpected::default();
        let expected = Expected::Default(PayloadType::new(96).unwrap());
        let mut adviser = Adviser::new(unexpected.clone(), expected);
        let ms = Time::from_millis;
        assert_eq!(adviser.due(ms(0)), None);
        let packet = [0x80, 97, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 1];
        unexpected.record(&RtpPacket::new_checked(&packet).unwrap());
        assert_eq!(adviser.due(ms(5_000)), None);
        assert_eq!(adviser.due(ms(5_999)), None);
        assert!(adviser.due(ms(6_000)).is_some());
        assert_eq!(adviser.due(ms(9_000)), None);
    }
}
