//! A world in which time jumps: parties, a network between them, and nothing else.
//!
//! The order of events is fixed. At one moment, what the network delivers comes first, in the order
//! in which it left; then the parties whose deadline has come, in the order of their numbers; then
//! the sample of the links. After every input a party is drained before anything else happens.

use core::fmt;
use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use tidegate_core::control::{Cx, Ecn, Why};
use tidegate_core::endpoint::{Datagram, Endpoint, OVERHEAD};
use tidegate_core::link::{LinkId, LinkStats, Network, Packet, Queued, RouteId};
use tidegate_core::random::Seed;
use tidegate_core::trace::{Event, Trace};
use tidegate_core::units::{Bytes, Time};

/// A party by its place in the list given to [`World::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartyId(pub usize);

/// An endpoint and its place in the world.
#[derive(Clone, Debug)]
pub struct Party<E> {
    /// Names its random stream, `party/<name>`, and shows up in errors.
    pub name: String,
    /// What it does.
    pub endpoint: E,
    /// Who receives what it sends.
    pub peer: PartyId,
    /// The way there.
    pub route: RouteId,
    /// Before, it is not called, and what arrives for it is lost.
    pub start: Time,
    /// From then on, the same.
    pub stop: Time,
}

/// A datagram on its way.
#[derive(Clone, Debug)]
pub struct SimPacket {
    from: PartyId,
    to: PartyId,
    ecn: Ecn,
    payload: Vec<u8>,
}

impl Packet for SimPacket {
    fn size(&self) -> Bytes {
        Bytes(self.payload.len() as u64) + OVERHEAD
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    fn set_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }
}

/// Who sees what happens in a world.
pub trait Observer {
    /// A party says that something happened.
    fn event(&mut self, _party: PartyId, _at: Time, _event: Event) {}

    /// A datagram enters the network.
    fn sent(&mut self, _at: Time, _flight: Flight<'_>) {}

    /// A datagram reached a party that takes part.
    fn arrived(&mut self, _at: Time, _flight: Flight<'_>) {}

    /// The state of a link, at the interval of [`World::sample_every`].
    fn sample(&mut self, _sample: &Sample) {}
}

impl Observer for () {}

/// A datagram, as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight<'a> {
    /// Who sent it.
    pub from: PartyId,
    /// For whom it is.
    pub to: PartyId,
    /// On the wire, with the headers of IP and UDP.
    pub size: Bytes,
    /// As it is now.
    pub ecn: Ecn,
    /// The UDP payload.
    pub payload: &'a [u8],
}

/// The state of a link at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Which.
    pub link: LinkId,
    /// What waits.
    pub queued: Queued,
    /// Counters since the start.
    pub stats: LinkStats,
}

/// Parties on a network.
///
/// Buffers of datagrams are used again once they arrive, so that a world in its stride does not
/// allocate, other than for what the network loses.
#[derive(Debug)]
pub struct World<E> {
    network: Network<SimPacket>,
    parties: Vec<Seat<E>>,
    now: Time,
    sampler: Option<Sampler>,
    spare: Vec<Vec<u8>>,
    /// At the present moment.
    deliveries: u32,
}

impl<E: Endpoint> World<E> {
    /// Puts parties on a network; the clock stands at zero.
    ///
    /// # Errors
    /// When a party has a peer that is not in the list.
    pub fn new(
        network: Network<SimPacket>,
        parties: Vec<Party<E>>,
        seed: Seed,
    ) -> Result<Self, WorldError> {
        let count = parties.len();
        if let Some(party) = parties.iter().find(|party| party.peer.0 >= count) {
            return Err(WorldError::NoPeer {
                party: party.name.clone(),
                peer: party.peer,
            });
        }
        let seat = |party: Party<E>| Seat {
            rng: seed.stream(&format!("party/{}", party.name)),
            wakes: (Time::ZERO, 0),
            party,
        };
        Ok(Self {
            network,
            parties: parties.into_iter().map(seat).collect(),
            now: Time::ZERO,
            sampler: None,
            spare: Vec::new(),
            deliveries: 0,
        })
    }

