//! See `tidegate_core::wire::fuzzing::framing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_core::wire::fuzzing::framing(data));
