//! Dialogues of clients with a connection.

use std::collections::BTreeMap;

use tidegate_core::wire::sdp::Sdp;

use super::*;
use crate::description::Description;
use crate::host::{Playing, Refusal, Reserved, Status};
use crate::transport::ClientTransport;

/// A host with the title `news`, and another one that cannot be read.
#[derive(Debug, Default)]
struct Titles {
    sessions: BTreeMap<SessionId, &'static str>,
    next: u128,
    last_received: Option<Time>,
}

impl Host for Titles {
    fn describe(&mut self, title: &str) -> Result<Description, Refusal> {
        let refused = |status, why: &str| {
            Err(Refusal {
                status,
                why: why.to_owned(),
            })
        };
        match title {
            "news" | "evening news" => {}
            "broken" => return refused(Status::UnsupportedMediaType, "no\r\nvideo"),
            "large" => return refused(Status::NotEnoughBandwidth, "300 kb/s expected"),
            _ => return refused(Status::NotFound, ""),
        }
        let plain = "v=0\no=- 7 0 IN IP4 0.0.0.0\ns=x\nc=IN IP4 0.0.0.0\nt=0 0\n\
                     m=video 5004 RTP/AVP 32\n";
        let mut sdp = Sdp::parse(plain).unwrap();
        sdp.port = 0;
        let duration = Some(Duration::from_millis(12_500));
        Ok(Description { sdp, duration })
    }

    fn set_up(&mut self, title: &str, _: ClientTransport) -> Result<Reserved, Refusal> {
        self.describe(title)?;
        self.next += 1;
        let session = SessionId(self.next);
        self.sessions.insert(session, "ready");
        Ok(Reserved {
            session,
            server_ports: (6_000, 6_001),
            ssrc: 0x1234,
        })
    }

    fn play(&mut self, session: SessionId, from: Option<Duration>) -> Result<Playing, Refusal> {
        let from = from.unwrap_or(Duration::from_secs(3));
        if from > Duration::from_secs(12) {
            let why = String::new();
            return Err(Refusal {
                status: Status::InvalidRange,
                why,
            });
        }
        self.sessions.insert(session, "playing");
        Ok(Playing {
            from,
            end: Some(Duration::from_millis(12_500)),
            first: Some((77, 900)),
        })
    }

    fn pause(&mut self, session: SessionId) {
        self.sessions.insert(session, "ready");
    }

    fn tear_down(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    fn last_received(&self, _: SessionId) -> Option<Time> {
        self.last_received
    }
}

struct Dialogue {
    connection: Connection,
    host: Titles,
    now: Time,
}

impl Dialogue {
    fn new() -> Self {
        let client = "127.0.0.1".parse().unwrap();
        Self {
            connection: Connection::new(client, Limits::default(), Time::ZERO),
            host: Titles::default(),
            now: Time::ZERO,
        }
    }

    /// Sends a request with `CSeq: 5` and returns the response.
    fn ask(&mut self, line: &str, headers: &str) -> String {
        self.send(&format!("{line} RTSP/1.0\r\nCSeq: 5\r\n{headers}\r\n"))
    }

    fn send(&mut self, text: &str) -> String {
        for bytes in text.as_bytes().chunks(700) {
            self.connection.on_bytes(self.now, bytes, &mut self.host);
        }
        let output = String::from_utf8(self.connection.output().to_vec()).unwrap();
        self.connection
            .on_written(self.now, output.len(), &mut self.host);
        output
    }

    fn wait(&mut self, seconds: u64) {
        self.now = Time::from_secs(seconds);
        self.connection.on_timeout(self.now, &mut self.host);
    }

