//! Claims of Table 4: accepted frames, mean delays and the cost of event handling.

use super::super::Claim;
use super::super::outcome::{Outcome, mean};
use super::super::runs::Tcp;
use super::tables::find;
use super::{CLASSIC, EXACT, FRAMES, Group, IEXP, IOFF, PAPER};

/// Claims of Table 4 for each TCP.
pub(super) fn of(groups: &[Group]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for tcp in Tcp::ALL {
        let exact = groups.iter().filter(|g| g.tcp == tcp && g.mode == EXACT);
        let exact: Vec<&Group> = exact.collect();
        if exact.is_empty() {
            continue;
        }
        let name = tcp.name();
        claims.push(saves(name, &exact));
        for (other, text) in [(CLASSIC, "Classic"), (IOFF, "iOFF"), (IEXP, "iEXP")] {
            claims.push(accepts(name, (EXACT, "iOPT exact"), groups, (other, text)));
        }
        claims.push(is_faster(name, (EXACT, "iOPT exact"), groups));
        for mode in [
            (PAPER, "iOPT paper"),
            (PAPER + 1, "iOPT paper-m"),
            (IEXP, "iEXP"),
        ] {
            claims.push(accepts(name, mode, groups, (CLASSIC, "Classic")));
            claims.push(is_faster(name, mode, groups));
        }
        for both in [
            ([EXACT, IEXP], "iOPT exact and iEXP"),
            ([PAPER, PAPER + 1], "the printed laws"),
        ] {
            claims.extend(are_better(name, both, groups));
        }
        claims.push(costs(name, groups));
    }
    claims
}

fn saves(name: &str, exact: &[&Group]) -> Claim {
    let saved = exact.iter().map(|g| g.mean(Outcome::of_savable));
    let saved = saved.fold(f64::INFINITY, f64::min);
    Claim::new(
        format!(
            "{name}: iOPT exact has at least 99.5 % of the savable frames in time, at every node and d (the lowest mean)"
        ),
        None,
        saved,
        saved >= 0.995,
    )
}

/// A mode with its name.
type Named<'a> = (usize, &'a str);

/// Differences of a value between two modes with the same node and delay bound.
fn against(
    tcp: &str,
    mode: usize,
    other: usize,
    groups: &[Group],
    of: fn(&Outcome) -> f64,
) -> Vec<f64> {
    let own = groups
        .iter()
        .filter(|g| g.tcp.name() == tcp && g.mode == mode);
    let gain = |g: &Group| Some(g.mean(of) - find(groups, g, other)?.mean(of));
    own.filter_map(gain).collect()
}

/// Claim that a mode accepts at least as many frames as another.
fn accepts(tcp: &str, mode: Named<'_>, groups: &[Group], other: Named<'_>) -> Claim {
    let gains = against(tcp, mode.0, other.0, groups, Outcome::accepted);
    let gain = gains.into_iter().fold(f64::INFINITY, f64::min);
    Claim::new(
        format!(
            "{tcp}: {} accepts at least as many frames as {}, within one per run, at every node and d (the smallest difference)",
            mode.1, other.1
        ),
        None,
        gain,
        gain > -1.0 / FRAMES,
    )
}

/// Claim that a mode has a lower mean delay than Classic.
fn is_faster(tcp: &str, mode: Named<'_>, groups: &[Group]) -> Claim {
    let faster = against(tcp, mode.0, CLASSIC, groups, Outcome::mean_delay);
    let faster = faster.into_iter().fold(f64::NEG_INFINITY, f64::max);
    Claim::new(
        format!(
            "{tcp}: the mean delay of {} is below Classic's, or within a millisecond if the rate is not reduced, at every node and d (the largest difference, s)",
            mode.1
        ),
        None,
        faster,
        faster < 1e-3,
    )
}

/// Claims on two modes, each compared with Classic, averaged over all nodes and bounds. For a
/// single node and bound the result is random if Classic has nearly all frames in time.
fn are_better(tcp: &str, both: ([usize; 2], &str), groups: &[Group]) -> [Claim; 2] {
    let (modes, text) = both;
    let gains = |of| modes.map(|mode| mean(against(tcp, mode, CLASSIC, groups, of)));
    let [one, other] = gains(Outcome::accepted);
    let least = one.min(other);
    let [one, other] = gains(Outcome::mean_delay);
    let slowest = one.max(other);
    [
        Claim::new(
            format!(
                "{tcp}: {text} accept more frames than Classic, each on average over nodes and d (the smaller difference)"
            ),
            None,
            least,
            least > 0.0,
        ),
        Claim::new(
            format!(
                "{tcp}: {text} have a lower mean delay than Classic, each on average over nodes and d (the larger difference, s)"
            ),
            None,
            slowest,
            slowest < 0.0,
        ),
    ]
}

/// Claim that Classic and iOFF have equal delays.
fn costs(tcp: &str, groups: &[Group]) -> Claim {
    let classic = groups
        .iter()
        .filter(|g| g.tcp.name() == tcp && g.mode == CLASSIC);
    let apart = classic.filter_map(|classic| {
        let ioff = find(groups, classic, IOFF)?;
        let difference = ioff.mean(Outcome::mean_delay) - classic.mean(Outcome::mean_delay);
        Some(difference.abs() - classic.spread(Outcome::mean_delay))
    });
    let apart = apart.fold(f64::NEG_INFINITY, f64::max);
    Claim::new(
        format!(
            "{tcp}: Classic and iOFF have equal delays within their spread (the largest difference beyond it, s)"
        ),
        None,
        apart,
        apart <= 0.0,
    )
}
