//! `tidegate knowledge`: what sessions learnt about the paths to their clients.

mod access;
mod exchange;
mod show;

use std::process::ExitCode;

use anyhow::Result;

/// Arguments of `tidegate knowledge`.
#[derive(Debug, clap::Args)]
pub(crate) struct KnowledgeArgs {
    #[command(subcommand)]
    verb: KnowledgeVerb,
}

#[derive(Debug, clap::Subcommand)]
enum KnowledgeVerb {
    /// Write the samples of a store to a CSV or Parquet file
    Export(exchange::ExportArgs),
    /// Add the samples of a CSV or Parquet file to a store
    Import(exchange::ImportArgs),
    /// Show the contents and the settings of a store
    Show(show::ShowArgs),
}

/// Runs the selected subcommand.
pub(crate) fn run(args: &KnowledgeArgs) -> Result<ExitCode> {
    match &args.verb {
        KnowledgeVerb::Export(args) => exchange::export(args),
        KnowledgeVerb::Import(args) => exchange::import(args),
        KnowledgeVerb::Show(args) => show::run(args),
    }
}
