//! A socket with the options that keep a backlog where it can still be dropped.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};
use std::time::Duration;
use std::{mem, ptr};

use tidegate_core::session::tcp::TcpReceiver;
use tidegate_core::tcp_rate::{TcpView, Told};
use tidegate_core::units::{Bytes, Time};

use super::TcpError;
use super::linear::LinearTimeouts;
use crate::driver::{Conditions, TICK};
use crate::netns::check;

/// What a socket is asked for before it sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// The congestion control, by the kernel's name for it; the system's choice without one.
    pub congestion: Option<String>,
    /// The kernel takes no more while this much waits unsent (`TCP_NOTSENT_LOWAT`).
    pub notsent_lowat: Option<Bytes>,
    /// The longest retransmission timeout (`TCP_RTO_MAX_MS`, Linux 6.15 and later), from 1 to 120 s.
    pub rto_max: Option<Duration>,
    /// Time-outs in a row are not doubled
    /// ([`linear_timeout`](tidegate_core::tcp_rate::linear_timeout)), which takes a thread.
    pub linear_timeouts: bool,
    /// Segments are spaced by TCP itself, whatever the queue of the device does
    /// (`SO_MAX_PACING_RATE`, far above what it would pace at).
    pub paced: bool,
}

/// A connected socket that never blocks.
#[derive(Debug)]
pub struct TcpSocket {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    watch: Option<Box<dyn Watch>>,
    linear: Option<LinearTimeouts>,
}

/// Who tells what a connection does, and how it stands.
pub trait Watch: fmt::Debug + Send {
    /// The oldest event that nobody took.
    ///
    /// # Errors
    /// When the socket is none any more.
    fn next_event(&mut self, now: Time) -> io::Result<Option<(Told, TcpView)>>;

    /// How the connection stands.
    ///
    /// # Errors
    /// When the socket is none any more.
    fn view(&mut self, now: Time) -> io::Result<TcpView>;

    /// Writes to the socket in the way that it needs; as [`io::Write::write`].
    ///
    /// # Errors
    /// As that.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// What can be read when there are events.
    fn events(&self) -> BorrowedFd<'_>;
}

impl TcpSocket {
    /// Takes over a connection. Small writes leave at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// Names the option that the system refuses.
    pub fn new(stream: TcpStream, options: &TcpOptions) -> Result<Self, TcpError> {
        let peer = stream.peer_addr().map_err(TcpError::System)?;
        Self::of_peer(stream, peer, options)
    }

