//! TCP sender and receiver, joined by a byte stream with a limited capacity.

mod interactive;

use core::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::media::{Codec, EncodeError, Encoded, FrameOrder, FrameRate};
use crate::session::jitter_buffer::ReceivedFrame;
use crate::session::sender::SentFrame;
use crate::trace::{DropCause, Event, KeyCause};
use crate::units::{Bytes, Rate, Time};
use crate::wire::ntp::Ntp;
use crate::wire::rtcp::Cname;

const RATE: Rate = Rate::kbps(1_000);

fn config(frames: u64) -> TcpSenderConfig {
    TcpSenderConfig {
        codec: Codec::Mpeg2,
        ssrc: 7,
        timestamp_base: u32::MAX - 5_000,
        cname: Cname::new("test").unwrap(),
        epoch: Ntp(0),
        frame_rate: FrameRate::fps(25),
        capture: Capture::Clock {
            frames: Some(frames),
        },
        packet_size: Bytes(400),
        most_queued: Bytes(50_000),
        place: Place::Frames,
        most_pictures: 60,
    }
}

/// A picture of one slice; its bytes encode the frame number.
fn picture(order: &FrameOrder) -> Encoded {
    let len = order.rate.as_bps() as usize / 25 / 8;
    let mut data = Vec::new();
    if order.key {
        data.extend_from_slice(&[0, 0, 1, 0xb3, 9, 9]);
    }
    data.extend_from_slice(&[0, 0, 1, 0, 0, if order.key { 0x08 } else { 0x10 }, 9, 9, 9]);
    data.extend_from_slice(&[0, 0, 1, 1]);
    data.resize(data.len() + len, 1 + (order.frame % 200) as u8);
    Encoded {
        frame: order.frame,
        captured: order.captured,
        key: order.key,
        leading: false,
        data,
        quality: None,
    }
}

struct Pair {
    sender: TcpSender,
    receiver: TcpReceiver,
    rows: Vec<SentFrame>,
    events: Vec<(Time, Event)>,
    frames: Vec<ReceivedFrame>,
    /// Bytes that the stream has carried.
    carried: u64,
}

impl Pair {
    fn new(frames: u64, policy: impl RatePolicy + 'static) -> Self {
        Self {
            sender: TcpSender::new(config(frames), Box::new(policy)),
            receiver: TcpReceiver::new(),
            rows: Vec::new(),
            events: Vec::new(),
            frames: Vec::new(),
            carried: 0,
        }
    }

    /// One iteration at `now`; the stream accepts at most `room` bytes.
    fn step(&mut self, now: Time, mut room: usize) {
        self.sender.on_timeout(now);
        while let Some(order) = self.sender.poll_order(now) {
            self.sender
                .on_encoded(now, Duration::ZERO, Ok(picture(&order)));
        }
        loop {
            let bytes = self.sender.poll_write(now);
            let count = bytes.len().min(room).min(333);
            if count == 0 {
                break;
            }
            self.receiver.on_bytes(now, &bytes[..count]).unwrap();
            self.sender.on_written(now, count);
            room -= count;
            self.carried += count as u64;
        }
        self.sender.drain(&mut self.rows, &mut self.events);
        self.frames
            .extend(std::iter::from_fn(|| self.receiver.poll_frame()));
    }
}

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

#[test]
fn a_complete_stream_arrives_and_ends_with_a_bye() {
    //= rfc4571-3-order (test)
    let mut pair = Pair::new(50, Classic::new(RATE));
    let mut ms = 0;
    while !pair.sender.is_done() {
        pair.step(at(ms), usize::MAX);
        ms += 10;
    }
    assert_eq!(ms, 2_010, "50 frames at 25 frames per second");
    assert!(pair.receiver.is_over());
    assert_eq!(pair.receiver.codec(), Some(Codec::Mpeg2));
    assert_eq!((pair.rows.len(), pair.frames.len()), (50, 50));
    let wire: u64 = pair.rows.iter().map(|row| row.wire.get()).sum();
    // The rest is a report, a source description and a BYE.
    assert_eq!(pair.carried - wire, 2 + 28 + 16 + 8);
    for (n, (row, frame)) in pair.rows.iter().zip(&pair.frames).enumerate() {
        assert_eq!(row.frame, n as u64);
        assert_eq!(row.left, Some(row.captured));
        assert_eq!(frame.complete, Some(row.captured));
        assert_eq!(frame.timestamp as u32, row.timestamp);
        assert_eq!(frame.data.last(), Some(&(1 + n as u8)));
        assert_eq!(frame.key, n == 0);
    }
    let span = pair.frames[49].timestamp - pair.frames[0].timestamp;
    assert_eq!(span, 49 * 3_600, "the RTP timestamp wraps");
}

