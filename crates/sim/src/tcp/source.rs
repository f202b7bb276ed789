//! Data source of a TCP sender.

use std::collections::VecDeque;

use tidegate_core::units::Time;

/// Amount and times of the data to send. Times are in simulation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceConfig {
    /// Amount of data.
    pub kind: SourceKind,
    /// Time at which the connection is opened.
    pub start: Time,
    /// Time at which the source stops. Data sent before is retransmitted until it arrives.
    pub stop: Time,
}

impl Default for SourceConfig {
    /// Unlimited data from time zero.
    fn default() -> Self {
        Self {
            kind: SourceKind::Endless,
            start: Time::ZERO,
            stop: Time::FAR,
        }
    }
}

/// Amount of data to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Unlimited (ns-2's FTP).
    Endless,
    /// This many full packets, without the SYN.
    Packets(u32),
    /// This many bytes of payload. The last packet may be smaller.
    Bytes(u64),
    /// Data of an application, through a socket buffer of this many bytes.
    Stream {
        /// Maximum number of written and unacknowledged bytes.
        buffer: u64,
    },
}

/// Sizes on the wire, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Size of a full packet, including headers.
    pub packet: u32,
    /// Size of the headers of each packet. The rest, at least one byte, is payload.
    pub header: u32,
    /// Size of segment 0, if it stands for the SYN.
    pub syn: Option<u32>,
}

impl Sizes {
    /// Payload of a full packet.
    pub fn payload(&self) -> u32 {
        self.packet.saturating_sub(self.header).max(1)
    }

    fn first_data(&self) -> u32 {
        u32::from(self.syn.is_some())
    }
}

/// Data of a sender, divided into numbered segments.
#[derive(Clone, Debug)]
pub struct Source {
    config: SourceConfig,
    sizes: Sizes,
    /// One after the last segment that may be sent now.
    end: u32,
    /// Payload of the last segment of a transfer of known size.
    tail: u32,
    stream: Option<Stream>,
    opened: bool,
    stopped: bool,
}

impl Source {
    /// A source without data until [`open`](Self::open).
    pub fn new(config: &SourceConfig, sizes: Sizes) -> Self {
        let stream = match config.kind {
            SourceKind::Stream { buffer } => {
                Some(Stream::new(buffer, sizes.payload(), sizes.first_data()))
            }
            _ => None,
        };
        Self {
            config: *config,
            sizes,
            end: 0,
            tail: sizes.payload(),
            stream,
            opened: false,
            stopped: false,
        }
    }

    /// Time at which the connection is opened.
    pub fn start(&self) -> Time {
        self.config.start
    }

    /// Time at which the source stops.
    pub fn stop(&self) -> Time {
        self.config.stop
    }

    /// Opens the connection; from now on [`end`](Self::end) is the available data.
    pub fn open(&mut self) {
        self.opened = true;
        let first = self.sizes.first_data();
        let payload = u64::from(self.sizes.payload());
        let data = match self.config.kind {
            SourceKind::Endless => u64::from(ENDLESS),
            SourceKind::Packets(n) => u64::from(n),
            SourceKind::Bytes(bytes) => {
                let rest = bytes % payload;
                self.tail = if rest == 0 { payload } else { rest } as u32;
                bytes.div_ceil(payload)
            }
            SourceKind::Stream { .. } => 0,
        };
        self.end = data.min(u64::from(ENDLESS)) as u32 + first;
    }

    /// Stops the source. `sent` is one after the highest segment that was sent.
    pub fn close(&mut self, sent: u32) {
        self.stopped = true;
        if self.stream.is_none() {
            self.end = self.end.min(sent);
        }
    }

    /// One after the last segment that may be sent now.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Size of segment `seq` on the wire, in bytes.
    pub fn wire_size(&self, seq: u32) -> u32 {
        if seq == 0
            && let Some(syn) = self.sizes.syn
        {
            return syn;
        }
        if let Some(stream) = &self.stream {
            return self.sizes.header + stream.payload_of(seq);
        }
        match self.config.kind {
            SourceKind::Bytes(_) if seq + 1 == self.end && !self.stopped => {
                self.sizes.header + self.tail
            }
            _ => self.sizes.packet,
        }
    }

