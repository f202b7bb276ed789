//! The sender of a stream over TCP, with an arbitrary connection, encoder and source.

use core::time::Duration;
use std::collections::BTreeMap;

use super::{EPOCH, MEDIA, Story, name};
use tidegate_core::media::{Codec, EncodeError, Encoded, FrameOrder, FrameRate};
use tidegate_core::session::tcp::{
    Advice, Capture, Classic, Follow, Interactive, Place, RatePolicy, TcpReceiver, TcpSender,
    TcpSenderConfig,
};
use tidegate_core::tcp_rate::Law;
use tidegate_core::tcp_rate::{
    Backoff, CongestionControl, Mode, Subscription, TcpEvent, TcpRateConfig, TcpView,
};
use tidegate_core::units::{Bytes, Rate, Time};

/// A sender in any mode and with any place of the queue. Invariants: every picture up to the end of
/// the source has exactly one fate, orders are sequential and in order, rates stay within their
/// limits, written data can be decoded, and the stream ends.
pub fn tcp_sender(data: &[u8]) {
    let mut story = Story::new(data);
    let mut scene = Scene::new(&mut story);
    while !story.is_over() {
        scene.act(&mut story);
        scene.check();
    }
    scene.end();
}

struct Scene {
    sender: TcpSender,
    receiver: TcpReceiver,
    capture: Capture,
    now: Time,
    view: TcpView,
    open: Option<FrameOrder>,
    /// Number of the picture that the source lacked.
    missing: Option<u64>,
    /// Number after that of the last order.
    ordered: u64,
    /// Whether the source has ended.
    pictures: u64,
    outcomes: BTreeMap<u64, bool>,
    arrived: u64,
}

impl Scene {
    fn new(story: &mut Story<'_>) -> Self {
        let (choice, mode, place) = (story.byte(), story.byte(), story.byte());
        let capture = match choice & 1 {
            0 => Capture::Clock { frames: Some(40) },
            _ => Capture::Source,
        };
        let config = TcpSenderConfig {
            codec: Codec::Mpeg2,
            ssrc: MEDIA,
            timestamp_base: 0,
            cname: name(),
            epoch: EPOCH,
            frame_rate: FrameRate::fps(25),
            capture,
            packet_size: Bytes(400),
            most_queued: Bytes(20_000),
            place: [Place::Socket, Place::Frames, Place::Pictures][usize::from(place % 3)],
            most_pictures: usize::from(choice >> 4),
        };
        Self {
            sender: TcpSender::new(config, rate_policy(mode)),
            receiver: TcpReceiver::new(),
            capture,
            now: Time::ZERO,
            view: open_view(),
            open: None,
            missing: None,
            ordered: 0,
            pictures: 0,
            outcomes: BTreeMap::new(),
            arrived: 0,
        }
    }

    fn act(&mut self, story: &mut Story<'_>) {
        match story.byte() % 10 {
            0 | 1 => self.pass(story.span()),
            2 => self.change_view(story),
            3 => {
                let event = TcpEvent::ALL[usize::from(story.byte()) % 6];
                self.sender
                    .on_event(self.now, event.at(self.now), &self.view);
            }
            4 | 5 => self.answer(story.byte()),
            6 | 7 => self.write(usize::from(story.byte()) * 16),
            8 if self.capture == Capture::Source => {
                self.pictures += u64::from(story.byte() % 3);
                self.sender.on_picture(self.now, self.pictures, self.now);
                self.pictures += 1;
            }
            _ => {
                let rate = Rate::kbps(u64::from(story.byte()) * 10);
                let advice = [Advice::Drop, Advice::Rate(rate)][usize::from(story.byte() & 1)];
                self.sender.advise(self.now, advice);
            }
        }
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
        self.sender.on_timeout(self.now);
    }

    /// Changes the state of the connection.
    fn change_view(&mut self, story: &mut Story<'_>) {
        let (flags, segments) = (story.byte(), |n: u8| Bytes(u64::from(n) * 1_448));
        self.view = TcpView {
            control: match flags & 3 {
                0 => CongestionControl::Reno,
                1 => CongestionControl::Cubic,
                _ => CongestionControl::Bbr {
                    bandwidth: Rate::kbps(u64::from(story.byte()) * 50),
                    min_rtt: Duration::from_millis(u64::from(story.byte())),
                    next_probe: story.span(),
                    starting: flags & 64 != 0,
                },
            },
            srtt: Duration::from_millis(u64::from(story.byte())),
            cwnd: segments(story.byte()),
            ssthresh: segments(story.byte()),
            unacked: segments(story.byte()),
            unsent: segments(story.byte()),
            next_timeout: (flags & 4 != 0).then(|| self.now + story.span()),
            unacked_since: (flags & 8 != 0).then_some(self.now),
            stalled: flags & 16 != 0,
            oldest_sent: None,
            resumed: None,
            ..self.view
        };
        self.sender.on_view(self.now, &self.view);
    }

    fn answer(&mut self, manner: u8) {
        let Some(order) = self.open.take() else {
            return;
        };
        let result = match manner {
            0 => {
                self.missing = Some(order.frame);
                Err(EncodeError::EndOfSource)
            }
            _ => Ok(slice(&order, usize::from(manner) * 8)),
        };
        self.sender.on_encoded(self.now, Duration::ZERO, result);
    }

