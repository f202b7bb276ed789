//! Addresses of `HOST:PORT`.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// Addresses of `HOST:PORT`. IPv6 addresses may have a zone, as `[fe80::1%eth0]:5004`.
///
/// # Errors
/// The text is not an address, or the host is unknown.
pub(crate) fn lookup(text: &str) -> io::Result<Vec<SocketAddr>> {
    // The standard library knows zones only as numbers, and passes brackets to the resolver.
    let zoned = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]:"))
        .filter(|(host, _)| host.contains('%'))
        .and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    Ok(match zoned {
        Some((host, port)) => {
            let found = (host, port).to_socket_addrs();
            found
                .map_err(|e| unknown_zone(host).unwrap_or(e))?
                .collect()
        }
        None => text.to_socket_addrs()?.collect(),
    })
}

/// Addresses of another host, given by the user.
///
/// # Errors
/// The text has no port, or as [`lookup`].
pub(crate) fn host_and_port(to: &str) -> Result<Vec<SocketAddr>> {
    ensure!(to.contains(':'), "\"{to}\" has no port: {ADDRESS_ADVICE}");
    lookup(to).with_context(|| format!("\"{to}\" is not an address: {ADDRESS_ADVICE}"))
}

/// Error for a zone that is not an interface of this host, which the resolver calls an unknown name.
fn unknown_zone(host: &str) -> Option<io::Error> {
    let (_, zone) = host.split_once('%')?;
    let is_interface = Path::new("/sys/class/net").join(zone).exists();
    let why = format!("this host has no interface \"{zone}\"; `ip link` lists them");
    (!is_interface).then(|| io::Error::new(io::ErrorKind::NotFound, why))
}

/// Moves addresses behind the others whose host refuses datagrams, as one of `localhost` where the
/// receiver listens at the other.
pub(crate) fn refusing_last(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    if addresses.len() > 1 {
        addresses.sort_by_cached_key(|peer| refuses(*peer));
    }
    addresses
}

/// Whether a receiver report without contents is answered by an ICMP error at once.
fn refuses(peer: SocketAddr) -> bool {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0; 16], 0).into(),
    };
    let asked = || -> io::Result<()> {
        let socket = UdpSocket::bind(any)?;
        socket.connect(peer)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(&EMPTY_REPORT)?;
        socket.recv(&mut [0; 1]).map(|_| ())
    };
    asked().is_err_and(|e| {
        !matches!(
            e.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        )
    })
}

pub(crate) const ADDRESS_ADVICE: &str =
    "give it as HOST:PORT, for example 192.0.2.7:5004 or [2001:db8::7]:5004";
/// An RTCP receiver report without report blocks (RFC 3550 section 6.4.2), of source 0.
const EMPTY_REPORT: [u8; 8] = [0x80, 201, 0, 1, 0, 0, 0, 0];
/// Errors of this host arrive at once.
const PATIENCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use tidegate_core::wire::rtcp;

    use super::*;

    #[test]
    fn zones_are_names_of_interfaces() {
        let found = lookup("[fe80::1%lo]:5004").unwrap();
        let SocketAddr::V6(address) = found[0] else {
            panic!("{found:?}");
        };
        assert_eq!((address.port(), address.ip().segments()[0]), (5004, 0xfe80));
        assert!(address.scope_id() > 0);
        assert_eq!(lookup("[::1]:80").unwrap(), ["[::1]:80".parse().unwrap()]);
        let unknown = lookup("[fe80::1%none0]:5004").unwrap_err().to_string();
        assert!(unknown.contains("no interface \"none0\""), "{unknown}");
        assert!(lookup("[fe80::1%lo]:port").is_err());
    }

    #[test]
    fn an_address_where_nothing_listens_is_last() {
        assert!(rtcp::is_rtcp(&EMPTY_REPORT) && rtcp::form(&EMPTY_REPORT).is_ok());
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let open = receiver.local_addr().unwrap();
        let closed = {
            let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            other.local_addr().unwrap()
        };
        assert_eq!(refusing_last(vec![closed, open]), [open, closed]);
        let none = SocketAddr::from((Ipv6Addr::LOCALHOST, open.port()));
        assert_eq!(refusing_last(vec![none, open]), [open, none]);
    }
}
