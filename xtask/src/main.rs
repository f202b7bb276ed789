//! Checks of the repository that cargo does not do.

fn main() {}
