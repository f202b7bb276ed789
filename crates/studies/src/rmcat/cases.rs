//! The test cases and their limits.

use core::fmt;

use serde::Serialize;
use tidegate_core::controller::ControllerConfig;
use tidegate_sim::scenario::{MediaPlan, Scenario, ScenarioError};

use super::{CELLULAR, Source, greedy, media};

/// A test case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Identifier, such as `5.1`.
    pub id: &'static str,
    /// Title for tables and pages.
    pub title: &'static str,
    /// Section of the RFC, and deviations from it.
    pub source: &'static str,
    /// Text of the scenario file.
    pub text: &'static str,
    /// Names of the links whose utilisation is measured.
    pub bottlenecks: &'static [&'static str],
    /// Limits of the metrics.
    pub limits: &'static [Limit],
}

impl Case {
    /// The case with this identifier.
    pub fn named(id: &str) -> Option<&'static Self> {
        CASES.iter().find(|case| case.id == id)
    }

    /// The scenario of the embedded file.
    ///
    /// # Errors
    /// The file is not a valid scenario; a test parses all of them.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let file = format!("{}.toml", self.scenario_name());
        Scenario::parse(&file, self.text, &|name| match name {
            "../traces/cellular.mahi" => Ok(CELLULAR.to_owned()),
            _ => Err("the program has no embedded trace of this name".to_owned()),
        })
    }

    /// The scenario with all media flows sending `source`.
    ///
    /// # Errors
    /// As [`scenario`](Self::scenario).
    pub fn scenario_sending(&self, source: Source) -> Result<Scenario, ScenarioError> {
        let mut scenario = self.scenario()?;
        for flow in media(&mut scenario) {
            if let (Source::Greedy, MediaPlan::Video(video)) = (source, &flow.media) {
                flow.media = MediaPlan::Bulk(greedy(video));
            }
        }
        Ok(scenario)
    }

    /// [`scenario_sending`](Self::scenario_sending), with `control` as the controller of all media
    /// flows.
    ///
    /// # Errors
    /// As [`scenario`](Self::scenario).
    pub fn scenario_with(
        &self,
        control: &ControllerConfig,
        source: Source,
    ) -> Result<Scenario, ScenarioError> {
        let mut scenario = self.scenario_sending(source)?;
        for flow in media(&mut scenario) {
            flow.control = Some(control.clone());
        }
        Ok(scenario)
    }

    /// Name of the scenario: `rmcat-5-1` for case `5.1`.
    pub fn scenario_name(&self) -> String {
        format!("rmcat-{}", self.id.replace('.', "-"))
    }
}

/// A metric of a run that can have a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Utilisation of the bottleneck.
    Utilisation,
    /// 95th percentile of delay above propagation, in ms, of the worst flow.
    Queueing,
    /// Share of packets lost, of the worst flow.
    Loss,
    /// Jain's index of self-fairness.
    Jain,
    /// Minimum over maximum of the flows' rates.
    Ratio,
    /// Rate of a media flow over that of a TCP transfer.
    Share,
    /// Minimum rate over ten seconds, relative to the fair share.
    Least,
}

impl Metric {
    /// Name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utilisation => "utilisation",
            Self::Queueing => "queueing p95",
            Self::Loss => "loss",
            Self::Jain => "Jain's index",
            Self::Ratio => "least over most",
            Self::Share => "share against TCP",
            Self::Least => "least of fair share",
        }
    }

    /// A value as text, with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Queueing => format!("{value:.0} ms"),
            Self::Loss => format!("{:.2} %", value * 100.0),
            _ => format!("{value:.2}"),
        }
    }
}

/// Required range of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Lower limit, inclusive.
    AtLeast(f64),
    /// Upper limit, inclusive.
    AtMost(f64),
    /// Lower and upper limit, inclusive.
    Between(f64, f64),
}

