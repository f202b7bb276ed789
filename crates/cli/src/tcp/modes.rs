//! Rate control of a stream over TCP: modes and their options.

use std::time::Duration;

use anyhow::{Result, ensure};
use tidegate_core::quantity;
use tidegate_core::session::tcp::Place;
use tidegate_core::tcp_rate::Law;
use tidegate_core::tcp_rate::{self, Backoff, Flags, Subscription, TcpEvent, TcpRateConfig};

/// Options of the mode.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "With TCP: modes")]
pub(crate) struct ModeArgs {
    /// Rate control: `classic` (constant rate, all frames are sent, however late), `follow` (the
    /// rate of `--rate-from`), or `ioff`, `iexp`, `iopt` (by events of the kernel's TCP)
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// The mode as the papers' four flags; those that are on, such as `itcp,event,symb,opt`
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "SWITCHES",
        conflicts_with = "mode"
    )]
    flags: Option<Vec<Switch>>,
    /// Law of iOPT: `exact` plans for each frame; `paper` and `paper-m` are as printed in the
    /// papers
    #[arg(long, value_enum)]
    law: Option<LawArg>,
    /// Recovery of iEXP: to the normal rate at once after a hold time (`fixed`), or in steps
    /// (`additive`)
    #[arg(long, value_enum)]
    recovery: Option<Recovery>,
    /// iEXP: factor of the rate at an event [default: 0.35; additive: 0.55]
    #[arg(long, value_name = "SHARE")]
    ratio: Option<f64>,
    /// iEXP, fixed: hold time [default: 4s]
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    hold: Option<Duration>,
    /// iEXP, additive: share of the normal rate restored per second [default: 0.01]
    #[arg(long, value_name = "SHARE")]
    step: Option<f64>,
    /// Events to subscribe to [default: all with the exact law, otherwise `timeout`]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "EVENTS")]
    subscribe: Option<Vec<EventArg>>,
    /// Queue of frames that do not fit into the connection [default: `pictures` with the exact law,
    /// `socket` with ioff, iexp and the printed laws]. Not for classic and follow, which queue
    /// coded frames
    #[arg(long, value_enum)]
    backlog: Option<BacklogArg>,
    /// Emulated delay from an event until the encoder gets the new rate [default: 0s]. The printed
    /// laws compute the accumulated data from the measured delay; before the first event from this
    /// one, or from 20ms
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    reaction: Option<Duration>,
    /// iOPT, exact: share of the forecast that is used [default: 0.9]
    #[arg(long, value_name = "SHARE")]
    margin: Option<f64>,
    /// iOPT, exact: time to drain the backlog, except for the part that survives the worst recent
    /// outage [default: 3/5 of the delay bound, at least 3s]
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    drain: Option<Duration>,
    /// Source of the events [default: the daemon (`tidegate events serve`) if it runs, else what an
    /// unprivileged process can observe]
    #[arg(long, value_enum)]
    pub(super) events_from: Option<EventsFrom>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// The rate is constant
    Classic,
    /// The rate comes from another program
    Follow,
    /// Events are recorded, and the rate is constant
    Ioff,
    /// An event multiplies the rate
    Iexp,
    /// The throttling law plans the rate
    Iopt,
}

/// A control flag of Table 3 of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    /// The event service
    Itcp,
    /// Event notification
    Event,
    /// The rate follows the events
    Symb,
    /// The throttling law computes the rate
    Opt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LawArg {
    Exact,
    Paper,
    PaperM,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Recovery {
    Fixed,
    Additive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EventArg {
    /// The retransmission timer expired
    #[value(alias = "timed-out")]
    Timeout,
    /// Fast recovery from a loss starts
    ThirdDuplicate,
    /// The recovery is complete
    Repaired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum BacklogArg {
    Frames,
    Pictures,
    Socket,
}

/// Source of TCP events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum EventsFrom {
    /// The daemon
    Daemon,
    /// BPF programs that this process loads (requires root)
    InProcess,
    /// Timestamps on the socket's error queue, and the state of the socket
    Unprivileged,
}

/// Source of the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Choice {
    /// Constant.
    Classic,
    /// Another program.
    Follow,
    /// Events of the connection, in any mode except Classic.
    TcpRateAdapter(tcp_rate::Mode),
}

impl Choice {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Follow => "follow",
            Self::TcpRateAdapter(mode) => mode.name(),
        }
    }

    pub(crate) const fn symbiosis(self) -> Option<tcp_rate::Mode> {
        match self {
            Self::TcpRateAdapter(mode) => Some(mode),
            Self::Classic | Self::Follow => None,
        }
    }
}

