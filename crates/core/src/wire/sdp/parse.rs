//! Parser for session descriptions.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use super::super::{base64, mpeg2, payload, rtcp::Cname, rtp::PayloadType};
use super::{
    Crypto, CryptoSuite, Feedback, PARITY, PPS, PROBE, PROBE_GROUP, ParameterSets, SPS, Sdp, Source,
};
use crate::media::{Codec, FrameRate};

impl Sdp {
    /// Parses the first video section of a description: MPEG-2, or H.264 in packetisation mode 0 or
    /// 1. Irrelevant lines are skipped.
    ///
    /// # Errors
    /// Names the invalid or missing line, and its expected content.
    pub fn parse(text: &str) -> Result<Self, SdpError> {
        let lines = Lines::of(text)?;
        let connection = lines.required("c=")?;
        let media = lines.required("m=video")?;
        let (port, formats) = port_and_formats(media)?;
        let payload_type =
            lines.format_of("H264", &formats, |format| Ok(format != mpeg2::PAYLOAD_TYPE))?;
        // MPEG video has a static payload type, which needs no rtpmap.
        let mpeg2 = formats.iter().copied().find(|f| *f == mpeg2::PAYLOAD_TYPE);
        let payload_type = payload_type.or(mpeg2).ok_or(lines.unsupported())?;
        let of_media = payload_type.get().to_string();
        let parameter_sets = match payload::codec(payload_type) {
            Codec::H264 => {
                lines.check_mode(payload_type)?;
                lines.parameter_sets(payload_type)
            }
            Codec::Mpeg2 => None,
        };
        let rtx = lines.format_of("rtx", &formats, |rtx| {
            //= rfc4588-8.6-apt
            Ok(lines
                .parameter(rtx, "apt")
                .is_some_and(|apt| apt.value == of_media))
        })?;
        Ok(Self {
            session: lines.session()?,
            address: address(connection)?,
            port,
            payload_type,
            rtx,
            parity: lines.format_of(PARITY, &formats, |_| Ok(true))?,
            probe: lines.format_of(PROBE, &formats, |_| Ok(true))?,
            parameter_sets,
            frame_rate: lines.attribute("framerate").map(frame_rate).transpose()?,
            source: lines.source()?,
            source_filter: lines.source_filter()?,
            crypto: lines.crypto(media)?,
            feedback: lines.feedback(&of_media),
            rtcp_mux: lines.attribute("rtcp-mux").is_some(),
            rtcp_port: lines.rtcp_port()?,
            rtcp_reduced_size: lines.attribute("rtcp-rsize").is_some(),
        })
    }
}

/// The relevant lines: session level and first video section.
struct Lines<'a>(Vec<Line<'a>>);

