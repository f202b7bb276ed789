use proptest::collection::vec;
use proptest::prelude::*;

use super::super::rtcp::{self, Rtcp};
use super::*;

fn parse(bytes: &[u8]) -> Result<Twcc<'_>, RtcpError> {
    match rtcp::packets(bytes).next() {
        Some(Ok(Rtcp::Twcc(twcc))) => Ok(twcc),
        Some(Err(error)) => Err(error),
        other => panic!("{other:?}"),
    }
}

/// Arrivals from the gaps between them, in ticks.
fn arrivals(first: i64, gaps: Vec<Option<i64>>) -> Vec<Option<Ticks>> {
    let mut at = first;
    let step = |gap: Option<i64>| {
        gap.map(|gap| {
            at += gap;
            Ticks(at)
        })
    };
    gaps.into_iter().map(step).collect()
}

fn gap() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![
        3 => (0_i64..300).prop_map(Some),
        1 => (-32_000_i64..32_000).prop_map(Some),
        2 => Just(None),
        4 => Just(Some(4)),
    ]
}

proptest! {
    #[test]
    fn feedback_round_trips(
        ssrcs: (u32, u32),
        place: (u16, u8),
        first in -2_000_000_000_i64..2_000_000_000,
        gaps in vec(gap(), 0..300),
    ) {
        let reports = arrivals(first, gaps);
        let mut bytes = vec![0xaa; 3];
        emit_twcc(ssrcs, place, &reports, &mut bytes).unwrap();
        let twcc = parse(&bytes[3..]).unwrap();
        prop_assert_eq!((twcc.sender(), twcc.media()), ssrcs);
        let wanted = reports.iter().enumerate().map(|(i, arrival)| TwccPacket {
            sequence: place.0.wrapping_add(i as u16),
            arrival: *arrival,
        });
        prop_assert_eq!(twcc.packets().collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    }

    #[test]
    fn random_bodies_do_not_panic(body in vec(any::<u8>(), 0..80)) {
        let mut bytes = vec![0x8f, 205, 0, (body.len() / 4) as u8];
        bytes.extend_from_slice(&body[..body.len() / 4 * 4]);
        if let Ok(twcc) = parse(&bytes) {
            prop_assert_eq!(twcc.packets().count(), usize::from(twcc.count));
        }
    }
}

/// Bytes derived by hand from the figures of the draft, section 3.1.
#[test]
fn the_layout_matches_the_figures_of_the_draft() {
    // Seven one-bit and two-bit vectors, a run, a negative delta, and the padding of libwebrtc,
    // whose count is no multiple of four.
    let bytes = [
        0xaf, 205, 0, 8, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0xfe, 0, 26, 0, 0, 2, 9, // fixed part
        0x00, 0x03, // run: three lost
        0xa0, 0x00, // vector of 14 bits: received, then lost
        0xd8, 0x00, // vector of 7 codes: small, large, lost
        0x20, 0x02, // run: two small deltas
        5, 7, 0xff, 0xff, 0, 1, // deltas
        0, 2, // padding
    ];
    let packets: Vec<_> = parse(&bytes).unwrap().packets().collect();
    assert_eq!(packets.len(), 26);
    assert_eq!((packets[0].sequence, packets[25].sequence), (0xfffe, 23));
    let arrived = packets.iter().enumerate();
    let arrived: Vec<_> = arrived
        .filter_map(|(i, p)| Some((i, p.arrival?.0)))
        .collect();
    assert_eq!(
        arrived,
        [(3, 517), (17, 524), (18, 523), (24, 523), (25, 524)]
    );
}

#[test]
fn incomplete_feedback_is_rejected() {
    let fault = |count: u8, chunk: [u8; 2], deltas: [u8; 2]| {
        let bytes = [
            0x8f, 205, 0, 5, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, count, 0, 0, 0, 0, chunk[0],
            chunk[1], deltas[0], deltas[1],
        ];
        parse(&bytes).map(|twcc| twcc.packets().count())
    };
    assert_eq!(fault(2, [0x20, 2], [1, 1]), Ok(2));
    // Three small deltas in two bytes; statuses of two packets where three are announced.
    assert!(fault(3, [0x20, 3], [1, 1]).is_err());
    assert!(fault(3, [0x20, 2], [0, 0]).is_err());
    let mut long = Vec::new();
    assert_eq!(
        emit_twcc((1, 2), (0, 0), &vec![None; 16_385], &mut long),
        Err(TwccError::TooManyReports)
    );
    assert_eq!(
        emit_twcc(
            (1, 2),
            (0, 0),
            &[Some(Ticks(0)), Some(Ticks(40_000))],
            &mut long
        ),
        Err(TwccError::DeltaTooLarge)
    );
    assert!(long.is_empty());
}
