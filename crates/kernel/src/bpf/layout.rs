//! What the programs, the kernel and this process have to agree on: where the kernel keeps each
//! variable, and how records and values of maps are laid out.

use super::asm::{Asm, Op, Reg, Width};
use super::btf::{Btf, Field};
use crate::variables::{COUNT, Variable, VariableSet};

/// A record in a client's ring. Numbers are in the order of this machine.
pub(crate) mod record {
    use crate::variables::COUNT;

    /// Nanoseconds on `CLOCK_MONOTONIC`.
    pub(crate) const TIME: i16 = 0;
    /// Of the subscription.
    pub(crate) const TOKEN: i16 = 8;
    /// Which one it is of the subscription, from 1.
    pub(crate) const NUMBER: i16 = 16;
    /// Kind of event, four bytes.
    pub(crate) const KIND: i16 = 24;
    /// First detail, four bytes.
    pub(crate) const FIRST: i16 = 28;
    /// Second detail.
    pub(crate) const SECOND: i16 = 32;
    /// Which variables there are.
    pub(crate) const KNOWN: i16 = 40;
    /// The variables, eight bytes each.
    pub(crate) const VALUES: i16 = 48;
    /// All of it.
    pub(crate) const SIZE: usize = VALUES as usize + 8 * COUNT;
}

/// A subscription, in the map that this process writes and the programs read.
pub(crate) mod subscription {
    /// Zero, or the token that sockets have to have. Its lower half is the place in the table.
    pub(crate) const TOKEN: i16 = 0;
    /// Kinds of events, four bytes.
    pub(crate) const EVENTS: i16 = 8;
    /// Four bytes, set to one by the program when the socket is gone.
    pub(crate) const ENDED: i16 = 12;
    /// Events so far.
    pub(crate) const NUMBER: i16 = 16;
    /// Of these, without room in the ring.
    pub(crate) const LOST: i16 = 24;
    /// Which ring, four bytes.
    pub(crate) const RING: i16 = 32;
    /// Which variables may be read.
    pub(crate) const KNOWN: i16 = 40;
    /// All of it: a cache line.
    pub(crate) const SIZE: usize = 64;
}

/// What the programs remember of a socket.
pub(crate) mod memory {
    /// Four bytes: 0 unknown, 1 below the threshold, 2 at it or above.
    pub(crate) const SIDE: i16 = 0;
    /// What limits the sender, four bytes; 0 unknown.
    pub(crate) const PHASE: i16 = 4;
    /// When that changed.
    pub(crate) const PHASE_TIME: i16 = 8;
    /// Duplicate ACKs in a row.
    pub(crate) const ROW: i16 = 16;
    /// What is above is of the present subscribers. Counters, in the order of the variables.
    pub(crate) const ACKS_SLOW_START: i16 = 24;
    pub(crate) const ACKS_AVOIDANCE: i16 = 32;
    pub(crate) const ACKS_REPAIR: i16 = 40;
    pub(crate) const DUPLICATES: i16 = 48;
    pub(crate) const FURTHER_DUPLICATES: i16 = 56;
    pub(crate) const PHASE_CHANGES: i16 = 64;
    /// How many of the time-outs that the kernel has counted were told, or [`NOT_LOOKED_AT`].
    pub(crate) const TOLD: i16 = 72;
    /// No program has looked at the socket since it has subscribers; extended by its sign.
    pub(crate) const NOT_LOOKED_AT: i32 = -1;
    /// All of it.
    pub(crate) const SIZE: usize = 80;
}

/// Subscribers of one socket.
pub(crate) mod subscribers {
    /// How many there may be. First is a token of eight bytes for each.
    pub(crate) const MOST: usize = 8;
    /// The epoch in which the tokens were looked at.
    pub(crate) const EPOCH: i16 = 8 * MOST as i16;
    /// Whether any was alive then, eight bytes.
    pub(crate) const ALIVE: i16 = EPOCH + 8;
    /// All of it.
    pub(crate) const SIZE: usize = ALIVE as usize + 8;
}

