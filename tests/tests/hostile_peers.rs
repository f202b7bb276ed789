//! Senders and receivers with hostile peers, faulty encoders and erratic clocks. `fuzzing::session`
//! asserts the invariants; the inputs are drawn at random here.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_tests::fuzzing::rtsp::rtsp;
use tidegate_tests::fuzzing::session as fuzzing;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_sender_withstands_any_input(input in vec(any::<u8>(), 0..400)) {
        fuzzing::sender(&input);
    }

    #[test]
    fn a_receiver_withstands_any_input(input in vec(any::<u8>(), 0..800)) {
        fuzzing::receiver(&input);
    }

    #[test]
    fn a_tcp_sender_withstands_any_input(input in vec(any::<u8>(), 0..800)) {
        fuzzing::tcp_sender(&input);
    }

    #[test]
    fn secure_endpoints_withstand_an_attacker(input in vec(any::<u8>(), 0..300)) {
        fuzzing::secure(&input);
    }

    #[test]
    fn an_rtsp_connection_withstands_any_client(input in vec(any::<u8>(), 0..800)) {
        rtsp(&input);
    }
}
