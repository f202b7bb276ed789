//! What keeps a connection from backing off for longer than a delay bound lasts.

use std::time::Duration;

use tidegate_core::symbiosis::SymbiosisConfig;

/// What was asked for, or what it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    /// The longest retransmission time-out; the kernel's own if none.
    pub(crate) rto_max: Option<Duration>,
    /// Whether a few bytes are written while acknowledgements are overdue.
    pub(crate) probes: bool,
}

impl Backoff {
    /// What the exact law has where no longest time-out was asked for: a short one where the kernel
    /// `knows` such a thing, and probes where it does not, which are the next best.
    pub(crate) fn of_exact(self, knows: impl FnOnce() -> bool) -> Self {
        if self.rto_max.is_some() {
            self
        } else if knows() {
            Self {
                rto_max: Some(SymbiosisConfig::RTO_MAX),
                ..self
            }
        } else {
            Self {
                probes: true,
                ..self
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_out_or_probes_unless_one_was_asked_for() {
        let nothing = Backoff {
            rto_max: None,
            probes: false,
        };
        let short = nothing.of_exact(|| true);
        assert_eq!(short.rto_max, Some(Duration::from_secs(1)));
        assert!(!short.probes);
        let old = nothing.of_exact(|| false);
        assert_eq!((old.rto_max, old.probes), (None, true));
        let asked = Backoff {
            rto_max: Some(Duration::from_mins(2)),
            probes: false,
        };
        assert_eq!(
            asked.of_exact(|| unreachable!("nothing to find out")),
            asked
        );
        let both = Backoff {
            probes: true,
            ..nothing
        };
        assert!(both.of_exact(|| true).probes);
    }
}