impl Bound {
    /// Whether `value` is in the range.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Between(least, most) => (least..=most).contains(&value),
        }
    }

    /// The range as text, in the unit of `metric`.
    pub fn show(self, metric: Metric) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {}", metric.show(least)),
            Self::AtMost(most) => format!("≤ {}", metric.show(most)),
            Self::Between(least, most) => {
                format!("{} to {}", metric.show(least), metric.show(most))
            }
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.title)
    }
}

/// A metric with its required range.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The metric.
    pub metric: Metric,
    /// The range.
    pub bound: Bound,
    /// Reason for the range.
    pub why: &'static str,
}

const fn limit(metric: Metric, bound: Bound, why: &'static str) -> Limit {
    Limit { metric, bound, why }
}

/// `SCReAM`, NADA and Google's controller reach 0.83 to 0.90 of the capacity in 5.1. The limit is a
/// tenth lower.
const USED: Limit = limit(
    Metric::Utilisation,
    Bound::AtLeast(0.75),
    "public delay-based controllers use 0.83 to 0.90 in 5.1; less a tenth",
);
/// RFC 8836 requires less delay than loss-based control causes.
const SHORT_QUEUE: Limit = limit(
    Metric::Queueing,
    Bound::AtMost(150.0),
    "half of the queue of 300 ms, so that purely loss-based control fails; includes jitter of up to 30 ms",
);
const BOUNDED_QUEUE: Limit = limit(
    Metric::Queueing,
    Bound::AtMost(400.0),
    "the full queue, which TCP or a variable link may cause independently of the flow, and jitter",
);
const FEW_LOST: Limit = limit(
    Metric::Loss,
    Bound::AtMost(0.02),
    "SCReAM, NADA and Google's controller lose 0.7 to 1.7 % in 5.1",
);
const SOME_LOST: Limit = limit(
    Metric::Loss,
    Bound::AtMost(0.05),
    "above that, repair costs more than it saves; TCP fills the queue, or the radio link loses packets",
);
const ALIKE: Limit = limit(
    Metric::Jain,
    Bound::AtLeast(0.9),
    "flows of one kind on one path should share it equally; one of three flows at half the rate gives 0.93",
);
const ROUGHLY_ALIKE: Limit = limit(
    Metric::Jain,
    Bound::AtLeast(0.8),
    "flows with different round-trip times or paths may differ, but by a factor of about three at most",
);
const WITHIN_THREE: Limit = limit(
    Metric::Ratio,
    Bound::AtLeast(1.0 / 3.0),
    "RFC 8868 section 3: rates of flows with one priority and similar round trips are within a factor of three",
);
const NOT_STARVED: Limit = limit(
    Metric::Least,
    Bound::AtLeast(0.2),
    "no flow may starve: at least a fifth of the fair share over any ten seconds",
);
const HARDLY_STARVED: Limit = limit(
    Metric::Least,
    Bound::AtLeast(0.1),
    "short flows start and end, and are not part of the fair share",
);
const AGAINST_TCP: Limit = limit(
    Metric::Share,
    Bound::Between(0.2, 5.0),
    "no starvation on either side: between a fifth and five times the rate of TCP",
);

/// One flow, or one flow in each direction.
const ALONE: &[Limit] = &[USED, SHORT_QUEUE, FEW_LOST, NOT_STARVED];
/// Flows of one kind on one path.
const AMONG_ITS_LIKE: &[Limit] = &[
    USED,
    SHORT_QUEUE,
    FEW_LOST,
    ALIKE,
    WITHIN_THREE,
    NOT_STARVED,
];
/// Flows with different paths.
const AMONG_OTHERS: &[Limit] = &[USED, SHORT_QUEUE, FEW_LOST, ROUGHLY_ALIKE, NOT_STARVED];
/// Flows that compete with long TCP transfers.
const BESIDE_TCP: &[Limit] = &[AGAINST_TCP, BOUNDED_QUEUE, SOME_LOST, NOT_STARVED];
/// Flows that compete with short TCP transfers.
const BESIDE_SHORT_TCP: &[Limit] = &[
    BOUNDED_QUEUE,
    SOME_LOST,
    ALIKE,
    WITHIN_THREE,
    HARDLY_STARVED,
];

