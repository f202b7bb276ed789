//! `tidegate send` and `tidegate recv` as processes, over loopback.

mod calm;
#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;
use std::{fs, io, thread};

use calm::judged;
use program::{GUARD, Program, Scratch, free_pair, load, text};
use rand_core::Rng as _;
use tidegate_core::control::Ecn;
use tidegate_core::endpoint::Transmit;
use tidegate_core::random::Seed;
use tidegate_core::wire::h264;
use tidegate_core::wire::ntp::NtpShort;
use tidegate_core::wire::rtcp::{self, Cname, ReportBlock, Rtcp};
use tidegate_core::wire::rtp::RtpPacket;
use tidegate_core::wire::sdp::Sdp;
use tidegate_live::clock::Clock;
use tidegate_live::udp::{Recognition, Socket, SourceFilter};
use tidegate_record::Run;

/// A receiver at a free port.
fn receiver(options: &str) -> (Program, u16) {
    let mut receiver = Program::tidegate(&format!("recv --listen 127.0.0.1:0 {options}"));
    let port = receiver.number("waiting for a stream at port ");
    (receiver, port)
}

/// A sender of small pictures.
fn sender(port: u16, options: &str) -> Program {
    let size = "--size 320x180 --ceiling 2Mb/s --preset ultrafast --adapt no";
    Program::tidegate(&format!("send --to 127.0.0.1:{port} {size} {options}"))
}

#[test]
fn a_stream_arrives_with_good_quality() {
    judged(
        "a_stream_arrives_with_good_quality",
        arrives_with_good_quality,
    );
}

fn arrives_with_good_quality() {
    let scratch = Scratch::new("arrives");
    let [sent, received, film] = ["sent", "received", "film.h264"].map(|n| scratch.path(n));
    let (receiver, port) = receiver(&format!(
        "--reference scene --json --run {} --out {}",
        text(&received),
        text(&film)
    ));
    let sender = sender(port, &format!("--duration 4s --json --run {}", text(&sent)));
    let sender = sender.wait();
    let receiver = receiver.wait();
    sender.succeeded();
    receiver.succeeded();

    let (sent, received) = (load(&sent), load(&received));
    assert_eq!(sent.flows[0].sent.len(), 120, "{}", sender.said);
    assert!(
        sent.notes.iter().all(|n| n.contains("missing")),
        "{:?}",
        sent.notes
    );
    let whole = |f: &&tidegate_record::ReceivedFrame| f.decodable && f.quality.is_some();
    let whole = received.flows[0].received.iter().filter(whole).count();
    // Not all of them: on a busy machine a frame may be late.
    assert!(whole >= 100, "{whole} frames\n{}", receiver.said);
    let summary = |run: &Run| run.summary.clone().unwrap().flows.remove(0);
    let likeness = summary(&received).psnr_y_db.unwrap();
    assert!((30.0..80.0).contains(&likeness), "PSNR {likeness} dB");
    assert_eq!(summary(&sent).frames.made, Some(120));
    assert!(!sent.flows[0].info.one_clock && !received.flows[0].info.one_clock);
    for program in [&sender, &receiver] {
        let json: serde_json::Value = serde_json::from_str(&program.output).unwrap();
        assert_eq!(json["flows"][0]["name"], "stream", "{}", program.output);
    }
    let film = fs::read(film).unwrap();
    // One slice per picture: types 1 and 5 of ITU-T H.264 table 7-1.
    let slices = h264::nal_units(&film).filter(|nal| [1, 5].contains(&(nal[0] & 0x1f)));
    let decodable = received.flows[0].received.iter().filter(|f| f.decodable);
    assert_eq!(slices.count(), decodable.count());
}

#[test]
fn a_closed_port_is_named() {
    let closed = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for duration in ["1s", "30s"] {
        let ended = sender(closed.port(), &format!("--duration {duration}")).wait();
        ended.failed_with(&format!("connection refused by {closed}"));
    }
}

