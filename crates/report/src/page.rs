//! HTML of the report.

use core::fmt::Write as _;
use core::time::Duration;

use tidegate_core::units::Time;
use tidegate_sim::run::{ExpectationResult, Run, Summary};

use super::chart::Form;
use super::figures::FIGURES;
use super::svg::escape;
use super::view::View;
use super::{summary_text, table, theme};

/// One run, prepared for the page.
#[derive(Debug)]
pub(super) struct Chapter<'a> {
    pub(super) view: View<'a>,
    pub(super) summary: Summary,
}

/// HTML of the whole page.
pub(super) fn page(chapters: &[Chapter<'_>]) -> String {
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
        chapter_of(&mut html, i, chapter, chapters.len() > 1);
    }
    html.push_str(include_str!("meaning.html"));
    html.push_str("</main></body></html>\n");
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

fn chapter_of(html: &mut String, index: usize, chapter: &Chapter<'_>, many: bool) {
    let Chapter { view, summary } = chapter;
    let run = view.run;
    let heading = if many { "h2" } else { "h1" };
    let number = if many {
        format!("{}. ", index + 1)
    } else {
        String::new()
    };
    let _ = write!(
        html,
        "<section id=\"run-{}\"><header><{heading}>{number}{}</{heading}><p class=\"facts\">{}</p>\
         </header>",
        index + 1,
        escape(&run.manifest.scenario),
        escape(&facts(run, view.span.1))
    );
    html.push_str("<div class=\"headline\">");
    for sentence in summary_text::headline(run, summary) {
        let _ = write!(html, "<p>{}</p>", escape(&sentence));
    }
    html.push_str("</div>");
    notes(html, run);
    html.push_str(&table::flows(view, summary));
    expectations(html, summary);
    for figure in &FIGURES {
        let _ = write!(html, "<figure><h3>{}</h3>", figure.title);
        let mut drawn = false;
        for (form, class) in [(Form::Wide, "wide"), (Form::Narrow, "narrow")] {
            if let Some(chart) = figure.draw(view, &format!("r{index}"), form) {
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
        let _ = write!(html, "<figcaption{class}>{text}</figcaption></figure>");
    }
    html.push_str(&table::links(summary));
    if let Some(text) = &run.manifest.scenario_text {
        let _ = write!(
            html,
            "<details><summary>The scenario</summary><pre>{}</pre></details>",
            escape(text)
        );
    }
    html.push_str("</section>");
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

fn notes(html: &mut String, run: &Run) {
    let planned = run.manifest.duration.as_secs_f64();
    let end = run.end().as_secs_f64();
    // A second allows for packets in flight at the end.
    let cut =
        (end > 0.0 && planned - end > 1.0 && run.manifest.duration != Duration::MAX).then(|| {
            let (planned, end) = (summary_text::duration(planned), summary_text::duration(end));
            format!("The planned duration is {planned}, but its records end after {end}.")
        });
    let notes: Vec<&String> = run
        .manifest
        .notes
        .iter()
        .chain(&run.notes)
        .chain(&cut)
        .collect();
    if notes.is_empty() {
        return;
    }
    html.push_str("<aside><h3>Notes on validity</h3><ul>");
    for note in notes {
        let _ = write!(html, "<li>{}</li>", escape(note));
    }
    html.push_str("</ul></aside>");
}

fn expectations(html: &mut String, summary: &Summary) {
    if summary.expect.is_empty() {
        return;
    }
    html.push_str("<h3>Expectations</h3><ul class=\"expect\">");
    for verdict in &summary.expect {
        let (class, sign, word) = match summary.held(verdict.holds) {
            ExpectationResult::Yes => ("holds", '✓', "holds"),
            ExpectationResult::Unsure => ("unsure", '?', "unsure: the emulator was late"),
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
