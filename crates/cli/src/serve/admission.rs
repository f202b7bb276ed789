//! Use of predictions: the start of streams, and titles that a path cannot carry.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::time::Duration;

use tidegate_core::control::Prior;
use tidegate_core::units::{Rate, Time};
use tidegate_knowledge::Cloud;
use tidegate_knowledge::predict::LEVELS;
use tidegate_knowledge::start_table::Prediction;

use crate::learning::expected;

/// How a stream starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartKind {
    /// No store is used.
    Slow,
    /// Nothing is known about the path.
    Miss,
    /// A prediction exists, and is not used.
    Unused(&'static str),
    /// From a prediction.
    Informed,
}

impl StartKind {
    /// Name in objects and lines.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Informed => "informed",
            Self::Slow | Self::Miss | Self::Unused(_) => "slow",
        }
    }

    /// Whether the store had a prediction; `None` without a store.
    pub(super) const fn knowledge(self) -> Option<&'static str> {
        match self {
            Self::Slow => None,
            Self::Miss => Some("miss"),
            Self::Unused(_) | Self::Informed => Some("hit"),
        }
    }

    /// For the user.
    pub(super) fn text(self) -> String {
        match self {
            Self::Slow => "slow start".to_owned(),
            Self::Miss => "slow start (miss)".to_owned(),
            Self::Unused(why) => format!("slow start (hit, {why})"),
            Self::Informed => "informed start (hit)".to_owned(),
        }
    }
}

/// Starts that spend a prediction and that no report has confirmed yet, by network.
#[derive(Debug, Default)]
pub(super) struct Spenders {
    recent: BTreeMap<Cloud, Vec<Time>>,
}

impl Spenders {
    /// Whether another stream may start from the prediction for `client`, to whose network `running`
    /// streams run. Of the streams of a network, at most a quarter, and at least one, may be in the
    /// first [`UNCONFIRMED`] of an informed start: together they would exceed the predicted rate.
    pub(super) fn admit(&mut self, now: Time, client: IpAddr, running: usize) -> bool {
        self.recent.retain(|_, starts| {
            starts.retain(|start| now.since(*start) < UNCONFIRMED);
            !starts.is_empty()
        });
        let Ok(cloud) = Cloud::of(client) else {
            return false;
        };
        let starts = self.recent.entry(cloud).or_default();
        let may = starts.len() < (running.div_ceil(PER_SPENDER)).max(1);
        if may {
            starts.push(now);
        }
        may
    }
}

/// Checks a prior against the round-trip time of the RTSP connection, by the rules of a careful resume
/// (RFC 9959 section 3.2).
pub(super) fn check(prior: Prior, rtt: Option<Duration>) -> Result<Duration, &'static str> {
    let rtt = rtt.ok_or("the round-trip time is unknown")?;
    if rtt < prior.rtt / 2 || rtt > prior.rtt * MAX_RTT {
        return Err("another round-trip time");
    }
    if prior.confidence < MIN_CONFIDENCE {
        return Err("too little confidence");
    }
    Ok(rtt)
}

/// Reason to refuse a title that needs `needed`: more than a quantile of the predicted rate. A prediction
/// that is mostly that of other networks, or of one neighbour, refuses nothing.
pub(super) fn refusal(found: &Prediction, needed: Rate, quantile: f64) -> Option<String> {
    let most = quantile_of(&found.rates(), quantile);
    let text = || format!("{needed} needed, {}", expected(found));
    (found.is_of_its_own() && needed > most).then(text)
}

/// Whether a client that would be refused may try, so that a path that has become better is noticed: one of
/// [`TRIES`] clients, others in each ten minutes.
pub(super) fn may_try(client: IpAddr, now: Time) -> bool {
    let mut hasher = DefaultHasher::new();
    (client, now.since(Time::ZERO).as_secs() / 600).hash(&mut hasher);
    hasher.finish().is_multiple_of(TRIES)
}

