use super::*;

fn only(bytes: &[u8]) -> Result<Rtcp<'_>, RtcpError> {
    let mut packets = packets(bytes);
    let first = packets.next().unwrap();
    assert!(packets.next().is_none());
    first
}

#[test]
fn compound_and_reduced_size_packets_are_distinguished() {
    //= rfc3550-6.1-first (test)
    //= rfc3550-6.4.1-length (test)
    //= rfc5506-3.4-reduced (test)
    let mut bytes = Vec::new();
    emit_receiver_report(1, &[], &mut bytes);
    Pli {
        sender: 1,
        media: 2,
    }
    .emit(&mut bytes);
    assert_eq!(form(&bytes), Ok(Form::Compound));
    assert_eq!(form(&bytes[8..]), Ok(Form::ReducedSize));
    assert_eq!(
        form(&[]),
        Err(RtcpError::Truncated {
            at: 0,
            need: 4,
            have: 0
        })
    );
    assert!(matches!(
        form(&bytes[..18]),
        Err(RtcpError::Truncated {
            at: 8,
            need: 12,
            have: 10
        })
    ));
    assert_eq!(packets(&bytes).count(), 2);
}

#[test]
fn only_the_last_packet_may_be_padded() {
    //= rfc3550-6.1-padding-last (test)
    //= rfc3550-6.4.1-padding (test)
    let padded = [0xa0, 201, 0, 2, 0, 0, 0, 9, 0, 0, 0, 4];
    assert!(matches!(only(&padded), Ok(Rtcp::ReceiverReport(r)) if r.sender() == 9));
    let twice = [padded, padded].concat();
    assert_eq!(form(&twice), Err(RtcpError::PaddingNotLast { at: 0 }));
    for wrong in [0, 3, 12] {
        let mut bytes = padded;
        bytes[11] = wrong;
        assert_eq!(
            form(&bytes),
            Err(RtcpError::Padding {
                at: 0,
                padding: wrong,
                room: 8
            })
        );
    }
}

#[test]
fn unknown_packet_types_are_skipped() {
    //= rfc3550-6.1-unknown (test)
    let app = [0x83, 204, 0, 2, 0, 0, 0, 9, b'a', b'b', b'c', b'd'];
    let Ok(Rtcp::Other(packet)) = only(&app) else {
        panic!("an APP packet is not parsed")
    };
    assert_eq!(
        (packet.packet_type(), packet.count(), packet.body().len()),
        (204, 3, 8)
    );
}

#[test]
fn rtp_is_not_rtcp() {
    //= rfc5761-4-demultiplex (test)
    assert!(is_rtcp(&[0x80, 205, 0, 0]));
    assert!(!is_rtcp(&[0x80, 96, 0, 0]));
    assert!(!is_rtcp(&[0x80, 0xe0, 0, 0]));
    assert!(!is_rtcp(&[0x80, 205]));
}
