//! The expiry of a socket's retransmission timer: the report of the kernel (`NETLINK_SOCK_DIAG`, as
//! in `ss -o`), and the delay that its timer wheel can add.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, getpeername, getsockname,
    netlink, recv, send, socket_with,
};

use crate::system::{monotonic, option, tick};

/// Reads timers of sockets of this network namespace.
#[derive(Debug)]
pub(super) struct Timers(OwnedFd);

/// The kernel's report of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// Time of the report.
    pub(super) at: Duration,
    /// Remaining time, rounded up to ticks of the kernel.
    pub(super) within: Duration,
    /// Whether the timer has expired before without an acknowledgement since.
    pub(super) backed_off: bool,
}

impl Timers {
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
        let socket = socket_with(family, kind, flags, Some(netlink::SOCK_DIAG))?;
        Ok(Self(socket))
    }

    /// The timer of a socket for retransmissions or tail loss probes (RFC 8985), if it is set.
    /// `None` also if the kernel does not report it, as for sockets of another network namespace.
    pub(super) fn due(&self, socket: BorrowedFd<'_>, cookie: u64) -> Option<Due> {
        send(&self.0, &request(socket, cookie).ok()?, SendFlags::empty()).ok()?;
        let mut reply = [0_u8; REPLY];
        // The reply is queued before `send` returns.
        let (length, _) = recv(&self.0, &mut reply, RecvFlags::empty()).ok()?;
        let at = monotonic();
        timer_of(&reply[..length], cookie, at)
    }
}

