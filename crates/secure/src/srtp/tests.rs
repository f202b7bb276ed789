use super::*;

/// Bytes of hexadecimal digits.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.chars().map(|c| c.to_digit(16).unwrap()).collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}

fn master(suite: CryptoSuite, key_and_salt: &str) -> MasterKey {
    MasterKey::new(suite, &bytes(key_and_salt))
}

fn any_master(suite: CryptoSuite) -> MasterKey {
    let key: Vec<u8> = (1..=44).collect();
    MasterKey::new(suite, &key[..suite.key_len() + suite.salt_len()])
}

fn rtp(ssrc: u32, sequence: u16) -> Vec<u8> {
    let mut packet = vec![0x80, 96, 0, 0, 0, 0, 0, 9];
    packet[2..4].copy_from_slice(&sequence.to_be_bytes());
    packet.extend_from_slice(&ssrc.to_be_bytes());
    packet.extend_from_slice(b"a payload of some length");
    packet
}

fn rtcp(ssrc: u32) -> Vec<u8> {
    let mut packet = vec![0x80, 201, 0, 1];
    packet.extend_from_slice(&ssrc.to_be_bytes());
    packet
}

/// Contexts with session keys, as the vectors of RFC 7714 give them.
fn of_session(suite: CryptoSuite) -> (Protector, Unprotector) {
    let key: Vec<u8> = (0..suite.key_len() as u8).collect();
    let cipher = |protocol| Cipher::of_session(suite, protocol, &key, b"Quid pro quo", &[]);
    let mut protector = Protector::new(&any_master(suite));
    (protector.rtp, protector.rtcp) = (cipher(Protocol::Rtp), cipher(Protocol::Rtcp));
    let mut unprotector = Unprotector::new(&any_master(suite));
    (unprotector.rtp, unprotector.rtcp) = (cipher(Protocol::Rtp), cipher(Protocol::Rtcp));
    (protector, unprotector)
}

fn passes(protector: &mut Protector, unprotector: &mut Unprotector, plain: &str, sealed: &str) {
    let mut packet = bytes(plain);
    protector.protect(&mut packet).unwrap();
    assert_eq!(packet, bytes(sealed));
    unprotector.unprotect(&mut packet).unwrap();
    assert_eq!(packet, bytes(plain));
    let mut again = bytes(sealed);
    assert_eq!(
        unprotector.unprotect(&mut again),
        Err(UnprotectError::Replay)
    );
    assert_eq!(again, bytes(sealed));
}

/// RFC 7714 sections 16.1.1 and 16.2.1.
#[test]
fn aes_gcm_protects_rtp_as_in_the_rfc() {
    let plain = "8040f17b8041f8d35501a0b247616c6c696120657374206f6d6e69732064697669736120696e2070\
                 61727465732074726573";
    for (suite, sealed) in [
        (
            CryptoSuite::AeadAes128Gcm,
            "8040f17b8041f8d35501a0b2f24de3a3fb34de6cacba861c9d7e4bcabe633bd50d294e6f42a5f47a51\
             c7d19b36de3adf8833899d7f27beb16a9152cf765ee4390cce",
        ),
        (
            CryptoSuite::AeadAes256Gcm,
            "8040f17b8041f8d35501a0b232b1de78a822fe12ef9f78fa332e33aab18012389a58e2f3b50b2a0276\
             ffae0f1ba63799b87b7aa3db36dfffd6b0f9bb7878d7a76c13",
        ),
    ] {
        let (mut protector, mut unprotector) = of_session(suite);
        passes(&mut protector, &mut unprotector, plain, sealed);
    }
}

/// RFC 7714 sections 17.1 and 17.2, with index 0x5d4; section 17.3 without encryption.
#[test]
fn aes_gcm_protects_rtcp_as_in_the_rfc() {
    let plain = "81c8000d4d6172734e5450314e545032525450200000042a0000e9304c756e61deadbeefdeadbeef\
                 deadbeefdeadbeefdeadbeef";
    for (suite, sealed) in [
        (
            CryptoSuite::AeadAes128Gcm,
            "81c8000d4d61727363e94885dcdab67ca727d7662f6b7e997ff5c0f76c06f32dc676a5f1730d6fda4c\
             e09b4686303ded0bb9275bc84aa45896cf4d2fc5abf87245d9eade800005d4",
        ),
        (
            CryptoSuite::AeadAes256Gcm,
            "81c8000d4d617273d50ae4d1f5ce5d304ba297e47d470c282c3ece5dbffe0a50a2eaa5c1110555be84\
             15f658c61de0476f1b6fad1d1eb30c4446839f57ff6f6cb26ac3be800005d4",
        ),
    ] {
        let (mut protector, mut unprotector) = of_session(suite);
        protector.rtcp_index = 0x5d3;
        passes(&mut protector, &mut unprotector, plain, sealed);
    }
    let (_, mut unprotector) = of_session(CryptoSuite::AeadAes128Gcm);
    let mut tagged = bytes(&format!("{plain}841dd9683dd78ec92ae58790125f62b3000005d4"));
    unprotector.unprotect(&mut tagged).unwrap();
    assert_eq!(tagged, bytes(plain));
}

