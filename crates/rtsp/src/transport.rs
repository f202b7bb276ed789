//! Choice of a transport from a `Transport` header (RFC 2326 section 12.39).

use core::net::IpAddr;

/// Ports of the client, on the host of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPorts {
    /// Port of RTP.
    pub rtp: u16,
    /// Port of RTCP.
    pub rtcp: u16,
    /// Profile of RTP.
    pub profile: Profile,
}

/// Channels of RTP and RTCP in the connection of the client (RFC 2326 section 10.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Channel of RTP.
    pub rtp: u8,
    /// Channel of RTCP.
    pub rtcp: u8,
    /// Profile of RTP.
    pub profile: Profile,
}

/// Way of a stream to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientTransport {
    /// Over UDP.
    Udp(ClientPorts),
    /// Interleaved in the connection of the client.
    Interleaved(Channels),
}

/// Profiles of RTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// RTP/AVP (RFC 3551).
    Avp,
    /// RTP/AVPF (RFC 4585).
    Avpf,
}

impl Profile {
    /// Name in the header.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Avp => "RTP/AVP",
            Self::Avpf => "RTP/AVPF",
        }
    }
}

/// Reason why no transport of a header is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// No transport is RTP over UDP unicast with ports of the client, or interleaved.
    Unsupported,
    /// The media would go to another host than that of the connection.
    OtherDestination,
}

/// Chooses the first supported transport: RTP over UDP unicast to ports of the client's host, or
/// interleaved in the connection. Channels in `taken` are replaced by others.
///
/// # Errors
/// If there is none.
pub fn choose_transport(
    header: &str,
    client: IpAddr,
    taken: &[Channels],
) -> Result<ClientTransport, TransportError> {
    let mut error = TransportError::Unsupported;
    for transport in header.split(',') {
        match parse(transport, client, taken) {
            Ok(chosen) => return Ok(chosen),
            Err(TransportError::OtherDestination) => error = TransportError::OtherDestination,
            Err(TransportError::Unsupported) => {}
        }
    }
    Err(error)
}

fn parse(
    transport: &str,
    client: IpAddr,
    taken: &[Channels],
) -> Result<ClientTransport, TransportError> {
    let mut parts = transport.split(';').map(str::trim);
    let (profile, is_tcp) = match parts.next().unwrap_or_default() {
        "RTP/AVP" | "RTP/AVP/UDP" => (Profile::Avp, false),
        "RTP/AVPF" | "RTP/AVPF/UDP" => (Profile::Avpf, false),
        "RTP/AVP/TCP" => (Profile::Avp, true),
        "RTP/AVPF/TCP" => (Profile::Avpf, true),
        _ => return Err(TransportError::Unsupported),
    };
    let (mut ports, mut channels) = (None, None);
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.to_ascii_lowercase().as_str() {
            "client_port" => ports = ports_of(value),
            "interleaved" if is_tcp => {
                channels = Some(channels_of(value).ok_or(TransportError::Unsupported)?);
            }
            "destination" if value.parse().ok() != Some(client) => {
                return Err(TransportError::OtherDestination);
            }
            "mode" if !value.trim_matches('"').eq_ignore_ascii_case("play") => {
                return Err(TransportError::Unsupported);
            }
            // Many clients omit `unicast`. Ports of the client, or channels, imply it.
            "multicast" | "interleaved" => return Err(TransportError::Unsupported),
            _ => {}
        }
    }
    if !is_tcp {
        let (rtp, rtcp) = ports.ok_or(TransportError::Unsupported)?;
        return Ok(ClientTransport::Udp(ClientPorts { rtp, rtcp, profile }));
    }
    let is_free = |wanted: &(u8, u8)| {
        let used = taken.iter().flat_map(|taken| [taken.rtp, taken.rtcp]);
        used.into_iter()
            .all(|used| used != wanted.0 && used != wanted.1)
    };
    let others = (0..=254).step_by(2).map(|rtp| (rtp, rtp + 1));
    let mut choices = channels.into_iter().chain(others);
    let (rtp, rtcp) = choices.find(is_free).ok_or(TransportError::Unsupported)?;
    Ok(ClientTransport::Interleaved(Channels {
        rtp,
        rtcp,
        profile,
    }))
}

/// Two different channels; RTCP is on the next one by default.
fn channels_of(text: &str) -> Option<(u8, u8)> {
    let (rtp, rtcp) = text.split_once('-').unwrap_or((text, ""));
    let rtp: u8 = rtp.parse().ok()?;
    let rtcp = match rtcp {
        "" => rtp.checked_add(1)?,
        rtcp => rtcp.parse().ok()?,
    };
    (rtp != rtcp).then_some((rtp, rtcp))
}

