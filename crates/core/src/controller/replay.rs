//! Inputs of a controller as data, for recordings, property tests, fuzz targets and bindings.

use core::time::Duration;

use crate::control::{Change, Context, Measured, PacketOutcome, RateControl, Report, Sent};

/// One call of a [`RateControl`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// [`RateControl::on_change`].
    Change(Change),
    /// [`RateControl::on_report`], with the parts of a [`Report`].
    Report {
        /// Fates of the packets of the report.
        packets: Vec<PacketOutcome>,
        /// Fates of dummy packets.
        dummies: Vec<PacketOutcome>,
        /// Arrivals of packets that an earlier report called lost.
        spurious: Vec<PacketOutcome>,
        /// New round-trip sample.
        rtt: Option<Duration>,
        /// External measurement of receive rate and loss event rate.
        measured: Option<Measured>,
    },
    /// [`RateControl::on_sent`].
    Sent(Sent),
    /// [`RateControl::on_timeout`].
    Timeout,
}

impl Input {
    /// Calls the method of `controller`.
    pub fn apply(&self, controller: &mut RateControl, cx: &mut Context<'_>) {
        match self {
            Self::Change(change) => controller.on_change(cx, change),
            Self::Report {
                packets: outcomes,
                dummies,
                spurious,
                rtt,
                measured,
            } => {
                let mut report = Report::new(outcomes).dummies(dummies).spurious(spurious);
                report.rtt = *rtt;
                report.measured = *measured;
                controller.on_report(cx, &report);
            }
            Self::Sent(packet) => controller.on_sent(cx, packet),
            Self::Timeout => controller.on_timeout(cx),
        }
    }
}

impl From<&Report<'_>> for Input {
    fn from(report: &Report<'_>) -> Self {
        Self::Report {
            packets: report.packets.to_vec(),
            dummies: report.dummies.to_vec(),
            spurious: report.spurious.to_vec(),
            rtt: report.rtt,
            measured: report.measured,
        }
    }
}
