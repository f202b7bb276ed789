//! Metrics of small synthetic runs with known results.

use std::path::Path;

use proptest::prelude::*;
use tidegate_core::media::{FrameRate, Quality};
use tidegate_core::trace::DropCause;
use tidegate_core::units::{Bytes, Rate};

use super::super::manifest::{CapacityStep, FlowInfo, FlowPath, Manifest, World};
use super::super::rows::{
    DropCauses, PacketRow, ReceivedFrame, SavableRow, SentFrame, ShownFrame, TotalsRow,
};
use super::*;
use crate::counts::Count;

/// 25 frames per second, bound 200 ms, one clock, ten seconds, one link of 8 kb/s.
fn run() -> Run {
    let mut manifest = Manifest::new(World::Sim, "hand-made", Duration::from_secs(10));
    manifest.flows.push(FlowInfo {
        name: "a".to_owned(),
        class: "a".to_owned(),
        control: "tide".to_owned(),
        baseline: false,
        delay_bound: Some(Duration::from_millis(200)),
        floor: Rate::kbps(150),
        frame_rate: Some(FrameRate::fps(25)),
        one_clock: true,
        way: FlowPath::default(),
        active: None,
    });
    manifest.links.push(LinkInfo {
        name: "l".to_owned(),
        capacity: vec![CapacityStep {
            from: Time::ZERO,
            rate: Some(Rate::kbps(8)),
        }],
        queue: String::new(),
        delay: Duration::ZERO,
        loss: 0.0,
        outages: vec![Span {
            from: Time::from_secs(4),
            to: Time::from_secs(6),
        }],
    });
    Run::new(Path::new("none"), manifest)
}

fn captured(frame: u64) -> Time {
    Time::from_millis(40 * frame)
}

fn sent(frame: u64) -> SentFrame {
    SentFrame {
        frame,
        rtp_timestamp: frame as u32 * 3_600,
        captured: captured(frame),
        kind: FrameKind::Delta,
        target_bits: 1_000,
        bits: 1_000,
        left: Some(captured(frame)),
        dropped: None,
        quality: None,
    }
}

fn received(frame: u64, delay_ms: u64) -> ReceivedFrame {
    let complete = captured(frame) + Duration::from_millis(delay_ms);
    ReceivedFrame {
        frame,
        rtp_timestamp: frame as u32 * 3_600,
        first: complete,
        complete: Some(complete),
        kind: FrameKind::Delta,
        bits: 1_000,
        decodable: true,
        quality: None,
    }
}

fn packet(seq: u64, sent_ms: u64, took_ms: Option<u64>) -> PacketRow {
    let sent = Time::from_millis(sent_ms);
    PacketRow {
        seq,
        kind: Kind::Media,
        size: Bytes(1_000),
        sent,
        arrived: took_ms.map(|ms| sent + Duration::from_millis(ms)),
        outcome: took_ms.map_or(PacketOutcome::Lost, |_| PacketOutcome::Received),
    }
}

fn shown(frame: u64, shown_frame: Option<u64>) -> ShownFrame {
    ShownFrame {
        frame,
        shown_frame,
        on_time: shown_frame == Some(frame),
        quality: shown_frame.map(|_| Quality {
            psnr_y: 30.0 + frame as f64,
            psnr_u: 40.0,
            psnr_v: 40.0,
            ssim: 0.9,
        }),
    }
}

#[test]
fn empty_run_has_no_metrics() {
    let summary = summarise(&run(), &[]);
    let flow = FlowSummary {
        name: "a".to_owned(),
        class: "a".to_owned(),
        control: "tide".to_owned(),
        ..FlowSummary::default()
    };
    assert_eq!(summary.flows, [flow]);
    let link = LinkSummary {
        name: "l".to_owned(),
        ..LinkSummary::default()
    };
    assert_eq!(summary.links, [link]);
}

