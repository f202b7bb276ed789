//! A sender in symbiosis with a connection that dies for a while.

use std::collections::VecDeque;

use super::*;
use crate::delay_bound::Law;
use crate::tcp_rate::{
    Backoff, CongestionControl, Mode, Retraction, Subscription, TcpEvent, TcpRateConfig, TcpView,
};

/// A link of a fixed rate with a window, as the sender sees it: what it took waits until the link
/// has carried it, and is acknowledged a round trip later.
#[derive(Debug, Default)]
struct Connection {
    /// Taken and not carried.
    waiting: usize,
    /// Carried at these times, and not acknowledged.
    flying: VecDeque<(u64, usize)>,
    sent: u64,
    heard: u64,
    stalled: bool,
}

impl Connection {
    const RTT: u64 = 60;
    const WINDOW: Bytes = Bytes(20 * 1_448);
    const TIMEOUT: u64 = 300;
    /// Of the link, in bytes per millisecond: 4 Mb/s.
    const SPEED: usize = 500;

    /// A millisecond passes. Whether the timer expired.
    fn pass(&mut self, now: u64, dead: bool) -> bool {
        if !dead && self.waiting > 0 {
            let carried = self.waiting.min(Self::SPEED);
            self.waiting -= carried;
            self.sent += carried as u64;
            self.flying.push_back((now, carried));
        }
        while !dead
            && self
                .flying
                .front()
                .is_some_and(|(at, _)| at + Self::RTT <= now)
        {
            self.flying.pop_front();
            self.heard = now;
            self.stalled = false;
        }
        let out = self.waiting + self.flying.len() > 0;
        let expires = out && !self.stalled && now >= self.heard + Self::TIMEOUT;
        self.stalled |= expires;
        if !out {
            self.heard = now;
        }
        expires
    }

    fn view(&self) -> TcpView {
        let flying: usize = self.flying.iter().map(|(_, count)| count).sum();
        let backlog = Bytes((flying + self.waiting) as u64);
        TcpView {
            control: CongestionControl::Reno,
            mss: Bytes(1_448),
            srtt: Duration::from_millis(Self::RTT),
            cwnd: Self::WINDOW,
            ssthresh: Self::WINDOW,
            unacked: backlog.min(Self::WINDOW),
            unsent: backlog - backlog.min(Self::WINDOW),
            sent: Bytes(self.sent),
            next_timeout: Some(at(self.heard + 3 * Self::TIMEOUT)),
            silent_since: (backlog > Bytes(0)).then(|| at(self.heard)),
            stalled: self.stalled,
            oldest_sent: None,
            resumed: None,
        }
    }
}

/// Twelve seconds of video at 25 frames per second; the link is dead from the fourth second to the
/// seventh. Returns the sender, its rows, and the frames with the times at which they came.
fn over_a_cut(place: Place, steering: impl RatePolicy + 'static) -> (World, Vec<Retraction>) {
    let mut world = World::new(300, Classic::new(RATE));
    let config = TcpSenderConfig {
        place,
        most_queued: Bytes(10_000_000),
        ..config(300)
    };
    world.sender = TcpSender::new(config, Box::new(steering));
    let mut connection = Connection::default();
    // What the link has not carried, with the frames in it.
    let mut stream: VecDeque<u8> = VecDeque::new();
    for ms in 0..20_000 {
        let now = at(ms);
        let before = connection.sent;
        if connection.pass(ms, (4_000..7_000).contains(&ms))
            && world.sender.subscribed().contains(TcpEvent::TimedOut)
        {
            world
                .sender
                .on_event(now, TcpEvent::TimedOut.at(now), &connection.view());
        }
        let carried: Vec<u8> = stream
            .drain(..(connection.sent - before) as usize)
            .collect();
        let came = now + Duration::from_millis(Connection::RTT / 2);
        world.receiver.on_bytes(came, &carried).unwrap();
        world.sender.on_timeout(now);
        loop {
            world.sender.on_view(now, &connection.view());
            while let Some(order) = world.sender.poll_order(now) {
                world
                    .sender
                    .on_encoded(now, Duration::ZERO, Ok(picture(&order)));
            }
            let bytes = world.sender.poll_write(now);
            if bytes.is_empty() {
                break;
            }
            stream.extend(bytes);
            let count = bytes.len();
            connection.waiting += count;
            world.sender.on_written(now, count);
        }
        world.sender.drain(&mut world.rows, &mut world.events);
        let frames = std::iter::from_fn(|| world.receiver.poll_frame());
        world.frames.extend(frames);
    }
    assert!(world.sender.is_done() && world.receiver.is_over());
    assert_eq!(world.rows.len(), 300);
    let answers = world.sender.take_answers();
    (world, answers)
}

fn interactive(mode: Mode) -> Interactive {
    let config = TcpRateConfig {
        mode,
        subscribed: Subscription::LOSSES,
        floor: Rate::kbps(150),
        ceiling: RATE,
        bound: BOUND,
        interval: Duration::from_millis(40),
        obeys_after: Duration::ZERO,
        reaction: Duration::ZERO,
        margin: TcpRateConfig::MARGIN,
        drain: Duration::from_secs(3),
    };
    Interactive::new(config, Time::ZERO)
}

