//! A link: queue, transmitter, outages, random loss, propagation.

use core::time::Duration;

use super::config::{LinkConfig, LinkError, LinkFault};
use super::delay::Delay;
use super::loss::Bernoulli;
use super::notes::{DropReason, Happening, LinkNote, Notes};
use super::outage::Outages;
use super::queue::{DropTail, Queue, QueueConfig, Red, Verdict};
use super::rate::{Capacity, Transmitter};
use super::{Packet, Stage};
use crate::control::Ecn;
use crate::random::Seed;
use crate::units::{Bytes, Time};

/// One direction of one hop.
///
/// At equal times, what leaves the transmitter goes before what arrives.
#[derive(Debug)]
pub struct Link<P> {
    queue: Box<dyn Queue<Held<P>>>,
    transmitter: Transmitter,
    in_service: Option<InService<P>>,
    outages: Outages,
    loss: Bernoulli,
    wire: Delay<P>,
    /// The latest arrival: later ones cannot come before it.
    latest: Time,
    stats: LinkStats,
    notes: Option<Notes>,
}

impl<P: Packet + Send + 'static> Link<P> {
    /// Builds the link. Its random streams are `link/<name>/loss` and `link/<name>/red`.
    ///
    /// # Errors
    ///
    /// Names the link and the parameter that is out of range.
    pub fn new(config: &LinkConfig, seed: Seed, name: &str) -> Result<Self, LinkError> {
        let error = |fault| LinkError {
            link: name.to_owned(),
            fault,
        };
        config.check().map_err(error)?;
        let outages = Outages::new(&config.outages).map_err(|e| error(LinkFault::Outages(e)))?;
        let queue: Box<dyn Queue<Held<P>>> = match config.queue {
            QueueConfig::DropTail(config) => Box::new(DropTail::new(config)),
            QueueConfig::Red(red) => {
                let packet_time = match config.capacity.nominal() {
                    Some(rate) => red.mean_packet / rate,
                    None => Duration::ZERO,
                };
                let rng = seed.stream(&format!("link/{name}/red"));
                Box::new(Red::new(red, packet_time, rng))
            }
        };
        Ok(Self {
            queue,
            transmitter: Transmitter::new(config.capacity.clone()),
            in_service: None,
            outages,
            loss: Bernoulli::new(config.loss, seed.stream(&format!("link/{name}/loss"))),
            wire: Delay::new(config.delay),
            latest: Time::ZERO,
            stats: LinkStats::default(),
            notes: None,
        })
    }

    /// Brings queue, transmitter and counters to `now`, whether something leaves or not.
    /// [`Stage::push`] and [`Stage::pop`] do this by themselves.
    pub fn advance(&mut self, now: Time) {
        while let Some(end) = self.in_service.as_ref().and_then(|s| s.end)
            && end <= now
        {
            self.finish(end);
            self.begin(end);
        }
    }

    /// What it counted up to the last call of `push`, `pop` or [`advance`](Self::advance).
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// What waits, without the packet in transmission, as of the last call.
    pub fn queued(&self) -> Queued {
        Queued {
            packets: self.queue.len(),
            bytes: self.queue.bytes(),
        }
    }

    /// How many packets are in the queue, in transmission or on the wire.
    pub fn inside(&self) -> usize {
        self.queue.len() + usize::from(self.in_service.is_some()) + self.wire.len()
    }

    /// What the transmitter can carry.
    pub fn capacity(&self) -> &Capacity {
        self.transmitter.capacity()
    }

    /// Propagation.
    pub fn delay(&self) -> Duration {
        self.wire.delay()
    }

    /// From now on, keeps notes of what happens to each packet: at most `limit` that nobody
    /// took; more are counted as missed. Off at first.
    pub fn observe(&mut self, limit: usize) {
        self.notes = Some(Notes::new(limit, false));
    }

    /// The same for packets that are dropped only.
    pub fn observe_drops(&mut self, limit: usize) {
        self.notes = Some(Notes::new(limit, true));
    }

    /// The oldest note that was not taken yet. Notes come in the order of their times.
    pub fn pop_note(&mut self) -> Option<LinkNote> {
        self.notes.as_mut()?.take()
    }

    /// How many notes found no room.
    pub fn missed_notes(&self) -> u64 {
        self.notes.as_ref().map_or(0, Notes::missed)
    }

    fn begin(&mut self, at: Time) {
        if let Some(held) = self.queue.dequeue(at) {
            let end = self.transmitter.serve(at, held.size());
            self.in_service = Some(InService {
                held,
                start: at,
                end,
            });
        }
    }

    fn finish(&mut self, end: Time) {
        let Some(InService { held, start, .. }) = self.in_service.take() else {
            return;
        };
        let (number, size, flow) = (held.number, held.size(), held.flow());
        self.stats.busy += end.since(start);
        // Drawn in any case: an outage must not change the luck of the packets after it.
        let unlucky = self.loss.loses();
        let happening = if self.outages.covers(end) {
            self.stats.outage_drops += 1;
            Happening::Dropped(DropReason::Outage)
        } else if unlucky {
            self.stats.loss_drops += 1;
            Happening::Dropped(DropReason::Loss)
        } else {
            let waited = start.since(held.arrived);
            let served = end.since(start);
            self.wire.push(end, held.packet);
            Happening::Departed { waited, served }
        };
        self.note(end, number, flow, size, happening);
    }

    fn note(&mut self, at: Time, packet: u64, flow: u32, size: Bytes, happening: Happening) {
        if let Some(notes) = &mut self.notes {
            notes.add(LinkNote {
                at,
                packet,
                flow,
                size,
                happening,
            });
        }
    }
}

