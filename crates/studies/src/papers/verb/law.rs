//! `tidegate papers law`: answers of the throttling laws.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use tidegate_console::output::{self, output};
use tidegate_core::delay_bound::TcpPath;
use tidegate_core::quantity;
use tidegate_core::tcp_rate::{Law, backlog_of_reaction};
use tidegate_core::units::{Bytes, Rate};

use crate::papers::law::Throttle;

/// Parameters of section 4 of the first paper.
#[derive(Debug, clap::Args)]
pub(super) struct LawArgs {
    /// Growth of the bandwidth after the timeout, m, in b/s per second; or give --rtt
    #[arg(long = "m", value_name = "B/S²", value_parser = positive, conflicts_with = "rtt")]
    slope: Option<f64>,
    /// Round-trip time, for m = I/RTT² and, in the printed law, m = 2I/RTT
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    rtt: Option<Duration>,
    /// Segment size I, with --rtt
    #[arg(long, value_name = "SIZE", value_parser = quantity::size, default_value = "1460B")]
    segment: Bytes,
    /// Backlog at the timeout, Q; or give --reaction and --rate
    #[arg(long = "q", value_name = "SIZE", value_parser = quantity::size, conflicts_with = "reaction")]
    backlog: Option<Bytes>,
    /// Reaction time of the source, τ, for Q by equation (10)
    #[arg(long, value_name = "TIME", value_parser = quantity::duration, requires = "rate")]
    reaction: Option<Duration>,
    /// Rate before the timeout, H, with --reaction
    #[arg(long, value_name = "RATE", value_parser = quantity::rate, requires = "reaction")]
    rate: Option<Rate>,
    /// Delay bound, d
    #[arg(long = "d", value_name = "TIME", value_parser = quantity::duration)]
    bound: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if f64::is_finite(number) && number > 0.0 => Ok(number),
        _ => Err("write a number above zero, such as 584000".to_owned()),
    }
}

