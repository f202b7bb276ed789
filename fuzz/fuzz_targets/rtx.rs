//! See `tidegate_core::wire::fuzzing::rtx`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_core::wire::fuzzing::rtx(data));
