//! `tidegate send` with an encoder that the processor cannot keep.

mod calm;
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use calm::judged;
use program::{Program, Scratch, load, text};
use tidegate_core::units::Time;
use tidegate_record::{FrameKind, SentFrame};

/// Large pictures at a high rate with a slow preset, on one thread: more than a processor of today can
/// do.
const SLOW: &str = "--size 1920x1080 --fps 60 --preset medium --duration 8s --json";

#[test]
fn a_slow_encoder_is_adapted_within_three_seconds() {
    judged("a_slow_encoder_is_adapted_within_three_seconds", || {
        let scratch = Scratch::new("adapted");
        let [sent, received] = ["sent", "received"].map(|name| scratch.path(name));
        let mut receiver = Program::tidegate(&format!(
            "recv --listen 127.0.0.1:0 --json --run {}",
            text(&received)
        ));
        let port = receiver.number("waiting for a stream at port ");
        let sender = Program::tidegate(&format!(
            "send --to 127.0.0.1:{port} {SLOW} --run {}",
            text(&sent)
        ));
        let (sender, receiver) = (sender.wait(), receiver.wait());
        sender.succeeded();
        receiver.succeeded();
        let named = |words: &&str| sender.said.contains(words);
        let causes = ["the encoder needs ", "the machine is busy: "];
        assert!(causes.iter().any(named), "{}", sender.said);
        assert!(
            sender.said.contains(": preset ultrafast"),
            "{}",
            sender.said
        );
        // Those that the encoder delivered in the last five seconds.
        let settled = Time::from_secs(3);
        let flow = load(&sent).flows.remove(0);
        let encoded = |row: &&SentFrame| row.kind != FrameKind::Skipped && row.captured >= settled;
        let encoded: Vec<_> = flow.sent.iter().filter(encoded).collect();
        assert!(
            encoded.len() >= 45,
            "{} frames: {}",
            encoded.len(),
            sender.said
        );
        let left = encoded.iter().filter(|row| row.left.is_some()).count();
        assert!(
            left * 20 >= encoded.len() * 19,
            "{left} of {}",
            encoded.len()
        );
        let shown = load(&received).flows.remove(0).received;
        let whole = shown.iter().filter(|row| row.decodable).count();
        assert!(
            whole * 20 >= left * 19,
            "{whole} of {left}: {}",
            receiver.said
        );
    });
}

#[test]
fn without_adaptation_the_cause_is_named() {
    judged("without_adaptation_the_cause_is_named", || {
        let mut receiver = Program::tidegate("recv --listen 127.0.0.1:0");
        let port = receiver.number("waiting for a stream at port ");
        let mut sender =
            Program::tidegate(&format!("send --to 127.0.0.1:{port} {SLOW} --adapt no"));
        sender.wait_for_line("for a frame of 17 ms; ");
        sender.interrupt();
        sender.wait();
        receiver.wait();
    });
}
