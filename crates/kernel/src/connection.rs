//! A kernel connection for the state machine of the papers: events of Table 1, and views.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::tcp_congestion;
use tidegate_core::tcp_rate::{CongestionControl, EventNotification, Subscription, TcpView};
use tidegate_core::units::{Bytes, Rate, Time};

use crate::bpf::events::EventRequest;
use crate::error::EventsError;
use crate::event::{EventDetails, EventKind, EventSet, SubscriptionId};
use crate::events::Events;
use crate::system::{monotonic, option};
use crate::tcp::{self, Info};
use crate::variables::{Snapshot, Variable};

/// Event source of a [`TcpRateAdapter`](tidegate_core::tcp_rate::TcpRateAdapter) for one kernel
/// socket.
#[derive(Debug)]
pub struct Connection {
    events: Events,
    /// A duplicate of the caller's descriptor.
    socket: OwnedFd,
    id: SubscriptionId,
    control: Control,
    /// Maximum RTO.
    longest_timeout: Duration,
    /// Time of the last segment that was sent with no other data in flight.
    began: Time,
    /// Whether no data was in flight at the last reading.
    was_idle: bool,
}

/// The congestion control of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    /// Reno, or an unknown one.
    Reno,
    Cubic,
    Bbr {
        /// Time of the last observed probe of the minimum RTT.
        probed: Time,
    },
}

impl Connection {
    /// Subscribes to the events of a connected socket.
    ///
    /// # Errors
    ///
    /// The socket is not a TCP socket, the policy does not allow the events, or a system call
    /// fails.
    pub fn new(
        events: Events,
        socket: impl AsFd,
        subscribed: Subscription,
    ) -> Result<Self, EventsError> {
        let socket = socket.as_fd().try_clone_to_owned();
        let socket = socket?;
        let wanted = EventRequest {
            events: Self::kinds(subscribed),
            variables: VARIABLES.iter().copied().collect(),
        };
        let variables = wanted.variables.and(events.allowed().variables);
        let id = events.subscribe(
            &socket,
            EventRequest {
                variables,
                ..wanted
            },
        )?;
        Ok(Self {
            events,
            id,
            control: control(socket.as_fd())?,
            longest_timeout: longest_timeout(socket.as_fd()),
            socket,
            began: Time::ZERO,
            was_idle: true,
        })
    }

    /// Kernel events that a source must allow ([`Events::allowed`]) for a subscription to these
    /// events of the papers.
    pub fn kinds(subscribed: Subscription) -> EventSet {
        let wanted = |kind: &EventKind| {
            // The state machine of the papers does not use event 3.
            let event = kind.in_table_1().filter(|_| *kind != EventKind::Threshold);
            event.is_some_and(|event| subscribed.contains(event))
        };
        EventKind::ALL.into_iter().filter(wanted).collect()
    }

    /// The event source.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The current view of the connection.
    ///
    /// # Errors
    ///
    /// The system does not report the state of the socket.
    pub fn view(&mut self, now: Time) -> io::Result<TcpView> {
        let (info, state) = tcp::read(self.socket.as_fd())?;
        self.view_of(now, &info, &state)
    }

    /// The oldest event, without blocking, and the view at its time. Variables that the policy
    /// removes from events have their current values.
    ///
    /// # Errors
    ///
    /// The daemon has ended, or a system call fails.
    pub fn next_event(
        &mut self,
        now: Time,
    ) -> Result<Option<(EventNotification, TcpView)>, EventsError> {
        while let Some(event) = self.events.poll()? {
            if event.subscription != self.id {
                continue;
            }
            let Some(kind) = event.what.kind().in_table_1() else {
                continue;
            };
            let read = tcp::read(self.socket.as_fd());
            let (info, mut state) = read?;
            replace_variables(&mut state, &event.state);
            let view = self.view_of(now, &info, &state);
            let mut view = view?;
            let age = monotonic().saturating_sub(event.time);
            if let EventDetails::Timeout { after, .. } = event.what {
                // RFC 6298 (5.5): the next RTO is twice as long.
                let next = after.saturating_mul(2).min(self.longest_timeout);
                view.next_timeout = Some(now + next.saturating_sub(age));
                view.stalled = true;
            }
            return Ok(Some((kind.at(now_minus(now, age)), view)));
        }
        Ok(None)
    }

