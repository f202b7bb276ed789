//! A TLS session without a socket: bytes of the application on one side, records on the other.

use std::io::{self, Read, Write as _};

use rustls::Connection;

/// TLS over a non-blocking byte stream, with exact counts of the bytes that the stream has accepted.
///
/// At most one record (16 kB) is encrypted ahead of the stream. Its bytes count as accepted only as
/// far as the stream has accepted the record, in proportion, and the last one only with its end. So
/// the rest of a record is part of the application's backlog, and a full socket stops the
/// application at once, as without TLS.
#[derive(Debug)]
pub(crate) struct TlsSession {
    connection: Connection,
    /// Records for the stream, and how much of them it has accepted.
    out: Vec<u8>,
    at: usize,
    record: Option<Record>,
}

/// Application data in `out`.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Offsets in `out`.
    start: usize,
    end: usize,
    /// Bytes of the application, and how many of them were reported as accepted.
    data: usize,
    reported: usize,
}

impl TlsSession {
    pub(super) fn new(connection: Connection) -> Self {
        let mut session = Self {
            connection,
            out: Vec::new(),
            at: 0,
            record: None,
        };
        // The client's first message.
        session.collect();
        session
    }

    /// Whether the handshake is not complete, or a part of it is not sent.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking() || self.wants_write()
    }

    /// Whether records wait for the stream.
    pub(crate) fn wants_write(&self) -> bool {
        self.at < self.out.len()
    }

    /// Encrypts a part of `data` and passes records to `put`, which returns how many bytes it has
    /// accepted, zero if it is full. Returns how many bytes of `data` are accepted; the next call
    /// must begin with the byte after them. Empty `data` only passes pending records on: what is
    /// accepted of them counts in the next call that has data.
    ///
    /// # Errors
    /// Those of `put`.
    pub(crate) fn write(
        &mut self,
        data: &[u8],
        put: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.record.is_none() && !data.is_empty() {
            let start = self.out.len();
            let data = self
                .connection
                .writer()
                .write(&data[..data.len().min(RECORD)])?;
            self.collect();
            self.record = Some(Record {
                start,
                end: self.out.len(),
                data,
                reported: 0,
            });
        }
        self.flush(put)?;
        let accepted = match data.len() {
            0 => 0,
            _ => self.accepted(),
        };
        if !self.wants_write() && self.record.is_none() {
            self.out.clear();
            self.at = 0;
        }
        Ok(accepted)
    }

    /// Reads records from `stream` and application data into `buffer`. `None` if there is none yet,
    /// zero at the end of the stream. A stream that ends without an alert is not an error: RTP
    /// sessions end with a BYE.
    ///
    /// # Errors
    /// Those of `stream`, and [`io::ErrorKind::InvalidData`] if the records are invalid. An alert is
    /// pending then.
    pub(crate) fn read(
        &mut self,
        stream: &mut impl Read,
        buffer: &mut [u8],
    ) -> io::Result<Option<usize>> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                read => return read.map(Some),
            }
            match self.receive(stream)? {
                Some(0) if self.connection.is_handshaking() => return Ok(Some(0)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Reads the records of the handshake that have arrived.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`io::ErrorKind::UnexpectedEof`] if the stream ends.
    pub(crate) fn handshake(&mut self, stream: &mut impl Read) -> io::Result<()> {
        while self.connection.is_handshaking() {
            match self.receive(stream)? {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(_) => {}
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Reads and decrypts records. `None` if none has arrived, zero at the end of the stream.
    fn receive(&mut self, stream: &mut impl Read) -> io::Result<Option<usize>> {
        let count = match self.connection.read_tls(stream) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            read => read?,
        };
        let processed = self.connection.process_new_packets();
        self.collect();
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Some(count))
    }

    /// Queues the alert that ends the stream.
    pub(crate) fn close(&mut self) {
        self.connection.send_close_notify();
        self.collect();
    }

    /// Moves records from the connection to `out`.
    fn collect(&mut self) {
        while self.connection.wants_write() {
            // A write to memory does not fail.
            if self.connection.write_tls(&mut self.out).is_err() {
                return;
            }
        }
    }

    fn flush(&mut self, mut put: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        while self.wants_write() {
            match put(&self.out[self.at..])? {
                0 => return Ok(()),
                count => self.at += count,
            }
        }
        Ok(())
    }

    /// Newly accepted bytes of the application.
    fn accepted(&mut self) -> usize {
        let mut accepted = 0;
        if let Some(record) = &mut self.record {
            let length = record.end - record.start;
            let sent = self.at.saturating_sub(record.start).min(length);
            let whole = record.data * sent / length.max(1);
            accepted = whole - record.reported;
            record.reported = whole;
            if sent == length {
                self.record = None;
            }
        }
        accepted
    }
}

/// Maximum data of a record (RFC 8446 section 5.1).
const RECORD: usize = 1 << 14;
