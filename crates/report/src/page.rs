//! HTML of the report.

use core::fmt::Write as _;
use core::time::Duration;
use std::path::Path;

use tidegate_core::units::Time;
use tidegate_record::{ExpectationResult, Run, Summary, Timing};

use super::chart::Form;
use super::figures::{FIGURES, Figure};
use super::svg::escape;
use super::view::View;
use super::{files, pictures, summary_text, table, theme};

/// One run, prepared for the page.
#[derive(Debug)]
pub(super) struct Chapter<'a> {
    pub(super) view: View<'a>,
    pub(super) summary: Summary,
}

/// HTML of the whole page, for a file in the folder `out`.
pub(super) fn page(chapters: &[Chapter<'_>], out: &Path) -> String {
    let title = match chapters {
        [one] => one.view.run.manifest.scenario.clone(),
        many => format!("{} runs", many.len()),
    };
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{} · Tidegate report</title><style>{}{}</style></head><body><main>",
        escape(&title),
        theme::PAGE,
        theme::page_style()
    );
    if chapters.is_empty() {
        html.push_str("<h1>Nothing to report</h1><p>No run was given.</p>");
    }
    if chapters.len() > 1 {
        overview(&mut html, chapters);
    }
    for (i, chapter) in chapters.iter().enumerate() {
        let heading = if chapters.len() > 1 {
            Heading::Numbered
        } else {
            Heading::Title
        };
        chapter_of(&mut html, i, chapter, heading, out);
    }
    html.push_str(include_str!("meaning.html"));
    html.push_str("</main><script>");
    html.push_str(include_str!("readout.js"));
    html.push_str("</script></body></html>\n");
    html
}

fn overview(html: &mut String, chapters: &[Chapter<'_>]) {
    let _ = write!(html, "<h1>{} runs</h1>", chapters.len());
    html.push_str("<p>Means over the runs of a scenario, and from the least to the most.</p>");
    let summaries: Vec<&Summary> = chapters.iter().map(|chapter| &chapter.summary).collect();
    html.push_str(&table::overview(&summaries));
    html.push_str("<nav><ol>");
    for (i, chapter) in chapters.iter().enumerate() {
        let manifest = &chapter.view.run.manifest;
        let seed = manifest.seed.map(|seed| format!(", seed {seed}"));
        let _ = write!(
            html,
            "<li><a href=\"#run-{}\">{}{}</a></li>",
            i + 1,
            escape(&manifest.scenario),
            seed.unwrap_or_default()
        );
    }
    html.push_str("</ol></nav>");
}

/// Heading of a chapter.
#[derive(Clone, Copy)]
enum Heading {
    /// Of the only chapter: the title of the page.
    Title,
    Numbered,
}

fn chapter_of(
    html: &mut String,
    index: usize,
    chapter: &Chapter<'_>,
    heading: Heading,
    out: &Path,
) {
    let Chapter { view, summary } = chapter;
    let run = view.run;
    let (heading, number) = match heading {
        Heading::Title => ("h1", String::new()),
        Heading::Numbered => ("h2", format!("{}. ", index + 1)),
    };
    let id = format!("run-{}", index + 1);
    let _ = write!(
        html,
        "<section id=\"{id}\"><header><{heading}>{number}{}</{heading}><p class=\"facts\">{}</p>\
         </header>",
        escape(&run.manifest.scenario),
        escape(&facts(run, view.span.1))
    );
    let mut sentences = summary_text::headline(run, summary).into_iter();
    let result = sentences.next().unwrap_or_default();
    let _ = write!(html, "<p class=\"result\">{}</p>", escape(&result));
    warnings(html, run, summary, &id);
    let files = files::list(run, out, &format!("{id}-files"));
    let pictures = pictures::compared(view, &format!("{id}-pictures"));
    let parts = [
        ("pictures", "Pictures", !pictures.is_empty()),
        ("charts", "Charts", true),
        ("tables", "Tables", true),
        ("expectations", "Expectations", !summary.expect.is_empty()),
        ("files", "Files", !files.is_empty()),
    ];
    let parts = parts.iter().filter(|(.., is_there)| *is_there);
    contents(html, &id, parts.map(|(part, name, _)| (*part, *name)));
    html.push_str(&pictures);
    let _ = write!(html, "<h3 id=\"{id}-charts\">Over time</h3>");
    for figure in &FIGURES {
        draw(html, figure, view, index);
    }
    results(html, &id, sentences);
    html.push_str(&table::flows(view, summary));
    expectations(html, summary, &id);
    html.push_str(&table::links(summary));
    conditions(html, run);
    html.push_str(&files);
    if let Some(text) = &run.manifest.scenario_text {
        let _ = write!(
            html,
            "<details><summary>The scenario</summary><pre>{}</pre></details>",
            escape(text)
        );
    }
    html.push_str("</section>");
}

fn results(html: &mut String, id: &str, sentences: impl Iterator<Item = String>) {
    let _ = write!(
        html,
        "<h3 id=\"{id}-tables\">Results</h3><ul class=\"results\">"
    );
    for sentence in sentences {
        let _ = write!(html, "<li>{}</li>", escape(&sentence));
    }
    html.push_str("</ul>");
}

/// Links to the parts of a run.
fn contents<'a>(html: &mut String, id: &str, parts: impl Iterator<Item = (&'a str, &'a str)>) {
    html.push_str("<nav class=\"contents\">");
    for (part, name) in parts {
        let _ = write!(html, "<a href=\"#{id}-{part}\">{name}</a> ");
    }
    html.push_str("</nav>");
}

