//! RTCP from the player to the sender: a BYE.

use crate::wire::framing::{self, Deframer};
use crate::wire::rtcp::{self, Rtcp};

/// BYE of the player of stream `ssrc`, framed for the socket: reduced-size RTCP (RFC 5506).
pub(super) fn bye(ssrc: u32) -> Vec<u8> {
    let mut out = Vec::new();
    // The connection has two endpoints: any SSRC other than the sender's identifies the player.
    let emitted = framing::emit(&mut out, |out| rtcp::emit_bye(&[!ssrc], None, out));
    debug_assert!(emitted.is_ok(), "a BYE is eight bytes long");
    out
}

/// Detects a player's BYE among other packets.
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
    /// Processes bytes from the player. Once framing is lost, all later bytes are ignored.
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

    /// Whether the player has sent a BYE.
    pub const fn has_left(&self) -> bool {
        self.left
    }
}

/// Reports on a few dozen sources; longer packets are not RTCP.
const LONGEST: usize = 1_500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bye_is_detected_in_fragments_and_after_other_packets() {
        let mut listener = Listener::default();
        let mut packets = vec![0, 4, 0x80, 201, 0, 0];
        packets.extend(bye(7));
        for byte in &packets {
            assert!(!listener.has_left());
            listener.on_bytes(&[*byte]);
        }
        assert!(listener.has_left());
        let mut ignoring = Listener::default();
        ignoring.on_bytes(b"GET / HTTP/1.1\r\n");
        ignoring.on_bytes(&bye(7));
        assert!(!ignoring.has_left());
    }
}
