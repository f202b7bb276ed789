//! RTCP from the player to the sender: a report at the start, a BYE at the end.

use super::receiver::StreamFault;
use crate::wire::framing::{self, Deframer};
use crate::wire::rtcp::{self, Rtcp};

/// First packet of a player that connects to a sender: an empty receiver report, framed for the
/// socket (reduced-size RTCP, RFC 5506). The sender serves no connection without it.
pub fn first_report(ssrc: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let emitted = framing::emit(&mut out, |out| rtcp::emit_receiver_report(ssrc, &[], out));
    debug_assert!(emitted.is_ok(), "an empty report is eight bytes long");
    out
}

/// BYE of the player of stream `ssrc`, framed for the socket: reduced-size RTCP (RFC 5506).
pub(super) fn bye(ssrc: u32) -> Vec<u8> {
    let mut out = Vec::new();
    // The connection has two endpoints: any SSRC other than the sender's identifies the player.
    let emitted = framing::emit(&mut out, |out| rtcp::emit_bye(&[!ssrc], None, out));
    debug_assert!(emitted.is_ok(), "a BYE is eight bytes long");
    out
}

/// Detects the first report and the BYE of a player among its packets.
#[derive(Debug)]
pub struct PlayerRtcp {
    deframer: Option<Deframer>,
    begun: bool,
    left: bool,
}

impl Default for PlayerRtcp {
    fn default() -> Self {
        Self {
            deframer: Some(Deframer::new(LONGEST)),
            begun: false,
            left: false,
        }
    }
}

impl PlayerRtcp {
    /// Processes bytes from the player. After an error all later bytes are ignored.
    ///
    /// # Errors
    /// The bytes are not framed, or their first packet is not RTCP.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> Result<(), StreamFault> {
        let Some(deframer) = &mut self.deframer else {
            return Ok(());
        };
        deframer.push(bytes);
        let fault = loop {
            match deframer.next_packet() {
                Ok(Some(packet)) => {
                    if !self.begun && rtcp::form(packet).is_err() {
                        break StreamFault::NoRtcp;
                    }
                    self.begun = true;
                    let bye = |packet| matches!(packet, Ok(Rtcp::Bye(_)));
                    self.left |= rtcp::packets(packet).any(bye);
                }
                Ok(None) => return Ok(()),
                Err(error) => break StreamFault::Framing(error),
            }
        };
        self.deframer = None;
        Err(fault)
    }

    /// Whether a whole RTCP packet has arrived.
    pub const fn has_begun(&self) -> bool {
        self.begun
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
        let mut player = PlayerRtcp::default();
        let mut packets = first_report(3);
        packets.extend(bye(7));
        for byte in &packets {
            assert!(!player.has_left());
            player.on_bytes(&[*byte]).unwrap();
        }
        assert!(player.has_left());
        let mut ignoring = PlayerRtcp::default();
        let other = ignoring.on_bytes(b"GET / HTTP/1.1\r\n");
        assert!(matches!(other, Err(StreamFault::Framing(_))), "{other:?}");
        assert_eq!(ignoring.on_bytes(&bye(7)), Ok(()));
        assert!(!ignoring.has_left());
    }

    #[test]
    fn only_a_whole_rtcp_packet_is_a_beginning() {
        let mut player = PlayerRtcp::default();
        let report = first_report(3);
        let (last, before) = report.split_last().unwrap();
        player.on_bytes(before).unwrap();
        assert!(!player.has_begun());
        player.on_bytes(&[*last]).unwrap();
        assert!(player.has_begun());
        let mut rtp = PlayerRtcp::default();
        let packet = [0, 12, 0x80, 96, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(rtp.on_bytes(&packet), Err(StreamFault::NoRtcp));
        assert!(!rtp.has_begun());
    }
}
