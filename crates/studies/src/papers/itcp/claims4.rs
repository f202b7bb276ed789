//! Claims of Table 4: order of the modes, frames that could have been saved, published shares.

use super::super::outcome::{Outcome, mean};
use super::super::runs::Stack;
use super::super::{Claim, Options};
use super::{CLASSIC, EXACT, FRAMES, Group, IEXP, IOFF, MODES, PAPER, find, stacks};

/// Claims over each transport that was played.
pub(super) fn of(groups: &[Group], options: &Options) -> Vec<Claim> {
    let all = stacks(groups);
    let mut claims: Vec<Claim> = all
        .iter()
        .flat_map(|tcp| of_stack(*tcp, groups, options))
        .collect();
    for linear in all.iter().filter(|tcp| tcp.is_linear) {
        claims.extend(growth(*linear, groups));
    }
    claims
}

fn of_stack(tcp: Stack, groups: &[Group], options: &Options) -> Vec<Claim> {
    let mut claims = vec![
        saves(tcp, groups),
        is_best(tcp, groups),
        accepts_published(tcp, groups),
        accepts(tcp, EXACT, groups, CLASSIC),
    ];
    let ioff = accepts(tcp, EXACT, groups, IOFF);
    // In the simulator iOFF and Classic are the same run.
    claims.push(if options.is_lab() {
        ioff
    } else {
        ioff.repeated()
    });
    claims.push(accepts(tcp, EXACT, groups, IEXP));
    claims.push(is_faster(tcp, EXACT, groups));
    for mode in [PAPER, PAPER + 1, IEXP] {
        claims.push(accepts(tcp, mode, groups, CLASSIC));
        claims.push(is_faster(tcp, mode, groups));
    }
    for both in [
        ([EXACT, IEXP], "iOPT exact and iEXP"),
        ([PAPER, PAPER + 1], "the printed laws"),
    ] {
        claims.extend(are_better(tcp, both, groups));
    }
    let costs = costs(tcp, groups);
    claims.push(if options.is_lab() {
        costs
    } else {
        costs.by_construction()
    });
    claims
}

