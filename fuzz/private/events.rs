//! Fuzz targets of parts that have no public interface. Each panics if an invariant is violated.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::{mem, slice};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::bpf::layout::Record;
use crate::event::EventKind;
use crate::memory_map::page_size;
use crate::peer_cred::PeerCred;
use crate::policy::{Limits, Policy};
use crate::ring::{BUSY, DISCARDED, HEADER, Ring};
use crate::variables::{COUNT, Variable};

pub use crate::server::fuzzing::requests;

/// A ring with any contents, written by another program than the kernel: reading ends, returns no
/// more records than the ring has room for, and none that the library does not know; afterwards a
/// valid record is read.
///
/// The input is a byte for the size, the writer's position in eight bytes, and the records.
pub fn ring(data: &[u8]) {
    let Some((&size, data)) = data.split_first() else {
        return;
    };
    let Some((end, data)) = data.split_first_chunk() else {
        return;
    };
    let mut memory = Memory::new(4_096 << (size % 3));
    memory.write(0, data);
    memory.set_end(u64::from_le_bytes(*end));
    let ring = memory.ring();
    let most = memory.size / (mem::size_of::<Record>() + HEADER) + 1;
    let mut read = 0;
    while let Some(event) = ring.next() {
        read += 1;
        assert!(read <= most, "{read} records in {} bytes", memory.size);
        assert!(EventKind::ALL.contains(&event.what.kind()));
        assert!(event.state.known().iter().count() <= COUNT);
    }
    if !memory.end().is_multiple_of(8) {
        // No kernel writes such a position, and no record can follow.
        assert!(ring.next().is_none());
        return;
    }
    // The writer discards what it has not completed, and writes a record.
    let before = memory.consumed();
    if before != memory.end() {
        let length = memory.length_at(before) & !BUSY | DISCARDED;
        memory.write(before, &length.to_le_bytes());
    }
    while ring.next().is_some() {
        read += 1;
        assert!(read <= most, "{read} records in {} bytes", memory.size);
    }
    if !ring.is_empty() {
        // A record behind the discarded one is incomplete as well.
        return;
    }
    let at = memory.end();
    let record = record();
    memory.write(at, &(record.len() as u32).to_le_bytes());
    memory.write(at.wrapping_add(HEADER as u64), &record);
    memory.set_end(at.wrapping_add((HEADER + record.len()) as u64));
    let event = ring.next().expect("a valid record is read");
    assert_eq!((event.number, event.what.kind()), (7, EventKind::Ended));
    assert!(ring.next().is_none() && ring.is_empty());
}

/// The bytes of the record of an event.
fn record() -> Vec<u8> {
    let record = Record {
        time: 1,
        token: 1 << 32 | 1,
        number: 7,
        kind: EventKind::Ended as u32,
        first: 0,
        second: 0,
        known: 0,
        values: [0; COUNT],
    };
    let (start, size) = (&raw const record, mem::size_of::<Record>());
    // SAFETY: the structure has this size and no padding.
    unsafe { slice::from_raw_parts(start.cast::<u8>(), size) }.to_vec()
}

/// A file in memory with the layout of a ring. Instead of the second mapping of the records it has a
/// copy of them.
struct Memory {
    fd: OwnedFd,
    size: usize,
    page: usize,
}

impl Memory {
    fn new(size: usize) -> Self {
        let page = page_size();
        let fd = memfd_create("ring", MemfdFlags::CLOEXEC).expect("a file in memory");
        ftruncate(&fd, (2 * page + 2 * size) as u64).expect("room in memory");
        Self { fd, size, page }
    }

    fn ring(&self) -> Ring {
        let copy = self.fd.try_clone().expect("a descriptor");
        Ring::map(copy, self.size as u32).expect("the file has the layout of a ring")
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        let wrote = rustix::io::pwrite(&self.fd, bytes, offset as u64);
        assert_eq!(wrote, Ok(bytes.len()));
    }

