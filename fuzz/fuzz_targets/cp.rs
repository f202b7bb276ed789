//! See `tidegate_tests::fuzzing::wire::cp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::wire::cp(data));
