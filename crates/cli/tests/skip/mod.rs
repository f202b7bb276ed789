//! Tests of the lab on machines where it cannot work.

use std::env;
use std::io::{self, Write as _};

use tidegate_live::netns::{Availability, availability};

/// Whether the lab cannot work here, and the test called `test` is to be skipped; it says so. Where
/// `TIDEGATE_REQUIRE_NETNS` is 1 the test fails instead.
pub(crate) fn is_without_lab(test: &str) -> bool {
    let Availability::Missing(missing) = availability() else {
        return false;
    };
    let required = env::var_os("TIDEGATE_REQUIRE_NETNS").is_some_and(|v| v == "1");
    assert!(!required, "the lab is required and cannot work: {missing}");
    // Past the test harness, which would swallow what a test prints that passes.
    let mut terminal = io::stderr();
    writeln!(terminal, "skipped {test}: {missing}").unwrap();
    true
}
