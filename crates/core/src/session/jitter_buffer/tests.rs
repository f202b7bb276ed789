use super::*;
use crate::wire::rtcp::Cname;
use crate::wire::sdp::ParameterSets;

const HOLD: Duration = Duration::from_millis(400);
const STEP: u64 = 3_000;

/// A frame of `n` slice payloads; a key frame starts with parameter sets.
fn payloads(key: bool, n: usize) -> Vec<Vec<u8>> {
    let slice = |i: usize| match (key, i) {
        (true, 0) => vec![0x78, 0, 2, 0x67, 0x42, 0, 2, 0x68, 0xce, 0, 2, 0x65, 0x88],
        (true, _) => vec![0x65, 0x10, i as u8],
        (false, 0) => vec![0x61, 0x88],
        (false, _) => vec![0x61, 0x10, i as u8],
    };
    (0..n).map(slice).collect()
}

struct Feeder {
    buffer: JitterBuffer,
    seq: u64,
}

impl Feeder {
    fn new() -> Self {
        Self {
            buffer: JitterBuffer::new(Codec::H264, HOLD),
            seq: 100,
        }
    }

    /// Delivers frame `n` at `ms`, except the payloads in `lose`; returns its first sequence
    /// number.
    fn frame(&mut self, n: u64, ms: u64, key: bool, parts: usize, lose: &[usize]) -> u64 {
        let first = self.seq;
        for (i, payload) in payloads(key, parts).iter().enumerate() {
            if !lose.contains(&i) {
                self.one(n, ms, first + i as u64, i + 1 == parts, payload, false);
            }
        }
        self.seq += parts as u64;
        first
    }

    fn one(&mut self, n: u64, ms: u64, seq: u64, marker: bool, payload: &[u8], repaired: bool) {
        self.buffer.on_packet(
            Time::from_millis(ms),
            &MediaPacket {
                seq,
                timestamp: n * STEP,
                marker,
                repaired,
                payload,
            },
        );
    }

    fn out(&mut self) -> Vec<(u64, Option<u64>)> {
        core::iter::from_fn(|| self.buffer.poll())
            .map(|f| {
                (
                    f.timestamp / STEP,
                    f.complete.map(|t| t.as_nanos() / 1_000_000),
                )
            })
            .collect()
    }
}

#[test]
fn complete_frames_are_released_at_once_and_in_order() {
    let mut f = Feeder::new();
    f.frame(0, 40, true, 3, &[]);
    f.frame(1, 73, false, 1, &[]);
    f.frame(2, 107, false, 2, &[]);
    assert_eq!(f.out(), [(0, Some(40)), (1, Some(73)), (2, Some(107))]);
}

#[test]
fn a_timely_retransmission_saves_the_frame_and_its_dependents() {
    let mut f = Feeder::new();
    f.frame(0, 40, true, 1, &[]);
    let first = f.frame(1, 73, false, 3, &[1]);
    f.frame(2, 107, false, 1, &[]);
    assert_eq!(f.out(), [(0, Some(40))]);
    f.one(1, 180, first + 1, false, &payloads(false, 3)[1], true);
    assert_eq!(f.out(), [(1, Some(180)), (2, Some(180))]);
}

#[test]
fn a_discarded_frame_discards_its_dependents_up_to_a_key_frame() {
    let mut f = Feeder::new();
    f.frame(0, 40, true, 1, &[]);
    f.frame(1, 73, false, 2, &[0]);
    f.frame(2, 107, false, 1, &[]);
    f.frame(3, 140, true, 2, &[]);
    // The earliest arrival of frame 1 is 73.33 ms; it is discarded 400 ms later.
    let due = f.buffer.next_timeout().unwrap();
    assert_eq!(due.as_nanos() / 1_000_000, 473);
    assert!(!f.buffer.on_timeout(Time::from_millis(472)));
    // The key frame that has arrived restores the references: no request is needed.
    assert!(!f.buffer.on_timeout(due));
    assert_eq!(
        f.out(),
        [(0, Some(40)), (1, None), (2, None), (3, Some(140))]
    );
    assert!(f.buffer.is_intact());
}

