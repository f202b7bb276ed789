//! Fuzz targets, and tests that span crates; see `tests/`.

pub mod fuzzing;
