//! Skips lab tests on machines without network namespaces.

use std::env;
use std::io::{self, Write as _};

use tidegate_live::netns::{Availability, availability};

/// Whether the lab is unavailable, so that the test named `test` must be skipped; prints a message.
/// With `TIDEGATE_REQUIRE_NETNS=1` the test fails instead.
pub(crate) fn is_without_lab(test: &str) -> bool {
    let Availability::Missing(missing) = availability() else {
        return false;
    };
    let required = env::var_os("TIDEGATE_REQUIRE_NETNS").is_some_and(|v| v == "1");
    assert!(!required, "the lab is required and unavailable: {missing}");
    // Written to standard error directly: the test harness captures the output of passing tests.
    let mut terminal = io::stderr();
    writeln!(terminal, "skipped {test}: {missing}").unwrap();
    true
}