/// Packets of libsrtp's validation tests. They include the derivation of session keys.
#[test]
fn packets_equal_those_of_libsrtp() {
    let plain = "800f1234decafbadcafebabeabababababababababababababababab";
    let counter_mode = "e1f97a0d3e018be0d64fa32c06de41390ec675ad498afeebb6960b3aabe6";
    for (suite, key, sealed) in [
        (
            CryptoSuite::AesCm128HmacSha1_80,
            counter_mode,
            "800f1234decafbadcafebabe4e55dc4ce79978d88ca4d215949d2402b78d6acc99ea179b8dbb",
        ),
        (
            CryptoSuite::AesCm128HmacSha1_32,
            counter_mode,
            "800f1234decafbadcafebabe4e55dc4ce79978d88ca4d215949d2402b78d6acc",
        ),
        (
            CryptoSuite::AeadAes128Gcm,
            "000102030405060708090a0b0c0d0e0fa0a1a2a3a4a5a6a7a8a9aaab",
            "800f1234decafbadcafebabec5002ede04cfdd2eb91159e0880aa06ed2976826f796b201df3131a127\
             e8a392",
        ),
    ] {
        let master = master(suite, key);
        let (mut protector, mut unprotector) = (Protector::new(&master), Unprotector::new(&master));
        passes(&mut protector, &mut unprotector, plain, sealed);
    }
    let master = master(CryptoSuite::AesCm128HmacSha1_80, counter_mode);
    let (mut protector, mut unprotector) = (Protector::new(&master), Unprotector::new(&master));
    let plain = "81c8000bcafebabeabababababababababababababababab";
    let sealed = "81c8000bcafebabe7128035be487b9bdbef89041f977a5a880000001993e08cd54d6c1230798";
    passes(&mut protector, &mut unprotector, plain, sealed);
}

#[test]
fn altered_packets_and_other_keys_are_rejected() {
    for suite in CryptoSuite::ALL {
        let master = any_master(suite);
        let mut other = Unprotector::new(&MasterKey::new(
            suite,
            &vec![9; suite.key_len() + suite.salt_len()],
        ));
        for plain in [rtp(7, 1), rtcp(7)] {
            let mut packet = plain.clone();
            Protector::new(&master).protect(&mut packet).unwrap();
            assert!(!packet.windows(7).any(|part| part == b"payload"));
            assert!(other.unprotect(&mut packet.clone()).is_err());
            for at in 0..packet.len() {
                let mut altered = packet.clone();
                altered[at] ^= 0x40;
                let mut unprotector = Unprotector::new(&master);
                assert!(
                    unprotector.unprotect(&mut altered).is_err(),
                    "{suite:?} {at}"
                );
                let mut short = packet[..at].to_vec();
                assert!(unprotector.unprotect(&mut short).is_err());
            }
        }
    }
}

#[test]
fn contributing_sources_and_extensions_stay_in_the_clear() {
    let master = any_master(CryptoSuite::AeadAes128Gcm);
    let mut plain = vec![0x91, 96, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8];
    plain.extend_from_slice(&[0xbe, 0xde, 0, 1, 1, 2, 3, 4]);
    plain.extend_from_slice(b"payload");
    let mut packet = plain.clone();
    Protector::new(&master).protect(&mut packet).unwrap();
    assert_eq!(packet[..24], plain[..24]);
    assert_ne!(packet[24..31], plain[24..]);
    Unprotector::new(&master).unprotect(&mut packet).unwrap();
    assert_eq!(packet, plain);
}

#[test]
fn rollovers_are_followed_over_losses() {
    let master = any_master(CryptoSuite::AesCm128HmacSha1_80);
    let mut protector = Protector::new(&master);
    let (mut continuous, mut gappy) = (Unprotector::new(&master), Unprotector::new(&master));
    for index in 0..200_000_u64 {
        let mut packet = rtp(7, index as u16);
        protector.protect(&mut packet).unwrap();
        if index.is_multiple_of(1_000) {
            continuous.unprotect(&mut packet.clone()).unwrap();
        }
        // More than 2^16 packets are lost in a row.
        if [10, 80_000, 199_000].contains(&index) {
            gappy.unprotect(&mut packet).unwrap();
        }
    }
}

