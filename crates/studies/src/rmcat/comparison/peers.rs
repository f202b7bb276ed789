//! Results of other programs, for comparison.

use std::fs;
use std::path::{Path, PathBuf};

use crate::rmcat::{CASES, Case, Outcome, is_media};
use anyhow::{Result, anyhow, bail};

use super::{Entry, ScoredRun};

/// Reads results of other programs for `cases`: the file `path`, or all files of the folder `path`
/// that end in `.json`. Results for other scenarios are ignored.
///
/// # Errors
/// A file is unreadable or invalid, or there is no result for any of the cases.
pub(super) fn read(path: &Path, cases: &[&'static Case]) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut ignored: Vec<String> = Vec::new();
    for path in result_files(path)? {
        let name = || path.display().to_string();
        let text = fs::read_to_string(&path)
            .map_err(|error| anyhow!("cannot read {}: {error}; check the path", name()))?;
        let outcome: Outcome = serde_json::from_str(&text).map_err(|error| {
            anyhow!(
                "{}: not a result of a peer ({error}); use a file written by `make peers`",
                name()
            )
        })?;
        let fits = |case: &&&Case| case.scenario_name() == outcome.scenario;
        let Some(case) = cases.iter().find(fits) else {
            ignored.push(outcome.scenario);
            continue;
        };
        has_all_flows(case, &outcome, &path)?;
        let control = outcome.control.clone();
        let run = ScoredRun::new(case, outcome)?;
        let same = |entry: &&mut Entry| entry.case.id == case.id && entry.control == control;
        match entries.iter_mut().find(same) {
            Some(entry) => entry.runs.push(run),
            None => entries.push(Entry {
                case,
                control,
                peer: true,
                runs: vec![run],
            }),
        }
    }
    if entries.is_empty() {
        ignored.sort();
        ignored.dedup();
        return Err(nothing(path, cases, &ignored));
    }
    Ok(entries)
}

/// Checks that the result has all flows under test of the case.
fn has_all_flows(case: &Case, outcome: &Outcome, path: &Path) -> Result<()> {
    for plan in &case.scenario()?.flows {
        for name in (1..=plan.count).map(|number| plan.name_of(number)) {
            if is_media(&name) && outcome.flow(&name).is_none() {
                bail!(
                    "{}: flow \"{name}\" of case {} is missing; run the peer on the scenario \
                     as it is in scenarios/rmcat",
                    path.display(),
                    case.id
                );
            }
        }
    }
    Ok(())
}

/// Error: there are no results for the cases, only for other scenarios.
fn nothing(path: &Path, cases: &[&'static Case], others: &[String]) -> anyhow::Error {
    let found = match others.len() {
        0 => "has no results".to_owned(),
        _ => format!("has results for {}", others.join(", ")),
    };
    anyhow!(
        "{} {found}, but none for the selected cases; run make peers \
         SCENARIOS=scenarios/rmcat/{}.toml",
        path.display(),
        cases.first().unwrap_or(&&CASES[0]).scenario_name(),
    )
}

/// The file `path`, or the files of the folder that end in `.json`, sorted by name.
fn result_files(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let files = fs::read_dir(path).and_then(|files| {
        let paths = files.map(|file| Ok(file?.path()));
        paths.collect::<Result<Vec<_>, std::io::Error>>()
    });
    let mut paths = files.map_err(|error| {
        anyhow!(
            "cannot read {}: {error}; give the folder or a file that `make peers` wrote",
            path.display()
        )
    })?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::rmcat::comparison::case;

    /// A result of case 5.1 with required fields only: half of the usable rate, which at 2.5 Mb/s
    /// is 1.596 Mb/s of video and audio.
    pub(in crate::rmcat) const PEER: &str = r#"{"scenario":"rmcat-5-1","control":"half","flows":[{"name":"media",
        "bins_ms":20000,"rate_bps":[500000,500000,798000,300000,500000],
        "delay_ms":[60,60,60,null,400],"loss":[0,0,0.5,null,0]}]}"#;

    #[test]
    fn results_that_do_not_match_the_cases_are_rejected() {
        let folder = std::env::temp_dir().join(format!("tidegate-peers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("one.json");
        fs::write(&file, PEER).unwrap();
        let one = read(&file, &[case("5.1").unwrap()]);
        let other = read(&folder, &[case("5.2").unwrap()]).unwrap_err();
        fs::write(&file, PEER.replace("\"media\"", "\"call\"")).unwrap();
        let renamed = read(&file, &[case("5.1").unwrap()]).unwrap_err();
        fs::remove_dir_all(&folder).unwrap();
        let none = read(&folder, &[case("5.1").unwrap()]).unwrap_err();
        assert_eq!(one.unwrap().len(), 1);
        let ends = |error: anyhow::Error, end: &str| {
            let error = error.to_string();
            assert!(error.ends_with(end), "{error}");
        };
        ends(
            other,
            "has results for rmcat-5-1, but none for the selected cases; run make peers \
             SCENARIOS=scenarios/rmcat/rmcat-5-2.toml",
        );
        ends(
            renamed,
            "flow \"media\" of case 5.1 is missing; run the peer on the scenario as it is in \
             scenarios/rmcat",
        );
        ends(none, "give the folder or a file that `make peers` wrote");
    }
}
