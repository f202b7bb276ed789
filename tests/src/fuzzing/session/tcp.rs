//! The receiver of a stream over TCP.

use tidegate_core::session::tcp::TcpReceiver;
use tidegate_core::units::Time;

/// A byte stream in pieces whose length is the first byte. It yields frames or an error; only
/// decodable frames are returned.
pub fn tcp_receiver(data: &[u8]) {
    let Some((piece, stream)) = data.split_first() else {
        return;
    };
    let mut receiver = TcpReceiver::new();
    let (mut decodable, mut payload) = (false, 0);
    for (n, piece) in (0..).zip(stream.chunks(usize::from(*piece).max(1))) {
        let fault = receiver.on_bytes(Time::from_millis(n), piece).err();
        if fault.is_some() {
            receiver.finish();
        }
        while let Some(frame) = receiver.poll_frame() {
            assert_eq!(frame.complete.is_some(), !frame.data.is_empty());
            // After a frame that cannot be decoded, only a key frame can be decoded.
            assert!(frame.complete.is_none() || frame.key || decodable);
            decodable = frame.complete.is_some();
            payload += frame.bytes;
        }
        if let Some(fault) = fault {
            assert!(!fault.to_string().is_empty());
            break;
        }
    }
    assert!(payload <= stream.len() as u64);
    assert!(receiver.codec().is_some() == (receiver.packets() > 0));
}
