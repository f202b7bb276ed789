//! Opens the sockets of a receiver from a port or a description.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use anyhow::{Context as _, Error, Result, bail, ensure};
use tidegate_core::wire::rtcp::{self, Rtcp};
use tidegate_core::wire::rtp::{PayloadType, RtpPacket};
use tidegate_core::wire::sdp::Sdp;
use tidegate_live::udp::{self, Recognition, Socket, SourceFilter};

use super::unexpected::Unexpected;
use crate::lookup::lookup;
use crate::security::is_local;

/// Where a receiver listens, and for which stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listen<'a> {
    /// `PORT` or `ADDR:PORT`.
    pub(super) at: Option<&'a str>,
    pub(super) sdp: Option<&'a Sdp>,
    /// `HOST` or `HOST:PORT` of the sender.
    pub(super) from: Option<&'a str>,
    /// Payload types of media and retransmissions.
    pub(super) types: (PayloadType, PayloadType),
    /// The endpoint authenticates datagrams.
    pub(super) is_authenticated: bool,
    /// Other hosts cannot send.
    pub(super) local_only: bool,
}

impl Listen<'_> {
    /// Socket for RTP and RTCP. For senders without multiplexing, also a socket for RTCP, on the
    /// port that the description names (RFC 3605) or the next one. `from` or the description limits
    /// the sources. RTP of other payload types is recorded in `unexpected`.
    ///
    /// # Errors
    /// An address is invalid or not permitted, or the port is in use.
    pub(super) fn open(self, unexpected: &Unexpected) -> Result<Vec<Socket>> {
        let udp = self.bind()?;
        let address = udp.local_addr()?;
        let filter = self.filter()?;
        let group = self.group(address);
        join(&udp, group, &filter)?;
        let ssrcs = self.sdp.and_then(|sdp| sdp.source.as_ref());
        let stream = ExpectedStream {
            types: self.types,
            ssrcs: ssrcs.map(|source| (source.ssrc, source.rtx_ssrc)),
        };
        let unexpected = unexpected.clone();
        let is_media = self.recognition(move |payload| {
            stream.record(payload, &unexpected);
            stream.may_contain(payload)
        });
        let mut sockets = vec![Socket::listening(udp, is_media, filter.clone())?];
        let next = address.port().checked_add(1);
        if let Some(sdp) = self.sdp.filter(|sdp| !sdp.rtcp_mux)
            && let Some(port) = sdp.rtcp_port.or(next)
        {
            let control = UdpSocket::bind((address.ip(), port));
            let control = control.map_err(|e| bind_error(&port.to_string(), e))?;
            join(&control, group, &filter)?;
            let is_report = self.recognition(move |payload| stream.may_report(payload));
            // RTCP may have another source port than the media.
            let filter = SourceFilter {
                port: None,
                ..filter
            };
            sockets.push(Socket::listening(control, is_report, filter)?);
        }
        Ok(sockets)
    }

    /// The multicast group to join.
    fn group(self, bound: SocketAddr) -> Option<SocketAddr> {
        let described = self.sdp.map(|sdp| (sdp.address, sdp.port).into());
        let mut groups = [Some(bound), described].into_iter().flatten();
        groups.find(|address| address.ip().is_multicast())
    }

    fn bind(self) -> Result<UdpSocket> {
        let port = self.sdp.map(|sdp| match sdp.address {
            // Datagrams of other groups and of unicast are not for this stream.
            group if group.is_multicast() => SocketAddr::from((group, sdp.port)).to_string(),
            _ => sdp.port.to_string(),
        });
        let at = self
            .at
            .or(port.as_deref())
            .context("--from needs the port to listen at: give --listen PORT or --sdp FILE")?;
        if !self.local_only {
            return bind(at);
        }
        if let Some(address) = self.sdp.map(|sdp| sdp.address) {
            ensure!(
                is_local(address),
                "the description has no key, and its address {address} is reached from other \
                hosts: use a description with a=crypto, as `tidegate send --sdp` writes it, or \
                give --insecure"
            );
            return bind(
                &SocketAddr::from((address, self.sdp.map_or(0, |sdp| sdp.port))).to_string(),
            );
        }
        if at.parse::<u16>().is_ok() {
            return bind(&format!("{}:{at}", Ipv4Addr::LOCALHOST));
        }
        let udp = bind(at)?;
        let address = udp.local_addr()?.ip();
        ensure!(
            is_local(address),
            "{at} is reached from other hosts, and the stream has no key: give --key-file FILE at \
            both ends (`tidegate key FILE` makes one), or --insecure"
        );
        Ok(udp)
    }

    fn filter(self) -> Result<SourceFilter> {
        let hosts = self
            .sdp
            .map_or_else(Vec::new, |sdp| sdp.source_filter.clone());
        let described = Ok(SourceFilter { hosts, port: None });
        self.from.map_or(described, source_filter)
    }

    fn recognition(self, is_plausible: impl Fn(&[u8]) -> bool + Send + 'static) -> Recognition {
        if self.is_authenticated {
            Recognition::Endpoint
        } else {
            Recognition::payload(is_plausible)
        }
    }
}