#[test]
fn a_key_frame_does_not_wait_for_earlier_losses() {
    let mut f = Feeder::new();
    f.frame(0, 40, true, 1, &[]);
    f.buffer.break_chain();
    f.frame(1, 73, false, 2, &[1]);
    f.frame(2, 107, true, 2, &[]);
    f.frame(3, 140, false, 1, &[]);
    assert_eq!(
        f.out(),
        [(0, Some(40)), (1, None), (2, Some(107)), (3, Some(140))]
    );
}

/// It restores the references, sooner than a further request could.
#[test]
fn a_key_frame_that_arrives_late_is_waited_for() {
    let mut f = Feeder::new();
    f.frame(0, 40, true, 1, &[]);
    f.buffer.break_chain();
    let key = f.frame(1, 500, true, 2, &[1]);
    assert!(!f.buffer.is_intact());
    f.buffer.on_timeout(Time::from_millis(500));
    f.one(1, 510, key + 1, true, &payloads(true, 2)[1], false);
    f.frame(2, 520, false, 1, &[]);
    assert_eq!(f.out(), [(0, Some(40)), (1, Some(510)), (2, Some(520))]);

    // One that is never complete is not waited for without a limit.
    f.frame(3, 530, false, 2, &[0]);
    f.buffer.break_chain();
    f.frame(4, 1_000, true, 2, &[0]);
    f.buffer.on_timeout(Time::from_secs(3));
    assert_eq!(f.out(), [(3, None), (4, None)]);
}

#[test]
fn a_late_retransmission_saves_the_dependents_within_a_limit() {
    let mut f = Feeder::new();
    f.frame(0, 40, true, 1, &[]);
    let first = f.frame(1, 73, false, 2, &[0]);
    f.frame(2, 107, false, 1, &[]);
    assert!(!f.buffer.on_timeout(Time::from_millis(500)));
    assert_eq!(f.out(), [(0, Some(40))]);
    f.one(1, 510, first, false, &payloads(false, 2)[0], true);
    assert_eq!(f.out(), [(1, Some(510)), (2, Some(510))]);

    let second = f.frame(3, 530, false, 2, &[1]);
    let own = f.buffer.next_timeout().unwrap();
    assert!(!f.buffer.on_timeout(own));
    let last = f.buffer.next_timeout().unwrap();
    assert_eq!(last, own + LATE_REPAIR);
    assert!(f.buffer.on_timeout(last));
    assert_eq!(f.out(), [(3, None)]);
    assert_eq!(second + 2, f.seq);
}

#[test]
fn a_completely_lost_frame_is_waited_for() {
    let mut f = Feeder::new();
    f.frame(0, 40, true, 1, &[]);
    let lost = f.frame(1, 73, false, 1, &[0]);
    f.frame(2, 107, false, 1, &[]);
    assert_eq!(f.out(), [(0, Some(40))]);
    f.one(1, 200, lost, true, &payloads(false, 1)[0], true);
    assert_eq!(f.out(), [(1, Some(200)), (2, Some(200))]);
}

fn config() -> ReceiverConfig {
    ReceiverConfig::new(3, Cname::new("receiver@example").unwrap(), HOLD)
}

/// A buffer that releases frames without their references.
fn concealing() -> Feeder {
    let config = ReceiverConfig {
        conceal: true,
        ..config()
    };
    let buffer = JitterBuffer::of_receiver(&config);
    Feeder { buffer, seq: 100 }
}

