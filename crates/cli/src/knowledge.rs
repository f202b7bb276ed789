//! `tidegate knowledge`: what sessions learnt about the paths to their clients.

pub(crate) mod access;
mod cluster;
mod evaluate;
mod exchange;
mod predict;
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
    /// Find networks that behave alike over the day, and print their clusters
    Cluster(cluster::ClusterArgs),
    /// Predict the starts of a store from those before them, and compare with simpler predictions
    Evaluate(evaluate::EvaluateArgs),
    /// Write the samples of a store to a CSV or Parquet file
    Export(exchange::ExportArgs),
    /// Add the samples of a CSV or Parquet file to a store
    Import(exchange::ImportArgs),
    /// Predict the rate of the path to a client, and explain the prediction
    Predict(predict::PredictArgs),
    /// Show the contents and the settings of a store
    Show(show::ShowArgs),
}

/// Runs the selected subcommand.
pub(crate) fn run(args: &KnowledgeArgs) -> Result<ExitCode> {
    match &args.verb {
        KnowledgeVerb::Cluster(args) => cluster::run(args),
        KnowledgeVerb::Evaluate(args) => evaluate::run(args),
        KnowledgeVerb::Export(args) => exchange::export(args),
        KnowledgeVerb::Import(args) => exchange::import(args),
        KnowledgeVerb::Predict(args) => predict::run(args),
        KnowledgeVerb::Show(args) => show::run(args),
    }
}