/// A quantile between those at [`LEVELS`], whose logarithms are interpolated.
fn quantile_of(rates: &[Rate; LEVELS.len()], quantile: f64) -> Rate {
    let above = LEVELS.iter().position(|level| *level >= quantile);
    let above = above.unwrap_or(LEVELS.len() - 1);
    let below = above.saturating_sub(1);
    let span = LEVELS[above] - LEVELS[below];
    let share = if span > 0.0 {
        ((quantile - LEVELS[below]) / span).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let [low, high] = [below, above].map(|level| rates[level].as_f64().max(1.0).log2());
    Rate::from_f64((low + (high - low) * share).exp2())
}

/// Parses the quantile of `--admission`.
pub(super) fn quantile(text: &str) -> Result<f64, String> {
    let least = LEVELS[0];
    let most = LEVELS[LEVELS.len() - 1];
    let value = text.parse::<f64>().ok();
    let value = value.filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("\"{text}\" is not a quantile: choose one from {least} to {most}"))
}

/// Reports of players are up to 6.2 s apart (RFC 3550 section 6.2); two show whether the rate was too
/// high.
const UNCONFIRMED: Duration = Duration::from_millis(12_400);
/// Streams of a network per informed start.
const PER_SPENDER: usize = 4;
/// Clients of which one may try.
const TRIES: u64 = 20;
const MAX_RTT: u32 = 10;
const MIN_CONFIDENCE: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_between_the_levels_are_interpolated() {
        let rates = [100, 200, 400, 800, 1_600, 3_200, 6_400].map(Rate::kbps);
        let kbps = |quantile| (quantile_of(&rates, quantile).as_f64() / 1e3).round() as u64;
        assert_eq!([0.05, 0.1, 0.5, 0.95].map(kbps), [100, 200, 800, 6_400]);
        assert_eq!(kbps(0.375), 566);
        assert_eq!(quantile("0.25"), Ok(0.25));
        for wrong in ["", "x", "0", "1", "NaN", "0.01"] {
            assert!(quantile(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bounded_share_of_streams_spends_a_prediction() {
        let mut spenders = Spenders::default();
        let client = "192.0.2.7".parse().unwrap();
        let admitted = |spenders: &mut Spenders, seconds, running| {
            spenders.admit(Time::from_secs(seconds), client, running)
        };
        assert!(admitted(&mut spenders, 0, 1));
        assert!(!admitted(&mut spenders, 1, 4));
        // A second one of five to eight streams.
        assert!(admitted(&mut spenders, 2, 5));
        assert!(!admitted(&mut spenders, 3, 8));
        // The first one is confirmed after twelve seconds.
        assert!(admitted(&mut spenders, 13, 8));
        let other = "198.51.100.7".parse().unwrap();
        assert!(spenders.admit(Time::from_secs(13), other, 1));
    }

    #[test]
    fn a_few_clients_may_try() {
        let tries = |ten_minutes: u64| {
            let now = Time::from_secs(600 * ten_minutes);
            let client = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
            let all = (0..2_000).filter(|number| may_try(client(*number), now));
            all.collect::<Vec<_>>()
        };
        let (first, second) = (tries(0), tries(1));
        assert!((60..140).contains(&first.len()), "{}", first.len());
        assert_ne!(first, second);
    }

    #[test]
    fn a_prior_must_fit_the_connection() {
        let prior = Prior {
            rate: Rate::kbps(1_000),
            rtt: Duration::from_millis(40),
            confidence: 0.5,
        };
        let ms = Duration::from_millis;
        assert_eq!(check(prior, Some(ms(20))), Ok(ms(20)));
        assert_eq!(check(prior, Some(ms(400))), Ok(ms(400)));
        assert!(check(prior, Some(ms(19))).is_err());
        assert!(check(prior, Some(ms(401))).is_err());
        assert!(check(prior, None).is_err());
        let confidence = 0.1;
        assert!(
            check(
                Prior {
                    confidence,
                    ..prior
                },
                Some(ms(40))
            )
            .is_err()
        );
    }
}