    /// From now on, shows every link to the observer at multiples of `interval`, the present
    /// moment first. An interval of zero counts as one nanosecond.
    pub fn sample_every(&mut self, interval: Duration) {
        self.sampler = Some(Sampler {
            next: self.now,
            interval: interval.max(Duration::from_nanos(1)),
        });
    }

    /// Lets everything happen up to and including `until`, or until every party is done and the
    /// network is empty. Returns the moment that was reached. May be called again to go on.
    ///
    /// # Errors
    /// When a party does not let time go on. The world is of no further use then.
    pub fn run(&mut self, until: Time, observer: &mut dyn Observer) -> Result<Time, WorldError> {
        while !self.is_over() {
            let Some(next) = self.next_event().filter(|next| *next <= until) else {
                self.now = until.max(self.now);
                break;
            };
            if next > self.now {
                self.now = next;
                self.deliveries = 0;
            }
            self.step(observer)?;
        }
        Ok(self.now)
    }

    /// The present moment.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The endpoint of a party. Panics if there is no such party.
    pub fn endpoint(&self, party: PartyId) -> &E {
        &self.parties[party.0].party.endpoint
    }

    /// The same, to take out what it has collected. Panics if there is no such party.
    pub fn endpoint_mut(&mut self, party: PartyId) -> &mut E {
        &mut self.parties[party.0].party.endpoint
    }

    /// The network, e.g. for what its links counted.
    pub fn network(&mut self) -> &mut Network<SimPacket> {
        &mut self.network
    }

    /// The endpoints, in the order in which they came in.
    pub fn into_endpoints(self) -> Vec<E> {
        let seats = self.parties.into_iter();
        seats.map(|seat| seat.party.endpoint).collect()
    }

    fn is_over(&self) -> bool {
        let now = self.now;
        let mut seats = self.parties.iter();
        seats.all(|seat| seat.party.endpoint.is_done() || now >= seat.party.stop)
            && self.network.inside() == 0
    }

