//! Responses of an application to events of its transport.

use core::fmt;
use core::time::Duration;

use super::Law;

/// A running mode of Table 3 of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Sender without notifications.
    Classic,
    /// Counts events without a response.
    Ioff,
    /// Reduces the rate by a preset ratio.
    Iexp(Backoff),
    /// Computes the rate by the throttling law.
    Iopt(Law),
}

/// Back-off of iEXP, in both published forms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Backoff {
    /// Each event multiplies the rate by `ratio`. After `hold` without another event the rate
    /// returns to the normal rate at once.
    Fixed {
        /// α of the paper, in 0..1.
        ratio: f64,
        /// Duration of the reduction after the last event.
        hold: Duration,
    },
    /// Each event multiplies the rate by `ratio`. Then the rate grows by `step` of the normal rate
    /// per second.
    Additive {
        /// α of the report, in 0..1.
        ratio: f64,
        /// Fraction of the normal rate per second, above zero.
        step: f64,
    },
}

/// The control flags of Table 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the paper's four switches")]
pub struct Flags {
    /// The interactivity service (`iTCP`).
    pub itcp: bool,
    /// Notification of events (`EVENT`).
    pub event: bool,
    /// The rate responds to events (`SYMB`); otherwise they are only counted.
    pub symb: bool,
    /// The response uses the throttling law (`OPT`) instead of a preset ratio.
    pub opt: bool,
}

impl Backoff {
    /// Parameters of the first paper: 0.35 of the rate for 4 s.
    pub const PAPER: Self = Self::Fixed {
        ratio: 0.35,
        hold: Duration::from_secs(4),
    };
    /// Parameters of the report: 0.55 of the rate, then slow growth. The report does not print its
    /// step. A hundredth of the normal rate per second follows from its Table 5: 1.4 events per run
    /// save 14 % of the bits of 100 s, and each event costs the bits of 0.45²/(2·step) seconds.
    pub const REPORT: Self = Self::Additive {
        ratio: 0.55,
        step: 0.01,
    };
}

impl Mode {
    /// Name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Ioff => "ioff",
            Self::Iexp(_) => "iexp",
            Self::Iopt(_) => "iopt",
        }
    }

    /// The mode that these flags select. If a flag is off, the flags below it have no effect.
    /// Without notification there are no events to count, so the mode is Classic.
    pub const fn of_flags(flags: Flags, backoff: Backoff, law: Law) -> Self {
        //= itcp-6.3-flags
        match flags {
            Flags { itcp: false, .. } | Flags { event: false, .. } => Self::Classic,
            Flags { symb: false, .. } => Self::Ioff,
            Flags { opt: false, .. } => Self::Iexp(backoff),
            Flags { .. } => Self::Iopt(law),
        }
    }

    /// The flags of the mode; flags that Table 3 leaves open are off.
    pub const fn flags(self) -> Flags {
        let notified = !matches!(self, Self::Classic);
        Flags {
            itcp: notified,
            event: notified,
            symb: matches!(self, Self::Iexp(_) | Self::Iopt(_)),
            opt: matches!(self, Self::Iopt(_)),
        }
    }

    /// Whether the mode plans each frame by the exact law.
    pub const fn is_exact(self) -> bool {
        matches!(self, Self::Iopt(Law::Exact))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_modes_agree() {
        //= itcp-6.3-flags (test)
        let modes = [
            Mode::Classic,
            Mode::Ioff,
            Mode::Iexp(Backoff::REPORT),
            Mode::Iopt(Law::PaperM),
        ];
        for mode in modes {
            assert_eq!(
                Mode::of_flags(mode.flags(), Backoff::REPORT, Law::PaperM),
                mode
            );
        }
        let silent = Flags {
            event: false,
            ..Mode::Iopt(Law::Exact).flags()
        };
        let mode = Mode::of_flags(silent, Backoff::PAPER, Law::Exact);
        assert_eq!(mode, Mode::Classic);
    }
}
