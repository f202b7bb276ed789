//! The programs, loaded and attached, and the maps through which they are told what to do.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{fmt, fs, io, mem};

use super::btf::{Btf, BtfError};
use super::layout::{FIRST_ENTRY, Layout, memory, subscribers, subscription};
use super::programs::{self, Maps};
use super::syscall::{self, MapKind, MapSpec};
use crate::event::EventSet;
use crate::memory_map::Mapping;
use crate::system::{is_short, more_descriptors};
use crate::variables::{Snapshot, Variable, VariableSet};

/// What is in the kernel. Dropping it takes everything out again.
#[derive(Debug)]
pub(crate) struct Monitor {
    subscribers: OwnedFd,
    memory: OwnedFd,
    rings: OwnedFd,
    table: Mapping,
    epoch: Mapping,
    capacity: u32,
    available: VariableSet,
    programs: Vec<(&'static str, OwnedFd)>,
    /// Keep the programs attached. Empty while they are not.
    links: Vec<OwnedFd>,
}

impl Monitor {
    /// Loads everything, with room for so many subscriptions and rings. Needs
    /// `CAP_BPF` and `CAP_PERFMON`.
    pub(crate) fn load(subscriptions: u32, rings: u32) -> Result<Self, LoadError> {
        let btf = fs::read(TYPES).map_err(|e| or_short(e, LoadError::NoTypes))?;
        let btf = Btf::parse(btf).map_err(LoadError::BadTypes)?;
        let layout = Layout::read(&btf, tick()?).map_err(LoadError::NoField)?;
        let subscribers = storage("tg_subscribers", subscribers::SIZE)?;
        let memory = storage("tg_memory", memory::SIZE)?;
        let array = |name, kind, value, entries, mappable, inner| {
            make(&MapSpec {
                kind,
                name,
                key: 4,
                value,
                entries,
                mappable,
                inner,
                types: None,
            })
        };
        let size = subscription::SIZE as u32;
        let entries = FIRST_ENTRY + subscriptions;
        let table = array("tg_table", MapKind::Array, size, entries, true, None)?;
        let epoch = array("tg_epoch", MapKind::Array, 8, 1, true, None)?;
        let like = new_ring(4_096).map_err(|e| refused("a ring buffer", e))?;
        let outer = MapKind::ArrayOfMaps;
        let rings = array("tg_rings", outer, 4, rings, false, Some(like.as_fd()))?;
        let maps = Maps {
            subscribers: subscribers.as_fd(),
            memory: memory.as_fd(),
            subscriptions: table.as_fd(),
            epoch: epoch.as_fd(),
            rings: rings.as_fd(),
        };
        let programs = load(&btf, &layout, maps)?;
        // Here, where we may, to see that it can be done.
        attach(&programs)?;
        let bytes = subscription::SIZE * entries as usize;
        let table = Mapping::shared(table.as_fd(), 0, bytes).map_err(LoadError::System)?;
        let epoch = Mapping::shared(epoch.as_fd(), 0, 8).map_err(LoadError::System)?;
        Ok(Self {
            subscribers,
            memory,
            rings,
            table,
            epoch,
            capacity: subscriptions,
            available: layout.available(),
            programs,
            links: Vec::new(),
        })
    }

    /// Attaches the programs, if they are not yet.
    pub(crate) fn wake(&mut self) -> Result<(), LoadError> {
        if self.links.is_empty() {
            self.links = attach(&self.programs)?;
        }
        Ok(())
    }

    /// Detaches the programs: nobody pays for them while nobody has subscribed to anything.
    pub(crate) fn rest(&mut self) {
        self.links.clear();
    }

    /// The variables that this kernel has.
    pub(crate) fn available(&self) -> VariableSet {
        self.available
    }

    /// How many subscriptions there is room for.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Lets a ring be written to under this number.
    pub(crate) fn plug(&self, number: u32, ring: BorrowedFd<'_>) -> io::Result<()> {
        use std::os::fd::AsRawFd as _;
        let fd = ring.as_raw_fd().to_ne_bytes();
        syscall::update(self.rings.as_fd(), number, &fd)
    }

    /// Writes to the ring of this number no more.
    pub(crate) fn unplug(&self, number: u32) -> io::Result<()> {
        syscall::delete(self.rings.as_fd(), number)
    }

    /// Opens a place of the table for a subscription that has no socket yet.
    pub(crate) fn open(&self, place: u32, token: u64, ring: u32, wanted: Wanted) {
        self.word64(place, subscription::NUMBER)
            .store(0, Ordering::Relaxed);
        self.word64(place, subscription::LOST)
            .store(0, Ordering::Relaxed);
        self.word32(place, subscription::ENDED)
            .store(0, Ordering::Relaxed);
        self.word32(place, subscription::RING)
            .store(ring, Ordering::Relaxed);
        self.change(place, wanted);
        self.word64(place, subscription::TOKEN)
            .store(token, Ordering::Release);
    }

