//! A sender with an encoder or a source that is slower than the frame rate.

use core::time::Duration;
use std::collections::BTreeMap;

use tidegate_core::control::{Context, Ecn};
use tidegate_core::controller::fixed::Fixed;
use tidegate_core::endpoint::{Datagram, Endpoint as _, Input};
use tidegate_core::media::{EncodeError, Encoded, FrameOrder};
use tidegate_core::random::Seed;
use tidegate_core::session::config::{ReceiverConfig, SenderConfig, Streams};
use tidegate_core::session::receiver::MediaReceiver;
use tidegate_core::session::sender::{MediaSender, SentFrame};
use tidegate_core::units::{Rate, Time};
use tidegate_core::wire::rtcp::Cname;

/// Frames per second of the source.
const FPS: u64 = 30;

/// A tenth to a third too slow: the encoder is always busy, and its frames have the full rate and a
/// delay of at most three frame intervals and the encoding time.
#[test]
fn a_slow_encoder_loses_the_share_that_it_cannot_encode() {
    for encoding_ms in [37, 40, 43, 50] {
        let sent = run(|_| encoding_ms);
        let encoded = sent.iter().filter(|row| row.left.is_some()).count() as u64;
        let most = SECONDS * 1_000 / encoding_ms;
        assert!(
            encoded >= most - 5,
            "{encoded} of {most} at {encoding_ms} ms"
        );
        let full = Rate::kbps(500) * Duration::from_nanos(1_000_000_000 / FPS);
        // The path is known after the first report.
        let settled = |row: &&SentFrame| row.left.is_some() && row.frame > FPS;
        for row in sent.iter().filter(settled) {
            assert!(row.target_bits + 8 >= full.bits(), "{row:?}");
            let delay = row.left.unwrap().since(row.captured);
            assert!(delay <= Duration::from_millis(100 + encoding_ms), "{row:?}");
        }
        let keys = sent.iter().filter(settled).filter(|row| row.key);
        assert_eq!(keys.count(), 0, "no reference is missing");
    }
}

/// The encoder is slow once, for nearly four frame intervals: one frame is lost.
#[test]
fn a_single_slow_frame_costs_one_frame() {
    let sent = run(|frame| if frame == 60 { 130 } else { 5 });
    let skipped = sent.iter().filter(|row| row.skipped).count();
    assert_eq!((sent.len() as u64, skipped), (SECONDS * FPS, 1));
}

/// A source with a picture for every third frame, which waits for each: the frames between are no
/// encoded, dropped or late ones, and the waits are no encoding times.
#[test]
fn frames_without_a_picture_are_passed_over() {
    let has_picture = |frame| frame % 3 == 0;
    let refusal = |order: &FrameOrder| {
        let refuses = !order.key && !has_picture(order.frame);
        refuses.then_some(EncodeError::Unchanged)
    };
    let sent = run_orders(|frame| if has_picture(frame) { 2 } else { 30 }, refusal);
    let frames: Vec<u64> = sent.iter().map(|row| row.frame).collect();
    assert_eq!(frames, (0..SECONDS * FPS).step_by(3).collect::<Vec<_>>());
    assert!(sent.iter().all(|row| row.left.is_some()));
    let late = Duration::from_millis(60);
    let mut settled = sent.iter().filter(|row| row.frame > FPS);
    assert!(settled.all(|row| row.left.unwrap().since(row.captured) < late));
}

/// The encoder restarts before it reads frame 60: no frame is lost, and this one is a key frame.
#[test]
fn a_restarted_encoder_gets_the_same_frame_as_a_key_frame() {
    let restarts = |order: &FrameOrder| order.frame == 60 && !order.key;
    let sent = run_orders(
        |_| 5,
        |order| restarts(order).then_some(EncodeError::Restarted),
    );
    assert_eq!(sent.len() as u64, SECONDS * FPS);
    assert!(sent.iter().all(|row| row.left.is_some()));
    let keys = sent.iter().filter(|row| row.key && row.frame > FPS);
    assert_eq!(keys.map(|row| row.frame).collect::<Vec<_>>(), [60]);
}

