//! See `tidegate_core::wire::fuzzing::mpeg2_packetise`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_core::wire::fuzzing::mpeg2_packetise(data));