    fn get<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        let read = rustix::io::pread(&self.fd, &mut bytes, offset as u64);
        assert_eq!(read, Ok(N));
        bytes
    }

    /// Writes into the ring from a position on, to both copies.
    fn write(&mut self, at: u64, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.size)];
        let start = (at % self.size as u64) as usize;
        let (head, tail) = bytes.split_at(bytes.len().min(self.size - start));
        for copy in [0, self.size] {
            self.put(2 * self.page + copy + start, head);
            self.put(2 * self.page + copy, tail);
        }
    }

    fn length_at(&self, at: u64) -> u32 {
        let place = (at % self.size as u64) as usize;
        u32::from_le_bytes(self.get(2 * self.page + place))
    }

    fn consumed(&self) -> u64 {
        u64::from_le_bytes(self.get(0))
    }

    fn end(&self) -> u64 {
        u64::from_le_bytes(self.get(self.page))
    }

    fn set_end(&mut self, end: u64) {
        self.put(self.page, &end.to_le_bytes());
    }
}

/// A policy file with any contents: an error names a line; a valid policy is as large as its text at
/// most, has limits within their bounds, allows more with each further group and nothing without a
/// rule, and survives a round trip.
pub fn policy(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let policy = match Policy::parse(text) {
        Ok(policy) => policy,
        Err(why) => return assert!(why.contains("line "), "{why}"),
    };
    check_limits(policy.limits());
    assert!(policy.rules().len() <= text.len() && policy.notes().len() <= text.len() + 1);
    let peer = |user, groups: &[u32]| PeerCred {
        process: 1,
        user,
        groups: groups.to_vec(),
    };
    let none = policy.allows(&peer(u32::MAX, &[]));
    for user in [0, 1, 1_000, 65_534] {
        let alone = policy.allows(&peer(user, &[]));
        let grouped = policy.allows(&peer(user, &[0, 1, 44, 1_000]));
        assert_eq!(alone.events.or(none.events), alone.events);
        assert_eq!(grouped.events.or(alone.events), grouped.events);
        assert_eq!(grouped.variables.or(alone.variables), grouped.variables);
    }
    let again = Policy::parse(&emit(&policy)).expect("an emitted policy is valid");
    assert_eq!(
        (again.rules(), again.limits()),
        (policy.rules(), policy.limits())
    );
}

fn check_limits(limits: Limits) {
    assert!((1..=4_096).contains(&limits.clients));
    assert!((1..=1 << 20).contains(&limits.subscriptions));
    assert!((1..=limits.clients).contains(&limits.clients_per_user));
    for share in [
        limits.subscriptions_per_user,
        limits.subscriptions_per_client,
    ] {
        assert!((1..=limits.subscriptions).contains(&share));
    }
    assert!(limits.ring_kib.is_power_of_two() && (4..=1 << 18).contains(&limits.ring_kib));
    assert!((1..=1_000_000).contains(&limits.requests_per_second));
}

fn emit(policy: &Policy) -> String {
    let limits = policy.limits();
    let mut text = String::from("[limits]\n");
    for (name, value) in [
        ("clients", limits.clients),
        ("clients-per-user", limits.clients_per_user),
        ("subscriptions-per-client", limits.subscriptions_per_client),
        ("subscriptions-per-user", limits.subscriptions_per_user),
        ("subscriptions", limits.subscriptions),
        ("ring-kib", limits.ring_kib),
        ("requests-per-second", limits.requests_per_second),
    ] {
        let _ = writeln!(text, "{name} = {value}");
    }
    for rule in policy.rules() {
        let events: Vec<_> = rule.wanted.events.iter().map(EventKind::name).collect();
        let variables: Vec<_> = rule.wanted.variables.iter().map(Variable::name).collect();
        let _ = writeln!(
            text,
            "[[allow]]\nusers = {:?}\ngroups = {:?}\neverybody = {}\nevents = {events:?}\nvariables = {variables:?}",
            rule.users, rule.groups, rule.everybody
        );
    }
    text
}
