//! See `tidegate_tests::fuzzing::privileged`.
#![no_main]

use tidegate_tests::fuzzing::privileged::events_requests;

libfuzzer_sys::fuzz_target!(|data: &[u8]| events_requests(data));
