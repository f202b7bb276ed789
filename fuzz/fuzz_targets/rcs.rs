//! See `tidegate_tests::fuzzing::controller::rcs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::controller::rcs(data));
