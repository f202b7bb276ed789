//! Session descriptions (RFC 8866) of one H.264 or MPEG-2 stream, for receivers and players.

use core::fmt;
use core::net::IpAddr;

use super::base64;
use super::payload;
use super::rtcp::Cname;
use super::rtp::PayloadType;
use crate::media::{Codec, FrameRate};

mod crypto;
mod parse;

pub use crypto::{Crypto, CryptoSuite};
pub use parse::{SdpError, SdpFault};

/// Description of one H.264 or MPEG-2 stream over RTP, by its payload type, with an optional
/// retransmission stream.
///
/// [`Display`](fmt::Display) writes the description, [`parse`](Self::parse) reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sdp {
    /// Session identifier, unique on the host.
    pub session: u64,
    /// Destination address of the media.
    pub address: IpAddr,
    /// UDP port of the media.
    pub port: u16,
    /// Payload type of the media.
    pub payload_type: PayloadType,
    /// Payload type of the retransmissions, if any.
    pub rtx: Option<PayloadType>,
    /// Payload type of the parity packets ([`super::parity`]), if any.
    pub parity: Option<PayloadType>,
    /// Payload type of probes of lower effort, if any.
    pub probe: Option<PayloadType>,
    /// Parameter sets that the decoder needs before the first picture, unless the stream contains
    /// them.
    pub parameter_sets: Option<ParameterSets>,
    /// Frame rate, with a resolution of 1/1000 frame per second.
    pub frame_rate: Option<FrameRate>,
    /// SSRCs and CNAME of the sender.
    pub source: Option<Source>,
    /// Addresses of hosts that may send (RFC 4570); empty for all.
    pub source_filter: Vec<IpAddr>,
    /// Keys of the stream, by descending preference; empty without SRTP.
    pub crypto: Vec<Crypto>,
    /// Feedback that the receiver may send.
    pub feedback: Feedback,
    /// RTCP shares the port of the media (RFC 5761).
    pub rtcp_mux: bool,
    /// UDP port of RTCP without multiplexing (RFC 3605); `None` is the port after that of the media.
    pub rtcp_port: Option<u16>,
    /// Reduced-size RTCP is allowed (RFC 5506).
    pub rtcp_reduced_size: bool,
}

/// Sources of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// SSRC of the media.
    pub ssrc: u32,
    /// SSRC of the retransmissions.
    pub rtx_ssrc: Option<u32>,
    /// SSRC of the parity packets.
    pub parity_ssrc: Option<u32>,
    /// SSRC of the probes.
    pub probe_ssrc: Option<u32>,
    /// CNAME of all.
    pub cname: Cname,
}

/// Feedback that the sender accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent offers")]
pub struct Feedback {
    /// Generic NACK (RFC 4585).
    pub nack: bool,
    /// Picture loss indication (RFC 4585).
    pub pli: bool,
    /// Congestion control feedback (RFC 8888).
    pub ccfb: bool,
    /// Transport-wide feedback ([`super::twcc`]). Packets have the header extension
    /// [`TRANSPORT_SEQUENCE_ID`].
    pub transport_cc: bool,
}

/// Identifier of the header extension with the transport-wide sequence number (RFC 8285).
pub const TRANSPORT_SEQUENCE_ID: u8 = 1;
const TRANSPORT_SEQUENCE_URI: &str =
    "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";

/// A sequence and a picture parameter set of H.264, and perhaps further ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSets {
    sps: Vec<u8>,
    pps: Vec<u8>,
    others: Vec<Vec<u8>>,
}

impl ParameterSets {
    /// From two NAL units without start codes, as [`super::h264::parameter_sets`] returns them.
    /// `None` if they are of other types, or too short to contain profile and level.
    pub fn new(sps: &[u8], pps: &[u8]) -> Option<Self> {
        let is = |nal: &[u8], kind, len| nal.len() >= len && nal[0] & 0x9f == kind;
        (is(sps, SPS, 4) && is(pps, PPS, 2)).then(|| Self {
            sps: sps.to_vec(),
            pps: pps.to_vec(),
            others: Vec::new(),
        })
    }

    /// The same sets with further ones. Units of other types are left out.
    pub fn with_others(self, mut others: Vec<Vec<u8>>) -> Self {
        let is_set = |nal: &Vec<u8>| nal.len() >= 2 && matches!(nal[0] & 0x9f, SPS | PPS);
        others.retain(is_set);
        Self { others, ..self }
    }

    /// All units: the sequence and the picture parameter set, then the others.
    pub fn units(&self) -> impl Iterator<Item = &[u8]> {
        let first = [&self.sps, &self.pps];
        first.into_iter().chain(&self.others).map(Vec::as_slice)
    }

