//! Senders and receivers among peers, encoders and clocks that are not to be trusted. What must
//! hold is asserted in `session::fuzzing`, whose stories are drawn here at random.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_core::session::fuzzing;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_sender_survives_any_story(story in vec(any::<u8>(), 0..400)) {
        fuzzing::sender(&story);
    }

    #[test]
    fn a_receiver_survives_any_story(story in vec(any::<u8>(), 0..800)) {
        fuzzing::receiver(&story);
    }

    #[test]
    fn a_sender_over_tcp_survives_any_story(story in vec(any::<u8>(), 0..800)) {
        fuzzing::tcp_sender(&story);
    }
}
