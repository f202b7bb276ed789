//! Compact in-memory log of link samples.

use std::collections::VecDeque;
use std::sync::Arc;

use core::fmt;

use tidegate_core::units::{Bytes, Time};

use crate::rows::{DropCauses, LinkSample};

/// Samples of links, in the order in which they were recorded.
///
/// Links are sampled one after the other at a fixed interval, and few of a link's numbers change
/// between samples. A sample is a byte of flags for the changed numbers, and their differences.
/// This takes one byte for an idle link and about seven for a busy one; a row has 72.
#[derive(Clone, Default)]
pub struct LinkLog {
    /// Full chunks and the current one. A single vector would be copied each time it grows.
    chunks: VecDeque<Vec<u8>>,
    len: usize,
    latest: Option<Time>,
    /// State from which the next sample is encoded as a difference.
    last: Last,
}

/// The latest sample of each link and run.
#[derive(Clone, Debug, Default)]
struct Last {
    rows: Vec<LinkSample>,
    /// Interval between the latest two samples of each, in ns.
    steps: Vec<u64>,
    /// Index of the link of the latest sample.
    place: usize,
}

impl LinkLog {
    /// Adds a sample.
    pub fn push(&mut self, sample: LinkSample) {
        let mut code = [0; MAX_BYTES];
        let mut code = Code::new(&mut code);
        let next = self.last.next();
        let known = |row: &LinkSample| same(&row.link, &sample.link) && same(&row.run, &sample.run);
        let rows = &self.last.rows;
        let place = match rows.get(next).filter(|row| known(row)) {
            Some(_) => next,
            None => rows.iter().position(known).unwrap_or(rows.len()),
        };
        if place == rows.len() {
            self.last.add(&sample);
        }
        if place != next {
            code.put(PLACE, place as u64);
        }
        let (row, step) = (&mut self.last.rows[place], &mut self.last.steps[place]);
        let (at, before) = (sample.at.as_nanos(), row.at.as_nanos());
        let passed = at.wrapping_sub(before);
        code.put(STEP, passed.wrapping_sub(*step));
        code.put(QUEUE, sample.queue.get().wrapping_sub(row.queue.get()));
        code.put(DROPS, sample.drops.wrapping_sub(row.drops));
        code.put(MARKS, sample.marks.wrapping_sub(row.marks));
        let more = sample.delivered.get().wrapping_sub(row.delivered.get());
        code.put(DELIVERED, more);
        let ([random, outage], [known_random, known_outage]) =
            (encoded_causes(&sample), encoded_causes(row));
        code.put(RANDOM, random.wrapping_sub(known_random));
        code.put(OUTAGE, outage.wrapping_sub(known_outage));
        *step = passed;
        *row = sample;
        self.last.place = place;
        self.latest = self.latest.max(Some(Time::from_nanos(at)));
        self.len += 1;
        let bytes = code.bytes();
        match self.chunks.back_mut() {
            Some(chunk) if chunk.len() + bytes.len() <= CHUNK => chunk.extend_from_slice(bytes),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.extend_from_slice(bytes);
                self.chunks.push_back(chunk);
            }
        }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the log is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Time of the latest sample.
    pub fn latest(&self) -> Option<Time> {
        self.latest
    }

    /// Runs in which links were sampled, in the order of their first samples.
    pub fn runs(&self) -> Vec<Arc<str>> {
        let mut runs: Vec<Arc<str>> = Vec::new();
        for row in &self.last.rows {
            if !runs.contains(&row.run) {
                runs.push(Arc::clone(&row.run));
            }
        }
        runs
    }

    /// The samples, as they were added.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            names: &self.last.rows,
            last: Last::default(),
            chunks: self.chunks.iter(),
            rest: &[],
            left: self.len,
        }
    }
}

impl Last {
    /// Index of the link whose sample comes next if links are sampled in rotation.
    fn next(&self) -> usize {
        let next = self.place + 1;
        if next < self.rows.len() { next } else { 0 }
    }

    /// Adds a link with all counters at zero.
    fn add(&mut self, names: &LinkSample) {
        self.rows.push(LinkSample {
            at: Time::ZERO,
            queue: Bytes::ZERO,
            drops: 0,
            marks: 0,
            delivered: Bytes::ZERO,
            causes: None,
            ..names.clone()
        });
        self.steps.push(0);
    }
}

impl fmt::Debug for LinkLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl PartialEq for LinkLog {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other)
    }
}

impl Extend<LinkSample> for LinkLog {
    fn extend<T: IntoIterator<Item = LinkSample>>(&mut self, samples: T) {
        samples.into_iter().for_each(|sample| self.push(sample));
    }
}

impl FromIterator<LinkSample> for LinkLog {
    fn from_iter<T: IntoIterator<Item = LinkSample>>(samples: T) -> Self {
        let mut log = Self::default();
        log.extend(samples);
        log
    }
}

impl<'a> IntoIterator for &'a LinkLog {
    type Item = LinkSample;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Iterator over the samples of a [`LinkLog`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    /// Names of each link and run, in the order of their first samples.
    names: &'a [LinkSample],
    last: Last,
    chunks: std::collections::vec_deque::Iter<'a, Vec<u8>>,
    rest: &'a [u8],
    left: usize,
}

impl Iterator for Iter<'_> {
    type Item = LinkSample;