/// Prints the answers.
///
/// # Errors
/// m or Q cannot be derived from the options, or d or RTT is zero.
pub(super) fn answer(args: &LawArgs) -> Result<ExitCode> {
    ensure!(
        !args.bound.is_zero(),
        "--d 0s: give a delay bound above zero, such as --d 4s"
    );
    let laws = laws(args)?;
    if args.json {
        let answers = laws
            .iter()
            .map(|(law, throttle)| (law.name().to_owned(), value(*law, throttle)));
        output::print_json(&Value::Object(answers.collect()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output();
    for (law, throttle) in &laws {
        let (m, q) = (throttle.slope, throttle.backlog);
        writeln!(
            out,
            "{law}: m = {m:.0} b/s per s, Q = {q:.0} bit, d = {:?}",
            throttle.bound
        )?;
        let smallest = throttle.smallest_bound(*law);
        let Some(answer) = throttle.answer(*law) else {
            writeln!(
                out,
                "  no rate keeps d; the smallest bound is {smallest:.3?}"
            )?;
            continue;
        };
        writeln!(out, "  h_best         {}", Rate::from_f64(answer.rate))?;
        if let Some(other) = answer.other {
            writeln!(out, "  h_other        {}", Rate::from_f64(other))?;
        }
        writeln!(out, "  even point T   {:.3?}", answer.even)?;
        writeln!(out, "  T_critical     {:.3?}", answer.critical)?;
        writeln!(out, "  T_recovery     {:.3?}", answer.recovery)?;
        writeln!(out, "  largest delay  {:.3?}", answer.largest_delay)?;
        writeln!(out, "  smallest d     {smallest:.3?}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn value(law: Law, throttle: &Throttle) -> Value {
    json!({
        "m_bps_per_s": throttle.slope,
        "q_bits": throttle.backlog,
        "d_s": throttle.bound.as_secs_f64(),
        "smallest_d_s": throttle.smallest_bound(law).as_secs_f64(),
        "answer": throttle.answer(law).map(|answer| json!({
            "h_best_bps": answer.rate,
            "h_other_bps": answer.other,
            "even_point_s": answer.even.as_secs_f64(),
            "t_critical_s": answer.critical.as_secs_f64(),
            "t_recovery_s": answer.recovery.as_secs_f64(),
            "largest_delay_s": answer.largest_delay.as_secs_f64(),
        })),
    })
}

/// Each law with its parameters. With a given m both corrections coincide, and two laws are left.
fn laws(args: &LawArgs) -> Result<Vec<(Law, Throttle)>> {
    let laws: &[Law] = if args.slope.is_some() {
        &[Law::Exact, Law::Paper]
    } else {
        &Law::ALL
    };
    let laws = laws.iter().map(|&law| {
        let slope = match (args.slope, args.rtt) {
            (Some(slope), _) => slope,
            (None, Some(rtt)) => {
                ensure!(
                    !rtt.is_zero(),
                    "--rtt 0s: give a round-trip time above zero"
                );
                ensure!(
                    args.segment > Bytes::ZERO,
                    "--segment 0B: give a size above zero"
                );
                law.slope(TcpPath {
                    mss: args.segment,
                    rtt,
                    limit: None,
                })
            }
            (None, None) => bail!("papers law: give m as --m, or --rtt, from which it follows"),
        };
        let backlog = match (args.backlog, args.reaction, args.rate) {
            (Some(backlog), ..) => backlog,
            (None, Some(reaction), Some(rate)) => backlog_of_reaction(rate, reaction, slope),
            _ => {
                bail!("papers law: give Q as --q, or --reaction and --rate, from which it follows")
            }
        };
        Ok((
            law,
            Throttle {
                slope,
                backlog: backlog.bits() as f64,
                bound: args.bound,
            },
        ))
    });
    laws.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        law: LawArgs,
    }

    fn parse(line: &str) -> Result<LawArgs, String> {
        let words = ["law"].into_iter().chain(line.split_whitespace());
        let line = <Line as clap::Parser>::try_parse_from(words);
        line.map(|line| line.law).map_err(|e| e.to_string())
    }

    #[test]
    fn m_and_q_are_given_or_derived() {
        let near = |ours: f64, expected: f64| assert!((ours - expected).abs() < 1e-6, "{ours}");
        let derived = laws(&parse("--rtt 100ms --reaction 20ms --rate 2Mb/s --d 4s").unwrap());
        let derived = derived.unwrap();
        near(derived[0].1.slope, 1_168_000.0);
        near(derived[1].1.slope, 233_600.0);
        near(derived[2].1.slope, 1_168_000.0);
        // (10): 0.02 (2,000,000 - 233,600 * 0.01) = 39,953 bits, in whole bytes.
        near(derived[1].1.backlog, 39_952.0);
        let given = laws(&parse("--m 584000 --q 5kB --d 2s").unwrap()).unwrap();
        assert_eq!(given.len(), 2);
        for (_, throttle) in given {
            near(throttle.slope, 584_000.0);
            near(throttle.backlog, 40_000.0);
        }
    }

    #[test]
    fn wrong_parameters_are_refused_by_name() {
        for (line, part) in [
            ("--q 1kB --d 2s", "--rtt"),
            ("--m 1000 --d 2s", "--reaction"),
            ("--m 1000 --q 1kB --d 0s", "--d"),
            ("--rtt 0s --q 1kB --d 2s", "--rtt"),
        ] {
            let error = format!("{:#}", answer(&parse(line).unwrap()).unwrap_err());
            assert!(error.contains(part), "{line}: {error}");
        }
        for (line, part) in [
            ("--m 0 --q 1kB --d 2s", "above zero"),
            ("--m nan --q 1kB --d 2s", "above zero"),
            ("--m 1000 --rtt 1s --q 1kB --d 2s", "--rtt"),
            ("--m 1000 --q 1kB", "--d"),
            ("--m 1000 --reaction 20ms --d 2s", "--rate"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