    /// Changes what a subscription wants. Variables that this kernel does not have are left out:
    /// they would be told as known, and zero.
    pub(crate) fn change(&self, place: u32, wanted: Wanted) {
        let known = wanted.variables.and(self.available);
        self.word64(place, subscription::KNOWN)
            .store(known.bits(), Ordering::Relaxed);
        self.word32(place, subscription::EVENTS)
            .store(wanted.events.bits(), Ordering::Release);
    }

    /// Ends a subscription. Programs that run at this moment may still write one record; the place
    /// should not be opened again at once.
    pub(crate) fn close(&self, place: u32) {
        self.word64(place, subscription::TOKEN)
            .store(0, Ordering::Release);
        // Sockets look at their tokens again.
        self.epoch().fetch_add(1, Ordering::Release);
    }

    /// Hangs a token on a socket.
    pub(crate) fn bind(&self, socket: BorrowedFd<'_>, token: u64) -> Result<(), BindError> {
        use std::os::fd::AsRawFd as _;
        let key = socket.as_raw_fd() as u32;
        let mut value = [0_u8; subscribers::SIZE];
        match syscall::lookup(self.subscribers.as_fd(), key, &mut value) {
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => return Err(BindError::System(e)),
            _ => {}
        }
        let epoch = self.epoch().load(Ordering::Acquire);
        let (words, _) = value.as_chunks_mut::<8>();
        words[subscribers::EPOCH as usize / 8] = epoch.to_ne_bytes();
        words[subscribers::ALIVE as usize / 8] = 1_u64.to_ne_bytes();
        // Those whose subscriptions have ended leave their places.
        let dead = |slot: &[u8; 8]| !self.is_open(u64::from_ne_bytes(*slot));
        let slots = &mut words[..subscribers::MOST];
        if slots.iter().all(dead) {
            self.begin_memory(socket)?;
        }
        let free = slots.iter_mut().find(|slot| dead(slot));
        *free.ok_or(BindError::Full)? = token.to_ne_bytes();
        syscall::update(self.subscribers.as_fd(), key, &value).map_err(BindError::System)
    }

    /// Makes room for what is remembered of a socket that has no subscriber. Counters of earlier
    /// ones stay; time-outs until a program looks at it are nobody's, and what it was doing then,
    /// nobody has seen end. Nothing here waits for the socket's lock, as `TCP_INFO` would: an owner
    /// who writes from memory that never comes (`userfaultfd`, FUSE) has it for ever.
    fn begin_memory(&self, socket: BorrowedFd<'_>) -> Result<(), BindError> {
        use std::os::fd::AsRawFd as _;
        let key = socket.as_raw_fd() as u32;
        let mut bytes = [0_u8; memory::SIZE];
        match syscall::lookup(self.memory.as_fd(), key, &mut bytes) {
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => return Err(BindError::System(e)),
            _ => {}
        }
        let (words, _) = bytes.as_chunks_mut::<8>();
        words[..memory::ACKS_SLOW_START as usize / 8].fill([0; 8]);
        words[memory::TOLD as usize / 8] = i64::from(memory::NOT_LOOKED_AT).to_ne_bytes();
        syscall::update(self.memory.as_fd(), key, &bytes).map_err(BindError::System)
    }

    /// What the programs have counted of a socket; nothing if nobody has ever subscribed to it.
    pub(crate) fn counters(&self, socket: BorrowedFd<'_>) -> io::Result<Snapshot> {
        use std::os::fd::AsRawFd as _;
        let mut bytes = [0_u8; memory::SIZE];
        let mut counters = Snapshot::new();
        let found = syscall::lookup(self.memory.as_fd(), socket.as_raw_fd() as u32, &mut bytes);
        match found {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(counters),
            other => other?,
        }
        let mut at = memory::ACKS_SLOW_START as usize;
        for variable in COUNTERS {
            let bytes = bytes[at..].first_chunk().expect("all counters are inside");
            counters.set(variable, u64::from_ne_bytes(*bytes));
            at += 8;
        }
        Ok(counters)
    }

    /// How many events a subscription had, and how many of them found no room.
    pub(crate) fn tally(&self, place: u32) -> Tally {
        Tally {
            events: self
                .word64(place, subscription::NUMBER)
                .load(Ordering::Relaxed),
            lost: self
                .word64(place, subscription::LOST)
                .load(Ordering::Relaxed),
        }
    }

    /// Whether the socket of a subscription is gone.
    pub(crate) fn has_ended(&self, place: u32) -> bool {
        self.word32(place, subscription::ENDED)
            .load(Ordering::Acquire)
            != 0
    }