impl ModeArgs {
    /// The given mode, or the default, which depends on `--rate-from`.
    pub(super) fn choice(&self, has_rate_source: bool) -> Choice {
        let law = match self.law {
            Some(LawArg::Paper) => Law::Paper,
            Some(LawArg::PaperM) => Law::PaperM,
            Some(LawArg::Exact) | None => Law::Exact,
        };
        if let Some(flags) = &self.flags {
            let on = |switch| flags.contains(&switch);
            let flags = Flags {
                itcp: on(Switch::Itcp),
                event: on(Switch::Event),
                symb: on(Switch::Symb),
                opt: on(Switch::Opt),
            };
            return match tcp_rate::Mode::of_flags(flags, self.backoff(), law) {
                tcp_rate::Mode::Classic => Choice::Classic,
                mode => Choice::TcpRateAdapter(mode),
            };
        }
        match self.mode {
            None if has_rate_source => Choice::Follow,
            None | Some(Mode::Classic) => Choice::Classic,
            Some(Mode::Follow) => Choice::Follow,
            Some(Mode::Ioff) => Choice::TcpRateAdapter(tcp_rate::Mode::Ioff),
            Some(Mode::Iexp) => Choice::TcpRateAdapter(tcp_rate::Mode::Iexp(self.backoff())),
            Some(Mode::Iopt) => Choice::TcpRateAdapter(tcp_rate::Mode::Iopt(law)),
        }
    }

    /// The published form with other parameters.
    fn backoff(&self) -> Backoff {
        let published = match self.recovery {
            Some(Recovery::Additive) => Backoff::REPORT,
            Some(Recovery::Fixed) | None => Backoff::PAPER,
        };
        match published {
            Backoff::Fixed { ratio, hold } => Backoff::Fixed {
                ratio: self.ratio.unwrap_or(ratio),
                hold: self.hold.unwrap_or(hold),
            },
            Backoff::Additive { ratio, step } => Backoff::Additive {
                ratio: self.ratio.unwrap_or(ratio),
                step: self.step.unwrap_or(step),
            },
        }
    }

    pub(super) fn place(&self, choice: Choice) -> Place {
        let usual = match choice {
            // The other program may send `drop`.
            Choice::Classic | Choice::Follow => BacklogArg::Frames,
            Choice::TcpRateAdapter(mode) if mode.is_exact() => BacklogArg::Pictures,
            Choice::TcpRateAdapter(_) => BacklogArg::Socket,
        };
        match self.backlog.unwrap_or(usual) {
            BacklogArg::Frames => Place::Frames,
            BacklogArg::Pictures => Place::Pictures,
            BacklogArg::Socket => Place::Socket,
        }
    }

    pub(super) fn subscribed(&self, mode: tcp_rate::Mode) -> Subscription {
        let Some(has_rate_source) = &self.subscribe else {
            return if mode.is_exact() {
                Subscription::ALL
            } else {
                Subscription::TIME_OUT
            };
        };
        let event = |has_rate_source: &EventArg| match has_rate_source {
            EventArg::Timeout => TcpEvent::TimedOut,
            EventArg::ThirdDuplicate => TcpEvent::ThirdDuplicate,
            EventArg::Repaired => TcpEvent::Repaired,
        };
        Subscription::of(&has_rate_source.iter().map(event).collect::<Vec<_>>())
    }

    /// Emulated delay: zero unless given.
    pub(super) fn reaction_delay(&self) -> Duration {
        self.reaction.unwrap_or_default()
    }