    /// Segment `seq` is sent for the first time, which fixes its size.
    pub fn on_sent(&mut self, seq: u32) {
        if let Some(stream) = &mut self.stream {
            stream.sent = stream.sent.max(seq + 1);
        }
    }

    /// All segments before `next` are acknowledged.
    pub fn on_acked(&mut self, next: u32) {
        if let Some(stream) = &mut self.stream {
            stream.release(next);
        }
    }

    /// Whether an acknowledgement up to `next` covers all data of the source.
    pub fn is_finished(&self, next: u32) -> bool {
        let closed = match self.config.kind {
            SourceKind::Endless | SourceKind::Stream { .. } => self.stopped,
            SourceKind::Packets(_) | SourceKind::Bytes(_) => true,
        };
        self.opened && closed && next >= self.end
    }

    /// The socket buffer, if the source is a stream.
    pub fn stream(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }

    /// Accepts up to `bytes` from the application. Accepts none unless the source is a stream, open
    /// and not stopped.
    pub fn write(&mut self, bytes: u64) -> Written {
        match &mut self.stream {
            Some(stream) if self.opened && !self.stopped => {
                let written = stream.write(bytes);
                self.end = self.end.max(stream.segments());
                written
            }
            _ => Written::default(),
        }
    }
}

/// Result of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of accepted bytes.
    pub accepted: u64,
    /// Position in the stream after the last of them.
    pub end: u64,
    /// One after the segment that carries the last of them: they have all arrived when a
    /// [`Sink`](super::Sink) waits for this segment or a later one.
    pub segment: u32,
}

/// A socket buffer.
///
/// Bytes are added to the last segment until it is full or sent. A segment is therefore full unless
/// the application had no more data when it was sent, as on a socket with `TCP_NODELAY`.
#[derive(Clone, Debug)]
pub struct Stream {
    buffer: u64,
    payload: u32,
    /// Number of the first segment in `ends`, which is the first unacknowledged one.
    base: u32,
    /// Stream position of the end of each segment.
    ends: VecDeque<u64>,
    /// Stream position of the end of the segment before `base`.
    acked: u64,
    written: u64,
    /// One after the last segment that was sent.
    sent: u32,
}

impl Stream {
    fn new(buffer: u64, payload: u32, first: u32) -> Self {
        Self {
            buffer,
            payload,
            base: first,
            ends: VecDeque::new(),
            acked: 0,
            written: 0,
            sent: first,
        }
    }

    /// Free space for writes, in bytes.
    pub fn free(&self) -> u64 {
        self.buffer.saturating_sub(self.unacked())
    }

    /// Total number of accepted bytes.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Total number of acknowledged bytes.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Accepted bytes that are not acknowledged, sent or not.
    pub fn unacked(&self) -> u64 {
        self.written - self.acked
    }

    /// Accepted bytes that have not been sent.
    pub fn unsent(&self) -> u64 {
        self.written - self.end_of(self.sent)
    }

    /// One after the last segment that was sent.
    pub fn sent(&self) -> u32 {
        self.sent
    }

    fn segments(&self) -> u32 {
        self.base + self.ends.len() as u32
    }

    /// Stream position of the end of the segment before `next`.
    fn end_of(&self, next: u32) -> u64 {
        match next.saturating_sub(self.base) {
            0 => self.acked,
            n => self
                .ends
                .get(n as usize - 1)
                .copied()
                .unwrap_or(self.written),
        }
    }

    fn payload_of(&self, seq: u32) -> u32 {
        (self.end_of(seq + 1) - self.end_of(seq)) as u32
    }

