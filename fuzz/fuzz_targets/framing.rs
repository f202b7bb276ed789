//! See `tidegate_tests::fuzzing::wire::framing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::wire::framing(data));
