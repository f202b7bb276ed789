//! See `tidegate_core::wire::fuzzing::mpeg2_assemble`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_core::wire::fuzzing::mpeg2_assemble(data));
