//! The reading end of a client's ring. The kernel writes it, and reading takes no system call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use std::{io, mem};

use crate::bpf::layout::Record;
use crate::event::{Event, EventDetails, EventKind, SubscriptionId};
use crate::memory_map::{Mapping, page_size};
use crate::variables::{Snapshot, VariableSet};

/// A ring of records.
#[derive(Debug)]
pub(crate) struct Ring {
    fd: OwnedFd,
    /// Position of the reader, the only word that this process writes.
    consumed: Mapping,
    /// Position of the kernel, and the records from the next page on. The pages of the records are
    /// mapped twice in a row, so a record at the end of the ring is contiguous.
    produced: Mapping,
    size: u64,
    page: usize,
}

impl Ring {
    /// Maps the ring of `size` bytes behind a descriptor.
    pub(crate) fn map(fd: OwnedFd, size: u32) -> io::Result<Self> {
        let page = page_size();
        let consumed = Mapping::shared(fd.as_fd(), 0, page)?;
        let produced = Mapping::readable(fd.as_fd(), page, page + 2 * size as usize)?;
        Ok(Self {
            fd,
            consumed,
            produced,
            size: size.into(),
            page,
        })
    }

    /// The oldest record. Records of unknown kinds are skipped.
    pub(crate) fn next(&self) -> Option<Event> {
        loop {
            let at = end(&self.consumed).load(Ordering::Acquire);
            let produced = end(&self.produced).load(Ordering::Acquire);
            if at == produced || !produced.is_multiple_of(8) {
                return None;
            }
            // A length that leads beyond the writer's position. The kernel writes none; without this
            // check the loop would run through 2^64 bytes.
            if produced.wrapping_sub(at) > self.size {
                end(&self.consumed).store(produced, Ordering::SeqCst);
                return None;
            }
            let offset = self.page + (at % self.size) as usize;
            // The kernel's header of a record: length, with two bits on top.
            let length = self.produced.at::<AtomicU32>(offset);
            let length = length.load(Ordering::Acquire);
            if length & BUSY != 0 {
                return None;
            }
            let size = length & !DISCARDED;
            let is_whole = length & DISCARDED == 0 && size as usize == mem::size_of::<Record>();
            let event = is_whole
                .then(|| parse(&self.produced.copy(offset + HEADER)))
                .flatten();
            let length = (size as usize + HEADER).next_multiple_of(8) as u64;
            let next = at.wrapping_add(length);
            // Sequentially consistent, so that either the kernel sees the new position and sends a
            // notification, or this reader sees the new record.
            end(&self.consumed).store(next, Ordering::SeqCst);
            if event.is_some() {
                return event;
            }
        }
    }

    /// Whether there is no record.
    pub(crate) fn is_empty(&self) -> bool {
        end(&self.consumed).load(Ordering::SeqCst) == end(&self.produced).load(Ordering::SeqCst)
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The position on the first page of a mapping.
fn end(mapping: &Mapping) -> &AtomicU64 {
    mapping.at(0)
}

/// `None` for kinds and details that this library does not know.
pub(crate) fn parse(record: &Record) -> Option<Event> {
    let kind = EventKind::from_number(record.kind.into())?;
    let known = VariableSet::from_bits(record.known);
    Some(Event {
        time: Duration::from_nanos(record.time),
        subscription: SubscriptionId(record.token),
        number: record.number,
        what: EventDetails::from_details(kind, record.first, record.second)?,
        state: Snapshot::from_parts(known, &record.values),
    })
}

/// Flag of a record that is not complete.
pub(crate) const BUSY: u32 = 1 << 31;
/// Flag of a record that is to be skipped.
pub(crate) const DISCARDED: u32 = 1 << 30;
/// Size of the header of a record: its length and the kernel's page offset.
pub(crate) const HEADER: usize = 8;
