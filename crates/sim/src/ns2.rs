//! Models of ns-2, for comparison with older simulations. They are keys of scenarios.

pub mod tfrc;
