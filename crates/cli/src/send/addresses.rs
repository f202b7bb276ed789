//! Resolves `HOST:PORT` and opens the sockets of a sender.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, Result, bail};
use tidegate_live::udp::{self, Socket};

use crate::lookup::{ADDRESS_ADVICE, host_and_port, refusing_last};

/// Sockets and address towards a receiver.
#[derive(Debug)]
pub(super) struct Route {
    /// Socket for RTP and RTCP; a socket on the same port for RTCP from other ports of the
    /// receiver's host; and the socket on the next port, where receivers without multiplexing send
    /// RTCP.
    pub(super) sockets: Vec<Socket>,
    /// Address of the receiver.
    pub(super) peer: SocketAddr,
}

/// Resolves the receiver's address and opens sockets towards it, from the port `local` or from any
/// even one.
///
/// # Errors
/// The address is invalid, the host is unknown, none of its addresses is reachable, or the port is
/// in use.
pub(super) fn resolve(to: &str, local: Option<u16>) -> Result<Route> {
    let mut addresses = host_and_port(to)?;
    addresses.retain(|address| address.port() != 0);
    let mut failure = None;
    for peer in refusing_last(addresses) {
        match connect(peer, local) {
            Ok(sockets) => return Ok(Route { sockets, peer }),
            Err(e) => failure = Some((peer, e)),
        }
    }
    match failure {
        Some((peer, e)) => Err(e).with_context(|| match local {
            Some(port) => format!(
                "cannot send to {peer} from port {port} with RTCP at {}: choose two free ports \
                     with --local-port, or check the route",
                port.saturating_add(1)
            ),
            None if needs_zone(peer) => format!(
                "{peer} is an address on a link: give its interface as well, as in \
                     [{}%eth0]:{}",
                peer.ip(),
                peer.port()
            ),
            None => format!("no socket towards {peer}: check the route to it"),
        }),
        None => bail!("\"{to}\" has no port to send to: {ADDRESS_ADVICE}"),
    }
}

/// Whether the address is one of a link, without its interface.
fn needs_zone(peer: SocketAddr) -> bool {
    matches!(peer, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

/// Checks that the target of a stream is no URL. The error has the address to give, or a command that
/// forwards the stream to the URL.
///
/// # Errors
/// `to` is a URL.
pub(crate) fn check_target(to: &str) -> Result<()> {
    let Some((scheme, rest)) = to.split_once("://") else {
        return Ok(());
    };
    let scheme = scheme.to_ascii_lowercase();
    let format = match scheme.as_str() {
        "rtp" | "srtp" | "udp" | "tcp" => {
            let address = rest.split(['/', '?']).next().unwrap_or(rest);
            let transport = if scheme == "tcp" {
                "--transport tcp "
            } else {
                ""
            };
            bail!("\"{to}\" is a URL, and --to is an address: give {transport}--to {address}");
        }
        "rtmp" | "rtmps" => "flv",
        "rtsp" | "rtsps" => "rtsp",
        _ => "mpegts",
    };
    bail!(
        "\"{to}\": streams are sent over RTP or TCP, not over {scheme}: send to a receiver on this \
        host (--to 127.0.0.1:5004) that forwards the stream through ffmpeg, without rate control \
        on the path behind it: `tidegate recv --listen 127.0.0.1:5004 --out - | ffmpeg -f h264 -i \
        - -c copy -f {format} \"{to}\"`"
    )
}

/// Sockets on a pair of ports, with an even lower port (RFC 3550 section 11) unless `local` is given.
fn connect(peer: SocketAddr, local: Option<u16>) -> io::Result<Vec<Socket>> {
    let any: SocketAddr = if peer.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let (media, control) = udp::bind_pair(any.ip(), local, udp::bind_shared)?;
    // The port is shared after it is connected: until then, all sockets get datagrams of the peer.
    let address = (any.ip(), media.local_addr()?.port()).into();
    let media = Socket::connected(media, peer)?;
    let others = udp::bind_shared(address)?;
    Ok(vec![
        media,
        Socket::from_host(others, peer.ip())?,
        Socket::from_host(control, peer.ip())?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_port_of_a_pair_is_even() {
        let route = resolve("127.0.0.1:5004", None).unwrap();
        assert_eq!(route.peer, "127.0.0.1:5004".parse().unwrap());
        let ports = route.sockets.iter().map(|s| s.local_addr().unwrap().port());
        let ports: Vec<_> = ports.collect();
        assert_eq!(
            (ports[0] % 2, &ports[1..]),
            (0, &[ports[0], ports[0] + 1][..])
        );
        let again = resolve("127.0.0.1:5004", Some(ports[0])).unwrap_err();
        let text = format!("{again:#}");
        assert!(text.contains("--local-port"), "{text}");
        drop(route);
        let route = resolve("127.0.0.1:5004", Some(ports[0])).unwrap();
        let port = route.sockets[0].local_addr().unwrap().port();
        assert_eq!(port, ports[0]);
    }

    #[test]
    fn a_url_is_refused_with_the_way_to_send_there() {
        for (url, words) in [
            (
                "srt://192.0.2.7:9000?mode=caller",
                "-f mpegts \"srt://192.0.2.7:9000?mode=caller\"",
            ),
            (
                "rtmp://example.org/live/key",
                "-f flv \"rtmp://example.org/live/key\"",
            ),
            (
                "RTSP://example.org/live",
                "-f rtsp \"RTSP://example.org/live\"",
            ),
            ("http://example.org/in.ts", "not over http: "),
            ("rtp://192.0.2.7:5004", "give --to 192.0.2.7:5004"),
            (
                "udp://192.0.2.7:5004?pkt_size=1316",
                "give --to 192.0.2.7:5004",
            ),
            (
                "tcp://192.0.2.7:5006",
                "give --transport tcp --to 192.0.2.7:5006",
            ),
        ] {
            let error = check_target(url).unwrap_err().to_string();
            assert!(error.contains(url) && error.contains(words), "{error}");
        }
        assert!(check_target("[2001:db8::7]:5004").is_ok());
    }

    #[test]
    fn an_invalid_address_is_named_with_the_fix() {
        for wrong in [
            "nowhere",
            "127.0.0.1",
            "127.0.0.1:0",
            "127.0.0.1:port",
            ":5004",
        ] {
            let error = format!("{:#}", resolve(wrong, None).unwrap_err());
            assert!(
                error.contains(wrong) && error.contains("HOST:PORT"),
                "{error}"
            );
        }
    }
}