#[test]
fn summary_json_has_the_documented_keys() {
    let text = serde_json::to_string(&summarise(&run(), &[])).expect("serializable");
    let expected = concat!(
        r#"{"scenario":"hand-made","seed":null,"flows":[{"name":"a","class":"a","control":"tide","#,
        r#""rate_bps":null,"receive_bps":null,"loss":null,"loss_event_rate":null,"rtt_ms":null,"completion_s":null,"packet_delay_ms":{"mean":null,"p50":null,"p95":null,"p99":null,"max":null},"delay_ms":{"p50":null,"p95":null,"p99":null,"max":null},"#,
        r#""queue_ms":{"mean":null,"p95":null},"frames":{"made":null,"sent":null,"on_time":null,"#,
        r#""savable":null,"late":null,"dropped":null},"psnr_y_db":null,"ssim":null,"#,
        r#""freezes":null}],"links":[{"name":"l","utilisation":null,"drops":null,"drops_queue":null,"drops_random":null,"drops_outage":null,"marks":null,"#,
        r#""queue_p95_ms":null}],"expect":[],"kept_up":null}"#
    );
    assert_eq!(text, expected);
}

#[test]
fn frames_have_one_of_four_outcomes() {
    let mut run = run();
    let flow = &mut run.flows[0];
    flow.sent = (0..8).map(sent).collect();
    flow.sent[5].dropped = Some(DropCause::Late);
    flow.sent[5].left = None;
    flow.sent[6].kind = FrameKind::Skipped;
    flow.sent[6].left = None;
    // Frames 0 and 1 are on time, 2 exactly so, 3 is late, 4 is incomplete, 7 never arrives.
    flow.received = vec![
        received(0, 50),
        received(1, 100),
        received(2, 200),
        received(3, 201),
        received(4, 10),
    ];
    flow.received[4].decodable = false;
    flow.savable = (0..8)
        .map(|frame| SavableRow {
            frame,
            savable: frame != 2 && frame != 7,
        })
        .collect();
    let outcomes: Vec<FrameState> = frame_outcomes(flow).iter().map(|s| s.fate).collect();
    let expected = {
        use FrameState::{Delivered as D, Dropped as X, Late as L, Lost as G};
        [D, D, D, L, G, X, X, G]
    };
    assert_eq!(outcomes, expected);

    let texts = [
        "a.on_time_of_savable == 0.333333",
        "a.on_time_of_all == 0.375",
    ];
    let expect = texts.map(|text| text.parse::<Expectation>().expect(text));
    let summary = summarise(&run, &expect);
    let frames = FrameSummary {
        made: Some(8),
        sent: Some(6),
        on_time: Some(3),
        savable: Some(6),
        late: Some(1),
        dropped: Some(2),
    };
    assert_eq!(summary.flows[0].frames, frames);
    // Of the savable frames 0, 1, 3, 4, 5 and 6, only 0 and 1 were on time.
    assert_eq!(summary.expect[0].measured, Some(0.333_333));
    assert!(summary.expect.iter().all(|verdict| verdict.holds));
    let delay = DelaySummary {
        p50: Some(100.0),
        p95: Some(201.0),
        p99: Some(201.0),
        max: Some(201.0),
    };
    assert_eq!(summary.flows[0].delay_ms, delay);
}

#[test]
fn frame_waits_for_its_references() {
    let mut run = run();
    let flow = &mut run.flows[0];
    flow.sent = (0..4).map(sent).collect();
    flow.received = vec![
        received(0, 30),
        received(1, 150),
        received(2, 30),
        received(3, 30),
    ];
    flow.received[3].kind = FrameKind::Key;
    let delays: Vec<Option<i64>> = frame_outcomes(flow).iter().map(|s| s.delay).collect();
    // Frame 1 was complete at 190 ms, 110 ms after the capture of frame 2; the key frame does not
    // wait.
    assert_eq!(delays, [30, 150, 110, 30].map(|ms| Some(ms * 1_000_000)));
}

