//! State of a TCP sender as read by an application, and the capacity forecast from it.

use core::time::Duration;

use crate::delay_bound::{BbrCycle, CubicEpoch, ServiceCurve, TcpPath};
use crate::units::{Bytes, Rate, Time};

/// State of a TCP connection: `tcp_info` of the sending kernel, or the state of a TCP model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpView {
    /// Congestion control in use by the socket.
    pub control: CongestionControl,
    /// Payload of a full segment (the paper's I, `t_maxseg`).
    pub mss: Bytes,
    /// Smoothed round-trip time (`t_rtttime`); zero before the first sample.
    pub srtt: Duration,
    /// Send window: the minimum of congestion window and receive window.
    pub cwnd: Bytes,
    /// Slow start threshold; larger than any window if not set yet.
    pub ssthresh: Bytes,
    /// Bytes sent and not acknowledged, lost or in flight.
    pub unacked: Bytes,
    /// Bytes written by the application and never sent.
    pub unsent: Bytes,
    /// Payload sent since the connection was opened (`t_rtseq` − `t_iss`).
    pub sent: Bytes,
    /// Next expiry of the retransmission timer, back-off included; `None` if the timer is off.
    pub next_timeout: Option<Time>,
    /// Start of the wait for an acknowledgement: the last acknowledgement, or the first packet
    /// sent when no data was outstanding. `None` if no data is outstanding.
    pub unacked_since: Option<Time>,
    /// Sending time of the oldest unacknowledged byte; `None` if unknown.
    pub oldest_sent: Option<Time>,
    /// Time when the path last resumed after an outage during which it kept the packets in flight;
    /// `None` if that never happened or is unknown. The window is the one from before the outage.
    pub resumed: Option<Time>,
    /// The retransmission timer has expired and no acknowledgement has arrived since. The path may
    /// be interrupted, and the next probe of it is the next expiry of the timer.
    pub stalled: bool,
}

/// Congestion control, with the parameters of its forecast in addition to the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, version 1.
    Bbr {
        /// Bandwidth estimate, payload only.
        bandwidth: Rate,
        /// Minimum round-trip time.
        min_rtt: Duration,
        /// Time until the next measurement of the round trip (`PROBE_RTT`).
        next_probe: Duration,
        /// BBR is in startup. It paces at 2/ln 2 times the bandwidth estimate, because the estimate
        /// is the delivered rate of an application-limited source and not yet the capacity.
        starting: bool,
    },
}

impl CongestionControl {
    /// The same congestion control after startup.
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
    /// Bytes written and not acknowledged.
    pub fn backlog(&self) -> Bytes {
        self.unacked + self.unsent
    }

    /// Part of the [`backlog`](Self::backlog) that must be sent or retransmitted before data
    /// written now: the Q of the law, which counts departures. Unacknowledged bytes within the
    /// window count as in flight.
    pub fn bytes_ahead(&self) -> Bytes {
        self.backlog() - self.unacked.min(self.cwnd)
    }

    /// Whether written data would be sent soon: the backlog is less than the window plus two
    /// segments. This is similar to `TCP_NOTSENT_LOWAT`, but includes retransmissions, which are
    /// sent first.
    ///
    /// An overdue acknowledgement also stops writes. All packets in flight at the last
    /// acknowledgement should be acknowledged within a round trip. If they are not, the path may be
    /// interrupted, and data written now could neither be dropped nor reduced any more. If the
    /// sending time of the oldest byte is known, its acknowledgement is overdue sooner, unless
    /// other data was acknowledged just before. If the round trip has only grown, the cost is the
    /// wait for the acknowledgement.
    pub fn has_room(&self, now: Time) -> bool {
        !self.stalled
            && !self.is_overdue(now)
            && self.backlog() < self.cwnd + self.mss.scale(LOWAT, 1)
    }

    fn is_overdue(&self, now: Time) -> bool {
        let Some(silent) = self.unacked_since.filter(|_| !self.srtt.is_zero()) else {
            return false;
        };
        let oldest = self.oldest_sent.unwrap_or(Time::FAR);
        let missed = now.since(oldest) > self.srtt + SLACK && now.since(silent) > LULL;
        missed || now.since(silent) > self.srtt + self.srtt / 4 + SLACK
    }

    /// Path parameters of the law, with the smoothed round-trip time, or one millisecond before the
    /// first sample.
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

    /// Service curve of the connection from now on, if the window grows as its congestion control
    /// allows. While [`stalled`](Self::stalled), the curve is zero until the retransmission timer
    /// expires again.
    pub fn forecast(&self, now: Time, horizon: Duration) -> ServiceCurve {
        //= itcp-4.1-service
        let path = self.path();
        let open = match self.control {
            CongestionControl::Reno => path.reno_from(self.cwnd, self.ssthresh),
            CongestionControl::Cubic => {
                // The kernel reports ssthresh only, which is 0.7 W_max.
                let w_max = self.ssthresh.min(self.cwnd.scale(64, 1)).scale(10, 7);
                path.cubic_from(self.cwnd, self.ssthresh, CubicEpoch { w_max, horizon })
            }
            CongestionControl::Bbr {
                bandwidth,
                min_rtt,
                next_probe,
                starting,
            } => {
                // Before the first estimate only the window is known. In startup, BBR doubles the
                // estimate within a round trip if the application sends that much and the path
                // carries it. An application that sends no more than the estimate keeps it there,
                // because BBR measures the delivery rate.
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

/// Maximum number of unsent segments: one that is being filled, and a full one that the next
/// acknowledgement releases.
const LOWAT: u64 = 2;
/// A frame of 25 kB adds this to the round trip of its last segment at 10 Mb/s.
const SLACK: Duration = Duration::from_millis(20);
/// Upper bound of the gap between two acknowledgements of one frame: two segments at 600 kb/s.
const LULL: Duration = Duration::from_millis(40);