/// The path accepts nothing for two seconds, then everything.
#[test]
fn classic_accumulates_delay_and_sends_every_encoded_frame() {
    let mut pair = Pair::new(100, Classic::new(RATE));
    for ms in (0..4_500).step_by(10) {
        let stalled = (1_000..3_000).contains(&ms);
        pair.step(at(ms), if stalled { 0 } else { usize::MAX });
    }
    assert!(pair.sender.is_done());
    let dropped = pair.rows.iter().filter(|row| row.dropped.is_some());
    // The queue holds 50 kB; the rest of two seconds at 125 kB/s is never encoded.
    assert!(
        dropped
            .clone()
            .all(|row| row.dropped == Some(DropCause::Skipped) && row.skipped)
    );
    assert!((38..43).contains(&dropped.count()));
    let mut punctuality = Punctuality::new(Duration::from_millis(500));
    let late = pair.frames.iter().filter(|frame| {
        let lateness = punctuality.lateness(frame.timestamp, frame.complete.unwrap());
        !punctuality.accepts(lateness)
    });
    assert_eq!(
        late.count(),
        10,
        "the frames queued in the first second of the stall"
    );
}

/// As above, with external advice to drop in time.
#[test]
fn advice_drops_the_backlog_and_orders_a_key_frame() {
    let limits = (Rate::kbps(100), Rate::kbps(2_000));
    let mut pair = Pair::new(100, Follow::new(RATE, limits));
    for ms in (0..4_500).step_by(10) {
        if ms == 1_500 {
            pair.sender.advise(at(ms), Advice::Rate(Rate::kbps(10)));
        }
        if ms == 2_990 {
            pair.sender.advise(at(ms), Advice::Drop);
        }
        let stalled = (1_000..3_000).contains(&ms);
        pair.step(at(ms), if stalled { 0 } else { usize::MAX });
    }
    assert_eq!(
        pair.sender.target(),
        limits.0,
        "clamped to the minimum rate"
    );
    let causes = |cause| {
        pair.rows
            .iter()
            .filter(|r| r.dropped == Some(cause))
            .count()
    };
    assert_eq!(causes(DropCause::Late), 1);
    assert!((8..=11).contains(&causes(DropCause::Reference)));
    let keys: Vec<_> = pair.frames.iter().filter(|f| f.key).collect();
    assert_eq!(keys.len(), 2);
    assert!(keys[1].complete >= Some(at(3_000)));
    assert!(
        pair.frames.iter().all(|f| f.complete.is_some()),
        "undecodable frames are not sent"
    );
    let repair = |(_, e): &&(Time, Event)| {
        matches!(
            e,
            Event::KeyFrameOrdered {
                cause: KeyCause::Repair,
                ..
            }
        )
    };
    assert_eq!(pair.events.iter().filter(repair).count(), 1);
    let changed = |(_, e): &&(Time, Event)| matches!(e, Event::RateChanged { .. });
    assert_eq!(pair.events.iter().filter(changed).count(), 1);
}

#[test]
fn pictures_of_a_source_keep_their_frame_numbers() {
    let capture = Capture::Source;
    let config = TcpSenderConfig {
        capture,
        ..config(0)
    };
    let mut pair = Pair::new(0, Classic::new(RATE));
    pair.sender = TcpSender::new(config, Box::new(Classic::new(RATE)));
    assert_eq!(pair.sender.next_timeout(), None);
    for (frame, ms) in [(0, 5), (1, 50), (5, 400)] {
        pair.sender.on_picture(at(ms), frame, at(ms));
        pair.step(at(ms), usize::MAX);
    }
    // Three pictures at once: the encoder has the first, the newest waits, and the middle one is
    // skipped.
    for frame in 6..9 {
        pair.sender.on_picture(at(500), frame, at(500));
    }
    pair.step(at(500), usize::MAX);
    pair.sender.stop_capture();
    pair.step(at(500), usize::MAX);
    assert!(pair.sender.is_done());
    let first = pair.frames[0].timestamp;
    let numbers: Vec<_> = pair
        .frames
        .iter()
        .map(|f| (f.timestamp - first) / 3_600)
        .collect();
    assert_eq!(numbers, [0, 1, 5, 6, 8]);
}