macro_rules! text {
    ($name:literal) => {
        include_str!(concat!(
            "../../../../scenarios/rmcat/rmcat-",
            $name,
            ".toml"
        ))
    };
}

// The scenario files implement the requirements that are common to all cases.
//= rfc8867-4.2-jitter
//= rfc8867-4.2-queue
//= rfc8867-4.3-media-range
//= rfc8867-4.3-audio
//= rfc8867-5-end
/// All cases, in the order of the RFCs.
pub const CASES: [Case; 23] = [
    //= rfc8867-5.1-one-flow
    Case {
        id: "5.1",
        title: "Variable capacity, one flow",
        source: "RFC 8867 section 5.1",
        text: text!("5-1"),
        bottlenecks: &["there"],
        limits: ALONE,
    },
    //= rfc8867-5.1-delays
    Case {
        id: "5.1-far",
        title: "The same with longer propagation",
        source: "RFC 8867 section 5.1, 100 ms of propagation there",
        text: text!("5-1-far"),
        bottlenecks: &["there"],
        limits: ALONE,
    },
    //= rfc8867-5.2-two-flows
    Case {
        id: "5.2",
        title: "Variable capacity, two flows",
        source: "RFC 8867 section 5.2",
        text: text!("5-2"),
        bottlenecks: &["there"],
        limits: AMONG_ITS_LIKE,
    },
    //= rfc8867-5.3-feedback
    Case {
        id: "5.3",
        title: "Congested feedback",
        source: "RFC 8867 section 5.3",
        text: text!("5-3"),
        bottlenecks: &["there", "back"],
        limits: ALONE,
    },
    //= rfc8867-5.3-reference
    Case {
        id: "5.3-free",
        title: "The same with feedback unimpaired",
        source: "RFC 8867 section 5.3, the reference",
        text: text!("5-3-free"),
        bottlenecks: &["there"],
        limits: ALONE,
    },
    //= rfc8867-5.4-competing
    Case {
        id: "5.4",
        title: "Competing media flows",
        source: "RFC 8867 section 5.4",
        text: text!("5-4"),
        bottlenecks: &["there"],
        limits: AMONG_ITS_LIKE,
    },
    //= rfc8867-5.5-round-trips
    Case {
        id: "5.5",
        title: "Round-trip time fairness",
        source: "RFC 8867 section 5.5",
        text: text!("5-5"),
        bottlenecks: &["there"],
        limits: AMONG_OTHERS,
    },
    //= rfc8867-5.6-long-tcp
    Case {
        id: "5.6",
        title: "Against a long TCP transfer",
        source: "RFC 8867 section 5.6, queue of 300 ms",
        text: text!("5-6"),
        bottlenecks: &["there"],
        limits: BESIDE_TCP,
    },
    //= rfc8867-5.6-queues
    Case {
        id: "5.6-deep",
        title: "The same with a deep queue",
        source: "RFC 8867 section 5.6, queue of 1000 ms",
        text: text!("5-6-deep"),
        bottlenecks: &["there"],
        limits: &[AGAINST_TCP, SOME_LOST, NOT_STARVED],
    },
    //= rfc8867-5.6-other-tcp
    Case {
        id: "5.6-cubic",
        title: "The same against CUBIC",
        source: "RFC 8867 section 5.6, queue of 300 ms, and RFC 8868 section 5.1",
        text: text!("5-6-cubic"),
        bottlenecks: &["there"],
        limits: BESIDE_TCP,
    },
    //= rfc8867-5.7-short-tcp
    Case {
        id: "5.7",
        title: "Against bursts of short TCP transfers",
        source: "RFC 8867 section 5.7, and RFC 8868 section 5.1 to the letter",
        text: text!("5-7"),
        bottlenecks: &["there"],
        limits: BESIDE_SHORT_TCP,
    },
    Case {
        id: "5.7-light",
        title: "Against short TCP transfers",
        source: "RFC 8867 section 5.7, one connection at a time for each flow",
        text: text!("5-7-light"),
        bottlenecks: &["there"],
        limits: BESIDE_SHORT_TCP,
    },
    //= rfc8867-5.8-pause
    Case {
        id: "5.8",
        title: "Pause and resume",
        source: "RFC 8867 section 5.8",
        text: text!("5-8"),
        bottlenecks: &["there"],
        limits: AMONG_ITS_LIKE,
    },
    //= rfc8867-6.2-ecn
    Case {
        id: "6.2-5.1",
        title: "Case 5.1 with explicit congestion notification",
        source: "RFC 8867 section 6.2, with RED",
        text: text!("6-2-5-1"),
        bottlenecks: &["there"],
        limits: ALONE,
    },
    Case {
        id: "6.2-5.4",
        title: "Case 5.4 with explicit congestion notification",
        source: "RFC 8867 section 6.2, with RED",
        text: text!("6-2-5-4"),
        bottlenecks: &["there"],
        limits: AMONG_ITS_LIKE,
    },
    Case {
        id: "6.2-5.6",
        title: "Case 5.6 with explicit congestion notification",
        source: "RFC 8867 section 6.2, with RED",
        text: text!("6-2-5-6"),
        bottlenecks: &["there"],
        limits: BESIDE_TCP,
    },
    //= rfc8867-6.3-bottlenecks
    Case {
        id: "6.3",
        title: "Two bottlenecks",
        source: "RFC 8867 section 6.3",
        text: text!("6-3"),
        bottlenecks: &["first", "second"],
        limits: AMONG_OTHERS,
    },
    Case {
        id: "cell-load",
        title: "Mobile link, varying load",
        source: "after RFC 8869 section 2.1, on a synthetic trace",
        text: text!("cell-load"),
        bottlenecks: &["radio"],
        limits: &[
            limit(
                Metric::Utilisation,
                Bound::AtLeast(0.5),
                "the capacity changes faster than a controller can follow",
            ),
            BOUNDED_QUEUE,
            SOME_LOST,
            HARDLY_STARVED,
        ],
    },
    Case {
        id: "cell-edge",
        title: "Mobile link, bad coverage",
        source: "after RFC 8869 section 2.2, in steps, with outages and losses",
        text: text!("cell-edge"),
        bottlenecks: &["radio"],
        limits: &[
            limit(
                Metric::Utilisation,
                Bound::AtLeast(0.5),
                "the capacity changes every eight seconds, and the link loses 0.5 % of the packets",
            ),
            BOUNDED_QUEUE,
            SOME_LOST,
            HARDLY_STARVED,
        ],
    },
    Case {
        id: "wifi-wired",
        title: "Wi-Fi behind a wired bottleneck",
        source: "after RFC 8869 section 3.1, both directions, with a constant-rate flow from 60 s",
        text: text!("wifi-wired"),
        bottlenecks: &["wire-up", "wire-down"],
        limits: AMONG_ITS_LIKE,
    },
    Case {
        id: "wifi-wired-tcp",
        title: "The same against a TCP transfer",
        source: "after RFC 8869 section 3.1, with TCP",
        text: text!("wifi-wired-tcp"),
        bottlenecks: &["wire-up"],
        limits: BESIDE_TCP,
    },
    Case {
        id: "wifi-shared",
        title: "Wi-Fi as the bottleneck",
        source: "after RFC 8869 section 3.2, sixteen flows down",
        text: text!("wifi-shared"),
        bottlenecks: &["air"],
        limits: AMONG_ITS_LIKE,
    },
    Case {
        id: "wifi-tcp",
        title: "Wi-Fi with TCP transfers",
        source: "after RFC 8869 section 3.2, both directions and TCP",
        text: text!("wifi-tcp"),
        bottlenecks: &["air"],
        limits: &[
            AGAINST_TCP,
            BOUNDED_QUEUE,
            SOME_LOST,
            ALIKE,
            WITHIN_THREE,
            NOT_STARVED,
        ],
    },
];
