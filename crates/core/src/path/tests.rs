use super::*;
use crate::control::{Ecn, FlowId, Kind};
use crate::random::Seed;

/// Packets of 1,200 bytes over a bottleneck, with a report every 25 ms.
struct Bottleneck {
    path: Path,
    /// Time at which the bottleneck is free, in ns.
    free: u64,
    next: u64,
    pending: Vec<PacketOutcome>,
    falls: Vec<(u64, f64)>,
    /// One packet of so many is lost.
    loses: u64,
    /// Time in which all are lost, in ms.
    outage: core::ops::Range<u64>,
    /// Lost packets, and reports with one that counts as congestion.
    lost: u32,
    congested: u32,
    /// Newest delay in the queue.
    queue: f64,
}

impl Bottleneck {
    fn new() -> Self {
        Self {
            path: Path::new(Time::ZERO, Bytes(1_200)),
            free: 0,
            next: 0,
            pending: Vec::new(),
            falls: Vec::new(),
            loses: u64::MAX,
            outage: 0..0,
            lost: 0,
            congested: 0,
            queue: 0.0,
        }
    }

    /// Sends at `gap_us` from `from_ms` to `to_ms`, over a bottleneck that takes `service_us` for a
    /// packet, and to which `delays` adds.
    fn send(
        &mut self,
        (from_ms, to_ms): (u64, u64),
        (gap_us, service_us): (u64, u64),
        delay: impl Fn(u64) -> u64,
    ) {
        let mut rng = Seed(1).stream("path");
        for sent in (from_ms * 1_000_000..to_ms * 1_000_000).step_by(gap_us as usize * 1_000) {
            self.free = self.free.max(sent) + service_us * 1_000;
            let sent = Time::ZERO + Duration::from_nanos(sent);
            let packet = Sent {
                flow: FlowId(0),
                seq: self.next,
                size: Bytes(1_200),
                kind: Kind::Media,
                app_limited: false,
            };
            self.path.on_sent(sent, &packet, 150_000.0);
            let is_lost = mix(self.next + 1_000_000).is_multiple_of(self.loses)
                || self.outage.contains(&(sent.as_nanos() / 1_000_000));
            self.lost += u32::from(is_lost);
            let received = Outcome::Received {
                at: RemoteTime(self.free + delay(self.next)),
                ecn: Ecn::NotEct,
            };
            self.pending.push(PacketOutcome {
                flow: FlowId(0),
                seq: self.next,
                size: Bytes(1_200),
                sent,
                outcome: if is_lost { Outcome::Lost } else { received },
            });
            self.next += 1;
            let is_due = |packet: &PacketOutcome| match packet.outcome {
                Outcome::Received { at, .. } => at.0 <= sent.as_nanos(),
                Outcome::Lost => sent.since(packet.sent) > Duration::from_millis(150),
            };
            if self.next.is_multiple_of(8) {
                let (due, later) = self.pending.drain(..).partition(is_due);
                self.pending = later;
                let due: Vec<_> = due;
                let news = self
                    .path
                    .on_report(sent, &mut rng, &Report::new(&due), false, 0.01);
                self.congested += u32::from(news.congestion.is_some());
                let fall = news.fall.map(|rate| (sent.as_nanos() / 1_000_000, rate));
                self.falls.extend(fall);
                if let Some(rate) = news.fall {
                    self.path.on_fall(rate);
                }
                if let Some(queue) = self.path.delays().take(0.02) {
                    self.queue = queue.now;
                }
            }
        }
    }
}

