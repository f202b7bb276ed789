//! Memory that the programs and user space share: mirrors of `bpf/aggregate.h`, which defines it.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::Pod;
use tidegate_core::aggregate::sites::{Prefix, SiteRule};
use tidegate_core::units::Time;

use super::{MAX_RULES, MAX_SITES, Notice};
use crate::memory_map::{Shared, impl_plain, read};

/// `struct application_key`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) site: u32,
    pub(super) application: u16,
    pub(super) unused: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) at: u64,
    pub(super) ahead: u32,
    pub(super) size: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Application {
    pub(super) lock: u32,
    pub(super) random: u32,
    pub(super) created: u64,
    pub(super) latest: u64,
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    pub(super) stopped: u64,
    pub(super) unanswered: u64,
    pub(super) passed: u64,
    pub(super) sent_size: u64,
    pub(super) next: u32,
    pub(super) notified: u32,
    pub(super) received: u64,
    pub(super) received_bytes: u64,
    pub(super) lost: u64,
    pub(super) late: u64,
    pub(super) jumps: u64,
    pub(super) invalid_echoes: u64,
    pub(super) received_size: u64,
    pub(super) heard: u64,
    pub(super) last: u64,
    pub(super) interval: u64,
    pub(super) rtt_sum: u64,
    pub(super) rtt_samples: u64,
    pub(super) outliers: u64,
    pub(super) due: i64,
    pub(super) missed: u64,
    pub(super) next_due: u32,
    pub(super) expected: u32,
    pub(super) confirming: u32,
    pub(super) peer_stamp: u32,
    pub(super) flags: u32,
    pub(super) peer_available: u16,
    pub(super) peer_loss: u8,
    pub(super) shares: u8,
    pub(super) held_count: u32,
    pub(super) unused: u32,
    pub(super) held: [Held; 4],
    pub(super) flows: [u32; 256],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    pub(super) lost_after: u64,
    pub(super) fraction: u32,
    pub(super) rtt: u32,
    pub(super) outlier: u32,
    pub(super) deviation: u16,
    pub(super) available: u16,
    pub(super) used: u16,
    pub(super) loss: u8,
    pub(super) flows: u8,
    pub(super) stop: u8,
    pub(super) unused: [u8; 7],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) remote: [u32; 4],
    pub(super) remote_mask: [u32; 4],
    pub(super) local: [u32; 4],
    pub(super) local_mask: [u32; 4],
    pub(super) site: u32,
    pub(super) first_port: u16,
    pub(super) last_port: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub(super) words: [u64; 1_024],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) kind: u32,
    pub(super) size: u32,
    pub(super) key: Key,
    pub(super) at: u64,
    pub(super) lost_from: u64,
    pub(super) lost_gap: u64,
    pub(super) lost: u32,
    pub(super) lost_sampled: u32,
    pub(super) mean_size: u32,
    pub(super) ecn: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RawNotice {
    pub(super) kind: u32,
    pub(super) length: u32,
    pub(super) report: [u8; 20],
    pub(super) head: [u8; 96],
    pub(super) unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) counts: [u64; 9],
}

#[repr(C)]
#[derive(Debug)]
pub(super) struct Settings {
    clock: AtomicU64,
    opening: AtomicU32,
    open: AtomicU32,
}

impl Settings {
    /// Largest number of applications without an answer, of so many.
    pub(super) fn opening(applications: usize) -> u32 {
        (applications / 4).max(1) as u32
    }

    pub(super) fn set_clock(&self, now: Time) {
        self.clock.store(now.as_nanos(), Ordering::Release);
    }

    pub(super) fn set_opening(&self, most: u32) {
        self.opening.store(most, Ordering::Release);
    }

    pub(super) fn set_open(&self, open: u32) {
        self.open.store(open, Ordering::Release);
    }
}

/// A record of the ring.
#[derive(Debug)]
pub(super) enum Record {
    Events(Sample),
    Notice(Notice),
}

impl Record {
    /// `None` for unknown records.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if let Some(sample) = read::<Sample>(bytes) {
            return Some(Self::Events(sample));
        }
        let raw: RawNotice = read(bytes)?;
        let head = raw.head.get(..raw.length as usize)?.to_vec();
        Some(Self::Notice(Notice {
            head,
            report: raw.report,
        }))
    }
}

/// The rules in the order of the sites; `None` if there are too many.
pub(super) fn rules(sites: &[SiteRule]) -> Option<Vec<Rule>> {
    let mut rules = Vec::new();
    for (number, site) in sites.iter().enumerate() {
        let locals: Vec<([u32; 4], [u32; 4])> = if site.local.is_empty() {
            vec![([0; 4], [0; 4])]
        } else {
            site.local.iter().map(mask).collect()
        };
        for hosts in &site.hosts {
            let (remote, remote_mask) = mask(hosts);
            for &(local, local_mask) in &locals {
                rules.extend(site.ports.iter().map(|ports| Rule {
                    remote,
                    remote_mask,
                    local,
                    local_mask,
                    site: number as u32,
                    first_port: ports.ends().0,
                    last_port: ports.ends().1,
                }));
            }
        }
    }
    (rules.len() <= MAX_RULES && sites.len() <= MAX_SITES).then_some(rules)
}

/// Applications of a site as bits.
pub(super) fn allowed(site: &SiteRule) -> Allowed {
    let mut words = [0; 1_024];
    for application in 0..=u16::MAX {
        let listed = site.applications.iter();
        if site.applications.is_empty() || listed.clone().any(|range| range.contains(application)) {
            words[usize::from(application / 64)] |= 1 << (application % 64);
        }
    }
    Allowed { words }
}

/// First address and mask of a prefix, in network order.
fn mask(prefix: &Prefix) -> ([u32; 4], [u32; 4]) {
    let (address, length) = match prefix.address() {
        IpAddr::V4(address) => (address.to_ipv6_mapped(), prefix.length() + 96),
        IpAddr::V6(address) => (address, prefix.length()),
    };
    let bits = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    let words = |address: Ipv6Addr| {
        let octets = address.octets();
        std::array::from_fn(|n| {
            u32::from_ne_bytes(std::array::from_fn(|byte| octets[4 * n + byte]))
        })
    };
    (words(address), words(Ipv6Addr::from_bits(bits)))
}

pub(super) const PEER_STOP: u32 = 1;
pub(super) const PEER_ABSENT: u32 = 2;

impl_plain! {
    Pod: Key, Application, Estimate, Rule, Allowed, Counters, Sample, RawNotice;
    Shared: Settings;
}

#[cfg(test)]
mod tests;
