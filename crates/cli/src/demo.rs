//! `tidegate demo`