#[test]
fn frames_after_a_loss_are_released_with_blemishes() {
    let mut f = concealing();
    // Nothing precedes the first key frame.
    f.frame(0, 7, false, 1, &[]);
    f.frame(1, 40, true, 1, &[]);
    assert_eq!(f.out(), [(0, None), (1, Some(40))]);
    f.frame(2, 73, false, 2, &[0]);
    f.frame(3, 107, false, 1, &[]);
    assert_eq!(f.out(), []);
    // At the deadline, without a wait for a late retransmission.
    let due = f.buffer.next_timeout().unwrap();
    assert_eq!(due.as_nanos() / 1_000_000, 473);
    assert!(f.buffer.on_timeout(due));
    let next = |f: &mut Feeder| {
        f.buffer
            .poll()
            .map(|frame| (frame.timestamp / STEP, frame.complete, frame.data.len()))
    };
    assert_eq!(next(&mut f), Some((2, None, 0)));
    assert_eq!(next(&mut f), Some((3, None, 6)));
    // Later ones do not wait, whole ones before a key frame included.
    f.frame(4, 480, false, 1, &[]);
    assert_eq!(next(&mut f), Some((4, None, 6)));
    f.frame(5, 510, false, 1, &[0]);
    f.frame(6, 540, false, 1, &[]);
    assert_eq!(next(&mut f), None);
    f.frame(7, 570, true, 1, &[]);
    assert_eq!(next(&mut f), Some((6, None, 6)));
    assert_eq!(next(&mut f).map(|frame| frame.0), Some(7));
    assert!(f.buffer.is_intact());
    f.frame(8, 600, false, 1, &[]);
    assert_eq!(f.out(), [(8, Some(600))]);
}

#[test]
fn a_frame_after_a_lost_one_is_released_at_its_deadline() {
    let mut f = concealing();
    f.frame(0, 40, true, 1, &[]);
    f.frame(1, 73, false, 1, &[0]);
    f.frame(2, 107, false, 1, &[]);
    assert_eq!(f.out(), [(0, Some(40))]);
    let due = f.buffer.next_timeout().unwrap();
    assert!(f.buffer.on_timeout(due), "a key frame is needed");
    let frame = f.buffer.poll().unwrap();
    assert_eq!((frame.timestamp, frame.complete), (2 * STEP, None));
    assert_eq!(frame.data, [0, 0, 0, 1, 0x61, 0x88]);
}

#[test]
fn memory_is_bounded_under_a_flood() {
    let mut f = Feeder::new();
    for i in 0..20_000_u64 {
        f.one(i * 7, 40, i * 3, false, &[0x61, 0x88], false);
    }
    assert!(f.buffer.stored <= MAX_PACKETS);
    assert!(f.buffer.out.len() <= MAX_FRAMES);
}

/// Packets as other senders make them.
struct Foreign {
    buffer: JitterBuffer,
    now: Time,
    seq: u64,
}

const SPS: &[u8] = &[0x67, 0x42, 0, 0x1f];
const PPS: &[u8] = &[0x68, 0xce];
const SEI: &[u8] = &[0x06, 5];

impl Foreign {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(parameter_sets: Option<ParameterSets>) -> Self {
        let config = ReceiverConfig {
            parameter_sets,
            ..config()
        };
        Self {
            buffer: JitterBuffer::of_receiver(&config),
            now: Time::from_millis(1_000),
            seq: 65_600,
        }
    }

    /// Delivers the next packet; returns its number.
    fn packet(&mut self, n: u64, marker: bool, payload: &[u8]) -> u64 {
        let seq = self.seq;
        self.seq += 1;
        self.deliver(seq, n, marker, payload);
        seq
    }

    fn deliver(&mut self, seq: u64, n: u64, marker: bool, payload: &[u8]) {
        let packet = MediaPacket {
            seq,
            timestamp: (1_000 + n) * STEP,
            marker,
            repaired: false,
            payload,
        };
        self.buffer.on_packet(self.now, &packet);
    }

    /// Delivers frame `n` of two slices with these units before it; returns its byte stream.
    fn frame(&mut self, n: u64, before: &[&[u8]], marker: impl Fn(bool) -> bool) -> Vec<u8> {
        let unit = if before.is_empty() { 0x41 } else { 0x65 };
        let slices = [[unit, 0x88, n as u8], [unit, 0x20, n as u8]];
        let units = before.iter().copied().chain(slices.iter().map(|s| &s[..]));
        let units: Vec<&[u8]> = units.collect();
        for (i, unit) in units.iter().enumerate() {
            self.packet(n, marker(i + 1 == units.len()), unit);
        }
        self.now += Duration::from_millis(33);
        stream(&units)
    }

    /// Frame numbers, and byte streams of whole frames, since the last call.
    fn out(&mut self) -> Vec<(u64, Vec<u8>)> {
        core::iter::from_fn(|| self.buffer.poll())
            .inspect(|frame| assert_eq!(frame.complete.is_some(), !frame.data.is_empty()))
            .map(|frame| (frame.timestamp / STEP - 1_000, frame.data))
            .collect()
    }
}