/// How many frames came, and how many of them later than the bound.
fn came_and_late(world: &World) -> (usize, usize) {
    let captured = |frame: &ReceivedFrame| {
        let timestamp = frame.timestamp as u32;
        let row = world.rows.iter().find(|row| row.timestamp == timestamp);
        row.unwrap().captured
    };
    let late = |frame: &&ReceivedFrame| frame.complete.unwrap() > captured(frame) + BOUND;
    (world.frames.len(), world.frames.iter().filter(late).count())
}

fn dropped(world: &World, cause: DropCause) -> usize {
    let is_so = |row: &&SentFrame| row.dropped == Some(cause);
    world.rows.iter().filter(is_so).count()
}

#[test]
fn pictures_wait_while_the_path_is_dead_and_none_that_is_made_is_late() {
    //= itcp-4.4-late (test)
    let (classic, answers) = over_a_cut(Place::Socket, interactive(Mode::Classic));
    assert!(answers.is_empty());
    let (came, late) = came_and_late(&classic);
    assert_eq!(came, 300);
    // Two seconds' worth would be late even over a path that carried all at once.
    assert!(late > 50, "{late}");

    let (exact, answers) = over_a_cut(Place::Pictures, interactive(Mode::Iopt(Law::Exact)));
    let (came, late) = came_and_late(&exact);
    // Those that were on their way before an acknowledgement was overdue: 95 ms.
    assert!(late <= 4, "{late}");
    let skipped = dropped(&exact, DropCause::Late) + dropped(&exact, DropCause::Skipped);
    assert_eq!(came + skipped, 300);
    assert!(
        (40..60).contains(&skipped),
        "two of three seconds: {skipped}"
    );
    let keys = exact.frames.iter().filter(|frame| frame.key).count();
    assert_eq!(keys, 1, "nothing that was made was dropped");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].event, TcpEvent::TimedOut);
    let plans = exact.events.iter();
    let plans = plans.filter(|(_, event)| matches!(event, Event::Plan { .. }));
    assert_eq!(plans.count(), 1);
    let order: Vec<u64> = exact.frames.iter().map(|frame| frame.timestamp).collect();
    assert!(order.is_sorted());
}

#[test]
fn encoded_frames_that_are_hopeless_go_with_those_that_refer_to_them() {
    let mode = Mode::Iexp(Backoff::PAPER);
    let (world, answers) = over_a_cut(Place::Frames, interactive(mode));
    assert_eq!(answers[0].rate, Rate::kbps(350));
    assert!(came_and_late(&world).1 <= 4);
    let (late, reference) = (DropCause::Late, DropCause::Reference);
    assert!(dropped(&world, late) >= 1 && dropped(&world, reference) >= 1);
    assert!(world.frames.iter().all(|frame| frame.complete.is_some()));
    let keys = world.frames.iter().filter(|frame| frame.key).count();
    assert!((2..=1 + dropped(&world, late)).contains(&keys));
    // Back after four seconds.
    assert_eq!(world.sender.target(), RATE);
}

#[test]
fn of_too_many_pictures_the_oldest_is_passed_over() {
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
            "nothing is known yet"
        );
    }
    assert!(sender.waits_for_room());
    let view = Connection::default().view();
    sender.on_view(at(130), &view);
    assert_eq!(sender.poll_order(at(130)).map(|order| order.frame), Some(2));
    assert!(!sender.waits_for_room(), "it waits for the encoder");
    sender.on_closed(at(140));
    sender.on_encoded(at(150), Duration::ZERO, Err(EncodeError::EndOfSource));
    let (mut rows, mut events) = (Vec::new(), Vec::new());
    sender.drain(&mut rows, &mut events);
    let fates: Vec<_> = rows.iter().map(|row| (row.frame, row.dropped)).collect();
    let (skipped, ended) = (Some(DropCause::Skipped), Some(DropCause::Ended));
    // Of the one that the encoder could not make there is none.
    assert_eq!(fates, [(0, skipped), (1, skipped), (3, ended)]);
    assert!(sender.is_done());
}

/// The encoder needs 15 ms for a frame, and is at one when the sender hears of the time-out.
#[test]
fn the_first_frame_that_obeys_ends_the_reaction() {
    //= itcp-5.1.1-reaction (test)
    // Ten of the fifteen for the frame at the old rate, and all of the next; not the wait between.
    // Who was kept from running sees frames as soon as they were ordered; they took no less.
    for (seen_after, encoder) in [(15, 25), (0, 15)] {
        let (rates, reactions) = react(seen_after);
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

/// The rates of the frames at 0, 40 and 80 ms, with a time-out at 43 of which the sender hears at 45,
/// and what was measured. It sees a frame so long after it was ordered, in ms.
fn react(seen_after: u64) -> (Vec<u64>, Vec<(Time, Event)>) {
    let config = TcpSenderConfig {
        place: Place::Socket,
        ..config(10)
    };
    let steering = interactive(Mode::Iexp(Backoff::PAPER));
    let mut sender = TcpSender::new(config, Box::new(steering));
    let (mut rates, mut open) = (Vec::new(), None);
    for ms in 0..100 {
        sender.on_timeout(at(ms));
        if ms == 45 {
            let told = TcpEvent::TimedOut.at(at(43));
            sender.on_event(at(ms), told, &Connection::default().view());
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

/// From the capture of a frame to its arrival.
const BOUND: Duration = Duration::from_secs(1);