impl<P: Packet + Send + 'static> Stage<P> for Link<P> {
    fn push(&mut self, at: Time, packet: P) {
        self.latest = self.latest.max(at);
        let at = self.latest;
        self.advance(at);
        let (number, size, flow) = (self.stats.arrivals, packet.size(), packet.flow());
        self.stats.arrivals += 1;
        self.stats.arrived_bytes += size;
        let verdict = self.queue.enqueue(
            at,
            Held {
                arrived: at,
                number,
                packet,
            },
        );
        let happening = match verdict {
            Verdict::Accepted => Happening::Enqueued,
            Verdict::Dropped => {
                self.stats.queue_drops += 1;
                Happening::Dropped(DropReason::Queue)
            }
            Verdict::Marked => {
                self.stats.marks += 1;
                Happening::Marked
            }
        };
        self.note(at, number, flow, size, happening);
        if self.in_service.is_none() {
            self.begin(at);
            self.advance(at);
        }
    }

    fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        self.advance(now);
        let (at, packet) = self.wire.pop(now)?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += packet.size();
        Some((at, packet))
    }

    /// Not later than the next packet leaves. Where the packet in transmission gets lost, a
    /// [`pop`](Self::pop) at that time gives nothing and moves this on.
    fn next_departure(&self) -> Option<Time> {
        self.wire.next_departure().or_else(|| {
            let end = self.in_service.as_ref()?.end?;
            Some(end + self.wire.delay())
        })
    }
}

/// What a link counted. Every arrival is delivered, dropped in one of three ways, or
/// [inside](Link::inside).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets that came.
    pub arrivals: u64,
    /// Their size.
    pub arrived_bytes: Bytes,
    /// Packets that came out at the far end, and were popped.
    pub delivered: u64,
    /// Their size.
    pub delivered_bytes: Bytes,
    /// Packets that the queue did not take.
    pub queue_drops: u64,
    /// Packets lost at random.
    pub loss_drops: u64,
    /// Packets lost in outages.
    pub outage_drops: u64,
    /// Packets that the queue marked.
    pub marks: u64,
    /// For how long the transmitter worked on packets that it has finished, stalls included.
    /// Over a span, this is the utilisation; with steps or a trace, compare bytes with
    /// [`Capacity::offered`] instead.
    pub busy: Duration,
}

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queued {
    /// Number of packets.
    pub packets: usize,
    /// Their size.
    pub bytes: Bytes,
}

