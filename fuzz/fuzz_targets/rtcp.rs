//! See `tidegate_tests::fuzzing::wire::rtcp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::wire::rtcp(data));
