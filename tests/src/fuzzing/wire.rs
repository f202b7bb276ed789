//! Fuzz targets of the wire formats.
//!
//! Each decodes any bytes, reads all accessors of the view, and asserts the invariants.

use super::Target;
use tidegate_core::wire::ccfb::{Arrival, Ccfb};
use tidegate_core::wire::cp::{self, Cp};
use tidegate_core::wire::framing::{self, Deframer};
use tidegate_core::wire::h264::{
    Depacketiser, Sps, contents, is_key_frame, nal_units, packetise, parameter_sets,
};
use tidegate_core::wire::mpeg2;
use tidegate_core::wire::rtcp::{self, Cname, Nack, NackEntry, Rtcp, Sdes};
use tidegate_core::wire::rtp::{PayloadType, RtpHeader, RtpPacket};
use tidegate_core::wire::rtx::{self, StreamId};
use tidegate_core::wire::sdp::Sdp;
use tidegate_core::wire::twcc::{Twcc, TwccError, emit_twcc};

/// All targets.
pub const TARGETS: [Target; 11] = [
    target("cp", cp),
    target("framing", framing),
    target("h264_assemble", h264_assemble),
    target("h264_packetise", h264_packetise),
    target("mpeg2_assemble", mpeg2_assemble),
    target("mpeg2_packetise", mpeg2_packetise),
    target("picture_size", picture_size),
    target("rtcp", rtcp),
    target("rtp", rtp),
    target("rtx", rtx),
    target("sdp", sdp),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// CP headers: a valid header survives a round trip and a rewrite, and the data remains unchanged.
pub fn cp(data: &[u8]) {
    let Ok((header, rest)) = Cp::parse(data) else {
        let mut short = data.to_vec();
        short.truncate(cp::LEN - 1);
        assert!(Cp::parse(&short).is_err());
        return;
    };
    let mut out = Vec::new();
    header.emit(&mut out);
    assert_eq!(out.len(), cp::LEN);
    out.extend_from_slice(rest);
    assert_eq!(Cp::parse(&out), Ok((header, rest)));
    let mut rewritten = data.to_vec();
    header.rewrite(&mut rewritten);
    assert_eq!(rewritten, out);
}

/// RTP packets: the parts add up to the whole, and a plain header survives a round trip.
pub fn rtp(data: &[u8]) {
    let Ok(packet) = RtpPacket::new_checked(data) else {
        return;
    };
    let parts = RtpHeader::LEN + packet.header_tail().len() + packet.payload().len();
    assert_eq!(parts + usize::from(packet.padding()), data.len());
    assert!(packet.csrcs().count() <= 15);
    if let Some(extension) = packet.extension() {
        let used: usize = extension.elements().map(|(_, value)| 1 + value.len()).sum();
        assert!(used <= extension.data.len());
    }
    let mut out = Vec::new();
    packet.header().emit(&mut out);
    out.extend_from_slice(packet.payload());
    let again = RtpPacket::new_checked(&out).expect("emitted packets parse");
    assert_eq!(
        (again.header(), again.payload()),
        (packet.header(), packet.payload())
    );
}

/// RTCP datagrams: every packet is read to its end, and survives a round trip.
pub fn rtcp(data: &[u8]) {
    let mut good = !data.is_empty();
    for packet in rtcp::packets(data) {
        match packet {
            Ok(packet) => rtcp_packet(packet),
            Err(error) => {
                good = false;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert_eq!(rtcp::form(data).is_ok(), good);
}

fn rtcp_packet(packet: Rtcp<'_>) {
    let mut out = Vec::new();
    match packet {
        Rtcp::ArrivedDscp(report) => {
            report.emit(&mut out);
            assert_eq!(first(&out), Rtcp::ArrivedDscp(report));
        }
        Rtcp::Bye(bye) => {
            let ssrcs: Vec<_> = bye.ssrcs().collect();
            rtcp::emit_bye(&ssrcs, bye.reason(), &mut out);
            if !ssrcs.is_empty() {
                assert!(matches!(first(&out), Rtcp::Bye(again) if again == bye));
            }
        }
        Rtcp::Ccfb(ccfb) => rtcp_ccfb(&ccfb),
        Rtcp::Nack(nack) => rtcp_nack(&nack),
        Rtcp::Pli(pli) => {
            pli.emit(&mut out);
            assert_eq!(first(&out), Rtcp::Pli(pli));
        }
        Rtcp::ReceiverReport(report) => {
            let blocks: Vec<_> = report.reports().collect();
            rtcp::emit_receiver_report(report.sender(), &blocks, &mut out);
            assert!(
                matches!(first(&out), Rtcp::ReceiverReport(again) if again.reports().eq(blocks))
            );
        }
        Rtcp::Sdes(sdes) => rtcp_sdes(&sdes),
        Rtcp::SenderReport(report) => {
            let blocks: Vec<_> = report.reports().collect();
            report.info().emit(&blocks, &mut out);
            assert!(matches!(first(&out), Rtcp::SenderReport(again)
                if again.info() == report.info() && again.reports().eq(blocks)));
        }
        Rtcp::Twcc(twcc) => rtcp_twcc(&twcc),
        Rtcp::Other(packet) => assert_eq!(packet.body().len() % 4, 0),
        other => panic!("a new kind of packet without assertions: {other:?}"),
    }
}

fn rtcp_ccfb(ccfb: &Ccfb<'_>) {
    for block in ccfb.blocks() {
        assert!(block.len() <= 16_384);
        let (first, last) = (block.packets().next(), block.packets().last());
        assert_eq!(
            first.map(|p| p.sequence),
            (!block.is_empty()).then_some(block.begin)
        );
        let end = block.begin.wrapping_add(block.len() as u16).wrapping_sub(1);
        assert_eq!(last.map(|p| p.sequence), (!block.is_empty()).then_some(end));
    }
    for packet in ccfb.packets() {
        if let Arrival::Received { offset, .. } = packet.arrival {
            assert!(offset.as_span().is_none_or(|span| span.as_secs() < 8));
        }
    }
}

/// What a packet reports survives a round trip, unless its deltas need more than one packet. Its
/// times are relative, because the clock wraps.
fn rtcp_twcc(twcc: &Twcc<'_>) {
    let packets: Vec<_> = twcc.packets().collect();
    assert!(packets.len() <= 16_384);
    let Some(first) = packets.first() else { return };
    for (i, packet) in packets.iter().enumerate() {
        assert_eq!(packet.sequence, first.sequence.wrapping_add(i as u16));
    }
    let reports: Vec<_> = packets.iter().map(|packet| packet.arrival).collect();
    let (ssrcs, mut out) = ((twcc.sender(), twcc.media()), Vec::new());
    match emit_twcc(ssrcs, (first.sequence, 0), &reports, &mut out) {
        Ok(()) => {
            let Rtcp::Twcc(again) = self::first(&out) else {
                panic!("emitted feedback parses")
            };
            let relative = |twcc: &Twcc<'_>| {
                let start = twcc.packets().find_map(|p| p.arrival).map_or(0, |at| at.0);
                let times = twcc.packets().map(|p| p.arrival.map(|at| at.0 - start));
                times.collect::<Vec<_>>()
            };
            assert_eq!(relative(&again), relative(twcc));
            assert_eq!(again.media(), twcc.media());
        }
        Err(error) => assert_eq!(error, TwccError::DeltaTooLarge),
    }
}

fn rtcp_nack(nack: &Nack<'_>) {
    let mut wanted: Vec<_> = nack.lost().collect();
    let mut out = Vec::new();
    rtcp::emit_nack(
        nack.sender(),
        nack.media(),
        wanted.iter().copied(),
        &mut out,
    );
    let mut found = Vec::new();
    for packet in rtcp::packets(&out) {
        if let Ok(Rtcp::Nack(again)) = packet {
            found.extend(again.entries().flat_map(NackEntry::lost));
        }
    }
    // Entries may overlap, in any order.
    for numbers in [&mut wanted, &mut found] {
        numbers.sort_unstable();
        numbers.dedup();
    }
    assert_eq!(found, wanted);
}

fn rtcp_sdes(sdes: &Sdes<'_>) {
    for chunk in sdes.chunks() {
        assert!(
            chunk
                .items()
                .all(|item| item.kind != 0 && item.text.len() <= 255)
        );
        if let Some(cname) = chunk.cname().and_then(Cname::new) {
            let mut out = Vec::new();
            rtcp::emit_sdes(chunk.ssrc, &cname, &mut out);
            let Rtcp::Sdes(again) = first(&out) else {
                panic!("the type of a source description changed");
            };
            assert!(
                again
                    .chunks()
                    .all(|c| c.ssrc == chunk.ssrc && c.cname() == Some(cname.as_str()))
            );
        }
    }
}

fn first(bytes: &[u8]) -> Rtcp<'_> {
    let packet = rtcp::packets(bytes).next().expect("a packet was emitted");
    packet.expect("emitted packets parse")
}

/// RTP packets as originals and as retransmissions: unwrapping restores the original.
pub fn rtx(data: &[u8]) {
    let Ok(packet) = RtpPacket::new_checked(data) else {
        return;
    };
    let header = packet.header();
    let original = StreamId {
        payload_type: header.payload_type,
        ssrc: header.ssrc,
    };
    let payload_type = PayloadType::new(97).unwrap_or(header.payload_type);
    let stream = StreamId {
        payload_type,
        ssrc: !header.ssrc,
    };

    let mut wrapped = Vec::new();
    rtx::wrap(&packet, stream, 7, &mut wrapped);
    let wrapped = RtpPacket::new_checked(&wrapped).expect("a retransmission is an RTP packet");
    let mut restored = Vec::new();
    rtx::unwrap(&wrapped, original, &mut restored).expect("wrapped packets are valid");
    let restored = RtpPacket::new_checked(&restored).expect("the original is an RTP packet");
    assert_eq!(
        (restored.header(), restored.payload()),
        (header, packet.payload())
    );
    assert_eq!(restored.header_tail(), packet.header_tail());

    let mut out = Vec::new();
    if rtx::unwrap(&packet, original, &mut out).is_ok() {
        assert_eq!(out.len() + 2 + usize::from(packet.padding()), data.len());
    }
}

/// RTP payloads, each after a length byte: the depacketiser stays within its memory limit and
/// returns byte streams only.
pub fn h264_assemble(data: &[u8]) {
    let mut assembler = Depacketiser::new(MAX_ACCESS_UNIT);
    let (mut rest, mut refused) = (data, false);
    while let Some((len, after)) = rest.split_first() {
        let (payload, after) = after.split_at(usize::from(*len).min(after.len()));
        refused |= assembler.push(payload).is_err();
        assert!(assembler.len() <= MAX_ACCESS_UNIT);
        rest = after;
    }
    match assembler.take() {
        Ok(unit) => {
            assert!(!refused && unit.data.starts_with(&[0, 0, 0, 1]));
            // Bytes between NAL units may resemble start codes, so more units may be found.
            let found = contents(&unit.data);
            assert!(found.idr || !unit.contents.idr);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(assembler.is_empty());
}

/// An access unit after the maximum payload size in two bytes: reassembly yields the same NAL
/// units.
pub fn h264_packetise(data: &[u8]) {
    let (head, access_unit) = data.split_at(data.len().min(2));
    let max_payload =
        usize::from(head.first_chunk().map_or(0, |two| u16::from_be_bytes(*two)) % 2_000);
    let _ = (is_key_frame(access_unit), parameter_sets(access_unit));
    let Ok(payloads) = packetise(access_unit, max_payload) else {
        return;
    };
    // Start codes of three bytes become four bytes long.
    let mut assembler = Depacketiser::new(2 * access_unit.len());
    let mut marked = false;
    for payload in payloads {
        let mut out = Vec::new();
        payload.emit(&mut out);
        assert!(out.len() == payload.len() && out.len() <= max_payload && !marked);
        marked = payload.marker();
        assembler
            .push(&out)
            .expect("the packetiser emits valid payloads");
    }
    assert!(marked);
    let joined = assembler.take().expect("the access unit is complete");
    assert!(nal_units(&joined.data).eq(nal_units(access_unit)));
    assert_eq!(joined.contents, contents(access_unit));
}

/// RFC 2250 payloads, each after its length in two bytes: the depacketiser stays within its memory
/// limit.
pub fn mpeg2_assemble(data: &[u8]) {
    let mut assembler = mpeg2::Depacketiser::new(MAX_ACCESS_UNIT);
    let (mut rest, mut refused) = (data, false);
    while let Some((len, after)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len));
        let (payload, after) = after.split_at(len.min(after.len()));
        if let Ok(view) = mpeg2::VideoPayload::new_checked(payload) {
            let mut out = Vec::new();
            view.header().emit(&mut out);
            let again = mpeg2::VideoPayload::new_checked(&out).expect("emitted headers parse");
            assert_eq!(again.header(), view.header());
        }
        refused |= assembler.push(payload).is_err();
        assert!(assembler.len() <= MAX_ACCESS_UNIT);
        rest = after;
    }
    match assembler.take() {
        Ok(picture) => assert!(!refused && mpeg2::contents(&picture.data) == picture.contents),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(assembler.is_empty());
}

/// An access unit after the maximum payload size in two bytes: reassembly yields the same units.
/// Start codes and zero stuffing are those of H.264.
pub fn mpeg2_packetise(data: &[u8]) {
    let (head, access_unit) = data.split_at(data.len().min(2));
    let max_payload =
        usize::from(head.first_chunk().map_or(0, |two| u16::from_be_bytes(*two)) % 2_000);
    let Ok(payloads) = mpeg2::packetise(access_unit, max_payload) else {
        return;
    };
    let mut assembler = mpeg2::Depacketiser::new(access_unit.len());
    let mut marked = false;
    for payload in payloads {
        let mut out = Vec::new();
        payload.emit(&mut out);
        assert!(out.len() == payload.len() && out.len() <= max_payload && !marked);
        marked = payload.marker();
        assembler
            .push(&out)
            .expect("the packetiser emits valid payloads");
    }
    assert!(marked);
    match assembler.take() {
        Ok(joined) => assert!(nal_units(&joined.data).eq(nal_units(access_unit))),
        Err(error) => assert_eq!(error, mpeg2::AssembleError::Empty),
    }
}

/// A sequence parameter set of H.264, and an access unit of MPEG video: sizes are in range.
pub fn picture_size(data: &[u8]) {
    match Sps::parse(data) {
        Ok(sps) => {
            assert!((16..=32_768).contains(&sps.coded_width) && sps.coded_width % 16 == 0);
            assert!((16..=32_768).contains(&sps.coded_height) && sps.coded_height % 16 == 0);
            assert!((1..=sps.coded_width).contains(&sps.width));
            assert!((1..=sps.coded_height).contains(&sps.height));
            assert!(sps.chroma_format <= 3 && (8..=14).contains(&sps.bit_depth));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for sequence in mpeg2::sequences(data) {
        match sequence {
            Ok(mpeg2::Sequence { width, height, .. }) => {
                assert!((1..16_384).contains(&width) && (1..16_384).contains(&height));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// A byte stream in pieces whose length is the first byte: framing is restored, and memory is
/// bounded.
pub fn framing(data: &[u8]) {
    let Some((piece, stream)) = data.split_first() else {
        return;
    };
    let mut deframer = Deframer::new(MAX_ACCESS_UNIT);
    let mut again = Vec::new();
    for piece in stream.chunks(usize::from(*piece).max(1)) {
        deframer.push(piece);
        loop {
            match deframer.next_packet() {
                Ok(Some(packet)) => {
                    assert!((1..=MAX_ACCESS_UNIT).contains(&packet.len()));
                    framing::emit(&mut again, |out| out.extend_from_slice(packet))
                        .expect("the packet came in a frame");
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(error.length > error.max && !error.to_string().is_empty());
                    return;
                }
            }
        }
        assert!(deframer.waiting() < MAX_ACCESS_UNIT + framing::LENGTH);
    }
    // Empty packets are skipped; all others are returned.
    assert!(again.len() + deframer.waiting() <= stream.len());
}

/// Session descriptions: a parsed description survives a round trip.
pub fn sdp(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    match Sdp::parse(text) {
        Ok(sdp) => assert_eq!(Sdp::parse(&sdp.to_string()), Ok(sdp)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

const MAX_ACCESS_UNIT: usize = 1_000;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn random_rtcp_packets_break_nothing(bytes in vec(any::<u8>(), 0..120), kind in 200_u8..207, format in 0_u8..32) {
            let mut bytes = bytes;
            // Half of the cases have a valid header.
            if let [first, second, len @ ..] = &mut bytes[..]
                && format % 2 == 0
                && let Some(len) = len.first_chunk_mut()
            {
                (*first, *second, *len) = (0x80 | format, kind, [0, 20]);
            }
            rtcp(&bytes);
        }

        #[test]
        fn random_bytes_break_no_target(bytes in vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..160)) {
            for target in TARGETS {
                (target.run)(&bytes);
            }
        }
    }
}