#[test]
fn without_a_common_clock_only_variation_counts() {
    let mut run = run();
    let flow = &mut run.flows[0];
    flow.info.one_clock = false;
    flow.sent = (10..13).map(sent).collect();
    // The receiver's clock is behind the sender's.
    flow.received = vec![received(10, 0), received(11, 0), received(12, 0)];
    for (row, at) in flow.received.iter_mut().zip([50, 100, 137]) {
        row.complete = Some(Time::from_millis(at));
    }
    let with_rows = summarise(&run, &[]).flows.remove(0);
    assert_eq!(with_rows.delay_ms.max, Some(10.0));
    assert_eq!(with_rows.delay_ms.p50, Some(7.0));
    assert_eq!(
        (with_rows.frames.on_time, with_rows.frames.late),
        (None, None)
    );

    // The receiver's timestamps alone give the same.
    run.flows[0].sent.clear();
    let alone = summarise(&run, &[]).flows.remove(0);
    assert_eq!(alone.delay_ms, with_rows.delay_ms);
    let frames = alone.frames;
    assert_eq!((frames.made, frames.sent), (Some(3), None));
    assert_eq!((frames.on_time, frames.late), (Some(3), Some(0)));
    // A receiver compares the delay above the smallest with the bound.
    run.flows[0].info.delay_bound = Some(Duration::from_millis(8));
    let frames = summarise(&run, &[]).flows.remove(0).frames;
    assert_eq!((frames.on_time, frames.late), (Some(2), Some(1)));
}

/// Counters of two seconds: ten packets of 1,000 bytes, of which eight were received.
fn counters(dropped: u64) -> TotalsRow {
    let count = |packets| Count {
        packets,
        bytes: Bytes(1_000 * packets),
    };
    let totals = Totals {
        span: Duration::from_secs(2),
        sent: count(10),
        received: count(8),
        dropped,
        ..Totals::default()
    };
    let flow = "a".to_owned();
    TotalsRow { flow, totals }
}

/// A receiver has counters of its packets, but no delays.
#[test]
fn the_counters_of_a_receiver_give_rates_and_loss_only() {
    let mut run = run();
    run.flows[0].info.one_clock = false;
    run.totals = vec![counters(2)];
    let flow = summarise(&run, &[]).flows.remove(0);
    assert_eq!(
        (flow.rate_bps, flow.receive_bps),
        (Some(40_000.0), Some(32_000.0))
    );
    assert_eq!((flow.loss, flow.loss_event_rate), (Some(0.2), None));
    assert_eq!((flow.packet_delay_ms.p50, flow.queue_ms.mean), (None, None));
}

/// The arrival times of a sender are those of the receiver's clock, which may be far off.
#[test]
fn a_sender_counts_what_the_feedback_reports_as_received() {
    let mut run = run();
    run.flows[0].info.one_clock = false;
    run.flows[0].packets = vec![packet(0, 2_000, Some(90_000_000)), packet(1, 3_000, None)];
    let rates = |run: &Run| {
        let flow = summarise(run, &[]).flows.remove(0);
        (flow.rate_bps, flow.receive_bps)
    };
    let (sent, received) = rates(&run);
    assert_eq!(received, sent.map(|rate| rate / 2.0));
    run.flows[0].packets[0].outcome = PacketOutcome::Unknown;
    run.flows[0].packets[1].outcome = PacketOutcome::Unknown;
    assert_eq!(rates(&run), (sent, None));
}

#[test]
fn time_stamps_may_wrap() {
    let mut run = run();
    let flow = &mut run.flows[0];
    flow.received = (0..4).map(|frame| received(frame, 20)).collect();
    for row in &mut flow.received {
        row.rtp_timestamp = row.rtp_timestamp.wrapping_sub(4_000);
    }
    assert!(frame_outcomes(flow).iter().all(|s| s.delay == Some(0)));
}

#[test]
fn counters_give_rates_over_the_interval_that_they_cover() {
    let mut run = run();
    run.totals = vec![counters(1)];
    let numbers = |run: &Run| {
        let flow = summarise(run, &[]).flows.remove(0);
        (flow.rate_bps, flow.receive_bps, flow.loss)
    };
    let counted = (Some(40_000.0), Some(32_000.0), Some(0.1));
    assert_eq!(numbers(&run), counted);
    // Recorded packets add which packets are dummies and which packets of a video sender are media.
    run.flows[0].packets = vec![packet(0, 2_000, Some(30)), packet(1, 3_000, None)];
    assert_eq!(numbers(&run).2, Some(0.5));
    run.flows[0].info.frame_rate = None;
    assert_eq!(numbers(&run), counted);
    run.flows[0].packets[1].kind = Kind::Dummy;
    assert_eq!(numbers(&run).2, Some(0.0));
    run.totals[0].totals.span = Duration::ZERO;
    assert_eq!(numbers(&run).0, None);
}

