//! See `tidegate_tests::fuzzing::privileged`.
#![no_main]

use tidegate_tests::fuzzing::privileged::emulator_packet;

libfuzzer_sys::fuzz_target!(|data: &[u8]| emulator_packet(data));
