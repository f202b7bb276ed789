//! See `tidegate_tests::fuzzing::session::live`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::session::live(data));