fn stream(units: &[&[u8]]) -> Vec<u8> {
    let marked = units.iter().flat_map(|unit| [&[0, 0, 0, 1], *unit]);
    marked.collect::<Vec<_>>().concat()
}

//= rfc6184-5.1-marker-hint (test)
#[test]
fn access_units_do_not_depend_on_the_marker() {
    for is_marked in [true, false] {
        let mut f = Foreign::new();
        let (mut sent, mut whole) = (Vec::new(), Vec::new());
        for n in 0..60 {
            let key: &[&[u8]] = if n % 20 == 0 { &[SPS, PPS, SEI] } else { &[] };
            sent.push((n, f.frame(n, key, |_| is_marked)));
            whole.extend(f.out());
            assert_eq!(
                whole.len() as u64,
                n,
                "the newest frame waits for the next one"
            );
        }
        // Nothing follows the last frame.
        let end = f.buffer.next_timeout().unwrap();
        assert!(!f.buffer.on_timeout(end));
        whole.extend(f.out());
        assert_eq!(whole, sent);
    }
}

#[test]
fn parameter_sets_with_the_time_of_the_picture_before_belong_to_the_next_one() {
    let mut f = Foreign::new();
    let (mut sent, mut whole) = (Vec::new(), Vec::new());
    for n in 0..60_u64 {
        let slice: &[u8] = &[if n % 20 == 0 { 0x65 } else { 0x41 }, 0x88, n as u8];
        if n % 20 == 0 {
            f.packet(n.saturating_sub(1), true, SPS);
            f.packet(n.saturating_sub(1), false, PPS);
            sent.push((n, stream(&[SPS, PPS, slice])));
        } else {
            sent.push((n, stream(&[slice])));
        }
        f.packet(n, true, slice);
        whole.extend(f.out());
        // The marker of the first sequence parameter set raises a doubt, which ten pictures dispel.
        let waits = u64::from(n <= 10);
        assert_eq!(whole.len() as u64, n + 1 - waits, "frame {n}");
        f.now += Duration::from_millis(33);
    }
    assert_eq!(whole, sent);
}

#[test]
fn packets_without_payload_are_no_gaps() {
    let mut f = Foreign::new();
    let mut sent = vec![(0, f.frame(0, &[SPS, PPS], |last| last))];
    for n in 1..40 {
        let slices: [&[u8]; 2] = [&[0x41, 0x88, n as u8], &[0x41, 0x20]];
        let filler: &[u8] = if n % 2 == 0 { &[] } else { &[0x0c, 0xff] };
        let seq = f.seq;
        f.seq += 6;
        let packets = [
            (0, n, false, slices[0]),
            (1, n, false, filler),
            (2, n, true, slices[1]),
            (3, n, false, filler),
            (4, n, false, filler),
            // Some senders use the time of the next picture.
            (5, n + 1, false, filler),
        ];
        // In order, and reordered.
        for i in 0..6 {
            let (place, time, marker, payload) = packets[(i + n as usize % 5) % 6];
            f.deliver(seq + place, time, marker, payload);
        }
        f.now += Duration::from_millis(33);
        sent.push((n, stream(&slices)));
        let whole = f.out();
        assert_eq!(whole.last().map(|(n, _)| *n), Some(n), "at once");
        for (n, data) in whole {
            let (number, units) = &sent[n as usize];
            assert_eq!((n, data.starts_with(&units[..7])), (*number, true));
        }
    }
    assert_eq!(f.buffer.held().0, 0);
}

#[test]
fn frames_keep_their_decoding_order() {
    let mut f = Foreign::new();
    f.frame(0, &[SPS, PPS], |last| last);
    // I P B B P B B, by presentation time.
    for n in [3, 1, 2, 6, 4, 5] {
        f.frame(n, &[], |last| last);
    }
    let order: Vec<u64> = f
        .out()
        .into_iter()
        .map(|(n, data)| n + u64::from(data.is_empty()) * 100)
        .collect();
    assert_eq!(order, [0, 3, 1, 2, 6, 4, 5]);

    // A lost B picture is waited for, and nothing overtakes it.
    f.seq += 1;
    f.frame(8, &[], |last| last);
    assert!(f.out().is_empty());
    f.deliver(f.seq - 3, 9, true, &[0x41, 0x88, 1]);
    let order: Vec<u64> = f.out().into_iter().map(|(n, _)| n).collect();
    assert_eq!(order, [9, 8]);
}

