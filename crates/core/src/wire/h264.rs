//! H.264 over RTP (RFC 6184, packetisation mode 1) and its byte stream (ITU-T H.264 annex B).

mod annexb;
mod assemble;
mod packetise;

pub(in crate::wire) use annexb::find_start_code;
pub use annexb::{Contents, NalUnits, contents, is_key_frame, nal_units, parameter_sets};
pub use assemble::{AccessUnit, AssembleError, JitterBuffer};
pub use packetise::{PacketiseError, Payload, Payloads, packetise};

/// The low five bits of a NAL unit's first byte.
fn nal_type(nal: &[u8]) -> u8 {
    nal.first().map_or(0, |first| first & TYPE)
}

/// Whether the unit may go over RTP as it is: neither damaged nor of a type that RFC 6184 uses.
fn is_sendable(nal: &[u8]) -> bool {
    nal.first().is_some_and(|first| first & FORBIDDEN == 0) && (1..STAP_A).contains(&nal_type(nal))
}

const TYPE: u8 = 0x1f;
/// Set when the unit is damaged.
const FORBIDDEN: u8 = 0x80;
/// How much other pictures need this unit.
const IMPORTANCE: u8 = 0x60;

/// Types of NAL units in a byte stream. Others are passed on unread.
const IDR: u8 = 5;
const SPS: u8 = 7;
const PPS: u8 = 8;
/// Coded slices, whole or partitioned.
const FIRST_SLICE: u8 = 1;
/// From here on RFC 6184 has meanings of its own.
const STAP_A: u8 = 24;
const FU_A: u8 = 28;

/// Of a fragmentation unit's second byte.
const START: u8 = 0x80;
const END: u8 = 0x40;
