//! Ten flows that share 1300 packets per second over a satellite link with random loss.

use core::time::Duration;

use tidegate_core::control::{Algorithm, FlowId};
use tidegate_core::link::{LinkConfig, LossConfig, Outage};
use tidegate_core::random::{Seed, unit};
use tidegate_core::units::{Rate, Time};
use tidegate_sim::model_flow::{ReceiverConfig, SenderConfig};

use crate::lab::{Lab, link, start};

/// Ten flows over a long path with random loss after a queue of 50 packets.
#[derive(Clone, Copy)]
pub(crate) struct Satellite {
    pub(crate) loss: f64,
    pub(crate) loss_back: f64,
    /// In seconds.
    pub(crate) rtt: f64,
    /// Outage in seconds, from 200 s on, in both directions.
    pub(crate) outage: u64,
    pub(crate) seconds: u64,
}

/// A flow, as in ns-2.
pub(crate) struct Kind<'a> {
    pub(crate) sender: SenderConfig,
    pub(crate) algorithm: &'a dyn Algorithm,
    pub(crate) receiver: ReceiverConfig,
}

/// Results per second.
pub(crate) struct Played {
    /// Packets that a flow received from 50 s on.
    pub(crate) received: f64,
    /// Jain's index over the flows.
    pub(crate) fairness: f64,
    /// Seconds from the end of the outage until five seconds have half the throughput of the 50 s
    /// before the outage.
    pub(crate) half: f64,
    /// Packets of all flows received in the 50 s after the outage.
    pub(crate) after: f64,
    /// Packets that all flows sent during the outage, from its second second on.
    pub(crate) during: f64,
}

impl Satellite {
    pub(crate) fn play(self, kind: &Kind<'_>, seed: u64) -> Played {
        let mut lab = self.lab(kind, seed);
        let received = |lab: &Lab| -> Vec<f64> {
            let flows = lab.flows.iter();
            flows.map(|flow| flow.receiver.packets() as f64).collect()
        };
        let sent = |lab: &Lab| {
            lab.flows
                .iter()
                .map(|flow| flow.sender.packets())
                .sum::<u64>()
        };
        // All flows, second by second.
        let (mut came, mut left) = (Vec::new(), Vec::new());
        let mut warm = Vec::new();
        for second in 0..=self.seconds {
            lab.run(Time::from_secs(second));
            let now = received(&lab);
            came.push(now.iter().sum::<f64>());
            left.push(sent(&lab) as f64);
            if second == 50 {
                warm = now;
            }
        }
        let span = (self.seconds - 50) as f64;
        let rates = received(&lab).into_iter().zip(warm);
        let rates: Vec<f64> = rates.map(|(end, begin)| (end - begin) / span).collect();
        let (sum, squares): (f64, f64) = (rates.iter().sum(), rates.iter().map(|r| r * r).sum());
        let mean = |counts: &[f64], from: usize, to: usize| {
            (counts[to] - counts[from]) / (to - from) as f64
        };
        let ends = 200 + self.outage as usize;
        let before = if self.outage > 0 {
            mean(&came, 150, 200)
        } else {
            0.0
        };
        let half = (ends..came.len() - 5).find(|at| mean(&came, *at, at + 5) >= before / 2.0);
        Played {
            received: sum / 10.0,
            fairness: sum * sum / (10.0 * squares),
            half: half.map_or(f64::INFINITY, |at| (at - ends) as f64),
            after: mean(&came, ends, (ends + 50).min(came.len() - 1)),
            during: if self.outage > 1 {
                mean(&left, 201, ends)
            } else {
                0.0
            },
        }
    }

    fn lab(self, kind: &Kind<'_>, seed: u64) -> Lab {
        let way = Duration::from_secs_f64(self.rtt / 2.0);
        let outages: Vec<Outage> = (self.outage > 0)
            .then(|| Outage {
                from: Time::from_secs(200),
                to: Time::from_secs(200 + self.outage),
            })
            .into_iter()
            .collect();
        let there = LinkConfig {
            loss: LossConfig::Bernoulli(self.loss),
            outages: outages.clone(),
            ..link(Rate::kbps(10_400), way, 50)
        };
        let back = LinkConfig {
            delay: way,
            loss: LossConfig::Bernoulli(self.loss_back),
            outages,
            ..LinkConfig::default()
        };
        let mut lab = Lab::new(vec![("there", there), ("back", back)], &[&[0], &[1]], seed);
        let mut rng = Seed(seed).stream("starts");
        for n in 0..10 {
            let begins = Duration::from_nanos((unit(&mut rng) * 5e9) as u64);
            let config = SenderConfig {
                flow: FlowId(n),
                start: Time::ZERO + begins,
                ..kind.sender.clone()
            };
            let controller = kind.algorithm.start(&start(&config));
            lab.add(config, controller, kind.receiver.clone(), [0, 1]);
        }
        lab
    }
}