    fn set_up(&mut self) -> String {
        let setup = "Transport: RTP/AVP;unicast;client_port=5000-5001\r\n";
        let answer = self.ask("SETUP rtsp://h:8554/news/video", setup);
        let (_, session) = answer
            .split_once("Session: ")
            .unwrap_or_else(|| panic!("{answer}"));
        session.split(';').next().unwrap().to_owned()
    }
}

fn is(answer: &str, status: u16) {
    let line = format!("RTSP/1.0 {status} ");
    assert!(answer.starts_with(&line), "{status}: {answer}");
}

#[test]
fn a_title_is_described_set_up_played_and_torn_down() {
    let mut client = Dialogue::new();
    let answer = client.ask("OPTIONS *", "");
    is(&answer, 200);
    assert!(
        answer.contains("Public: OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE"),
        "{answer}"
    );
    let answer = client.ask("DESCRIBE rtsp://h:8554/news", "Accept: application/sdp\r\n");
    is(&answer, 200);
    assert!(answer.contains("CSeq: 5\r\n"), "{answer}");
    assert!(
        answer.contains("Content-Base: rtsp://h:8554/news/\r\n"),
        "{answer}"
    );
    assert!(
        answer.ends_with("a=range:npt=0-12.500\r\na=control:video\r\n"),
        "{answer}"
    );
    let session = client.set_up();
    let named = format!("Session: {session}\r\n");
    let answer = client.ask(
        "PLAY rtsp://h:8554/news/",
        &format!("{named}Range: npt=0.000-\r\n"),
    );
    is(&answer, 200);
    assert!(answer.contains("Range: npt=0.000-12.500\r\n"), "{answer}");
    let info = "RTP-Info: url=rtsp://h:8554/news/video;seq=77;rtptime=900\r\n";
    assert!(answer.contains(info), "{answer}");
    is(&client.ask("PAUSE rtsp://h:8554/news/", &named), 200);
    assert_eq!(
        client.host.sessions.values().copied().collect::<Vec<_>>(),
        ["ready"]
    );
    let answer = client.ask("PLAY rtsp://h:8554/news/", &named);
    assert!(answer.contains("Range: npt=3.000-12.500\r\n"), "{answer}");
    is(
        &client.ask("GET_PARAMETER rtsp://h:8554/news/", &named),
        200,
    );
    is(&client.ask("TEARDOWN rtsp://h:8554/news/", &named), 200);
    assert!(client.host.sessions.is_empty() && client.connection.sessions() == 0);
    is(&client.ask("PLAY rtsp://h:8554/news/", &named), 454);
}

#[test]
fn wrong_requests_have_their_status() {
    let udp = "Transport: RTP/AVP;unicast;client_port=5000-5001\r\n";
    for (line, headers, status) in [
        ("DESCRIBE rtsp://h/none", "", 404),
        ("DESCRIBE rtsp://h/a/b/c", "", 404),
        ("DESCRIBE rtsp://h/..%2f..%2fetc", "", 404),
        ("DESCRIBE rtsp://h/%zz", "", 400),
        ("DESCRIBE *", "", 400),
        ("DESCRIBE rtsp://h/broken", "", 415),
        ("DESCRIBE rtsp://h/large", "", 453),
        ("DESCRIBE rtsp://h/news", "Accept: text/html\r\n", 406),
        ("DESCRIBE rtsp://h/news", "Require: play.basic\r\n", 551),
        ("SETUP rtsp://h/none/video", udp, 404),
        ("SETUP rtsp://h/news/video", "", 461),
        (
            "SETUP rtsp://h/news/video",
            "Transport: RTP/SAVP;unicast;client_port=5000-5001\r\n",
            461,
        ),
        (
            "SETUP rtsp://h/news/video",
            "Transport: RTP/AVP;unicast;destination=192.0.2.7;client_port=5000-5001\r\n",
            463,
        ),
        ("SETUP rtsp://h/news/video", "Session: 12\r\n", 454),
        ("PLAY rtsp://h/news", "", 454),
        (
            "PAUSE rtsp://h/news",
            "Session: 00000000000000000000000000000001\r\n",
            454,
        ),
        ("TEARDOWN rtsp://h/news", "", 454),
        ("RECORD rtsp://h/news", "", 405),
        ("ANNOUNCE rtsp://h/news", "", 405),
        ("DANCE rtsp://h/news", "", 501),
    ] {
        let mut client = Dialogue::new();
        let answer = client.ask(line, headers);
        is(&answer, status);
        assert!(
            answer.contains("CSeq: 5\r\n") && answer.ends_with("\r\n\r\n"),
            "{answer}"
        );
        assert!(
            client.host.sessions.is_empty() && !client.connection.is_over(),
            "{line}"
        );
    }
    let mut client = Dialogue::new();
    let broken = client.ask("DESCRIBE rtsp://h/broken", "");
    assert!(
        broken.starts_with("RTSP/1.0 415 Unsupported Media Type: no  video\r\n"),
        "{broken}"
    );
    is(&client.send("OPTIONS * RTSP/2.0\r\nCSeq: 1\r\n\r\n"), 505);
    is(&client.send("OPTIONS * RTSP/1.0\r\n\r\n"), 400);
    let session = client.set_up();
    let named = format!("Session: {session};timeout=60\r\n");
    let late = format!("{named}Range: npt=13-\r\n");
    is(&client.ask("PLAY rtsp://h:8554/news", &late), 457);
    is(
        &client.ask(
            "PLAY rtsp://h:8554/news",
            &format!("{named}Range: clock=1-\r\n"),
        ),
        457,
    );
    is(&client.ask("PLAY rtsp://h:8554/other", &named), 454);
    is(&client.ask("SETUP rtsp://h:8554/news/video", &named), 459);
    // Titles may have spaces.
    is(
        &client.ask("DESCRIBE rtsp://h:8554/evening%20news", ""),
        200,
    );
}

#[test]
fn sessions_are_limited_and_end_with_their_connection() {
    let mut client = Dialogue::new();
    for _ in 0..4 {
        client.set_up();
    }
    let setup = "Transport: RTP/AVP;unicast;client_port=5000-5001\r\n";
    is(&client.ask("SETUP rtsp://h/news/video", setup), 503);
    assert_eq!(client.host.sessions.len(), 4);
    client.connection.close(&mut client.host);
    assert!(client.host.sessions.is_empty() && client.connection.is_over());
}

#[test]
fn silent_clients_and_endless_requests_end_at_their_deadlines() {
    let mut client = Dialogue::new();
    client.wait(29);
    assert!(!client.connection.is_over());
    assert_eq!(
        client.connection.next_timeout(&|_| None),
        Some(Time::from_secs(30))
    );
    client.wait(30);
    assert!(client.connection.is_over());

    // A byte per second extends no deadline.
    let mut client = Dialogue::new();
    for second in 0..10 {
        client.now = Time::from_secs(second);
        assert_eq!(client.send("O"), "");
    }
    client.wait(10);
    assert!(client.connection.is_over());
    let output = String::from_utf8(client.connection.output().to_vec()).unwrap();
    is(&output, 408);

    let mut client = Dialogue::new();
    let session = client.set_up();
    client.wait(59);
    client.ask("OPTIONS *", &format!("Session: {session}\r\n"));
    client.wait(118);
    assert_eq!(client.connection.sessions(), 1);
    // RTCP keeps a session alive, too.
    client.host.last_received = Some(Time::from_secs(100));
    client.wait(159);
    assert_eq!(client.connection.sessions(), 1);
    client.wait(160);
    assert_eq!(client.connection.sessions(), 0);
    assert!(client.host.sessions.is_empty() && client.connection.is_over());
}

#[test]
fn a_client_that_does_not_read_is_closed() {
    let mut client = Dialogue::new();
    let request = b"DESCRIBE rtsp://h/news RTSP/1.0\r\nCSeq: 1\r\n\r\n";
    let mut sent = 0;
    while client.connection.room() >= request.len() {
        client
            .connection
            .on_bytes(client.now, request, &mut client.host);
        sent += 1;
        assert!(sent < 1_000, "the output has no limit");
    }
    assert!(client.connection.output().len() < 32_768);
    client.wait(9);
    assert!(!client.connection.is_over());
    client.wait(10);
    assert!(client.connection.is_over() && client.connection.output().is_empty());
}

#[test]
fn malformed_bytes_end_the_connection() {
    let mut client = Dialogue::new();
    client.set_up();
    is(&client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert!(client.connection.is_over() && client.host.sessions.is_empty());
    let mut client = Dialogue::new();
    let endless = format!("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nA: {}", "x".repeat(9_000));
    is(&client.send(&endless), 413);
    assert!(client.connection.is_over());
    assert_eq!(client.connection.room(), 0);
}

#[test]
fn streams_are_interleaved_in_the_connection() {
    let mut client = Dialogue::new();
    let answer = client.ask(
        "SETUP rtsp://h/news/video",
        "Transport: RTP/AVP/TCP;unicast;interleaved=2-3\r\n",
    );
    is(&answer, 200);
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=2-3;ssrc=00001234\r\n";
    assert!(answer.contains(transport), "{answer}");
    let answer = client.ask("SETUP rtsp://h/news/video", "Transport: RTP/AVP/TCP\r\n");
    assert!(answer.contains("interleaved=0-1;"), "{answer}");
    // Reports on the channels of the first session keep it alive.
    client.wait(50);
    client.send("$\x03\x00\x02xy");
    client.wait(70);
    assert_eq!(client.connection.sessions(), 1);
    client.wait(111);
    assert_eq!(client.connection.sessions(), 0);
}

#[test]
fn empty_parameters_and_speeds_are_answered() {
    let mut client = Dialogue::new();
    for method in ["GET_PARAMETER", "SET_PARAMETER"] {
        is(&client.ask(&format!("{method} rtsp://h/news"), ""), 200);
        let body = format!("{method} * RTSP/1.0\r\nCSeq: 5\r\nContent-Length: 2\r\n\r\nab");
        is(&client.send(&body), 451);
    }
    let answer = client.ask(
        "SETUP rtsp://h/news/video",
        "Transport: RTP/AVP;client_port=5000-5001\r\n",
    );
    is(&answer, 200);
    let (_, rest) = answer.split_once("Session: ").unwrap();
    let session = &rest[..32];
    for (scale, status) in [
        ("2.0", 200),
        ("-1", 200),
        ("1", 200),
        ("fast", 400),
        ("NaN", 400),
    ] {
        let named = format!("Session: {session}\r\nScale: {scale}\r\n");
        let answer = client.ask("PLAY rtsp://h/news", &named);
        is(&answer, status);
        assert_eq!(answer.contains("Scale: 1\r\n"), status == 200, "{answer}");
    }
}
