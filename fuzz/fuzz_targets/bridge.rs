//! See `tidegate_tests::fuzzing::aggregate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::aggregate::bridge(data));