#[test]
fn a_frame_whose_rest_was_never_sent_is_not_whole() {
    let mut f = Foreign::new();
    f.frame(0, &[SPS, PPS], |last| last);
    // Cut within a fragmented slice, and after a whole slice.
    for (n, cut) in [(1, &[0x7c, 0x81, 0x88][..]), (31, &[0x41, 0x88])] {
        f.now = Time::from_millis(1_000 + 33 * n);
        f.packet(n, false, cut);
        let key = f.frame(n + 1, &[SPS, PPS], |last| last);
        f.now += HOLD;
        f.buffer.on_timeout(f.now);
        let mut out = f.out();
        assert_eq!(
            out.split_off(out.len() - 2),
            [(n, Vec::new()), (n + 1, key)]
        );
    }
    // The sender no longer sets markers.
    f.now = Time::from_millis(1_000 + 33 * 60);
    for n in 60..65 {
        f.frame(n, &[], |_| false);
    }
    f.now += HOLD;
    f.buffer.on_timeout(f.now);
    f.now = Time::from_millis(1_000 + 33 * 90);
    let mut sent = vec![(90, f.frame(90, &[SPS, PPS], |_| false))];
    sent.extend((91..100).map(|n| (n, f.frame(n, &[], |_| false))));
    f.frame(100, &[], |_| false);
    let out = f.out();
    assert!(out.ends_with(&sent), "{out:?}");
}

/// At the start of the stream nothing shows that no packet precedes it.
#[test]
fn a_stream_may_begin_with_supplemental_information() {
    let mut f = Foreign::new();
    let key = f.frame(0, &[SEI, SPS, PPS, SEI], |last| last);
    assert_eq!(f.out(), [(0, key)]);
    // Without its parameter sets a frame is incomplete, and waits.
    let mut f = Foreign::new();
    f.frame(0, &[PPS, SEI], |last| last);
    assert_eq!(f.out(), []);
}

//= rfc6184-8.1-sprop (test)
#[test]
fn key_frames_without_parameter_sets_get_those_of_the_description() {
    let sets = ParameterSets::new(SPS, PPS).unwrap();
    let mut f = Foreign::with(Some(sets));
    let key: &[u8] = &[0x65, 0x88];
    f.packet(0, true, key);
    f.packet(1, true, &[0x41, 0x88]);
    assert_eq!(
        f.out(),
        [(0, stream(&[SPS, PPS, key])), (1, stream(&[&[0x41, 0x88]]))]
    );
    // Sets of the stream replace them.
    let other: &[u8] = &[0x67, 0x64, 0, 0x1f];
    let with_sets = f.frame(2, &[other, PPS], |last| last);
    let (_, data) = f.out().remove(0);
    assert!(data.ends_with(&with_sets));
    f.packet(3, true, key);
    assert_eq!(f.out(), [(3, stream(&[key]))]);
    assert_eq!(f.buffer.without_sets(), 0);
}

#[test]
fn frames_without_any_parameter_sets_do_not_count() {
    let mut f = Foreign::new();
    for n in 0..30 {
        let unit = if n % 10 == 0 { 0x65 } else { 0x41 };
        f.packet(n, true, &[unit, 0x88]);
        f.now += Duration::from_millis(33);
    }
    assert!(f.out().iter().all(|(_, data)| data.is_empty()));
    assert_eq!(f.buffer.without_sets(), 3);
    assert!(!f.buffer.is_intact());
    // The first key frame with sets is decodable.
    let key = f.frame(30, &[SPS, PPS], |last| last);
    assert_eq!(f.out().pop(), Some((30, key)));
}

