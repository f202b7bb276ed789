//! The program: verbs, and what they share.
//!
//! Each verb is a module with its arguments and a function `run`. `folder` puts what was played
//! into a run folder, `judge` looks at the pictures, `tidegate_report` draws.

// They panic where nobody reads: `progress::say` and `output` do not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod demo;
mod encoder_speed;
mod events;
mod lab;
mod live;
mod memory;
mod papers;
mod recv;
mod report_verb;
mod run_folder;
mod send;
mod sim;
mod sweep;
mod table;
mod tcp;
mod transcode;
mod video_quality;
mod video_source;

use std::env;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate_console::{describe, output, progress};
use tidegate_studies::papers::verb::{self as paper_verb, PapersArgs};

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let result = match Cli::parse_from(words(env::args_os())).verb {
        Verb::Demo(args) => demo::run(&args),
        Verb::Events(args) => events::run(&args),
        Verb::Lab(args) => lab::run(&args),
        Verb::Papers(args) => paper_verb::run(&args, &papers::Parts),
        Verb::Recv(args) => recv::run(&args),
        Verb::Report(args) => report_verb::run(&args),
        Verb::Send(args) => send::run(&args),
        Verb::Sim(args) => sim::run(&args),
        Verb::Transcode(args) => transcode::run(&args),
    };
    result.unwrap_or_else(|error| {
        // A reader that went away (`tidegate ... | head`) is no failure of ours.
        if output::is_unread(&error) {
            return ExitCode::SUCCESS;
        }
        progress::say(format_args!("tidegate: {}", describe(&error)));
        ExitCode::FAILURE
    })
}

/// The words of a command line, in which what looks like a negative number, with a unit or without, is
/// joined to the option before it: whoever wrote it hears what the option takes, rather than that there
/// is no option `-1`.
fn words(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let is_negative = |word: &OsStr| {
        let digits = word.as_encoded_bytes().strip_prefix(b"-");
        digits.is_some_and(|digits| matches!(digits, [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..]))
    };
    let is_option = |word: &OsStr| {
        let name = word.as_encoded_bytes().strip_prefix(b"--");
        name.is_some_and(|name| !name.is_empty() && !name.contains(&b'='))
    };
    let mut words: Vec<OsString> = Vec::new();
    // Behind `--` there are no options.
    let mut options = true;
    for word in given {
        options &= word != "--";
        match words.last_mut() {
            Some(option) if options && is_option(option) && is_negative(&word) => {
                option.push("=");
                option.push(word);
            }
            _ => words.push(word),
        }
    }
    words
}

/// Rate control for live media, in symbiosis with the network.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Live video over a network that misbehaves, next to the same video without Tidegate
    Demo(demo::DemoArgs),
    /// What the kernel's TCP goes through: time-outs, recovery, states, with its variables
    Events(events::EventsArgs),
    /// Play a scenario on the real network stack, between network namespaces
    Lab(lab::LabArgs),
    /// Play figures and tables of papers, and put ours beside the published
    Papers(PapersArgs),
    /// Receive live video
    Recv(recv::RecvArgs),
    /// Draw a report of runs: one HTML page, SVG and PNG
    Report(report_verb::ReportArgs),
    /// Send live video over RTP or TCP
    Send(send::SendArgs),
    /// Play a scenario in the deterministic simulator
    Sim(sim::SimArgs),
    /// Decode a stream and encode it again at a rate that follows, for a player on TCP
    Transcode(transcode::TranscodeArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let given = ["tidegate"].into_iter().chain(line.split_whitespace());
        Cli::try_parse_from(words(given.map(OsString::from)))
    }

    #[test]
    fn a_negative_number_is_a_value() {
        Cli::command().debug_assert();
        for (line, word) in [
            ("sim run --seed -1 x.toml", "a whole number from"),
            ("papers run all --seeds -1", "a whole number from"),
            ("events watch --for -1s", "\"-1s\" is negative"),
            ("events watch --rate -.5Mb/s", "invalid value '-.5Mb/s' for"),
            ("events watch --json -1s", "value '-1s' for '--json'"),
            // What follows is an option of its own.
            ("events watch --for --json", "a value is required"),
            ("sim run x.toml -1", "unexpected argument '-1'"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
        let behind = ["sim", "run", "--", "--seed", "-1"].map(OsString::from);
        assert_eq!(words(behind.clone()), behind);
        let papers = "papers";
        let Verb::Papers(args) = parse("papers run").expect(papers).verb else {
            unreachable!("it is {papers}")
        };
        let error = paper_verb::run(&args, &papers::Parts);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("papers list"), "{error}");
    }
}