fn draw(html: &mut String, figure: &Figure, view: &View<'_>, index: usize) {
    let _ = write!(html, "<figure><h4>{}</h4>", figure.title);
    let (mut drawn, mut wide) = (false, None);
    for (form, class) in [(Form::Wide, "wide"), (Form::Narrow, "narrow")] {
        if let Some(mut chart) = figure.draw(view, &format!("r{index}"), form) {
            let readout = chart.readout();
            if form == Form::Wide {
                wide = readout;
            }
            let (svg, height) = chart.finish();
            html.push_str(&svg.into_element(height, class, figure.title));
            drawn = true;
        }
    }
    let text = if drawn {
        figure.caption
    } else {
        figure.missing
    };
    let class = if drawn { "" } else { " class=\"missing\"" };
    let _ = write!(html, "<figcaption{class}>{text}</figcaption>");
    // One set of values serves both forms.
    if let Some(readout) = wide {
        html.push_str(&readout.data());
        html.push_str(&readout.table());
    }
    html.push_str("</figure>");
}

/// Line below the title.
fn facts(run: &Run, end: f64) -> String {
    let manifest = &run.manifest;
    let mut facts = vec![summary_text::world(manifest.world).to_owned()];
    if run.end() > Time::ZERO {
        facts.push(summary_text::duration(end));
    }
    facts.extend(manifest.seed.map(|seed| format!("seed {seed}")));
    facts.extend(manifest.started.clone());
    for (key, value) in manifest.host.iter().flatten() {
        facts.push(format!("{key} {value}"));
    }
    facts.push(manifest.tool.clone());
    facts.join(" · ")
}

/// Box with all that is wrong with the run or its results; nothing if nothing is wrong.
fn warnings(html: &mut String, run: &Run, summary: &Summary, id: &str) {
    let planned = run.manifest.duration.as_secs_f64();
    let end = run.end().as_secs_f64();
    // A second allows for packets in flight at the end.
    let cut =
        (end > 0.0 && planned - end > 1.0 && run.manifest.duration != Duration::MAX).then(|| {
            let (planned, end) = (summary_text::duration(planned), summary_text::duration(end));
            format!("The planned duration is {planned}, but its records end after {end}.")
        });
    let of_run = run.manifest.warnings().into_iter();
    let of_run = of_run.chain(run.notes.iter().cloned()).chain(cut);
    let mut items: Vec<String> = of_run.map(|warning| escape(&warning)).collect();
    if summary.expect.iter().any(|verdict| !verdict.holds) {
        let verdict = summary_text::expectations(summary).unwrap_or_default();
        let verdict = escape(&verdict);
        items.push(format!("<a href=\"#{id}-expectations\">{verdict}</a>"));
    }
    if items.is_empty() {
        return;
    }
    html.push_str("<aside><h3>Warnings</h3><ul>");
    for item in items {
        let _ = write!(html, "<li>{item}</li>");
    }
    html.push_str("</ul></aside>");
}

/// Facts about the measurement that are needed to read it, and are not faults.
fn conditions(html: &mut String, run: &Run) {
    let timely = run
        .manifest
        .timing
        .iter()
        .filter(|timing| timing.all_kept_up());
    let mut items: Vec<String> = timely.map(Timing::to_string).collect();
    if run.flows.iter().any(|flow| !flow.info.one_clock) {
        items.push(
            "Sender and receiver have separate clocks: delays are variations above the minimum."
                .to_owned(),
        );
    }
    if items.is_empty() {
        return;
    }
    html.push_str("<h3>Conditions</h3><ul class=\"results\">");
    for item in items {
        let _ = write!(html, "<li>{}</li>", escape(&item));
    }
    html.push_str("</ul>");
}

fn expectations(html: &mut String, summary: &Summary, id: &str) {
    if summary.expect.is_empty() {
        return;
    }
    let _ = write!(
        html,
        "<h3 id=\"{id}-expectations\">Expectations</h3><ul class=\"expect\">"
    );
    for verdict in &summary.expect {
        let (class, sign, word) = match summary.held(verdict.holds) {
            ExpectationResult::Yes => ("holds", '✓', "holds"),
            ExpectationResult::Unsure => ("unsure", '?', "unsure: the machine was too busy"),
            ExpectationResult::No => ("fails", '✗', "fails"),
        };
        let measured = verdict.measured.map(summary_text::measured);
        let measured = measured.map_or("not measured".to_owned(), |m| format!("measured {m}"));
        let _ = write!(
            html,
            "<li class=\"{class}\"><b>{sign} {word}</b> <code>{}</code> <span>{measured}</span></li>",
            escape(&verdict.text)
        );
    }
    html.push_str("</ul>");
}
