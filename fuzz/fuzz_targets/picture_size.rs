//! See `tidegate_tests::fuzzing::wire::picture_size`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::wire::picture_size(data));
