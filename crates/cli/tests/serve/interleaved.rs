//! RTP interleaved in the RTSP connection (RFC 2326 section 10.12).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use tidegate_core::wire::rtcp;
use tidegate_core::wire::rtp::RtpPacket;

use super::program::Scratch;
use super::{Server, ffmpeg, has, make_video, text, value, write_video};

/// With TCP given, preferred, and as the player comes.
#[test]
fn ffmpeg_plays_over_tcp() {
    if !has("ffmpeg", &["-version"]) {
        return;
    }
    let folder = Scratch::new("serve-tcp");
    write_video(&folder.path("clip.h264"), 75, 300);
    let stored = ffmpeg(&["-i", text(&folder.path("clip.h264"))]);
    let server = Server::start(&folder.path("."), "");
    for how in [
        &["-rtsp_transport", "tcp"][..],
        &["-rtsp_flags", "prefer_tcp"],
        &[],
    ] {
        let url = server.url("clip.h264");
        let arguments = [how, &["-i", &url]].concat();
        assert_eq!(ffmpeg(&arguments), stored, "{how:?}");
    }
    let end = server.end();
    assert_eq!(end.matches("plays clip.h264, over TCP").count(), 2, "{end}");
    assert_eq!(end.matches("75 frames sent, 0 dropped").count(), 3, "{end}");
}

/// A client of one connection.
struct Client {
    stream: TcpStream,
    url: String,
    session: String,
}

/// An interleaved RTP packet: timestamp, size.
type Packet = (u32, usize);

impl Client {
    fn connect(server: &Server, title: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        // A window of a sixth of a second of the stream that stalls. A smaller one would limit its rate.
        let size: libc::c_int = 65_536;
        // SAFETY: the option has an integer, which is passed with its size.
        let set = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                (&raw const size).cast(),
                size_of_val(&size) as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Self {
            stream,
            url: server.url(title),
            session: String::new(),
        }
    }

    fn send(&mut self, method: &str, headers: &str) {
        let Self { url, session, .. } = self;
        let request = format!("{method} {url} RTSP/1.0\r\nCSeq: 1\r\n{session}{headers}\r\n");
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    /// The next response, and the packets before it.
    fn answer(&mut self) -> (String, usize) {
        let mut packets = 0;
        loop {
            match self.next() {
                Ok(response) => return (response, packets),
                Err(_) => packets += 1,
            }
        }
    }

    fn play(&mut self) {
        self.send("SETUP", "Transport: RTP/AVP/TCP;interleaved=4-5\r\n");
        let (answer, _) = self.answer();
        assert!(
            answer.contains("RTP/AVP/TCP;unicast;interleaved=4-5;ssrc="),
            "{answer}"
        );
        let session = value(&answer, "Session: ").unwrap();
        let session = session.split(';').next().unwrap();
        self.session = format!("Session: {session}\r\n");
        self.send("PLAY", "");
        let (answer, _) = self.answer();
        assert!(answer.starts_with("RTSP/1.0 200 "), "{answer}");
    }

    /// The next response, or the next RTP packet as an error. Skips RTCP.
    fn next(&mut self) -> Result<String, Packet> {
        loop {
            let mut first = [0];
            self.stream.read_exact(&mut first).unwrap();
            if first != [b'$'] {
                let mut answer = first.to_vec();
                while !answer.ends_with(b"\r\n\r\n") {
                    self.stream.read_exact(&mut first).unwrap();
                    answer.push(first[0]);
                }
                return Ok(String::from_utf8(answer).unwrap());
            }
            let mut header = [0; 3];
            self.stream.read_exact(&mut header).unwrap();
            let mut packet = vec![0; u16::from_be_bytes([header[1], header[2]]).into()];
            self.stream.read_exact(&mut packet).unwrap();
            let is_rtcp = rtcp::is_rtcp(&packet);
            assert_eq!(header[0], if is_rtcp { 5 } else { 4 });
            if !is_rtcp {
                let rtp = RtpPacket::new_checked(&packet).unwrap();
                return Err((rtp.header().timestamp, packet.len()));
            }
        }
    }

    fn packet(&mut self) -> Packet {
        self.next().expect_err("a response without a request")
    }
}

/// Requests are answered between packets.
#[test]
fn requests_are_answered_in_the_middle_of_a_stream() {
    let folder = Scratch::new("serve-tcp-requests");
    write_video(&folder.path("clip.h264"), 150, 300);
    let server = Server::start(&folder.path("."), "");
    let mut client = Client::connect(&server, "clip.h264");
    client.play();
    for method in ["GET_PARAMETER", "SET_PARAMETER", "OPTIONS"] {
        client.packet();
        client.send(method, "");
        let (answer, _) = client.answer();
        assert!(answer.starts_with("RTSP/1.0 200 "), "{method}: {answer}");
    }
    client.send("PLAY", "Scale: 4\r\n");
    let (answer, _) = client.answer();
    assert!(answer.contains("Scale: 1\r\n"), "{answer}");
    client.send("TEARDOWN", "");
    let (answer, _) = client.answer();
    assert!(answer.starts_with("RTSP/1.0 200 "), "{answer}");
    server.end();
}

/// A client that reads nothing for three seconds gets the pictures of then afterwards, and not those of
/// before.
#[test]
fn late_pictures_are_dropped_before_a_connection_that_stalls() {
    if !has("ffmpeg", &["-version"]) {
        return;
    }
    let folder = Scratch::new("serve-tcp-stall");
    let options = "testsrc2=size=320x180:rate=25,noise=alls=40:allf=t -t 20 -c:v libx264 -preset ultrafast \
                   -g 12 -sc_threshold 0 -b:v 4000k -maxrate 4000k -bufsize 500k";
    make_video(options, &folder.path("clip.h264"));
    let server = Server::start(&folder.path("."), "--delay-bound 500ms");
    let mut client = Client::connect(&server, "clip.h264");
    client.play();
    let (first, _) = client.packet();
    let begun = Instant::now();
    // How far behind a packet is: the pictures have the times of a clock.
    let behind = |timestamp: u32| {
        let media = f64::from(timestamp.wrapping_sub(first)) / 90_000.0;
        begun.elapsed().as_secs_f64() - media
    };
    while begun.elapsed() < Duration::from_secs(4) {
        client.packet();
    }
    std::thread::sleep(Duration::from_secs(3));
    let (mut old, back) = (0, Instant::now());
    let mut last = 0.0;
    while back.elapsed() < Duration::from_secs(5) {
        let (timestamp, size) = client.packet();
        last = behind(timestamp);
        old += if last > 1.0 { size } else { 0 };
    }
    // Three seconds have 1.5 MB.
    assert!(old < 400_000, "{old} bytes of old pictures");
    assert!(last < 0.8, "{last} s behind at the end");
    let end = server.end();
    assert!(!end.contains("0 dropped"), "{end}");
}
