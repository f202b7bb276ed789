//! What a sender is made from.

use core::fmt;

use super::congestion::CongestionConfig;
use super::rtt::TimeoutConfig;
use crate::tcp::InitialWindow;

/// Parameters of a [`Sender`](super::Sender). The defaults are those of Linux.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
pub struct Config {
    /// A full packet on the wire, headers included, in bytes.
    pub packet_size: u32,
    /// Headers in each packet, in bytes.
    pub header_size: u32,
    /// Whether the first segment is a SYN of `header_size`. Only its acknowledgement opens the
    /// initial window.
    pub syn: bool,
    /// What sender and receiver have memory for, in segments.
    pub window: u32,
    /// The first congestion window.
    pub initial_window: InitialWindow,
    /// The congestion control.
    pub congestion: CongestionConfig,
    /// How losses are found.
    pub detection: Detection,
    /// Whether a tail that nothing acknowledges is probed (RFC 8985 section 7), which only
    /// [`Detection::RackTlp`] does. Without probes it takes a timeout, as with Linux's
    /// `tcp_early_retrans` at 0.
    pub tail_probes: bool,
    /// The retransmission timer.
    pub timeout: TimeoutConfig,
    /// Whether segments are spaced, as with Linux's `fq`. BBR and Prague always space them.
    pub pacing: bool,
    /// Whether a reduction is taken back when the time stamps show that what had been sent again
    /// had arrived (RFC 3522, RFC 4015).
    pub undo: bool,
    /// Explicit congestion notification: RFC 3168, or with marks counted if the congestion control
    /// is scalable.
    pub ecn: bool,
    /// Whether the window shrinks while nothing is sent (RFC 5681 section 4.1), by half for each
    /// timeout that passes. BBR never does this.
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
    /// Names the parameter that is out of range.
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
        // Written so that NaN is at fault.
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

/// How losses are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detection {
    /// By time since a later segment arrived, and tails by a probe (RFC 8985).
    #[default]
    RackTlp,
    /// By three later segments that arrived (RFC 6675). A lost repair, or a lost tail, takes a
    /// timeout.
    Duplicates,
}

/// Why a sender cannot be built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConfigError {
    /// A gain of BBR is not a number of at least 1.
    BbrGain(f64),
    /// BBR's margin is not in 0..1.
    BbrMargin(f64),
    /// What CUBIC leaves of the window is not above 0 and below 1.
    CubicBeta(f64),
    /// CUBIC's constant is not above 0.
    CubicC(f64),
    /// The headers leave no room in a packet.
    NoPayload {
        /// `packet_size`.
        packet: u32,
        /// `header_size`.
        header: u32,
    },
    /// The weight of new marks in Prague's mean is not above 0 and up to 1.
    PragueGain(f64),
    /// The window is not in 1..=2^20 segments.
    Window(u32),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BbrGain(gain) => write!(f, "a gain of BBR of {gain} is not at least 1"),
            Self::BbrMargin(margin) => write!(f, "BBR's margin of {margin} is not in 0..1"),
            Self::CubicBeta(beta) => write!(
                f,
                "CUBIC's beta of {beta} is not above 0 and below 1: RFC 9438 says 0.7"
            ),
            Self::CubicC(c) => write!(f, "CUBIC's C of {c} is not above 0: RFC 9438 says 0.4"),
            Self::NoPayload { packet, header } => write!(
                f,
                "a packet of {packet} bytes has no room for data beside {header} bytes of headers"
            ),
            Self::PragueGain(gain) => write!(
                f,
                "Prague's gain of {gain} is not above 0 and at most 1: RFC 8257 says 1/16"
            ),
            Self::Window(window) => write!(
                f,
                "a window of {window} segments is not in 1..={MAX_WINDOW}"
            ),
        }
    }
}

impl core::error::Error for ConfigError {}

/// 1.5 GB in packets of 1500 bytes, somewhat more than TCP's window can express.
const MAX_WINDOW: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::super::{BbrConfig, CubicConfig};
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
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