fn mix(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

/// 400 packets per second; the bottleneck carries 420 of them, and then 100.
#[test]
fn a_fall_is_known_after_a_few_packets() {
    let mut path = Bottleneck::new();
    path.send((0, 1_000), (2_500, 2_380), |_| 0);
    assert_eq!(path.falls, []);
    path.send((1_000, 1_200), (2_500, 10_000), |_| 0);
    let (at, rate) = path.falls[0];
    assert!(at <= 1_080, "{at} ms");
    assert!((rate / 120_000.0 - 1.0).abs() < 0.1, "{rate}");
    // The rate since is known to be that, so it is one fall.
    assert_eq!(path.falls.len(), 1);
}

/// 7 Mb/s, and then 0.22: three packets take longer than the window of the delivered rate.
#[test]
fn a_fall_to_a_thirtieth_is_known_after_a_few_packets() {
    let mut path = Bottleneck::new();
    path.send((0, 1_000), (1_400, 1_370), |_| 0);
    path.send((1_000, 1_250), (1_400, 43_640), |_| 0);
    let (at, rate) = path.falls[0];
    assert!(at <= 1_200, "{at} ms");
    assert!((rate / 27_500.0 - 1.0).abs() < 0.1, "{rate}");
}

/// A bottleneck of 17 Mb/s, for ten seconds of 0.1, and of 17 again. A packet takes 0.56 ms instead of 96.
#[test]
fn the_longer_transmission_of_a_fall_ends_with_it() {
    let mut path = Bottleneck::new();
    // A queue, and distances of departures that vary, show that this flow is alone.
    for begin in (0..2_000).step_by(40) {
        path.send((begin, begin + 20), (420, 565), |_| 0);
        path.send((begin + 20, begin + 40), (730, 565), |_| 0);
    }
    path.send((2_000, 3_000), (20_000, 96_000), |_| 0);
    path.send((3_000, 12_000), (500_000, 96_000), |_| 0);
    assert!(path.path.capacity < 20_000.0, "{}", path.path.capacity);
    path.send((12_000, 13_000), (700, 565), |_| 0);
    path.send((13_000, 13_400), (480, 565), |_| 0);
    assert!((0.03..0.1).contains(&path.queue), "{}", path.queue);
}

/// Delays of up to 20 ms at random, and batches of 30 ms.
#[test]
fn jitter_and_batches_are_no_falls() {
    let mut path = Bottleneck::new();
    let jitter = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 20_000_000;
    path.send((0, 20_000), (2_500, 1_000), jitter);
    assert_eq!(path.falls, []);
    let mut path = Bottleneck::new();
    let batch = |n: u64| 30_000_000 - n * 2_500_000 % 30_000_000;
    path.send((0, 20_000), (2_500, 1_000), batch);
    assert_eq!(path.falls, []);
}

/// Half of the packets are lost for half a second. They are still many of the last 64 packets when
/// the last one is more than 100 ms ago.
#[test]
fn losses_end_before_their_fraction_falls() {
    let mut path = Bottleneck::new();
    path.send((0, 1_000), (5_000, 2_000), |_| 0);
    path.loses = 2;
    path.send((1_000, 1_500), (5_000, 2_000), |_| 0);
    path.loses = u64::MAX;
    path.send((1_500, 1_600), (5_000, 2_000), |_| 0);
    let losses = path.path.losses();
    assert!(losses.fraction() > 0.2, "{}", losses.fraction());
    assert!(losses.go_on(0.1));
    path.send((1_600, 1_800), (5_000, 2_000), |_| 0);
    let losses = path.path.losses();
    assert!(losses.fraction() > 0.15, "{}", losses.fraction());
    assert!(!losses.go_on(0.1));
}

/// Delays of up to 20 ms at random, and one packet of 101 lost at random.
#[test]
fn losses_are_no_more_frequent_where_single_packets_are_late() {
    let mut path = Bottleneck::new();
    path.loses = 101;
    path.send((0, 60_000), (2_500, 100), |n| mix(n) % 20_000_000);
    assert!(path.lost > 200, "{}", path.lost);
    assert!(path.congested < path.lost / 10, "{}", path.congested);
}

/// A handover of 100 ms, in which 40 packets in a row are lost.
#[test]
fn losses_in_a_short_outage_are_neither_congestion_nor_heavy() {
    let mut path = Bottleneck::new();
    path.outage = 2_000..2_100;
    path.send((0, 2_300), (2_500, 1_000), |_| 0);
    assert!((39..=41).contains(&path.lost), "{}", path.lost);
    assert_eq!(path.congested, 0);
    let (fraction, rate) = (path.path.losses().fraction(), path.path.rate());
    assert!(fraction < 0.01, "{fraction}");
    assert!((rate / 480_000.0 - 1.0).abs() < 0.05, "{rate}");
}

/// Delays of up to 20 ms at random, without a queue.
#[test]
fn packets_that_overtake_others_show_no_capacity() {
    let mut path = Bottleneck::new();
    let jitter = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 20_000_000;
    path.send((0, 20_000), (2_500, 100), jitter);
    assert_eq!((path.path.capacity(), path.path.share()), (None, None));
}

/// A route that is 60 ms longer from 2 s on.
#[test]
fn a_constant_delay_is_that_of_a_longer_route() {
    let mut path = Bottleneck::new();
    path.send((0, 2_000), (2_500, 1_000), |_| 0);
    path.send((2_000, 4_000), (2_500, 1_000), |_| 60_000_000);
    assert!((path.queue - 0.06).abs() < 1e-3, "{}", path.queue);
    path.send((4_000, 5_500), (2_500, 1_000), |_| 60_000_000);
    assert!(path.queue < 1e-3, "{}", path.queue);
}

/// The queue of others stays long, and varies.
#[test]
fn a_queue_that_varies_is_no_longer_route() {
    let mut path = Bottleneck::new();
    path.send((0, 2_000), (2_500, 1_000), |_| 0);
    let sawtooth = |n: u64| 40_000_000 + n * 50_000 % 40_000_000;
    path.send((2_000, 60_000), (2_500, 1_000), sawtooth);
    assert!(path.queue > 0.03, "{}", path.queue);
}

/// Twice the rate of the bottleneck for half a second, after a second without a queue.
#[test]
fn the_own_queue_includes_the_packets_since_the_newest_report() {
    let mut path = Bottleneck::new();
    path.send((0, 1_000), (5_000, 4_000), |_| 0);
    assert_eq!(path.path.queueing_delay(), Duration::ZERO);
    path.send((1_000, 1_500), (2_500, 4_000), |_| 0);
    // A packet that was sent at 1,310 ms has waited for 186 ms.
    let newest = path.path.queueing_delay().as_secs_f64();
    assert!((0.16..0.19).contains(&newest), "{newest}");
    // 200 packets were sent, and 125 have left.
    let rate = Rate::kbps(2_400);
    let queued = path.path.bytes_queued(Time::from_millis(1_500), rate).get();
    assert!((80_000..95_000).contains(&queued), "{queued}");
    // In a second all of them leave.
    let later = Time::from_millis(2_500);
    assert_eq!(path.path.bytes_queued(later, rate), Bytes::ZERO);
}

/// The queue of others stays between 40 and 80 ms.
#[test]
fn a_standing_delay_is_no_own_queue() {
    let mut path = Bottleneck::new();
    path.send((0, 2_000), (2_500, 1_000), |_| 0);
    path.send((2_000, 8_000), (2_500, 1_000), |n| {
        40_000_000 + mix(n) % 40_000_000
    });
    let now = Time::from_millis(8_000);
    let path = path.path;
    let ms = |delay: Duration| delay.as_millis();
    assert!((38..45).contains(&ms(path.standing_delay(now))), "{path:?}");
    assert!(ms(path.queueing_delay()) < 40, "{path:?}");
    assert!((70..90).contains(&ms(path.max_queueing_delay())));
    assert_eq!(
        path.standing_delay(Time::from_millis(12_000)),
        Duration::ZERO
    );
}

/// Delays of up to 20 ms at random, without a queue.
#[test]
fn the_bound_on_jitter_is_its_extent() {
    let mut path = Bottleneck::new();
    path.send((0, 5_000), (2_500, 100), |_| 0);
    assert!(path.path.jitter_bound() < Duration::from_millis(1));
    path.send((5_000, 20_000), (2_500, 100), |n| mix(n) % 20_000_000);
    let bound = path.path.jitter_bound().as_millis();
    assert!((15..30).contains(&bound), "{bound} ms");
}