/// Of four packets, frames and so on, two lie in the measured interval.
#[test]
fn metrics_cover_the_measured_interval() {
    let mut run = run();
    run.manifest.measure = Some(Span {
        from: Time::from_secs(4),
        to: Time::from_secs(8),
    });
    let flow = &mut run.flows[0];
    flow.info.active = Some(Span {
        from: Time::from_secs(1),
        to: Time::from_secs(6),
    });
    flow.packets = vec![
        packet(0, 3_000, Some(20)),
        packet(1, 4_000, Some(40)),
        packet(2, 5_000, None),
        packet(3, 9_000, None),
    ];
    // Of the slots from 2 s to 10 s, those from 4 s until just before 8 s.
    flow.sent = (50..250).map(sent).collect();
    flow.received = (50..250).map(|frame| received(frame, 20)).collect();
    let row = |frame| SavableRow {
        frame,
        savable: true,
    };
    flow.savable = (50..250).map(row).collect();
    let still = |frame: u64| frame < 95 || (150..160).contains(&frame) || frame > 240;
    let on_screen = |frame: u64| if still(frame) { 50 } else { frame };
    let slots = 50..250;
    flow.shown = slots
        .map(|slot| shown(slot, Some(on_screen(slot))))
        .collect();
    let sample = |second, delivered| LinkSample {
        at: Time::from_secs(second),
        run: "a".into(),
        link: "l".into(),
        queue: Bytes(10 * second),
        drops: 10 * second,
        causes: Some(DropCauses {
            random: 3 * second,
            outage: second,
        }),
        marks: second,
        delivered: Bytes(delivered),
    };
    let samples = [(0, 0), (4, 1_000), (7, 2_000), (8, 2_500), (9, 9_000)];
    let samples = samples.map(|(second, delivered)| sample(second, delivered));
    run.links = samples.into_iter().collect();
    let expect = "a.on_time_of_savable == 1"
        .parse()
        .expect("valid expectation");
    let mut summary = summarise(&run, &[expect]);
    let flow = summary.flows.remove(0);
    // 2,000 bytes in the two seconds in which the flow was both measured and active.
    assert_eq!(
        (flow.rate_bps, flow.receive_bps),
        (Some(8_000.0), Some(4_000.0))
    );
    assert_eq!(
        (flow.loss, flow.packet_delay_ms.max),
        (Some(0.5), Some(40.0))
    );
    assert_eq!(flow.queue_ms.mean, Some(20.0));
    assert_eq!(
        (flow.frames.made, flow.frames.on_time),
        (Some(100), Some(100))
    );
    assert_eq!((flow.frames.savable, flow.freezes), (Some(100), Some(1)));
    assert!(summary.expect[0].holds);
    // 8 kb/s for four seconds less two of outage.
    let link = &summary.links[0];
    assert_eq!((link.utilisation, link.drops), (Some(0.75), Some(40)));
    assert_eq!((link.marks, link.queue_p95_ms), (Some(4), Some(80.0)));
    let causes = (link.drops_queue, link.drops_random, link.drops_outage);
    assert_eq!(causes, (Some(24), Some(12), Some(4)));
    // Nothing happens in the measured interval.
    run.manifest.measure = Some(Span {
        from: Time::ZERO,
        to: Time::from_secs(1),
    });
    let flow = summarise(&run, &[]).flows.remove(0);
    assert_eq!((flow.frames.made, flow.freezes), (Some(0), None));
    assert_eq!((flow.rate_bps, flow.loss), (None, None));
}

#[test]
fn packets_give_rate_loss_and_queueing() {
    let mut run = run();
    let flow = &mut run.flows[0];
    // From 2 s to the end at 10 s: eight seconds.
    flow.packets = vec![
        packet(0, 2_000, Some(30)),
        packet(1, 3_000, Some(40)),
        packet(2, 4_000, Some(80)),
        packet(3, 5_000, None),
        packet(4, 10_000, None),
    ];
    flow.packets[4].outcome = PacketOutcome::Unknown;
    let mut dummy = packet(5, 9_000, None);
    dummy.kind = Kind::Dummy;
    flow.packets.push(dummy);
    let flow = summarise(&run, &[]).flows.remove(0);
    assert_eq!(flow.rate_bps, Some(6_000.0));
    assert_eq!(flow.loss, Some(0.25));
    let queue = QueueSummary {
        mean: Some(20.0),
        p95: Some(50.0),
    };
    assert_eq!(flow.queue_ms, queue);
}

