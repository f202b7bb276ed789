//! Options of the congestion injector: `--cut` and `--gap`.

use std::time::Duration;

use crate::papers::OutageSchedule;
use anyhow::{Context as _, Result, ensure};
use tidegate_core::quantity;

/// Times and lengths of the outages.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(super) struct BurstArgs {
    /// Length of each cut of the path, such as "3s,3s,3s"
    #[arg(long = "cut", value_name = "TIME,...", value_delimiter = ',', value_parser = quantity::duration)]
    pub(super) cuts: Vec<Duration>,
    /// Time before each cut, from the start of the video or the end of the previous cut [default:
    /// 10s]
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    pub(super) gap: Option<Duration>,
}

impl BurstArgs {
    /// Outages in a video of this length. Lengths or gap default to those of the first paper. None
    /// if neither is given. Three outages of length `longest` have to start within the video as
    /// well.
    ///
    /// # Errors
    /// Names the option that is invalid, and the fix.
    pub(super) fn read(
        &self,
        longest: Option<Duration>,
        video: Duration,
    ) -> Result<Option<OutageSchedule>> {
        if *self == Self::default() {
            return Ok(None);
        }
        let published = OutageSchedule::published();
        let lengths = if self.cuts.is_empty() {
            published.lengths().to_vec()
        } else {
            self.cuts.clone()
        };
        let gap = self.gap.unwrap_or(published.gap());
        let bursts = OutageSchedule::new(lengths, gap).context("--cut and --gap")?;
        let begins = |bursts: &OutageSchedule| bursts.cuts().last().map(|(at, _)| at);
        let alike = longest.map(|longest| OutageSchedule::alike(longest, gap));
        let alike = alike.as_ref().and_then(begins);
        let last = alike.max(begins(&bursts)).unwrap_or_default();
        ensure!(
            last < video,
            "the last cut begins after {} s, but the video ends after {} s: use fewer or shorter \
             cuts in --cut, or a shorter --gap",
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

    fn read(line: &str) -> Result<Option<OutageSchedule>, String> {
        let words = ["run"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|e| e.to_string())?;
        let bursts = line.bursts.read(None, Duration::from_secs(75));
        bursts.map_err(|e| tidegate_console::describe(&e))
    }

    #[test]
    fn longest_outages_start_within_the_video() {
        let s = Duration::from_secs;
        let with = |gap: u64| {
            let bursts = BurstArgs {
                gap: Some(s(gap)),
                ..BurstArgs::default()
            };
            bursts.read(Some(s(5)), s(75)).is_ok()
        };
        // With a gap of 22 s the last outage begins after 72 s with lengths of 3 s, after 76 s with
        // 5 s.
        assert!(with(21) && !with(22));
    }

    #[test]
    fn defaults_are_the_published_outages() {
        let s = Duration::from_secs;
        assert_eq!(read(""), Ok(None));
        let cuts = |line: &str| read(line).unwrap().unwrap().cuts().collect::<Vec<_>>();
        assert_eq!(cuts("--cut 1s,2s"), [(s(10), s(1)), (s(21), s(2))]);
        let close = [(s(4), s(3)), (s(11), s(3)), (s(18), s(3))];
        assert_eq!(cuts("--gap 4s"), close);
        assert_eq!(cuts("--cut 5s --gap 70s"), [(s(70), s(5))]);
    }

    #[test]
    fn invalid_options_are_rejected_with_a_fix() {
        for (line, words) in [
            ("--cut 0s", "cut of 0 s out of range: use 0.1 to 120 s"),
            ("--cut 3s,121s", "cut of 121 s"),
            ("--gap 0s", "0 s before each cut"),
            (
                "--cut 1s,1s --gap 40s",
                "begins after 81 s, but the video ends after 75 s",
            ),
            ("--cut soon", "soon"),
        ] {
            let why = read(line).unwrap_err();
            assert!(why.contains(words), "{line}: {why}");
        }
    }
}
