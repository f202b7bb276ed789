use proptest::prelude::*;

use super::*;

fn any_role() -> impl Strategy<Value = Role> {
    let stamp = || (0..=MASK).prop_map(Stamp);
    let echo = proptest::option::of((stamp(), any::<u16>()).prop_map(|(stamp, delay)| Echo {
        stamp,
        delay: Delay(delay),
    }));
    let probe = (
        0..=MASK,
        stamp(),
        echo,
        any::<u8>(),
        any::<u16>(),
        any::<bool>(),
    );
    let probe = probe.prop_map(|(seq, stamp, echo, loss, available, stop)| {
        Role::Probe(Probe {
            seq,
            stamp,
            echo,
            loss: LossCode(loss),
            available: RateCode(available),
            stop,
        })
    });
    let rest = (any::<(u16, u8, u16)>(), any::<(u16, u16, u8, bool, bool)>());
    let report = (stamp(), rest).prop_map(|(rtt, (path, rest))| {
        Role::Report(PathReport {
            rtt,
            deviation: Delay(path.0),
            loss: LossCode(path.1),
            available: RateCode(path.2),
            used: RateCode(rest.0),
            packet_size: rest.1,
            flows: rest.2,
            peer_lost: rest.3,
            stop: rest.4,
        })
    });
    prop_oneof![Just(Role::Origin), probe, report]
}

proptest! {
    #[test]
    fn headers_survive_a_round_trip(
        ids: (u16, u16), shares in 1..=MAX_SHARES, role in any_role(), data: Vec<u8>,
    ) {
        let header = Cp {
            application: ApplicationId(ids.0),
            flow: ids.1,
            shares: Shares(shares),
            role,
        };
        let mut payload = Vec::new();
        header.emit(&mut payload);
        prop_assert_eq!(payload.len(), LEN);
        payload.extend_from_slice(&data);
        prop_assert_eq!(Cp::parse(&payload), Ok((header, data.as_slice())));
    }

    #[test]
    fn rates_are_rounded_down_by_at_most_a_thousandth(bps in 0_u64..4_000_000_000_000) {
        let coded = RateCode::of(Rate::bps(bps)).to_rate().as_bps();
        prop_assert!(coded <= bps && bps - coded <= bps / 1_000, "{bps} as {coded}");
    }

    #[test]
    fn loss_rates_are_precise_to_a_fortieth(rate in 2e-5_f64..=1.0) {
        let coded = LossCode::of(rate).to_rate();
        prop_assert!((coded / rate - 1.0).abs() < 0.025, "{rate} as {coded}");
    }

    #[test]
    fn timestamps_measure_spans_across_their_wrap(at in 0_u64..1 << 50, span in 0_u64..250_000_000_000) {
        let (sent, now) = (Time::from_nanos(at), Time::from_nanos(at + span));
        let measured = nanos(Stamp::at(now).since(Stamp::at(sent)));
        prop_assert!(measured.abs_diff(span) <= TICK_NANOS, "{span} as {measured}");
    }
}

/// The test vectors of `docs/coordination-protocol.md`.
#[test]
fn vectors_of_the_specification() {
    let origin = Cp {
        application: ApplicationId(0x0102),
        flow: 7,
        shares: Shares(24),
        role: Role::Origin,
    };
    assert_eq!(hex(&origin), "10180102 00070000 00000000 00000000 00000000");
    let probe = Probe {
        seq: 0x00_ffff,
        stamp: Stamp::at(Time::from_millis(1_600)),
        echo: Some(Echo {
            stamp: Stamp::at(Time::from_millis(1_440)),
            delay: Delay::of(Duration::from_millis(32)),
        }),
        loss: LossCode::of(0.01),
        available: RateCode::of(Rate::kbps(612)),
        stop: false,
    };
    let probe = Cp {
        role: Role::Probe(probe),
        ..origin
    };
    assert_eq!(hex(&probe), "16180102 000700ff ff0186a0 015f9007 d0954cab");
    let report = PathReport {
        rtt: Stamp::span(Duration::from_millis(128)),
        deviation: Delay::of(Duration::from_millis(8)),
        loss: LossCode::of(0.01),
        available: RateCode::of(Rate::kbps(612)),
        used: RateCode::of(Rate::kbps(14_000)),
        packet_size: 1_000,
        flows: 24,
        peer_lost: true,
        stop: false,
    };
    let report = Cp {
        role: Role::Report(report),
        ..origin
    };
    assert_eq!(hex(&report), "1a180102 0007001f 4001f495 4cab6eac 03e81800");
}

#[test]
fn invalid_headers_are_refused() {
    let mut payload = Vec::new();
    let header = Cp {
        application: ApplicationId(1),
        flow: 1,
        shares: Shares::ONE,
        role: Role::Origin,
    };
    header.emit(&mut payload);
    assert_eq!(Cp::parse(&payload[..LEN - 1]), Err(CpError::Short));
    let with = |at: usize, value: u8| {
        let mut changed = payload.clone();
        changed[at] = value;
        Cp::parse(&changed).map(|_| ())
    };
    assert_eq!(with(0, 0x20), Err(CpError::Version(2)));
    assert_eq!(with(0, 0x1c), Err(CpError::Role));
    assert_eq!(with(1, 0), Err(CpError::Shares));
    assert_eq!(with(1, 65), Err(CpError::Shares));
    assert_eq!(with(1, 64), Ok(()));
    let mut short = payload[..LEN - 1].to_vec();
    header.rewrite(&mut short);
    assert_eq!(short, payload[..LEN - 1]);
}

#[test]
fn values_beyond_their_range_saturate() {
    assert_eq!(RateCode::of(Rate::MAX).0, u16::MAX);
    assert_eq!(RateCode::of(Rate::ZERO).to_rate(), Rate::ZERO);
    assert_eq!(LossCode::of(2.0).to_rate().to_bits(), 1.0_f64.to_bits());
    assert_eq!(LossCode::of(f64::NAN), LossCode(0));
    assert_eq!(LossCode::of(1e-9), LossCode(0));
    assert!(Delay::of(Duration::from_secs(2)).is_saturated());
    assert_eq!(Stamp::span(Duration::MAX).0, MASK);
    assert_eq!(packet_size(Bytes(70_000)), u16::MAX);
}

fn hex(header: &Cp) -> String {
    let words = header.to_bytes();
    let words = words.chunks(4).map(|word| {
        let digits = word.iter().map(|byte| format!("{byte:02x}"));
        digits.collect::<String>()
    });
    words.collect::<Vec<_>>().join(" ")
}