fn join(udp: &UdpSocket, group: Option<SocketAddr>, filter: &SourceFilter) -> Result<()> {
    let Some(group) = group else { return Ok(()) };
    udp::join(udp, group, &filter.hosts).with_context(|| {
        let group = group.ip();
        format!("cannot join the group {group}: check the route to it, with `ip route get {group}`")
    })
}

/// Filter for `HOST` or `HOST:PORT`.
fn source_filter(from: &str) -> Result<SourceFilter> {
    let fix = "give --from as HOST or HOST:PORT, for example 192.0.2.7 or [2001:db8::7]:5004";
    let plain = from
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Ok(host) = plain.unwrap_or(from).parse::<IpAddr>() {
        let hosts = vec![host];
        return Ok(SourceFilter { hosts, port: None });
    }
    let (found, port) = if let Some((_, port)) = from.rsplit_once(':') {
        let port = port.parse().ok().filter(|port| *port > 0);
        let port = port.with_context(|| format!("\"{from}\" has no valid port: {fix}"))?;
        (from.to_socket_addrs(), Some(port))
    } else {
        ((from, 0).to_socket_addrs(), None)
    };
    let found = found.with_context(|| format!("\"{from}\" is no host: {fix}"))?;
    Ok(SourceFilter {
        hosts: found.map(|address| address.ip()).collect(),
        port,
    })
}

