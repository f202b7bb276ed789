//! Number formatting, and a summary of a run in sentences.

use tidegate_record::metrics::{FlowSummary, on_time_of_savable};
use tidegate_record::{ExpectationResult, FlowInfo, Run, Summary, World};

use super::class::{Class, classes};

/// The most important results of a run, as sentences.
pub fn headline(run: &Run, summary: &Summary) -> Vec<String> {
    let mut sentences = Vec::new();
    let classes = classes(summary);
    if let Some((own, others)) = subject(run, &classes) {
        sentences.extend(punctuality(run, own, &others));
        sentences.extend(pictures(own, &others));
        if sentences.is_empty() {
            sentences.extend(throughput(own, &others));
        }
    }
    if sentences.is_empty() {
        sentences.push("This run recorded nothing that could be judged.".to_owned());
    }
    sentences.extend(expectations(summary));
    sentences
}

/// The main flow of the run and the flows that it is compared with. A video flow has priority.
fn subject<'a>(run: &Run, classes: &'a [Class<'a>]) -> Option<(&'a Class<'a>, Vec<&'a Class<'a>>)> {
    let info = |class: &Class<'_>| run.flow(&class.members[0].name).map(|flow| &flow.info);
    let is_baseline = |class: &Class<'_>| info(class).is_some_and(|info| info.baseline);
    let is_video = |class: &Class<'_>| info(class).is_some_and(FlowInfo::has_video);
    let mut own = classes.iter().filter(|class| !is_baseline(class));
    let video = own.clone().find(|class| is_video(class));
    let own = video.or_else(|| own.next()).or(classes.first())?;
    let others = classes.iter().filter(|class| class.class() != own.class());
    Some((own, others.collect()))
}

/// Share of the captured frames that were on time, in percent.
pub fn on_time(flow: &FlowSummary) -> Option<f64> {
    let made = flow.frames.made.filter(|made| *made > 0)?;
    Some(100.0 * flow.frames.on_time? as f64 / made as f64)
}

/// Subject of a sentence: `call`, or `the 5 flows of call`.
fn subject_name(class: &Class<'_>) -> String {
    match class.members.len() {
        1 => class.class().to_owned(),
        n => format!("the {} flows of {}", count(n as u64), class.class()),
    }
}

fn punctuality(run: &Run, own: &Class<'_>, others: &[&Class<'_>]) -> Vec<String> {
    let bound = run
        .flow(&own.members[0].name)
        .and_then(|flow| flow.info.delay_bound);
    let made = own.sum(|flow| flow.frames.made);
    let (Some(share), Some(bound), Some(made)) = (own.mean(on_time), bound, made) else {
        return Vec::new();
    };
    let mut sentence = format!(
        "{} delivered {} of {} {} frames within {} ms",
        subject_name(own),
        percent(share),
        if own.members.len() == 1 {
            "its"
        } else {
            "their"
        },
        count(made),
        bound.as_millis()
    );
    sentence += &compared(others, |class| class.mean(on_time).map(percent));
    let mut sentences = vec![capital(&sentence) + "."];
    let of_savable = |flow: &FlowSummary| on_time_of_savable(&run.manifest, run.flow(&flow.name)?);
    let savable = own.sum(|flow| flow.frames.savable);
    if let (Some(savable), Some(share)) = (savable, own.mean(of_savable)) {
        sentences.push(format!(
            "Of the {} savable frames, {} were on time.",
            count(savable),
            percent(100.0 * share)
        ));
    }
    sentences
}

fn pictures(own: &Class<'_>, others: &[&Class<'_>]) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(psnr) = own.mean(|flow| flow.psnr_y_db) {
        let others = compared(others, |class| {
            let psnr = class.mean(|flow| flow.psnr_y_db);
            psnr.map(|db| format!("{db:.1} dB"))
        });
        sentences.push(format!(
            "Displayed frames had {psnr:.1} dB on average{others}."
        ));
    }
    if let Some(freezes) = own.sum(|flow| flow.freezes) {
        let picture = match own.members.len() {
            1 => "The picture",
            _ => "The pictures",
        };
        let times = match freezes {
            0 => "never froze".to_owned(),
            1 => "froze once".to_owned(),
            n => format!("froze {} times", count(n)),
        };
        let others = compared(others, |class| class.sum(|flow| flow.freezes).map(count));
        sentences.push(format!("{picture} {times}{others}."));
    }
    sentences
}