#[derive(Clone, Copy)]
struct Line<'a> {
    /// Line number, starting at 1.
    number: usize,
    /// `"m=video"`, `"c="`, ..., or the name of an attribute.
    key: &'a str,
    value: &'a str,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Result<Self, SdpError> {
        let (mut kept, mut inside, mut seen) = (Vec::new(), true, false);
        for (index, text) in text.lines().enumerate() {
            let number = index + 1;
            if text.is_empty() {
                continue;
            }
            let line = Line {
                number,
                key: "",
                value: text,
            };
            if text.as_bytes().get(1) != Some(&b'=') {
                return Err(line.wrong(SdpFault::NoType));
            }
            if let Some(media) = text.strip_prefix("m=") {
                inside = !seen && media.starts_with("video ");
                seen |= inside;
            }
            if inside && let Some((key, value)) = split(text) {
                kept.push(Line { number, key, value });
            }
        }
        Ok(Self(kept))
    }

    /// The last line with this key: the media level overrides the session level.
    fn required(&self, key: &'static str) -> Result<Line<'a>, SdpError> {
        let found = self.0.iter().rfind(|line| line.key == key);
        found.copied().ok_or(SdpError::Missing { what: key })
    }

    fn attributes(&self, name: &'static str) -> impl Iterator<Item = Line<'a>> {
        self.0.iter().copied().filter(move |line| line.key == name)
    }

    fn attribute(&self, name: &'static str) -> Option<Line<'a>> {
        self.attributes(name).next()
    }

    /// The first of the formats that is mapped to `encoding` and that `is_it` accepts.
    fn format_of(
        &self,
        encoding: &str,
        formats: &[PayloadType],
        accepts: impl Fn(PayloadType) -> Result<bool, SdpError>,
    ) -> Result<Option<PayloadType>, SdpError> {
        for line in self.attributes("rtpmap") {
            let format = line
                .word(0)
                .and_then(payload_type)
                .ok_or(line.wrong(SdpFault::PayloadType))?;
            let mut map = line.word(1).unwrap_or_default().split('/');
            let named = map
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case(encoding));
            if !named || !formats.contains(&format) || !accepts(format)? {
                continue;
            }
            //= rfc6184-8.2.1-rtpmap
            if map.next() != Some("90000") {
                return Err(line.wrong(SdpFault::ClockRate));
            }
            return Ok(Some(format));
        }
        Ok(None)
    }

    /// Error for a description without a supported format.
    fn unsupported(&self) -> SdpError {
        let maps = self.attributes("rtpmap");
        let mut encodings = maps.filter_map(|line| Some((line, line.word(1)?)));
        let is_h265 =
            |(_, encoding): &(_, &str)| encoding.to_ascii_uppercase().starts_with("H265/");
        encodings.find(is_h265).map_or(
            SdpError::Missing {
                what: "a=rtpmap of H264/90000 or payload type 32",
            },
            |(line, _)| line.wrong(SdpFault::H265),
        )
    }

    /// A format parameter, as a line with the parameter's value.
    fn parameter(&self, format: PayloadType, name: &str) -> Option<Line<'a>> {
        self.attributes("fmtp").find_map(|line| {
            let (number, parameters) = line.value.split_once(' ')?;
            let value = parameters.split(';').find_map(|parameter| {
                let (key, value) = parameter.trim().split_once('=')?;
                key.eq_ignore_ascii_case(name).then_some(value)
            })?;
            (payload_type(number) == Some(format)).then_some(Line { value, ..line })
        })
    }

    fn check_mode(&self, format: PayloadType) -> Result<(), SdpError> {
        //= rfc6184-8.1-mode
        match self.parameter(format, "packetization-mode") {
            Some(mode) if !matches!(mode.value, "0" | "1") => {
                Err(mode.wrong(SdpFault::PacketisationMode))
            }
            _ => Ok(()),
        }
    }

    /// Session identifier. Some cameras send no origin.
    fn session(&self) -> Result<u64, SdpError> {
        let Some(origin) = self.attribute("o=") else {
            return Ok(0);
        };
        let session = origin.word(1).and_then(parsed);
        session.ok_or(origin.wrong(SdpFault::Origin))
    }

    /// Parameter sets, if they are valid: cameras that write broken ones have them in the stream.
    fn parameter_sets(&self, format: PayloadType) -> Option<ParameterSets> {
        //= rfc6184-8.1-sprop
        let line = self.parameter(format, "sprop-parameter-sets")?;
        let units = line.value.split(',').filter(|unit| !unit.is_empty());
        let units: Option<Vec<_>> = units.map(base64::decode).collect();
        let mut units = units?;
        let mut take = |kind| {
            let is_kind = |unit: &Vec<u8>| unit.first().is_some_and(|first| first & 0x1f == kind);
            units.iter().position(is_kind).map(|at| units.remove(at))
        };
        // Sets of one kind only are useless without those of the stream.
        let (sps, pps) = (take(SPS)?, take(PPS)?);
        let sets = ParameterSets::new(&sps, &pps)?;
        Some(sets.with_others(units))
    }

    fn source(&self) -> Result<Option<Source>, SdpError> {
        let group = self.ssrc_group("FID")?;
        let parity = self.ssrc_group("FEC-FR")?;
        let probe = self.ssrc_group(PROBE_GROUP)?;
        for line in self.attributes("ssrc") {
            let ssrc: u32 = line
                .word(0)
                .and_then(parsed)
                .ok_or(line.wrong(SdpFault::Ssrc))?;
            let Some((_, cname)) = line.value.split_once(" cname:") else {
                continue;
            };
            if group.is_some_and(|(media, _)| media != ssrc) {
                continue;
            }
            let cname = Cname::new(cname).ok_or(line.wrong(SdpFault::Cname))?;
            return Ok(Some(Source {
                ssrc,
                rtx_ssrc: group.map(|(_, rtx)| rtx),
                parity_ssrc: parity
                    .filter(|(media, _)| *media == ssrc)
                    .map(|(_, own)| own),
                probe_ssrc: probe
                    .filter(|(media, _)| *media == ssrc)
                    .map(|(_, own)| own),
                cname,
            }));
        }
        Ok(None)
    }

    /// The first two SSRCs of a group (RFC 5576 section 4.2).
    fn ssrc_group(&self, semantics: &str) -> Result<Option<(u32, u32)>, SdpError> {
        let mut groups = self.attributes("ssrc-group");
        let Some(line) = groups.find(|line| line.word(0) == Some(semantics)) else {
            return Ok(None);
        };
        match (line.word(1).and_then(parsed), line.word(2).and_then(parsed)) {
            (Some(media), Some(other)) => Ok(Some((media, other))),
            _ => Err(line.wrong(SdpFault::Ssrc)),
        }
    }

    /// Addresses of the lines that include sources.
    fn source_filter(&self) -> Result<Vec<IpAddr>, SdpError> {
        let mut sources = Vec::new();
        for line in self.attributes("source-filter") {
            let wrong = line.wrong(SdpFault::SourceFilter);
            let mut words = line.value.split_ascii_whitespace();
            if words.next() != Some("incl") {
                return Err(wrong);
            }
            // Network type, address type and destination.
            for source in words.skip(3) {
                sources.push(parsed(source).ok_or(wrong)?);
            }
        }
        Ok(sources)
    }

    /// Supported keys, in the order of the lines. A secure profile needs at least one, and a wrong line
    /// is an error if no other one has a key.
    fn crypto(&self, media: Line<'_>) -> Result<Vec<Crypto>, SdpError> {
        let (mut keys, mut fault) = (Vec::new(), None);
        for line in self.attributes("crypto") {
            let name = line.word(1).unwrap_or_default();
            let suite = CryptoSuite::ALL.into_iter().find(|s| s.name() == name);
            // A session parameter that is not marked as optional must be understood (RFC 4568
            // section 6.3.8); none is.
            let is_plain = line.word(3).is_none_or(|option| option.starts_with('-'));
            let Some(suite) = suite.filter(|_| is_plain) else {
                continue;
            };
            match key(suite, line) {
                Ok(key) => keys.push(key),
                Err(wrong) => fault = fault.or(Some(wrong)),
            }
        }
        if let Some(fault) = fault.filter(|_| keys.is_empty()) {
            return Err(fault);
        }
        let is_secure = media.word(1).is_some_and(|word| word.contains("/SAVP"));
        if is_secure && keys.is_empty() {
            return Err(SdpError::Missing {
                what: "a=crypto of a supported suite",
            });
        }
        Ok(keys)
    }

    /// An address that may follow the port is not supported, and ignored.
    fn rtcp_port(&self) -> Result<Option<u16>, SdpError> {
        let line = self.attribute("rtcp");
        line.map(|line| {
            let port = line.word(0).and_then(parsed);
            port.ok_or(line.wrong(SdpFault::Port))
        })
        .transpose()
    }

    fn feedback(&self, of_media: &str) -> Feedback {
        let offers = |what: &str| {
            self.attributes("rtcp-fb").any(|line| {
                //= rfc4585-4.2-attribute
                line.value.split_once(' ').is_some_and(|(format, offer)| {
                    (format == of_media || format == "*") && offer.trim_end() == what
                })
            })
        };
        Feedback {
            nack: offers("nack"),
            pli: offers("nack pli"),
            ccfb: offers("ack ccfb"),
            transport_cc: offers("transport-cc"),
        }
    }
}

