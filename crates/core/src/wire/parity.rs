//! Payload of parity packets: forward error correction of the media stream by a Reed–Solomon code.
//!
//! RFC 8627 has XOR parity only, which repairs one loss per parity packet if no two of them fall
//! into the same row or column. With a Reed–Solomon code any `parity` losses of a block are
//! repaired. Like the streams of RFC 8627, parity packets are a stream of their own, with an SSRC
//! and a payload type, and a receiver without support ignores them.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------------------------------+---------------+---------------+
//! |      first sequence number    |     media     |    parity     |
//! +---------------+---------------+---------------+---------------+
//! |     index     |  zero         |  parity shard ...
//! +---------------+---------------+
//! ```
//!
//! A block is `media` packets with consecutive sequence numbers. The shard of a media packet is
//!
//! ```text
//! +-------------------------------+-+-----------------------------+
//! |         payload length        |M|           zero              |
//! +-------------------------------+-+-----------------------------+
//! |                         RTP timestamp                         |
//! +---------------------------------------------------------------+
//! |  payload, then zeros up to the length of the longest shard ...
//! ```
//!
//! with M the RTP marker. All shards of a block have the same length, which is even. The code is
//! that of the crate `reed-solomon-simd` (Leopard, GF(2¹⁶)).

use super::bytes::{u8_at, u16_at, u32_at};

/// Payload of a parity packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity<'a> {
    /// Block that the packet protects.
    pub block: Block,
    /// Number of the packet among the parity packets of its block.
    pub index: u8,
    /// Parity shard.
    pub shard: &'a [u8],
}

/// Media packets that are protected together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// RTP sequence number of the first media packet.
    pub first: u16,
    /// Number of media packets, 1 to [`MAX_MEDIA`].
    pub media: u8,
    /// Number of parity packets, 1 to [`MAX_PARITY`].
    pub parity: u8,
}

impl<'a> Parity<'a> {
    /// Parses the payload of an RTP packet of the parity stream.
    ///
    /// # Errors
    /// If it is too short, its counts are out of range, or the length of its shard is odd.
    pub fn parse(payload: &'a [u8]) -> Result<Self, ParityError> {
        let (header, shard) = payload.split_at_checked(HEADER).ok_or(ParityError::Short)?;
        let block = Block {
            first: u16_at(header, 0),
            media: u8_at(header, 2),
            parity: u8_at(header, 3),
        };
        let index = u8_at(header, 4);
        let in_range = (1..=MAX_MEDIA).contains(&usize::from(block.media))
            && (1..=MAX_PARITY).contains(&usize::from(block.parity))
            && index < block.parity;
        if !in_range {
            return Err(ParityError::Count);
        }
        if shard.len() < MediaShard::HEADER || !shard.len().is_multiple_of(2) {
            return Err(ParityError::Shard);
        }
        Ok(Self {
            block,
            index,
            shard,
        })
    }

    /// Appends the payload.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.block.first.to_be_bytes());
        out.extend([self.block.media, self.block.parity, self.index, 0]);
        out.extend_from_slice(self.shard);
    }
}

/// Shard of a media packet: what its receiver needs besides the sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaShard<'a> {
    /// RTP marker.
    pub marker: bool,
    /// RTP timestamp.
    pub timestamp: u32,
    /// Payload, of at most 65,535 bytes.
    pub payload: &'a [u8],
}

impl<'a> MediaShard<'a> {
    /// Bytes before the payload.
    pub const HEADER: usize = 8;

    /// Parses a restored shard. `None` if its length does not fit.
    pub fn parse(shard: &'a [u8]) -> Option<Self> {
        let (header, rest) = shard.split_at_checked(Self::HEADER)?;
        Some(Self {
            marker: u8_at(header, 2) & MARKER != 0,
            timestamp: u32_at(header, 4),
            payload: rest.get(..usize::from(u16_at(header, 0)))?,
        })
    }

    /// Length of the shard without padding.
    pub fn len(&self) -> usize {
        Self::HEADER + self.payload.len()
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// Appends the shard without padding.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let marker = if self.marker { MARKER } else { 0 };
        out.extend_from_slice(&(self.payload.len() as u16).to_be_bytes());
        out.extend([marker, 0]);
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(self.payload);
    }
}

/// Reason why a payload is no parity packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParityError {
    /// Shorter than the header.
    #[error("shorter than the 6 bytes of the header")]
    Short,
    /// A count or the index is out of range.
    #[error("the number of packets or the index is out of range")]
    Count,
    /// The shard is shorter than that of any media packet, or its length is odd.
    #[error("the shard is shorter than 8 bytes or has an odd length")]
    Shard,
}

/// Most media packets of a block.
pub const MAX_MEDIA: usize = 128;
/// Most parity packets of a block.
pub const MAX_PARITY: usize = 32;
/// Bytes of a parity payload before its shard.
pub const HEADER: usize = 6;
/// Bytes by which a parity packet is longer than the longest media packet of its block, with an
/// octet of padding at most.
pub const OVERHEAD: usize = HEADER + MediaShard::HEADER + 1;
const MARKER: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Block = Block {
        first: 65_530,
        media: 20,
        parity: 3,
    };

    #[test]
    fn the_layout_is_as_documented() {
        let media = MediaShard {
            marker: true,
            timestamp: 0x0102_0304,
            payload: &[9, 8],
        };
        let mut shard = Vec::new();
        media.emit(&mut shard);
        assert_eq!(shard, [0, 2, 0x80, 0, 1, 2, 3, 4, 9, 8]);
        assert_eq!(MediaShard::parse(&shard), Some(media));
        shard.extend([0, 0]);
        assert_eq!(MediaShard::parse(&shard), Some(media));
        let parity = Parity {
            block: BLOCK,
            index: 2,
            shard: &shard,
        };
        let mut packet = Vec::new();
        parity.emit(&mut packet);
        assert_eq!(packet[..6], [0xff, 0xfa, 20, 3, 2, 0]);
        assert_eq!(Parity::parse(&packet), Ok(parity));
    }

    #[test]
    fn invalid_payloads_are_named() {
        let parse = |bytes: &[u8]| Parity::parse(bytes).map(|_| ());
        assert_eq!(parse(&[0; 5]), Err(ParityError::Short));
        let mut packet = vec![0, 0, 1, 1, 0, 0];
        assert_eq!(parse(&packet), Err(ParityError::Shard));
        packet.extend([0; 9]);
        assert_eq!(parse(&packet), Err(ParityError::Shard));
        packet.push(0);
        assert_eq!(parse(&packet), Ok(()));
        for (at, value) in [(2, 0), (2, 129), (3, 0), (3, 33), (4, 1)] {
            let mut bad = packet.clone();
            bad[at] = value;
            assert_eq!(parse(&bad), Err(ParityError::Count), "{at}: {value}");
        }
        assert_eq!(MediaShard::parse(&[0, 3, 0, 0, 0, 0, 0, 0, 1, 2]), None);
        assert_eq!(MediaShard::parse(&[0; 7]), None);
    }
}
