//! Fuzz target of RTSP connections.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::Target;
use tidegate_core::units::Time;
use tidegate_core::wire::sdp::Sdp;
use tidegate_rtsp::{
    ClientTransport, Connection, Description, Host, Limits, Playing, Refusal, Reserved, SessionId,
    Status,
};

/// All targets.
pub const TARGETS: [Target; 1] = [Target {
    name: "rtsp",
    run: rtsp,
}];

/// A connection of a hostile client, in steps: bytes, time, reads of the responses, and whole requests
/// about the last session, so that deep states are reached.
///
/// Memory is bounded; the host has exactly the sessions of the connection, and none after its end;
/// deadlines are met; each response is whole; media goes to ports other than zero.
pub fn rtsp(data: &[u8]) {
    let limits = Limits::default();
    let mut now = Time::ZERO;
    let mut host = Titles::default();
    let mut connection = Connection::new(IpAddr::V4(Ipv4Addr::LOCALHOST), limits, now);
    let mut rest = data;
    while let Some((&step, after)) = rest.split_first() {
        rest = after;
        match step {
            0..=127 => {
                let (bytes, after) = rest.split_at(rest.len().min(usize::from(step) + 1));
                rest = after;
                let bytes = &bytes[..bytes.len().min(connection.room())];
                connection.on_bytes(now, bytes, &mut host);
            }
            128..=191 => {
                now += Duration::from_millis(500) * u32::from(step - 127);
                connection.on_timeout(now, &mut host);
                let next = connection.next_timeout(&|id| host.last_received(id));
                assert!(next.is_none_or(|at| at > now), "a deadline has passed");
            }
            192..=223 => {
                let count = usize::from(step - 191) * 64;
                connection.on_written(now, count, &mut host);
            }
            _ => {
                let request = request(step, &host);
                if request.len() <= connection.room() {
                    connection.on_bytes(now, request.as_bytes(), &mut host);
                }
            }
        }
        assert!(
            connection.output().len() < MAX_OUTPUT,
            "the output has no limit"
        );
        assert_eq!(connection.sessions(), host.open.len());
        assert!(connection.sessions() <= limits.sessions);
        assert!(!connection.is_over() || connection.sessions() == 0);
    }
    if !connection.is_over() {
        // The client is silent from now on.
        for _ in 0..8 {
            let Some(next) = connection.next_timeout(&|id| host.last_received(id)) else {
                break;
            };
            now = now.max(next);
            connection.on_timeout(now, &mut host);
        }
        assert!(connection.is_over(), "a silent client has no end");
    }
    assert!(host.open.is_empty());
}

/// A whole request about the last session.
fn request(step: u8, host: &Titles) -> String {
    let transport = "Transport: RTP/AVP;unicast;client_port=5000-5001\r\n";
    let (method, headers) = match step % 8 {
        0 => ("OPTIONS", ""),
        1 => ("DESCRIBE", "Accept: application/sdp\r\n"),
        2 => ("SETUP", transport),
        3 => ("PLAY", "Range: npt=0-\r\n"),
        4 => ("PLAY", ""),
        5 => ("PAUSE", ""),
        6 => ("TEARDOWN", ""),
        _ => ("GET_PARAMETER", ""),
    };
    let session = host.open.last().filter(|_| method != "SETUP");
    let session = session.map_or_else(String::new, |id| format!("Session: {id}\r\n"));
    format!("{method} rtsp://h/news RTSP/1.0\r\nCSeq: 3\r\n{session}{headers}\r\n")
}

/// A host with every title.
#[derive(Debug, Default)]
struct Titles {
    open: BTreeSet<SessionId>,
    next: u128,
}

impl Titles {
    /// Whether the next request is refused.
    fn refuses(&mut self) -> bool {
        self.next += 1;
        self.next.is_multiple_of(7)
    }
}

const REFUSAL: Refusal = Refusal {
    status: Status::ServiceUnavailable,
    why: String::new(),
};

impl Host for Titles {
    fn describe(&mut self, title: &str) -> Result<Description, Refusal> {
        assert!(!title.is_empty());
        if self.refuses() {
            let why = title.to_owned();
            return Err(Refusal { why, ..REFUSAL });
        }
        let plain = "v=0\no=- 7 0 IN IP4 0.0.0.0\ns=x\nc=IN IP4 0.0.0.0\nt=0 0\n\
                     m=video 5004 RTP/AVP 32\n";
        let sdp = Sdp::parse(plain).expect("a valid description");
        let duration = None;
        Ok(Description { sdp, duration })
    }

    fn set_up(&mut self, _: &str, transport: ClientTransport) -> Result<Reserved, Refusal> {
        match transport {
            ClientTransport::Udp(ports) => assert!(ports.rtp != 0 && ports.rtcp != 0),
            ClientTransport::Interleaved(channels) => assert_ne!(channels.rtp, channels.rtcp),
        }
        if self.refuses() {
            return Err(REFUSAL);
        }
        let session = SessionId(self.next);
        self.open.insert(session);
        Ok(Reserved {
            session,
            server_ports: (6_000, 6_001),
            ssrc: 1,
        })
    }

    fn play(&mut self, session: SessionId, from: Option<Duration>) -> Result<Playing, Refusal> {
        assert!(self.open.contains(&session));
        if self.refuses() {
            return Err(REFUSAL);
        }
        Ok(Playing {
            from: from.unwrap_or_default(),
            end: None,
            first: Some((1, 2)),
        })
    }

    fn pause(&mut self, session: SessionId) {
        assert!(self.open.contains(&session));
    }

    fn tear_down(&mut self, session: SessionId) {
        assert!(self.open.remove(&session));
    }

    fn last_received(&self, _: SessionId) -> Option<Time> {
        None
    }
}

/// The limit of the connection, and one response.
const MAX_OUTPUT: usize = 40_000;
