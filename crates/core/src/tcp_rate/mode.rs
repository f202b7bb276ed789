//! How an application answers to what its transport tells.

use core::fmt;
use core::time::Duration;

use crate::delay_bound::Law;

/// A running mode of Table 3 of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// An ordinary sender: it is told nothing.
    Classic,
    /// It is told of events, counts them, and does nothing about them.
    Ioff,
    /// It steps back by a preset ratio.
    Iexp(Backoff),
    /// It plans by the throttling law.
    Iopt(Law),
}

/// How iEXP comes back: both published forms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Backoff {
    /// At each event the present rate times `ratio`; after `hold` without another event the
    /// normal rate again, at once.
    Fixed {
        /// α of the paper, in 0..1.
        ratio: f64,
        /// How long.
        hold: Duration,
    },
    /// At each event the present rate times `ratio`, and then `step` of the normal rate more per
    /// second.
    Additive {
        /// α of the report, in 0..1.
        ratio: f64,
        /// Share of the normal rate per second, above zero.
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
    /// The rate follows events (`SYMB`); otherwise they are only written down.
    pub symb: bool,
    /// By the throttling law (`OPT`) rather than by a preset ratio.
    pub opt: bool,
}

impl Backoff {
    /// The first paper's: to 0.35 for 4 s.
    pub const PAPER: Self = Self::Fixed {
        ratio: 0.35,
        hold: Duration::from_secs(4),
    };
    /// The report's: to 0.55, and slowly back. The report does not print its step. A hundredth of
    /// the normal rate per second is what its Table 5 back-solves to: 14 % of the bits of 100 s
    /// are saved by 1.4 events per run, each of which costs 0.45²/(2·step) seconds' worth.
    pub const REPORT: Self = Self::Additive {
        ratio: 0.55,
        step: 0.01,
    };
}

impl Mode {
    /// Its name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Ioff => "ioff",
            Self::Iexp(_) => "iexp",
            Self::Iopt(_) => "iopt",
        }
    }

    /// The mode that these flags select: a flag that is off makes those below it void. Without
    /// notification there is nothing to write down either, so that is Classic.
    pub const fn of_flags(flags: Flags, backoff: Backoff, law: Law) -> Self {
        //= itcp-6.3-flags
        match flags {
            Flags { itcp: false, .. } | Flags { event: false, .. } => Self::Classic,
            Flags { symb: false, .. } => Self::Ioff,
            Flags { opt: false, .. } => Self::Iexp(backoff),
            Flags { .. } => Self::Iopt(law),
        }
    }

    /// The flags of the mode; those that Table 3 leaves open are off.
    pub const fn flags(self) -> Flags {
        let told = !matches!(self, Self::Classic);
        Flags {
            itcp: told,
            event: told,
            symb: matches!(self, Self::Iexp(_) | Self::Iopt(_)),
            opt: matches!(self, Self::Iopt(_)),
        }
    }

    /// Whether it plans by the exact law, for each frame.
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
