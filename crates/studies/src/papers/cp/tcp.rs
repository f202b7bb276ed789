//! Flowshares beside TCP (section VI, Figures 12 to 20).

use tidegate_report::claims::Claim;
use tidegate_report::plot::Figure;

use super::network::{CLUSTER, COMPETING, Cluster, Control, Network};
use crate::papers::lab;
use crate::papers::sweep::{Curve, Run, Sweep};
use crate::papers::{Entry, Options, PapersError, Progress};

type Played = Result<Figure, PapersError>;

/// Numbers of TCP flows and of CP flows, each with a flowshare.
type Flows = (u32, u32);

/// The network of section VI-B.
fn network((tcp, cp): Flows) -> Network {
    Network {
        cluster: Cluster {
            flows: cp,
            shares: cp,
            control: Control::Tfrc,
            sampling: "bfld",
        },
        competing: (Control::Tcp, tcp),
        bandwidth: 100.0,
        delay: 20.0,
        loss: 0.01,
        queue: "{ droptail = \"50 packets\" }",
        packet: 1_500,
        browsers: 0,
        measure: (20, 260),
    }
}

/// Two fifths of the flows, of the browsers, of the bandwidth and of the queue, and shorter, beside `tcp`.
fn reduce(network: &mut Network, tcp: Control) {
    let reduced = |count: u32| (2 * count + 2) / 5;
    network.competing = (tcp, reduced(network.competing.1));
    network.cluster.flows = reduced(network.cluster.flows);
    network.cluster.shares = network.cluster.flows;
    network.bandwidth *= 0.4;
    network.queue = "{ droptail = \"20 packets\" }";
    network.browsers = reduced(network.browsers);
    network.measure = if network.browsers > 0 {
        (20, 50)
    } else {
        (10, 40)
    };
}

type Context<'a> = (&'a Entry, &'a Options, Progress<'a>);

/// A parameter, with its sets of flows.
struct Experiment {
    unit: &'static str,
    values: &'static [f64],
    /// Those in the lab.
    few: &'static [f64],
    sets: &'static [Flows],
    /// Those in the lab.
    few_sets: &'static [Flows],
    change: fn(&mut Network, f64),
}

const DELAY: Experiment = Experiment {
    unit: "round-trip delay (ms)",
    values: &[10.0, 30.0, 50.0, 70.0, 90.0, 110.0, 130.0],
    few: &[10.0, 50.0, 130.0],
    sets: &ALL,
    few_sets: &FEW,
    change: |network, value| network.delay = value / 2.0,
};

const BANDWIDTH: Experiment = Experiment {
    unit: "bandwidth (Mb/s)",
    values: &[10.0, 20.0, 40.0, 60.0, 80.0],
    few: &[10.0, 40.0, 80.0],
    sets: &ALL,
    few_sets: &FEW,
    change: |network, value| network.bandwidth = value,
};

const LOSS: Experiment = Experiment {
    unit: "random loss (%)",
    values: &[1.0, 2.0, 3.0, 4.0, 5.0],
    few: &[1.0, 3.0, 5.0],
    sets: &ALL,
    few_sets: &FEW,
    change: |network, value| network.loss = value / 100.0,
};

const BROWSERS: Experiment = Experiment {
    unit: "browsers",
    values: &[1_000.0, 2_000.0, 3_000.0, 4_000.0, 5_000.0, 6_000.0],
    few: &[1_000.0, 3_000.0, 6_000.0],
    sets: &EQUAL,
    few_sets: &EQUAL,
    change: |network, value| {
        network.browsers = value as u32;
        network.loss = 0.0;
        network.measure = (80, 320);
    },
};

