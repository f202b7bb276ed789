use proptest::prelude::*;

use super::*;

prop_compose! {
    fn sets()(
        sps in proptest::collection::vec(any::<u8>(), 3..30),
        pps in proptest::collection::vec(any::<u8>(), 1..9),
    ) -> ParameterSets {
        ParameterSets::new(&[&[0x67][..], &sps].concat(), &[&[0x68][..], &pps].concat()).unwrap()
    }
}

prop_compose! {
    fn source()(ssrc: u32, rtx_ssrc: Option<u32>, parity_ssrc: Option<u32>, probe_ssrc: Option<u32>, cname in "[a-z日 :=]{1,9}") -> Source {
        Source { ssrc, rtx_ssrc, parity_ssrc, probe_ssrc, cname: Cname::new(cname).unwrap() }
    }
}

prop_compose! {
    fn crypto()(suite in 0..CryptoSuite::ALL.len(), key: [u8; 46]) -> Crypto {
        let suite = CryptoSuite::ALL[suite];
        Crypto::new(suite, key[..suite.key_len() + suite.salt_len()].to_vec()).unwrap()
    }
}

prop_compose! {
    fn sdp()(
        session: u64,
        address: IpAddr,
        port: u16,
        media in 0_u8..64,
        rtx in proptest::option::of(64_u8..128),
        parity in proptest::option::of(64_u8..128),
        parameter_sets in proptest::option::of(sets()),
        millis in proptest::option::of(any::<u32>()),
        source in proptest::option::of(source()),
        source_filter in proptest::collection::vec(any::<IpAddr>(), 0..3),
        crypto in proptest::collection::vec(crypto(), 0..3),
        rtcp_port: Option<u16>,
        flags: (bool, bool, bool, bool, bool, bool),
    ) -> Sdp {
        let (nack, pli, ccfb, transport_cc, rtcp_mux, rtcp_reduced_size) = flags;
        Sdp {
            session, address, port,
            payload_type: PayloadType::new(media).unwrap(),
            rtx: rtx.and_then(PayloadType::new),
            parity: parity.filter(|_| rtx.is_none()).or(rtx.map(|rtx| rtx ^ 1)).and_then(PayloadType::new),
            probe: rtx.map(|rtx| rtx ^ 2).and_then(PayloadType::new),
            // MPEG-2 (type 32) has no parameter sets.
            parameter_sets: parameter_sets.filter(|_| media != 32),
            frame_rate: millis.map(|millis| {
                let divisor = gcd(millis, 1000);
                FrameRate { num: millis / divisor, den: 1000 / divisor }
            }),
            source,
            source_filter,
            crypto,
            feedback: Feedback { nack, pli, ccfb, transport_cc },
            rtcp_mux,
            rtcp_port,
            rtcp_reduced_size,
        }
    }
}

proptest! {
    #[test]
    fn descriptions_round_trip(sdp in sdp()) {
        prop_assert_eq!(Sdp::parse(&sdp.to_string()), Ok(sdp));
    }

    #[test]
    fn damaged_descriptions_do_not_panic(sdp in sdp(), at in any::<prop::sample::Index>(), with in ".") {
        let text = sdp.to_string();
        let at = text.floor_char_boundary(at.index(text.len()));
        let next = text.ceil_char_boundary(at + 1);
        let damaged = [&text[..at], &with, &text[next..]].concat();
        if let Ok(read) = Sdp::parse(&damaged) {
            prop_assert_eq!(Sdp::parse(&read.to_string()), Ok(read));
        }
    }
}

const FOREIGN: &str = "v=0
o=- 0 0 IN IP4 127.0.0.1
s=No Name
c=IN IP4 239.1.2.3/127
t=0 0
a=tool:libavformat
m=audio 5002 RTP/AVP 97
a=rtpmap:97 MPEG4-GENERIC/44100/2
m=video 5004 RTP/AVP 96 98
b=AS:800
a=rtpmap:98 VP8/90000
a=rtpmap:96 h264/90000
a=fmtp:96 profile-level-id=42C01F; packetization-mode=1; sprop-parameter-sets=Z0LAH9o,aM4
m=video 6000 RTP/AVP 99
a=rtpmap:99 H264/90000
";

#[test]
fn descriptions_of_other_senders_are_parsed() {
    let sdp = Sdp::parse(FOREIGN).unwrap();
    assert_eq!(
        (sdp.address, sdp.port),
        (IpAddr::from([239, 1, 2, 3]), 5004)
    );
    assert_eq!(
        (sdp.payload_type.get(), sdp.rtx, sdp.source),
        (96, None, None)
    );
    assert_eq!(
        sdp.parameter_sets.unwrap().profile_level_id(),
        [0x42, 0xc0, 0x1f]
    );
    assert_eq!((sdp.feedback, sdp.rtcp_mux), (Feedback::default(), false));
}

