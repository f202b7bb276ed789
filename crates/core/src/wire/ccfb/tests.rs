use proptest::collection::vec;
use proptest::prelude::*;

use super::super::rtcp::{self, Rtcp};
use super::*;

const NOW: Time = Time::from_secs(100);

fn parse(bytes: &[u8]) -> Result<Ccfb<'_>, RtcpError> {
    match rtcp::packets(bytes).next() {
        Some(Ok(Rtcp::Ccfb(ccfb))) => Ok(ccfb),
        Some(Err(error)) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn received() -> impl Strategy<Value = Option<Received>> {
    let one = (0_u8..4, 0_u64..101_000).prop_map(|(ecn, ms)| Received {
        ecn: Ecn::from_bits(ecn),
        at: Time::from_millis(ms),
    });
    proptest::option::of(one)
}

fn expected(report: Option<Received>) -> Arrival {
    report.map_or(Arrival::NotReceived, |r| Arrival::Received {
        ecn: r.ecn,
        offset: Offset::between(r.at, NOW),
    })
}

proptest! {
    #[test]
    fn feedback_round_trips(
        sender: u32,
        epoch: u64,
        blocks in vec((any::<u32>(), any::<u16>(), vec(received(), 0..40)), 0..5),
    ) {
        //= rfc8888-3.1-order (test)
        //= rfc8888-3.1-range (test)
        //= rfc8888-3.1-count (test)
        //= rfc8888-3.1-padding (test)
        //= rfc8888-3.1-not-received (test)
        let mut bytes = vec![0xaa; 3];
        let mut builder = CcfbBuilder::new(sender, NOW, &mut bytes);
        for (ssrc, begin, reports) in &blocks {
            builder.block(*ssrc, *begin, reports.iter().copied()).unwrap();
        }
        let size = builder.size();
        builder.finish(Ntp(epoch));
        prop_assert_eq!(bytes.len(), 3 + size);

        let ccfb = parse(&bytes[3..]).unwrap();
        prop_assert_eq!((ccfb.sender(), ccfb.timestamp()), (sender, Ntp(epoch).at(NOW).middle()));
        prop_assert_eq!(ccfb.blocks().count(), blocks.len());
        for (block, (ssrc, begin, reports)) in ccfb.blocks().zip(&blocks) {
            prop_assert_eq!((block.ssrc, block.begin, block.len()), (*ssrc, *begin, reports.len()));
        }
        let wanted = blocks.iter().flat_map(|(ssrc, begin, reports)| {
            reports.iter().enumerate().map(|(i, report)| CcfbPacket {
                ssrc: *ssrc,
                sequence: begin.wrapping_add(i as u16),
                arrival: expected(*report),
            })
        });
        prop_assert_eq!(ccfb.packets().collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    }

    #[test]
    fn offsets_are_rounded_to_half_a_unit(micros in 0_u64..7_990_000) {
        let span = Offset::between(NOW.before(Duration::from_micros(micros)), NOW).as_span().unwrap();
        prop_assert!(span.abs_diff(Duration::from_micros(micros)) <= Duration::from_nanos(488_282));
    }

    #[test]
    fn random_bodies_do_not_panic(body in vec(any::<u8>(), 0..60)) {
        let mut bytes = vec![0x8b, 205, 0, (body.len() / 4) as u8];
        bytes.extend_from_slice(&body[..body.len() / 4 * 4]);
        if let Ok(ccfb) = parse(&bytes) {
            let counted: usize = ccfb.blocks().map(|block| block.len()).sum();
            prop_assert_eq!(counted, ccfb.packets().count());
        }
    }
}

/// Bytes derived by hand from the figure of RFC 8888 section 3.1.
#[test]
fn the_layout_matches_the_figure_of_rfc_8888() {
    //= rfc8888-3.1-header (test)
    //= rfc8888-3.1-timestamp (test)
    let mut bytes = Vec::new();
    let mut builder = CcfbBuilder::new(0x0102_0304, NOW, &mut bytes);
    let at = NOW.before(Duration::from_millis(500));
    let reports = [
        Some(Received { ecn: Ecn::Ce, at }),
        None,
        Some(Received {
            ecn: Ecn::Ect1,
            at: NOW,
        }),
    ];
    builder.block(0x0506_0708, 0xffff, reports).unwrap();
    builder.finish(Ntp(0x0000_0001_8000_0000));
    let expected = [
        0x8b, 205, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 0, 3, 0xe2, 0x00, 0, 0, 0xa0, 0, 0, 0,
        0, 101, 0x80, 0,
    ];
    assert_eq!(bytes, expected);
    let sequences: Vec<_> = parse(&bytes)
        .unwrap()
        .packets()
        .map(|p| p.sequence)
        .collect();
    assert_eq!(sequences, [0xffff, 0, 1]);
}

#[test]
fn offsets_at_the_edges() {
    //= rfc8888-3.1-over-range (test)
    //= rfc8888-3.1-unavailable (test)
    let at = |ms| Offset::between(NOW.before(Duration::from_millis(ms)), NOW);
    assert_eq!(at(0).as_span(), Some(Duration::ZERO));
    assert_eq!(at(7_997).bits(), 0x1ffd);
    assert_eq!(at(7_998), Offset::OVER_RANGE);
    assert_eq!(at(99_000), Offset::OVER_RANGE);
    let reported = RemoteTime(5_000_000_000);
    assert_eq!(at(500).before(reported), Some(RemoteTime(4_500_000_000)));
    assert_eq!(Offset::UNAVAILABLE.before(reported), None);
    assert_eq!(
        Offset::between(NOW + Duration::from_nanos(1), NOW),
        Offset::UNAVAILABLE
    );
    assert_eq!(
        (Offset::OVER_RANGE.as_span(), Offset::UNAVAILABLE.as_span()),
        (None, None)
    );
}

#[test]
fn a_block_covers_at_most_a_quarter_of_the_sequence_space() {
    //= rfc8888-3.1-limit (test)
    let mut bytes = Vec::new();
    let mut builder = CcfbBuilder::new(1, NOW, &mut bytes);
    assert_eq!(
        builder.block(2, 0, vec![None; 16_385]),
        Err(BlockError::TooManyReports)
    );
    for _ in 0..7 {
        builder.block(2, 0, vec![None; 16_384]).unwrap();
    }
    assert_eq!(
        builder.block(2, 0, vec![None; 16_384]),
        Err(BlockError::PacketFull)
    );
    builder.finish(Ntp(0));
    assert_eq!(parse(&bytes).unwrap().packets().count(), 7 * 16_384);

    let mut long = vec![
        0x8b, 205, 0x20, 0x04, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0x40, 0x02,
    ];
    long.resize(4 * 0x2005, 0);
    let fault = Fault::TooManyReports { reports: 0x4002 };
    assert_eq!(
        parse(&long),
        Err(RtcpError::Malformed {
            at: 0,
            packet_type: 205,
            fault
        })
    );
}

#[test]
fn blocks_fill_the_packet_exactly() {
    let reports = |n| {
        let bytes = [
            0x8b, 205, 0, 5, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, n, 0x80, 0, 0, 0, 0, 0, 0, 0,
        ];
        parse(&bytes).map(|ccfb| ccfb.packets().count())
    };
    assert_eq!((reports(1), reports(2)), (Ok(1), Ok(2)));
    assert!(reports(3).is_err());
    assert!(
        reports(0).is_err(),
        "four bytes are left over, too few for another block"
    );
}

#[test]
fn duplicates_keep_the_first_arrival_and_any_ce_mark() {
    //= rfc8888-3.1-duplicates (test)
    let first = Received {
        ecn: Ecn::Ect1,
        at: NOW,
    };
    let marked = Received {
        ecn: Ecn::Ce,
        at: NOW + Duration::from_millis(3),
    };
    assert_eq!(
        first.and_again(marked),
        Received {
            ecn: Ecn::Ce,
            at: NOW
        }
    );
    assert_eq!(
        marked.and_again(first),
        Received {
            ecn: Ecn::Ce,
            at: NOW
        }
    );
    assert_eq!(first.and_again(first), first);
}
