//! See `tidegate_tests::fuzzing::wire::mpeg2_assemble`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::wire::mpeg2_assemble(data));
