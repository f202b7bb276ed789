//! Wire formats: views over bytes that cannot panic, and values that cannot be wrong.
//!
//! Each format has a view (`RtpPacket`, `Ccfb`, ...) whose constructor `new_checked` looks at
//! every length once, after which all accessors are total and allocate nothing; and values
//! (`RtpHeader`, `ReportBlock`, ...) that are appended to a `Vec<u8>` by `emit`. What was emitted
//! parses to what went in. `specs/*.toml` lists the clauses followed and left out.

pub mod ccfb;
pub mod framing;
pub mod fuzzing;
pub mod h264;
pub mod mpeg2;
pub mod ntp;
pub mod payload;
pub mod rtcp;
pub mod rtp;
pub mod rtx;
pub mod sdp;
pub mod seq;

mod base64;

/// Big-endian reads that are total: beyond the end there are zeros. Views check lengths first.
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
