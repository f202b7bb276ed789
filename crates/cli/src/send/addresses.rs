//! From `HOST:PORT` to sockets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use anyhow::{Context as _, Result, bail};
use tidegate_live::udp::Socket;

/// The way to a receiver.
#[derive(Debug)]
pub(super) struct Route {
    /// For RTP and RTCP, and the one above it, where receivers that do not share ports send
    /// their RTCP.
    pub(super) sockets: [Socket; 2],
    /// The receiver.
    pub(super) peer: SocketAddr,
}

/// Finds the receiver and opens sockets towards it.
///
/// # Errors
/// The name is none, the host is unknown, or no address of it can be reached.
pub(super) fn resolve(to: &str) -> Result<Route> {
    let mend = "give it as HOST:PORT, for example 192.0.2.7:5004 or [2001:db8::7]:5004";
    if !to.contains(':') {
        bail!("\"{to}\" has no port: {mend}");
    }
    let addresses = to
        .to_socket_addrs()
        .with_context(|| format!("\"{to}\" is no address of a host: {mend}"))?;
    let mut failure = None;
    for peer in addresses.filter(|address| address.port() != 0) {
        match connect(peer) {
            Ok(sockets) => return Ok(Route { sockets, peer }),
            Err(e) => failure = Some((peer, e)),
        }
    }
    match failure {
        Some((peer, e)) => {
            Err(e).with_context(|| format!("no socket towards {peer}: check the route to it"))
        }
        None => bail!("\"{to}\" has no port to send to: {mend}"),
    }
}

/// Sockets on a pair of ports, the lower one even, as RFC 3550 section 11 has it.
fn connect(peer: SocketAddr) -> io::Result<[Socket; 2]> {
    let any: SocketAddr = if peer.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let mut tries = 0;
    let (media, control) = loop {
        let media = UdpSocket::bind(any)?;
        let port = media.local_addr()?.port();
        if port.is_multiple_of(2) {
            match UdpSocket::bind((any.ip(), port + 1)) {
                Ok(control) => break (media, control),
                Err(e) if tries >= TRIES => return Err(e),
                Err(_) => {}
            }
        }
        tries += 1;
    };
    Ok([
        Socket::connected(media, peer)?,
        Socket::hearing(control, peer.ip())?,
    ])
}

/// Half of the free ports are odd, and few have a neighbour in use.
const TRIES: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_ports_begins_even() {
        let route = resolve("127.0.0.1:5004").unwrap();
        assert_eq!(route.peer, "127.0.0.1:5004".parse().unwrap());
        let [media, control] = route.sockets.map(|s| s.local_addr().unwrap().port());
        assert_eq!((media % 2, control), (0, media + 1));
    }

    #[test]
    fn what_is_no_address_is_named_with_the_mend() {
        for wrong in [
            "nowhere",
            "127.0.0.1",
            "127.0.0.1:0",
            "127.0.0.1:port",
            ":5004",
        ] {
            let error = format!("{:#}", resolve(wrong).unwrap_err());
            assert!(
                error.contains(wrong) && error.contains("HOST:PORT"),
                "{error}"
            );
        }
    }
}
