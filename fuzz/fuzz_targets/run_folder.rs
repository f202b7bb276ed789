//! See `tidegate_tests::fuzzing::files::run_folder`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::files::run_folder(data));
