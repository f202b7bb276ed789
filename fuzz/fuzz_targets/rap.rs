//! See `tidegate_core::controller::fuzzing::rap`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_core::controller::fuzzing::rap(data));
