//! TCP socket with options that keep the backlog in the application, where it can still be dropped.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};
use std::time::Duration;
use std::{mem, ptr};

use tidegate_core::session::tcp::{AckProgress, first_report};
use tidegate_core::tcp_rate::{EventNotification, TcpView};
use tidegate_core::units::{Bytes, Time};

use super::TcpError;
use crate::driver::{RunLimits, StopFlag, TICK};
use crate::netns::check;
use crate::tls::{TlsClient, TlsServer, TlsSession};

/// Options of a sending socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Name of the congestion control in the kernel; `None` for the default of the system.
    pub congestion: Option<String>,
    /// Unsent bytes in the kernel above which the socket is not writable (`TCP_NOTSENT_LOWAT`).
    pub notsent_lowat: Option<Bytes>,
    /// Maximum retransmission timeout (`TCP_RTO_MAX_MS`, Linux 6.15 and later), from 1 to 120 s.
    pub rto_max: Option<Duration>,
    /// Use the internal pacing of TCP, independent of the queueing discipline of the device
    /// (`SO_MAX_PACING_RATE`, far above the pacing rate).
    pub paced: bool,
}

/// A connected non-blocking socket.
#[derive(Debug)]
pub struct TcpSocket {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    tls: Option<Box<TlsSession>>,
    watch: Option<Box<dyn ConnectionObserver>>,
    /// Bytes accepted by the kernel.
    written: Bytes,
    stall: Option<(AckProgress, Duration)>,
}

/// Observer of a connection: its events and its state.
pub trait ConnectionObserver: fmt::Debug + Send {
    /// Takes the oldest pending event.
    ///
    /// # Errors
    /// If the socket is closed.
    fn next_event(&mut self, now: Time) -> io::Result<Option<(EventNotification, TcpView)>>;

    /// Current state of the connection.
    ///
    /// # Errors
    /// If the socket is closed.
    fn view(&mut self, now: Time) -> io::Result<TcpView>;

    /// Writes to the socket as the observer requires; see [`io::Write::write`].
    ///
    /// # Errors
    /// See [`io::Write::write`].
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Descriptor that is readable while events are pending.
    fn events(&self) -> BorrowedFd<'_>;
}

impl TcpSocket {
    /// Configures a connection. Small writes are sent immediately (`TCP_NODELAY`).
    ///
    /// # Errors
    /// The option that the system rejects.
    pub fn new(stream: TcpStream, options: &TcpOptions) -> Result<Self, TcpError> {
        let peer = stream.peer_addr().map_err(TcpError::System)?;
        Self::of_peer(stream, peer, options)
    }

    /// Configures a connection with a known peer. The system does not report the peer of a
    /// connection that was reset. Such a connection is accepted, and its first use fails.
    ///
    /// # Errors
    /// The option that the system rejects.
    pub fn of_peer(
        stream: TcpStream,
        peer: SocketAddr,
        options: &TcpOptions,
    ) -> Result<Self, TcpError> {
        let mut socket = Self::accepted(stream, peer, None).map_err(TcpError::System)?;
        socket.configure(options)?;
        Ok(socket)
    }

