//! Invalid RTCP at a sender over RTP: rows of its run folder.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use program::{Program, Scratch, load, text};
use tidegate_core::trace::Event;

#[test]
fn invalid_reports_leave_a_few_rows_per_second() {
    let scratch = Scratch::new("report-flood");
    let sent = scratch.path("sent");
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = receiver.local_addr().unwrap();
    let sender = Program::tidegate(&format!(
        "send --to {to} --size 160x90 --preset ultrafast --duration 2s --run {}",
        text(&sent)
    ));
    let (_, sender_at) = receiver.recv_from(&mut [0; 2_000]).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // A receiver report of eight bytes that claims a block.
            while !over.load(Ordering::Relaxed) {
                // An error of an earlier datagram, once the sender has ended.
                let _ = receiver.send_to(&[0x81, 201, 0, 1, 0, 0, 0, 1], sender_at);
                thread::yield_now();
            }
        });
        let ended = sender.wait();
        over.store(true, Ordering::Relaxed);
        ended.succeeded();
    });
    let run = load(&sent);
    let (mut rows, mut count) = (0, 0);
    for row in &run.events {
        match row.event {
            Event::FeedbackRejected { .. } => (rows, count) = (rows + 1, count + 1),
            Event::RejectedOmitted { count: more } => (rows, count) = (rows + 1, count + more),
            _ => {}
        }
    }
    // Four per second and two numbers, in at most five begun seconds: the video, the wait for a first answer,
    // and three BYEs.
    assert!(rows <= 30, "{rows} rows");
    assert!(count > 100, "{count} invalid reports");
}
