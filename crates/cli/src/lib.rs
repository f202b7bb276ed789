//! The program: verbs, and what they share.
//!
//! Each verb is a module with its arguments and a function `run`. `folder` puts what was played
//! into a run folder, `judge` looks at the pictures, [`report`] draws.

mod demo;
mod folder;
mod judge;
mod lab;
mod live;
mod papers;
mod progress;
mod recv;
pub mod report;
mod report_verb;
mod rmcat;
mod send;
mod sim;
mod studio;
mod sweep;
mod table;
mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Demo(args) => demo::run(&args),
        Verb::Lab(args) => lab::run(&args),
        Verb::Papers(args) => papers::run(&args),
        Verb::Recv(args) => recv::run(&args),
        Verb::Report(args) => report_verb::run(&args),
        Verb::Send(args) => send::run(&args),
        Verb::Sim(args) => sim::run(&args),
    };
    result.unwrap_or_else(|error| {
        // A reader that went away (`tidegate ... | head`) is no failure of ours.
        if is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        eprintln!("tidegate: {error:#}");
        ExitCode::FAILURE
    })
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
    /// Play a scenario on the real network stack, between network namespaces
    Lab(lab::LabArgs),
    /// Play figures and tables of papers, and put ours beside the published
    Papers(papers::PapersArgs),
    /// Receive live video
    Recv(recv::RecvArgs),
    /// Draw a report of runs: one HTML page, SVG and PNG
    Report(report_verb::ReportArgs),
    /// Send live video over RTP
    Send(send::SendArgs),
    /// Play a scenario in the deterministic simulator
    Sim(sim::SimArgs),
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
