//! See `tidegate_tests::fuzzing::decoder::decoder_replies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::decoder::decoder_replies(data));
