//! How the bursts of the congestion injector are written: `--cut` and `--gap`.

use std::time::Duration;

use crate::papers::Bursts;
use anyhow::{Context as _, Result, ensure};
use tidegate_sim::scenario::quantity;

/// When the path is cut, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(super) struct BurstArgs {
    /// How long the path is cut, cut by cut, as "3s,3s,3s"
    #[arg(long = "cut", value_name = "TIME,...", value_delimiter = ',', value_parser = quantity::duration)]
    pub(super) cuts: Vec<Duration>,
    /// Time before each cut, from the start of the video or the end of the cut before; 10s unless told
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    pub(super) gap: Option<Duration>,
}

impl BurstArgs {
    /// What is asked for in a video of such a length; those of the first paper where nothing is said
    /// of the lengths, or of the gap. None if nothing is said at all. Three cuts that are as long as
    /// the `longest` have to fit in as well.
    ///
    /// # Errors
    /// Names the option that makes no sense, and the mend.
    pub(super) fn read(
        &self,
        longest: Option<Duration>,
        video: Duration,
    ) -> Result<Option<Bursts>> {
        if *self == Self::default() {
            return Ok(None);
        }
        let published = Bursts::published();
        let lengths = if self.cuts.is_empty() {
            published.lengths().to_vec()
        } else {
            self.cuts.clone()
        };
        let gap = self.gap.unwrap_or(published.gap());
        let bursts = Bursts::new(lengths, gap).context("--cut and --gap")?;
        let begins = |bursts: &Bursts| bursts.cuts().last().map(|(at, _)| at);
        let alike = longest.map(|longest| Bursts::alike(longest, gap));
        let alike = alike.as_ref().and_then(begins);
        let last = alike.max(begins(&bursts)).unwrap_or_default();
        ensure!(
            last < video,
            "the last cut would begin after {} s, and the video is over after {} s: give fewer or \
             shorter ones to --cut, or a shorter --gap",
            last.as_secs_f64(),
            video.as_secs_f64()
        );
        Ok(Some(bursts))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bursts: BurstArgs,
    }

    fn read(line: &str) -> Result<Option<Bursts>, String> {
        let words = ["run"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|e| e.to_string())?;
        let bursts = line.bursts.read(None, Duration::from_secs(75));
        bursts.map_err(|e| tidegate_console::describe(&e))
    }

    #[test]
    fn the_longest_cuts_fit_in() {
        let s = Duration::from_secs;
        let with = |gap: u64| {
            let bursts = BurstArgs {
                gap: Some(s(gap)),
                ..BurstArgs::default()
            };
            bursts.read(Some(s(5)), s(75)).is_ok()
        };
        // Those of 3 s would still fit: the last one begins after 72 s, of 5 s after 76.
        assert!(with(21) && !with(22));
    }

    #[test]
    fn what_is_not_told_is_as_published() {
        let s = Duration::from_secs;
        assert_eq!(read(""), Ok(None));
        let cuts = |line: &str| read(line).unwrap().unwrap().cuts().collect::<Vec<_>>();
        assert_eq!(cuts("--cut 1s,2s"), [(s(10), s(1)), (s(21), s(2))]);
        let close = [(s(4), s(3)), (s(11), s(3)), (s(18), s(3))];
        assert_eq!(cuts("--gap 4s"), close);
        assert_eq!(cuts("--cut 5s --gap 70s"), [(s(70), s(5))]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_mend() {
        for (line, words) in [
            ("--cut 0s", "a cut of 0 s: give each 0.1 to 120 s"),
            ("--cut 3s,121s", "a cut of 121 s"),
            ("--gap 0s", "0 s before each cut"),
            (
                "--cut 1s,1s --gap 40s",
                "begin after 81 s, and the video is over after 75 s",
            ),
            ("--cut soon", "soon"),
        ] {
            let why = read(line).unwrap_err();
            assert!(why.contains(words), "{line}: {why}");
        }
    }
}
