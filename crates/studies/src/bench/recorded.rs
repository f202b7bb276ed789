//! Paths whose capacity, round trip and loss over time are recorded: from a folder, or of the
//! [`synthetic`](super::synthetic) set.

use core::time::Duration;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_core::link::{DropTailConfig, LossConfig, QueueConfig, Steps};
use tidegate_core::units::{Bytes, Rate, Time};
use tidegate_sim::scenario::recorded_path::{RecordedError, RecordedPath, variation};
use tidegate_sim::scenario::{LinkPlan, RatePlan, Scenario};

/// A path with its name and kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NamedPath {
    pub(super) name: String,
    /// Paths of a kind share rows of the table.
    pub(super) kind: String,
    pub(super) path: RecordedPath,
}

/// A folder without usable recordings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    /// The folder or a file cannot be read.
    #[error("cannot read {}: {cause}; name a folder of CSV files", path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    /// No file has a name that ends with `.csv`.
    #[error(
        "{} has no file whose name ends with .csv, nor has a folder in it: name the folder of the \
         recordings, and unpack them",
        folder.display()
    )]
    NoFiles { folder: PathBuf },
    /// A file is malformed.
    #[error("{}: {cause}", file.display())]
    Malformed { file: PathBuf, cause: RecordedError },
    /// A recording is too short to be measured.
    #[error(
        "{}: the recording lasts {length:?}; the first {SETTLE:?} are not measured: give at least \
         {SHORTEST:?}",
        file.display()
    )]
    Short { file: PathBuf, length: Duration },
    /// The part of a recording that is played has no capacity.
    #[error(
        "{}: mbps is 0 in the first {LONGEST:?}, so nothing can be measured: remove the file, or its \
         beginning",
        file.display()
    )]
    Dead { file: PathBuf },
}

/// Recordings of a folder and of the folders in it, by kind and name.
///
/// # Errors
/// The folder has none, or one is unusable.
pub(super) fn folder(folder: &Path) -> Result<Vec<NamedPath>, FolderError> {
    let mut paths = Vec::new();
    for entry in entries(folder)? {
        if entry.is_dir() {
            let kind = entry
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            for file in entries(&entry)?.iter().filter(|file| is_csv(file)) {
                paths.push(read(file, kind.clone())?);
            }
        } else if is_csv(&entry) {
            paths.push(read(&entry, None)?);
        }
    }
    if paths.is_empty() {
        return Err(FolderError::NoFiles {
            folder: folder.to_owned(),
        });
    }
    paths.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
    Ok(paths)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let read = || {
        fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect()
    };
    let entries: io::Result<Vec<PathBuf>> = read();
    let mut entries = entries.map_err(|cause| FolderError::Unreadable {
        path: folder.to_owned(),
        cause,
    })?;
    entries.sort();
    Ok(entries)
}

fn is_csv(file: &Path) -> bool {
    file.extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("csv"))
}

