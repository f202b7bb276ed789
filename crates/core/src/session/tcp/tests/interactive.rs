//! The interactive policy on a connection with an outage.

use std::collections::VecDeque;

use super::*;
use crate::tcp_rate::Law;
use crate::tcp_rate::{
    Backoff, CongestionControl, Mode, RateReduction, Subscription, TcpEvent, TcpRateConfig, TcpView,
};

/// A fixed-rate link with a congestion window. Accepted bytes wait for the link and are
/// acknowledged one round trip after they were carried.
#[derive(Debug, Default)]
struct Connection {
    /// Bytes accepted and not yet carried.
    waiting: usize,
    /// Bytes carried at these times and not yet acknowledged.
    in_flight: VecDeque<(u64, usize)>,
    sent: u64,
    last_ack: u64,
    stalled: bool,
}

impl Connection {
    const RTT: u64 = 60;
    const WINDOW: Bytes = Bytes(20 * 1_448);
    const TIMEOUT: u64 = 300;
    /// Link rate in bytes per millisecond: 4 Mb/s.
    const SPEED: usize = 500;

    /// Advances by a millisecond; returns true if the retransmission timer expired.
    fn advance(&mut self, now: u64, down: bool) -> bool {
        if !down && self.waiting > 0 {
            let carried = self.waiting.min(Self::SPEED);
            self.waiting -= carried;
            self.sent += carried as u64;
            self.in_flight.push_back((now, carried));
        }
        while !down
            && self
                .in_flight
                .front()
                .is_some_and(|(at, _)| at + Self::RTT <= now)
        {
            self.in_flight.pop_front();
            self.last_ack = now;
            self.stalled = false;
        }
        let out = self.waiting + self.in_flight.len() > 0;
        let expires = out && !self.stalled && now >= self.last_ack + Self::TIMEOUT;
        self.stalled |= expires;
        if !out {
            self.last_ack = now;
        }
        expires
    }

    fn view(&self) -> TcpView {
        let in_flight: usize = self.in_flight.iter().map(|(_, count)| count).sum();
        let backlog = Bytes((in_flight + self.waiting) as u64);
        TcpView {
            control: CongestionControl::Reno,
            mss: Bytes(1_448),
            srtt: Duration::from_millis(Self::RTT),
            cwnd: Self::WINDOW,
            ssthresh: Self::WINDOW,
            unacked: backlog.min(Self::WINDOW),
            unsent: backlog - backlog.min(Self::WINDOW),
            sent: Bytes(self.sent),
            next_timeout: Some(at(self.last_ack + 3 * Self::TIMEOUT)),
            unacked_since: (backlog > Bytes(0)).then(|| at(self.last_ack)),
            stalled: self.stalled,
            oldest_sent: None,
            resumed: None,
        }
    }
}

/// Runs 12 s of video at 25 frames per second; the link is down from 4 s to 7 s.
fn run_with_outage(place: Place, policy: impl RatePolicy + 'static) -> (Pair, Vec<RateReduction>) {
    let mut pair = Pair::new(300, Classic::new(RATE));
    let config = TcpSenderConfig {
        place,
        most_queued: Bytes(10_000_000),
        ..config(300)
    };
    pair.sender = TcpSender::new(config, Box::new(policy));
    let mut connection = Connection::default();
    // Bytes that the link has not carried.
    let mut stream: VecDeque<u8> = VecDeque::new();
    for ms in 0..20_000 {
        let now = at(ms);
        let before = connection.sent;
        if connection.advance(ms, (4_000..7_000).contains(&ms))
            && pair.sender.subscribed().contains(TcpEvent::TimedOut)
        {
            pair.sender
                .on_event(now, TcpEvent::TimedOut.at(now), &connection.view());
        }
        let carried: Vec<u8> = stream
            .drain(..(connection.sent - before) as usize)
            .collect();
        let came = now + Duration::from_millis(Connection::RTT / 2);
        pair.receiver.on_bytes(came, &carried).unwrap();
        pair.sender.on_timeout(now);
        loop {
            pair.sender.on_view(now, &connection.view());
            while let Some(order) = pair.sender.poll_order(now) {
                pair.sender
                    .on_encoded(now, Duration::ZERO, Ok(picture(&order)));
            }
            let bytes = pair.sender.poll_write(now);
            if bytes.is_empty() {
                break;
            }
            stream.extend(bytes);
            let count = bytes.len();
            connection.waiting += count;
            pair.sender.on_written(now, count);
        }
        pair.sender.drain(&mut pair.rows, &mut pair.events);
        let frames = std::iter::from_fn(|| pair.receiver.poll_frame());
        pair.frames.extend(frames);
    }
    assert!(pair.sender.is_done() && pair.receiver.is_over());
    assert_eq!(pair.rows.len(), 300);
    let answers = pair.sender.take_rate_reductions();
    (pair, answers)
}