    fn next(&mut self) -> Option<LinkSample> {
        if self.rest.is_empty() {
            self.rest = self.chunks.next()?;
        }
        let (flags, rest) = self.rest.split_first()?;
        self.rest = rest;
        let mut field = |flag: u8| match flags & flag {
            0 => 0,
            _ => take_number(&mut self.rest),
        };
        let place = match flags & PLACE {
            0 => self.last.next(),
            _ => unfold(field(PLACE)) as usize,
        };
        if place >= self.last.rows.len() {
            self.last.add(self.names.get(place)?);
        }
        let mut change = |flag| unfold(field(flag));
        let (row, step) = (&mut self.last.rows[place], &mut self.last.steps[place]);
        *step = step.wrapping_add(change(STEP));
        row.at = Time::from_nanos(row.at.as_nanos().wrapping_add(*step));
        row.queue = Bytes(row.queue.get().wrapping_add(change(QUEUE)));
        row.drops = row.drops.wrapping_add(change(DROPS));
        row.marks = row.marks.wrapping_add(change(MARKS));
        row.delivered = Bytes(row.delivered.get().wrapping_add(change(DELIVERED)));
        let [random, outage] = encoded_causes(row);
        row.causes = causes([
            random.wrapping_add(change(RANDOM)),
            outage.wrapping_add(change(OUTAGE)),
        ]);
        self.last.place = place;
        self.left -= 1;
        Some(row.clone())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Compares pointers first: the two are nearly always the same allocation.
fn same(a: &Arc<str>, b: &Arc<str>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

/// Drop causes encoded as numbers: zero if the causes are not recorded, otherwise the count plus
/// one.
fn encoded_causes(row: &LinkSample) -> [u64; 2] {
    let causes = row.causes;
    causes.map_or([0; 2], |c| [c.random, c.outage].map(|n| n.wrapping_add(1)))
}

/// Inverse of `encoded_causes`.
fn causes([random, outage]: [u64; 2]) -> Option<DropCauses> {
    (random > 0 && outage > 0).then(|| DropCauses {
        random: random - 1,
        outage: outage - 1,
    })
}

/// Encoded form of one sample: flags of the numbers that follow, and these numbers.
struct Code<'a> {
    bytes: &'a mut [u8; MAX_BYTES],
    len: usize,
}

impl<'a> Code<'a> {
    fn new(bytes: &'a mut [u8; MAX_BYTES]) -> Self {
        Self { bytes, len: 1 }
    }

    /// Appends a signed number, seven bits to a byte, unless it is zero. The index of a link that
    /// is sampled out of order comes first and is decoded even if it is zero.
    fn put(&mut self, flag: u8, number: u64) {
        if number == 0 && flag != PLACE {
            return;
        }
        self.bytes[0] |= flag;
        let mut rest = fold(number);
        loop {
            let more = rest > 0x7f;
            self.bytes[self.len] = (rest & 0x7f) as u8 | if more { 0x80 } else { 0 };
            self.len += 1;
            rest >>= 7;
            if !more {
                return;
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn take_number(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    number
}

/// Zigzag encoding: numbers of small magnitude become small unsigned numbers.
fn fold(number: u64) -> u64 {
    let signed = number as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

fn unfold(folded: u64) -> u64 {
    (folded >> 1) ^ (folded & 1).wrapping_neg()
}

const PLACE: u8 = 1;
const STEP: u8 = 2;
const QUEUE: u8 = 4;
const DROPS: u8 = 8;
const MARKS: u8 = 16;
const DELIVERED: u8 = 32;
const RANDOM: u8 = 64;
const OUTAGE: u8 = 128;

/// A byte of flags and eight numbers of up to 64 bits.
const MAX_BYTES: usize = 1 + 8 * 10;
/// Chunk size: small compared with the log of a long run, and cheap for a short one.
const CHUNK: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(at: u64, link: usize, numbers: [u64; 6]) -> LinkSample {
        let [queue, drops, marks, delivered, random, outage] = numbers;
        LinkSample {
            at: Time::from_nanos(at),
            run: ["one", "two"][link / 3 % 2].into(),
            link: ["a", "b", "c"][link % 3].into(),
            queue: Bytes(queue),
            drops,
            marks,
            delivered: Bytes(delivered),
            // A third of the links does not record causes.
            causes: (!link.is_multiple_of(3)).then_some(DropCauses { random, outage }),
        }
    }

    #[test]
    fn idle_link_takes_one_byte_per_sample() {
        let rows = |n: u64| sample(20_000_000 * (n / 3), (n % 3) as usize, [0; 6]);
        let log: LinkLog = (0..300_000).map(rows).collect();
        assert_eq!(log.len(), 300_000);
        assert!(log.iter().eq((0..300_000).map(rows)));
        let bytes: usize = log.chunks.iter().map(Vec::len).sum();
        assert!(bytes < 300_100, "{bytes}");
    }

    proptest! {
        #[test]
        fn samples_round_trip(
            rows in prop::collection::vec((any::<u64>(), 0_usize..6, any::<[u64; 6]>(), any::<bool>()), 0..2_000),
        ) {
            let row = |(n, (at, link, numbers, near)): (usize, &(u64, usize, [u64; 6], bool))| {
                // Either in rotation with small differences, or arbitrary.
                if *near {
                    sample(n as u64 * 20, n % 6, numbers.map(|number| number % 3_000))
                } else {
                    // `u64::MAX` is excluded: the encoding reserves it, and no counter reaches it.
                    sample(*at, *link, numbers.map(|number| number.min(u64::MAX - 1)))
                }
            };
            let rows: Vec<LinkSample> = rows.iter().enumerate().map(row).collect();
            let log: LinkLog = rows.iter().cloned().collect();
            prop_assert_eq!(log.iter().len(), rows.len());
            prop_assert_eq!(log.is_empty(), rows.is_empty());
            prop_assert_eq!(log.latest(), rows.iter().map(|row| row.at).max());
            prop_assert!(log.iter().eq(rows.iter().cloned()));
            prop_assert_eq!(log.clone(), log);
        }
    }
}