    fn next_event(&self) -> Option<Time> {
        let wakes = self.parties.iter().filter_map(Seat::wake);
        let wake = wakes.map(|(at, _)| at).min();
        let sample = self.sampler.as_ref().map(|sampler| sampler.next);
        [wake, self.network.next_departure(), sample]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.max(self.now))
    }

    /// What happens at this moment: deliveries, else deadlines, else a sample. Each of these may
    /// bring about one of those before it.
    fn step(&mut self, observer: &mut dyn Observer) -> Result<(), WorldError> {
        let now = self.now;
        if self.network.next_departure().is_some_and(|at| at <= now) {
            while let Some(delivery) = self.network.pop(now) {
                self.deliver(delivery.packet, observer)?;
            }
            return Ok(());
        }
        let due = |seat: &Seat<E>| seat.wake().is_some_and(|(at, _)| at <= now);
        if self.parties.iter().any(due) {
            for id in 0..self.parties.len() {
                if due(&self.parties[id]) {
                    self.wake(PartyId(id), observer)?;
                }
            }
            return Ok(());
        }
        if let Some(sampler) = self.sampler.as_mut().filter(|s| s.next <= now) {
            sampler.next += sampler.interval;
            for link in (0..self.network.len()).map(LinkId) {
                let sample = Sample {
                    at: now,
                    link,
                    queued: self.network.queued(link, now),
                    stats: self.network.stats(link, now),
                };
                observer.sample(&sample);
            }
        }
        Ok(())
    }

    fn deliver(
        &mut self,
        packet: SimPacket,
        observer: &mut dyn Observer,
    ) -> Result<(), WorldError> {
        let (now, id) = (self.now, packet.to);
        self.deliveries += 1;
        if self.deliveries > MOST_DELIVERIES {
            return Err(WorldError::Storm {
                party: self.parties[id.0].party.name.clone(),
                at: now,
            });
        }
        let seat = &mut self.parties[id.0];
        if seat.takes_part(now) {
            observer.arrived(now, flight(&packet));
            let datagram = Datagram {
                ecn: packet.ecn,
                payload: &packet.payload,
            };
            let mut trace = Voice { observer, id };
            let mut cx = Cx {
                now,
                rng: &mut seat.rng,
                trace: &mut trace,
            };
            seat.party.endpoint.on_datagram(&mut cx, datagram);
            self.drain(id, observer)?;
        }
        self.spare.push(packet.payload);
        Ok(())
    }

    fn wake(&mut self, id: PartyId, observer: &mut dyn Observer) -> Result<(), WorldError> {
        let now = self.now;
        let seat = &mut self.parties[id.0];
        seat.wakes = if seat.wakes.0 == now {
            (now, seat.wakes.1 + 1)
        } else {
            (now, 1)
        };
        if seat.wakes.1 > MOST_WAKES {
            return Err(WorldError::Stuck {
                party: seat.party.name.clone(),
                at: now,
                why: seat.wake().map_or(Why::Schedule, |(_, why)| why),
            });
        }
        let mut trace = Voice { observer, id };
        let mut cx = Cx {
            now,
            rng: &mut seat.rng,
            trace: &mut trace,
        };
        seat.party.endpoint.on_timeout(&mut cx);
        self.drain(id, observer)
    }

    fn drain(&mut self, id: PartyId, observer: &mut dyn Observer) -> Result<(), WorldError> {
        let now = self.now;
        for _ in 0..MOST_TRANSMITS {
            let mut payload = self.spare.pop().unwrap_or_default();
            payload.clear();
            let seat = &mut self.parties[id.0];
            let mut trace = Voice { observer, id };
            let mut cx = Cx {
                now,
                rng: &mut seat.rng,
                trace: &mut trace,
            };
            let Some(transmit) = seat.party.endpoint.poll_transmit(&mut cx, &mut payload) else {
                self.spare.push(payload);
                return Ok(());
            };
            let packet = SimPacket {
                from: id,
                to: seat.party.peer,
                ecn: transmit.ecn,
                payload,
            };
            observer.sent(now, flight(&packet));
            self.network.push(now, seat.party.route, packet);
        }
        Err(WorldError::Flood {
            party: self.parties[id.0].party.name.clone(),
            at: now,
        })
    }
}

/// A party with what the world keeps for it.
#[derive(Debug)]
struct Seat<E> {
    rng: Pcg64Mcg,
    /// When it was woken last, and how often at that moment.
    wakes: (Time, u32),
    party: Party<E>,
}

impl<E: Endpoint> Seat<E> {
    fn takes_part(&self, now: Time) -> bool {
        self.party.start <= now && now < self.party.stop
    }

    /// When it wants to be woken while it takes part, and why.
    fn wake(&self) -> Option<(Time, Why)> {
        let (at, why) = self.party.endpoint.next_timeout()?;
        let at = at.max(self.party.start);
        (at < self.party.stop).then_some((at, why))
    }
}

#[derive(Debug)]
struct Sampler {
    next: Time,
    interval: Duration,
}

/// Adds to what a party says who it is.
struct Voice<'a> {
    observer: &'a mut dyn Observer,
    id: PartyId,
}

impl Trace for Voice<'_> {
    fn record(&mut self, at: Time, event: Event) {
        self.observer.event(self.id, at, event);
    }
}

