//! Deterministic simulator, scenario language, run folders and metrics.

pub mod agent;
pub mod cast;
pub mod interactive;
pub mod meter;
pub mod oracle;
pub mod paced;
pub mod play;
pub mod run;
pub mod scenario;
pub mod staging;
pub mod tcp;
pub mod traffic;
pub mod video_model;
pub mod world;