    fn is_open(&self, token: u64) -> bool {
        let Some(place) = place_of(token).filter(|&p| p < self.capacity) else {
            return false;
        };
        let open = self.word64(place, subscription::TOKEN);
        open.load(Ordering::Acquire) == token && !self.has_ended(place)
    }

    fn epoch(&self) -> &AtomicU64 {
        self.epoch.word64(0)
    }

    fn word64(&self, place: u32, field: i16) -> &AtomicU64 {
        self.table.word64(offset(place, field))
    }

    fn word32(&self, place: u32, field: i16) -> &AtomicU32 {
        self.table.word32(offset(place, field))
    }
}

/// What a subscriber wants and may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Which events.
    pub events: EventSet,
    /// Which variables come with them.
    pub variables: VariableSet,
}

/// What became of a subscription's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many there were.
    pub events: u64,
    /// Of these, how many were dropped because the ring was full.
    pub lost: u64,
}

/// The token of a place: the lower half is its entry in the table, the upper half counts how often
/// the place was used, so that a token is never used twice.
pub(crate) fn token(place: u32, use_number: u32) -> u64 {
    u64::from(use_number) << 32 | u64::from(FIRST_ENTRY + place)
}

/// A ring buffer for records, with so many bytes: a power of two and whole pages.
pub(crate) fn new_ring(bytes: u32) -> io::Result<OwnedFd> {
    syscall::create_map(&MapSpec {
        kind: MapKind::RingBuffer,
        name: "tg_ring",
        key: 0,
        value: 0,
        entries: bytes,
        mappable: false,
        inner: None,
        types: None,
    })
}

/// Why a socket cannot be subscribed to.
#[derive(Debug)]
pub(crate) enum BindError {
    /// It has as many subscribers as fit.
    Full,
    /// The kernel's word.
    System(io::Error),
}

