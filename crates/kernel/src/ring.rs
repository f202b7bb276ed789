//! The reading end of a client's ring. The kernel writes it, and reading takes no system call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::bpf::layout::record;
use crate::event::{Event, EventKind, Happening, SubscriptionId};
use crate::memory_map::Mapping;
use crate::variables::{COUNT, Snapshot, VariableSet};

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
        // SAFETY: takes a number and touches no memory.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| io::Error::last_os_error())?;
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
            let at = self.consumed.word64(0).load(Ordering::Acquire);
            if at == self.produced.word64(0).load(Ordering::Acquire) {
                return None;
            }
            let offset = self.page + (at % self.size) as usize;
            // The header that the kernel puts before a record: its length and two flags.
            let length = self.produced.word32(offset).load(Ordering::Acquire);
            if length & BUSY != 0 {
                return None;
            }
            let size = length & !DISCARDED;
            let event = (length & DISCARDED == 0 && size as usize == record::SIZE)
                .then(|| {
                    let mut bytes = [0; record::SIZE];
                    self.produced.copy(offset + HEADER, &mut bytes);
                    parse(&bytes)
                })
                .flatten();
            let next = at + (size as usize + HEADER).next_multiple_of(8) as u64;
            // Sequentially consistent, so that either the kernel sees the new position and sends a
            // notification, or this reader sees the new record.
            self.consumed.word64(0).store(next, Ordering::SeqCst);
            if event.is_some() {
                return event;
            }
        }
    }

    /// Whether there is no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.consumed.word64(0).load(Ordering::SeqCst)
            == self.produced.word64(0).load(Ordering::SeqCst)
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The event in a record.
pub(crate) fn parse(bytes: &[u8; record::SIZE]) -> Option<Event> {
    let word = |at: i16| {
        let bytes = bytes[at as usize..].first_chunk();
        u64::from_ne_bytes(*bytes.expect("a record has all fields"))
    };
    let half = |at: i16| {
        let bytes = bytes[at as usize..].first_chunk();
        u32::from_ne_bytes(*bytes.expect("a record has all fields"))
    };
    let mut values = [0; COUNT];
    for (number, value) in values.iter_mut().enumerate() {
        *value = word(record::VALUES + 8 * number as i16);
    }
    let kind = EventKind::from_number(half(record::KIND).into())?;
    let known = VariableSet::from_bits(word(record::KNOWN));
    Some(Event {
        time: Duration::from_nanos(word(record::TIME)),
        subscription: SubscriptionId(word(record::TOKEN)),
        number: word(record::NUMBER),
        what: Happening::from_details(kind, half(record::FIRST), word(record::SECOND))?,
        state: Snapshot::from_parts(known, &values),
    })
}

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER: usize = 8;
