//! Tests in network namespaces.

use std::env;
use std::io::{self, Write as _};
use std::process::Command;

use tidegate_live::netns::{Availability, availability, user_namespaced};

/// Runs `body` where namespaces and TUN devices are available: in this process, or in a child of
/// the test named `test` in a user namespace. Otherwise the test is skipped with a message, or
/// fails if `TIDEGATE_REQUIRE_NETNS` is 1.
pub(crate) fn in_lab(test: &str, body: impl FnOnce()) {
    let inside = env::var_os(INSIDE).is_some();
    match availability() {
        Availability::Root => body(),
        Availability::UserNamespace if !inside => {
            let mut child = Command::new(env::current_exe().unwrap());
            child
                .args(["--exact", test, "--nocapture", "--include-ignored"])
                .env(INSIDE, "1");
            let status = user_namespaced(&mut child).status().unwrap();
            assert!(status.success(), "in a user namespace: {status}");
        }
        Availability::Missing(missing) if !inside => {
            skip(test, &missing.to_string(), true);
        }
        other => panic!("in a user namespace of its own: {other:?}"),
    }
}

/// Reports that a test is skipped. Fails instead if `must` is set and `TIDEGATE_REQUIRE_NETNS` is
/// 1.
pub(crate) fn skip(test: &str, why: &str, must: bool) {
    let required = must && env::var_os("TIDEGATE_REQUIRE_NETNS").is_some_and(|v| v == "1");
    assert!(!required, "required by TIDEGATE_REQUIRE_NETNS=1: {why}");
    // Written to standard error directly: the test harness captures the output of passing tests.
    let mut terminal = io::stderr();
    writeln!(terminal, "skipped {test}: {why}").unwrap();
}

/// Set in the environment of a test that runs in a user namespace.
pub(crate) const INSIDE: &str = "TIDEGATE_TEST_IN_USER_NAMESPACE";
