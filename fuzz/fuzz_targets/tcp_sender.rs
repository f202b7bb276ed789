//! See `tidegate_core::session::fuzzing::tcp_sender`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_core::session::fuzzing::tcp_sender(data));
