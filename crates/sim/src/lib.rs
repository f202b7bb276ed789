//! Deterministic simulator, scenario language, run folders and metrics.

pub mod oracle;
pub mod run;
pub mod scenario;
pub mod video_model;
pub mod world;