    fn write(&mut self, most: usize) {
        let bytes = self.sender.poll_write(self.now);
        let bytes = bytes[..bytes.len().min(most)].to_vec();
        self.sender.on_written(self.now, bytes.len());
        self.receiver
            .on_bytes(self.now, &bytes)
            .expect("the written stream is valid");
        while let Some(frame) = self.receiver.poll_frame() {
            assert!(frame.complete.is_some(), "written frames can be decoded");
            self.arrived += 1;
        }
    }

    fn check(&mut self) {
        if let Some(order) = self.sender.poll_order(self.now) {
            assert!(self.open.is_none(), "one order at a time");
            assert!(
                order.frame >= self.ordered,
                "pictures are ordered by number"
            );
            assert!(
                LIMITS.contains(&order.rate),
                "{} is out of range",
                order.rate
            );
            self.ordered = order.frame + 1;
            self.open = Some(order);
        }
        assert!(LIMITS.contains(&self.sender.target()));
        let (mut rows, mut events) = (Vec::new(), Vec::new());
        self.sender.drain(&mut rows, &mut events);
        for row in rows {
            let left = row.left.is_some();
            assert_ne!(left, row.dropped.is_some(), "a frame leaves or is dropped");
            assert!(self.outcomes.insert(row.frame, left).is_none(), "one fate");
        }
    }

    /// The connection accepts all data from now on.
    fn end(&mut self) {
        self.sender.stop_capture();
        for _ in 0..MAX_TURNS {
            self.sender.on_view(self.now, &open_view());
            self.pass(Duration::from_millis(10));
            self.check();
            self.answer(9);
            self.write(usize::MAX);
            if self.sender.is_done() {
                break;
            }
        }
        self.check();
        assert!(self.sender.is_done(), "the sender does not finish");
        assert!(self.receiver.is_over());
        let left = self.outcomes.values().filter(|left| **left).count();
        assert_eq!(left as u64, self.arrived);
        if self.capture == Capture::Source {
            assert!(self.outcomes.keys().all(|frame| *frame < self.pictures));
        } else {
            let captured = self.missing.unwrap_or(self.outcomes.len() as u64);
            let until_end = self.outcomes.keys().copied().take_while(|f| *f < captured);
            assert!((0..captured).eq(until_end) && self.outcomes.keys().all(|f| *f < 40));
        }
        let missing = self.missing.and_then(|frame| self.outcomes.get(&frame));
        assert_eq!(
            missing, None,
            "a picture that the source lacked has no fate"
        );
    }
}

fn rate_policy(mode: u8) -> Box<dyn RatePolicy> {
    let (floor, ceiling) = (*LIMITS.start(), *LIMITS.end());
    let is_patient = mode & 8 != 0;
    let mode = match mode % 8 {
        0 => return Box::new(Classic::new(ceiling)),
        1 => return Box::new(Follow::new(ceiling, (floor, ceiling))),
        2 => Mode::Ioff,
        3 => Mode::Iexp(Backoff::PAPER),
        4 => Mode::Iexp(Backoff::REPORT),
        5 => Mode::Iopt(Law::Paper),
        6 => Mode::Iopt(Law::PaperM),
        _ => Mode::Iopt(Law::Exact),
    };
    // With the longer bound, frames can survive some outages.
    let bound = Duration::from_millis(if is_patient { 4_000 } else { 500 });
    let config = TcpRateConfig {
        mode,
        subscribed: Subscription::ALL,
        floor,
        ceiling,
        bound,
        interval: Duration::from_millis(40),
        encoder_delay: Duration::from_millis(20),
        default_response_latency: Duration::from_millis(20),
        margin: TcpRateConfig::MARGIN,
        drain: Duration::from_secs(3),
    };
    Box::new(Interactive::new(config, Time::ZERO))
}

/// A connection without congestion.
fn open_view() -> TcpView {
    TcpView {
        control: CongestionControl::Reno,
        mss: Bytes(1_448),
        srtt: Duration::from_millis(50),
        cwnd: Bytes(60_000),
        ssthresh: Bytes(30_000),
        unacked: Bytes(0),
        unsent: Bytes(0),
        sent: Bytes(100_000),
        next_timeout: None,
        unacked_since: None,
        stalled: false,
        oldest_sent: None,
        resumed: None,
    }
}

/// A picture of one slice.
fn slice(order: &FrameOrder, len: usize) -> Encoded {
    let kind = if order.key { 0x08 } else { 0x10 };
    let mut data = Vec::new();
    if order.key {
        data.extend_from_slice(&[0, 0, 1, 0xb3, 9, 9]);
    }
    data.extend_from_slice(&[0, 0, 1, 0, 0, kind, 9, 9, 9, 0, 0, 1, 1]);
    data.resize(data.len() + len, 7);
    Encoded {
        frame: order.frame,
        captured: order.captured,
        key: order.key,
        leading: false,
        data,
        quality: None,
    }
}

const LIMITS: core::ops::RangeInclusive<Rate> = Rate::kbps(150)..=Rate::kbps(2_000);
/// A picture every hundred steps, and a reserve for queued frames.
const MAX_TURNS: u32 = 1_000;