#[test]
fn invalid_options_are_rejected_with_the_fix() {
    for (arguments, fix) in [
        ("send --to nowhere", "HOST:PORT"),
        (
            "send --to 127.0.0.1:9 --input /nowhere/film.mp4",
            "/nowhere/film.mp4",
        ),
        (
            "send --to 127.0.0.1:9 --floor 2Mb/s --ceiling 1Mb/s",
            "--floor",
        ),
        ("send --to 127.0.0.1:9 --packet-size 100B", "--packet-size"),
        (
            "transcode --input missing --to 127.0.0.1:9 --packet-size 100B",
            "--packet-size",
        ),
        ("send --to 127.0.0.1:9 --ecn --one-way", "--one-way"),
        (
            "send --to 127.0.0.1:9 --ecn --control fixed:1Mb/s",
            "--control fixed",
        ),
        (
            "send --to 127.0.0.1:9 --ecn --transport tcp",
            "net.ipv4.tcp_ecn",
        ),
        ("recv --sdp /nowhere/stream.sdp", "/nowhere/stream.sdp"),
        (
            "recv --listen 127.0.0.1:0 --duration 100ms",
            "no packet of this stream arrived",
        ),
    ] {
        Program::tidegate(arguments).wait().failed_with(fix);
    }
    let waited = Program::tidegate("recv --listen 127.0.0.1:0 --duration 100ms").wait();
    assert!(
        waited.said.contains("no stream arrived in 0.1 s"),
        "{}",
        waited.said
    );
    for (arguments, fix) in [
        (
            "send --to 127.0.0.1:9 --transport quic",
            "\"quic\" is not a transport",
        ),
        (
            "send --to 127.0.0.1:9 --duration 0s",
            "'--duration <TIME>': a duration of zero: give a longer one",
        ),
        (
            "recv --duration 0ms",
            "'--duration <TIME>': a duration of zero",
        ),
        (
            "recv --idle-timeout 0s",
            "'--idle-timeout <TIME>': a duration of zero",
        ),
        (
            "recv --sdp stream.sdp --codec mpeg2",
            "'--sdp <FILE>' cannot be used with '--codec <CODEC>'",
        ),
    ] {
        let usage = Program::tidegate(arguments).wait();
        assert_eq!(usage.status.code(), Some(2), "{}", usage.said);
        assert!(usage.said.contains(fix), "{}", usage.said);
    }
}

/// The receiver is killed, so that the circuit breaker stops the sender. Another receiver at the
/// same port resumes the stream. The killed processes leave readable run folders.
#[test]
fn the_breaker_stops_the_stream_and_another_receiver_resumes_it() {
    let scratch = Scratch::new("breaker");
    let [sent, received] = ["sent", "received"].map(|n| scratch.path(n));
    let (mut first, port) = receiver(&format!("--run {}", text(&received)));
    let mut sender = sender(port, &format!("--run {}", text(&sent)));
    first.wait_for_line("frames/s");
    first.wait_for_line("frames/s");
    first.kill();
    sender.wait_for_line("circuit breaker stopped");
    let mut second =
        Program::tidegate(&format!("recv --listen 127.0.0.1:{port} --idle-timeout 1s"));
    second.wait_for_line("the stream has started");
    sender.wait_for_line("the stream continues");
    second.wait_for_line("frames/s");
    sender.kill();
    second.wait().failed_with("sent no BYE");

    let (sent, received) = (load(&sent), load(&received));
    assert!(
        received.flows[0].received.len() >= 10,
        "a second of rows is on the disk"
    );
    assert!(sent.flows[0].sent.len() >= 60 && !sent.flows[0].packets.is_empty());
    let tripped = |run: &Run| {
        let events = run.events.iter();
        let tripped = |e: &&tidegate_record::EventRow| {
            matches!(e.event, tidegate_core::trace::Event::BreakerTripped { .. })
        };
        events.filter(tripped).count()
    };
    assert!(tripped(&sent) >= 1 && sent.summary.is_none());
}

#[test]
fn ctrl_c_is_a_clean_end() {
    let scratch = Scratch::new("interrupt");
    let [sent, received] = ["sent", "received"].map(|n| scratch.path(n));
    let (first, port) = receiver(&format!("--run {}", text(&received)));
    let mut sending = sender(port, &format!("--run {}", text(&sent)));
    sending.wait_for_line(" of 400 ms");
    sending.interrupt();
    sending.wait().succeeded();
    // The BYE ends the receiver, too.
    first.wait().succeeded();
    for run in [load(&sent), load(&received)] {
        assert!(run.summary.is_some(), "{:?}", run.notes);
    }

    // An interrupted receiver sends BYE, too; its sender waits for the next receiver.
    let (mut second, port) = receiver("");
    let mut sending = sender(port, "");
    second.wait_for_line("frames/s");
    second.interrupt();
    second.wait().succeeded();
    sending.wait_for_line("has left: waiting for another receiver");
    let mut third = Program::tidegate(&format!("recv --listen 127.0.0.1:{port}"));
    third.wait_for_line("the stream has started");
    sending.wait_for_line("the stream continues");
    third.interrupt();
    third.wait().succeeded();
    sending.wait_for_line("has left");
    sending.interrupt();
    sending.wait_for_line("sent ");
    sending.wait().succeeded();
}

