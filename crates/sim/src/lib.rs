//! Deterministic simulator and scenario language.

pub mod coordination;
pub mod flow_endpoints;
pub mod interactive;
pub mod meter;
pub mod model_flow;
pub mod ns2;
pub mod offline_optimum;
pub mod packet_agent;
pub mod runner;
pub mod scenario;
pub mod tcp;
pub mod topology;
pub mod traffic;
pub mod video_model;
pub mod world;

use tidegate_core::controller::Controllers;

/// The controllers of scenarios: those of the product, and those of ns-2.
pub fn controllers() -> Controllers {
    Controllers::default().with(ns2::tfrc::TFRC)
}