fn read(file: &Path, kind: Option<String>) -> Result<NamedPath, FolderError> {
    let text = fs::read_to_string(file).map_err(|cause| FolderError::Unreadable {
        path: file.to_owned(),
        cause,
    })?;
    let path = RecordedPath::parse(&text).map_err(|cause| FolderError::Malformed {
        file: file.to_owned(),
        cause,
    })?;
    if path.length() < SHORTEST {
        return Err(FolderError::Short {
            file: file.to_owned(),
            length: path.length(),
        });
    }
    if path
        .rates(LONGEST)
        .iter()
        .all(|(_, rate)| *rate == Rate::ZERO)
    {
        return Err(FolderError::Dead {
            file: file.to_owned(),
        });
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    Ok(NamedPath {
        name: stem.clone().into_owned(),
        kind: kind.unwrap_or_else(|| kind_of(&stem)),
        path,
    })
}

/// The name without the number at its end: `office-wifi` of `office-wifi-02`.
fn kind_of(stem: &str) -> String {
    let digits = |c: char| c.is_ascii_digit();
    let kind = stem.trim_end_matches(digits).trim_end_matches(['-', '_']);
    if kind.is_empty() { stem } else { kind }.to_owned()
}

/// `base` on this path, for its length, at most [`LONGEST`].
pub(super) fn scenario(base: &Scenario, path: &RecordedPath) -> Scenario {
    let end = path.length().min(LONGEST);
    let mut scenario = base.clone();
    scenario.duration = end;
    scenario.measure = (SETTLE, end);
    for flow in &mut scenario.flows {
        flow.stop = end;
    }
    for link in &mut scenario.links {
        if let Some(delays) = path.delays(end) {
            (link.delay, link.delay_variation) = variation(&delays);
        }
        if link.rate.is_some() {
            bottleneck(link, path, end);
        }
    }
    scenario
}

fn bottleneck(link: &mut LinkPlan, path: &RecordedPath, end: Duration) {
    let rates = path.mean_rates(RATE_STEP, end);
    let ends = rates.iter().skip(1).map(|(at, _)| *at).chain([end]);
    let bits = rates.iter().zip(ends);
    let bits = bits.map(|((at, rate), to)| rate.as_f64() * to.saturating_sub(*at).as_secs_f64());
    let mean = bits.sum::<f64>() / end.as_secs_f64();
    let queue = Bytes((mean / 8.0 * QUEUE.as_secs_f64()) as u64).max(LEAST_QUEUE);
    link.queue = Some(QueueConfig::DropTail(DropTailConfig::bytes(queue)));
    link.rate = Some(RatePlan::Steps(rates));
    let losses = path.losses(end).map(|losses| {
        let losses: Vec<_> = losses
            .iter()
            .map(|(at, p)| (Time::ZERO + *at, *p))
            .collect();
        Steps::new(&losses)
    });
    if let Some(Ok(losses)) = losses {
        link.loss = LossConfig::Steps(losses);
    }
}

/// Played part of a recording.
const LONGEST: Duration = Duration::from_secs(90);
/// Start, which is not measured.
const SETTLE: Duration = Duration::from_secs(5);
/// Shortest recording with a measurable part.
const SHORTEST: Duration = Duration::from_secs(10);
/// Capacities at shorter intervals are averaged: those measured within 15 ms are independent of each
/// other in the recordings, so they are the error of the measurement rather than of the path.
const RATE_STEP: Duration = Duration::from_millis(200);
/// Queue at the mean rate.
const QUEUE: Duration = Duration::from_millis(300);
/// A router has at least this.
const LEAST_QUEUE: Bytes = Bytes(64_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_names_without_number() {
        let kinds = [
            ("office-wifi-02", "office-wifi"),
            ("lte_3", "lte"),
            ("wifi5", "wifi"),
            ("17", "17"),
            ("a-b", "a-b"),
        ];
        for (stem, kind) in kinds {
            assert_eq!(kind_of(stem), kind);
        }
    }

    #[test]
    fn a_path_becomes_the_bottleneck() {
        let text = "t_s,mbps,rtt_ms,loss\n0,8,20,0\n0.1,4,60,0\n0.2,2,40,0.5\n12,9,9,0\n";
        let path = RecordedPath::parse(text).unwrap();
        let file = include_str!("../../../../scenarios/bench/recorded.toml");
        let base = Scenario::parse("recorded.toml", file, &|_| Err(String::new())).unwrap();
        let scenario = scenario(&base, &path);
        let end = Duration::from_secs(12);
        assert_eq!((scenario.duration, scenario.measure), (end, (SETTLE, end)));
        let ms = Duration::from_millis;
        let [up, down] = &scenario.links[..] else {
            panic!("two links");
        };
        let rates = vec![(ms(0), Rate::kbps(6_000)), (ms(200), Rate::kbps(2_000))];
        assert_eq!(up.rate, Some(RatePlan::Steps(rates)));
        for link in [up, down] {
            let above = link.delay_variation.as_ref().unwrap();
            assert_eq!(
                (link.delay, above.at(Time::from_millis(150))),
                (ms(10), ms(20))
            );
        }
        assert!((up.loss.mean() - 0.0).abs() < 1e-12 && down.loss == LossConfig::NONE);
        // 2.067 Mb/s for 300 ms.
        let queue = DropTailConfig::bytes(Bytes(77_500));
        assert_eq!(up.queue, Some(QueueConfig::DropTail(queue)));
    }

    #[test]
    fn errors_name_the_file_and_the_fix() {
        let folder = std::env::temp_dir().join(format!("tidegate-recorded-{}", std::process::id()));
        let inner = folder.join("rail");
        fs::create_dir_all(&inner).unwrap();
        let fails = || super::folder(&folder).unwrap_err().to_string();
        assert!(
            fails().ends_with("name the folder of the recordings, and unpack them"),
            "{}",
            fails()
        );
        let file = inner.join("one.csv");
        let mut messages = Vec::new();
        for text in [
            "",
            "t_s,mbps\n0,1\n3,1\n",
            "t_s,mbps\n0,0\n95,1\n96,1\n",
            "t_s,mbps\n0,1\n\n2,x\n",
        ] {
            fs::write(&file, text).unwrap();
            messages.push(fails());
        }
        fs::write(&file, "t_s,mbps\n0,1\n60,1\n").unwrap();
        fs::write(folder.join("lte-3.csv"), "t_s,mbps\n0,1\n60,1\n").unwrap();
        fs::write(folder.join("notes.txt"), "not read").unwrap();
        let paths = super::folder(&folder).unwrap();
        let gone = folder.join("gone");
        let missing = super::folder(&gone).unwrap_err().to_string();
        fs::remove_dir_all(&folder).unwrap();
        let names: Vec<_> = paths
            .iter()
            .map(|path| (&*path.kind, &*path.name))
            .collect();
        assert_eq!(names, [("lte", "lte-3"), ("rail", "one")]);
        let place = file.display();
        assert!(messages[0].starts_with(&format!("{place}: the file is empty: give")));
        let short = "the recording lasts 3s; the first 5s are not measured: give at least 10s";
        assert_eq!(messages[1], format!("{place}: {short}"));
        assert!(
            messages[2].contains("mbps is 0 in the first 90s"),
            "{}",
            messages[2]
        );
        assert!(
            messages[3].contains("line 4: mbps is `x`: give a number"),
            "{}",
            messages[3]
        );
        assert!(
            missing.starts_with(&format!("cannot read {}: ", gone.display())),
            "{missing}"
        );
    }
}