/// Frames of a stream over a path without delay; `encoding_ms` is the time to encode a frame.
fn run(encoding_ms: impl Fn(u64) -> u64) -> Vec<SentFrame> {
    run_orders(encoding_ms, |_| None)
}

/// The same for an encoder that refuses some orders.
fn run_orders(
    encoding_ms: impl Fn(u64) -> u64,
    refusal: impl Fn(&FrameOrder) -> Option<EncodeError>,
) -> Vec<SentFrame> {
    let mut rng = Seed(1).stream("session");
    let mut config = SenderConfig::new(
        Streams::with_ssrcs(1, 2),
        Cname::new("sender@example").unwrap(),
    );
    config.delay_bound = Some(Duration::from_millis(400));
    config.rates = (Rate::kbps(50), Rate::kbps(500));
    config.frames = Some(SECONDS * FPS);
    config.log = true;
    let control = Fixed::new(Rate::kbps(1_000)).into();
    let mut sender = MediaSender::new(config, control, None, &mut rng);
    let name = Cname::new("receiver@example").unwrap();
    let mut receiver = MediaReceiver::new(ReceiverConfig::new(9, name, Duration::from_millis(400)));
    let mut open: Option<(Time, FrameOrder)> = None;
    let (mut rows, mut packets) = (BTreeMap::new(), Vec::new());
    for ms in 0..(SECONDS + 1) * 1_000 {
        let mut cx = Context {
            now: Time::from_millis(ms),
            rng: &mut rng,
            trace: &mut (),
        };
        sender.handle(&mut cx, Input::Timeout);
        if let Some((_, order)) = open.take_if(|(ready, _)| *ready <= cx.now) {
            let result = refusal(&order).map_or_else(|| Ok(access_unit(&order)), Err);
            sender.on_encoded(cx.now, result);
        }
        if let Some(order) = sender.poll_order(&mut cx) {
            let took = Duration::from_millis(encoding_ms(order.frame));
            open = Some((cx.now + took, order));
        }
        let mut buffer = Vec::new();
        while sender.poll(&mut cx, &mut buffer).transmit().is_some() {
            receiver.handle(&mut cx, Input::Datagram(datagram(&buffer)));
            buffer.clear();
        }
        receiver.handle(&mut cx, Input::Timeout);
        while receiver.poll(&mut cx, &mut buffer).transmit().is_some() {
            sender.handle(&mut cx, Input::Datagram(datagram(&buffer)));
            buffer.clear();
        }
        let mut frames = Vec::new();
        sender.drain_rows(&mut frames, &mut packets);
        rows.extend(frames.into_iter().map(|row| (row.frame, row)));
    }
    rows.into_values().collect()
}

/// An access unit of the ordered size.
fn access_unit(order: &FrameOrder) -> Encoded {
    let share = order.rate * Duration::from_nanos(1_000_000_000 / FPS);
    let mut data = if order.key {
        [KEY_SETS, &[0, 0, 0, 1, 0x65]].concat()
    } else {
        vec![0, 0, 0, 1, 0x41]
    };
    data.resize(share.get().max(8) as usize, 0x88);
    Encoded {
        frame: order.frame,
        captured: order.captured,
        key: order.key,
        leading: false,
        data,
        quality: None,
    }
}

fn datagram(payload: &[u8]) -> Datagram<'_> {
    Datagram {
        ecn: Ecn::NotEct,
        dscp: 0,
        payload,
    }
}

const SECONDS: u64 = 10;
/// Parameter sets of a key frame.
const KEY_SETS: &[u8] = &[0, 0, 0, 1, 0x67, 0x42, 0, 0, 0, 1, 0x68, 0xce];