    /// The sequence parameter set.
    pub fn sps(&self) -> &[u8] {
        &self.sps
    }

    /// The picture parameter set.
    pub fn pps(&self) -> &[u8] {
        &self.pps
    }

    /// Profile, constraints and level, as in the sequence parameter set.
    pub fn profile_level_id(&self) -> [u8; 3] {
        [self.sps[1], self.sps[2], self.sps[3]]
    }
}

impl fmt::Display for Sdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.address.is_ipv4() { "IP4" } else { "IP6" };
        let address = self.address;
        line(f, format_args!("v=0"))?;
        line(
            f,
            format_args!("o=- {} 0 IN {family} {address}", self.session),
        )?;
        line(f, format_args!("s=Tidegate"))?;
        // IPv4 multicast needs a TTL: the local network.
        let reach = if address.is_ipv4() && address.is_multicast() {
            "/1"
        } else {
            ""
        };
        line(f, format_args!("c=IN {family} {address}{reach}"))?;
        line(f, format_args!("t=0 0"))?;
        self.media(f)?;
        self.security_lines(f)?;
        self.feedback_lines(f)?;
        self.source_lines(f)
    }
}

impl Sdp {
    fn media(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (port, media) = (self.port, self.payload_type.get());
        //= rfc4585-4.1-profile
        let profile = match (self.crypto.is_empty(), self.feedback == Feedback::default()) {
            // Some players know this profile only.
            (true, true) => "RTP/AVP",
            (true, false) => "RTP/AVPF",
            (false, true) => "RTP/SAVP",
            // RFC 5124.
            (false, false) => "RTP/SAVPF",
        };
        write!(f, "m=video {port} {profile} {media}")?;
        for other in self.rtx.iter().chain(&self.parity).chain(&self.probe) {
            write!(f, " {}", other.get())?;
        }
        line(f, format_args!(""))?;
        line(f, format_args!("b=RS:{RTCP_SENDERS}"))?;
        line(f, format_args!("b=RR:{RTCP_RECEIVERS}"))?;
        match payload::codec(self.payload_type) {
            Codec::H264 => self.h264(f)?,
            // RFC 3555 section 4.2.4 has no required parameter.
            Codec::Mpeg2 => line(f, format_args!("a=rtpmap:{media} MPV/90000"))?,
        }
        if let Some(rtx) = self.rtx {
            //= rfc4588-8.6-apt
            line(f, format_args!("a=rtpmap:{} rtx/90000", rtx.get()))?;
            line(f, format_args!("a=fmtp:{} apt={media}", rtx.get()))?;
        }
        if let Some(parity) = self.parity {
            line(f, format_args!("a=rtpmap:{} {PARITY}/90000", parity.get()))?;
        }
        if let Some(probe) = self.probe {
            line(f, format_args!("a=rtpmap:{} {PROBE}/90000", probe.get()))?;
        }
        if let Some(rate) = self.frame_rate {
            let thousandths = thousandths(rate);
            let (whole, part) = (thousandths / 1000, thousandths % 1000);
            line(f, format_args!("a=framerate:{whole}.{part:03}"))?;
        }
        Ok(())
    }

