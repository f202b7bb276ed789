use super::*;

fn datagram(source: &str, destination: &str) -> Datagram {
    Datagram {
        // `answer` exchanges both.
        source: destination.parse().unwrap(),
        destination: source.parse().unwrap(),
        source_port: 5_008,
        destination_port: 40_000,
        ecn: Ecn::NotEct,
        header: 0,
        payload: 0..0,
    }
}

fn packets() -> [Vec<u8>; 2] {
    let payload: Vec<u8> = (0..101_u8).map(|n| n.wrapping_mul(7)).collect();
    [
        datagram("192.0.2.1", "198.51.100.7").answer(&payload),
        datagram("2001:db8::1", "2001:db8:1::2").answer(&payload),
    ]
}

/// From RFC 1071: the example's sum.
#[test]
fn sum_of_rfc_1071() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(fold(sum(&bytes)), 0xddf2);
    // An odd byte is the high half of a word, also if it is zero.
    assert_eq!((sum(&[0, 1, 2]), sum(&[1])), (0x0201, 0x0100));
}

/// The words of RFC 768 by hand: pseudo header, header, data with a zero.
#[test]
fn checksum_of_words_by_hand() {
    let header = [
        0x45, 0, 0, 33, 0x1c, 0x46, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1,
    ];
    let mut packet = header.to_vec();
    packet.extend_from_slice(&[0x9c, 0x40, 0x13, 0x90, 0, 13, 0, 0]);
    packet.extend_from_slice(b"tide\n");
    let checksum = checksum(&packet, 20);
    packet[26..28].copy_from_slice(&checksum.to_be_bytes());
    let found = Datagram::locate(&packet).unwrap();
    assert!(found.is_intact(&packet));
    // Words: addresses fe02, protocol 11, length d twice, ports 9c40 and 1390, "tide\n" and a zero.
    let words: u32 =
        0x7f00 + 1 + 0x7f00 + 1 + 0x11 + 0xd + 0xd + 0x9c40 + 0x1390 + 0x7469 + 0x6465 + 0x0a00;
    assert_eq!(checksum, !fold(words));
}

#[test]
fn fields_are_found_and_damage_is_noticed() {
    for packet in packets() {
        let mut padded = packet.clone();
        padded.extend_from_slice(&[0xee; 6]);
        let found = Datagram::locate(&padded).unwrap();
        assert_eq!(found.payload.end, packet.len());
        assert_eq!((found.source_port, found.destination_port), (40_000, 5_008));
        assert!(found.is_intact(&padded));
        for at in found.payload.clone() {
            let mut damaged = packet.clone();
            damaged[at] ^= 0x10;
            assert!(!found.is_intact(&damaged));
        }
        for length in 0..packet.len() {
            assert!(Datagram::locate(&packet[..length]).is_err(), "{length}");
        }
    }
}

#[test]
fn replaced_bytes_keep_the_checksum_right() {
    for packet in packets() {
        let found = Datagram::locate(&packet).unwrap();
        for fill in [0, 0xff, 0x5a, 0xa5] {
            for skipped in [0, 20, 80] {
                let part = Datagram {
                    payload: found.payload.start + skipped..found.payload.end,
                    ..found.clone()
                };
                let mut changed = packet.clone();
                part.replace(&mut changed, &[fill; 20], Checksum::Complete);
                let place = part.payload.start..part.payload.start + 20;
                assert_eq!(changed[place.clone()], [fill; 20]);
                assert!(found.is_intact(&changed));
                part.replace(&mut changed, &packet[place], Checksum::Complete);
                assert_eq!(changed, packet);
            }
        }
    }
}

/// A forwarder must not make a damaged packet look whole.
#[test]
fn damage_remains_visible() {
    for mut packet in packets() {
        let found = Datagram::locate(&packet).unwrap();
        packet[found.payload.end - 1] ^= 4;
        found.replace(&mut packet, &[9; 20], Checksum::Complete);
        assert!(!found.is_intact(&packet));
    }
}

#[test]
fn absent_and_partial_checksums_remain() {
    for packet in packets() {
        let found = Datagram::locate(&packet).unwrap();
        let field = found.header + CHECKSUM..found.header + CHECKSUM + 2;
        let mut partial = packet.clone();
        found.replace(&mut partial, &[9; 20], Checksum::Partial);
        assert_eq!(partial[field.clone()], packet[field.clone()]);
        let mut absent = packet.clone();
        absent[field.clone()].fill(0);
        found.replace(&mut absent, &[9; 20], Checksum::Complete);
        assert_eq!(absent[field], [0, 0]);
        let mut longer = packet.clone();
        found.replace(&mut longer, &[9; 200], Checksum::Complete);
        assert_eq!(longer, packet);
    }
}

#[test]
fn other_packets_have_a_reason() {
    let [ipv4, ipv6] = packets();
    let locate = |mut packet: Vec<u8>, at: usize, value: u8| {
        packet[at] = value;
        Datagram::locate(&packet).unwrap_err()
    };
    // A protocol, the flag "more fragments", an offset.
    assert_eq!(locate(ipv4.clone(), 9, 6), NoDatagram::OtherProtocol);
    assert_eq!(locate(ipv4.clone(), 6, 0x20), NoDatagram::Fragment);
    assert_eq!(locate(ipv4.clone(), 7, 1), NoDatagram::Fragment);
    assert_eq!(locate(ipv6.clone(), 6, FRAGMENT), NoDatagram::Fragment);
    assert_eq!(locate(ipv6.clone(), 6, 0), NoDatagram::OtherProtocol);
    // Header lengths, and the length of the datagram.
    assert_eq!(locate(ipv4.clone(), 0, 0x44), NoDatagram::Truncated);
    assert_eq!(locate(ipv4.clone(), 0, 0x4f), NoDatagram::Truncated);
    assert_eq!(locate(ipv4.clone(), 25, 7), NoDatagram::Truncated);
    assert_eq!(locate(ipv4, 24, 1), NoDatagram::Truncated);
    assert_eq!(locate(ipv6, 0, 0x50), NoDatagram::OtherProtocol);
}
