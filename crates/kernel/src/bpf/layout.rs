//! Memory that the programs and user space share: mirrors of `bpf/events.h`, which defines it.
//!
//! A test compares each field with the header and with the types of the built object.

use std::sync::atomic::{AtomicU32, AtomicU64};

use aya::Pod;

use crate::memory_map::{Shared, impl_plain};
use crate::variables::{COUNT, Variable};

/// An event in a client's ring.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) time: u64,
    pub(crate) token: u64,
    pub(crate) number: u64,
    pub(crate) kind: u32,
    pub(crate) first: u32,
    pub(crate) second: u64,
    pub(crate) known: u64,
    pub(crate) values: [u64; COUNT],
}

/// An entry of the table of subscriptions, mapped into memory.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) token: AtomicU64,
    pub(crate) events: AtomicU32,
    pub(crate) ended: AtomicU32,
    pub(crate) number: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) ring: AtomicU32,
    pub(crate) unused: AtomicU32,
    pub(crate) known: AtomicU64,
    pub(crate) padding: [AtomicU64; 2],
}

/// Storage of a socket: its subscribers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Subscribers {
    pub(crate) tokens: [u64; MAX_SUBSCRIBERS],
    pub(crate) epoch: u64,
    pub(crate) alive: u64,
}

/// Storage of a socket: its past, as far as events need it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) side: u32,
    pub(crate) phase: u32,
    pub(crate) phase_time: u64,
    pub(crate) row: u64,
    pub(crate) counters: [u64; COUNTERS.len()],
    pub(crate) reported: i64,
}

/// State of the service as a whole, mapped into memory.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) epoch: AtomicU64,
    pub(crate) available: AtomicU64,
}

/// How many subscribers a socket may have.
pub(crate) const MAX_SUBSCRIBERS: usize = 8;

/// `Memory::reported` before a program has looked at the socket.
pub(crate) const NOT_LOOKED_AT: i64 = -1;

/// The first entry of the table of subscriptions stays unused, so that no token is zero.
pub(crate) const FIRST_ENTRY: u32 = 1;

/// Variables that the programs keep in `Memory::counters`, in that order.
pub(crate) const COUNTERS: [Variable; 6] = [
    Variable::AcksSlowStart,
    Variable::AcksAvoidance,
    Variable::AcksRepair,
    Variable::Duplicates,
    Variable::FurtherDuplicates,
    Variable::PhaseChanges,
];

impl_plain! {
    Pod: Record, Subscribers, Memory;
    Shared: Subscription, Service;
}

#[cfg(test)]
pub(crate) mod tests;
