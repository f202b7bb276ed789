//! See `tidegate_tests::fuzzing::files::scenario`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::files::scenario(data));