    fn write(&mut self, bytes: u64) -> Written {
        let accepted = bytes.min(self.free());
        let end = self.written + accepted;
        let payload = u64::from(self.payload);
        if self.segments() > self.sent
            && let Some(last) = self.ends.len().checked_sub(1)
        {
            let begin = self.end_of(self.base + last as u32);
            self.ends[last] = end.min(begin + payload);
        }
        let mut filled = self.ends.back().copied().unwrap_or(self.acked);
        while filled < end {
            filled = end.min(filled + payload);
            self.ends.push_back(filled);
        }
        self.written = end;
        Written {
            accepted,
            end,
            segment: self.segments(),
        }
    }

    fn release(&mut self, next: u32) {
        while self.base < next
            && let Some(end) = self.ends.pop_front()
        {
            self.acked = end;
            self.base += 1;
        }
    }
}

/// More than a simulation sends, and far enough from the maximum that sums do not wrap.
const ENDLESS: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZES: Sizes = Sizes {
        packet: 1_000,
        header: 40,
        syn: Some(40),
    };

    fn open(kind: SourceKind) -> Source {
        let config = SourceConfig {
            kind,
            ..SourceConfig::default()
        };
        let mut source = Source::new(&config, SIZES);
        assert_eq!(source.end(), 0);
        source.open();
        source
    }

    #[test]
    fn last_packet_of_a_transfer_is_smaller() {
        let source = open(SourceKind::Bytes(2_000));
        assert_eq!(source.end(), 4);
        let sizes: Vec<_> = (0..4).map(|seq| source.wire_size(seq)).collect();
        assert_eq!(sizes, [40, 1_000, 1_000, 120]);
        assert!(!source.is_finished(3));
        assert!(source.is_finished(4));
        let even = open(SourceKind::Bytes(1_920));
        assert_eq!((even.end(), even.wire_size(2)), (3, 1_000));
    }

    #[test]
    fn writes_fill_unsent_segments() {
        let mut source = open(SourceKind::Stream { buffer: 3_000 });
        assert_eq!(source.end(), 1);
        let first = source.write(500);
        assert_eq!(
            first,
            Written {
                accepted: 500,
                end: 500,
                segment: 2
            }
        );
        let second = source.write(1_000);
        assert_eq!(second.segment, 3);
        assert_eq!(source.wire_size(1), 1_000);
        source.on_sent(1);
        source.on_sent(2);
        assert_eq!(source.wire_size(2), 580);
        let third = source.write(10_000);
        assert_eq!(
            third,
            Written {
                accepted: 1_500,
                end: 3_000,
                segment: 5
            }
        );
        assert_eq!(source.wire_size(2), 580);
        let stream = source.stream().unwrap();
        assert_eq!(
            (stream.free(), stream.unsent(), stream.unacked()),
            (0, 1_500, 3_000)
        );
        source.on_acked(2);
        assert_eq!(source.stream().unwrap().free(), 960);
        source.close(3);
        assert_eq!(source.write(100), Written::default());
        assert!(!source.is_finished(4));
        assert!(source.is_finished(5));
    }

    proptest! {
        #[test]
        fn a_stream_conserves_bytes(steps in prop::collection::vec((0..3_u8, 0..5_000_u64), 1..80)) {
            let mut source = open(SourceKind::Stream { buffer: 20_000 });
            let (mut sent, mut next, mut wire, mut written) = (1, 1, 0, 0);
            for (kind, n) in steps {
                match kind {
                    0 => written += source.write(n).accepted,
                    1 if sent < source.end() => {
                        wire += u64::from(source.wire_size(sent)) - 40;
                        source.on_sent(sent);
                        sent += 1;
                    }
                    _ => {
                        next = sent.min(next + n as u32 % 4);
                        source.on_acked(next);
                    }
                }
                let stream = source.stream().unwrap();
                prop_assert_eq!(stream.written(), written);
                prop_assert_eq!(stream.written() - stream.unsent(), wire);
                prop_assert_eq!(stream.acked() + stream.unacked(), written);
                prop_assert_eq!(stream.free() + stream.unacked(), 20_000);
            }
        }
    }
}
