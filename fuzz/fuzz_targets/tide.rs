//! See `tidegate_tests::fuzzing::controller::tide`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::controller::tide(data));