fn throughput(own: &Class<'_>, others: &[&Class<'_>]) -> Vec<String> {
    let mean = |class: &Class<'_>| {
        let text = rate(class.mean(|flow| flow.rate_bps)?);
        Some(match class.members.len() {
            1 => text,
            _ => format!("{text} each"),
        })
    };
    let Some(own_rate) = mean(own) else {
        return Vec::new();
    };
    let others = compared(others, mean);
    let sentence = format!("{} sent {own_rate} on average{others}.", subject_name(own));
    vec![capital(&sentence)]
}

/// Capitalises the first letter of a sentence, unless it starts with a name.
fn capital(sentence: &str) -> String {
    match sentence.strip_prefix("the ") {
        Some(rest) => format!("The {rest}"),
        None => sentence.to_owned(),
    }
}

/// ` (tfrc: 3, gcc: 5)`, or nothing.
fn compared(others: &[&Class<'_>], value: impl Fn(&Class<'_>) -> Option<String>) -> String {
    let values = others.iter();
    let values = values.filter_map(|class| Some(format!("{}: {}", class.class(), value(class)?)));
    let values: Vec<String> = values.collect();
    if values.is_empty() {
        return String::new();
    }
    format!(" ({})", values.join(", "))
}

/// Verdict over all expectations as a sentence; `None` without expectations.
pub fn expectations(summary: &Summary) -> Option<String> {
    let all = summary.expect.len();
    let failed = summary
        .expect
        .iter()
        .filter(|verdict| !verdict.holds)
        .count();
    let verdict_text = match (all, failed) {
        (0, _) => return None,
        (1, 0) => "The expectation holds.".to_owned(),
        (1, _) => "The expectation does not hold.".to_owned(),
        (_, 0) => format!("All {all} expectations hold."),
        _ => format!("{failed} of {all} expectations do not hold."),
    };
    let late = "The machine was too busy, so the result is not valid.";
    Some(match summary.all_held() {
        ExpectationResult::Unsure => format!("{verdict_text} {late}"),
        ExpectationResult::Yes | ExpectationResult::No => verdict_text,
    })
}

/// Description of the environment of a run.
pub fn world(world: World) -> &'static str {
    match world {
        World::Lab => "emulated on the real network stack",
        World::Live => "live",
        World::Sim => "simulated",
    }
}

/// Formats with thousands separators.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats with one decimal; only a share of exactly one gives 100 %.
pub fn percent(share: f64) -> String {
    let shown = if share < 100.0 {
        share.min(99.9)
    } else {
        share
    };
    format!("{shown:.1} %")
}

/// Formats a rate in b/s, with a prefix.
pub fn rate(bps: f64) -> String {
    tidegate_core::units::Rate::from_f64(bps).to_string()
}

/// Formats milliseconds, large values in seconds.
pub fn millis(ms: f64) -> String {
    if ms >= 1_000.0 {
        format!("{:.1} s", ms / 1e3)
    } else if ms >= 10.0 {
        format!("{ms:.0} ms")
    } else if ms >= 0.1 {
        format!("{ms:.1} ms")
    } else {
        format!("{:.0} µs", 1e3 * ms)
    }
}

/// Formats seconds, large values in minutes.
pub fn duration(seconds: f64) -> String {
    if seconds >= 180.0 {
        format!("{:.1} min", seconds / 60.0)
    } else {
        let text = format!("{seconds:.1}");
        format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
    }
}

/// Formats the measured value of an expectation with enough digits to compare.
pub fn measured(value: f64) -> String {
    if value.fract().abs() < 1e-9 && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let decimals = if value.abs() >= 1_000.0 {
        0
    } else if value.abs() >= 10.0 {
        2
    } else {
        4
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(percent(99.97), "99.9 %");
        assert_eq!(percent(100.0), "100.0 %");
        assert_eq!(duration(60.0), "60 s");
        assert_eq!(duration(12.34), "12.3 s");
        assert_eq!(duration(600.0), "10.0 min");
        assert_eq!(measured(0.991_234), "0.9912");
        assert_eq!(measured(3.0), "3");
    }
}
