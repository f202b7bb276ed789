//! See `tidegate_tests::fuzzing::controller::delay_bound`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::controller::delay_bound(data));