/// A packet in the queue.
#[derive(Debug)]
struct Held<P> {
    arrived: Time,
    number: u64,
    packet: P,
}

impl<P: Packet> Packet for Held<P> {
    fn size(&self) -> Bytes {
        self.packet.size()
    }

    fn ecn(&self) -> Ecn {
        self.packet.ecn()
    }

    fn set_ce(&mut self) {
        self.packet.set_ce();
    }

    fn flow(&self) -> u32 {
        self.packet.flow()
    }
}

#[derive(Debug)]
struct InService<P> {
    held: Held<P>,
    start: Time,
    /// `None` if the capacity stalls for ever.
    end: Option<Time>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::link::testing::{Parcel, link_config};
    use crate::link::{DropTailConfig, Outage};
    use crate::units::Rate;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// 1000 bytes take 1 ms.
    fn config() -> LinkConfig {
        LinkConfig {
            capacity: Capacity::Fixed(Rate::kbps(8_000)),
            queue: QueueConfig::DropTail(DropTailConfig::packets(2)),
            delay: Duration::from_millis(10),
            ..LinkConfig::default()
        }
    }

    fn link(config: &LinkConfig) -> Link<Parcel> {
        Link::new(config, Seed(1), "l").unwrap()
    }

    fn kilobyte(id: u64) -> Parcel {
        Parcel::new(id, 1_000, Ecn::Ect0)
    }

    fn drain(link: &mut Link<Parcel>, now: Time) -> Vec<(Time, u64)> {
        core::iter::from_fn(|| link.pop(now))
            .map(|(at, p)| (at, p.id))
            .collect()
    }

    #[test]
    fn queue_then_transmission_then_delay() {
        let mut link = link(&config());
        link.observe(100);
        for id in 0..4 {
            link.push(ms(0), kilobyte(id));
        }
        // One in transmission, two wait, one is too many.
        assert_eq!(link.next_departure(), Some(ms(11)));
        assert_eq!(
            link.queued(),
            Queued {
                packets: 2,
                bytes: Bytes(2_000)
            }
        );
        assert_eq!(drain(&mut link, ms(12)), [(ms(11), 0), (ms(12), 1)]);
        assert_eq!(drain(&mut link, Time::FAR), [(ms(13), 2)]);
        let expected = LinkStats {
            arrivals: 4,
            arrived_bytes: Bytes(4_000),
            delivered: 3,
            delivered_bytes: Bytes(3_000),
            queue_drops: 1,
            busy: Duration::from_millis(3),
            ..LinkStats::default()
        };
        assert_eq!(link.stats(), expected);
        let departed = |waited, at| LinkNote {
            at: ms(at),
            packet: waited,
            size: Bytes(1_000),
            happening: Happening::Departed {
                waited: Duration::from_millis(waited),
                served: Duration::from_millis(1),
            },
        };
        let notes: Vec<_> = core::iter::from_fn(|| link.pop_note()).collect();
        assert_eq!(notes[3].happening, Happening::Dropped(DropReason::Queue));
        assert_eq!(notes[4..], [departed(0, 1), departed(1, 2), departed(2, 3)]);
    }

    #[test]
    fn an_outage_takes_what_ends_in_it_and_no_luck() {
        let outages = vec![Outage {
            from: ms(2),
            to: ms(4),
        }];
        let lossy = LinkConfig {
            loss: 0.5,
            queue: QueueConfig::DropTail(DropTailConfig::packets(50)),
            ..config()
        };
        let survivors = |config: &LinkConfig| {
            let mut link = link(config);
            (0..40).for_each(|id| link.push(ms(0), kilobyte(id)));
            drain(&mut link, Time::FAR)
        };
        let undisturbed = survivors(&lossy);
        let mut expected = undisturbed.clone();
        // Transmissions end at 2 and 3 ms for packets 1 and 2.
        expected.retain(|(_, id)| *id != 1 && *id != 2);
        assert_ne!(expected, undisturbed);
        assert_eq!(survivors(&LinkConfig { outages, ..lossy }), expected);
    }