    /// Delay before the first measurement. The printed laws take Q as the data accumulated in this
    /// time; with a delay of zero they would not throttle.
    pub(super) fn reaction(&self) -> Duration {
        self.reaction.unwrap_or(REACTION)
    }

    /// Whether the flags request the service but not its events.
    pub(super) fn is_without_events(&self) -> bool {
        let flags = self.flags.as_deref().unwrap_or_default();
        flags.contains(&Switch::Itcp) && !flags.contains(&Switch::Event)
    }

    pub(super) fn margin(&self) -> f64 {
        self.margin.unwrap_or(TcpRateConfig::MARGIN)
    }

    pub(super) fn drain(&self, bound: Duration) -> Duration {
        self.drain
            .unwrap_or_else(|| TcpRateConfig::drain_within(bound))
    }

    /// Options of modes, and whether they were given.
    pub(super) fn given(&self) -> [(&'static str, bool); 13] {
        [
            ("--mode", self.mode.is_some()),
            ("--flags", self.flags.is_some()),
            ("--law", self.law.is_some()),
            ("--recovery", self.recovery.is_some()),
            ("--ratio", self.ratio.is_some()),
            ("--hold", self.hold.is_some()),
            ("--step", self.step.is_some()),
            ("--subscribe", self.subscribe.is_some()),
            ("--backlog", self.backlog.is_some()),
            ("--reaction", self.reaction.is_some()),
            ("--margin", self.margin.is_some()),
            ("--drain", self.drain.is_some()),
            ("--events-from", self.events_from.is_some()),
        ]
    }

    /// # Errors
    /// An option does not apply to this mode or is out of range. The message names it.
    pub(super) fn check(&self, choice: Choice) -> Result<()> {
        use tcp_rate::Mode as M;
        let mode = choice.symbiosis();
        let iexp = matches!(mode, Some(M::Iexp(_)));
        let fixed = matches!(mode, Some(M::Iexp(Backoff::Fixed { .. })));
        let additive = matches!(mode, Some(M::Iexp(Backoff::Additive { .. })));
        let exact = mode.is_some_and(M::is_exact);
        let printed = matches!(mode, Some(M::Iopt(_))) && !exact;
        for (name, is_given) in self.given() {
            let (fits, whose) = match name {
                "--mode" | "--flags" => (true, ""),
                "--law" => (matches!(mode, Some(M::Iopt(_))), "iopt"),
                "--recovery" | "--ratio" => (iexp, "iexp"),
                "--hold" => (fixed, "iexp with --recovery fixed"),
                "--step" => (additive, "iexp with --recovery additive"),
                "--reaction" => (iexp || printed, "iexp, or iopt with --law paper"),
                "--margin" | "--drain" => (exact, "iopt with --law exact"),
                _ => (mode.is_some(), "ioff, iexp or iopt"),
            };
            let form = whose.strip_prefix(choice.name());
            if let Some(form) = form.and_then(|form| form.strip_prefix(" with ")) {
                ensure!(
                    fits || !is_given,
                    "{name} requires {form}: add it, or leave {name} out"
                );
            }
            ensure!(
                fits || !is_given,
                "{name} does not apply to mode {}: leave it out, or choose --mode {whose}",
                choice.name()
            );
        }
        let share = |name, share: Option<f64>, range: std::ops::RangeInclusive<f64>| {
            ensure!(
                share.is_none_or(|share| range.contains(&share)),
                "{name} is out of range: choose it from {} to {}",
                range.start(),
                range.end()
            );
            Ok(())
        };
        share("--ratio", self.ratio, 0.01..=0.99)?;
        share("--step", self.step, 0.001..=10.0)?;
        share("--margin", self.margin, 0.01..=1.0)?;
        for (name, span) in [("--hold", self.hold), ("--drain", self.drain)] {
            ensure!(
                span.is_none_or(|span| !span.is_zero()),
                "a {name} of zero has no effect: give a longer one"
            );
        }
        Ok(())
    }
}

/// Default of the printed laws, as in the papers' runs.
const REACTION: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        modes: ModeArgs,
    }

    fn modes(line: &str) -> ModeArgs {
        let words = ["send"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().modes
    }

    #[test]
    fn modes_and_flags_are_equivalent() {
        use tcp_rate::Mode as M;
        for (line, mode) in [
            ("--mode ioff", M::Ioff),
            ("--flags itcp,event", M::Ioff),
            ("--mode iexp", M::Iexp(Backoff::PAPER)),
            (
                "--flags itcp,event,symb --recovery additive",
                M::Iexp(Backoff::REPORT),
            ),
            ("--mode iopt", M::Iopt(Law::Exact)),
            (
                "--flags itcp,event,symb,opt --law paper-m",
                M::Iopt(Law::PaperM),
            ),
        ] {
            let modes = modes(line);
            let choice = modes.choice(false);
            assert_eq!(choice, Choice::TcpRateAdapter(mode), "{line}");
            modes.check(choice).unwrap();
        }
        assert_eq!(modes("--flags itcp").choice(false), Choice::Classic);
        assert_eq!(modes("").choice(true), Choice::Follow);
        let tuned = modes("--mode iexp --ratio 0.5 --hold 2s").choice(false);
        let hold = Duration::from_secs(2);
        let backoff = Backoff::Fixed { ratio: 0.5, hold };
        assert_eq!(tuned, Choice::TcpRateAdapter(M::Iexp(backoff)));
    }

    #[test]
    fn the_mode_sets_events_and_backlog() {
        let iopt = modes("--mode iopt");
        let choice = iopt.choice(false);
        assert_eq!(iopt.place(choice), Place::Pictures);
        let mode = choice.symbiosis().unwrap();
        assert_eq!(iopt.subscribed(mode), Subscription::ALL);
        let iexp = modes("--mode iexp --subscribe timeout,third-duplicate");
        let choice = iexp.choice(false);
        assert_eq!(iexp.place(choice), Place::Socket);
        let mode = choice.symbiosis().unwrap();
        assert_eq!(iexp.subscribed(mode), Subscription::LOSSES);
        assert_eq!(
            modes("--mode ioff").subscribed(mode),
            Subscription::TIME_OUT
        );
    }

    #[test]
    fn the_printed_laws_assume_a_reaction_and_none_is_emulated_by_default() {
        for (line, played, reckoned) in [
            ("--mode iopt --law paper", 0, 20),
            ("--mode iopt --law paper-m", 0, 20),
            ("--mode iopt --law paper --reaction 0s", 0, 0),
            ("--mode iexp", 0, 20),
            ("--mode iexp --reaction 30ms", 30, 30),
        ] {
            let modes = modes(line);
            modes.check(modes.choice(false)).unwrap();
            let reaction = [modes.reaction_delay(), modes.reaction()];
            let expected = [played, reckoned].map(Duration::from_millis);
            assert_eq!(reaction, expected, "{line}");
        }
    }

    #[test]
    fn options_of_another_mode_are_rejected() {
        for (line, name) in [
            ("--mode iexp --law paper", "--law"),
            ("--mode iexp --step 0.1", "--step"),
            ("--mode iopt --law paper --margin 0.8", "--margin"),
            ("--mode classic --subscribe timeout", "--subscribe"),
            ("--mode ioff --reaction 20ms", "--reaction"),
            ("--mode iopt --reaction 20ms", "--reaction"),
            ("--mode iexp --ratio 1.5", "--ratio"),
            ("--mode iopt --drain 0s", "a --drain of zero"),
            ("--mode iexp --hold 0s", "a --hold of zero"),
            (
                "--mode iopt --law paper --drain 1s",
                "--drain requires --law exact",
            ),
            (
                "--mode iexp --recovery additive --hold 1s",
                "--hold requires --recovery fixed",
            ),
        ] {
            let modes = modes(line);
            let error = modes.check(modes.choice(false)).unwrap_err().to_string();
            assert!(error.contains(name), "{line}: {error}");
        }
    }
}