/// The first entry of the table of subscriptions is nobody's, so that no token is zero.
pub(crate) const FIRST_ENTRY: u32 = 1;

/// Where a variable comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the kernel's `tcp_sock`, and what is done to it.
    Kernel(Field, Scale),
    /// From what the programs remember.
    Memory(i16),
    /// This kernel does not have it.
    Absent,
}

/// From the kernel's unit to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// As it is.
    One,
    /// The kernel keeps eight times the value.
    Eighth,
    /// The kernel keeps four times the value.
    Quarter,
    /// From ticks to microseconds.
    Ticks,
}

/// Where all is on this kernel.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) sources: [Source; COUNT],
    /// Microseconds of a tick.
    pub(crate) tick: u32,
    pub(crate) ca_state: Field,
    pub(crate) pending: Field,
    pub(crate) retransmits: Field,
    pub(crate) backoff: Field,
    /// Count of time-outs: of all, or of those in a row before Linux 6.7.
    pub(crate) timeouts: Field,
    /// Whether it is of all.
    pub(crate) is_total: bool,
    pub(crate) rto: Field,
    pub(crate) cwnd: Field,
    pub(crate) ssthresh: Field,
    pub(crate) snd_una: Field,
    pub(crate) snd_wnd: Field,
    pub(crate) snd_wscale: Field,
    pub(crate) header_length: Field,
    pub(crate) packets_out: Field,
    pub(crate) app_limited: Field,
    pub(crate) chrono_type: Field,
    /// Of `sock`: whether anything hangs on it.
    pub(crate) storage: Field,
    /// Of `sk_buff`.
    pub(crate) skb_data: Field,
    pub(crate) skb_len: Field,
}

impl Layout {
    /// Reads it from the kernel's types. The error names a field that is needed and not there.
    pub(crate) fn read(btf: &Btf, tick: u32) -> Result<Self, String> {
        let need = |structure: &str, path: &str| {
            let field = btf.field(structure, path);
            field.ok_or_else(|| format!("{structure}.{path}"))
        };
        let tcp = |path| need("tcp_sock", path);
        let mut sources = [Source::Absent; COUNT];
        for &variable in Variable::ALL {
            sources[variable as usize] = source(btf, variable);
        }
        let retransmits = tcp("inet_conn.icsk_retransmits")?;
        let total = btf.field("tcp_sock", "total_rto");
        Ok(Self {
            sources,
            tick,
            ca_state: tcp("inet_conn.icsk_ca_state")?,
            pending: tcp("inet_conn.icsk_pending")?,
            retransmits,
            backoff: tcp("inet_conn.icsk_backoff")?,
            timeouts: total.unwrap_or(retransmits),
            is_total: total.is_some(),
            rto: tcp("inet_conn.icsk_rto")?,
            cwnd: tcp("snd_cwnd")?,
            ssthresh: tcp("snd_ssthresh")?,
            snd_una: tcp("snd_una")?,
            snd_wnd: tcp("snd_wnd")?,
            snd_wscale: tcp("rx_opt.snd_wscale")?,
            header_length: tcp("tcp_header_len")?,
            packets_out: tcp("packets_out")?,
            app_limited: tcp("app_limited")?,
            chrono_type: tcp("chrono_type")?,
            storage: need("sock", "sk_bpf_storage")?,
            skb_data: need("sk_buff", "data")?,
            skb_len: need("sk_buff", "len")?,
        })
    }

    /// The variables that this kernel has.
    pub(crate) fn available(&self) -> VariableSet {
        let there = |v: &Variable| self.sources[*v as usize] != Source::Absent;
        Variable::ALL.iter().copied().filter(there).collect()
    }