/// Two different ports; RTCP is at the next one by default.
fn ports_of(text: &str) -> Option<(u16, u16)> {
    let (rtp, rtcp) = text.split_once('-').unwrap_or((text, ""));
    let rtp: u16 = rtp.parse().ok()?;
    let rtcp = match rtcp {
        "" => rtp.checked_add(1)?,
        rtcp => rtcp.parse().ok()?,
    };
    (rtp != 0 && rtcp != 0 && rtp != rtcp).then_some((rtp, rtcp))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(core::net::Ipv4Addr::LOCALHOST);

    fn udp(rtp: u16, rtcp: u16, profile: Profile) -> ClientTransport {
        ClientTransport::Udp(ClientPorts { rtp, rtcp, profile })
    }

    fn interleaved(rtp: u8, rtcp: u8, profile: Profile) -> ClientTransport {
        ClientTransport::Interleaved(Channels { rtp, rtcp, profile })
    }

    #[test]
    fn the_first_supported_transport_is_chosen() {
        use Profile::{Avp, Avpf};
        for (header, chosen) in [
            (
                "RTP/AVP;unicast;client_port=5000-5001",
                udp(5_000, 5_001, Avp),
            ),
            ("RTP/AVP;client_port=5000-5001", udp(5_000, 5_001, Avp)),
            (
                "RTP/SAVP;unicast;client_port=3-4, RTP/AVP;multicast;port=5-6,\
                 RTP/AVPF/UDP;unicast;client_port=7;mode=\"PLAY\"",
                udp(7, 8, Avpf),
            ),
            (
                "RTP/AVP;unicast;destination=127.0.0.1;client_port=7-9",
                udp(7, 9, Avp),
            ),
            (
                "RTP/AVP/TCP;unicast;interleaved=0-1, RTP/AVP;unicast;client_port=7-8",
                interleaved(0, 1, Avp),
            ),
            (
                "RTP/AVP;unicast;client_port=7-8,RTP/AVP/TCP;interleaved=0-1",
                udp(7, 8, Avp),
            ),
            ("RTP/AVPF/TCP;interleaved=9", interleaved(9, 10, Avpf)),
            ("RTP/AVP/TCP;unicast", interleaved(0, 1, Avp)),
        ] {
            assert_eq!(
                choose_transport(header, CLIENT, &[]),
                Ok(chosen),
                "{header}"
            );
        }
    }

    #[test]
    fn each_stream_has_its_own_channels() {
        let channels = |rtp, rtcp| Channels {
            rtp,
            rtcp,
            profile: Profile::Avp,
        };
        let taken = [channels(0, 1), channels(3, 2)];
        let chosen = |header| choose_transport(header, CLIENT, &taken);
        let is = |rtp, rtcp| Ok(interleaved(rtp, rtcp, Profile::Avp));
        assert_eq!(chosen("RTP/AVP/TCP;interleaved=1-2"), is(4, 5));
        assert_eq!(chosen("RTP/AVP/TCP;interleaved=8-9"), is(8, 9));
        let all: Vec<Channels> = (0..=127).map(|n| channels(2 * n, 2 * n + 1)).collect();
        let none = choose_transport("RTP/AVP/TCP", CLIENT, &all);
        assert_eq!(none, Err(TransportError::Unsupported));
    }

    #[test]
    fn other_transports_and_other_hosts_are_refused() {
        for unsupported in [
            "",
            "RTP/AVP/TCP;unicast;interleaved=0-256",
            "RTP/AVP/TCP;unicast;interleaved=5-5",
            "RTP/AVP/TCP;unicast;interleaved=255",
            "RTP/AVP;unicast;interleaved=0-1",
            "RTP/AVP;multicast;port=5000-5001",
            "RTP/AVP;unicast",
            "RTP/AVP;unicast;client_port=0-1",
            "RTP/AVP;unicast;client_port=65535",
            "RTP/AVP;unicast;client_port=99999-1",
            "RTP/AVP;unicast;client_port=5-5",
            "RTP/AVP;unicast;client_port=5000-5001;mode=record",
            "RTP/AVP;unicast;client_port=5000-5001;mode=\"",
            "RTP/SAVP;unicast;client_port=5000-5001",
        ] {
            let chosen = choose_transport(unsupported, CLIENT, &[]);
            assert_eq!(chosen, Err(TransportError::Unsupported), "{unsupported}");
        }
        for other in ["192.0.2.7", "localhost", ""] {
            let header = format!("RTP/AVP;unicast;destination={other};client_port=5000-5001");
            let chosen = choose_transport(&header, CLIENT, &[]);
            assert_eq!(chosen, Err(TransportError::OtherDestination), "{header}");
        }
    }
}