    fn security_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (tag, crypto) in (1..).zip(&self.crypto) {
            let suite = crypto.suite().name();
            let key = base64::encode(crypto.key_and_salt());
            line(f, format_args!("a=crypto:{tag} {suite} inline:{key}"))?;
        }
        for source in &self.source_filter {
            let family = if source.is_ipv4() { "IP4" } else { "IP6" };
            line(
                f,
                format_args!("a=source-filter: incl IN {family} * {source}"),
            )?;
        }
        Ok(())
    }

    fn h264(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let media = self.payload_type.get();
        //= rfc6184-8.2.1-rtpmap
        line(f, format_args!("a=rtpmap:{media} H264/90000"))?;
        //= rfc6184-8.1-mode
        write!(f, "a=fmtp:{media} packetization-mode=1")?;
        if let Some(sets) = &self.parameter_sets {
            //= rfc6184-8.1-profile-level-id
            let [profile, constraints, level] = sets.profile_level_id();
            write!(
                f,
                ";profile-level-id={profile:02x}{constraints:02x}{level:02x}"
            )?;
            //= rfc6184-8.1-sprop
            let units: Vec<_> = sets.units().map(base64::encode).collect();
            write!(f, ";sprop-parameter-sets={}", units.join(","))?;
        }
        line(f, format_args!(""))
    }

    fn feedback_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let media = self.payload_type.get();
        if self.rtcp_mux {
            line(f, format_args!("a=rtcp-mux"))?;
        }
        if let Some(port) = self.rtcp_port {
            line(f, format_args!("a=rtcp:{port}"))?;
        }
        if self.rtcp_reduced_size {
            //= rfc5506-5-rsize
            line(f, format_args!("a=rtcp-rsize"))?;
        }
        //= rfc4585-4.2-attribute
        if self.feedback.nack {
            line(f, format_args!("a=rtcp-fb:{media} nack"))?;
        }
        if self.feedback.pli {
            line(f, format_args!("a=rtcp-fb:{media} nack pli"))?;
        }
        if self.feedback.ccfb {
            //= rfc8888-6-sdp
            line(f, format_args!("a=rtcp-fb:* ack ccfb"))?;
        }
        if self.feedback.transport_cc {
            line(f, format_args!("a=rtcp-fb:* transport-cc"))?;
            let id = TRANSPORT_SEQUENCE_ID;
            line(f, format_args!("a=extmap:{id} {TRANSPORT_SEQUENCE_URI}"))?;
        }
        Ok(())
    }

    fn source_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Source {
            ssrc,
            rtx_ssrc,
            parity_ssrc,
            probe_ssrc,
            cname,
        }) = &self.source
        else {
            return Ok(());
        };
        let cname = cname.as_str();
        if let Some(rtx) = rtx_ssrc {
            line(f, format_args!("a=ssrc-group:FID {ssrc} {rtx}"))?;
        }
        if let Some(parity) = parity_ssrc {
            // RFC 5956 section 4.3.
            line(f, format_args!("a=ssrc-group:FEC-FR {ssrc} {parity}"))?;
        }
        if let Some(probe) = probe_ssrc {
            // Unknown semantics are ignored (RFC 5576 section 4.2).
            line(f, format_args!("a=ssrc-group:{PROBE_GROUP} {ssrc} {probe}"))?;
        }
        let others = rtx_ssrc.iter().chain(parity_ssrc).chain(probe_ssrc);
        for ssrc in [ssrc].into_iter().chain(others) {
            line(f, format_args!("a=ssrc:{ssrc} cname:{cname}"))?;
        }
        Ok(())
    }
}

/// Writes a line, which ends with CR LF.
fn line(f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>) -> fmt::Result {
    f.write_fmt(text)?;
    f.write_str("\r\n")
}

/// Frames per 1000 s, limited to 2³² - 1.
fn thousandths(rate: FrameRate) -> u32 {
    let den = u64::from(rate.den.max(1));
    // 2^32 times 1000 is far below 2^64.
    let nearest = (u64::from(rate.num) * 1000 + den / 2) / den;
    u32::try_from(nearest).unwrap_or(u32::MAX)
}