impl<'a> Line<'a> {
    fn word(&self, index: usize) -> Option<&'a str> {
        self.value.split_ascii_whitespace().nth(index)
    }

    fn wrong(&self, fault: SdpFault) -> SdpError {
        SdpError::Line {
            number: self.number,
            fault,
        }
    }
}

/// Reason why a text is not a usable session description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SdpError {
    /// A line is invalid.
    #[error("line {number} of the session description: {fault}")]
    Line {
        /// Line number, starting at 1.
        number: usize,
        /// The fault of the line.
        fault: SdpFault,
    },
    /// A line is missing.
    #[error("the session description has no line {what}")]
    Missing {
        /// How the line begins.
        what: &'static str,
    },
}

/// The fault of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SdpFault {
    /// The connection has no IP address.
    Address,
    /// The clock rate is not 90,000 Hz.
    ClockRate,
    /// The canonical name is empty, too long or contains control characters.
    Cname,
    /// The key is not base64, or has another length than its suite.
    Crypto,
    /// The frame rate is not a decimal number.
    FrameRate,
    /// The stream is H.265.
    H265,
    /// The key has an identifier (MKI).
    KeyIdentifier,
    /// The line does not begin with a letter and an equals sign.
    NoType,
    /// The origin has no numeric session identifier.
    Origin,
    /// The packetisation mode is interleaved.
    PacketisationMode,
    /// The payload type is not in 0..=127.
    PayloadType,
    /// The UDP port is invalid.
    Port,
    /// The transport is none of RTP/AVP, RTP/AVPF, RTP/SAVP and RTP/SAVPF.
    Protocol,
    /// The source filter does not list addresses that are included.
    SourceFilter,
    /// The SSRC is not a 32-bit number.
    Ssrc,
}

