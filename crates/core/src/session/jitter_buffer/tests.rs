use super::*;

const HOLD: Duration = Duration::from_millis(400);
const STEP: u64 = 3_000;

/// A frame of `n` slice payloads; a key frame starts with parameter sets.
fn payloads(key: bool, n: usize) -> Vec<Vec<u8>> {
    let slice = |i: usize| match (key, i) {
        (true, 0) => vec![0x78, 0, 2, 0x67, 0x42, 0, 2, 0x65, 0x88],
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

#[test]
fn memory_is_bounded_under_a_flood() {
    let mut f = Feeder::new();
    for i in 0..20_000_u64 {
        f.one(i * 7, 40, i * 3, false, &[0x61, 0x88], false);
    }
    assert!(f.buffer.stored <= MAX_PACKETS);
    assert!(f.buffer.out.len() <= MAX_FRAMES);
}