fn interactive(mode: Mode) -> Interactive {
    let config = TcpRateConfig {
        mode,
        subscribed: Subscription::LOSSES,
        floor: Rate::kbps(150),
        ceiling: RATE,
        bound: BOUND,
        interval: Duration::from_millis(40),
        encoder_delay: Duration::ZERO,
        default_response_latency: Duration::ZERO,
        margin: TcpRateConfig::MARGIN,
        drain: Duration::from_secs(3),
    };
    Interactive::new(config, Time::ZERO)
}

/// Number of received frames, and of those later than the bound.
fn received_and_late(pair: &Pair) -> (usize, usize) {
    let captured = |frame: &ReceivedFrame| {
        let timestamp = frame.timestamp as u32;
        let row = pair.rows.iter().find(|row| row.timestamp == timestamp);
        row.unwrap().captured
    };
    let late = |frame: &&ReceivedFrame| frame.complete.unwrap() > captured(frame) + BOUND;
    (pair.frames.len(), pair.frames.iter().filter(late).count())
}

fn dropped(pair: &Pair, cause: DropCause) -> usize {
    let is_so = |row: &&SentFrame| row.dropped == Some(cause);
    pair.rows.iter().filter(is_so).count()
}

#[test]
fn pictures_wait_during_an_outage_and_no_encoded_frame_is_late() {
    //= itcp-4.4-late (test)
    let (classic, answers) = run_with_outage(Place::Socket, interactive(Mode::Classic));
    assert!(answers.is_empty());
    let (came, late) = received_and_late(&classic);
    assert_eq!(came, 300);
    // Frames that waited for two seconds would be late even on an infinitely fast path.
    assert!(late > 50, "{late}");

    let (exact, answers) = run_with_outage(Place::Pictures, interactive(Mode::Iopt(Law::Exact)));
    let (came, late) = received_and_late(&exact);
    // Frames in flight before an acknowledgement was overdue: 95 ms.
    assert!(late <= 4, "{late}");
    let skipped = dropped(&exact, DropCause::Late) + dropped(&exact, DropCause::Skipped);
    assert_eq!(came + skipped, 300);
    assert!(
        (40..60).contains(&skipped),
        "frames of two of three seconds are skipped: {skipped}"
    );
    let keys = exact.frames.iter().filter(|frame| frame.key).count();
    assert_eq!(keys, 1, "no encoded frame is dropped");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].event, TcpEvent::TimedOut);
    let plans = exact.events.iter();
    let plans = plans.filter(|(_, event)| matches!(event, Event::Plan { .. }));
    assert_eq!(plans.count(), 1);
    let order: Vec<u64> = exact.frames.iter().map(|frame| frame.timestamp).collect();
    assert!(order.is_sorted());
}

#[test]
fn late_encoded_frames_are_dropped_with_their_dependents() {
    let mode = Mode::Iexp(Backoff::PAPER);
    let (pair, answers) = run_with_outage(Place::Frames, interactive(mode));
    assert_eq!(answers[0].rate, Rate::kbps(350));
    assert!(received_and_late(&pair).1 <= 4);
    let (late, reference) = (DropCause::Late, DropCause::Reference);
    assert!(dropped(&pair, late) >= 1 && dropped(&pair, reference) >= 1);
    assert!(pair.frames.iter().all(|frame| frame.complete.is_some()));
    let keys = pair.frames.iter().filter(|frame| frame.key).count();
    assert!((2..=1 + dropped(&pair, late)).contains(&keys));
    // The rate has recovered four seconds later.
    assert_eq!(pair.sender.target(), RATE);
}