/// Groups of a transport in one mode.
fn of_mode(groups: &[Group], tcp: Stack, mode: usize) -> impl Iterator<Item = &Group> {
    groups
        .iter()
        .filter(move |group| (group.tcp, group.mode) == (tcp, mode))
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

fn saves(tcp: Stack, groups: &[Group]) -> Claim {
    let saved = least(of_mode(groups, tcp, EXACT).map(|g| g.mean(Outcome::of_savable)));
    Claim::new(
        format!(
            "{}: iOPT exact has at least 99.5 % of the frames in time that its own connection could \
             have saved, at every node and d (the smallest mean)",
            tcp.name()
        ),
        None,
        saved,
        saved >= 0.995,
    )
}

/// Run by run against the best of all modes over the same outages.
fn is_best(tcp: Stack, groups: &[Group]) -> Claim {
    let behind = of_mode(groups, tcp, EXACT).map(|exact| {
        let best = |seed: u64| {
            let runs = (0..MODES.len()).filter_map(|mode| find(groups, exact, mode));
            let runs = runs.flat_map(|group| &group.runs);
            let same = runs.filter(|run| run.seed == seed);
            same.map(|run| run.accepted()).fold(0.0, f64::max)
        };
        mean(exact.runs.iter().map(|run| run.accepted() - best(run.seed)))
    });
    let behind = least(behind);
    Claim::new(
        format!(
            "{}: iOPT exact accepts as many frames as the best of all modes over the same outages, but \
             for less than one per run, at every node and d (the smallest mean difference)",
            tcp.name()
        ),
        None,
        behind,
        behind > -1.0 / FRAMES,
    )
}

/// In absolute numbers.
fn accepts_published(tcp: Stack, groups: &[Group]) -> Claim {
    let above = of_mode(groups, tcp, EXACT).map(|g| g.mean(Outcome::accepted) - g.published().1);
    let above = least(above);
    Claim::new(
        format!(
            "{}: of all frames iOPT exact accepts at least the published share of iOPT, at every node \
             and d (the smallest difference)",
            tcp.name()
        ),
        None,
        above,
        above >= 0.0,
    )
}

/// Differences of a number between two modes under the same conditions.
fn against(
    tcp: Stack,
    mode: usize,
    other: usize,
    groups: &[Group],
    of: fn(&Outcome) -> f64,
) -> Vec<f64> {
    let gain = |g: &Group| Some(g.mean(of) - find(groups, g, other)?.mean(of));
    of_mode(groups, tcp, mode).filter_map(gain).collect()
}

/// Whether a mode accepts as many frames as another.
fn accepts(tcp: Stack, mode: usize, groups: &[Group], other: usize) -> Claim {
    let gains = against(tcp, mode, other, groups, Outcome::accepted);
    let gain = least(gains.into_iter());
    Claim::new(
        format!(
            "{}: {} accepts no fewer frames than {}, but for less than one per run, at every node and \
             d (the smallest difference)",
            tcp.name(),
            MODES[mode].name,
            MODES[other].name
        ),
        None,
        gain,
        gain > -1.0 / FRAMES,
    )
}

/// Delay of a mode and of Classic.
fn is_faster(tcp: Stack, mode: usize, groups: &[Group]) -> Claim {
    let slower = against(tcp, mode, CLASSIC, groups, Outcome::mean_delay);
    let slower = slower.into_iter().fold(f64::NEG_INFINITY, f64::max);
    Claim::new(
        format!(
            "{}: the mean delay of {} is below Classic's, or within a millisecond where nothing is \
             reduced, at every node and d (the largest difference, s)",
            tcp.name(),
            MODES[mode].name
        ),
        None,
        slower,
        slower < 1e-3,
    )
}

/// Two modes, each against Classic, in the mean over all places.
fn are_better(tcp: Stack, both: ([usize; 2], &str), groups: &[Group]) -> [Claim; 2] {
    let (modes, text) = both;
    let name = tcp.name();
    let gains = |of| modes.map(|mode| mean(against(tcp, mode, CLASSIC, groups, of)));
    let [one, other] = gains(Outcome::accepted);
    let least = one.min(other);
    let [one, other] = gains(Outcome::mean_delay);
    let slowest = one.max(other);
    [
        Claim::new(
            format!(
                "{name}: {text} accept more frames than Classic, each in the mean over nodes and d \
                 (the smaller difference)"
            ),
            None,
            least,
            least > 0.0,
        ),
        Claim::new(
            format!(
                "{name}: {text} have a lower mean delay than Classic, each in the mean over nodes and \
                 d (the larger difference, s)"
            ),
            None,
            slowest,
            slowest < 0.0,
        ),
    ]
}

/// Delay of Classic and of iOFF.
fn costs(tcp: Stack, groups: &[Group]) -> Claim {
    let apart = of_mode(groups, tcp, CLASSIC).filter_map(|classic| {
        let ioff = find(groups, classic, IOFF)?;
        let difference = ioff.mean(Outcome::mean_delay) - classic.mean(Outcome::mean_delay);
        Some(difference.abs() - classic.spread(Outcome::mean_delay))
    });
    let apart = apart.fold(f64::NEG_INFINITY, f64::max);
    Claim::new(
        format!(
            "{}: Classic and iOFF have equal delays within their spread (the largest difference beyond \
             it, s)",
            tcp.name()
        ),
        None,
        apart,
        apart <= 0.0,
    )
}

/// Share of frames that linear timeouts gain for iOPT exact and for Classic, in the mean over nodes
/// and d.
fn growth(linear: Stack, groups: &[Group]) -> Option<Claim> {
    let doubling = Stack {
        is_linear: false,
        ..linear
    };
    let mean_of = |tcp, mode| {
        let groups = of_mode(groups, tcp, mode).map(|g| g.mean(Outcome::accepted));
        let shares: Vec<f64> = groups.collect();
        (!shares.is_empty()).then(|| mean(shares))
    };
    let [exact, classic] =
        [EXACT, CLASSIC].map(|mode| Some(mean_of(linear, mode)? - mean_of(doubling, mode)?));
    let (exact, classic) = (exact?, classic?);
    Some(Claim::new(
        format!(
            "{}: iOPT exact gains more over Classic from its rates than either gains from linear \
             timeouts (gain from rates less the larger gain from timeouts, share of frames)",
            linear.name()
        ),
        None,
        mean_of(doubling, EXACT)? - mean_of(doubling, CLASSIC)? - exact.max(classic),
        mean_of(doubling, EXACT)? - mean_of(doubling, CLASSIC)? > exact.max(classic),
    ))
}
