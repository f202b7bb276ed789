//! Opens the sockets of a receiver from a port or a description.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use tidegate_core::wire::rtcp::{self, Rtcp};
use tidegate_core::wire::rtp::{PayloadType, RtpPacket};
use tidegate_core::wire::sdp::Sdp;
use tidegate_live::udp::Socket;

/// Socket for RTP and RTCP. For senders without multiplexing, also a socket on the next port for
/// RTCP.
///
/// # Errors
/// The address is invalid or in use.
pub(super) fn open(
    listen: Option<&str>,
    sdp: Option<&Sdp>,
    types: (PayloadType, PayloadType),
) -> Result<Vec<Socket>> {
    let udp = match (listen, sdp) {
        (Some(listen), _) => bind(listen)?,
        (None, Some(sdp)) => bind(&sdp.port.to_string())?,
        (None, None) => bail!("give --listen PORT or --sdp FILE"),
    };
    let address = udp.local_addr()?;
    let is_media = move |payload: &[u8]| is_of_a_sender(payload, types);
    let mut sockets = vec![Socket::listening(udp, is_media)?];
    if sdp.is_some_and(|sdp| !sdp.rtcp_mux)
        && let Some(port) = address.port().checked_add(1)
    {
        let control = UdpSocket::bind((address.ip(), port));
        let control = control.map_err(|e| bind_error(&port.to_string(), &e))?;
        sockets.push(Socket::listening(control, is_report)?);
    }
    Ok(sockets)
}

fn bind(listen: &str) -> Result<UdpSocket> {
    if let Ok(port) = listen.parse::<u16>() {
        return bind_any(port, UdpSocket::bind).map_err(|e| bind_error(listen, &e));
    }
    let fix = "give --listen as PORT or ADDR:PORT, for example 5004 or 192.0.2.7:5004";
    let mut addresses = listen
        .to_socket_addrs()
        .with_context(|| format!("\"{listen}\" is no address of this host: {fix}"))?;
    match addresses.next() {
        Some(address) => UdpSocket::bind(address).map_err(|e| bind_error(listen, &e)),
        None => bail!("\"{listen}\" is no address of this host: {fix}"),
    }
}

/// Binds to all addresses, including IPv6 if the host has it.
pub(crate) fn bind_any<S>(port: u16, bind: impl Fn(SocketAddr) -> io::Result<S>) -> io::Result<S> {
    let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    bind(v6).or_else(|e| match e.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(e),
        _ => bind(v4),
    })
}

fn bind_error(listen: &str, cause: &io::Error) -> Error {
    let fix = match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "another program uses the port; choose a free one with \
        --listen"
        }
        io::ErrorKind::AddrNotAvailable => {
            "the address is not one of this host; see `ip address`, or give the port alone"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 are reserved for root by default; choose another with --listen"
        }
        _ => "choose another with --listen",
    };
    anyhow!("cannot listen at {listen}: {cause}: {fix}")
}

/// Whether a datagram is RTP of this stream or a sender report.
fn is_of_a_sender(payload: &[u8], (media, repair): (PayloadType, PayloadType)) -> bool {
    if rtcp::is_rtcp(payload) {
        return is_report(payload);
    }
    let packet = RtpPacket::new_checked(payload);
    packet.is_ok_and(|packet| [media, repair].contains(&packet.header().payload_type))
}

fn is_report(payload: &[u8]) -> bool {
    let mut packets = rtcp::packets(payload).flatten();
    rtcp::form(payload).is_ok() && packets.any(|p| matches!(p, Rtcp::SenderReport(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_of_a_sender_are_accepted() {
        let types = (PayloadType::new(96).unwrap(), PayloadType::new(97).unwrap());
        let mut rtp = vec![0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2];
        assert!(is_of_a_sender(&rtp, types));
        rtp[1] = 98;
        assert!(!is_of_a_sender(&rtp, types));
        for junk in [
            &b""[..],
            b"hello",
            &[0x80, 200, 0, 1],
            &[0x80, 201, 0, 1, 0, 0, 0, 1],
        ] {
            assert!(!is_of_a_sender(junk, types), "{junk:?}");
        }
    }

    #[test]
    fn a_port_in_use_is_named() {
        let taken = bind("0").unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        let error = format!("{:#}", bind(&port).unwrap_err());
        assert!(
            error.contains(&port) && error.contains("--listen"),
            "{error}"
        );
        assert!(bind("nowhere").is_err());
    }
}
