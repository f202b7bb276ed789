//! MPEG-1 and MPEG-2 video over RTP (RFC 2250), and its elementary stream (ITU-T H.262).

mod assemble;
mod header;
mod packetise;
mod sequence;
mod stream;

pub use assemble::{AssembleError, Depacketiser, Picture};
pub use header::{HeaderError, VideoHeader, VideoPayload};
pub use packetise::{PacketiseError, Payload, Payloads, packetise};
pub use sequence::{Sequence, SequenceError, Sequences, sequences};
pub use stream::{Contents, contents};

use super::rtp::PayloadType;

/// MPV, the static payload type of MPEG video (RFC 3551 section 6). Its clock rate is 90,000 Hz.
//= rfc2250-3.3-payload-type
pub const PAYLOAD_TYPE: PayloadType = match PayloadType::new(32) {
    Some(payload_type) => payload_type,
    None => panic!("payload types are 0..=127"),
};
