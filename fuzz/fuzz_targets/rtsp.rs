//! See `tidegate_tests::fuzzing::rtsp::rtsp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_tests::fuzzing::rtsp::rtsp(data));
