//! Wire formats: panic-free views over bytes, and values that are valid by construction.
//!
//! Each format has a view (`RtpPacket`, `Ccfb`, ...) and values (`RtpHeader`, `ReportBlock`, ...).
//! The constructor `new_checked` of a view validates all lengths once; the accessors cannot fail
//! and do not allocate. `emit` appends a value to a `Vec<u8>`, and parsing restores the same value.
//! `specs/*.toml` lists the implemented and omitted requirements.

pub mod base64;
pub mod ccfb;
pub mod cp;
pub mod framing;
pub mod h264;
pub mod mpeg2;
pub mod ntp;
pub mod parity;
pub mod payload;
pub mod rtcp;
pub mod rtp;
pub mod rtx;
pub mod sdp;
pub mod seq;
pub mod twcc;
pub mod udp;

/// Big-endian reads that return zeros beyond the end. Views validate lengths first.
mod bytes {
    pub(super) fn u8_at(bytes: &[u8], at: usize) -> u8 {
        bytes.get(at).copied().unwrap_or(0)
    }

    pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
        array_at(bytes, at).map_or(0, u16::from_be_bytes)
    }

    pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
        array_at(bytes, at).map_or(0, u32::from_be_bytes)
    }

    pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
        array_at(bytes, at).map_or(0, u64::from_be_bytes)
    }

    fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
        bytes.get(at..)?.first_chunk().copied()
    }
}
