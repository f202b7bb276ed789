//! Start of a stream: the wait for a receiver.

use core::time::Duration;

use tidegate_core::control::{Context, Ecn};
use tidegate_core::controller::fixed::Fixed;
use tidegate_core::endpoint::{Datagram, Endpoint as _, Input};
use tidegate_core::media::Encoded;
use tidegate_core::random::Seed;
use tidegate_core::session::config::{KnownPath, SenderConfig, Streams};
use tidegate_core::session::sender::MediaSender;
use tidegate_core::units::{Rate, Time};
use tidegate_core::wire::ntp::NtpShort;
use tidegate_core::wire::rtcp::{self, Cname, ReportBlock};

/// Time of the first media packet of a sender. It gets a report at 500 ms if `answers`.
fn first_media(one_way: bool, answers: bool) -> Time {
    let mut rng = Seed(1).stream("session");
    let name = Cname::new("sender@example").unwrap();
    let mut config = SenderConfig::new(Streams::with_ssrcs(1, 2), name);
    config.one_way = one_way;
    let fixed = Fixed::new(Rate::kbps(500)).into();
    let mut sender = MediaSender::new(config, fixed, None, &mut rng);
    let mut now = Time::ZERO;
    let mut last_report = None;
    loop {
        now += Duration::from_millis(5);
        assert!(now < Time::from_secs(10), "no media is sent");
        let mut cx = Context {
            now,
            rng: &mut rng,
            trace: &mut (),
        };
        sender.handle(&mut cx, Input::Timeout);
        if let Some(order) = sender.poll_order(&mut cx) {
            let encoded = Encoded {
                frame: order.frame,
                captured: order.captured,
                key: order.key,
                leading: false,
                data: vec![0, 0, 0, 1, 0x65, 0x88],
                quality: None,
            };
            sender.on_encoded(cx.now, Ok(encoded));
        }
        let mut buffer = Vec::new();
        while sender.poll(&mut cx, &mut buffer).transmit().is_some() {
            if !rtcp::is_rtcp(&buffer) {
                return now;
            }
            // Middle 32 bits of the NTP timestamp of the sender report.
            last_report = Some(<[u8; 4]>::try_from(&buffer[10..14]).unwrap());
            buffer.clear();
        }
        if answers && now == Time::from_millis(500) {
            let block = ReportBlock {
                ssrc: 1,
                last_sr: NtpShort(u32::from_be_bytes(last_report.expect("a greeting"))),
                ..ReportBlock::default()
            };
            let mut report = Vec::new();
            rtcp::emit_receiver_report(9, &[block], &mut report);
            let payload = &report;
            let ecn = Ecn::NotEct;
            sender.handle(
                &mut cx,
                Input::Datagram(Datagram {
                    ecn,
                    dscp: 0,
                    payload,
                }),
            );
        }
    }
}

/// A receiver that starts up to two seconds later than the sender misses nothing.
#[test]
fn a_one_way_stream_waits_for_its_receiver_to_start() {
    let at = first_media(true, false);
    assert!(
        (2_000..2_100).contains(&(at.as_nanos() / 1_000_000)),
        "{at:?}"
    );
    let at = first_media(false, false);
    assert!((600..700).contains(&(at.as_nanos() / 1_000_000)), "{at:?}");
}

#[test]
fn an_answer_starts_the_stream() {
    for one_way in [true, false] {
        let at = first_media(one_way, true);
        assert!((500..600).contains(&(at.as_nanos() / 1_000_000)), "{at:?}");
    }
}

/// Rate of the first order of a sender that does not greet, and the time of its capture.
fn first_order(known_path: Option<KnownPath>) -> (Rate, Time) {
    let mut rng = Seed(1).stream("session");
    let name = Cname::new("sender@example").unwrap();
    let mut config = SenderConfig::new(Streams::with_ssrcs(1, 2), name);
    config.greets = false;
    config.known_path = known_path;
    let fixed = Fixed::new(Rate::kbps(20)).into();
    let mut sender = MediaSender::new(config, fixed, None, &mut rng);
    let now = Time::from_millis(7);
    let mut cx = Context {
        now,
        rng: &mut rng,
        trace: &mut (),
    };
    sender.handle(&mut cx, Input::Timeout);
    let order = sender
        .poll_order(&mut cx)
        .expect("the stream begins at once");
    (order.rate, order.captured)
}

