//! Requests from a byte stream, in bounded memory.

use rtsp_types::{Message, ParseError, Request};

/// What a client sends.
#[derive(Debug)]
pub(crate) enum Item {
    Request(Request<Vec<u8>>),
    /// An interleaved packet, on this channel. Reports of the player are of no use: it gets all that
    /// TCP delivers.
    Packet(u8),
}

/// Bytes that no whole message has been read from.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    /// The bytes up to here have no end of a header.
    searched: usize,
}

/// Reason why a byte stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamError {
    /// The bytes are no RTSP message.
    Malformed,
    /// A message exceeds [`MAX_MESSAGE`].
    TooLarge,
}

impl Inbox {
    /// Adds bytes, of which at most [`room`](Self::room) may be given.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Number of bytes that can be added.
    pub(crate) fn room(&self) -> usize {
        MAX_MESSAGE.saturating_sub(self.bytes.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes the next whole request or packet. Responses are skipped.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, StreamError> {
        loop {
            // Empty lines between messages.
            let blank = self.bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n'));
            let blank = blank.count();
            if blank > 0 {
                self.discard(blank);
            }
            // The parser starts from the beginning each time.
            let is_data = self.bytes.first() == Some(&b'$');
            if !is_data && !self.has_header() {
                return self.incomplete();
            }
            let parsed = Message::parse(&self.bytes);
            match parsed {
                Ok((message, used)) => {
                    let message: Message<Vec<u8>> = message;
                    self.discard(used.max(1));
                    match message {
                        Message::Request(request) => return Ok(Some(Item::Request(request))),
                        Message::Data(data) => return Ok(Some(Item::Packet(data.channel_id()))),
                        Message::Response(_) => {}
                    }
                }
                Err(ParseError::Incomplete(_)) => return self.incomplete(),
                Err(ParseError::Error) => return Err(StreamError::Malformed),
            }
        }
    }

    /// More bytes are needed, if there is room for them.
    fn incomplete(&self) -> Result<Option<Item>, StreamError> {
        if self.room() == 0 {
            return Err(StreamError::TooLarge);
        }
        Ok(None)
    }

    /// Whether the bytes have the end of a header.
    fn has_header(&mut self) -> bool {
        let from = self.searched.saturating_sub(3);
        let found = self.bytes[from..].windows(4).any(|w| w == b"\r\n\r\n");
        if !found {
            self.searched = self.bytes.len();
        }
        found
    }

    fn discard(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
        self.searched = 0;
    }
}

/// Maximum size of a message with its body. Requests of players have less than 1 kB.
pub(crate) const MAX_MESSAGE: usize = 8_192;

#[cfg(test)]
mod tests {
    use rtsp_types::Method;

    use super::*;

    fn read(text: &str, piece: usize) -> (Vec<Method>, Result<(), StreamError>) {
        let mut inbox = Inbox::default();
        let mut methods = Vec::new();
        for bytes in text.as_bytes().chunks(piece) {
            assert!(bytes.len() <= inbox.room());
            inbox.extend(bytes);
            loop {
                match inbox.next() {
                    Ok(Some(Item::Request(request))) => methods.push(request.method().clone()),
                    Ok(Some(Item::Packet(channel))) => assert_eq!(channel, 1),
                    Ok(None) => break,
                    Err(error) => return (methods, Err(error)),
                }
            }
        }
        (methods, Ok(()))
    }

    #[test]
    fn requests_are_read_from_any_pieces() {
        let text = "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n\r\n\
                    GET_PARAMETER rtsp://h/a RTSP/1.0\r\nCSeq: 2\r\nContent-Length: 4\r\n\r\nabcd\
                    $\x01\x00\x02xyRTSP/1.0 200 OK\r\nCSeq: 7\r\n\r\n\
                    TEARDOWN rtsp://h/a RTSP/1.0\r\nCSeq: 3\r\n\r\n";
        for piece in [1, 7, 1_000] {
            let (methods, end) = read(text, piece);
            let wanted = [Method::Options, Method::GetParameter, Method::Teardown];
            assert_eq!((&methods[..], end), (&wanted[..], Ok(())), "{piece}");
        }
    }

    #[test]
    fn malformed_and_endless_requests_are_errors() {
        let (_, end) = read("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 8);
        assert_eq!(end, Err(StreamError::Malformed));
        let endless = format!("OPTIONS * RTSP/1.0\r\nA: {}", "x".repeat(MAX_MESSAGE));
        assert_eq!(
            read(&endless[..MAX_MESSAGE], 512).1,
            Err(StreamError::TooLarge)
        );
        let body = format!(
            "OPTIONS * RTSP/1.0\r\nContent-Length: 99999\r\n\r\n{}",
            "x".repeat(MAX_MESSAGE)
        );
        assert_eq!(
            read(&body[..MAX_MESSAGE], 512).1,
            Err(StreamError::TooLarge)
        );
    }
}
