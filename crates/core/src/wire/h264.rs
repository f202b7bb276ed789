//! H.264 over RTP (RFC 6184, packetisation mode 1) and its byte stream (ITU-T H.264 annex B).

mod access;
mod annexb;
mod assemble;
mod packetise;
mod sps;

pub(crate) use access::Evidence;
pub use access::{AccessPoint, is_bidirectional, is_reference};
pub(in crate::wire) use annexb::find_start_code;
pub use annexb::{Contents, NalUnits, contents, is_key_frame, nal_units, parameter_sets};
pub use assemble::{AccessUnit, AssembleError, Depacketiser};
pub use packetise::{PacketiseError, Payload, Payloads, packetise};
pub use sps::{Sps, SpsError};

use super::rtp::PayloadType;

/// Customary payload type: the first dynamic one (RFC 3551 section 6).
pub const PAYLOAD_TYPE: PayloadType = match PayloadType::new(96) {
    Some(payload_type) => payload_type,
    None => panic!("payload types are 0..=127"),
};

/// NAL unit type: the low five bits of the first byte.
fn nal_type(nal: &[u8]) -> u8 {
    nal.first().map_or(0, |first| first & TYPE)
}

/// Whether RTP can carry the unit: no error bit, and no type that RFC 6184 redefines.
fn is_sendable(nal: &[u8]) -> bool {
    nal.first().is_some_and(|first| first & FORBIDDEN == 0) && (1..STAP_A).contains(&nal_type(nal))
}

const TYPE: u8 = 0x1f;
/// Forbidden zero bit: set in damaged units.
const FORBIDDEN: u8 = 0x80;
/// `nal_ref_idc`: importance of the unit for other pictures.
const IMPORTANCE: u8 = 0x60;

/// NAL unit types of a byte stream. Other types are passed on unparsed.
const IDR: u8 = 5;
const SEI: u8 = 6;
const SPS: u8 = 7;
const PPS: u8 = 8;
/// Coded slices, with or without data partitioning.
const FIRST_SLICE: u8 = 1;
/// RFC 6184 redefines this type and those above.
const STAP_A: u8 = 24;
const FU_A: u8 = 28;

/// Flags in the second byte of a fragmentation unit.
const START: u8 = 0x80;
const END: u8 = 0x40;