/// Parses `struct inet_diag_msg` after `struct nlmsghdr`.
fn timer_of(reply: &[u8], cookie: u64, at: Duration) -> Option<Due> {
    let number = |at: usize| {
        let bytes = reply.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let kind = u16::from_ne_bytes(reply.get(4..6)?.try_into().ok()?);
    let of = u64::from(number(60)?) | u64::from(number(64)?) << 32;
    let (timer, retransmits) = (*reply.get(18)?, *reply.get(19)?);
    let found = kind == SOCK_DIAG_BY_FAMILY && of == cookie && timer == RETRANSMISSION;
    found.then_some(Due {
        at,
        within: Duration::from_millis(number(68)?.into()),
        backed_off: retransmits > 0,
    })
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`, for the timer of a connection.
fn request(socket: BorrowedFd<'_>, cookie: u64) -> io::Result<[u8; 72]> {
    let mut request = [0; 72];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &72_u32.to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    let peer = getpeername(socket)?.ok_or(Errno::NOTCONN)?;
    for (end, address) in [getsockname(socket)?, peer].into_iter().enumerate() {
        let address = SocketAddr::try_from(address)?;
        let (family, bytes) = match address.ip() {
            IpAddr::V4(v4) => (libc::AF_INET, &v4.octets()[..]),
            IpAddr::V6(v6) => (libc::AF_INET6, &v6.octets()[..]),
        };
        put(16, &[family as u8, libc::IPPROTO_TCP as u8]);
        // Ports, then addresses of 16 bytes, in network byte order.
        put(24 + 2 * end, &address.port().to_be_bytes());
        put(28 + 16 * end, bytes);
    }
    // All states.
    put(20, &u32::MAX.to_ne_bytes());
    // Linux before 5.0 does not report the interface; few sockets are bound to one.
    let interface: u32 = option(socket, libc::SOL_SOCKET, SO_BINDTOIFINDEX).unwrap_or(0);
    put(60, &interface.to_ne_bytes());
    // Two halves, the low one first.
    put(64, &(cookie as u32).to_ne_bytes());
    put(68, &((cookie >> 32) as u32).to_ne_bytes());
    Ok(request)
}

/// The kernel's timer wheel (`kernel/time/timer.c`). Its granularity grows with the length of a
/// timer: it expires up to an eighth of its length late, at multiples of a power of eight ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wheel {
    tick: Duration,
    /// A time at which timers of a granularity expired, and the granularity. Others of the same or
    /// a finer granularity expire at multiples from there.
    stop: Option<(Duration, Duration)>,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            tick: tick().max(SHORTEST_TICK),
            stop: None,
        }
    }

    /// The granularity of a timer of this length.
    fn grain(&self, span: Duration) -> Duration {
        let ticks = span.as_nanos().div_ceil(self.tick.as_nanos());
        let level = (0..DEEPEST).find(|&level| ticks < u128::from(FIRST << (3 * level)));
        self.tick * (1 << (3 * level.unwrap_or(DEEPEST)))
    }

    /// The window in which a timer expires that is due `within` from now. If its length is known
    /// exactly, earlier timers of its granularity narrow the window.
    pub(super) fn window(&self, now: Duration, within: Duration, span: Span) -> Range<Duration> {
        let grain = self.grain(span.longest);
        // It expires at the first multiple after the tick at which it is due.
        let (earliest, latest) = (now + within, now + within + grain);
        let start = match self.stop {
            Some((stop, of)) if span.exact && of >= grain => {
                // That tick may be a multiple; `stop` and `now` are both slightly after their
                // ticks.
                let earliest = earliest + self.tick / 2;
                let behind = earliest.saturating_sub(stop).as_nanos() % grain.as_nanos();
                (earliest + grain).saturating_sub(Duration::from_nanos(behind as u64))
            }
            _ => earliest,
        };
        start.saturating_sub(ALERT)..latest + ALERT
    }

    /// A timer of this span expired.
    pub(super) fn expired(&mut self, at: Duration, span: Span) {
        let grain = self.grain(span.longest);
        if span.exact && self.stop.is_none_or(|(_, of)| of <= grain) {
            self.stop = Some((at, grain));
        }
    }

    /// The learnt multiple is wrong.
    pub(super) fn forget(&mut self) {
        self.stop = None;
    }
}

/// The length of a timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) longest: Duration,
    pub(super) exact: bool,
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SO_BINDTOIFINDEX: i32 = 62;
/// `idiag_timer` for retransmissions and tail loss probes.
const RETRANSMISSION: u8 = 1;
/// The reply has 88 bytes and a few attributes.
const REPLY: usize = 512;
/// Ticks of the finest level of the wheel (`LVL_START(1)`).
const FIRST: u64 = 63;
/// Levels above it for the longest time-out of TCP, two minutes.
const DEEPEST: u32 = 4;
/// The kernel has 100 to 1,000 ticks per second.
const SHORTEST_TICK: Duration = Duration::from_millis(1);
/// Time for the wake-up of a processor, which usually takes a tenth of it.
const ALERT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use proptest::prelude::*;

    use super::super::tests::{into_the_void, judged};
    use super::*;
    use crate::system::cookie;

    /// The first expiry of the timer is 0.2 s after the write.
    #[test]
    fn the_kernel_reports_retransmission_timers() {
        judged("the_kernel_reports_retransmission_timers", || {
            let six = TcpListener::bind("[::1]:0").map(|_| "[::1]:0");
            for address in ["127.0.0.1:0"].into_iter().chain(six) {
                let (mut stream, _peer) = into_the_void(address);
                stream.write_all(&[0]).unwrap();
                let cookie = cookie(stream.as_fd()).unwrap();
                let timers = Timers::open().unwrap();
                let due = timers.due(stream.as_fd(), cookie).expect(address);
                assert!(!due.backed_off);
                assert!(due.within <= Duration::from_secs(1), "{due:?}");
                let other = timers.due(stream.as_fd(), cookie + 1);
                assert_eq!(other, None, "another socket's");
            }
        });
    }

    #[test]
    fn a_connection_without_data_has_no_timer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let cookie = cookie(stream.as_fd()).unwrap();
        assert_eq!(Timers::open().unwrap().due(stream.as_fd(), cookie), None);
        assert_eq!(timer_of(&[0; 71], 0, Duration::ZERO), None, "cut short");
    }

    /// `calc_index` of the kernel, in ticks.
    fn expires(set_at: u64, ticks: u64) -> u64 {
        let level = (0..8).find(|&level| ticks < 63 << (3 * level)).unwrap();
        (((set_at + ticks) >> (3 * level)) + 1) << (3 * level)
    }

    proptest! {
        #[test]
        fn timers_expire_in_their_windows(
            tick_ms in prop::sample::select(vec![1_u64, 4, 10]),
            phase in 0_u64..1_000_000,
            timers in prop::collection::vec((1_u64..100_000, 1_u64..120_000, 0_u64..400, any::<bool>()), 1..20),
        ) {
            let tick = Duration::from_millis(tick_ms);
            let mut wheel = Wheel { tick, stop: None };
            let at = |ticks: u64| tick * ticks as u32 + Duration::from_micros(phase % (tick_ms * 1_000));
            let mut now = 10_000;
            for (wait, ms, late, exact) in timers {
                now += wait;
                let ticks = ms.div_ceil(tick_ms);
                let late = Duration::from_micros(late);
                // Read right after the tick, within the duration of a look.
                let asked = at(now) + late;
                let span = Span { longest: tick * ticks as u32, exact };
                let window = wheel.window(asked, span.longest, span);
                now = expires(now, ticks);
                let seen = at(now) + late;
                prop_assert!(window.contains(&seen), "{window:?} {seen:?}");
                // The thread is awake for at most an eighth of the time and two ticks.
                let most = span.longest / 7 + 2 * tick + 2 * ALERT;
                prop_assert!(window.end.saturating_sub(window.start) <= most);
                if wheel.stop.is_some_and(|(_, of)| exact && of >= wheel.grain(span.longest)) {
                    prop_assert!(seen.saturating_sub(window.start) <= 2 * ALERT);
                }
                wheel.expired(seen, span);
            }
        }
    }
}