/// Why a world cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorldError {
    /// A party sends without end at one moment.
    Flood {
        /// Its name.
        party: String,
        /// The moment.
        at: Time,
    },
    /// A party is given a peer that does not exist.
    NoPeer {
        /// Its name.
        party: String,
        /// The peer.
        peer: PartyId,
    },
    /// Parties answer each other without end at one moment, over a path without delay.
    Storm {
        /// The name of one of them.
        party: String,
        /// The moment.
        at: Time,
    },
    /// A party asks over and over to be woken at the same moment.
    Stuck {
        /// Its name.
        party: String,
        /// The moment.
        at: Time,
        /// What it gives as its reason.
        why: Why,
    },
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flood { party, at } => write!(
                f,
                "{party} sent more than {MOST_TRANSMITS} datagrams at {at:?} and did not stop: \
                 its poll_transmit must come to None"
            ),
            Self::NoPeer { party, peer } => write!(
                f,
                "{party} sends to party {}, which does not exist: add it or name another",
                peer.0
            ),
            Self::Storm { party, at } => write!(
                f,
                "more than {MOST_DELIVERIES} datagrams arrived at {at:?}, the last one at {party}: \
                 give the path a delay or let one side stay silent"
            ),
            Self::Stuck { party, at, why } => write!(
                f,
                "{party} was woken more than {MOST_WAKES} times at {at:?} and asks again ({why:?}): \
                 its on_timeout must move next_timeout on"
            ),
        }
    }
}

impl core::error::Error for WorldError {}

fn flight(packet: &SimPacket) -> Flight<'_> {
    Flight {
        from: packet.from,
        to: packet.to,
        size: packet.size(),
        ecn: packet.ecn,
        payload: &packet.payload,
    }
}

/// Several timers of one party may fall on one moment, and one may set the next; hundreds do not.
const MOST_WAKES: u32 = 1_000;
/// 1 Gb/s of small packets for a whole second of a party that was away: more is a fault.
const MOST_TRANSMITS: u32 = 1_000_000;
/// As above.
const MOST_DELIVERIES: u32 = 2_000_000;

#[cfg(test)]
mod tests {
    use tidegate_core::endpoint::Transmit;
    use tidegate_core::link::{
        Capacity, DropTailConfig, LinkConfig, LossConfig, NamedLink, NetworkConfig, QueueConfig,
    };
    use tidegate_core::random::unit;
    use tidegate_core::units::Rate;

    use super::*;

    /// Sends a numbered ping at random intervals; answers pings.
    #[derive(Debug)]
    enum Player {
        Ping {
            next: Time,
            left: u32,
            owed: bool,
            pongs: Vec<(Time, u8)>,
        },
        Echo {
            answers: Vec<u8>,
            heard: u32,
        },
        /// Wants to be woken now, for ever.
        Sleepless,
        /// Sends for ever.
        Chatty {
            begun: bool,
        },
    }

    impl Endpoint for Player {
        fn on_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
            match self {
                Self::Ping { pongs, .. } => pongs.push((cx.now, datagram.payload[0])),
                Self::Echo { answers, heard } => {
                    answers.push(datagram.payload[0]);
                    *heard += 1;
                    cx.trace.record(cx.now, Event::PeerReportsOnly);
                }
                Self::Sleepless | Self::Chatty { .. } => {}
            }
        }

        fn on_timeout(&mut self, cx: &mut Cx<'_>) {
            match self {
                Self::Ping { next, owed, .. } => {
                    *owed = true;
                    *next = cx.now + Duration::from_micros(1 + (unit(cx.rng) * 20_000.0) as u64);
                }
                Self::Chatty { begun } => *begun = true,
                Self::Echo { .. } | Self::Sleepless => {}
            }
        }

        fn poll_transmit(&mut self, _: &mut Cx<'_>, buffer: &mut Vec<u8>) -> Option<Transmit> {
            assert!(buffer.is_empty(), "buffers come in empty");
            let byte = match self {
                Self::Ping { left, owed, .. } if *owed && *left > 0 => {
                    (*left, *owed) = (*left - 1, false);
                    *left as u8
                }
                Self::Echo { answers, .. } => answers.pop()?,
                Self::Chatty { begun: true } => 0,
                _ => return None,
            };
            buffer.resize(972, byte);
            Some(Transmit::default())
        }

        fn next_timeout(&self) -> Option<(Time, Why)> {
            match self {
                Self::Ping { next, left, .. } => (*left > 0).then_some((*next, Why::Probe)),
                Self::Echo { .. } => None,
                Self::Sleepless => Some((Time::ZERO, Why::Breaker)),
                Self::Chatty { begun } => (!begun).then_some((Time::ZERO, Why::Schedule)),
            }
        }