    /// The same where it is known who the peer is, which the system no longer tells of a connection
    /// that was reset meanwhile. It is taken over all the same, and the first use of it fails.
    ///
    /// # Errors
    /// Names the option that the system refuses.
    pub fn of_peer(
        stream: TcpStream,
        mut peer: SocketAddr,
        options: &TcpOptions,
    ) -> Result<Self, TcpError> {
        // A socket of IPv6 has players of IPv4, too.
        peer.set_ip(peer.ip().to_canonical());
        stream.set_nonblocking(true).map_err(TcpError::System)?;
        stream.set_nodelay(true).map_err(TcpError::System)?;
        let fd = stream.as_raw_fd();
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
            set_rto_max(stream.as_fd(), span).map_err(refused("TCP_RTO_MAX_MS (--rto-max)"))?;
            // The kernel would give up after 15 such time-outs: 14.4 s if they are of one second.
            set(fd, libc::TCP_USER_TIMEOUT, &PATIENCE.to_ne_bytes())
                .map_err(refused("TCP_USER_TIMEOUT"))?;
        }
        if options.paced {
            let level = libc::SOL_SOCKET;
            set_at(fd, level, libc::SO_MAX_PACING_RATE, &FASTEST.to_ne_bytes())
                .map_err(refused("SO_MAX_PACING_RATE"))?;
        }
        let linear = options.linear_timeouts;
        let linear = linear.then(|| LinearTimeouts::start(stream.as_fd()));
        let linear = linear.transpose();
        let linear = linear.map_err(TcpError::System)?;
        Ok(Self {
            stream,
            peer,
            watch: None,
            linear,
        })
    }

    /// From now on somebody watches it for a sender that decides by what it does.
    pub fn set_watch(&mut self, watch: Box<dyn Watch>) {
        self.watch = Some(watch);
    }

    /// What can be read when there are events.
    pub(super) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(|watch| watch.events())
    }

    /// What its watch says of the connection now; nothing without one.
    ///
    /// # Errors
    /// When the socket is none any more.
    pub(super) fn view(&mut self, now: Time) -> io::Result<Option<TcpView>> {
        let Some(watch) = &mut self.watch else {
            return Ok(None);
        };
        let view = watch.view(now)?;
        Ok(Some(self.with_linear(now, view)))
    }

    /// The oldest event that nobody took.
    ///
    /// # Errors
    /// When the socket is none any more.
    pub(super) fn next_event(&mut self, now: Time) -> io::Result<Option<(Told, TcpView)>> {
        let Some(watch) = &mut self.watch else {
            return Ok(None);
        };
        let event = watch.next_event(now)?;
        Ok(event.map(|(told, view)| (told, self.with_linear(now, view))))
    }

    /// A watch knows the kernel's own back-off only.
    fn with_linear(&self, now: Time, mut view: TcpView) -> TcpView {
        let left = self.linear.as_ref().and_then(LinearTimeouts::until_next);
        if let (true, Some(left)) = (view.stalled, left) {
            view.next_timeout = Some(now + left);
        }
        view
    }

    /// The other end.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Why it is of no use any more, if the peer has reset the connection.
    pub fn broken(&self) -> Option<TcpError> {
        let name = self.stream.peer_addr();
        let gone = name.is_err_and(|e| e.kind() == io::ErrorKind::NotConnected);
        gone.then(|| TcpError::Closed {
            peer: self.peer,
            cause: self.stream.take_error().ok().flatten(),
        })
    }

    /// What the kernel holds: not yet sent, and sent but not acknowledged.
    ///
    /// # Errors
    /// When the socket is none any more.
    pub fn backlog(&self) -> io::Result<(Bytes, Bytes)> {
        let unsent = queue(self.stream.as_raw_fd(), SIOCOUTQNSD)?;
        let all = queue(self.stream.as_raw_fd(), libc::TIOCOUTQ)?;
        Ok((unsent, all.saturating_sub(unsent)))
    }

    /// Writes what the socket takes now; zero if it is full.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let written = match &mut self.watch {
                Some(watch) => watch.write(bytes),
                None => self.stream.write(bytes),
            };
            match written {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }

    /// Waits until the peer has begun with a stream of packets, the stop flag is set, `asked` says so,
    /// or it is `until`. Nothing is read. A peer whose host has vanished has gone after a minute.
    ///
    /// # Errors
    /// [`TcpError::Silent`] when the peer went before it began, [`TcpError::NoStream`] when its first
    /// words are of another protocol, and what else the system says.
    pub fn wait_for_words(
        &self,
        until: Time,
        conditions: &Conditions,
        mut asked: impl FnMut() -> bool,
    ) -> Result<(), TcpError> {
        let (peer, fd) = (self.peer, self.stream.as_raw_fd());
        keep_asking(fd).map_err(TcpError::System)?;
        let wake_at = |least: usize| {
            let least = least as libc::c_int;
            let level = libc::SOL_SOCKET;
            set_at(fd, level, libc::SO_RCVLOWAT, &least.to_ne_bytes()).map_err(TcpError::System)
        };
        let (mut words, mut known) = ([0; WORDS], 0);
        loop {
            match self.stream.peek(&mut words) {
                Ok(0) => return Err(TcpError::Silent { peer, cause: None }),
                Ok(count) => {
                    let (now, words) = (conditions.clock.now(), &words[..count]);
                    let judged = TcpReceiver::new().on_bytes(now, words);
                    judged.map_err(|fault| TcpError::no_stream(peer, fault))?;
                    if has_begun(words) || count == WORDS {
                        return wake_at(1);
                    }
                    // What was heard stays there, so that it would wake us up again.
                    if count == known && has_ended(fd).map_err(TcpError::System)? {
                        return Err(TcpError::Silent { peer, cause: None });
                    }
                    known = count;
                    wake_at(count + 1)?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => {
                    return Err(TcpError::of(e, peer).before_a_word());
                }
                Err(_) => {}
            }
            let now = conditions.clock.now();
            if conditions.stop.is_set() || now >= until || asked() {
                return wake_at(1);
            }
            wait(
                &[(fd, libc::POLLIN)],
                conditions,
                now,
                until.min(now + TICK),
            )
            .map_err(TcpError::System)?;
        }
    }

    /// Reads what is there. `None` if nothing is, zero at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.stream.read(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map(Some),
            }
        }
    }
}

