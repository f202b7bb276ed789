//! Configuration of a sender.

use super::congestion::CongestionConfig;
use super::rtt::TimeoutConfig;
use crate::tcp::InitialWindow;

/// Parameters of a [`Sender`](super::Sender). The defaults are those of Linux.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
pub struct Config {
    /// Size of a full packet including headers, in bytes.
    pub packet_size: u32,
    /// Headers in each packet, in bytes.
    pub header_size: u32,
    /// Whether the first segment is a SYN of `header_size`. Only its acknowledgement opens the
    /// initial window.
    pub syn: bool,
    /// Memory of sender and receiver, in segments.
    pub window: u32,
    /// The first congestion window.
    pub initial_window: InitialWindow,
    /// The congestion control.
    pub congestion: CongestionConfig,
    /// Loss detection algorithm.
    pub detection: Detection,
    /// Whether tail loss probes are sent (RFC 8985 section 7); only with [`Detection::RackTlp`].
    /// Without probes a tail loss requires a timeout, as with Linux's `tcp_early_retrans` at 0.
    pub tail_probes: bool,
    /// The retransmission timer.
    pub timeout: TimeoutConfig,
    /// Whether segments are paced, as with Linux's `fq`. BBR and Prague always pace.
    pub pacing: bool,
    /// Whether a reduction is undone when time stamps show that the retransmitted segments had
    /// arrived (RFC 3522, RFC 4015).
    pub undo: bool,
    /// Explicit congestion notification: RFC 3168, or with counted marks if the congestion control
    /// is scalable.
    pub ecn: bool,
    /// Whether the window shrinks during idle times (RFC 5681 section 4.1), by half for each
    /// elapsed timeout. BBR never does this.
    pub slow_start_restart: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            packet_size: 1_500,
            header_size: 52,
            syn: true,
            window: 1 << 16,
            initial_window: InitialWindow::Rfc6928,
            congestion: CongestionConfig::cubic(),
            detection: Detection::RackTlp,
            tail_probes: true,
            timeout: TimeoutConfig::default(),
            pacing: false,
            undo: true,
            ecn: false,
            slow_start_restart: true,
        }
    }
}

impl Config {
    /// # Errors
    /// The parameter that is out of range.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.packet_size <= self.header_size {
            return Err(ConfigError::NoPayload {
                packet: self.packet_size,
                header: self.header_size,
            });
        }
        if !(1..=MAX_WINDOW).contains(&self.window) {
            return Err(ConfigError::Window(self.window));
        }
        // The comparisons reject NaN.
        let positive = |x: f64| x > 0.0 && x < f64::INFINITY;
        match self.congestion {
            CongestionConfig::Cubic(cubic) => {
                if !positive(cubic.c) {
                    return Err(ConfigError::CubicC(cubic.c));
                }
                if !(positive(cubic.beta) && cubic.beta < 1.0) {
                    return Err(ConfigError::CubicBeta(cubic.beta));
                }
            }
            CongestionConfig::Bbr(bbr) => {
                for gain in [bbr.high_gain, bbr.cwnd_gain] {
                    if !(positive(gain) && gain >= 1.0) {
                        return Err(ConfigError::BbrGain(gain));
                    }
                }
                if !(0.0..1.0).contains(&bbr.margin) {
                    return Err(ConfigError::BbrMargin(bbr.margin));
                }
            }
            CongestionConfig::Prague(prague) => {
                if !(positive(prague.gain) && prague.gain <= 1.0) {
                    return Err(ConfigError::PragueGain(prague.gain));
                }
            }
            CongestionConfig::Reno(_) => {}
        }
        Ok(())
    }
}

/// Loss detection algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detection {
    /// RACK-TLP: by time after the arrival of a later segment, with probes for tails (RFC 8985).
    #[default]
    RackTlp,
    /// Three later segments have arrived (RFC 6675). A lost retransmission or a lost tail requires
    /// a timeout.
    Duplicates,
}

/// Invalid configuration of a sender.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A gain of BBR is not at least 1.
    #[error("a gain of BBR of {0} is not at least 1")]
    BbrGain(f64),
    /// BBR's margin is not in 0..1.
    #[error("BBR's margin of {0} is not in 0..1")]
    BbrMargin(f64),
    /// CUBIC's multiplicative decrease factor is not above 0 and below 1.
    #[error("CUBIC's beta of {0} is not above 0 and below 1: RFC 9438 says 0.7")]
    CubicBeta(f64),
    /// CUBIC's constant is not above 0.
    #[error("CUBIC's C of {0} is not above 0: RFC 9438 says 0.4")]
    CubicC(f64),
    /// The headers leave no room for payload in a packet.
    #[error("a packet of {packet} bytes has no room for payload after {header} bytes of headers")]
    NoPayload {
        /// `packet_size`.
        packet: u32,
        /// `header_size`.
        header: u32,
    },
    /// Prague's gain is not above 0 and at most 1.
    #[error("Prague's gain of {0} is not above 0 and at most 1: RFC 8257 says 1/16")]
    PragueGain(f64),
    /// The window is not in 1..=2^20 segments.
    #[error("a window of {0} segments is not in 1..={MAX_WINDOW}")]
    Window(u32),
}

/// 1.5 GB in packets of 1500 bytes, somewhat more than the maximum TCP window.
const MAX_WINDOW: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::super::{BbrConfig, CubicConfig};
    use super::*;

    #[test]
    fn parameters_out_of_range_are_rejected() {
        let cubic = |c, beta| {
            CongestionConfig::Cubic(CubicConfig {
                c,
                beta,
                ..CubicConfig::default()
            })
        };
        let bbr = |cwnd_gain, margin| {
            CongestionConfig::Bbr(BbrConfig {
                cwnd_gain,
                margin,
                ..BbrConfig::default()
            })
        };
        let with = |congestion| Config {
            congestion,
            ..Config::default()
        };
        let full = Config {
            packet_size: 52,
            ..Config::default()
        };
        let closed = Config {
            window: 0,
            ..Config::default()
        };
        for (config, want) in [
            (with(cubic(0.0, 0.7)), ConfigError::CubicC(0.0)),
            (with(cubic(0.4, 1.0)), ConfigError::CubicBeta(1.0)),
            (with(bbr(0.5, 0.01)), ConfigError::BbrGain(0.5)),
            (with(bbr(2.0, 1.0)), ConfigError::BbrMargin(1.0)),
            (
                full,
                ConfigError::NoPayload {
                    packet: 52,
                    header: 52,
                },
            ),
            (closed, ConfigError::Window(0)),
        ] {
            assert_eq!(config.check(), Err(want));
        }
        assert!(matches!(
            with(cubic(f64::NAN, 0.7)).check(),
            Err(ConfigError::CubicC(_))
        ));
        assert_eq!(with(bbr(2.0, 0.0)).check(), Ok(()));
    }
}