/// A queue on the path marks every twentieth ECN-capable packet.
#[test]
fn ecn_marks_are_requested_and_reported() {
    let (receiver, port) = receiver("");
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
    let way = front.local_addr().unwrap().port();
    let front = Socket::listening(front, Recognition::any(), SourceFilter::default()).unwrap();
    let back = Socket::connected(back, (Ipv4Addr::LOCALHOST, port).into()).unwrap();
    let relay = thread::spawn(move || relay(front, back));
    let sender = sender(way, "--ecn --duration 2s").wait();
    let marks = relay.join().unwrap();
    sender.succeeded();
    receiver.wait().succeeded();
    assert!(marks > 1);
    let reported = sender.said.split(" packets lost, ").nth(1);
    let reported: u64 = reported
        .and_then(|t| t.split(' ').next())
        .unwrap()
        .parse()
        .unwrap();
    // The sender may end before the last reports arrive.
    assert!((1..=marks).contains(&reported), "{reported} of {marks}");

    let plain = sender_without_marks();
    assert!(!plain.contains("marked"), "{plain}");
}

/// Relays packets until the sender's BYE. Returns the number of marked packets.
fn relay(mut front: Socket, mut back: Socket) -> u64 {
    let clock = Clock::start();
    let mut buffer = [0; 2_048];
    let (mut media, mut marks) = (0_u64, 0);
    loop {
        let mut ready = [&front, &back].map(|socket| libc::pollfd {
            fd: socket.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let guard = GUARD.as_millis() as i32;
        // SAFETY: two entries, as given by the count.
        assert!(unsafe { libc::poll(ready.as_mut_ptr(), 2, guard) } > 0);
        while let Some(arrival) = front.receive(clock, &mut buffer).unwrap() {
            let datagram = &buffer[..arrival.length];
            let is_report = rtcp::is_rtcp(datagram);
            let mut how = Transmit::default();
            if is_report {
                assert_eq!(arrival.ecn, Ecn::NotEct);
            } else {
                assert_eq!(arrival.ecn, Ecn::Ect0);
                media += 1;
                how.ecn = Ecn::Ect0;
            }
            if !is_report && media.is_multiple_of(20) {
                how.ecn = Ecn::Ce;
                marks += 1;
            }
            back.send(datagram, how).unwrap();
            let mut packets = rtcp::packets(datagram).flatten();
            if is_report && packets.any(|packet| matches!(packet, Rtcp::Bye(_))) {
                return marks;
            }
        }
        while let Some(arrival) = back.receive(clock, &mut buffer).unwrap() {
            let how = Transmit::default();
            front.send(&buffer[..arrival.length], how).unwrap();
        }
    }
}

/// Messages of a sender without ECN.
fn sender_without_marks() -> String {
    let (receiver, port) = receiver("");
    let ended = sender(port, "--duration 1s").wait();
    receiver.wait().succeeded();
    ended.said.clone()
}

/// A typical receiver: RTP at an even port, receiver reports from another port.
#[test]
fn a_plain_receiver_is_served_by_its_reports() {
    // Reports to the port above the sender's, or to the sender's own.
    for above in [1, 0] {
        a_plain_receiver_reports_to(above);
    }
}

fn a_plain_receiver_reports_to(above: u16) {
    let scratch = Scratch::new(&format!("plain-{above}"));
    let description = scratch.path("stream.sdp");
    let media = UdpSocket::bind("127.0.0.1:0").unwrap();
    media.set_read_timeout(Some(GUARD)).unwrap();
    let reports = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = media.local_addr().unwrap().port();
    let options = format!("--insecure --sdp {}", text(&description));
    let mut sending = sender(port, &options);
    let source = sending.number(" from port ");
    let sdp = fs::read_to_string(&description).unwrap();
    let sdp = Sdp::parse(&sdp).unwrap();
    let ssrc = sdp.source.unwrap().ssrc;
    assert!(sdp.rtcp_mux && sdp.parameter_sets.is_some() && sdp.port == port);

    let mut buffer = [0; 2_048];
    let mut frames = 0;
    while frames < 60 {
        let length = media.recv(&mut buffer).unwrap();
        let datagram = &buffer[..length];
        if rtcp::is_rtcp(datagram) {
            continue;
        }
        let header = RtpPacket::new_checked(datagram).unwrap().header();
        assert_eq!(header.ssrc, ssrc);
        if !header.marker {
            continue;
        }
        frames += 1;
        if frames % 10 == 0 {
            let block = ReportBlock {
                ssrc,
                fraction_lost: 0,
                cumulative_lost: 0,
                highest_sequence: u32::from(header.sequence),
                jitter: 0,
                last_sr: NtpShort::default(),
                delay_since_last_sr: NtpShort::default(),
            };
            let mut out = Vec::new();
            rtcp::emit_receiver_report(7, &[block], &mut out);
            rtcp::emit_sdes(7, &Cname::new("plain").unwrap(), &mut out);
            reports
                .send_to(&out, ("127.0.0.1", source + above))
                .unwrap();
        }
    }
    sending.wait_for_line("receiver reports only");
    sending.interrupt();
    let ended = sending.wait();
    ended.succeeded();
    assert_eq!(ended.said.matches("receiver reports only").count(), 1);
}

/// A receiver that never reports, and one that starts when the stream runs.
#[test]
fn a_silent_receiver_is_served_and_a_late_one_is_noticed() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_read_timeout(Some(GUARD)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let mut sending = sender(port, "--fps 5");
    sending.wait_for_line("has not answered yet: sending at the lowest rate");
    // The first frame has sequence parameter set, picture parameter set and slices.
    let (mut buffer, mut timestamps) = ([0; 2_048], Vec::new());
    while timestamps.len() < 16 {
        let length = silent.recv(&mut buffer).unwrap();
        if !rtcp::is_rtcp(&buffer[..length]) {
            let packet = RtpPacket::new_checked(&buffer[..length]).unwrap();
            timestamps.push(packet.header().timestamp);
            timestamps.dedup();
        }
    }
    // 90,000 / 5, and no frame is missing.
    let gaps = timestamps.windows(2).map(|w| w[1].wrapping_sub(w[0]));
    assert!(
        gaps.into_iter().all(|gap| gap.abs_diff(18_000) <= 1),
        "{timestamps:?}"
    );
    drop(silent);
    let mut late = Program::tidegate(&format!("recv --listen 127.0.0.1:{port}"));
    late.wait_for_line("frames/s");
    late.wait_for_line("frames/s");
    sending.interrupt();
    sending.wait().succeeded();
    let received = late.wait();
    received.succeeded();
    assert!(received.whole_frames() >= 5, "{}", received.said);
}

#[test]
fn our_receiver_can_send_receiver_reports_only() {
    let (receiver, port) = receiver("--feedback reports");
    let mut sending = sender(port, "");
    sending.wait_for_line("receiver reports only");
    sending.interrupt();
    sending.wait().succeeded();
    receiver.wait().succeeded();
}

#[test]
fn ffmpeg_accepts_the_description() {
    if let Err(e) = Command::new("ffmpeg").arg("-version").output() {
        assert_eq!(e.kind(), io::ErrorKind::NotFound, "{e}");
        println!("skipped: there is no ffmpeg on this machine");
        return;
    }
    let scratch = Scratch::new("ffmpeg");
    let description = scratch.path("stream.sdp");
    let mut sending = sender(
        free_pair(),
        &format!(
            "--insecure --one-way --floor 500kb/s --sdp {}",
            text(&description)
        ),
    );
    sending.wait_for_line("sending");
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-hide_banner", "-nostdin", "-loglevel", "error"]);
    ffmpeg.args(["-protocol_whitelist", "file,udp,rtp", "-i"]);
    ffmpeg.arg(&description).args(["-frames:v", "60"]);
    ffmpeg.args(["-progress", "pipe:1", "-f", "null", "-"]);
    let played = Program::start(&mut ffmpeg).wait();
    sending.interrupt();
    sending.wait().succeeded();
    played.succeeded();
    assert!(
        played.output.contains("frame=60"),
        "{}\n{}",
        played.output,
        played.said
    );
}

#[test]
fn malformed_datagrams_are_ignored() {
    judged("malformed_datagrams_are_ignored", continue_among_malformed);
}

fn continue_among_malformed() {
    let (mut receiving, port) = receiver("");
    let mut sending = sender(port, "");
    let source = sending.number(" from port ");
    receiving.wait_for_line("the stream has started");
    let enemy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut rng = Seed(1).stream("enemy");
    for round in 0..4_000_u32 {
        let mut junk = vec![0; (rng.next_u32() % 1_400) as usize];
        rng.fill_bytes(&mut junk);
        // Half of it resembles valid packets: RTP, SR, RR, feedback, BYE.
        if round.is_multiple_of(2) && junk.len() > 3 {
            let kinds = [96, 97, 200, 201, 203, 205, 206];
            junk[0] = 0x80 | junk[0] & 0x3f;
            junk[1] = kinds[round as usize / 2 % kinds.len()];
            let words = (junk.len() / 4 - 1) as u16;
            junk[2..4].copy_from_slice(&words.to_be_bytes());
        }
        for port in [port, source, source + 1] {
            // The kernel rejects it for a port that is connected to another address.
            let _ = enemy.send_to(&junk, ("127.0.0.1", port));
        }
    }
    receiving.wait_for_line("frames/s");
    let line = receiving.wait_for_line("frames/s");
    let rate = line.split(" frames/s").next().unwrap();
    let rate: u32 = rate.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(rate >= 15, "the stream continues: {line}");
    sending.interrupt();
    sending.wait().succeeded();
    receiving.wait().succeeded();
}