/// RTCP bandwidth of the senders in bit/s (RFC 3556): a sender report with its source description
/// every 100 ms.
const RTCP_SENDERS: u32 = 10_000;
/// RTCP bandwidth of the receivers in bit/s: about 20 receiver reports per second. The default, 5 %
/// of the session bandwidth, is unknown to a receiver of a stream at a variable rate.
const RTCP_RECEIVERS: u32 = 20_000;
/// Encoding name of parity packets. It is not registered.
const PARITY: &str = "x-reed-solomon";
/// Encoding name of probes, and semantics of their group. They are not registered.
const PROBE: &str = "x-probe";
const PROBE_GROUP: &str = "X-PROBE";
const SPS: u8 = 7;
const PPS: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_complete_description_is_as_expected() {
        //= rfc4585-4.1-profile (test)
        //= rfc4585-4.2-attribute (test)
        //= rfc4588-8.6-apt (test)
        //= rfc5506-5-rsize (test)
        //= rfc6184-8.1-mode (test)
        //= rfc6184-8.1-profile-level-id (test)
        //= rfc6184-8.1-sprop (test)
        //= rfc6184-8.2.1-rtpmap (test)
        //= rfc8888-6-sdp (test)
        let sdp = Sdp {
            session: 7,
            address: IpAddr::from([127, 0, 0, 1]),
            port: 5004,
            payload_type: PayloadType::new(96).unwrap(),
            rtx: PayloadType::new(97),
            parity: PayloadType::new(98),
            probe: PayloadType::new(99),
            parameter_sets: ParameterSets::new(&[0x67, 0x42, 0xc0, 0x1f, 0xda], &[0x68, 0xce]),
            frame_rate: Some(FrameRate {
                num: 30_000,
                den: 1001,
            }),
            source: Some(Source {
                ssrc: 1,
                rtx_ssrc: Some(2),
                parity_ssrc: Some(3),
                probe_ssrc: Some(4),
                cname: Cname::new("tide@gate").unwrap(),
            }),
            source_filter: vec![IpAddr::from([192, 0, 2, 1])],
            crypto: vec![],
            feedback: Feedback {
                nack: true,
                pli: true,
                ccfb: true,
                transport_cc: true,
            },
            rtcp_mux: true,
            rtcp_port: Some(5009),
            rtcp_reduced_size: true,
        };
        let expected = "v=0
o=- 7 0 IN IP4 127.0.0.1
s=Tidegate
c=IN IP4 127.0.0.1
t=0 0
m=video 5004 RTP/AVPF 96 97 98 99
b=RS:10000
b=RR:20000
a=rtpmap:96 H264/90000
a=fmtp:96 packetization-mode=1;profile-level-id=42c01f;sprop-parameter-sets=Z0LAH9o=,aM4=
a=rtpmap:97 rtx/90000
a=fmtp:97 apt=96
a=rtpmap:98 x-reed-solomon/90000
a=rtpmap:99 x-probe/90000
a=framerate:29.970
a=source-filter: incl IN IP4 * 192.0.2.1
a=rtcp-mux
a=rtcp:5009
a=rtcp-rsize
a=rtcp-fb:96 nack
a=rtcp-fb:96 nack pli
a=rtcp-fb:* ack ccfb
a=rtcp-fb:* transport-cc
a=extmap:1 http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01
a=ssrc-group:FID 1 2
a=ssrc-group:FEC-FR 1 3
a=ssrc-group:X-PROBE 1 4
a=ssrc:1 cname:tide@gate
a=ssrc:2 cname:tide@gate
a=ssrc:3 cname:tide@gate
a=ssrc:4 cname:tide@gate
";
        assert_eq!(sdp.to_string(), expected.replace('\n', "\r\n"));
        let back = Sdp::parse(expected).unwrap();
        assert_eq!(
            back.frame_rate,
            Some(FrameRate {
                num: 2997,
                den: 100
            })
        );
        assert_eq!(
            Sdp {
                frame_rate: sdp.frame_rate,
                ..back
            },
            sdp
        );
    }

    #[test]
    fn keys_select_the_secure_profile_and_are_not_logged() {
        let plain = "v=0\no=- 7 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n\
                     m=video 5004 RTP/AVP 32\n";
        let mut sdp = Sdp::parse(plain).unwrap();
        for suite in CryptoSuite::ALL {
            let key = (0..(suite.key_len() + suite.salt_len()) as u8).collect();
            sdp.crypto.extend(Crypto::new(suite, key));
        }
        let text = sdp.to_string();
        assert!(text.contains("m=video 5004 RTP/SAVP 32\r\n"), "{text}");
        let line = "a=crypto:4 AES_CM_128_HMAC_SHA1_80 \
                    inline:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd\r\n";
        assert!(text.contains(line), "{text}");
        assert_eq!(Sdp::parse(&text), Ok(sdp.clone()));
        assert_eq!(sdp.crypto[1].key().len(), 32);
        assert_eq!(sdp.crypto[3].salt(), (16..30).collect::<Vec<u8>>());
        assert_eq!(Crypto::new(CryptoSuite::AeadAes128Gcm, vec![0; 30]), None);
        let shown = format!("{:?}", sdp.crypto[3]);
        assert_eq!(shown, "Crypto { suite: AesCm128HmacSha1_80, .. }");
    }

    #[test]
    fn mpeg_2_has_no_format_parameters() {
        let plain = "v=0\no=- 7 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n\
                     m=video 5004 RTP/AVP 32\n";
        let sdp = Sdp::parse(plain).unwrap();
        assert_eq!(sdp.payload_type, crate::wire::mpeg2::PAYLOAD_TYPE);
        let text = sdp.to_string();
        assert!(
            text.contains("a=rtpmap:32 MPV/90000\r\n") && !text.contains("fmtp"),
            "{text}"
        );
        assert_eq!(Sdp::parse(&text), Ok(sdp));
    }

    #[test]
    fn parameter_sets_of_wrong_type_or_length_are_rejected() {
        assert_eq!(ParameterSets::new(&[0x67, 1, 2], &[0x68, 1]), None);
        assert_eq!(ParameterSets::new(&[0x68, 1, 2, 3], &[0x68, 1]), None);
        assert_eq!(ParameterSets::new(&[0x67, 1, 2, 3], &[0x68]), None);
        let sets = ParameterSets::new(&[0x67, 1, 2, 3], &[0x68, 1]).unwrap();
        assert_eq!(
            (sets.sps(), sets.pps()),
            (&[0x67, 1, 2, 3][..], &[0x68, 1][..])
        );
    }
}
