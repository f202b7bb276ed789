//! What a player says to its sender: nothing but goodbye.

use crate::wire::framing::{self, Deframer};
use crate::wire::rtcp::{self, Rtcp};

/// The goodbye of the player of stream `ssrc`, for the socket: RTCP of reduced size (RFC 5506).
pub(super) fn farewell(ssrc: u32) -> Vec<u8> {
    let mut out = Vec::new();
    // Of two on a connection: it is enough that ours is another one.
    let emitted = framing::emit(&mut out, |out| rtcp::emit_bye(&[!ssrc], None, out));
    debug_assert!(emitted.is_ok(), "a goodbye has eight bytes");
    out
}

/// Listens for the goodbye of a player among what else it may say.
#[derive(Debug)]
pub struct Listener {
    deframer: Option<Deframer>,
    left: bool,
}

impl Default for Listener {
    fn default() -> Self {
        Self {
            deframer: Some(Deframer::new(LONGEST)),
            left: false,
        }
    }
}

impl Listener {
    /// What came next on the stream. What is not understood is passed over, with all that follows.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        let Some(deframer) = &mut self.deframer else {
            return;
        };
        deframer.push(bytes);
        loop {
            match deframer.next_packet() {
                Ok(Some(packet)) => {
                    let bye = |packet| matches!(packet, Ok(Rtcp::Bye(_)));
                    self.left |= rtcp::packets(packet).any(bye);
                }
                Ok(None) => return,
                Err(_) => {
                    self.deframer = None;
                    return;
                }
            }
        }
    }

    /// Whether the player has said goodbye.
    pub const fn has_left(&self) -> bool {
        self.left
    }
}

/// Reports of a few dozen sources: more is no RTCP for us.
const LONGEST: usize = 1_500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goodbye_is_heard_in_pieces_and_after_other_words() {
        let mut listener = Listener::default();
        let mut words = vec![0, 4, 0x80, 201, 0, 0];
        words.extend(farewell(7));
        for byte in &words {
            assert!(!listener.has_left());
            listener.on_bytes(&[*byte]);
        }
        assert!(listener.has_left());
        let mut deaf = Listener::default();
        deaf.on_bytes(b"GET / HTTP/1.1\r\n");
        deaf.on_bytes(&farewell(7));
        assert!(!deaf.has_left());
    }
}
