//! The published throttling law, for comparison with the exact one.

use core::time::Duration;

use crate::delay_bound::{
    Burst, Frames, Plan, PlanProblem, ServiceCurve, TcpPath, plan, recovery, smallest_budget,
};
use crate::units::{Bytes, Rate, Time};

/// Law that computes the response to a congestion event.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Law {
    /// The exact law: no byte is late.
    #[default]
    Exact,
    /// Equations (4), (6b), (9), (10) and m = 2I/RTT as printed. Its rate misses the bound by
    /// up to 41 %.
    Paper,
    /// The same equations with m = I/RTT², the slope that has the dimension of rate per time.
    PaperM,
}

/// State of the application when TCP reports a loss.
#[derive(Clone, Copy, Debug)]
pub struct CongestionEvent<'a> {
    /// Segment size and round-trip time.
    pub path: TcpPath,
    /// H: the rate before the event, see [`satisfied_rate`].
    pub normal: Rate,
    /// τ: reaction time of the source, see [`reaction_delay`].
    pub reaction: Duration,
    /// Q, if measured; otherwise equation (10) estimates it.
    pub backlog: Option<Bytes>,
    /// d: maximum queueing delay of a byte in the sender.
    pub budget: Duration,
    /// Burst of the source; the published laws have none.
    pub burst: Burst,
    /// The encoder's lowest rate.
    pub floor: Rate,
    /// Highest rate of the encoder.
    pub ceiling: Rate,
    /// Forecast for [`Law::Exact`], if there is a better one than w = m·t.
    pub curve: Option<&'a ServiceCurve>,
    /// Times of the next frames.
    pub frames: Frames,
}

/// Response to a loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// Highest allowed rate from now on; the floor if no rate is feasible.
    pub rate: Rate,
    /// Time to keep this rate; `None` if the backlog never drains at this rate.
    pub duration: Option<Duration>,
    /// Whether the bound holds according to the law.
    pub feasible: bool,
    /// Q, measured or estimated.
    pub backlog: Bytes,
    /// Smallest budget that the law accepts; `None` if there is none.
    pub smallest_budget: Option<Duration>,
}

impl Law {
    /// All laws.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Paper, Self::PaperM];

    /// Name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Paper => "paper",
            Self::PaperM => "paper-m",
        }
    }

    /// m: growth of the bandwidth after the loss, in b/s per second.
    pub fn slope(self, path: TcpPath) -> f64 {
        match self {
            //= itcp-4.4-paper-slope
            Self::Paper => 2.0 * path.mss.bits() as f64 / path.rtt_secs(),
            Self::Exact | Self::PaperM => path.slope(),
        }
    }

    /// The reduced rate and its duration.
    pub fn respond(self, event: &CongestionEvent<'_>) -> Response {
        let slope = self.slope(event.path);
        let backlog = event
            .backlog
            .unwrap_or_else(|| backlog_of_reaction(event.normal, event.reaction, slope));
        match self {
            Self::Exact => exact(event, backlog, slope),
            Self::Paper | Self::PaperM => printed(event, backlog, slope),
        }
    }
}

