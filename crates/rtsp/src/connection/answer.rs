//! Answers to requests: methods, headers and states.

use rtsp_types::{HeaderName, Method, Request, StatusCode, Url, Version, headers};
use tidegate_core::units::Time;

use super::{Connection, Session, State, header};
use crate::description::{CONTROL, npt};
use crate::host::{Host, Playing, Refusal, SessionId};
use crate::range::start_of_range;
use crate::transport::{ClientTransport, TransportError, choose_transport};

/// A response without the headers that all responses have.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Explanation after the reason phrase.
    why: String,
    pub(super) headers: Vec<(HeaderName, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn of(status: StatusCode) -> Self {
        Self {
            status,
            why: String::new(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    fn because(status: StatusCode, why: &str) -> Self {
        Self {
            why: why.to_owned(),
            ..Self::of(status)
        }
    }

    fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Reason phrase: printable ASCII.
    pub(super) fn reason(&self) -> String {
        if self.why.is_empty() {
            return self.status.to_string();
        }
        let why = self.why.chars().take(LONGEST_REASON);
        let why = why.map(|c| if c.is_ascii_graphic() { c } else { ' ' });
        format!("{}: {}", self.status, why.collect::<String>())
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::because(refusal.status.code(), &refusal.why)
    }
}

impl From<StatusCode> for Answer {
    fn from(status: StatusCode) -> Self {
        Self::of(status)
    }
}

impl Connection {
    /// Answer to a request.
    pub(super) fn decide(
        &mut self,
        now: Time,
        request: &Request<Vec<u8>>,
        host: &mut dyn Host,
    ) -> Answer {
        let decided = self.dispatch(now, request, host);
        decided.unwrap_or_else(|refused| refused)
    }

    fn dispatch(
        &mut self,
        now: Time,
        request: &Request<Vec<u8>>,
        host: &mut dyn Host,
    ) -> Result<Answer, Answer> {
        if request.version() != Version::V1_0 {
            return Err(StatusCode::RTSPVersionNotSupported.into());
        }
        // No feature is supported (RFC 2326 section 12.32).
        if let Some(feature) = header(request, &headers::REQUIRE) {
            let refused = Answer::of(StatusCode::OptionNotSupported);
            return Err(refused.with(headers::UNSUPPORTED, feature));
        }
        match request.method() {
            Method::Options => {
                self.touch(now, request);
                Ok(Answer::of(StatusCode::Ok).with(headers::PUBLIC, METHODS))
            }
            Method::Describe => describe(request, host),
            Method::Setup => self.set_up(now, request, host),
            Method::Play => self.play(now, request, host),
            Method::Pause => self.pause(now, request, host),
            Method::Teardown => self.tear_down(now, request, host),
            Method::GetParameter | Method::SetParameter => {
                // Without a body it shows that the client still runs (RFC 2326 section 10.8). Some
                // clients use the other method.
                self.touch(now, request);
                if request.body().is_empty() {
                    Ok(Answer::of(StatusCode::Ok))
                } else {
                    Err(StatusCode::ParameterNotUnderstood.into())
                }
            }
            Method::Announce | Method::Record | Method::Redirect => {
                let refused = Answer::of(StatusCode::MethodNotAllowed);
                Err(refused.with(headers::ALLOW, METHODS))
            }
            _ => Err(StatusCode::NotImplemented.into()),
        }
    }

    fn set_up(
        &mut self,
        now: Time,
        request: &Request<Vec<u8>>,
        host: &mut dyn Host,
    ) -> Result<Answer, Answer> {
        if header(request, &headers::SESSION).is_some() {
            // A title has one stream, and its transport does not change.
            self.session(now, request)?;
            return Err(StatusCode::AggregateOperationNotAllowed.into());
        }
        let (title, _) = title_of(request)?;
        let transport = header(request, &headers::TRANSPORT).unwrap_or_default();
        let taken: Vec<_> = self.sessions.iter().filter_map(|s| s.channels).collect();
        let chosen = choose_transport(transport, self.client, &taken);
        let chosen = chosen.map_err(|error| match error {
            TransportError::Unsupported => Answer::because(
                StatusCode::UnsupportedTransport,
                "only RTP over UDP to ports of the client, or interleaved (RTP/AVP/TCP)",
            ),
            TransportError::OtherDestination => StatusCode::DestinationProhibited.into(),
        })?;
        if self.sessions.len() >= self.limits.sessions {
            let why = "too many sessions of this connection";
            return Err(Answer::because(StatusCode::ServiceUnavailable, why));
        }
        let reserved = host.set_up(&title, chosen)?;
        let ((rtp, rtcp), ssrc) = (reserved.server_ports, reserved.ssrc);
        let (transport, channels) = match chosen {
            ClientTransport::Udp(ports) => {
                let client = format!("client_port={}-{}", ports.rtp, ports.rtcp);
                let server = format!("server_port={rtp}-{rtcp}");
                let profile = ports.profile.name();
                (format!("{profile};unicast;{client};{server}"), None)
            }
            ClientTransport::Interleaved(channels) => {
                let (rtp, rtcp) = (channels.rtp, channels.rtcp);
                let profile = channels.profile.name();
                let transport = format!("{profile}/TCP;unicast;interleaved={rtp}-{rtcp}");
                (transport, Some(channels))
            }
        };
        let transport = format!("{transport};ssrc={ssrc:08X}");
        let timeout = self.limits.session.as_secs();
        let session = format!("{};timeout={timeout}", reserved.session);
        self.sessions.push(Session {
            id: reserved.session,
            title,
            state: State::Ready,
            channels,
            last_request: now,
        });
        Ok(Answer::of(StatusCode::Ok)
            .with(headers::TRANSPORT, transport)
            .with(headers::SESSION, session))
    }

    fn play(
        &mut self,
        now: Time,
        request: &Request<Vec<u8>>,
        host: &mut dyn Host,
    ) -> Result<Answer, Answer> {
        let (_, base) = title_of(request)?;
        let session = self.session_of_title(now, request)?;
        let scale = header(request, &headers::SCALE);
        if scale.is_some_and(|scale| !scale.parse::<f64>().is_ok_and(f64::is_finite)) {
            return Err(Answer::because(
                StatusCode::BadRequest,
                "Scale is no number",
            ));
        }
        let from = match header(request, &headers::RANGE) {
            Some(range) => start_of_range(range).map_err(|_| StatusCode::InvalidRange)?,
            None => None,
        };
        let Playing { from, end, first } = host.play(session.id, from)?;
        session.state = State::Playing;
        let end = end.map_or_else(String::new, npt);
        let mut answer = Answer::of(StatusCode::Ok)
            .with(headers::SESSION, session.id.to_string())
            .with(headers::RANGE, format!("npt={}-{end}", npt(from)));
        if let Some((sequence, timestamp)) = first {
            let info = format!("url={base}{CONTROL};seq={sequence};rtptime={timestamp}");
            answer = answer.with(headers::RTP_INFO, info);
        }
        if scale.is_some() {
            // The speed that is used, the only one (RFC 2326 section 12.34).
            answer = answer.with(headers::SCALE, "1");
        }
        Ok(answer)
    }

    fn pause(
        &mut self,
        now: Time,
        request: &Request<Vec<u8>>,
        host: &mut dyn Host,
    ) -> Result<Answer, Answer> {
        let session = self.session_of_title(now, request)?;
        if session.state == State::Playing {
            host.pause(session.id);
            session.state = State::Ready;
        }
        let id = session.id.to_string();
        Ok(Answer::of(StatusCode::Ok).with(headers::SESSION, id))
    }

    fn tear_down(
        &mut self,
        now: Time,
        request: &Request<Vec<u8>>,
        host: &mut dyn Host,
    ) -> Result<Answer, Answer> {
        let id = self.session_of_title(now, request)?.id;
        host.tear_down(id);
        self.sessions.retain(|session| session.id != id);
        Ok(Answer::of(StatusCode::Ok))
    }

    /// The session of a request, which keeps it alive.
    fn session(
        &mut self,
        now: Time,
        request: &Request<Vec<u8>>,
    ) -> Result<&mut Session, StatusCode> {
        let named = header(request, &headers::SESSION).and_then(|value| {
            // Some clients return the timeout.
            SessionId::parse(value.split(';').next().unwrap_or_default().trim())
        });
        let mut sessions = self.sessions.iter_mut();
        let session = sessions.find(|session| named == Some(session.id));
        let session = session.ok_or(StatusCode::SessionNotFound)?;
        session.last_request = now;
        Ok(session)
    }

    /// The session of a request about its title.
    fn session_of_title(
        &mut self,
        now: Time,
        request: &Request<Vec<u8>>,
    ) -> Result<&mut Session, Answer> {
        let (title, _) = title_of(request)?;
        let session = self.session(now, request)?;
        if session.title != title {
            return Err(StatusCode::SessionNotFound.into());
        }
        Ok(session)
    }

    /// A request that may name a session.
    fn touch(&mut self, now: Time, request: &Request<Vec<u8>>) {
        let _ = self.session(now, request);
    }
}

fn describe(request: &Request<Vec<u8>>, host: &mut dyn Host) -> Result<Answer, Answer> {
    let accepts = |accept: &str| {
        let mut types = accept.split(',').map(|kind| kind.split(';').next());
        types.any(|kind| {
            matches!(
                kind.map(str::trim),
                Some("application/sdp" | "application/*" | "*/*")
            )
        })
    };
    if !header(request, &headers::ACCEPT).is_none_or(accepts) {
        return Err(StatusCode::NotAcceptable.into());
    }
    let (title, base) = title_of(request)?;
    let description = host.describe(&title)?;
    let mut answer = Answer::of(StatusCode::Ok)
        .with(headers::CONTENT_BASE, base)
        .with(headers::CONTENT_TYPE, "application/sdp");
    answer.body = description.text().into_bytes();
    Ok(answer)
}

/// Title of a request's URL, and the URL that relative ones begin with.
fn title_of(request: &Request<Vec<u8>>) -> Result<(String, String), StatusCode> {
    let url = request.request_uri().ok_or(StatusCode::BadRequest)?;
    let mut segments: Vec<&str> = url.path().split('/').filter(|s| !s.is_empty()).collect();
    if segments.len() == 2 && segments[1] == CONTROL {
        segments.pop();
    }
    let [segment] = segments[..] else {
        return Err(StatusCode::NotFound);
    };
    let title = decoded(segment).ok_or(StatusCode::BadRequest)?;
    Ok((title, base_of(url, segment)))
}

/// URL of a title, without user and query, and with a slash at its end.
fn base_of(url: &Url, segment: &str) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url
        .port()
        .map_or_else(String::new, |port| format!(":{port}"));
    format!("{}://{host}{port}/{segment}/", url.scheme())
}

/// Decodes `%` escapes; `None` if they are malformed, or the text is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push((digit()? * 16 + digit()?) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

const METHODS: &str =
    "OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, TEARDOWN, GET_PARAMETER, SET_PARAMETER";
const LONGEST_REASON: usize = 200;