    /// Writes instructions that load a variable into `to`.
    pub(crate) fn load_variable(&self, a: &mut Asm, number: usize, to: Reg, tcp: Reg, mem: Reg) {
        match self.sources[number] {
            Source::Absent => a.set(to, 0),
            Source::Memory(offset) => a.load(Width::B8, to, mem, offset),
            Source::Kernel(field, scale) => {
                field.load(a, to, tcp);
                match scale {
                    Scale::One => {}
                    Scale::Eighth => a.alu(Op::ShiftRight, to, 3),
                    Scale::Quarter => a.alu(Op::ShiftRight, to, 2),
                    Scale::Ticks => a.alu(Op::Mul, to, self.tick as i32),
                }
            }
        }
    }
}

impl Field {
    /// Writes instructions that load it into `to`, from the structure at `from`.
    pub(crate) fn load(self, a: &mut Asm, to: Reg, from: Reg) {
        let (first, shift) = (self.bit / 8, self.bit % 8);
        let offset = i16::try_from(first).expect("structures of the kernel are small");
        if self.bits == 0 {
            let width = Width::of(self.size).expect("only numbers and pointers are loaded");
            a.load(width, to, from, offset);
            return;
        }
        let bytes = (shift + self.bits).div_ceil(8).next_power_of_two();
        let width = Width::of(bytes).expect("bit fields are of 64 bits at most");
        a.load(width, to, from, offset);
        a.alu(Op::ShiftRight, to, shift as i32);
        a.alu(Op::And, to, (1_i32 << self.bits) - 1);
    }
}

fn source(btf: &Btf, variable: Variable) -> Source {
    use Variable as V;
    let scale = match variable {
        V::Srtt => Scale::Eighth,
        V::RttVar => Scale::Quarter,
        V::Rto => Scale::Ticks,
        _ => Scale::One,
    };
    let path = match variable {
        V::SendWindow => "snd_wnd",
        V::Cwnd => "snd_cwnd",
        V::Ssthresh => "snd_ssthresh",
        V::Rto => "inet_conn.icsk_rto",
        V::Srtt => "srtt_us",
        V::RttVar => "mdev_us",
        V::MinRtt => "rtt_min.s.0.v",
        V::Mss => "mss_cache",
        V::SndUna => "snd_una",
        V::SndNxt => "snd_nxt",
        V::WriteSeq => "write_seq",
        V::BytesAcked => "bytes_acked",
        V::BytesSent => "bytes_sent",
        V::BytesRetrans => "bytes_retrans",
        V::PacketsOut => "packets_out",
        V::SackedOut => "sacked_out",
        V::LostOut => "lost_out",
        V::RetransOut => "retrans_out",
        V::TotalRetrans => "total_retrans",
        V::Delivered => "delivered",
        V::RateDelivered => "rate_delivered",
        V::RateInterval => "rate_interval_us",
        V::RateAppLimited => "rate_app_limited",
        V::CaState => "inet_conn.icsk_ca_state",
        V::Backoff => "inet_conn.icsk_backoff",
        V::Retransmits => "inet_conn.icsk_retransmits",
        V::PacingRate => "inet_conn.icsk_inet.sk.sk_pacing_rate",
        V::SendBuffer => "inet_conn.icsk_inet.sk.sk_sndbuf",
        V::Queued => "inet_conn.icsk_inet.sk.sk_wmem_queued",
        V::State => "inet_conn.icsk_inet.sk.__sk_common.skc_state",
        V::AcksSlowStart => return Source::Memory(memory::ACKS_SLOW_START),
        V::AcksAvoidance => return Source::Memory(memory::ACKS_AVOIDANCE),
        V::AcksRepair => return Source::Memory(memory::ACKS_REPAIR),
        V::Duplicates => return Source::Memory(memory::DUPLICATES),
        V::FurtherDuplicates => return Source::Memory(memory::FURTHER_DUPLICATES),
        V::PhaseChanges => return Source::Memory(memory::PHASE_CHANGES),
    };
    match btf.field("tcp_sock", path) {
        Some(field) if field.bits > 0 || Width::of(field.size).is_some() => {
            Source::Kernel(field, scale)
        }
        _ => Source::Absent,
    }
}
