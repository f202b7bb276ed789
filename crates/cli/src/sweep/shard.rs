//! Parts of a sweep that run on several machines.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One of `count` parts of a sweep. Run r, counted over the points in order and the seeds of each,
/// belongs to the shard with the index r mod `count`, so the runs of a long point are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    /// From 0, less than `count`.
    index: usize,
    count: usize,
}

impl Shard {
    /// Whether the run with this number, from 0, is part of the shard.
    pub(super) fn has(self, run: usize) -> bool {
        run % self.count == self.index
    }

    /// Number of shards of the sweep.
    pub(super) fn count(self) -> usize {
        self.count
    }

    /// The shard of `count` that the run belongs to.
    pub(super) fn of(run: usize, count: usize) -> Self {
        Self {
            index: run % count,
            count,
        }
    }

    /// Folder of the shard within the folder of the sweep.
    pub(super) fn folder(self, sweep: &Path) -> PathBuf {
        sweep.join(format!("{PREFIX}{}-of-{}", self.index, self.count))
    }

    /// Whether a folder of this name contains a shard.
    pub(super) fn is_folder(name: &str) -> bool {
        let ends = name.strip_prefix(PREFIX);
        let ends = ends.and_then(|rest| rest.split_once("-of-"));
        ends.is_some_and(|(index, count)| format!("{index}/{count}").parse::<Self>().is_ok())
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((index, count)) if index < count && count <= LARGEST_COUNT => {
                Ok(Self { index, count })
            }
            Some((_, 1..=LARGEST_COUNT)) => Err(format!(
                "shards are counted from 0: the first of them is 0/N, the last is N-1/N; \
                 {text} is beyond"
            )),
            _ => Err(format!(
                "expected I/N, such as 0/4 for the first of four shards (N up to {LARGEST_COUNT})"
            )),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

const PREFIX: &str = "shard-";
/// More than the tasks of an array job of Slurm (`MaxArraySize`, 4,000,001 at most, 1,001 by default).
const LARGEST_COUNT: usize = 4_000_001;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_belongs_to_one_shard() {
        let shards: Vec<Shard> = (0..5).map(|i| format!("{i}/5").parse().unwrap()).collect();
        for run in 0..23 {
            let owners: Vec<&Shard> = shards.iter().filter(|shard| shard.has(run)).collect();
            assert_eq!(owners, [&Shard::of(run, 5)]);
        }
    }

    #[test]
    fn wrong_shards_are_refused_with_the_form() {
        for text in ["", "1", "a/3", "0/0", "-1/3", "1/4000002", "0/3/2"] {
            let error = text.parse::<Shard>().unwrap_err();
            assert!(error.contains("expected I/N"), "{text}: {error}");
        }
        let error = "4/4".parse::<Shard>().unwrap_err();
        assert!(error.contains("counted from 0"), "{error}");
    }

    #[test]
    fn folders_of_shards_are_known_by_their_names() {
        let shard: Shard = "3/12".parse().unwrap();
        let folder = shard.folder(Path::new("out"));
        assert_eq!(folder, Path::new("out/shard-3-of-12"));
        assert!(Shard::is_folder("shard-3-of-12"));
        for name in ["shard-12-of-12", "shard-3", "shard-a-of-b", "results.csv"] {
            assert!(!Shard::is_folder(name), "{name}");
        }
    }
}