    /// Writes as [`Events::write`] does.
    ///
    /// # Errors
    ///
    /// As [`Events::write`].
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.events.write(&self.socket, bytes)
    }

    fn view_of(&mut self, now: Time, info: &Info, state: &Snapshot) -> io::Result<TcpView> {
        let get = |variable| state.get(variable).unwrap_or_default();
        let mss = Bytes(get(Variable::Mss).max(1));
        // Zero before the first report of the peer.
        let peer = state.get(Variable::SendWindow).filter(|&bytes| bytes > 0);
        let peer = Bytes(peer.unwrap_or(u64::from(u32::MAX)));
        let cwnd = state.cwnd().unwrap_or(mss).min(peer).max(mss);
        let unacked = state.unacknowledged().unwrap_or_default();
        let sent = now_minus(now, info.since_sent());
        if unacked > Bytes(0) && self.was_idle {
            self.began = sent;
        }
        self.was_idle = unacked == Bytes(0);
        let last_ack = now_minus(now, info.since_heard()).max(self.began);
        let stalled = get(Variable::Retransmits) > 0 && unacked > Bytes(0);
        let timeout = state.rto().unwrap_or_default();
        let armed = if stalled { sent } else { last_ack };
        Ok(TcpView {
            control: self.congestion_control(now, cwnd, mss)?,
            mss,
            srtt: state.srtt().unwrap_or_default(),
            cwnd,
            ssthresh: state.ssthresh().unwrap_or(peer).min(peer),
            unacked,
            unsent: state.unsent().unwrap_or_default(),
            sent: Bytes(get(Variable::BytesSent).saturating_sub(get(Variable::BytesRetrans))),
            next_timeout: (unacked > Bytes(0)).then(|| (armed + timeout).max(now)),
            unacked_since: (unacked > Bytes(0)).then_some(last_ack),
            stalled,
            oldest_sent: None,
            resumed: None,
        })
    }

    fn congestion_control(
        &mut self,
        now: Time,
        cwnd: Bytes,
        mss: Bytes,
    ) -> io::Result<CongestionControl> {
        let Control::Bbr { probed } = &mut self.control else {
            return Ok(match self.control {
                Control::Cubic => CongestionControl::Cubic,
                _ => CongestionControl::Reno,
            });
        };
        // BBR reduces its window to four segments in order to measure the RTT, and does not report
        // the time.
        if cwnd <= mss.scale(4, 1) {
            *probed = now;
        }
        let [low, high, min_rtt, pacing_gain, _]: [u32; 5] =
            option(self.socket.as_fd(), libc::IPPROTO_TCP, TCP_CC_INFO)?;
        let bytes = u64::from(high) << 32 | u64::from(low);
        let known = min_rtt != u32::MAX;
        Ok(CongestionControl::Bbr {
            bandwidth: Rate::bps(bytes.saturating_mul(8)),
            min_rtt: Duration::from_micros(if known { min_rtt.into() } else { 0 }),
            next_probe: BBR_PROBES.saturating_sub(now.since(*probed)),
            starting: pacing_gain >= BBR_STARTS,
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Fails if the socket is closed, which has ended the subscription.
        let _ = self.events.cancel(self.id);
    }
}

/// Replaces variables by those of an event. Sequence numbers of events have another origin, so all
/// or none of them are replaced.
fn replace_variables(state: &mut Snapshot, event: &Snapshot) {
    let known = event.known();
    let sequence = SEQUENCE.iter().all(|&variable| known.contains(variable));
    for variable in known.iter() {
        if let Some(value) = event.get(variable)
            && (sequence || !SEQUENCE.contains(&variable))
        {
            state.set(variable, value);
        }
    }
}

fn control(socket: BorrowedFd<'_>) -> io::Result<Control> {
    Ok(match tcp_congestion(socket)?.as_str() {
        "cubic" => Control::Cubic,
        "bbr" => Control::Bbr { probed: Time::ZERO },
        _ => Control::Reno,
    })
}

/// Maximum RTO: a socket option since Linux 6.15, the constant `TCP_RTO_MAX` before.
fn longest_timeout(socket: BorrowedFd<'_>) -> Duration {
    let ms = option::<u32>(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS);
    ms.map_or(Duration::from_mins(2), |ms| {
        Duration::from_millis(ms.into())
    })
}

fn now_minus(now: Time, age: Duration) -> Time {
    Time::from_nanos(now.as_nanos().saturating_sub(age.as_nanos() as u64))
}

const SEQUENCE: [Variable; 4] = [
    Variable::SndUna,
    Variable::SndNxt,
    Variable::WriteSeq,
    Variable::BytesAcked,
];
/// The variables of a view.
const VARIABLES: [Variable; 13] = [
    Variable::SendWindow,
    Variable::Cwnd,
    Variable::Ssthresh,
    Variable::Mss,
    Variable::Rto,
    Variable::Srtt,
    Variable::SndUna,
    Variable::SndNxt,
    Variable::WriteSeq,
    Variable::BytesAcked,
    Variable::BytesSent,
    Variable::BytesRetrans,
    Variable::Retransmits,
];
/// From the kernel's `include/uapi/linux/tcp.h`.
const TCP_CC_INFO: i32 = 26;
const TCP_RTO_MAX_MS: i32 = 44;
/// The kernel's `bbr_min_rtt_win_sec`.
const BBR_PROBES: Duration = Duration::from_secs(10);
/// In units of 1/256. The pacing gain of BBR's start-up is 739; all others are below 320.
const BBR_STARTS: u32 = 512;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(10_000 + ms)
    }

    /// `None` if the system does not allow this congestion control.
    fn watched(congestion: &str) -> Option<(Connection, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        let (far, _) = listener.accept().unwrap();
        if let Err(why) = tcp::set_congestion_control(&near, congestion) {
            eprintln!("not tested: this system does not allow {congestion} ({why})");
            return None;
        }
        let events = Events::unprivileged().unwrap();
        let connection = Connection::new(events, &near, Subscription::ALL).unwrap();
        Some((connection, far))
    }

    /// The receiver reads no data, so data remains in both buffers.
    #[test]
    fn a_view_is_consistent() {
        let (mut connection, mut far) = watched("reno").expect("Reno is available to all users");
        let view = connection.view(at(0)).unwrap();
        assert_eq!(view.control, CongestionControl::Reno);
        assert_eq!((view.backlog(), view.sent), (Bytes(0), Bytes(0)));
        assert_eq!((view.next_timeout, view.unacked_since), (None, None));
        let mut written = 0;
        while let Ok(count) = connection.write(&[7; 10_000]) {
            written += count as u64;
        }
        let view = connection.view(at(1)).unwrap();
        assert!(view.mss > Bytes(500) && view.cwnd >= view.mss);
        assert!(view.sent + view.unsent == Bytes(written), "{view:?}");
        assert!(view.ssthresh >= view.mss && !view.stalled);
        let mut read = vec![0; written as usize];
        far.read_exact(&mut read).unwrap();
        assert!(matches!(connection.next_event(at(2)), Ok(None)));
    }

    #[test]
    fn the_congestion_control_is_the_sockets_own() {
        let Some((mut connection, _far)) = watched("cubic") else {
            return;
        };
        let view = connection.view(at(0)).unwrap();
        assert_eq!(view.control, CongestionControl::Cubic);
    }

    /// Until BBR has found the bandwidth of the path, with a receiver that reads.
    #[test]
    fn bbr_reports_its_start_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        if tcp::set_congestion_control(&near, "bbr").is_err() {
            eprintln!("not tested: this kernel has no BBR");
            return;
        }
        let events = Events::unprivileged().unwrap();
        let mut connection = Connection::new(events, &near, Subscription::ALL).unwrap();
        let mut is_starting = |ms| match connection.view(at(ms)).unwrap().control {
            CongestionControl::Bbr { starting, .. } => starting,
            other => panic!("{other:?}"),
        };
        let reader = std::thread::spawn(move || std::io::copy(&mut far, &mut std::io::sink()));
        let much = vec![7; 100_000];
        let mut samples = Vec::new();
        // Start-up is reported from the first acknowledgement on.
        while samples.len() < 2_000 && !(samples.contains(&true) && samples.ends_with(&[false])) {
            near.write_all(&much).unwrap();
            samples.push(is_starting(samples.len() as u64));
        }
        drop((near, connection));
        reader.join().unwrap().unwrap();
        assert!(
            samples.contains(&true) && samples.ends_with(&[false]),
            "{samples:?}"
        );
    }

    #[test]
    fn variables_that_the_policy_hides_have_present_values() {
        let (mut now, mut event) = (Snapshot::new(), Snapshot::new());
        for variable in SEQUENCE {
            now.set(variable, 5);
        }
        event.set(Variable::SndUna, 90_000);
        event.set(Variable::Cwnd, 1);
        replace_variables(&mut now, &event);
        assert_eq!(now.get(Variable::SndUna), Some(5));
        assert_eq!(now.get(Variable::Cwnd), Some(1));
    }
}