/// Why the programs are not in the kernel.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The kernel's types make no sense.
    #[expect(private_interfaces, reason = "it is only shown")]
    BadTypes(BtfError),
    /// The process, or the machine, has no descriptor left.
    NoDescriptor(io::Error),
    /// A field of the kernel is gone.
    NoField(String),
    /// A tracepoint is missing.
    NoTracepoint(&'static str),
    /// The kernel does not tell its types.
    NoTypes(io::Error),
    /// The kernel said no.
    Refused {
        /// To what.
        what: String,
        /// How.
        cause: io::Error,
    },
    /// Something else.
    System(io::Error),
    /// The verifier refuses a program.
    Verifier {
        /// Which.
        program: &'static str,
        /// What it said last.
        log: String,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadTypes(why) => write!(
                f,
                "the kernel's types ({TYPES}) cannot be read: {why}; use the unprivileged mode, and tell us the version (uname -r) if the file is whole"
            ),
            Self::NoDescriptor(e) => write!(
                f,
                "no descriptor is left for the programs ({e}): who loads them has to {}",
                more_descriptors(e)
            ),
            Self::NoField(field) => write!(
                f,
                "this kernel has no field {field}: {NEWER}; if it is one, Tidegate does not know its TCP: tell us the version (uname -r)"
            ),
            Self::NoTracepoint(name) => write!(f, "this kernel has no tracepoint {name}: {NEWER}"),
            Self::NoTypes(e) => write!(
                f,
                "the kernel does not tell its types ({TYPES}: {e}): use one with CONFIG_DEBUG_INFO_BTF=y, as distributions build it, and mount /sys"
            ),
            Self::Refused { what, cause } if cause.raw_os_error() == Some(libc::EPERM) => write!(
                f,
                "the kernel does not let this process make {what} ({cause}): run as root or with CAP_BPF and CAP_PERFMON (in a container: --cap-add BPF --cap-add PERFMON)"
            ),
            Self::Refused { what, cause } if cause.raw_os_error() == Some(libc::ENOSYS) => write!(
                f,
                "the kernel does not make {what} ({cause}): use one with CONFIG_BPF_SYSCALL=y"
            ),
            Self::Refused { what, cause } if is_unknown(cause) => write!(
                f,
                "the kernel does not make {what} ({cause}): {NEWER}; one that is new enough lacks CONFIG_NET, CONFIG_PERF_EVENTS, CONFIG_BPF_EVENTS or CONFIG_DEBUG_INFO_BTF"
            ),
            Self::Refused { what, cause } if cause.raw_os_error() == Some(libc::ENOMEM) => write!(
                f,
                "the kernel has no memory for {what} ({cause}): lower limits.subscriptions, limits.clients or limits.ring-kib of the policy, or give the daemon more"
            ),
            Self::Refused { what, cause } => write!(
                f,
                "the kernel does not make {what} ({cause}): {NEWER}; please report it with the version (uname -r) if it is one"
            ),
            Self::System(e) => e.fmt(f),
            Self::Verifier { program, log } => write!(
                f,
                "this kernel's verifier refuses the program for {program}; please report it with the version (uname -r) and this:\n{log}"
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// Whether a kernel answers so that does not know what it is asked for: by number, by a structure
/// that has grown, or since it was built without it.
fn is_unknown(cause: &io::Error) -> bool {
    let unknown = [libc::EINVAL, libc::E2BIG, libc::EOPNOTSUPP, ENOTSUPP];
    cause.raw_os_error().is_some_and(|e| unknown.contains(&e))
}

/// Whether this is what a verifier says: it is asked again to hear why, and others may have refused the
/// first time.
fn is_verdict(cause: &io::Error) -> bool {
    let verdicts = [
        libc::EACCES,
        libc::EINVAL,
        libc::E2BIG,
        libc::EFAULT,
        libc::ENOENT,
        libc::EOPNOTSUPP,
        ENOTSUPP,
    ];
    cause.raw_os_error().is_some_and(|e| verdicts.contains(&e))
}

fn load(
    btf: &Btf,
    layout: &Layout,
    maps: Maps<'_>,
) -> Result<Vec<(&'static str, OwnedFd)>, LoadError> {
    let load = |program: programs::Program| {
        let name = program.tracepoint;
        let Some(target) = btf.tracepoint(name) else {
            let missing = Err(LoadError::NoTracepoint(name));
            return if program.is_optional {
                Ok(None)
            } else {
                missing
            };
        };
        let loaded = syscall::load_tracepoint(name, target, &program.code);
        let loaded = loaded.map(|program| Some((name, program)));
        loaded.map_err(|(cause, log)| {
            if is_verdict(&cause) && !log.is_empty() {
                LoadError::Verifier { program: name, log }
            } else {
                refused(&format!("the program for {name}"), cause)
            }
        })
    };
    let programs = programs::all(layout, maps).into_iter();
    programs.filter_map(|p| load(p).transpose()).collect()
}

fn attach(programs: &[(&'static str, OwnedFd)]) -> Result<Vec<OwnedFd>, LoadError> {
    let link = |(name, program): &(&'static str, OwnedFd)| {
        let link = syscall::attach(program.as_fd());
        link.map_err(|e| refused(&format!("the link to {name}"), e))
    };
    programs.iter().map(link).collect()
}

/// A map with `bytes` for each socket.
fn storage(name: &str, bytes: usize) -> Result<OwnedFd, LoadError> {
    let btf = super::btf::number_and_array(bytes as u32 / 4);
    let types = syscall::load_types(&btf);
    let types = types.map_err(|e| refused("the types of its maps (BTF)", e))?;
    make(&MapSpec {
        kind: MapKind::SocketStorage,
        name,
        key: 4,
        value: bytes as u32,
        entries: 0,
        mappable: false,
        inner: None,
        types: Some(types.as_fd()),
    })
}

fn make(spec: &MapSpec<'_>) -> Result<OwnedFd, LoadError> {
    syscall::create_map(spec).map_err(|e| refused(&format!("the map {}", spec.name), e))
}

fn refused(what: &str, cause: io::Error) -> LoadError {
    or_short(cause, |cause| LoadError::Refused {
        what: what.into(),
        cause,
    })
}

/// That there is no descriptor is the same whatever was to get it.
fn or_short(cause: io::Error, otherwise: impl FnOnce(io::Error) -> LoadError) -> LoadError {
    if is_short(&cause) {
        LoadError::NoDescriptor(cause)
    } else {
        otherwise(cause)
    }
}

/// A tick of the kernel, in µs: that is the resolution of its coarse clock.
fn tick() -> Result<u32, LoadError> {
    // SAFETY: a timespec is two integers, for which zero is a value.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: `time` is a valid place for the answer.
    if unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) } != 0 {
        return Err(LoadError::System(io::Error::last_os_error()));
    }
    // Ticks are 1, 3⅓, 4 or 10 ms; the third of a microsecond does not matter.
    Ok((time.tv_nsec / 1_000) as u32)
}

fn place_of(token: u64) -> Option<u32> {
    (token as u32).checked_sub(FIRST_ENTRY)
}

/// Where a field of a place is in the table.
fn offset(place: u32, field: i16) -> usize {
    (FIRST_ENTRY + place) as usize * subscription::SIZE + field as usize
}

/// In the order in which the programs keep them.
const COUNTERS: [Variable; 6] = [
    Variable::AcksSlowStart,
    Variable::AcksAvoidance,
    Variable::AcksRepair,
    Variable::Duplicates,
    Variable::FurtherDuplicates,
    Variable::PhaseChanges,
];

const TYPES: &str = "/sys/kernel/btf/vmlinux";
const NEWER: &str = "use Linux 6.1 or newer, or the unprivileged mode";
/// The kernel's own number, which C libraries do not have.
const ENOTSUPP: i32 = 524;

#[cfg(test)]
mod tests;
