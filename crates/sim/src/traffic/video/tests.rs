use std::sync::Arc;

use rand_pcg::Pcg64Mcg;
use tidegate_core::media::FrameRate;
use tidegate_core::random::Seed;

use super::*;
use crate::packet_agent::Outbox;
use crate::video_model::{VideoModel, VideoModelConfig};

/// Four frames of 3000, 900, 1200 and 100 bytes at 1 Mb/s and 25 frames per second.
fn four() -> Box<dyn FrameModel> {
    let text = "frame_rate 25\nrates 1000000\nkey 3000\n- 900\n- 1200\n- 100\n";
    let trace = Arc::new(FrameTrace::parse(text).unwrap());
    Box::new(TracePlayer::new(trace, 0))
}

/// Time in microseconds and size of each packet until `until`.
fn packets(source: &mut Source, from: Time, until: Time) -> Vec<(u64, u32)> {
    let mut rng = Pcg64Mcg::new(1);
    let mut out = Outbox::default();
    let mut trace = ();
    let mut sent = Vec::new();
    let mut now = from;
    while source.next_timer() < until && !source.is_done() {
        now = source.next_timer().max(now);
        let mut cx = AgentCx::new(now, &mut rng, &mut trace, &mut out);
        source.on_timer(&mut cx);
        sent.extend(out.drain().map(|p| (now.as_nanos() / 1_000, p.size)));
    }
    sent
}

fn config() -> SourceConfig {
    SourceConfig {
        key_interval: Some(4),
        ..SourceConfig::default()
    }
}

#[test]
fn frames_are_packetised_and_paced() {
    let mut source = Source::new(config(), four()).unwrap();
    let from = Time::from_millis(500);
    let sent = packets(&mut source, from, Time::from_millis(660));
    // Half of 40 ms, divided by the number of packets.
    assert_eq!(
        sent,
        [
            (500_000, 1_240),
            (506_666, 1_240),
            (513_333, 640),
            (540_000, 940),
            (580_000, 1_240),
            (620_000, 140),
        ]
    );
    let counters = source.counters();
    assert_eq!(
        (counters.frames, counters.keys, counters.packets),
        (4, 1, 6)
    );
    assert_eq!(
        (counters.media, counters.wire),
        (Bytes(5_200), Bytes(5_440))
    );
    // The next frame is a key frame again.
    assert_eq!(packets(&mut source, from, Time::from_millis(700)).len(), 3);
    assert_eq!(source.counters().keys, 2);
}

#[test]
fn zero_spread_sends_bursts() {
    let burst = SourceConfig {
        spread: 0.0,
        ..config()
    };
    let mut source = Source::new(burst, four()).unwrap();
    let sent = packets(&mut source, Time::ZERO, Time::from_millis(40));
    assert_eq!(sent, [(0, 1_240), (0, 1_240), (0, 640)]);
}

#[test]
fn rate_zero_skips_frames_and_delays_the_key_frame() {
    let paused = SourceConfig {
        rate: Schedule {
            first: Rate::kbps(1_000),
            steps: vec![
                (Time::from_millis(120), Rate::ZERO),
                (Time::from_millis(300), Rate::kbps(1_000)),
                (Time::from_millis(400), Rate::ZERO),
            ],
        },
        ..config()
    };
    let mut source = Source::new(paused, four()).unwrap();
    let sent = packets(&mut source, Time::ZERO, Time::from_secs(5));
    let counters = source.counters();
    // Frames at 0, 40, 80, 320 and 360 ms. The key frame due at 160 ms is sent at 320 ms.
    assert_eq!(
        (counters.frames, counters.keys, counters.skipped),
        (5, 2, 5)
    );
    assert_eq!(sent.iter().filter(|p| p.0 == 320_000).count(), 1);
    assert!(source.is_done());
}

#[test]
fn model_meets_the_rate_without_headers() {
    let model = VideoModelConfig {
        width: 640,
        height: 360,
        frame_rate: FrameRate::fps(30),
    };
    let model = VideoModel::new(model, Seed(4).stream("video"));
    let mut source = Source::new(SourceConfig::default(), Box::new(model)).unwrap();
    packets(&mut source, Time::ZERO, Time::from_secs(60));
    let counters = source.counters();
    let rate = counters.media.bits() as f64 / 60.0;
    assert!((rate / 1e6 - 1.0).abs() < 0.01, "{rate}");
    assert_eq!(counters.wire, counters.media + Bytes(40 * counters.packets));
    assert_eq!(counters.frames, 1_800);
}

#[test]
fn faults_are_named() {
    let fault = |config: SourceConfig| Source::new(config, four()).unwrap_err().to_string();
    assert_eq!(
        fault(SourceConfig {
            packet: Bytes(40),
            ..config()
        }),
        "a packet of 40 B with headers of 40 B is not possible: \
         write a size above the headers and up to 65535"
    );
    assert_eq!(
        fault(SourceConfig {
            spread: f64::NAN,
            ..config()
        }),
        "a spread of NaN is not in 0..=1, a share of the frame interval"
    );
    assert_eq!(
        fault(SourceConfig {
            key_interval: Some(0),
            ..config()
        }),
        "a key frame every 0 frames is not possible: write 1 or more, or remove the key"
    );
    assert_eq!(
        fault(SourceConfig {
            rate: Rate::ZERO.into(),
            ..config()
        }),
        "the rate is 0 at all times: write a rate above 0, or remove the flow"
    );
}