impl Experiment {
    /// Curves of the sets. In the lab `tcp` competes.
    fn curves(&self, options: &Options, tcp: Control) -> Vec<Curve<'_>> {
        let is_lab = options.is_lab();
        let curve = |set: &Flows| {
            let (set, change) = (*set, self.change);
            Curve::new(format!("{}-{}", set.0, set.1), move |value| {
                let mut network = network(set);
                change(&mut network, value);
                if is_lab {
                    reduce(&mut network, tcp);
                }
                network
            })
        };
        let sets = lab::values(options, self.sets, self.few_sets);
        sets.iter().map(curve).collect()
    }

    fn play(&self, options: &Options, progress: Progress<'_>) -> Result<Sweep, PapersError> {
        let values = lab::values(options, self.values, self.few);
        let curves = self.curves(options, Control::LinuxTcp);
        Sweep::play(values, &curves, options, progress)
    }

    /// Draws a quantity; in the lab beside that of the simulator.
    fn figure(
        &self,
        sweep: &Sweep,
        (entry, options, progress): Context<'_>,
        quantity: &'static str,
        of: fn(&Run) -> f64,
    ) -> Result<Figure, PapersError> {
        let mut figure = entry.figure();
        figure.notes.push(NOTE.to_owned());
        let curves: Vec<usize> = (0..sweep.names.len()).collect();
        let units = (self.unit, quantity);
        // The title of a panel needs no more than the symbol.
        let name = quantity
            .split_once(':')
            .map_or(quantity, |(symbol, _)| symbol);
        let panel = if options.is_lab() {
            format!("{name} in the lab")
        } else {
            String::new()
        };
        sweep.draw(&mut figure, &panel, units, of, curves.iter().copied());
        if options.is_lab() {
            let measure = lab::Measure::new(name, units, of, &curves);
            // Without random delays the model of Linux's TCP gets what leaves the full queue.
            let simulated = self.curves(options, Control::Tcp);
            lab::compare(
                &mut figure,
                sweep,
                &simulated,
                options,
                progress,
                &[measure],
            )?;
            figure.notes.push(IN_LAB.to_owned());
        }
        Ok(figure)
    }

    fn throughput(&self, context: Context<'_>) -> Result<(Sweep, Figure), PapersError> {
        let sweep = self.play(context.1, context.2)?;
        let figure = self.figure(&sweep, context, "R: TCP over CP", ratio)?;
        Ok((sweep, figure))
    }

    fn variation(&self, context: Context<'_>) -> Result<(Sweep, Figure), PapersError> {
        let sweep = self.play(context.1, context.2)?;
        let quantity = "C.O.V. of TCP over that of CP";
        let mut figure = self.figure(&sweep, context, quantity, variation)?;
        figure
            .notes
            .push("The throughput is sampled every second.".to_owned());
        Ok((sweep, figure))
    }
}

/// All ratios in 0.8 to 1.25: the one that deviates most.
fn claim_fair(sweep: &Sweep, text: &str, published: f64) -> Claim {
    let each = (0..sweep.names.len()).map(|curve| sweep.deviant(curve, ratio));
    let worst = each.max_by(|a, b| distance(*a).total_cmp(&distance(*b)));
    let worst = worst.unwrap_or(f64::NAN);
    Claim::new(
        format!("{text} (0.8 to 1.25; the largest deviation)"),
        Some(published),
        worst,
        (0.8..=1.25).contains(&worst),
    )
}

/// Distance of a ratio from one, equal for inverse ratios.
fn distance(ratio: f64) -> f64 {
    ratio.max(1.0 / ratio)
}