    /// A connection without options, with TLS as its server if it has one.
    pub(super) fn accepted(
        stream: TcpStream,
        mut peer: SocketAddr,
        tls: Option<&TlsServer>,
    ) -> io::Result<Self> {
        let tls = tls.map(TlsServer::session).transpose();
        let tls = tls.map_err(io::Error::other)?;
        // An IPv6 socket also accepts IPv4 peers.
        peer.set_ip(peer.ip().to_canonical());
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            peer,
            tls: tls.map(Box::new),
            watch: None,
            written: Bytes(0),
            stall: None,
        })
    }

    /// Sets the options of a sending socket.
    ///
    /// # Errors
    /// The option that the system rejects.
    pub fn configure(&mut self, options: &TcpOptions) -> Result<(), TcpError> {
        let fd = self.stream.as_raw_fd();
        let refused = |option| move |cause| TcpError::Option { option, cause };
        if let Some(name) = &options.congestion {
            set(fd, libc::TCP_CONGESTION, name.as_bytes())
                .map_err(refused("TCP_CONGESTION (--congestion)"))?;
        }
        if let Some(size) = options.notsent_lowat {
            let size = u32::try_from(size.get()).unwrap_or(u32::MAX);
            set(fd, libc::TCP_NOTSENT_LOWAT, &size.to_ne_bytes())
                .map_err(refused("TCP_NOTSENT_LOWAT (--notsent-lowat)"))?;
        }
        if let Some(span) = options.rto_max {
            set_rto_max(self.stream.as_fd(), span)
                .map_err(refused("TCP_RTO_MAX_MS (--rto-max)"))?;
            // Otherwise the kernel would close the connection after 15 such timeouts, which is 14.4
            // s for a maximum of one second.
            set(fd, libc::TCP_USER_TIMEOUT, &PATIENCE.to_ne_bytes())
                .map_err(refused("TCP_USER_TIMEOUT"))?;
        }
        if options.paced {
            let level = libc::SOL_SOCKET;
            set_at(fd, level, libc::SO_MAX_PACING_RATE, &FASTEST.to_ne_bytes())
                .map_err(refused("SO_MAX_PACING_RATE"))?;
        }
        Ok(())
    }

    /// Ends the stream with [`TcpError::Stalled`] if the peer does not acknowledge the data in the
    /// socket within `limit`.
    pub fn limit_stall(&mut self, limit: Duration) {
        self.stall = Some((AckProgress::new(limit), limit));
    }

    /// # Errors
    /// [`TcpError::Stalled`] if the limit has passed; `pending` bytes are not acknowledged.
    pub(super) fn check_stall(&mut self, now: Time, pending: Bytes) -> Result<(), TcpError> {
        let (peer, written) = (self.peer, self.written);
        let Some((progress, limit)) = &mut self.stall else {
            return Ok(());
        };
        if progress.is_over(now, written, pending) {
            let limit = *limit;
            return Err(TcpError::Stalled { peer, limit });
        }
        Ok(())
    }

    /// Sets the observer, for a sender that follows the state of the connection.
    pub fn set_watch(&mut self, watch: Box<dyn ConnectionObserver>) {
        self.watch = Some(watch);
    }

    /// Descriptor that is readable while events are pending.
    pub(super) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(|watch| watch.events())
    }

    /// State of the connection; `None` without an observer.
    ///
    /// # Errors
    /// If the socket is closed.
    pub(super) fn view(&mut self, now: Time) -> io::Result<Option<TcpView>> {
        self.watch.as_mut().map(|watch| watch.view(now)).transpose()
    }

    /// Takes the oldest pending event.
    ///
    /// # Errors
    /// If the socket is closed.
    pub(super) fn next_event(
        &mut self,
        now: Time,
    ) -> io::Result<Option<(EventNotification, TcpView)>> {
        match &mut self.watch {
            Some(watch) => watch.next_event(now),
            None => Ok(None),
        }
    }

    /// Address of the peer.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Error of the connection, if the peer has reset it.
    pub fn connection_error(&self) -> Option<TcpError> {
        let name = self.stream.peer_addr();
        let gone = name.is_err_and(|e| e.kind() == io::ErrorKind::NotConnected);
        gone.then(|| TcpError::Closed {
            peer: self.peer,
            cause: self.stream.take_error().ok().flatten(),
        })
    }

    /// Whether the peer has closed or reset the connection, or closed its own direction.
    pub(super) fn has_ended(&self) -> bool {
        let mut own = libc::pollfd {
            fd: self.stream.as_raw_fd(),
            // POLLHUP and POLLERR are reported in any case.
            events: libc::POLLRDHUP,
            revents: 0,
        };
        // SAFETY: one initialised structure, which outlives the call. It returns at once.
        unsafe { libc::poll(&raw mut own, 1, 0) > 0 }
    }

    /// Bytes in the send queue of the kernel: unsent, and sent but not acknowledged.
    ///
    /// # Errors
    /// If the socket is closed.
    pub fn backlog(&self) -> io::Result<(Bytes, Bytes)> {
        let unsent = queue(self.stream.as_raw_fd(), SIOCOUTQNSD)?;
        let all = queue(self.stream.as_raw_fd(), libc::TIOCOUTQ)?;
        Ok((unsent, all.saturating_sub(unsent)))
    }

    /// Starts TLS and waits for the end of the handshake. `name` is the DNS name or the address of
    /// the peer. False if the stop flag is set or `asked` returns true before.
    ///
    /// # Errors
    /// [`TcpError::Tls`] if the handshake fails or takes longer than `limit`.
    pub fn secure(
        &mut self,
        tls: &TlsClient,
        name: &str,
        limit: Duration,
        conditions: &RunLimits,
        mut asked: impl FnMut() -> bool,
    ) -> Result<bool, TcpError> {
        let peer = self.peer;
        let failed = |cause| TcpError::Tls { peer, cause };
        let session = tls
            .session(name)
            .map_err(io::Error::other)
            .map_err(failed)?;
        self.tls = Some(Box::new(session));
        let end = conditions.clock.now() + limit;
        loop {
            let received = self
                .tls
                .as_mut()
                .map(|tls| tls.handshake(&mut &self.stream));
            // The server learns the reason of a failure from an alert.
            let sent = self.write(&[]);
            received.unwrap_or(Ok(())).and(sent).map_err(failed)?;
            if !self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                return Ok(true);
            }
            let now = conditions.clock.now();
            if now >= end {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            if conditions.stop.is_set() || asked() {
                return Ok(false);
            }
            let until = end.min(now + TICK);
            wait(&[self.interest()], conditions, now, until).map_err(TcpError::System)?;
        }
    }

    /// Writes as many bytes as the socket accepts; zero if it is full. With TLS, bytes are accepted
    /// once their record is; the next call must begin with the byte after the accepted ones. Without
    /// bytes, only pending records are written.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (stream, watch, written) = (&self.stream, &mut self.watch, &mut self.written);
        let mut put = |bytes: &[u8]| loop {
            let accepted = match watch {
                Some(watch) => watch.write(bytes),
                None => (&*stream).write(bytes),
            };
            match accepted {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                accepted => {
                    *written += Bytes(accepted.as_ref().map_or(0, |count| *count as u64));
                    return accepted;
                }
            }
        };
        match &mut self.tls {
            Some(tls) => tls.write(bytes, put),
            None => put(bytes),
        }
    }

    /// Whether records of TLS wait for the socket.
    fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Descriptor and the events to wait for before the next read.
    pub(super) fn interest(&self) -> (RawFd, libc::c_short) {
        let out = if self.wants_write() { libc::POLLOUT } else { 0 };
        (self.stream.as_raw_fd(), libc::POLLIN | out)
    }

    /// Sends the first report of a player ([`first_report`]).
    ///
    /// # Errors
    /// [`TcpError::Silent`] if the peer has closed the connection.
    pub fn send_first_report(&mut self, ssrc: u32) -> Result<(), TcpError> {
        let peer = self.peer;
        // The send buffer of a new connection has room for it.
        let written = self.write(&first_report(ssrc));
        written
            .map(drop)
            .map_err(|cause| TcpError::of(cause, peer).before_any_data())
    }

    /// Reads available data; `None` if there is none, zero at the end of the stream.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let read = match &mut self.tls {
                Some(tls) => tls.read(&mut &self.stream, buffer),
                None => self.stream.read(buffer).map(Some),
            };
            if self.wants_write() {
                // Answers of the handshake, or an alert: a failure to send them shows in a read.
                let _ = self.write(&[]);
            }
            match read {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

/// Sets the maximum retransmission timeout of a TCP socket (`TCP_RTO_MAX_MS`), from 1 to 120 s.
///
/// # Errors
/// The kernel is older than 6.15 and lacks the option (`ENOPROTOOPT`), or the value is out of range
/// (`EINVAL`).
pub fn set_rto_max(socket: BorrowedFd<'_>, span: Duration) -> io::Result<()> {
    let ms = u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
    set(socket.as_raw_fd(), TCP_RTO_MAX_MS, &ms.to_ne_bytes())
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl TcpSocket {
    /// Sends the last bytes and waits for at most `patience` until the peer closes the connection.
    /// Closing earlier with unread data would reset the connection and discard these bytes.
    ///
    /// # Errors
    /// The peer closes the connection before all bytes are sent, or does not accept them within
    /// `patience` (`TimedOut`).
    pub(super) fn leave(
        &mut self,
        words: &[u8],
        patience: Duration,
        conditions: &RunLimits,
    ) -> io::Result<()> {
        let (mut unsent, mut closing) = (Some(words), false);
        let mut buffer = vec![0; 1 << 16];
        let end = conditions.clock.now() + patience;
        loop {
            let now = conditions.clock.now();
            if let Some(words) = unsent {
                let rest = &words[self.write(words)?..];
                if rest.is_empty()
                    && let Some(tls) = &mut self.tls
                    && !mem::replace(&mut closing, true)
                {
                    tls.close();
                    self.write(&[])?;
                }
                unsent = (!rest.is_empty() || self.wants_write()).then_some(rest);
                if unsent.is_none() {
                    self.stream.shutdown(Shutdown::Write)?;
                }
            }
            match (self.read(&mut buffer)?, unsent.is_none()) {
                (Some(0), true) => return Ok(()),
                (Some(0), false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                (_, true) if now >= end => return Ok(()),
                (_, false) if now >= end => return Err(io::ErrorKind::TimedOut.into()),
                (Some(_), _) => {}
                (None, sent) => {
                    let events = libc::POLLIN | if sent { 0 } else { libc::POLLOUT };
                    let own = (self.stream.as_raw_fd(), events);
                    wait(&[own], conditions, now, end)?;
                }
            }
        }
    }
}

/// Sleeps until a descriptor is ready (negative ones are ignored), the driver is woken, or `until`.
pub(super) fn wait(
    descriptors: &[(RawFd, libc::c_short)],
    conditions: &RunLimits,
    now: Time,
    until: Time,
) -> io::Result<()> {
    poll(descriptors, &conditions.stop, now, until).map(drop)
}

/// Sleeps as [`wait`]. Returns the events of each descriptor.
pub(super) fn poll(
    descriptors: &[(RawFd, libc::c_short)],
    stop: &StopFlag,
    now: Time,
    until: Time,
) -> io::Result<Vec<libc::c_short>> {
    let bell = (stop.event_fd().as_raw_fd(), libc::POLLIN);
    let polled = |&(fd, events): &(RawFd, libc::c_short)| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut fds: Vec<libc::pollfd> = [bell].iter().chain(descriptors).map(polled).collect();
    let span = until.since(now);
    let timeout = libc::timespec {
        tv_sec: span.as_secs() as libc::time_t,
        tv_nsec: i64::from(span.subsec_nanos()),
    };
    // SAFETY: `fds` and `timeout` are initialised; no signal mask is changed.
    let ready = check(unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            fds.len() as libc::nfds_t,
            &raw const timeout,
            ptr::null(),
        )
    });
    match ready {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
        _ => {}
    }
    if fds[0].revents != 0 {
        stop.clear_wake();
    }
    Ok(fds.iter().skip(1).map(|fd| fd.revents).collect())
}

/// Limits the unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`).
pub(super) fn set_unsent(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    set(
        stream.as_raw_fd(),
        libc::TCP_NOTSENT_LOWAT,
        &bytes.to_ne_bytes(),
    )
}

fn set(fd: RawFd, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    set_at(fd, libc::IPPROTO_TCP, option, value)
}

fn set_at(fd: RawFd, level: libc::c_int, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: reads the bytes of `value`.
    check(unsafe {
        libc::setsockopt(
            fd,
            level,
            option,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    })
    .map(drop)
}

fn queue(fd: RawFd, request: libc::Ioctl) -> io::Result<Bytes> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write one int.
    check(unsafe { libc::ioctl(fd, request, &raw mut bytes) })?;
    Ok(Bytes(u64::try_from(bytes).unwrap_or(0)))
}

/// From `include/uapi/linux/tcp.h` of the kernel.
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// Time in ms after which the kernel closes a connection without acknowledgements, if the timeout
/// has no maximum (`net.ipv4.tcp_retries2` = 15).
const PATIENCE: u32 = 924_600;
/// From `include/uapi/linux/sockios.h` of the kernel.
const SIOCOUTQNSD: libc::Ioctl = 0x894B;

const _: () = assert!(
    mem::size_of::<libc::c_int>() == 4,
    "size of the ioctl result"
);

/// Pacing rate limit in bytes per second, 34 Gb/s. The next larger value disables pacing.
const FASTEST: u32 = u32::MAX - 1;
