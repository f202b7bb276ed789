//! Deterministic simulator, scenario language, run folders and metrics.

pub mod run;