impl core::fmt::Display for Law {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// τ of equation (13a): the time from the event to the response, plus the delays of the encoder and
/// of the signal. The paper assumes that both delays are zero.
pub fn reaction_delay(
    event: Time,
    response: Time,
    encoder: Duration,
    signal: Duration,
) -> Duration {
    //= itcp-5.1.1-reaction
    response.since(event) + encoder + signal
}

/// H of section 5.1.4: bytes sent, divided by the time from the start to the event. The paper
/// divides by start minus event, which is negative.
pub fn satisfied_rate(sent: Bytes, start: Time, event: Time) -> Rate {
    //= itcp-5.1.4-normal-rate
    let span = event.since(start);
    if span.is_zero() {
        Rate::ZERO
    } else {
        sent / span
    }
}

/// Q of equation (10): backlog of a source that continues at its normal rate during the reaction
/// time, while the bandwidth grows from zero by `slope` (b/s per second).
pub fn backlog_of_reaction(normal: Rate, reaction: Duration, slope: f64) -> Bytes {
    //= itcp-4.4-paper-backlog
    let tau = reaction.as_secs_f64();
    let bits = tau * (normal.as_f64() - 0.5 * slope * tau);
    // `as` saturates, so a negative value becomes zero.
    Bytes((bits / 8.0) as u64)
}

/// Equations (4), (6b) and (9).
fn printed(event: &CongestionEvent<'_>, backlog: Bytes, m: f64) -> Response {
    let (q, d) = (backlog.bits() as f64, event.budget.as_secs_f64());
    let ceiling = event.ceiling.max(event.floor);
    //= itcp-4.4-paper-minimum
    let smallest = (q / m).sqrt();
    //= itcp-4.4-paper-rate
    let best = m * d * (1.0 + (2.0 - 2.0 * q / (m * d * d)).max(0.0).sqrt());
    let feasible = d >= smallest && d > 0.0 && best >= event.floor.as_f64();
    let rate = if feasible {
        Rate::from_f64(best).min(ceiling)
    } else {
        event.floor
    };
    let h = rate.as_f64();
    //= itcp-4.4-paper-duration
    let duration = h / m * (1.0 + (1.0 + 2.0 * q * m / (h * h)).sqrt());
    Response {
        rate,
        duration: Duration::try_from_secs_f64(duration).ok(),
        feasible,
        backlog,
        smallest_budget: Duration::try_from_secs_f64(smallest).ok(),
    }
}

fn exact(event: &CongestionEvent<'_>, backlog: Bytes, m: f64) -> Response {
    let linear = ServiceCurve::linear(m);
    let case = PlanProblem {
        curve: event.curve.unwrap_or(&linear),
        backlog,
        budget: event.budget,
        burst: event.burst,
        floor: event.floor,
        ceiling: event.ceiling,
        frames: event.frames,
    };
    match plan(&case) {
        Plan::Feasible { rate, recovery, .. } => Response {
            rate,
            duration: recovery,
            feasible: true,
            backlog,
            smallest_budget: smallest_budget(&case),
        },
        Plan::Infeasible {
            smallest_budget, ..
        } => Response {
            rate: event.floor,
            duration: recovery(&case, event.floor),
            feasible: false,
            backlog,
            smallest_budget,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: TcpPath = TcpPath {
        mss: Bytes(1_460),
        rtt: Duration::from_millis(100),
        limit: None,
    };

    fn event(backlog: u64, budget_ms: u64) -> CongestionEvent<'static> {
        CongestionEvent {
            path: PATH,
            normal: Rate::kbps(1_500),
            reaction: Duration::from_millis(50),
            backlog: Some(Bytes(backlog)),
            budget: Duration::from_millis(budget_ms),
            burst: Burst::default(),
            floor: Rate::kbps(10),
            ceiling: Rate::MAX,
            curve: None,
            frames: Frames {
                next: Duration::ZERO,
                interval: Duration::from_millis(40),
            },
        }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-5 * a.abs().max(b.abs())
    }

    #[test]
    fn slopes_match_the_paper_and_its_correction() {
        //= itcp-4.4-paper-slope (test)
        assert!(near(Law::Paper.slope(PATH), 2.0 * 11_680.0 / 0.1));
        assert!(near(Law::PaperM.slope(PATH), 11_680.0 / 0.01));
        assert!(near(Law::Exact.slope(PATH), Law::PaperM.slope(PATH)));
    }

    #[test]
    fn the_printed_rate_and_duration() {
        //= itcp-4.4-paper-rate (test)
        //= itcp-4.4-paper-duration (test)
        // m = 1,168,000 b/s², d = 0.2 s, Q = 16,000 bits: 2Q/(m·d²) = 0.684932.
        let got = Law::PaperM.respond(&event(2_000, 200));
        let h = 233_600.0 * (1.0 + (2.0_f64 - 0.684_931_5).sqrt());
        assert!(near(got.rate.as_f64(), h), "{got:?}");
        let t = h / 1_168_000.0 * (1.0 + (1.0_f64 + 2.0 * 16_000.0 * 1_168_000.0 / (h * h)).sqrt());
        assert!(near(got.duration.unwrap().as_secs_f64(), t), "{got:?}");
        assert!(got.feasible);
        // (8): without a backlog it is m·d·(1 + √2).
        let (none, m) = (Law::Paper.respond(&event(0, 200)), Law::Paper.slope(PATH));
        assert!(near(none.rate.as_f64(), m * 0.2 * (1.0 + 2.0_f64.sqrt())));
    }

    #[test]
    fn paper_is_infeasible_below_its_minimum_budget() {
        //= itcp-4.4-paper-minimum (test)
        // sqrt(16,000/1,168,000) = 117 ms.
        assert!(!Law::PaperM.respond(&event(2_000, 117)).feasible);
        let got = Law::PaperM.respond(&event(2_000, 118));
        assert!(got.feasible);
        assert!(near(
            got.smallest_budget.unwrap().as_secs_f64(),
            (16_000.0_f64 / 1_168_000.0).sqrt()
        ));
        assert_eq!(Law::PaperM.respond(&event(2_000, 0)).rate, Rate::kbps(10));
    }

    #[test]
    fn the_backlog_of_the_reaction_time() {
        //= itcp-4.4-paper-backlog (test)
        // 0.05·(1,500,000 − 1,168,000·0.025) = 73,540 bits.
        let got = Law::PaperM.respond(&CongestionEvent {
            backlog: None,
            ..event(0, 500)
        });
        assert_eq!(got.backlog, Bytes(9_192));
        assert_eq!(
            backlog_of_reaction(Rate::ZERO, Duration::from_secs(1), 1e6),
            Bytes::ZERO
        );
    }

    #[test]
    fn parameters_are_estimated_from_the_sender() {
        //= itcp-5.1.1-reaction (test)
        //= itcp-5.1.4-normal-rate (test)
        let (start, event) = (Time::from_secs(1), Time::from_secs(11));
        let ms = Duration::from_millis;
        let tau = reaction_delay(event, Time::from_millis(11_020), ms(3), ms(2));
        assert_eq!(tau, ms(25));
        assert_eq!(
            satisfied_rate(Bytes(1_250_000), start, event),
            Rate::kbps(1_000)
        );
        assert_eq!(satisfied_rate(Bytes(1), start, start), Rate::ZERO);
    }

    #[test]
    fn the_exact_law_has_the_same_interface() {
        let d = 0.2;
        let got = Law::Exact.respond(&event(2_000, 200));
        let h = 1_168_000.0 * d * (1.0 + (1.0 - 0.684_931_5_f64).sqrt());
        assert!(near(got.rate.as_f64(), h), "{got:?}");
        // d_min = √(2Q/m), here 165.5 ms; the paper's is 117.
        assert!(near(
            got.smallest_budget.unwrap().as_secs_f64() + 1.0,
            1.165_521
        ));
        let tight = Law::Exact.respond(&event(2_000, 150));
        assert!(!tight.feasible && tight.rate == Rate::kbps(10) && tight.duration.is_some());
        assert_eq!(tight.smallest_budget.map(|d| d.as_millis()), Some(165));
    }
}
