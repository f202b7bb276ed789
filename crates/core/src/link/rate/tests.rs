use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn trace(text: &str) -> Transmitter {
    Transmitter::new(Capacity::Trace(Trace::parse(text).unwrap()))
}

#[test]
fn a_packet_spans_steps_and_stalls() {
    let steps = Steps::new(&[
        (Time::ZERO, Rate::kbps(8)),
        (ms(1_000), Rate::ZERO),
        (ms(3_000), Rate::kbps(80)),
    ]);
    let mut tx = Transmitter::new(Capacity::Steps(steps.unwrap()));
    // 1000 bytes take 1 s at 8 kb/s: half before the stall, half in 50 ms after it.
    assert_eq!(tx.serve(ms(500), Bytes(1_000)), Some(ms(3_050)));
    assert_eq!(tx.serve(ms(3_050), Bytes(1_000)), Some(ms(3_150)));
    assert_eq!(
        tx.capacity().offered(ms(500), ms(3_050)),
        Some(Bytes(1_000))
    );
    assert_eq!(tx.capacity().rate_at(ms(1_000)), Some(Rate::ZERO));
    assert_eq!(tx.capacity().rate_at(ms(999)), Some(Rate::kbps(8)));
}

#[test]
fn a_last_step_of_zero_never_ends() {
    let steps = Steps::new(&[(Time::ZERO, Rate::kbps(8)), (ms(1), Rate::ZERO)]).unwrap();
    let mut tx = Transmitter::new(Capacity::Steps(steps));
    assert_eq!(tx.serve(Time::ZERO, Bytes(1)), Some(ms(1)));
    assert_eq!(tx.serve(ms(1), Bytes(1)), None);
}

#[test]
fn a_trace_carries_bytes_over_and_repeats() {
    // Two opportunities at 1 ms, one at 4 ms, repeated from 4 ms on.
    let mut tx = trace("1\n1\n4\n");
    assert_eq!(tx.serve(Time::ZERO, Bytes(1_000)), Some(ms(1)));
    // Uses the remaining 500 bytes of the first opportunity and 1000 of the second.
    assert_eq!(tx.serve(ms(1), Bytes(1_500)), Some(ms(1)));
    assert_eq!(tx.serve(ms(1), Bytes(500)), Some(ms(1)));
    assert_eq!(tx.serve(ms(1), Bytes(1)), Some(ms(4)));
    // The remaining 1499 bytes expire before the next packet arrives.
    assert_eq!(
        tx.serve(Time::from_nanos(4_000_001), Bytes(1_499)),
        Some(ms(5))
    );
    // One byte of the first at 5 ms, all of the second, one byte of the one at 8 ms.
    assert_eq!(tx.serve(ms(5), Bytes(1_502)), Some(ms(8)));
    assert_eq!(tx.capacity().offered(ms(0), ms(8)), Some(Bytes(5 * 1_500)));
    assert_eq!(tx.capacity().offered(ms(4), ms(5)), Some(Bytes(1_500)));
    assert_eq!(tx.capacity().nominal(), Some(Rate::bps(9_000_000)));
}

#[test]
fn a_trace_that_starts_at_zero_and_wraps_onto_itself() {
    let mut tx = trace("0\n10\n");
    let ends: Vec<_> = (0..5)
        .map(|_| tx.serve(Time::ZERO, Bytes(1_500)).unwrap())
        .collect();
    assert_eq!(ends, [ms(0), ms(10), ms(10), ms(20), ms(20)]);
}

#[test]
fn errors_of_traces_name_the_line() {
    assert_eq!(Trace::parse("\n"), Err(TraceError::Empty));
    assert_eq!(Trace::parse("0\n0"), Err(TraceError::NoPeriod));
    let back = TraceError::GoesBack {
        line: 3,
        at: 4,
        before: 5,
    };
    assert_eq!(Trace::parse("5\n\n4"), Err(back));
    let word = Trace::parse("5\nsix\n").unwrap_err();
    assert!(
        word.to_string().starts_with("line 2 of the trace: `six`"),
        "{word}"
    );
    assert!(matches!(
        Trace::parse("4294967296"),
        Err(TraceError::NotANumber { line: 1, .. })
    ));
}

fn capacity() -> impl Strategy<Value = Capacity> {
    let rate = prop_oneof![
        Just(0_u64),
        1..10_000_u64,
        1_000_000..=1_000_000_000_000_u64
    ];
    let steps = prop::collection::vec((1..2_000_000_000_u64, rate), 1..8).prop_map(|gaps| {
        let mut at = 0;
        let steps: Vec<_> = gaps
            .into_iter()
            .enumerate()
            .map(|(i, (gap, rate))| {
                at += if i == 0 { 0 } else { gap };
                (Time::from_nanos(at), Rate::bps(rate))
            })
            .collect();
        Capacity::Steps(Steps::new(&steps).unwrap())
    });
    let trace = prop::collection::vec(0..50_u32, 1..40).prop_map(|mut millis| {
        millis.sort_unstable();
        millis.push(millis[millis.len() - 1] + 1);
        Capacity::Trace(Trace {
            millis: millis.into(),
        })
    });
    prop_oneof![
        (1..=1_000_000_000_000_u64).prop_map(|bps| Capacity::Fixed(Rate::bps(bps))),
        steps,
        trace
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The served bytes never exceed the capacity, and a packet ends no later than necessary.
    #[test]
    fn service_matches_the_offered_capacity(
        capacity in capacity(),
        packets in prop::collection::vec((0..100_000_000_u64, 1..20_000_u64), 1..20),
    ) {
        let mut tx = Transmitter::new(capacity);
        let (mut free, mut busy, mut sent) = (Time::ZERO, Time::ZERO, 0);
        for (gap, size) in packets {
            // Odd gaps in ns keep starts apart from the opportunities.
            let start = if gap % 2 == 0 { free } else {
                let later = free + Duration::from_nanos(gap | 1);
                (busy, sent) = (later, 0);
                later
            };
            let Some(end) = tx.serve(start, Bytes(size)) else { break };
            prop_assert!(end >= start);
            sent += size;
            let after = end + Duration::from_nanos(1);
            prop_assert!(tx.capacity().offered(busy, after).unwrap().get() >= sent);
            // Rounding may cost each packet up to a nanosecond: 125 bytes at 1 Tb/s.
            let lost = 20 * 125 + 1;
            let before = tx.capacity().offered(busy, end).unwrap().get();
            prop_assert!(before <= sent.saturating_add(lost), "{before} {sent}");
            free = end;
        }
    }

    #[test]
    fn nothing_overflows(capacity in capacity(), start: u64, size: u64, to: u64) {
        let start = Time::from_nanos(start);
        let mut tx = Transmitter::new(capacity);
        let end = tx.serve(start, Bytes(size));
        prop_assert!(end.is_none_or(|end| end >= start));
        let _ = (tx.capacity().offered(start, Time::from_nanos(to)), tx.capacity().rate_at(start));
    }
}
