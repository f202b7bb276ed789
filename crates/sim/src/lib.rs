//! Deterministic simulator, scenario language, run folders and metrics.
