//! See `tidegate_core::session::fuzzing::tcp_receiver`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_core::session::fuzzing::tcp_receiver(data));
