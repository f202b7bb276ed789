//! RTP and RTCP in the RTSP connection (RFC 2326 section 10.12).
//!
//! A stream sends its packets to a socket on this host, from which they are written to the connection
//! as far as TCP sends them. To the rate control of the stream, TCP is the path: packets wait in
//! front of it, and pictures that would be late are dropped before they are packets.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd as _, RawFd};

use tidegate_core::session::relay_reports::RelayReports;
use tidegate_core::units::Time;
use tidegate_core::wire::rtcp;
use tidegate_live::udp::Socket;
use tidegate_rtsp::{Channels, SessionId};

/// The end of a stream at its connection.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) session: SessionId,
    channels: Channels,
    socket: UdpSocket,
    reports: RelayReports,
}

impl Relay {
    /// A relay, and the socket of the stream.
    ///
    /// # Errors
    /// The system has no more sockets or ports.
    pub(super) fn new(
        session: SessionId,
        channels: Channels,
        reports: RelayReports,
    ) -> io::Result<(Self, Socket)> {
        let open = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let (socket, stream) = (open()?, open()?);
        socket.connect(stream.local_addr()?)?;
        socket.set_nonblocking(true)?;
        let stream = Socket::connected(stream, socket.local_addr()?)?;
        let relay = Self {
            session,
            channels,
            socket,
            reports,
        };
        Ok((relay, stream))
    }

    pub(super) fn source(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Reads the next packet, with the header of interleaved data, to the empty `out`. Returns whether
    /// there is one.
    pub(super) fn read(&self, out: &mut Vec<u8>) -> bool {
        out.resize(HEADER + LARGEST, 0);
        // After the end of the stream, its socket refuses reports.
        let size = self.socket.recv(&mut out[HEADER..]).unwrap_or(0);
        if size == 0 {
            out.clear();
            return false;
        }
        out.truncate(HEADER + size);
        let channel = if rtcp::is_rtcp(&out[HEADER..]) {
            self.channels.rtcp
        } else {
            self.channels.rtp
        };
        let [high, low] = (size as u16).to_be_bytes();
        out[..HEADER].copy_from_slice(&[b'$', channel, high, low]);
        true
    }

    /// The connection has accepted a packet of [`read`](Self::read).
    pub(super) fn on_accepted(&mut self, now: Time, packet: &[u8]) {
        let packet = packet.get(HEADER..).unwrap_or_default();
        if let Some(answer) = self.reports.on_packet(now, packet) {
            self.report(&answer);
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.reports.next_timeout()
    }

    pub(super) fn on_timeout(&mut self, now: Time) {
        if let Some(report) = self.reports.on_timeout(now) {
            self.report(&report);
        }
    }

    fn report(&self, report: &[u8]) {
        // A stream that has ended reads none.
        let _ = self.socket.send(report);
    }
}

/// `$`, the channel and the length.
const HEADER: usize = 4;
/// More than `--packet-size` permits.
const LARGEST: usize = 9_216;