fn bind(listen: &str) -> Result<UdpSocket> {
    if let Ok(port) = listen.parse::<u16>() {
        return bind_any(port, UdpSocket::bind).map_err(|e| bind_error(listen, e));
    }
    let fix = "give --listen as PORT or ADDR:PORT, for example 5004 or 192.0.2.7:5004";
    let addresses = lookup(listen)
        .with_context(|| format!("\"{listen}\" is no address of this host: {fix}"))?;
    match addresses.first() {
        Some(address) => UdpSocket::bind(address).map_err(|e| bind_error(listen, e)),
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

fn bind_error(listen: &str, cause: io::Error) -> Error {
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
    let message = format!("cannot listen at {listen}: {cause}: {fix}");
    Error::new(cause).context(message)
}

/// Properties of the expected stream that its packets show.
#[derive(Clone, Copy, Debug)]
struct ExpectedStream {
    /// Payload types of media and retransmissions.
    types: (PayloadType, PayloadType),
    /// SSRCs of media and retransmissions, if a description names them.
    ssrcs: Option<(u32, Option<u32>)>,
}

impl ExpectedStream {
    /// Whether a datagram may be RTP or a sender report of the stream.
    fn may_contain(self, payload: &[u8]) -> bool {
        if rtcp::is_rtcp(payload) {
            return self.may_report(payload);
        }
        let Ok(packet) = RtpPacket::new_checked(payload) else {
            return false;
        };
        let (header, (media, repair)) = (packet.header(), self.types);
        [media, repair].contains(&header.payload_type) && self.has_ssrc(header.ssrc)
    }

    /// Records RTP of another payload type than that of the media.
    fn record(self, payload: &[u8], unexpected: &Unexpected) {
        if !rtcp::is_rtcp(payload)
            && let Ok(packet) = RtpPacket::new_checked(payload)
            && packet.header().payload_type != self.types.0
        {
            unexpected.record(&packet);
        }
    }

    /// Whether a datagram may be a sender report of the stream.
    fn may_report(self, payload: &[u8]) -> bool {
        let mut packets = rtcp::packets(payload).flatten();
        let is_ours = |packet| match packet {
            Rtcp::SenderReport(report) => self.has_ssrc(report.info().ssrc),
            _ => false,
        };
        rtcp::form(payload).is_ok() && packets.any(is_ours)
    }

    fn has_ssrc(self, ssrc: u32) -> bool {
        self.ssrcs
            .is_none_or(|(media, repair)| ssrc == media || Some(ssrc) == repair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_of_the_stream_are_accepted() {
        let mut stream = ExpectedStream {
            types: (PayloadType::new(96).unwrap(), PayloadType::new(97).unwrap()),
            ssrcs: None,
        };
        let mut rtp = vec![0x80, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2];
        assert!(stream.may_contain(&rtp));
        for (ssrcs, is_ours) in [((9, None), true), ((8, Some(9)), true), ((8, None), false)] {
            stream.ssrcs = Some(ssrcs);
            assert_eq!(stream.may_contain(&rtp), is_ours, "{ssrcs:?}");
        }
        stream.ssrcs = None;
        rtp[1] = 98;
        assert!(!stream.may_contain(&rtp));
        for junk in [
            &b""[..],
            b"hello",
            &[0x80, 200, 0, 1],
            &[0x80, 201, 0, 1, 0, 0, 0, 1],
        ] {
            assert!(!stream.may_contain(junk), "{junk:?}");
        }
    }

    #[test]
    fn rtcp_is_received_at_the_described_port() {
        let ports = |attribute: &str| {
            let (media, rtcp) = (bind("127.0.0.1:0").unwrap(), bind("127.0.0.1:0").unwrap());
            let ports = [media, rtcp].map(|socket| socket.local_addr().unwrap().port());
            let sdp = format!(
                "v=0\no=- 1 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {} \
                 RTP/AVP 32\n{}",
                ports[0],
                attribute.replace("RTCP", &ports[1].to_string())
            );
            let sdp = Sdp::parse(&sdp).unwrap();
            let types = (PayloadType::new(32).unwrap(), PayloadType::new(97).unwrap());
            let listen = Listen {
                at: None,
                sdp: Some(&sdp),
                from: None,
                types,
                is_authenticated: false,
                local_only: true,
            };
            let sockets = listen.open(&Unexpected::default()).unwrap();
            let open = sockets.iter().map(|socket| socket.local_addr().unwrap());
            (
                ports,
                open.map(|address| address.port()).collect::<Vec<_>>(),
            )
        };
        let (described, open) = ports("a=rtcp:RTCP IN IP4 127.0.0.1\n");
        assert_eq!(open, described);
        let (described, open) = ports("a=rtcp:RTCP\na=rtcp-mux\n");
        assert_eq!(open, described[..1]);
    }

    #[test]
    fn sources_are_hosts_with_an_optional_port() {
        let host = IpAddr::from([192, 0, 2, 7]);
        let filter = |port| SourceFilter {
            hosts: vec![host],
            port,
        };
        assert_eq!(source_filter("192.0.2.7").unwrap(), filter(None));
        assert_eq!(source_filter("192.0.2.7:5").unwrap(), filter(Some(5)));
        for v6 in ["2001:db8::7", "[2001:db8::7]", "[2001:db8::7]:9"] {
            let filter = source_filter(v6).unwrap();
            assert_eq!(filter.hosts, ["2001:db8::7".parse::<IpAddr>().unwrap()]);
            assert_eq!(filter.port, v6.ends_with(":9").then_some(9));
        }
        for wrong in ["192.0.2.7:0", "192.0.2.7:x", "[2001:db8::7", ""] {
            let error = format!("{:#}", source_filter(wrong).unwrap_err());
            assert!(error.contains("--from"), "{error}");
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