/// Bounds the retransmission time-outs of a TCP socket (`TCP_RTO_MAX_MS`), from 1 to 120 s.
///
/// # Errors
/// The kernel is older than 6.15 and has no such option (`ENOPROTOOPT`), or the span does not please it
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
    /// Says these last words and waits so long at most until the peer has gone, so that what still
    /// comes from it does not make the system take them back. What the socket does not take at once
    /// goes meanwhile.
    ///
    /// # Errors
    /// The peer has gone before all was said, or does not take it (`TimedOut`).
    pub(super) fn leave(
        &mut self,
        words: &[u8],
        patience: Duration,
        conditions: &Conditions,
    ) -> io::Result<()> {
        let mut unsaid = Some(words);
        let mut buffer = vec![0; 1 << 16];
        let end = conditions.clock.now() + patience;
        loop {
            let now = conditions.clock.now();
            if let Some(words) = unsaid {
                let rest = &words[self.write(words)?..];
                unsaid = (!rest.is_empty()).then_some(rest);
                if unsaid.is_none() {
                    self.stream.shutdown(Shutdown::Write)?;
                }
            }
            match (self.read(&mut buffer)?, unsaid.is_none()) {
                (Some(0), true) => return Ok(()),
                (Some(0), false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                (_, true) if now >= end => return Ok(()),
                (_, false) if now >= end => return Err(io::ErrorKind::TimedOut.into()),
                (Some(_), _) => {}
                (None, said) => {
                    let events = libc::POLLIN | if said { 0 } else { libc::POLLOUT };
                    let own = (self.stream.as_raw_fd(), events);
                    wait(&[own], conditions, now, end)?;
                }
            }
        }
    }
}

/// Whether the first byte of a packet is there, by which a stream is told from other protocols. Empty
/// packets are none.
fn has_begun(mut words: &[u8]) -> bool {
    while let [0, 0, rest @ ..] = words {
        words = rest;
    }
    words.len() > 2
}

/// Whether the peer will say no more.
fn has_ended(fd: RawFd) -> io::Result<bool> {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: `polled` is whole, and one.
    check(unsafe { libc::poll(&raw mut polled, 1, 0) })?;
    Ok(polled.revents != 0)
}

/// Has the kernel find out whether the peer's host is still there: it asks after half a minute of
/// silence, and three times in all.
fn keep_asking(fd: RawFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    set_at(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &on.to_ne_bytes())?;
    let [silence, pause, times]: [libc::c_int; 3] = [30, 10, 3];
    set(fd, libc::TCP_KEEPIDLE, &silence.to_ne_bytes())?;
    set(fd, libc::TCP_KEEPINTVL, &pause.to_ne_bytes())?;
    set(fd, libc::TCP_KEEPCNT, &times.to_ne_bytes())
}

/// Sleeps until a descriptor is ready (a negative one never is), the driver is woken, or `until`.
pub(super) fn wait(
    descriptors: &[(RawFd, libc::c_short)],
    conditions: &Conditions,
    now: Time,
    until: Time,
) -> io::Result<()> {
    let bell = (conditions.stop.event_fd(), libc::POLLIN);
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
    // SAFETY: `fds` and `timeout` are whole; no signal mask is changed.
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
        conditions.stop.hush();
    }
    Ok(())
}

pub(super) fn set(fd: RawFd, option: libc::c_int, value: &[u8]) -> io::Result<()> {
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

/// Of the kernel's `include/uapi/linux/tcp.h`.
pub(super) const TCP_RTO_MAX_MS: libc::c_int = 44;
/// In milliseconds: how long the kernel tries to get something through without a longest time-out
/// (`net.ipv4.tcp_retries2` = 15).
pub(super) const PATIENCE: u32 = 924_600;
/// Of the kernel's `include/uapi/linux/sockios.h`.
const SIOCOUTQNSD: libc::Ioctl = 0x894B;

const _: () = assert!(mem::size_of::<libc::c_int>() == 4, "as the ioctls write it");

/// How much of what a peer says first is looked at.
const WORDS: usize = 64;

/// In bytes per second, 34 Gb/s: one more would say that nothing is paced.
const FASTEST: u32 = u32::MAX - 1;
