//! The report: a self-contained HTML page, and its figures as files.
//!
//! The report reads only run folders, so it has the same form for simulated, emulated and live
//! runs. The page loads nothing from the network, and is complete without its script, which shows the
//! values under the pointer. It follows the browser's light
//! or dark preference, and contains each figure twice, for wide screens and for phones.

pub mod chart;
pub mod claims;
pub mod class;
mod figures;
mod files;
mod page;
mod pictures;
pub mod plot;
pub mod png;
pub mod scale;
pub mod series;
mod states;
pub mod summary_text;
pub mod svg;
mod table;
#[cfg(test)]
mod testing;
pub mod theme;
mod view;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_record::{Run, Summary, summarise};

use chart::Form;
use figures::{FIGURES, Figure};
use view::View;

/// Writes `report.html` and `figures/*.svg` and `*.png` to the folder `out`, which is created if
/// necessary.
///
/// Several runs share one page that starts with an overview; names of their figures then start with
/// the number of the run.
///
/// # Errors
/// If a file cannot be written, or a figure cannot be rendered.
pub fn write(runs: &[Run], out: &Path) -> Result<Written, ReportError> {
    let folder = out.join("figures");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError::Io { path, source }
    };
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    let mut figures = Vec::new();
    let mut chapters = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        let prefix = if runs.len() > 1 {
            format!("{}-", i + 1)
        } else {
            String::new()
        };
        let view = View::new(run);
        for figure in &FIGURES {
            let Some(svg) = standalone(figure, &view, i) else {
                continue;
            };
            let path = folder.join(format!("{prefix}{}.svg", figure.name));
            let pixels = path.with_extension("png");
            fs::write(&path, &svg).map_err(failed(&path))?;
            let png = png::render(&svg).map_err(|reason| ReportError::Draw {
                path: pixels.clone(),
                reason,
            })?;
            fs::write(&pixels, png).map_err(failed(&pixels))?;
            figures.extend([path, pixels]);
        }
        let summary = summary(run);
        chapters.push(page::Chapter { view, summary });
    }
    let page = out.join("report.html");
    fs::write(&page, page::page(&chapters, out)).map_err(failed(&page))?;
    Ok(Written { page, figures })
}

/// Files that [`write()`] wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The page.
    pub page: PathBuf,
    /// The figures, each as SVG and as PNG. Figures without data are left out.
    pub figures: Vec<PathBuf>,
}

/// Error of writing a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A figure cannot be rendered.
    #[error("cannot draw {path}: {reason}; the SVG beside it can be used instead")]
    Draw {
        /// The file that was not written.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Error of the operating system.
    #[error("cannot write {path}: {source}; choose a folder where you may write")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Metrics in the run folder; computed here for a run without a summary.
fn summary(run: &Run) -> Summary {
    let own = run.summary.clone();
    own.unwrap_or_else(|| summarise(run, &[]))
}

fn standalone(figure: &Figure, view: &View<'_>, index: usize) -> Option<String> {
    let chart = figure.draw(view, &format!("r{index}"), Form::Wide)?;
    let (svg, height) = chart.finish();
    let title = format!("{}: {}", view.run.manifest.scenario, figure.title);
    Some(svg.into_file(height, &theme::file_style(), &title))
}

#[cfg(test)]
mod tests;
