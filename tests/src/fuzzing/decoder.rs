//! Fuzz target of the protocol of decoder processes, on the side that does not trust the other.

use super::Target;
use tidegate_media::Size;
use tidegate_media::sandbox::protocol::{Reply, Request};

/// All targets.
pub const TARGETS: [Target; 1] = [Target {
    name: "decoder_replies",
    run: decoder_replies,
}];

/// Replies behind each other, after the limit of the picture size in two bytes each: pictures fit
/// the limit, and each accepted reply survives a round trip. The bytes are read as requests, too.
pub fn decoder_replies(data: &[u8]) {
    let Some((&[w0, w1, h0, h1], replies)) = data.split_first_chunk() else {
        return;
    };
    let [width, height] = [[w0, w1], [h0, h1]].map(|two| u32::from(u16::from_be_bytes(two)));
    let Ok(max) = Size::new(width, height) else {
        return;
    };
    // Whole macroblocks, or pairs of them in interlaced video.
    let most = width.next_multiple_of(16) as usize * height.next_multiple_of(32) as usize;
    for bytes in replies
        .chunks_exact(Reply::LEN)
        .filter_map(<[u8]>::first_chunk)
    {
        match Reply::parse(*bytes, max) {
            Ok(reply) => {
                assert_eq!(reply.emit(), *bytes);
                if let Reply::Whole(output) | Reply::Damaged(output) = reply {
                    let size = output.size;
                    assert!(size.luma() <= most && size.bytes() <= most / 2 * 3);
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    for bytes in replies
        .chunks_exact(Request::LEN)
        .filter_map(<[u8]>::first_chunk)
    {
        if let Some(request) = Request::parse(*bytes) {
            assert_eq!(request.emit()[0], bytes[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn replies_beyond_the_limit_are_refused(
            max in (8_u16..600, 8_u16..600),
            replies in vec((0x80_u8..0x87, 0_u16..700, 0_u16..700), 0..20),
        ) {
            let double = |n: u16| (2 * n).to_be_bytes();
            let mut bytes = [double(max.0), double(max.1)].concat();
            for (kind, width, height) in replies {
                let [width, height] = [width, height].map(|n| [[0, 0], double(n)].concat());
                bytes.extend([&[kind][..], &width, &height].concat());
            }
            decoder_replies(&bytes);
        }
    }
}