/// Supplemental information of a recovery point at its picture, and one after 2 reference pictures.
const RECOVERY: &[u8] = &[0x06, 6, 1, 0xc4, 0x80];
const REFRESH: &[u8] = &[0x06, 6, 1, 0x70, 0x80];
const INTRA: &[u8] = &[0x41, 0x88, 7];
const PREDICTED: &[u8] = &[0x41, 0x9a, 7];
/// A B slice to which no picture refers.
const BIDIRECTIONAL: &[u8] = &[0x01, 0x9e, 7];

impl Foreign {
    /// Delivers frame `n` of these units.
    fn units(&mut self, n: u64, units: &[&[u8]]) {
        for (i, unit) in units.iter().enumerate() {
            self.packet(n, i + 1 == units.len(), unit);
        }
        self.now += Duration::from_millis(33);
    }

    /// Numbers of the frames since the last call: whole, with data alone, and without.
    fn sorted(&mut self) -> [Vec<u64>; 3] {
        let mut sorted = [const { Vec::new() }; 3];
        while let Some(frame) = self.buffer.poll() {
            let kind = match (frame.complete, frame.data.is_empty()) {
                (Some(_), false) => 0,
                (None, false) => 1,
                _ => 2,
            };
            sorted[kind].push(frame.timestamp / STEP - 1_000);
        }
        sorted
    }
}

#[test]
fn decoding_starts_at_a_recovery_point_without_its_leading_pictures() {
    let mut f = Foreign::new();
    f.units(3, &[PREDICTED]);
    f.units(2, &[BIDIRECTIONAL]);
    f.units(7, &[SPS, PPS, RECOVERY, INTRA]);
    // In an open group these refer to frame 3 too.
    f.units(6, &[BIDIRECTIONAL]);
    f.units(5, &[BIDIRECTIONAL]);
    f.units(9, &[PREDICTED]);
    f.units(8, &[BIDIRECTIONAL]);
    assert_eq!(f.sorted(), [vec![7, 9, 8], vec![], vec![3, 2, 6, 5]]);
    assert!(f.buffer.is_intact());
    // The leading pictures of the next one have their references.
    f.units(13, &[RECOVERY, INTRA]);
    f.units(12, &[BIDIRECTIONAL]);
    f.units(15, &[PREDICTED]);
    assert_eq!(f.sorted(), [vec![13, 12, 15], vec![], vec![]]);
}

#[test]
fn after_a_loss_decoding_continues_at_a_recovery_point() {
    let mut f = Foreign::new();
    f.units(0, &[SPS, PPS, RECOVERY, INTRA]);
    f.packet(1, false, PREDICTED);
    f.seq += 1;
    f.units(2, &[PREDICTED]);
    f.units(5, &[SPS, PPS, RECOVERY, INTRA]);
    // A leading picture is of no use, so that its loss breaks nothing.
    f.seq += 1;
    f.packet(4, true, &[0x01, 0x40, 7]);
    f.units(6, &[PREDICTED]);
    let due = f.buffer.next_timeout().unwrap();
    assert!(!f.buffer.on_timeout(due));
    let mut sorted = f.sorted();
    while let Some(due) = f.buffer.next_timeout() {
        assert!(!f.buffer.on_timeout(due));
        for (all, some) in sorted.iter_mut().zip(f.sorted()) {
            all.extend(some);
        }
    }
    assert_eq!(sorted, [vec![0, 5, 6], vec![], vec![1, 2, 4]]);
}

#[test]
fn pictures_of_a_gradual_refresh_count_from_the_recovery_on() {
    let mut f = Foreign::new();
    f.units(0, &[SPS, PPS, REFRESH, PREDICTED]);
    f.units(1, &[BIDIRECTIONAL]);
    f.units(2, &[PREDICTED]);
    f.units(3, &[PREDICTED]);
    f.units(4, &[SPS, PPS, REFRESH, PREDICTED]);
    f.units(5, &[PREDICTED]);
    assert_eq!(f.sorted(), [vec![3, 4, 5], vec![0, 1, 2], vec![]]);
    // Parameter sets alone are no access point.
    let mut f = Foreign::new();
    f.units(0, &[SPS, PPS, PREDICTED]);
    f.units(1, &[SPS, PPS, INTRA]);
    assert_eq!(f.sorted(), [vec![1], vec![], vec![0]]);
}
