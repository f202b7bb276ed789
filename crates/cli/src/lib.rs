//! The parts of the program that tests and other programs may call.

pub mod report;
