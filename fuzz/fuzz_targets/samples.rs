//! See `tidegate_tests::fuzzing::samples::samples`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::samples::samples(data));