#[test]
fn a_peer_that_reports_on_media_only_gets_it_at_once() {
    let at = Time::from_millis(7);
    assert_eq!(first_order(None), (Rate::kbps(150), at));
    let known = KnownPath {
        rtt: Duration::from_millis(40),
        rate: Rate::kbps(3_000),
    };
    // Packets of 1,200 bytes have 40 bytes of headers.
    assert_eq!(first_order(Some(known)), (Rate::kbps(2_900), at));
}

/// Plays to a player for `seconds`. `frame` is the size of a frame at a time; `reports` says whether
/// the player reports now, that many bytes after the last time. Returns the time of the last media
/// packet, and the bytes since the last report.
fn play(seconds: u64, frame: fn(Time) -> usize, reports: fn(Time, usize) -> bool) -> (Time, usize) {
    let mut rng = Seed(1).stream("session");
    let name = Cname::new("sender@example").unwrap();
    let mut config = SenderConfig::new(Streams::with_ssrcs(1, 2), name);
    config.greets = false;
    let fixed = Fixed::new(Rate::kbps(100)).into();
    let mut sender = MediaSender::new(config, fixed, None, &mut rng);
    let (mut last_media, mut highest, mut last_sr) = (Time::ZERO, 0, NtpShort(0));
    let mut unreported = 0;
    for step in 1..=seconds * 50 {
        let now = Time::from_millis(step * 20);
        let mut cx = Context {
            now,
            rng: &mut rng,
            trace: &mut (),
        };
        sender.handle(&mut cx, Input::Timeout);
        if let Some(order) = sender.poll_order(&mut cx) {
            let mut data = vec![0, 0, 0, 1, 0x65, 0x88];
            data.resize(data.len() + frame(now), 0xff);
            let encoded = Encoded {
                frame: order.frame,
                captured: order.captured,
                key: order.key,
                leading: false,
                data,
                quality: None,
            };
            sender.on_encoded(now, Ok(encoded));
        }
        let mut buffer = Vec::new();
        while sender.poll(&mut cx, &mut buffer).transmit().is_some() {
            if rtcp::is_rtcp(&buffer) {
                last_sr = NtpShort(u32::from_be_bytes(buffer[10..14].try_into().unwrap()));
            } else {
                last_media = now;
                unreported += buffer.len();
                highest = u32::from(u16::from_be_bytes([buffer[2], buffer[3]]));
            }
            buffer.clear();
        }
        if reports(now, unreported) {
            unreported = 0;
            let block = ReportBlock {
                ssrc: 1,
                highest_sequence: highest,
                last_sr,
                ..ReportBlock::default()
            };
            let mut payload = Vec::new();
            rtcp::emit_receiver_report(9, &[block], &mut payload);
            let datagram = Datagram {
                ecn: Ecn::NotEct,
                dscp: 0,
                payload: &payload,
            };
            sender.handle(&mut cx, Input::Datagram(datagram));
        }
    }
    (last_media, unreported)
}

/// A player that reports every 20 s, as ffmpeg does at 110 kb/s, is served on: the circuit breaker
/// expects its reports at their own interval.
#[test]
fn a_player_that_reports_seldom_is_served_on() {
    let every_20_s = |now: Time, _| now.as_nanos().is_multiple_of(20_000_000_000);
    let (last_media, _) = play(120, |_| 0, every_20_s);
    assert!(last_media > Time::from_secs(119), "{last_media:?}");
}

/// A player that reports per 30 kB is served on in a quiet passage from 20 s on, in which they take
/// about a minute. One that disappears in it gets as much as before three reports.
#[test]
fn a_player_that_reports_per_bytes_is_served_in_a_quiet_passage() {
    let frame = |now: Time| if now < Time::from_secs(20) { 350 } else { 0 };
    let (last_media, _) = play(200, frame, |_, bytes| bytes >= 30_000);
    assert!(last_media > Time::from_secs(199), "{last_media:?}");
    let until_25_s = |now: Time, bytes| bytes >= 30_000 && now < Time::from_secs(25);
    let (last_media, unreported) = play(400, frame, until_25_s);
    assert!(last_media < Time::from_secs(390), "{last_media:?}");
    assert!((80_000..100_000).contains(&unreported), "{unreported} B");
}