#[test]
fn the_oldest_of_too_many_pictures_is_skipped() {
    let config = TcpSenderConfig {
        place: Place::Pictures,
        most_pictures: 2,
        capture: Capture::Source,
        ..config(0)
    };
    let mut sender = TcpSender::new(config, Box::new(interactive(Mode::Iopt(Law::Exact))));
    for frame in 0..4 {
        sender.on_picture(at(40 * frame), frame, at(40 * frame));
        assert_eq!(
            sender.poll_order(at(40 * frame)),
            None,
            "the connection state is unknown"
        );
    }
    assert!(sender.waits_for_room());
    let view = Connection::default().view();
    sender.on_view(at(130), &view);
    assert_eq!(sender.poll_order(at(130)).map(|order| order.frame), Some(2));
    assert!(!sender.waits_for_room(), "the encoder is busy");
    sender.on_closed(at(140));
    sender.on_encoded(at(150), Duration::ZERO, Err(EncodeError::EndOfSource));
    let (mut rows, mut events) = (Vec::new(), Vec::new());
    sender.drain(&mut rows, &mut events);
    let outcomes: Vec<_> = rows.iter().map(|row| (row.frame, row.dropped)).collect();
    let (skipped, ended) = (Some(DropCause::Skipped), Some(DropCause::Ended));
    // The frame that the encoder failed on has no row.
    assert_eq!(outcomes, [(0, skipped), (1, skipped), (3, ended)]);
    assert!(sender.is_done());
}

/// The encoder needs 15 ms per frame and is busy when the sender receives the timeout event.
#[test]
fn the_first_frame_at_the_new_rate_ends_the_reaction() {
    //= itcp-5.1.1-reaction (test)
    // Ten of the 15 ms for the frame at the old rate, and all of the next frame, without the wait
    // in between. A driver that is not scheduled sees frames as soon as they were ordered, although
    // encoding took as long.
    for (seen_after, encoder) in [(15, 25), (0, 15)] {
        let (rates, reactions) = measure_reaction(seen_after);
        assert_eq!(rates, [1_000_000, 1_000_000, 350_000]);
        let expected = Event::Reacted {
            event: TcpEvent::TimedOut,
            signal: Duration::from_millis(2),
            answer: Duration::ZERO,
            encoder: Duration::from_millis(encoder),
            reaction: Duration::from_millis(2 + encoder),
        };
        assert_eq!(reactions, [(at(80 + seen_after), expected)]);
    }
}

/// Runs frames at 0, 40 and 80 ms and a timeout at 43 ms that the sender receives at 45 ms. Returns
/// the rates of the frames and the events. The driver sees a frame `seen_after` ms after its order.
fn measure_reaction(seen_after: u64) -> (Vec<u64>, Vec<(Time, Event)>) {
    let config = TcpSenderConfig {
        place: Place::Socket,
        ..config(10)
    };
    let policy = interactive(Mode::Iexp(Backoff::PAPER));
    let mut sender = TcpSender::new(config, Box::new(policy));
    let (mut rates, mut open) = (Vec::new(), None);
    for ms in 0..100 {
        sender.on_timeout(at(ms));
        if ms == 45 {
            let notification = TcpEvent::TimedOut.at(at(43));
            sender.on_event(at(ms), notification, &Connection::default().view());
        }
        if let Some(order) = sender.poll_order(at(ms)) {
            rates.push(order.rate.as_bps());
            open = Some((ms + seen_after, order));
        }
        if let Some((_, order)) = open.take_if(|(seen, _)| *seen == ms) {
            let took = Duration::from_millis(15);
            sender.on_encoded(at(ms), took, Ok(picture(&order)));
        }
    }
    let (mut rows, mut events) = (Vec::new(), Vec::new());
    sender.drain(&mut rows, &mut events);
    events.retain(|(_, event)| matches!(event, Event::Reacted { .. }));
    (rates, events)
}

/// Maximum delay from capture to arrival of a frame.
const BOUND: Duration = Duration::from_secs(1);
