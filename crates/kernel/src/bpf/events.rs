//! BPF programs that report TCP events, and the maps that contain the subscriptions.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::atomic::Ordering;
use std::{io, mem};

use aya::{Btf, include_bytes_aligned};

use super::layout::{
    COUNTERS, FIRST_ENTRY, Memory, NOT_LOOKED_AT, Service, Subscribers, Subscription,
};
use super::loader::{self, Link, LoadError, Object};
use super::raw;
use crate::event::{EventKind, EventSet};
use crate::memory_map::Mapping;
use crate::variables::{Snapshot, VariableSet};

/// The loaded programs and maps. They are unloaded on drop.
#[derive(Debug)]
pub(crate) struct EventPrograms {
    object: Object,
    table: Mapping,
    service: Mapping,
    capacity: u32,
    /// Tracepoints whose programs are loaded.
    tracepoints: Vec<&'static str>,
    /// Keep the programs attached. Empty while they are not.
    links: Vec<Link>,
}

impl EventPrograms {
    /// Loads programs and maps for `subscriptions` subscriptions and `rings` rings. Needs `CAP_BPF`
    /// and `CAP_PERFMON`.
    pub(crate) fn load(subscriptions: u32, rings: u32) -> Result<Self, LoadError> {
        Self::load_on(&loader::kernel_types()?, subscriptions, rings)
    }

    fn load_on(types: &Btf, subscriptions: u32, rings: u32) -> Result<Self, LoadError> {
        let entries = FIRST_ENTRY + subscriptions;
        let mut object =
            Object::load(OBJECT, types, &[("tg_table", entries), ("tg_rings", rings)])?;
        let mut tracepoints = Vec::new();
        for name in TRACEPOINTS {
            if object.load_tracepoint(name, types)? {
                tracepoints.push(name);
            } else if name != OPTIONAL {
                return Err(LoadError::NoTracepoint(name));
            }
        }
        object.run("available")?;
        // Tested here, while the process has all privileges.
        object.attach(&tracepoints)?;
        let map = |name, bytes| Mapping::shared(object.map(name), 0, bytes);
        let bytes = mem::size_of::<Subscription>() * entries as usize;
        Ok(Self {
            table: map("tg_table", bytes).map_err(LoadError::System)?,
            service: map("tg_service", mem::size_of::<Service>()).map_err(LoadError::System)?,
            object,
            capacity: subscriptions,
            tracepoints,
            links: Vec::new(),
        })
    }

    /// Attaches the programs unless they are attached.
    pub(crate) fn attach(&mut self) -> Result<(), LoadError> {
        if self.links.is_empty() {
            self.links = self.object.attach(&self.tracepoints)?;
        }
        Ok(())
    }

    /// Detaches the programs, so that they cost nothing while there are no subscriptions.
    pub(crate) fn detach(&mut self) {
        self.links.clear();
    }

    /// The variables that this kernel has.
    pub(crate) fn available(&self) -> VariableSet {
        VariableSet::from_bits(self.service().available.load(Ordering::Relaxed))
    }

    /// Maximum number of subscriptions.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Registers a ring under a number.
    pub(crate) fn add_ring(&self, number: u32, ring: BorrowedFd<'_>) -> io::Result<()> {
        raw::update(self.object.map("tg_rings"), number, &ring.as_raw_fd())
    }

    /// Removes the ring of a number.
    pub(crate) fn remove_ring(&self, number: u32) -> io::Result<()> {
        raw::delete(self.object.map("tg_rings"), number)
    }

    /// Opens a slot of the table for a subscription without a socket yet.
    pub(crate) fn open(&self, place: u32, token: u64, ring: u32, wanted: EventRequest) {
        let entry = self.entry(place);
        entry.number.store(0, Ordering::Relaxed);
        entry.lost.store(0, Ordering::Relaxed);
        entry.ended.store(0, Ordering::Relaxed);
        entry.ring.store(ring, Ordering::Relaxed);
        self.change(place, wanted);
        entry.token.store(token, Ordering::Release);
    }

    /// Changes the events and variables of a subscription. Variables that this kernel lacks are
    /// left out: the programs would report them as known, with the value zero.
    pub(crate) fn change(&self, place: u32, wanted: EventRequest) {
        let entry = self.entry(place);
        let known = wanted.variables.and(self.available());
        entry.known.store(known.bits(), Ordering::Relaxed);
        entry.events.store(wanted.events.bits(), Ordering::Release);
    }

    /// Removes events and variables from a subscription that are not in `allowed`. The event of the
    /// end stays.
    pub(crate) fn restrict(&self, place: u32, allowed: EventRequest) {
        let entry = self.entry(place);
        let events = allowed.events.with(EventKind::Ended).bits();
        entry.events.fetch_and(events, Ordering::AcqRel);
        let variables = allowed.variables.bits();
        entry.known.fetch_and(variables, Ordering::AcqRel);
    }

