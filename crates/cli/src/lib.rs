//! The `tidegate` program: its subcommands and their shared parts.
//!
//! Each subcommand is a module with its arguments and a function `run`. `run_folder` writes the
//! results of a run, `video_quality` compares the pictures, and `tidegate_report` draws the report.

// These macros panic on write errors; `progress::say` and `output` do not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod arrivals;
mod decoding;
mod demo;
mod encoder_speed;
mod events;
mod exit_code;
mod gateway;
mod key;
mod knowledge;
mod lab;
mod learning;
mod live;
mod lookup;
mod memory;
mod papers;
mod recording;
mod recv;
mod report_verb;
mod run_folder;
mod security;
mod send;
mod serve;
mod sim;
mod source_speed;
mod sweep;
mod table;
mod tcp;
mod tls;
mod transcode;
mod video_quality;
mod video_source;

use std::env;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tidegate_console::{describe, exit, output, progress};
use tidegate_core::controller::Controllers;
use tidegate_media::sandbox;
use tidegate_studies::papers::verb::{self as paper_verb, PapersArgs};

/// Runs the program with the arguments of this process, or the decoder process of another one.
pub fn main() -> ExitCode {
    if let Some(code) = sandbox::run_child() {
        return code;
    }
    run(env::args_os(), &tidegate_sim::controllers())
}