        fn is_done(&self) -> bool {
            match self {
                Self::Ping { left, .. } => *left == 0,
                Self::Echo { .. } => true,
                Self::Sleepless | Self::Chatty { .. } => false,
            }
        }
    }

    fn ping(count: u32) -> Player {
        Player::Ping {
            next: Time::ZERO,
            left: count,
            owed: false,
            pongs: Vec::new(),
        }
    }

    fn echo() -> Player {
        Player::Echo {
            answers: Vec::new(),
            heard: 0,
        }
    }

    /// One link of 1 Mb/s and 10 ms each way; a packet of 1000 bytes takes 8 ms more.
    fn network(loss: f64, seed: u64) -> Network<SimPacket> {
        let link = |name: &str| NamedLink {
            name: name.to_owned(),
            config: LinkConfig {
                capacity: Capacity::Fixed(Rate::kbps(1_000)),
                queue: QueueConfig::DropTail(DropTailConfig::packets(5)),
                loss: LossConfig::Bernoulli(loss),
                delay: ms(10),
                ..LinkConfig::default()
            },
        };
        let config = NetworkConfig {
            links: vec![link("up"), link("down")],
            routes: vec![vec![LinkId(0)], vec![LinkId(1)], vec![]],
        };
        Network::new(&config, Seed(seed)).unwrap()
    }

    fn party(name: &str, endpoint: Player, peer: usize, route: usize) -> Party<Player> {
        Party {
            name: name.to_owned(),
            endpoint,
            peer: PartyId(peer),
            route: RouteId(route),
            start: Time::ZERO,
            stop: Time::FAR,
        }
    }

    fn pair(count: u32) -> Vec<Party<Player>> {
        vec![
            party("ping", ping(count), 1, 0),
            party("echo", echo(), 0, 1),
        ]
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn pongs(player: &Player) -> &[(Time, u8)] {
        match player {
            Player::Ping { pongs, .. } => pongs,
            other => panic!("{other:?} counts no pongs"),
        }
    }

    /// Everything that can be seen, in order.
    #[derive(Debug, Default, PartialEq)]
    struct Log(Vec<(Time, String)>);

    impl Observer for Log {
        fn event(&mut self, party: PartyId, at: Time, event: Event) {
            self.0.push((at, format!("{party:?} {event:?}")));
        }
        fn sent(&mut self, at: Time, flight: Flight<'_>) {
            let line = format!(
                "sent {:?} {} {}",
                flight.from, flight.size.0, flight.payload[0]
            );
            self.0.push((at, line));
        }
        fn arrived(&mut self, at: Time, flight: Flight<'_>) {
            self.0
                .push((at, format!("arrived {:?} {}", flight.to, flight.payload[0])));
        }
        fn sample(&mut self, sample: &Sample) {
            self.0.push((sample.at, format!("{sample:?}")));
        }
    }

    #[test]
    fn a_ping_comes_back_when_the_link_says() {
        let mut world = World::new(network(0.0, 1), pair(1), Seed(1)).unwrap();
        let end = world.run(Time::from_secs(9), &mut ()).unwrap();
        // 8 ms of sending and 10 ms of propagation, both ways.
        assert_eq!(end, Time::from_millis(36));
        assert_eq!(
            pongs(world.endpoint(PartyId(0))),
            [(Time::from_millis(36), 0)]
        );
        assert_eq!(world.into_endpoints().len(), 2);
    }

    #[test]
    fn the_same_seed_gives_the_same_world() {
        let log = |seed| {
            let mut log = Log::default();
            let mut world = World::new(network(0.2, seed), pair(100), Seed(seed)).unwrap();
            world.sample_every(ms(7));
            world.run(Time::from_secs(9), &mut log).unwrap();
            log
        };
        let first = log(1);
        assert!(first.0.is_sorted_by_key(|(at, _)| *at));
        assert!(
            first
                .0
                .iter()
                .any(|(_, line)| line.contains("PeerReportsOnly"))
        );
        assert_eq!(first, log(1));
        assert_ne!(first, log(2));
    }

    #[test]
    fn pauses_change_nothing() {
        let mut whole = Log::default();
        let mut world = World::new(network(0.2, 1), pair(50), Seed(1)).unwrap();
        world.run(Time::from_secs(2), &mut whole).unwrap();
        let mut pieces = Log::default();
        let mut world = World::new(network(0.2, 1), pair(50), Seed(1)).unwrap();
        for step in 1..=200 {
            world
                .run(Time::from_millis(step * 10), &mut pieces)
                .unwrap();
        }
        assert_eq!(whole, pieces);
    }

    #[test]
    fn a_party_is_there_from_start_to_stop_only() {
        let mut parties = pair(250);
        parties[0].start = Time::from_millis(500);
        parties[1].start = Time::from_millis(600);
        parties[1].stop = Time::from_millis(1_000);
        let mut log = Log::default();
        let mut world = World::new(network(0.0, 1), parties, Seed(1)).unwrap();
        world.run(Time::from_secs(2), &mut log).unwrap();
        let of = |word: &str| -> Vec<Time> {
            let lines = log.0.iter().filter(|(_, line)| line.starts_with(word));
            lines.map(|(at, _)| *at).collect()
        };
        assert_eq!(of("sent PartyId(0)")[0], Time::from_millis(500));
        let heard = of("arrived PartyId(1)");
        assert!(heard[0] >= Time::from_millis(600) && heard.len() > 10);
        assert!(*heard.last().unwrap() < Time::from_millis(1_000));
        assert!(*of("sent PartyId(0)").last().unwrap() > Time::from_millis(1_000));
    }

    #[test]
    fn links_are_sampled_on_the_dot() {
        let mut log = Log::default();
        let mut world =
            World::new(network(0.0, 1), vec![party("a", ping(3), 0, 0)], Seed(1)).unwrap();
        world.sample_every(ms(4));
        world.run(Time::from_millis(8), &mut log).unwrap();
        let at: Vec<Time> = log
            .0
            .iter()
            .filter(|(_, line)| line.starts_with("Sample"))
            .map(|(at, _)| *at)
            .collect();
        let ticks = [0, 0, 4, 4, 8, 8].map(Time::from_millis);
        assert_eq!(at, ticks, "two links each");
        let stats = world.network().stats(LinkId(0), Time::from_millis(8));
        assert!(stats.arrivals >= 1);
    }

    #[test]
    fn a_party_that_stops_time_is_named() {
        let stuck = |endpoint, route| {
            let parties = vec![
                party("odd", endpoint, 1, route),
                party("echo", echo(), 0, route),
            ];
            let mut world = World::new(network(0.0, 1), parties, Seed(1)).unwrap();
            world
                .run(Time::from_secs(1), &mut ())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            stuck(Player::Sleepless, 0),
            "odd was woken more than 1000 times at 0.000000000s and asks again (Breaker): \
             its on_timeout must move next_timeout on"
        );
        assert_eq!(
            stuck(Player::Chatty { begun: false }, 0),
            "odd sent more than 1000000 datagrams at 0.000000000s and did not stop: \
             its poll_transmit must come to None"
        );
    }

    #[test]
    fn two_echoes_without_delay_are_a_storm() {
        let parties = vec![
            party("ping", ping(1), 1, 2),
            party("a", echo(), 2, 2),
            party("b", echo(), 1, 2),
        ];
        let mut world = World::new(network(0.0, 1), parties, Seed(1)).unwrap();
        let error = world.run(Time::from_secs(1), &mut ()).unwrap_err();
        assert!(matches!(error, WorldError::Storm { .. }), "{error}");
    }

    #[test]
    fn a_peer_must_exist() {
        let error =
            World::new(network(0.0, 1), vec![party("a", ping(1), 7, 0)], Seed(1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a sends to party 7, which does not exist: add it or name another"
        );
    }
}
