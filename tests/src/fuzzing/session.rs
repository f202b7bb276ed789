//! Fuzz targets of the session, used by the fuzzer (`fuzz/`), by the replay of its corpora
//! (`tests/tests/corpora.rs`) and by property tests.
//!
//! The data is decoded as a sequence of steps: passing time, valid and invalid results of the
//! encoder, and valid, false and malformed packets of the peer. Invariants are asserted after each
//! step.

use core::time::Duration;

use rand_pcg::Pcg64Mcg;

use super::Target;
use tidegate_core::control::Context;
use tidegate_core::units::Time;
use tidegate_core::wire::ntp::Ntp;
use tidegate_core::wire::rtcp::Cname;

pub mod live;
mod receiver;
mod secure;
mod sender;
mod tcp;
mod tcp_sender;

pub use live::live;
pub use receiver::receiver;
pub use secure::secure;
pub use sender::sender;
pub use tcp::tcp_receiver;
pub use tcp_sender::tcp_sender;

/// All targets.
pub const TARGETS: [Target; 6] = [
    Target {
        name: "live",
        run: live,
    },
    Target {
        name: "receiver",
        run: receiver,
    },
    Target {
        name: "secure",
        run: secure,
    },
    Target {
        name: "sender",
        run: sender,
    },
    Target {
        name: "tcp_receiver",
        run: tcp_receiver,
    },
    Target {
        name: "tcp_sender",
        run: tcp_sender,
    },
];

/// Source of decisions: the data, followed by zeros.
pub(crate) struct Story<'a> {
    rest: &'a [u8],
}

impl<'a> Story<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from(self.byte()) << 8 | u16::from(self.byte())
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Mostly milliseconds, rarely minutes.
    pub(crate) fn span(&mut self) -> Duration {
        let n = u64::from(self.byte());
        Duration::from_millis(match n {
            0..=199 => n,
            200..=239 => (n - 199) * 100,
            240..=253 => (n - 239) * 3_000,
            _ => n * 1_000,
        })
    }
}

fn cx(now: Time, rng: &mut Pcg64Mcg) -> Context<'_> {
    // The value has size zero, so no memory leaks.
    let trace = Box::leak(Box::new(()));
    Context { now, rng, trace }
}

fn name() -> Cname {
    Cname::new("fuzz@example").expect("a valid name")
}

/// Mostly an SSRC of this session.
fn ssrc(story: &mut Story<'_>) -> u32 {
    match story.byte() {
        0..=160 => MEDIA,
        161..=220 => REPAIR,
        // Parity packets.
        221..=240 => REPAIR + 1,
        other => u32::from(other),
    }
}

const MEDIA: u32 = 0x6d65_6469;
const REPAIR: u32 = 0x7265_7061;
const PEER: u32 = 0x7065_6572;
/// In 2023, so that the middle bits of a time stamp are never zero.
const EPOCH: Ntp = Ntp(0xe800_0000_0000_0000);
/// Limit of wake-ups at one time. Several timers may expire at the same time, and may set each
/// other.
const MAX_WAKES: u32 = 16;
/// Limit of wake-ups in one step: some seconds at 30 frames per second. Further time passes in one
/// step.
const MAX_DEADLINES: u32 = 400;
