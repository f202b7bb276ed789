//! Studies: experiments of papers, RFCs and ns-2, reproduced with Tidegate's crates.
//!
//! The crate implements `tidegate papers`, `tidegate sim rmcat` and `tidegate sim validate`. No
//! library crate depends on it.

pub mod papers;
pub mod rmcat;
pub mod validate;
