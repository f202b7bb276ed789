//! See `tidegate_core::wire::fuzzing::rtp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_core::wire::fuzzing::rtp(data));
