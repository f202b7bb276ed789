//! Bodies of the fuzz targets of the session, shared by the fuzzer (`fuzz/`), by the replay of its
//! corpora (`tests/tests/corpora.rs`) and by property tests.
//!
//! Any bytes are read as a story: time passes, an encoder answers well or badly, and a peer says
//! what is true, what is false, or nonsense. What must hold whatever happens is asserted on the way.

use core::time::Duration;

use rand_pcg::Pcg64Mcg;

use super::Target;
use tidegate_core::control::Cx;
use tidegate_core::units::Time;
use tidegate_core::wire::ntp::Ntp;
use tidegate_core::wire::rtcp::Cname;

mod receiver;
mod sender;
mod tcp;
mod tcp_sender;

pub use receiver::receiver;
pub use sender::sender;
pub use tcp::tcp_receiver;
pub use tcp_sender::tcp_sender;

/// All targets.
pub const TARGETS: [Target; 4] = [
    Target {
        name: "receiver",
        run: receiver,
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

/// Bytes to draw decisions from; zeros behind their end.
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

    /// Milliseconds mostly, minutes rarely.
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

fn cx(now: Time, rng: &mut Pcg64Mcg) -> Cx<'_> {
    // A value of no size: nothing is leaked.
    let trace = Box::leak(Box::new(()));
    Cx { now, rng, trace }
}

fn name() -> Cname {
    Cname::new("fuzz@example").expect("a good name")
}

/// One of ours mostly.
fn ssrc(story: &mut Story<'_>) -> u32 {
    match story.byte() {
        0..=160 => MEDIA,
        161..=240 => REPAIR,
        other => u32::from(other),
    }
}

const MEDIA: u32 = 0x6d65_6469;
const REPAIR: u32 = 0x7265_7061;
const PEER: u32 = 0x7065_6572;
/// 2023, so that the middle of a time stamp is never zero.
const EPOCH: Ntp = Ntp(0xe800_0000_0000_0000);
/// At one moment. Several timers may fall on one moment, and one may set another.
const MOST_WAKES: u32 = 16;
/// In one span: some seconds at 30 frames per second. What is left of it passes in one step.
const MOST_DEADLINES: u32 = 400;
