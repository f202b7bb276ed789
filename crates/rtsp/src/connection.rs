//! State of one connection: its requests, its sessions and its deadlines.

use core::net::IpAddr;
use core::time::Duration;

use rtsp_types::{HeaderName, Request, Response, StatusCode, Version, headers};
use tidegate_core::units::Time;

use crate::host::{Host, SessionId};
use crate::request::{Inbox, Item, StreamError};
use crate::transport::Channels;
use answer::Answer;

mod answer;

/// Deadlines and limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time for a whole request, from its first byte.
    pub request: Duration,
    /// Time without a session and without a request.
    pub idle: Duration,
    /// Time of a session without a request about it and without RTCP.
    pub session: Duration,
    /// Time for the client to read a response.
    pub unread: Duration,
    /// Sessions of a connection.
    pub sessions: usize,
}

impl Default for Limits {
    /// 10 s for a request and for reading a response, 60 s for a session (RFC 2326 section 12.37),
    /// 30 s without one, 4 sessions.
    fn default() -> Self {
        Self {
            request: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            session: Duration::from_mins(1),
            unread: Duration::from_secs(10),
            sessions: 4,
        }
    }
}

/// A connection of a client.
///
/// After each input, write [`output`](Self::output) to the socket, and close the socket once
/// [`is_over`](Self::is_over) is true and the output is empty. Sessions end with the connection.
#[derive(Debug)]
pub struct Connection {
    client: IpAddr,
    limits: Limits,
    inbox: Inbox,
    output: Vec<u8>,
    sessions: Vec<Session>,
    /// Time of the last request, or of the connection.
    last_request: Time,
    /// Time of the first byte of an incomplete request.
    begun: Option<Time>,
    /// Time since which output waits.
    unread: Option<Time>,
    /// No more requests are read.
    closing: bool,
}

#[derive(Debug)]
struct Session {
    id: SessionId,
    title: String,
    state: State,
    /// Those of an interleaved stream.
    channels: Option<Channels>,
    /// Time of the last request, or of the last packet on these channels.
    last_request: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Playing,
}

impl Connection {
    /// A connection from `client`.
    pub fn new(client: IpAddr, limits: Limits, now: Time) -> Self {
        Self {
            client: client.to_canonical(),
            limits,
            inbox: Inbox::default(),
            output: Vec::new(),
            sessions: Vec::new(),
            last_request: now,
            begun: None,
            unread: None,
            closing: false,
        }
    }

    /// Number of bytes that the next [`on_bytes`](Self::on_bytes) accepts. Zero while the client
    /// does not read the responses: read no more from the socket.
    pub fn room(&self) -> usize {
        if self.closing || self.output.len() >= MAX_OUTPUT {
            0
        } else {
            self.inbox.room()
        }
    }

    /// Processes received bytes, at most [`room`](Self::room); others are ignored.
    pub fn on_bytes(&mut self, now: Time, bytes: &[u8], host: &mut dyn Host) {
        let accepted = bytes.len().min(self.room());
        self.inbox.extend(&bytes[..accepted]);
        self.proceed(now, host);
    }

    /// Bytes for the client.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// The socket has accepted the first `count` bytes of the output.
    pub fn on_written(&mut self, now: Time, count: usize, host: &mut dyn Host) {
        self.output.drain(..count.min(self.output.len()));
        self.unread = (!self.output.is_empty()).then_some(now);
        self.proceed(now, host);
    }

