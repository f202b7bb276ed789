//! Results of other programs, which stand beside ours.

use std::fs;
use std::path::{Path, PathBuf};

use crate::rmcat::{CASES, Case, Outcome, is_media};
use anyhow::{Result, anyhow, bail};

use super::{Entry, Played};

/// What other programs made of `cases`: the file `path`, or every file in the folder `path` that
/// ends in `.json` and is about one of them. Files about other scenarios are passed over.
///
/// # Errors
/// When there is nothing to read, or nothing about any of the cases.
pub(super) fn read(path: &Path, cases: &[&'static Case]) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut passed_over: Vec<String> = Vec::new();
    for path in result_files(path)? {
        let name = || path.display().to_string();
        let text = fs::read_to_string(&path)
            .map_err(|error| anyhow!("cannot read {}: {error}; check the path", name()))?;
        let outcome: Outcome = serde_json::from_str(&text).map_err(|error| {
            anyhow!(
                "{}: this is no result of a peer ({error}); give what `make peers` wrote",
                name()
            )
        })?;
        let fits = |case: &&&Case| case.scenario_name() == outcome.scenario;
        let Some(case) = cases.iter().find(fits) else {
            passed_over.push(outcome.scenario);
            continue;
        };
        has_all_flows(case, &outcome, &path)?;
        let control = outcome.control.clone();
        let run = Played::new(case, outcome)?;
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
        passed_over.sort();
        passed_over.dedup();
        return Err(nothing(path, cases, &passed_over));
    }
    Ok(entries)
}

/// Sees that `path` has all flows of the case that are under test.
fn has_all_flows(case: &Case, outcome: &Outcome, path: &Path) -> Result<()> {
    for plan in &case.scenario()?.flows {
        for name in (1..=plan.count).map(|number| plan.name_of(number)) {
            if is_media(&name) && outcome.flow(&name).is_none() {
                bail!(
                    "{}: it has no flow \"{name}\", and case {} has; play the peer on the scenario \
                     as it is in scenarios/rmcat",
                    path.display(),
                    case.id
                );
            }
        }
    }
    Ok(())
}

/// That there is nothing about the cases, but about other scenarios.
fn nothing(path: &Path, cases: &[&'static Case], others: &[String]) -> anyhow::Error {
    let found = match others.len() {
        0 => "holds no results".to_owned(),
        _ => format!("is about {}", others.join(", ")),
    };
    anyhow!(
        "{} {found}, and nothing of the cases that are played; make some with make peers \
         SCENARIOS=scenarios/rmcat/{}.toml",
        path.display(),
        cases.first().unwrap_or(&&CASES[0]).scenario_name(),
    )
}

/// The file `path`, or those in the folder that end in `.json`, in the order of their names.
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

    /// What a program that knows only the least would write of case 5.1: half of what could be used,
    /// which at 2.5 Mb/s is 1.596 Mb/s of video and audio.
    pub(in crate::rmcat) const PEER: &str = r#"{"scenario":"rmcat-5-1","control":"half","flows":[{"name":"media",
        "bins_ms":20000,"rate_bps":[500000,500000,798000,300000,500000],
        "delay_ms":[60,60,60,null,400],"loss":[0,0,0.5,null,0]}]}"#;

    #[test]
    fn results_that_do_not_fit_are_refused() {
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
            "is about rmcat-5-1, and nothing of the cases that are played; make some with \
             make peers SCENARIOS=scenarios/rmcat/rmcat-5-2.toml",
        );
        ends(
            renamed,
            "it has no flow \"media\", and case 5.1 has; play the peer on the scenario as it is in \
             scenarios/rmcat",
        );
        ends(none, "give the folder or a file that `make peers` wrote");
    }
}
