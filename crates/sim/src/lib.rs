//! Deterministic simulator, scenario language, run folders and metrics.

pub mod agent;
pub mod cast;
pub mod oracle;
pub mod play;
pub mod run;
pub mod scenario;
pub mod tcp;
pub mod video_model;
pub mod world;