    /// Processes the deadline of [`next_timeout`](Self::next_timeout).
    pub fn on_timeout(&mut self, now: Time, host: &mut dyn Host) {
        if self.unread.is_some_and(|at| now >= at + self.limits.unread) {
            self.output.clear();
            self.unread = None;
            return self.close(host);
        }
        let is_late = self.begun.is_some_and(|at| now >= at + self.limits.request);
        if is_late && !self.closing {
            self.respond(now, Answer::of(StatusCode::RequestTimeout), None);
            return self.close(host);
        }
        let limit = self.limits.session;
        let expired = |session: &Session| {
            let last_received = host.last_received(session.id).unwrap_or(Time::ZERO);
            now >= session.last_request.max(last_received) + limit
        };
        let expired: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|s| expired(s))
            .map(|s| s.id)
            .collect();
        for id in expired {
            host.tear_down(id);
            self.sessions.retain(|session| session.id != id);
        }
        if self.sessions.is_empty() && now >= self.last_request + self.limits.idle {
            self.close(host);
        }
    }

    /// Time of the next [`on_timeout`](Self::on_timeout); an early call is harmless. `last_received` is
    /// [`Host::last_received`].
    pub fn next_timeout(&self, last_received: &dyn Fn(SessionId) -> Option<Time>) -> Option<Time> {
        let unread = self.unread.map(|at| at + self.limits.unread);
        if self.closing {
            return unread;
        }
        let request = self.begun.map(|at| at + self.limits.request);
        let sessions = self.sessions.iter().map(|session| {
            let last_received = last_received(session.id).unwrap_or(Time::ZERO);
            session.last_request.max(last_received) + self.limits.session
        });
        let idle = self.sessions.is_empty();
        let idle = idle.then(|| self.last_request + self.limits.idle);
        let deadlines = unread.into_iter().chain(request).chain(idle);
        deadlines.chain(sessions).min()
    }

    /// Ends all sessions; no more requests are read.
    pub fn close(&mut self, host: &mut dyn Host) {
        self.closing = true;
        self.begun = None;
        for session in core::mem::take(&mut self.sessions) {
            host.tear_down(session.id);
        }
    }

    /// Whether the connection is to be closed once the output is written.
    pub fn is_over(&self) -> bool {
        self.closing
    }

    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Answers whole requests while there is room for responses.
    fn proceed(&mut self, now: Time, host: &mut dyn Host) {
        while !self.closing && self.output.len() < MAX_OUTPUT {
            match self.inbox.next() {
                Ok(Some(Item::Packet(channel))) => {
                    self.begun = None;
                    let is_of =
                        |channels: Channels| [channels.rtp, channels.rtcp].contains(&channel);
                    let mut sessions = self.sessions.iter_mut();
                    if let Some(session) = sessions.find(|s| s.channels.is_some_and(is_of)) {
                        session.last_request = now;
                    }
                }
                Ok(Some(Item::Request(request))) => {
                    self.begun = None;
                    self.last_request = now;
                    self.answer(now, &request, host);
                }
                Ok(None) => {
                    self.begun = if self.inbox.is_empty() {
                        None
                    } else {
                        Some(self.begun.unwrap_or(now))
                    };
                    return;
                }
                Err(error) => {
                    let status = match error {
                        StreamError::Malformed => StatusCode::BadRequest,
                        StreamError::TooLarge => StatusCode::RequestMessageBodyTooLarge,
                    };
                    self.respond(now, Answer::of(status), None);
                    self.close(host);
                }
            }
        }
    }

    fn answer(&mut self, now: Time, request: &Request<Vec<u8>>, host: &mut dyn Host) {
        let sequence = header(request, &headers::CSEQ).map(str::to_owned);
        let is_number = |text: &String| {
            (1..=10).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit())
        };
        let Some(sequence) = sequence.filter(is_number) else {
            return self.respond(now, Answer::of(StatusCode::BadRequest), None);
        };
        let answer = self.decide(now, request, host);
        self.respond(now, answer, Some(sequence));
    }

    /// Queues a response.
    fn respond(&mut self, now: Time, answer: Answer, sequence: Option<String>) {
        let mut response = Response::builder(Version::V1_0, answer.status)
            .reason_phrase(answer.reason())
            .header(headers::SERVER, SERVER);
        if let Some(sequence) = sequence {
            response = response.header(headers::CSEQ, sequence);
        }
        for (name, value) in answer.headers {
            response = response.header(name, value);
        }
        // Writing to a vector cannot fail.
        let _ = response.build(answer.body).write(&mut self.output);
        self.unread.get_or_insert(now);
    }
}

/// Value of a header.
pub(crate) fn header<'a>(request: &'a Request<Vec<u8>>, name: &HeaderName) -> Option<&'a str> {
    request.header(name).map(|value| value.as_str().trim())
}

const SERVER: &str = "Tidegate";
/// Output above which no request is read. A response has up to 4 kB, most of it the request's URL.
const MAX_OUTPUT: usize = 16_384;

#[cfg(test)]
mod tests;
