//! Tests that span crates; see `tests/`.