    /// Ends a subscription. Programs that are running may still write one record, so the slot
    /// should not be reopened at once.
    pub(crate) fn close(&self, place: u32) {
        self.entry(place).token.store(0, Ordering::Release);
        // Makes the programs check the tokens of all sockets again.
        self.service().epoch.fetch_add(1, Ordering::Release);
    }

    /// Adds a token to a socket.
    pub(crate) fn bind(&self, socket: BorrowedFd<'_>, token: u64) -> Result<(), BindError> {
        let (map, key) = (self.object.map("tg_subscribers"), socket.as_raw_fd() as u32);
        let found: Option<Subscribers> = raw::lookup(map, key).map_err(BindError::System)?;
        let mut subscribers = found.unwrap_or_default();
        subscribers.epoch = self.service().epoch.load(Ordering::Acquire);
        subscribers.alive = 1;
        // Slots of ended subscriptions are reusable.
        let dead = |token: &u64| !self.is_open(*token);
        if subscribers.tokens.iter().all(dead) {
            self.begin_memory(socket).map_err(BindError::System)?;
        }
        let free = subscribers.tokens.iter_mut().find(|token| dead(token));
        *free.ok_or(BindError::Full)? = token;
        raw::update(map, key, &subscribers).map_err(BindError::System)
    }

    /// Creates the storage of a socket without subscribers. Counters of earlier subscribers remain.
    /// Nothing here waits for the socket's lock, as `TCP_INFO` would: a process that writes from a
    /// page that never arrives (`userfaultfd`, FUSE) holds the lock indefinitely.
    fn begin_memory(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let (map, key) = (self.object.map("tg_memory"), socket.as_raw_fd() as u32);
        let memory = Memory {
            counters: raw::lookup(map, key)?.map_or([0; _], |memory: Memory| memory.counters),
            reported: NOT_LOOKED_AT,
            ..Memory::default()
        };
        raw::update(map, key, &memory)
    }

    /// Counters of a socket. Empty before its first subscription.
    pub(crate) fn counters(&self, socket: BorrowedFd<'_>) -> io::Result<Snapshot> {
        let key = socket.as_raw_fd() as u32;
        let mut counters = Snapshot::new();
        let memory: Option<Memory> = raw::lookup(self.object.map("tg_memory"), key)?;
        for (variable, count) in memory
            .iter()
            .flat_map(|m| COUNTERS.into_iter().zip(m.counters))
        {
            counters.set(variable, count);
        }
        Ok(counters)
    }

    /// Number of events of a subscription, and of events lost because the ring was full.
    pub(crate) fn tally(&self, place: u32) -> EventCounts {
        let entry = self.entry(place);
        EventCounts {
            events: entry.number.load(Ordering::Relaxed),
            lost: entry.lost.load(Ordering::Relaxed),
        }
    }

    /// Whether the socket of a subscription has been destroyed.
    pub(crate) fn has_ended(&self, place: u32) -> bool {
        self.entry(place).ended.load(Ordering::Acquire) != 0
    }

    fn is_open(&self, token: u64) -> bool {
        let place = (token as u32).checked_sub(FIRST_ENTRY);
        place.filter(|&p| p < self.capacity).is_some_and(|place| {
            let open = self.entry(place).token.load(Ordering::Acquire);
            open == token && !self.has_ended(place)
        })
    }

    fn entry(&self, place: u32) -> &Subscription {
        &self.table.entries()[(FIRST_ENTRY + place) as usize]
    }

    fn service(&self) -> &Service {
        self.service.at(0)
    }
}

/// Events and variables that a subscriber requests or is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventRequest {
    /// Requested events.
    pub events: EventSet,
    /// Variables that are reported with each event.
    pub variables: VariableSet,
}

/// Event counts of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Number of events.
    pub events: u64,
    /// Number of events dropped because the ring was full.
    pub lost: u64,
}

/// Token of a slot. The lower half is the entry in the table. The upper half counts the uses of the
/// slot, so that tokens are unique.
pub(crate) fn token(place: u32, use_number: u32) -> u64 {
    u64::from(use_number) << 32 | u64::from(FIRST_ENTRY + place)
}

/// Reason why a subscription cannot be added to a socket.
#[derive(Debug)]
pub(crate) enum BindError {
    /// The socket has the maximum number of subscribers.
    Full,
    /// The system call failed.
    System(io::Error),
}

/// The object, compiled from `bpf/events.bpf.c`; `cargo run -p xtask -- bpf` compares them.
pub(super) static OBJECT: &[u8] = include_bytes_aligned!("../../bpf/built/events.bpf.o");

/// Each tracepoint has a program of the same name.
const TRACEPOINTS: [&str; 6] = [
    "tcp_cong_state_set",
    "tcp_retransmit_skb",
    "tcp_probe",
    OPTIONAL,
    "inet_sock_set_state",
    "tcp_destroy_sock",
];
/// Since Linux 6.3. Without it, threshold and phase are detected at the next segment only.
const OPTIONAL: &str = "sock_send_length";

#[cfg(test)]
mod tests;
