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
    /// No transport is RTP over UDP unicast with ports of the client.
    Unsupported,
    /// The media would go to another host than that of the connection.
    OtherDestination,
}

/// Chooses the first supported transport: RTP over UDP unicast to ports of the client's host.
///
/// # Errors
/// If there is none.
pub fn choose_transport(header: &str, client: IpAddr) -> Result<ClientPorts, TransportError> {
    let mut error = TransportError::Unsupported;
    for transport in header.split(',') {
        match parse(transport, client) {
            Ok(ports) => return Ok(ports),
            Err(TransportError::OtherDestination) => error = TransportError::OtherDestination,
            Err(TransportError::Unsupported) => {}
        }
    }
    Err(error)
}

fn parse(transport: &str, client: IpAddr) -> Result<ClientPorts, TransportError> {
    let mut parts = transport.split(';').map(str::trim);
    let profile = match parts.next().unwrap_or_default() {
        "RTP/AVP" | "RTP/AVP/UDP" => Profile::Avp,
        "RTP/AVPF" | "RTP/AVPF/UDP" => Profile::Avpf,
        _ => return Err(TransportError::Unsupported),
    };
    let (mut ports, mut is_unicast) = (None, false);
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.to_ascii_lowercase().as_str() {
            "unicast" => is_unicast = true,
            "client_port" => ports = ports_of(value),
            "destination" if value.parse().ok() != Some(client) => {
                return Err(TransportError::OtherDestination);
            }
            "mode" if !value.trim_matches('"').eq_ignore_ascii_case("play") => {
                return Err(TransportError::Unsupported);
            }
            "multicast" | "interleaved" => return Err(TransportError::Unsupported),
            _ => {}
        }
    }
    let (rtp, rtcp) = ports
        .filter(|_| is_unicast)
        .ok_or(TransportError::Unsupported)?;
    Ok(ClientPorts { rtp, rtcp, profile })
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

    #[test]
    fn the_first_supported_transport_is_chosen() {
        let ports = |rtp, rtcp, profile| Ok(ClientPorts { rtp, rtcp, profile });
        for (header, chosen) in [
            (
                "RTP/AVP;unicast;client_port=5000-5001",
                ports(5_000, 5_001, Profile::Avp),
            ),
            (
                "RTP/AVP/TCP;unicast;interleaved=0-1, RTP/AVPF/UDP;unicast;client_port=7;mode=\"PLAY\"",
                ports(7, 8, Profile::Avpf),
            ),
            (
                "RTP/AVP;unicast;destination=127.0.0.1;client_port=7-9",
                ports(7, 9, Profile::Avp),
            ),
        ] {
            assert_eq!(choose_transport(header, CLIENT), chosen, "{header}");
        }
    }

    #[test]
    fn other_transports_and_other_hosts_are_refused() {
        for unsupported in [
            "",
            "RTP/AVP/TCP;unicast;interleaved=0-1",
            "RTP/AVP;multicast;port=5000-5001",
            "RTP/AVP;unicast",
            "RTP/AVP;client_port=5000-5001",
            "RTP/AVP;unicast;client_port=0-1",
            "RTP/AVP;unicast;client_port=65535",
            "RTP/AVP;unicast;client_port=99999-1",
            "RTP/AVP;unicast;client_port=5-5",
            "RTP/AVP;unicast;client_port=5000-5001;mode=record",
            "RTP/AVP;unicast;client_port=5000-5001;mode=\"",
            "RTP/SAVP;unicast;client_port=5000-5001",
        ] {
            let chosen = choose_transport(unsupported, CLIENT);
            assert_eq!(chosen, Err(TransportError::Unsupported), "{unsupported}");
        }
        for other in ["192.0.2.7", "localhost", ""] {
            let header = format!("RTP/AVP;unicast;destination={other};client_port=5000-5001");
            let chosen = choose_transport(&header, CLIENT);
            assert_eq!(chosen, Err(TransportError::OtherDestination), "{header}");
        }
    }
}