#[test]
fn picture_displayed_over_150_ms_is_a_freeze() {
    // At 25 frames per second three intervals are 120 ms, so four slots are 160 ms and too long.
    let cases: [(&[Option<u64>], u64); 7] = [
        (&[Some(0), Some(1), Some(2)], 0),
        (&[Some(0), Some(0), Some(0), Some(3)], 0),
        (&[Some(0), Some(0), Some(0), Some(0), Some(4)], 1),
        (&[Some(0), Some(0), Some(1), Some(1), Some(1)], 0),
        (&[None, None, None, None, Some(4)], 1),
        (&[Some(0), Some(0), Some(0), Some(0)], 1),
        (&[None, None, None, None], 1),
    ];
    for (screen, freezes) in cases {
        let mut run = run();
        let rows = screen.iter().enumerate();
        run.flows[0].shown = rows.map(|(i, s)| shown(i as u64, *s)).collect();
        let flow = summarise(&run, &[]).flows.remove(0);
        assert_eq!(flow.freezes, Some(freezes), "{screen:?}");
    }
}

#[test]
fn frames_without_records_are_not_lost() {
    let mut run = run();
    let flow = &mut run.flows[0];
    flow.sent = (0..4).map(sent).collect();
    flow.savable = (0..4)
        .map(|frame| SavableRow {
            frame,
            savable: true,
        })
        .collect();
    // A path that delivers nothing: all frames are lost.
    flow.packets = vec![packet(0, 0, None)];
    let dead = summarise(&run, &[]).flows.remove(0);
    assert_eq!((dead.frames.on_time, dead.freezes), (Some(0), Some(1)));
    // Packets arrived, so frames arrived too, and only their rows are missing.
    run.flows[0].packets.push(packet(1, 40, Some(20)));
    let expect = "a.on_time_of_savable >= 0"
        .parse()
        .expect("valid expectation");
    let summary = summarise(&run, &[expect]);
    let unrecorded = &summary.flows[0];
    assert_eq!(
        (unrecorded.frames.on_time, unrecorded.freezes),
        (None, None)
    );
    assert_eq!(unrecorded.frames.made, Some(4));
    assert_eq!(summary.expect[0].measured, None);
}

/// Order of a sender over TCP: a frame that waited ends after the frames that were skipped.
#[test]
fn frames_count_in_any_order_of_their_ends() {
    let mut run = run();
    let flow = &mut run.flows[0];
    flow.sent = [4, 5, 6, 7, 0, 1, 2, 3].map(sent).to_vec();
    for row in &mut flow.sent[..4] {
        row.dropped = Some(DropCause::Skipped);
        row.left = None;
    }
    flow.received = (0..4).map(|frame| received(frame, 20)).collect();
    let order: Vec<u64> = frame_outcomes(flow).iter().map(|s| s.frame).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    let flow = summarise(&run, &[]).flows.remove(0);
    let frames = (flow.frames.made, flow.frames.sent, flow.frames.dropped);
    assert_eq!(frames, (Some(8), Some(4), Some(4)));
    assert_eq!(
        flow.freezes,
        Some(1),
        "expected a freeze from frame 3 to the end"
    );
}

#[test]
fn freezes_are_unknown_without_feedback() {
    let mut run = run();
    let flow = &mut run.flows[0];
    flow.info.one_clock = false;
    flow.sent = (0..8).map(sent).collect();
    assert_eq!(summarise(&run, &[]).flows[0].freezes, None);
    let mut unknown = packet(0, 0, None);
    unknown.outcome = PacketOutcome::Unknown;
    run.flows[0].packets = vec![unknown];
    assert_eq!(summarise(&run, &[]).flows[0].freezes, None);
    // It is known that nothing arrived.
    run.flows[0].packets = vec![packet(0, 0, None)];
    assert_eq!(summarise(&run, &[]).flows[0].freezes, Some(1));
}