#[test]
fn an_encoder_error_or_a_closed_connection_ends_the_stream() {
    let mut pair = Pair::new(100, Classic::new(RATE));
    pair.sender.on_timeout(at(0));
    let _ = pair.sender.poll_order(at(0)).unwrap();
    pair.sender
        .on_encoded(at(1), Duration::ZERO, Err(EncodeError::EndOfSource));
    pair.step(at(2), usize::MAX);
    assert!(pair.sender.is_done() && pair.receiver.is_over());
    assert_eq!(pair.rows, [], "a missing picture gets no row");

    let mut pair = Pair::new(100, Classic::new(RATE));
    for ms in (0..400).step_by(40) {
        pair.step(at(ms), 1_000);
    }
    pair.sender.on_closed(at(400));
    pair.step(at(400), 0);
    assert!(pair.sender.is_done() && !pair.receiver.is_over());
    assert_eq!(pair.rows.len(), 10);
    let ended = pair
        .rows
        .iter()
        .filter(|r| r.dropped == Some(DropCause::Ended));
    assert!(ended.count() >= 8);
    assert_eq!(pair.sender.backlog().total(), Bytes(0));
}

#[test]
fn a_frame_without_a_picture_is_passed_over() {
    let mut pair = Pair::new(100, Classic::new(RATE));
    pair.step(at(0), usize::MAX);
    pair.sender.on_timeout(at(40));
    assert!(pair.sender.poll_order(at(40)).is_some());
    pair.sender
        .on_encoded(at(41), Duration::ZERO, Err(EncodeError::Unchanged));
    pair.step(at(80), usize::MAX);
    pair.sender.stop_capture();
    pair.step(at(81), usize::MAX);
    let frames: Vec<u64> = pair.rows.iter().map(|row| row.frame).collect();
    assert_eq!(frames, [0, 2]);
    assert!(pair.sender.is_done() && pair.receiver.is_over());
}

#[test]
fn stream_errors_name_the_cause() {
    let fault = |bytes: &[u8]| {
        TcpReceiver::new()
            .on_bytes(at(0), bytes)
            .unwrap_err()
            .to_string()
    };
    assert!(fault(b"GET / HTTP/1.1\r\n").contains("version 1"));
    let mut other = vec![0, 13, 0x80, 33];
    other.resize(15, 0);
    assert!(fault(&other).contains("payload type 33"));
    let packet = |ssrc| [0, 13, 0x80, 96, 0, 0, 0, 0, 0, 0, 0, 0, 0, ssrc, 0x65];
    let two = [packet(1), packet(2)].concat();
    assert!(fault(&two).contains("two streams"));
}

#[test]
fn lateness_is_relative_to_the_fastest_frame() {
    let mut punctuality = Punctuality::new(Duration::from_millis(100));
    let mut late = |n: u64, ms| punctuality.lateness(n * 3_600, at(ms)).as_millis();
    assert_eq!(late(0, 1_050), 0);
    assert_eq!(late(1, 1_040), 0, "the fastest frame so far");
    assert_eq!(late(2, 1_180), 99, "the clocks may differ by 28 us");
    assert_eq!(late(3, 1_221), 100);
    assert!(punctuality.accepts(Duration::from_millis(100)));
    assert!(!punctuality.accepts(Duration::from_millis(101)));
}

/// The clock of the sender loses 0.01 %: after three hours 1.1 s.
#[test]
fn a_slow_clock_of_the_sender_makes_no_frame_late() {
    let mut punctuality = Punctuality::new(Duration::from_millis(100));
    for second in 0..3 * 3_600 {
        let arrival = at(1_000 + second * 1_000 + second / 10);
        let lateness = punctuality.lateness(second * 90_000, arrival);
        assert!(
            lateness <= Duration::from_millis(1),
            "{second} s: {lateness:?}"
        );
    }
    let late = punctuality.lateness(3 * 3_600 * 90_000, at(1_000 + 3 * 3_600_000 + 1_080 + 200));
    assert!(!punctuality.accepts(late), "{late:?}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_yield_frames_or_an_error(
        bytes in vec(prop_oneof![Just(0_u8), Just(0x80), Just(96), Just(32), any::<u8>()], 0..400),
        piece in 1_usize..50,
    ) {
        let mut receiver = TcpReceiver::new();
        for piece in bytes.chunks(piece) {
            if receiver.on_bytes(at(0), piece).is_err() {
                break;
            }
        }
        receiver.finish();
        while let Some(frame) = receiver.poll_frame() {
            prop_assert_eq!(frame.complete.is_some(), !frame.data.is_empty());
        }
    }
}