impl fmt::Display for SdpFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "write the address as IN IP4 or IN IP6 and a number, not a name",
            Self::ClockRate => "the clock rate must be 90000",
            Self::Cname => "the canonical name must have 1 to 255 bytes and no control characters",
            Self::Crypto => {
                "the key must be inline: and base64 of the suite's length"
            }
            Self::FrameRate => "the frame rate must be a decimal number such as 29.97",
            Self::H265 => "H.265 is not supported: have the sender encode H.264",
            Self::KeyIdentifier => {
                "keys with an identifier (MKI) are not supported: remove |NUMBER:LENGTH here and at \
                the sender"
            }
            Self::NoType => "a line must begin with a letter and =",
            Self::Origin => "the second word of the origin must be a number below 2^64",
            Self::PacketisationMode => {
                "packetization-mode must be 0 or 1: configure the sender for one of them"
            }
            Self::PayloadType => "a payload type must be a number from 0 to 127",
            Self::Port => "the port must be a number from 0 to 65535, with a count of 1 at most",
            Self::Protocol => "the transport must be RTP/AVP, RTP/AVPF, RTP/SAVP or RTP/SAVPF",
            Self::SourceFilter => "a source filter must be incl, and list numeric addresses",
            Self::Ssrc => "a source identifier must be a number below 2^32",
        })
    }
}

/// Key and value of a relevant line.
fn split(text: &str) -> Option<(&str, &str)> {
    if let Some(attribute) = text.strip_prefix("a=") {
        return Some(attribute.split_once(':').unwrap_or((attribute, "")));
    }
    ["m=video", "c=", "o="]
        .into_iter()
        .find_map(|key| text.strip_prefix(key).map(|value| (key, value)))
}

/// Key of an `a=crypto` line.
fn key(suite: CryptoSuite, line: Line<'_>) -> Result<Crypto, SdpError> {
    let wrong = line.wrong(SdpFault::Crypto);
    let inline = line.word(2).and_then(|word| word.strip_prefix("inline:"));
    let mut parts = inline.ok_or(wrong)?.split('|');
    let key = parts.next().and_then(base64::decode).ok_or(wrong)?;
    // A lifetime may follow, but no key identifier, which would extend each packet.
    if parts.any(|part| part.contains([':', ';'])) {
        return Err(line.wrong(SdpFault::KeyIdentifier));
    }
    Crypto::new(suite, key).ok_or(wrong)
}

fn port_and_formats(media: Line<'_>) -> Result<(u16, Vec<PayloadType>), SdpError> {
    // One port may be counted.
    let port = media
        .word(0)
        .map(|word| word.strip_suffix("/1").unwrap_or(word))
        .and_then(parsed)
        .ok_or(media.wrong(SdpFault::Port))?;
    if !matches!(
        media.word(1),
        Some("RTP/AVP" | "RTP/AVPF" | "RTP/SAVP" | "RTP/SAVPF")
    ) {
        return Err(media.wrong(SdpFault::Protocol));
    }
    let formats = media
        .value
        .split_ascii_whitespace()
        .skip(2)
        .map(payload_type);
    let formats = formats
        .collect::<Option<_>>()
        .ok_or(media.wrong(SdpFault::PayloadType))?;
    Ok((port, formats))
}

fn address(line: Line<'_>) -> Result<IpAddr, SdpError> {
    // A slash may be followed by the TTL and the number of multicast groups.
    let text = line.word(2).and_then(|word| word.split('/').next());
    let address: Option<IpAddr> = text.and_then(parsed);
    let kind = (line.word(0), line.word(1));
    match address {
        Some(address @ IpAddr::V4(_)) if kind == (Some("IN"), Some("IP4")) => Ok(address),
        Some(address @ IpAddr::V6(_)) if kind == (Some("IN"), Some("IP6")) => Ok(address),
        _ => Err(line.wrong(SdpFault::Address)),
    }
}

/// Frame rate to three decimals; further digits are dropped.
fn frame_rate(line: Line<'_>) -> Result<FrameRate, SdpError> {
    let wrong = line.wrong(SdpFault::FrameRate);
    let value = line.value.trim();
    let (whole, part) = value.split_once('.').unwrap_or((value, "0"));
    if part.is_empty() || !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong);
    }
    let part: u32 = parsed(&format!("{part:0<3}")[..3]).ok_or(wrong)?;
    let whole: u32 = parsed(whole).ok_or(wrong)?;
    let thousandths = whole
        .checked_mul(1000)
        .and_then(|whole| whole.checked_add(part))
        .ok_or(wrong)?;
    let divisor = gcd(thousandths, 1000);
    Ok(FrameRate {
        num: thousandths / divisor,
        den: 1000 / divisor,
    })
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn payload_type(text: &str) -> Option<PayloadType> {
    parsed(text).and_then(PayloadType::new)
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

#[cfg(test)]
mod tests;