#[test]
fn quality_is_the_mean_of_displayed_pictures() {
    let mut run = run();
    run.flows[0].shown = vec![shown(0, None), shown(1, Some(1)), shown(2, Some(1))];
    let flow = summarise(&run, &[]).flows.remove(0);
    assert_eq!((flow.psnr_y_db, flow.ssim), (Some(31.5), Some(0.9)));
}

#[test]
fn freezes_are_derived_from_frames_without_displayed_pictures() {
    let mut run = run();
    let flow = &mut run.flows[0];
    flow.sent = (0..10).map(sent).collect();
    let on_time = [0, 1, 2, 3, 8, 9];
    flow.received = on_time.map(|frame| received(frame, 20)).to_vec();
    let flow = summarise(&run, &[]).flows.remove(0);
    assert_eq!(flow.freezes, Some(1));
}

#[test]
fn links_are_those_of_the_first_flow_that_is_not_a_baseline() {
    let mut run = run();
    let mut baseline = run.flows[0].clone();
    baseline.info.baseline = true;
    baseline.info.name = "b".to_owned();
    run.flows.insert(0, baseline);
    let sample = |run: &str, second, queue, delivered| LinkSample {
        at: Time::from_secs(second),
        run: run.into(),
        link: "l".into(),
        queue: Bytes(queue),
        drops: second,
        marks: 2 * second,
        delivered: Bytes(delivered),
        causes: (run == "a").then_some(DropCauses {
            random: second / 2,
            outage: second / 5,
        }),
    };
    run.links = [
        sample("b", 0, 0, 0),
        sample("b", 10, 9_000, 9_000),
        sample("a", 0, 0, 0),
        sample("a", 5, 500, 2_000),
        sample("a", 10, 100, 6_000),
        // After the end of the run, packets in flight arrive.
        sample("a", 12, 9_000, 6_100),
    ]
    .into_iter()
    .collect();
    run.manifest.duration = Duration::from_secs(10);
    let link = summarise(&run, &[]).links.remove(0);
    // 8 kb/s for ten seconds less two of outage are 8000 bytes; 500 bytes drain in 500 ms.
    let expected = LinkSummary {
        name: "l".to_owned(),
        utilisation: Some(0.75),
        drops: Some(10),
        drops_queue: Some(3),
        drops_random: Some(5),
        drops_outage: Some(2),
        marks: Some(20),
        queue_p95_ms: Some(500.0),
    };
    assert_eq!(link, expected);
}

proptest! {
    #[test]
    fn nearest_rank_has_its_share_at_or_below(
        mut values in prop::collection::vec(-1_000_i64..1_000, 1..200),
        percent in 1_usize..=100,
    ) {
        values.sort_unstable();
        let found = nearest_rank(&values, percent).expect("the list is not empty");
        let at_most = values.iter().filter(|v| **v <= found).count();
        let below = values.iter().filter(|v| **v < found).count();
        prop_assert!(at_most * 100 >= percent * values.len());
        prop_assert!(below * 100 < percent * values.len());
    }

    #[test]
    fn every_frame_has_one_outcome(
        delays in prop::collection::vec(prop::option::of(0_u64..400), 1..60),
        dropped in prop::collection::vec(any::<bool>(), 60),
    ) {
        let mut run = run();
        let flow = &mut run.flows[0];
        for (frame, (delay, dropped)) in delays.iter().zip(dropped).enumerate() {
            let frame = frame as u64;
            flow.sent.push(SentFrame {
                dropped: dropped.then_some(DropCause::Late),
                ..sent(frame)
            });
            if let (Some(delay), false) = (delay, dropped) {
                flow.received.push(received(frame, *delay));
            }
        }
        let lost = frame_outcomes(flow).iter().filter(|s| s.fate == FrameState::Lost).count() as u64;
        let frames = summarise(&run, &[]).flows.remove(0).frames;
        let ends = [frames.on_time, frames.late, frames.dropped].map(|n| n.expect("judged"));
        prop_assert_eq!(ends.iter().sum::<u64>() + lost, delays.len() as u64);
    }
}
