//! Studies: what papers, RFCs and ns-2 published, played again on the product's crates.
//!
//! Nothing of the product depends on this crate; `tidegate papers`, `tidegate sim rmcat` and
//! `tidegate sim validate` are made of it.

pub mod papers;
pub mod rmcat;
pub mod validate;
