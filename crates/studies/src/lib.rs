//! Studies: experiments of papers, RFCs and ns-2, reproduced with Tidegate's crates.
//!
//! The crate implements `tidegate papers`, `tidegate sim bench`, `tidegate sim rmcat` and
//! `tidegate sim validate`. No
//! library crate depends on it.

pub mod bench;
mod control_argument;
pub mod papers;
mod parallel;
pub mod rmcat;
pub mod validate;
