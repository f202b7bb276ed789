//! See `tidegate_tests::fuzzing::wire::h264_packetise`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::wire::h264_packetise(data));