    #[test]
    fn notes_are_bounded() {
        let mut link = link(&config());
        link.push(ms(0), kilobyte(0));
        assert_eq!(link.pop_note(), None);
        link.observe(1);
        link.push(ms(0), kilobyte(1));
        link.push(ms(0), kilobyte(2));
        assert_eq!(link.missed_notes(), 1);
        assert!(link.pop_note().is_some_and(|n| n.packet == 1));
        assert_eq!(link.pop_note(), None);
    }

    #[test]
    fn an_unlimited_link_is_a_wire() {
        let mut link = link(&LinkConfig {
            delay: Duration::from_millis(5),
            ..LinkConfig::default()
        });
        (0..5_000).for_each(|id| link.push(ms(1), kilobyte(id)));
        assert_eq!(link.queued(), Queued::default());
        let out = drain(&mut link, ms(6));
        assert!(out.len() == 5_000 && out.iter().all(|(at, _)| *at == ms(6)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Whatever the model: order holds, every packet is accounted for, and neither late nor
        /// needless polls change when anything leaves.
        #[test]
        fn departures_do_not_depend_on_wakeups(
            config in link_config(),
            arrivals in prop::collection::vec((0..3_000_000_u64, 1..2_000_u64, any::<bool>()), 1..150),
            polls in prop::collection::vec(1..40_000_000_u64, 1..20),
        ) {
            let run = |polls: &[u64]| {
                let mut link = link(&config);
                let (mut out, mut now, mut poll, mut i) = (vec![], 0, 0, 0);
                for (id, (gap, size, capable)) in arrivals.iter().enumerate() {
                    now += gap;
                    while poll <= now {
                        while let Some((at, p)) = link.pop(Time::from_nanos(poll)) {
                            assert!(at <= Time::from_nanos(poll));
                            out.push((at, p));
                        }
                        poll += polls[i % polls.len()];
                        i += 1;
                    }
                    let ecn = if *capable { Ecn::Ect1 } else { Ecn::NotEct };
                    link.push(Time::from_nanos(now), Parcel::new(id as u64, *size, ecn));
                    let dropped = link.stats().queue_drops + link.stats().loss_drops + link.stats().outage_drops;
                    assert_eq!(link.stats().arrivals, link.stats().delivered + dropped + link.inside() as u64);
                }
                out.extend(core::iter::from_fn(|| link.pop(Time::FAR)));
                (out, link.stats(), link.inside())
            };
            let punctual = run(&[1_000_000]);
            let sloppy = run(&polls);
            prop_assert!(punctual.0.is_sorted_by(|(at, a), (later, b)| at <= later && a.id < b.id));
            prop_assert_eq!(punctual, sloppy);
        }

        /// 1 b/s to 1 Tb/s and a microsecond to an hour, to the end of time.
        #[test]
        fn extremes_do_no_harm(
            bps in prop_oneof![Just(1_u64), Just(1_000_000_000_000), Just(u64::MAX)],
            micros in prop_oneof![Just(1_u64), Just(3_600_000_000), Just(u64::MAX)],
            start in prop_oneof![Just(0_u64), Just(u64::MAX - 1_000), Just(u64::MAX)],
            sizes in prop::collection::vec(prop_oneof![Just(0_u64), Just(1), Just(1_500), Just(u64::MAX)], 1..20),
        ) {
            let config = LinkConfig {
                capacity: Capacity::Fixed(Rate::bps(bps)),
                delay: Duration::from_micros(micros),
                ..config()
            };
            let mut link = link(&config);
            for (id, size) in sizes.iter().enumerate() {
                link.push(Time::from_nanos(start), Parcel::new(id as u64, *size, Ecn::Ect0));
                let _ = (link.pop(Time::from_nanos(start)), link.next_departure());
            }
            let out = drain(&mut link, Time::FAR);
            prop_assert!(out.is_sorted());
        }
    }
}
