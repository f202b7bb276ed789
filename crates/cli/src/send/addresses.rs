//! Resolves `HOST:PORT` and opens the sockets of a sender.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use anyhow::{Context as _, Result, bail};
use tidegate_live::udp::{self, Socket};

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
    let fix = "give it as HOST:PORT, for example 192.0.2.7:5004 or [2001:db8::7]:5004";
    if !to.contains(':') {
        bail!("\"{to}\" has no port: {fix}");
    }
    let addresses = to
        .to_socket_addrs()
        .with_context(|| format!("\"{to}\" is not an address: {fix}"))?;
    let mut failure = None;
    for peer in addresses.filter(|address| address.port() != 0) {
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
            None => format!("no socket towards {peer}: check the route to it"),
        }),
        None => bail!("\"{to}\" has no port to send to: {fix}"),
    }
}

/// Sockets on a pair of ports, with an even lower port (RFC 3550 section 11) unless `local` is given.
fn connect(peer: SocketAddr, local: Option<u16>) -> io::Result<Vec<Socket>> {
    let any: SocketAddr = if peer.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let mut tries = 0;
    let (media, control) = loop {
        let media = udp::bind_shared((any.ip(), local.unwrap_or(0)).into())?;
        let port = media.local_addr()?.port();
        if local.is_some() || port.is_multiple_of(2) {
            let next = port.checked_add(1).ok_or(io::ErrorKind::AddrNotAvailable)?;
            match UdpSocket::bind((any.ip(), next)) {
                Ok(control) => break (media, control),
                Err(e) if local.is_some() || tries >= TRIES => return Err(e),
                Err(_) => {}
            }
        }
        tries += 1;
    };
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

/// Half of the free ports are odd, and few have their neighbour in use.
const TRIES: u32 = 64;

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