#[test]
fn keys_of_other_senders_are_parsed() {
    let with = |lines: &str| {
        let secure = FOREIGN.replace("5004 RTP/AVP", "5004 RTP/SAVP");
        Sdp::parse(&secure.replace("b=AS:800", lines))
    };
    let key = "d0RmdmcmVCspeEc3QGZiNWpVLFJhQX1cfHAwJSoj";
    let sdp = with(&format!(
        "a=crypto:1 F8_128_HMAC_SHA1_80 inline:{key}\n\
         a=crypto:2 AES_CM_128_HMAC_SHA1_32 inline:{key} UNENCRYPTED_SRTP\n\
         a=crypto:3 AES_CM_128_HMAC_SHA1_80 inline:{key}|2^20 -WSH=64"
    ));
    let crypto = sdp.unwrap().crypto;
    assert_eq!(crypto.len(), 1);
    assert_eq!(crypto[0].suite(), CryptoSuite::AesCm128HmacSha1_80);
    assert_eq!(crypto[0].key(), b"wDfvg&T+)xG7@fb5");
    assert!(with("a=x").unwrap_err().to_string().contains("a=crypto"));
    let good = format!("a=crypto:2 AES_CM_128_HMAC_SHA1_32 inline:{key}");
    for (wrong, fault) in [
        (format!("AEAD_AES_128_GCM inline:{key}"), SdpFault::Crypto),
        (format!("AES_CM_128_HMAC_SHA1_80 {key}"), SdpFault::Crypto),
        (
            format!("AES_CM_128_HMAC_SHA1_80 inline:{key}|2^20|1:4"),
            SdpFault::KeyIdentifier,
        ),
        (
            "AES_CM_128_HMAC_SHA1_80 inline:!".to_owned(),
            SdpFault::Crypto,
        ),
    ] {
        let error = Err(SdpError::Line { number: 10, fault });
        assert_eq!(with(&format!("a=crypto:1 {wrong}")), error);
        // Another line has a key that is understood.
        let sdp = with(&format!("a=crypto:1 {wrong}\n{good}")).unwrap();
        assert_eq!(sdp.crypto.len(), 1, "{wrong}");
    }
}

#[test]
fn errors_name_the_line() {
    let error = |from: &str, to: &str| Sdp::parse(&FOREIGN.replace(from, to)).unwrap_err();
    let line = |number, fault| SdpError::Line { number, fault };
    assert_eq!(error("t=0 0", "hello"), line(5, SdpFault::NoType));
    assert_eq!(error("o=- 0", "o=- x"), line(2, SdpFault::Origin));
    assert_eq!(
        error("IP4 239.1.2.3/127", "IP4 example.org"),
        line(4, SdpFault::Address)
    );
    assert_eq!(
        error("IP4 239.1.2.3/127", "IP6 1.2.3.4"),
        line(4, SdpFault::Address)
    );
    assert_eq!(
        error("5004 RTP/AVP", "5004/2 RTP/AVP"),
        line(9, SdpFault::Port)
    );
    assert_eq!(
        error("5004 RTP/AVP", "5004 UDP"),
        line(9, SdpFault::Protocol)
    );
    assert_eq!(error("96 98", "96 x"), line(9, SdpFault::PayloadType));
    assert_eq!(
        error("tool:libavformat", "source-filter: excl IN IP4 * 192.0.2.1"),
        line(6, SdpFault::SourceFilter)
    );
    assert_eq!(
        error(
            "tool:libavformat",
            "source-filter: incl IN IP4 * example.org"
        ),
        line(6, SdpFault::SourceFilter)
    );
    assert_eq!(
        error("h264/90000", "h264/8000"),
        line(12, SdpFault::ClockRate)
    );
    assert_eq!(
        error("mode=1", "mode=2"),
        line(13, SdpFault::PacketisationMode)
    );
    assert_eq!(
        error("b=AS:800", "a=framerate:x"),
        line(10, SdpFault::FrameRate)
    );
    assert_eq!(
        error("b=AS:800", "a=ssrc:x cname:y"),
        line(10, SdpFault::Ssrc)
    );
    assert_eq!(
        error("b=AS:800", "a=ssrc:1 cname:"),
        line(10, SdpFault::Cname)
    );
    assert_eq!(error("h264/90000", "H265/90000"), line(12, SdpFault::H265));
    assert_eq!(
        error("h264", "vp8"),
        SdpError::Missing {
            what: "a=rtpmap of H264/90000 or payload type 32"
        }
    );
    assert_eq!(Sdp::parse("v=0\n"), Err(SdpError::Missing { what: "c=" }));
}

#[test]
fn descriptions_of_cameras_are_read() {
    let read = |from: &str, to: &str| {
        assert!(FOREIGN.contains(from), "{from}");
        Sdp::parse(&FOREIGN.replace(from, to))
    };
    let plain = Sdp::parse(FOREIGN).unwrap();
    for broken in ["Z!L", "Zw==,"] {
        let sdp = read("Z0L", broken).unwrap();
        let without = Sdp {
            parameter_sets: None,
            ..plain.clone()
        };
        assert_eq!(sdp, without, "{broken}");
    }
    assert_eq!(read("o=- 0", "x=- 0").unwrap().session, 0);
    assert_eq!(read("5004 RTP/AVP", "5004/1 RTP/AVP").unwrap().port, 5_004);
    for text in ["a=framerate: 30", "a=framerate:30 ", "a=framerate: 30.000"] {
        let rate = read("b=AS:800", text).unwrap().frame_rate;
        assert_eq!(rate, Some(FrameRate::fps(30)), "{text}");
    }
}
