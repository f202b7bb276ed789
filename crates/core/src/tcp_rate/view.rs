//! What an application can read of a TCP sender, and the forecast that follows from it.

use core::time::Duration;

use crate::delay_bound::{BbrCycle, CubicEpoch, ServiceCurve, TcpPath};
use crate::units::{Bytes, Rate, Time};

/// The state of a TCP connection at one moment, as the sending kernel has it (its `tcp_info`), or
/// a model of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpView {
    /// Which congestion control the socket really uses.
    pub control: CongestionControl,
    /// Payload of a full segment (the paper's I, `t_maxseg`).
    pub mss: Bytes,
    /// Smoothed round-trip time (`t_rtttime`); zero before the first sample.
    pub srtt: Duration,
    /// What may be outstanding, by the congestion window or the receiver, whichever is less.
    pub cwnd: Bytes,
    /// Where slow start ends; more than any window before there is one.
    pub ssthresh: Bytes,
    /// Sent and not acknowledged, whether lost or on its way.
    pub unacked: Bytes,
    /// Written by the application and never sent.
    pub unsent: Bytes,
    /// Payload sent since the connection was opened (`t_rtseq` − `t_iss`).
    pub sent: Bytes,
    /// When the retransmission timer expires next, back-off included; none while it is off.
    pub next_timeout: Option<Time>,
    /// Since when an acknowledgement is waited for: since the last one, or since something was sent
    /// when nothing was out; none while nothing is.
    pub silent_since: Option<Time>,
    /// When the oldest of what is unacknowledged was sent; none where nobody knows.
    pub oldest_sent: Option<Time>,
    /// When the path last came back from a silence through which it held what was out; none where that
    /// never happened or nobody knows. The window is from before that.
    pub resumed: Option<Time>,
    /// The timer has expired and nothing has been acknowledged since: the path may be dead, and
    /// until the timer expires again nobody will know.
    pub stalled: bool,
}

/// A congestion control, with what its forecast needs beside the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, version 1.
    Bbr {
        /// What it believes that the path carries, of payload.
        bandwidth: Rate,
        /// The smallest round trip that it knows.
        min_rtt: Duration,
        /// Until it next measures the round trip.
        next_probe: Duration,
        /// It is in its start-up, in which it paces at 2/ln 2 times the bandwidth, as that is what was
        /// delivered of what it was given, and no measure of the path yet.
        starting: bool,
    },
}

impl CongestionControl {
    /// The same, with its start-up behind it.
    pub(super) fn started(self) -> Self {
        match self {
            Self::Bbr {
                bandwidth,
                min_rtt,
                next_probe,
                ..
            } => Self::Bbr {
                bandwidth,
                min_rtt,
                next_probe,
                starting: false,
            },
            windowed => windowed,
        }
    }
}

impl TcpView {
    /// Written and not acknowledged.
    pub fn backlog(&self) -> Bytes {
        self.unacked + self.unsent
    }

    /// Of the [`backlog`](Self::backlog), what has to be sent, or sent again, before what is
    /// written now: the Q of the law, which counts what leaves. What fits into the window is on
    /// its way already.
    pub fn ahead(&self) -> Bytes {
        self.backlog() - self.unacked.min(self.cwnd)
    }

    /// Whether a write would be sent soon: the window is full up to a little, as with
    /// `TCP_NOTSENT_LOWAT`, but what is being repaired counts as well, since it goes first.
    ///
    /// An acknowledgement that is overdue stops writes as well: all that was out when the last
    /// one came should have been acknowledged within a round trip, so the path may be dead, and
    /// what is written now could neither be dropped any more nor made smaller. Where it is known when
    /// the oldest was sent, it is overdue sooner, if nothing else was acknowledged a moment ago. A round
    /// trip that has merely grown costs no more than the wait for its acknowledgement.
    pub fn has_room(&self, now: Time) -> bool {
        !self.stalled
            && !self.is_overdue(now)
            && self.backlog() < self.cwnd + self.mss.scale(LOWAT, 1)
    }

    fn is_overdue(&self, now: Time) -> bool {
        let Some(silent) = self.silent_since.filter(|_| !self.srtt.is_zero()) else {
            return false;
        };
        let oldest = self.oldest_sent.unwrap_or(Time::FAR);
        let missed = now.since(oldest) > self.srtt + SLACK && now.since(silent) > LULL;
        missed || now.since(silent) > self.srtt + self.srtt / 4 + SLACK
    }

    /// The path as the law wants it, at the smoothed round trip, or at one millisecond before
    /// there is any.
    pub fn path(&self) -> TcpPath {
        let rtt = if self.srtt.is_zero() {
            Duration::from_millis(1)
        } else {
            self.srtt
        };
        TcpPath {
            mss: self.mss,
            rtt,
            limit: None,
        }
    }

    /// What the connection can carry from now on, if the window grows as its algorithm lets it:
    /// the service curve. While it is [`stalled`](Self::stalled), nothing before the timer
    /// expires again, and then as after any time-out.
    pub fn forecast(&self, now: Time, horizon: Duration) -> ServiceCurve {
        //= itcp-4.1-service
        let path = self.path();
        let open = match self.control {
            CongestionControl::Reno => path.reno_from(self.cwnd, self.ssthresh),
            CongestionControl::Cubic => {
                // What the kernel tells is the threshold: seven tenths of the window before.
                let w_max = self.ssthresh.min(self.cwnd.scale(64, 1)).scale(10, 7);
                path.cubic_from(self.cwnd, self.ssthresh, CubicEpoch { w_max, horizon })
            }
            CongestionControl::Bbr {
                bandwidth,
                min_rtt,
                next_probe,
                starting,
            } => {
                // Before there is an estimate the window is all that is known. In its start-up BBR doubles
                // it within a round trip, if it is given that much to send and the path carries it; who
                // gives it no more than the estimate stays there, as that is what it then measures.
                let bandwidth = if bandwidth == Rate::ZERO {
                    self.cwnd / path.rtt
                } else if starting && self.srtt < min_rtt + min_rtt / 4 {
                    bandwidth.scale(2, 1)
                } else {
                    bandwidth
                };
                let path = TcpPath {
                    rtt: if min_rtt.is_zero() { path.rtt } else { min_rtt },
                    ..path
                };
                path.bbr_steady(BbrCycle {
                    bandwidth,
                    next_probe,
                    horizon,
                })
            }
        };
        match self.next_timeout {
            Some(at) if self.stalled => ServiceCurve::stall_then(at.since(now), &open),
            _ => open,
        }
    }
}

/// Segments that may wait unsent. Two: one that is being filled and one that is full, so that an
/// acknowledgement always finds a full one.
const LOWAT: u64 = 2;
/// What a frame of 25 kB adds to the round trip of its last segment at 10 Mb/s.
const SLACK: Duration = Duration::from_millis(20);
/// Between the acknowledgements of one frame there is less than this: of two segments at 600 kb/s.
const LULL: Duration = Duration::from_millis(40);
