//! Deterministic simulator and scenario language.

pub mod coordination;
pub mod flow_endpoints;
pub mod interactive;
pub mod meter;
pub mod model_flow;
pub mod offline_optimum;
pub mod packet_agent;
pub mod runner;
pub mod scenario;
pub mod tcp;
pub mod topology;
pub mod traffic;
pub mod video_model;
pub mod world;