/// Runs the program with these arguments, of which the first is its name, and these controllers.
pub fn run(given: impl IntoIterator<Item = OsString>, controllers: &Controllers) -> ExitCode {
    let matches = command(controllers).get_matches_from(join_negative_numbers(given));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match cli.verb {
        Verb::Certificate(args) => tls::run(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Events(args) => events::run(&args),
        Verb::Gateway(args) => gateway::run(&args),
        Verb::Key(args) => key::run(&args),
        Verb::Knowledge(args) => knowledge::run(&args),
        Verb::Lab(args) => lab::run(&args, controllers),
        Verb::Papers(args) => paper_verb::run(&args, &papers::Parts),
        Verb::Recv(args) => recv::run(&args),
        Verb::Report(args) => report_verb::run(&args),
        Verb::Send(args) => send::run(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Sim(args) => sim::run(&args, controllers),
        Verb::Transcode(args) => transcode::run(&args),
    };
    result.unwrap_or_else(|error| {
        // A closed pipe (`tidegate ... | head`) is not an error.
        if output::is_unread(&error) {
            return ExitCode::SUCCESS;
        }
        progress::say(format_args!("tidegate: {}", describe(&error)));
        ExitCode::from(exit_code::of(&error))
    })
}

/// The command line, with the exit codes in the help of each command, and these values of
/// `--control`.
fn command(controllers: &Controllers) -> Command {
    fn with_exit_codes(command: Command) -> Command {
        command
            .after_help(exit::HELP)
            .mut_subcommands(with_exit_codes)
    }
    let with_controllers = |command: Command| {
        let known = controllers.clone();
        command.mut_arg("control", |arg| {
            arg.value_parser(move |text: &str| known.argument(text))
                .help(control_help(controllers))
        })
    };
    with_exit_codes(Cli::command())
        .mut_subcommand("send", with_controllers)
        .mut_subcommand("serve", with_controllers)
}

/// Help of `--control`.
fn control_help(controllers: &Controllers) -> String {
    let known = controllers.iter().map(|entry| match entry.example {
        None => format!("`{}`: {}", entry.name, entry.about),
        Some(value) => format!("`{}:{value}`: {}", entry.name, entry.about),
    });
    let known: Vec<String> = known.collect();
    format!(
        "Rate control over RTP [default: tide]. {}",
        known.join("; ")
    )
}

/// Command line in which an argument that looks like a negative number, with or without a unit, is
/// joined to the preceding option. The error message then names the valid values of the option
/// instead of an unknown option `-1`.
fn join_negative_numbers(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let is_negative = |word: &OsStr| {
        let digits = word.as_encoded_bytes().strip_prefix(b"-");
        digits.is_some_and(|digits| matches!(digits, [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..]))
    };
    let is_option = |word: &OsStr| {
        let name = word.as_encoded_bytes().strip_prefix(b"--");
        name.is_some_and(|name| !name.is_empty() && !name.contains(&b'='))
    };
    let mut join_negative_numbers: Vec<OsString> = Vec::new();
    // After `--` there are no options.
    let mut options = true;
    for word in given {
        options &= word != "--";
        match join_negative_numbers.last_mut() {
            Some(option) if options && is_option(option) && is_negative(&word) => {
                option.push("=");
                option.push(word);
            }
            _ => join_negative_numbers.push(word),
        }
    }
    join_negative_numbers
}

/// Rate control for live media
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a self-signed certificate for streams over TLS, and print its fingerprint
    Certificate(tls::CertificateArgs),
    /// Run the demo: live video over an impaired network, with and without Tidegate
    Demo(demo::DemoArgs),
    /// Report TCP events of the kernel: timeouts, recovery, states, with their variables
    Events(events::EventsArgs),
    /// Run an aggregation point of the Coordination Protocol between two interfaces (requires root)
    Gateway(gateway::GatewayArgs),
    /// Make a key that both ends of a stream share
    Key(key::KeyArgs),
    /// Keep what sessions learn about the paths to their clients, and predict rates
    Knowledge(knowledge::KnowledgeArgs),
    /// Run a scenario on the kernel's network stack, between network namespaces
    Lab(lab::LabArgs),
    /// Reproduce figures and tables of papers and compare them with the published values
    Papers(PapersArgs),
    /// Receive live video
    Recv(recv::RecvArgs),
    /// Draw a report of runs: one HTML page, SVG and PNG
    Report(report_verb::ReportArgs),
    /// Send live video over RTP or TCP
    Send(send::SendArgs),
    /// Serve stored titles to many players over RTSP and RTP
    Serve(serve::ServeArgs),
    /// Run scenarios in the deterministic simulator
    Sim(sim::SimArgs),
    /// Decode a stream and re-encode it at an adaptive rate for a player on TCP
    Transcode(transcode::TranscodeArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let given = ["tidegate"].into_iter().chain(line.split_whitespace());
        Cli::try_parse_from(join_negative_numbers(given.map(OsString::from)))
    }

    #[test]
    fn rates_and_durations_have_the_spellings_of_other_programs() {
        for line in [
            "send --to h:1 --duration 5 --ceiling 5M --floor 500k",
            "send --to h:1 --duration 5s --ceiling 5Mbps --control fixed:5Mbit/s",
            "recv --listen 1 --duration 5 --idle-timeout 2 --delay-bound 0.4",
            "events watch --for 4 --rate 5Mbps",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
        }
    }

    #[test]
    fn a_negative_number_is_a_value() {
        command(&tidegate_sim::controllers()).debug_assert();
        for (line, word) in [
            ("sim run --seed -1 x.toml", "a whole number from"),
            ("papers run all --seeds -1", "a whole number from"),
            ("events watch --for -1s", "\"-1s\" is negative"),
            ("events watch --rate -.5Mb/s", "invalid value '-.5Mb/s' for"),
            ("events watch --json -1s", "value '-1s' for '--json'"),
            // The next argument is an option.
            ("events watch --for --json", "a value is required"),
            ("sim run x.toml -1", "unexpected argument '-1'"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
        let behind = ["sim", "run", "--", "--seed", "-1"].map(OsString::from);
        assert_eq!(join_negative_numbers(behind.clone()), behind);
        let papers = "papers";
        let Verb::Papers(args) = parse("papers run").expect(papers).verb else {
            unreachable!("it is {papers}")
        };
        let error = paper_verb::run(&args, &papers::Parts);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("papers list"), "{error}");
    }
}