#[test]
fn a_late_receiver_finds_the_rollover_counter() {
    let master = any_master(CryptoSuite::AesCm128HmacSha1_80);
    let mut protector = Protector::new(&master);
    let mut send = |index: u64| {
        let mut packet = rtp(7, index as u16);
        protector.protect(&mut packet).unwrap();
        packet
    };
    for round in 0..100_u64 {
        // Half of the number space: the estimate of the roll-over counter stays exact.
        send(round << 15);
    }
    let mut late = Unprotector::joining(&master, vec![7]);
    let mut packets = 0;
    while late.unprotect(&mut send((99 << 15) + 1 + packets)).is_err() {
        packets += 1;
        assert!(packets < 10, "49 rollovers, eight in each packet");
    }
    // The next packet needs no search.
    late.unprotect(&mut send((99 << 15) + 50)).unwrap();
    let mut strange = rtp(8, 1);
    Protector::new(&master).protect(&mut strange).unwrap();
    assert_eq!(
        late.unprotect(&mut strange),
        Err(UnprotectError::UnknownSource)
    );
}

/// The packets of a source that stays authentic do not end the search for another one, and forged
/// packets do not prevent it.
#[test]
fn a_known_source_is_found_again_after_any_loss_within_the_bound() {
    let master = any_master(CryptoSuite::AesCm128HmacSha1_80);
    let mut protector = Protector::new(&master);
    let mut send = |ssrc: u32, index: u64| {
        let mut packet = rtp(ssrc, index as u16);
        protector.protect(&mut packet).unwrap();
        packet
    };
    let mut receiver = Unprotector::joining(&master, vec![7, 8]);
    receiver.unprotect(&mut send(7, 1)).unwrap();
    receiver.unprotect(&mut send(8, 1)).unwrap();
    let (mut newest, mut other) = (1, 1);
    for lost_rollovers in [3_u64, 40, 300] {
        let next = newest + (lost_rollovers << 16);
        (newest + 1..next).step_by(1 << 14).for_each(|index| {
            send(7, index);
        });
        newest = next;
        while receiver.unprotect(&mut send(7, newest)).is_err() {
            (newest, other) = (newest + 1, other + 1);
            receiver.unprotect(&mut send(8, other)).unwrap();
            assert!(newest < next + lost_rollovers, "one in each packet");
        }
        newest += 1;
        receiver.unprotect(&mut send(7, newest)).unwrap();
    }
    for sequence in 0..10_000 {
        assert!(receiver.unprotect(&mut rtp(7, sequence)).is_err());
    }
    receiver.unprotect(&mut send(7, newest + 1)).unwrap();
}

#[test]
fn no_index_is_used_twice() {
    let mut protector = Protector::new(&any_master(CryptoSuite::AeadAes128Gcm));
    protector.protect(&mut rtp(7, 5)).unwrap();
    for sequence in [5, 4, 0x8006] {
        let again = protector.protect(&mut rtp(7, sequence));
        assert_eq!(again, Err(ProtectError::IndexUsed), "{sequence}");
    }
    protector.protect(&mut rtp(8, 5)).unwrap();
    protector.rtcp_index = MAX_RTCP_INDEX - 1;
    protector.protect(&mut rtcp(7)).unwrap();
    let exhausted = protector.protect(&mut rtcp(7));
    assert_eq!(exhausted, Err(ProtectError::KeyExhausted));
    assert_eq!(
        protector.protect(&mut vec![0; 40]),
        Err(ProtectError::Malformed)
    );
}

/// New RTP sources are refused, and new RTCP sources replace the oldest.
#[test]
fn sources_of_a_key_are_limited() {
    let master = any_master(CryptoSuite::AeadAes128Gcm);
    let mut unprotector = Unprotector::new(&master);
    for ssrc in 0..40 {
        let accepts = |unprotector: &mut Unprotector, mut packet| {
            Protector::new(&master).protect(&mut packet).unwrap();
            unprotector.unprotect(&mut packet).is_ok()
        };
        let is_room = ssrc < MAX_SOURCES as u32;
        assert_eq!(accepts(&mut unprotector, rtp(ssrc, 1)), is_room, "{ssrc}");
        assert!(accepts(&mut unprotector, rtcp(ssrc)), "{ssrc}");
        assert!(unprotector.rtcp_sources.len() <= MAX_SOURCES);
    }
}

/// All packets before the first wrap are lost.
#[test]
fn first_packet_may_follow_a_wrap() {
    let master = any_master(CryptoSuite::AeadAes128Gcm);
    let (mut protector, mut unprotector) = (Protector::new(&master), Unprotector::new(&master));
    protector.protect(&mut rtp(7, 65_530)).unwrap();
    let mut packet = rtp(7, 3);
    protector.protect(&mut packet).unwrap();
    unprotector.unprotect(&mut packet).unwrap();
}