pub(super) fn throughput_by_delay(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Played {
    let (sweep, mut figure) = DELAY.throughput((entry, options, progress))?;
    let text = "values remain very close to 1.0 for all delays and sets";
    figure.claims.push(claim_fair(&sweep, text, 1.0));
    let values = (0..sweep.names.len())
        .flat_map(|curve| (0..sweep.values.len()).map(move |value| (curve, value)));
    let all: Vec<f64> = values.map(|(c, v)| sweep.mean(c, v, ratio)).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    figure.claim(
        "TCP receives slightly more (the mean of all is 1 to 1.25)",
        None,
        mean,
        (1.0..=1.25).contains(&mean),
    );
    Ok(figure)
}

pub(super) fn variation_by_delay(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Played {
    let (sweep, mut figure) = DELAY.variation((entry, options, progress))?;
    figure.claims.push(equal_sets(&sweep));
    let few = row_mean(&sweep, FEW_TCP);
    figure.claim(
        "TCP varies more than CP in the set 7-35 (its mean ratio)",
        None,
        few,
        few > 1.0,
    );
    Ok(figure)
}

pub(super) fn throughput_by_bandwidth(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Played {
    let (sweep, mut figure) = BANDWIDTH.throughput((entry, options, progress))?;
    let text = "values are fairly close to 1.0 for all bandwidths and sets";
    figure.claims.push(claim_fair(&sweep, text, 1.0));
    let least = curve(&sweep, FEW_CP).map_or(f64::NAN, |curve| sweep.mean(curve, 0, ratio));
    figure.claim(
        "CP receives somewhat more in the set 35-7 at the smallest bandwidth (its ratio is below 1)",
        None,
        least,
        least < 1.0,
    );
    Ok(figure)
}

pub(super) fn variation_by_bandwidth(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Played {
    let (sweep, mut figure) = BANDWIDTH.variation((entry, options, progress))?;
    figure.claims.push(equal_sets(&sweep));
    let few = row_mean(&sweep, FEW_TCP);
    figure.claim(
        "TCP varies nearly twice as much as CP in the set 7-35 (its mean ratio, at least 1.5)",
        Some(2.0),
        few,
        few >= 1.5,
    );
    let many = row_mean(&sweep, FEW_CP);
    figure.claim(
        "CP varies significantly more in the set 35-7 (its mean ratio, at most 0.75)",
        None,
        many,
        many <= 0.75,
    );
    Ok(figure)
}

pub(super) fn throughput_by_loss(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Played {
    let (sweep, mut figure) = LOSS.throughput((entry, options, progress))?;
    let last = sweep.values.len() - 1;
    let falls = (0..sweep.names.len())
        .map(|curve| sweep.mean(curve, last, ratio) / sweep.mean(curve, 0, ratio));
    let most = falls.fold(0.0, f64::max);
    figure.claim(
        "the ratio drops as the loss rises: TCP loses bandwidth to CP (the ratio at 5 % over that at 1 %, \
         the largest of all sets)",
        None,
        most,
        most < 1.0,
    );
    Ok(figure)
}

pub(super) fn variation_by_loss(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Played {
    let (_, figure) = LOSS.variation((entry, options, progress))?;
    Ok(figure)
}

pub(super) fn loss_by_browsers(entry: &Entry, options: &Options, progress: Progress<'_>) -> Played {
    let sweep = BROWSERS.play(options, progress)?;
    let context = (entry, options, progress);
    let mut figure =
        BROWSERS.figure(&sweep, context, "packets lost at the bottleneck (%)", loss)?;
    figure.notes.push(web(options).to_owned());
    let last = sweep.values.len() - 1;
    let growth = sweep.mean(0, last, loss) / sweep.mean(0, 0, loss);
    figure.claim(
        "browsers raise the loss rate (14-14: that with 6,000 over that with 1,000)",
        None,
        growth,
        growth > 1.0,
    );
    Ok(figure)
}

pub(super) fn throughput_by_browsers(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Played {
    let (sweep, mut figure) = BROWSERS.throughput((entry, options, progress))?;
    figure.notes.push(web(options).to_owned());
    let text = "TCP and CP share fairly beside browsers";
    figure.claims.push(claim_fair(&sweep, text, 1.0));
    Ok(figure)
}

pub(super) fn variation_by_browsers(
    entry: &Entry,
    options: &Options,
    progress: Progress<'_>,
) -> Played {
    let (sweep, mut figure) = BROWSERS.variation((entry, options, progress))?;
    figure.notes.push(web(options).to_owned());
    figure.claims.push(equal_sets(&sweep));
    Ok(figure)
}

/// The C.O.V. ratio of sets with as many TCP as CP flows is close to 1.
fn equal_sets(sweep: &Sweep) -> Claim {
    let is_equal = |name: &&String| ![FEW_TCP, FEW_CP].contains(&name.as_str());
    let equal = sweep.names.iter().filter(is_equal);
    let each = equal.map(|name| row_mean(sweep, name));
    let worst = each.max_by(|a, b| distance(*a).total_cmp(&distance(*b)));
    let worst = worst.unwrap_or(f64::NAN);
    Claim::new(
        "TCP and CP vary about as much in the sets with equal numbers (0.67 to 1.5; the mean ratio that \
         deviates most)"
            .to_owned(),
        Some(1.0),
        worst,
        (0.67..=1.5).contains(&worst),
    )
}

/// Position of a set.
fn curve(sweep: &Sweep, name: &str) -> Option<usize> {
    sweep.names.iter().position(|each| each == name)
}

/// Mean C.O.V. ratio of a set.
fn row_mean(sweep: &Sweep, name: &str) -> f64 {
    curve(sweep, name).map_or(f64::NAN, |curve| sweep.row_mean(curve, variation))
}

/// Equation (2). Both flowshares are normalized by the same fair share.
fn ratio(run: &Run) -> f64 {
    let tcp = run.rate(COMPETING) / run.count(COMPETING);
    tcp / (run.rate(CLUSTER) / run.count(CLUSTER))
}

/// Equation (3).
fn variation(run: &Run) -> f64 {
    run.variation(COMPETING) / run.variation(CLUSTER)
}

/// Note about browsers.
fn web(options: &Options) -> &'static str {
    if options.is_lab() { WEB_IN_LAB } else { WEB }
}

/// Share of the data packets of both groups that was lost, in percent.
fn loss(run: &Run) -> f64 {
    100.0 * run.loss(&[COMPETING, CLUSTER])
}

/// The paper's sets: as many of each, then 7-35 and 35-7.
const ALL: [Flows; 7] = [
    (7, 7),
    (14, 14),
    (21, 21),
    (28, 28),
    (35, 35),
    (7, 35),
    (35, 7),
];
/// Those in the lab.
const FEW: [Flows; 4] = [(7, 7), (35, 35), (7, 35), (35, 7)];
/// Those beside browsers.
const EQUAL: [Flows; 2] = [(14, 14), (35, 35)];
/// Names of the unequal sets.
const FEW_TCP: &str = "7-35";
const FEW_CP: &str = "35-7";

const NOTE: &str = "A bottleneck of 100 Mb/s with a queue of 50 packets, as in dummynet; unless varied, 40 ms \
                    and a random loss of 1 % in both directions. 240 s after 20 s, packets of 1,500 bytes. TCP \
                    is the SACK model of ns-2 with a random delay of packets up to 1 ms, CP runs TFRC of RFC \
                    5348. A set 7-35 has 7 TCP and 35 CP flows.";
const IN_LAB: &str = "In the lab: sockets, the TCP of Linux (Reno with SACK), and gateways in user space, each in a \
                      namespace of its own. Two fifths of the flows (3, 6 or 14 instead of 7, 14 or 35), of all \
                      bandwidths, of the queue and of the browsers; 30 s after 10 s, beside browsers 30 s after 20 s. The \
                      simulator has the same scenarios, beside its SACK TCP, and CP packets also pass access links of \
                      up to 11 ms outside of the points.";
const WEB: &str = "Without random loss. Each browser offers 8 kb/s on average, which the paper does not state. \
                   The ramp-up is 80 s instead of 20 minutes.";
const WEB_IN_LAB: &str = "Without random loss. Each browser offers 8 kb/s on average, which the paper does not state. The \
                          browsers of a direction share a host and use connections of the kernel's TCP (Reno \
                          without SACK); those of the simulator have the NewReno of ns-2. The ramp-up is 20 s instead \
                          of 20 minutes; all browsers begin in the middle of a think time.";
