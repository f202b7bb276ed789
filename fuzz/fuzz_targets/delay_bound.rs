//! See `tidegate_core::controller::fuzzing::delay_bound`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_core::controller::fuzzing::delay_bound(data));
