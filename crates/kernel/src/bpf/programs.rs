//! The programs that run in the kernel.
//!
//! Each is attached to a tracepoint of TCP. It first looks whether somebody has subscribed to the
//! socket, which is a look into the storage that hangs on the socket itself, and returns if
//! nobody has. None of them changes anything that belongs to the kernel.
//!
//! | tracepoint | what comes of it |
//! |---|---|
//! | `tcp_cong_state_set` | time-outs, entry into and end of recovery, reductions; time-outs before that none of these showed |
//! | `tcp_retransmit_skb` | time-outs that the first did not show |
//! | `tcp_probe` (a segment came in) | counters of ACKs, the third duplicate, threshold, phase; time-outs that none of these showed |
//! | `sock_send_length` (the application wrote) | threshold, phase; such time-outs |
//! | `inet_sock_set_state` | states |
//! | `tcp_destroy_sock` | the end |

mod segment;
mod telling;
mod timeout;

use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::asm::{
    Asm, FP, Helper, If, Insn, Label, Op, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, Reg, Width,
};
use super::layout::{Layout, memory, subscribers};
use crate::event::{CaState, EventKind, Phase};

/// The maps that programs use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps<'a> {
    /// Socket storage with the tokens of a socket's subscribers, which only this process writes.
    pub(crate) subscribers: BorrowedFd<'a>,
    /// Socket storage with what the programs remember of a socket.
    pub(crate) memory: BorrowedFd<'a>,
    /// Array of subscriptions.
    pub(crate) subscriptions: BorrowedFd<'a>,
    /// One number, which changes when a subscription ends.
    pub(crate) epoch: BorrowedFd<'a>,
    /// Array of rings.
    pub(crate) rings: BorrowedFd<'a>,
}

/// A program: its tracepoint and its code.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) tracepoint: &'static str,
    /// Without it only phases are told later.
    pub(crate) is_optional: bool,
    pub(crate) code: Vec<Insn>,
}

/// All programs, for the kernel whose layout this is.
pub(crate) fn all(layout: &Layout, maps: Maps<'_>) -> Vec<Program> {
    let writers: [(&'static str, Body); 6] = [
        ("tcp_cong_state_set", congestion_state),
        ("tcp_retransmit_skb", retransmission),
        ("tcp_probe", segment),
        ("sock_send_length", written),
        ("inet_sock_set_state", state),
        ("tcp_destroy_sock", destroyed),
    ];
    let write = |(tracepoint, body): (&'static str, Body)| {
        let mut asm = Asm::default();
        let [leave, emit, refresh] = [(); 3].map(|()| asm.label());
        let mut w = Writer {
            asm,
            layout,
            maps,
            leave,
            emit,
            refresh,
        };
        body(&mut w);
        w.asm.place(leave);
        w.asm.exit_with(0);
        w.asm.place(emit);
        w.deliver();
        w.asm.place(refresh);
        w.look_at_tokens();
        Program {
            tracepoint,
            // Since Linux 6.3.
            is_optional: tracepoint == "sock_send_length",
            code: w.asm.finish(),
        }
    };
    writers.map(write).into()
}

/// What is particular to a program.
type Body = fn(&mut Writer<'_>);

/// Writes one program. After [`Writer::begin`] R6 has the `tcp_sock`, R7 the tokens of the socket's
/// subscribers and R8 what is remembered of it, for the rest of the main function.
struct Writer<'a> {
    asm: Asm,
    layout: &'a Layout,
    maps: Maps<'a>,
    /// Ends the program.
    leave: Label,
    /// The function that tells all subscribers.
    emit: Label,
    /// The function that looks which subscribers are left.
    refresh: Label,
}

/// `tcp_cong_state_set(sk, ca_state)`, called before the state changes and after window and
/// threshold have.
fn congestion_state(w: &mut Writer<'_>) {
    w.keep_argument(1, ARGUMENT);
    w.begin();
    let [known, entry, over, reduced] = [(); 4].map(|()| w.asm.label());
    w.asm.load(Width::B8, R9, FP, ARGUMENT);
    w.layout.ca_state.load(&mut w.asm, R1, R6);
    let a = &mut w.asm;
    a.jump_if(If::Equal, R9, CaState::Recovery as i32, entry);
    a.jump_if(If::Equal, R9, CaState::Loss as i32, known);
    // From repair to anything else: that is over.
    a.jump_if(If::AtLeast, R1, CaState::Recovery as i32, over);
    a.jump_if(If::Equal, R9, CaState::Reducing as i32, reduced);
    a.jump(w.leave);

    // Loss. The timer's handler has taken the timer off the list before it calls; what else leads
    // here (a receiver that takes back selective ACKs, a smaller MTU) leaves it on.
    w.asm.place(known);
    let not_timer = w.asm.label();
    w.layout.pending.load(&mut w.asm, R2, R6);
    w.asm.jump_if(If::Differ, R2, 0, not_timer);
    w.late_timeouts(0);
    // It is counted a little later.
    w.layout.timeouts.load(&mut w.asm, R1, R6);
    w.asm.alu(Op::Add, R1, 1);
    w.asm.store(Width::B8, R8, memory::TOLD, R1);
    w.layout.retransmits.load(&mut w.asm, R4, R6);
    w.asm.alu(Op::Add, R4, 1);
    w.layout.rto.load(&mut w.asm, R5, R6);
    w.asm.alu(Op::Mul, R5, w.layout.tick as i32);
    w.tell(EventKind::Timeout);
    w.asm.store(Width::B8, R8, memory::ROW, 0);
    w.threshold();
    w.asm.jump(w.leave);
    w.asm.place(not_timer);
    w.asm.jump_if(If::Equal, R1, CaState::Loss as i32, w.leave);

    w.asm.place(entry);
    w.asm
        .jump_if(If::Equal, R1, CaState::Recovery as i32, w.leave);
    w.asm.load(Width::B8, R4, R8, memory::ROW);
    w.asm.set(R5, R9);
    w.tell(EventKind::Recovery);
    w.asm.jump(w.leave);

    w.asm.place(over);
    w.asm.set(R4, R1);
    w.asm.set(R5, R9);
    w.tell(EventKind::Recovered);
    w.asm.jump(w.leave);

    w.asm.place(reduced);
    w.asm
        .jump_if(If::Equal, R1, CaState::Reducing as i32, w.leave);
    w.asm.set(R4, 0);
    w.asm.set(R5, 0);
    w.tell(EventKind::Reduced);
}

/// `tcp_retransmit_skb(sk, skb, error)`, called when a segment was sent again. A time-out that was
/// not told when the state was set is told now, a few microseconds later.
fn retransmission(w: &mut Writer<'_>) {
    w.begin();
    w.layout.ca_state.load(&mut w.asm, R1, R6);
    w.asm.jump_if(If::Differ, R1, CaState::Loss as i32, w.leave);
    w.late_timeouts(1);
    w.untold(w.leave);
    w.layout.retransmits.load(&mut w.asm, R4, R6);
    w.layout.rto.load(&mut w.asm, R5, R6);
    w.asm.alu(Op::Mul, R5, w.layout.tick as i32);
    w.tell(EventKind::Timeout);
}

/// `tcp_probe(sk, skb)`, called for each segment of an established connection, before anything is
/// done with it.
fn segment(w: &mut Writer<'_>) {
    w.keep_argument(1, ARGUMENT);
    w.begin();
    w.late_timeouts(0);
    w.acknowledgement();
    w.threshold();
    w.phase();
}

/// `sock_send_length(sk, result, flags)`, called when the application has written.
fn written(w: &mut Writer<'_>) {
    w.begin();
    w.late_timeouts(0);
    w.threshold();
    w.phase();
}

/// `inet_sock_set_state(sk, old, new)`, called before the state changes.
fn state(w: &mut Writer<'_>) {
    w.keep_argument(1, ARGUMENT);
    w.keep_argument(2, ARGUMENT_2);
    w.begin();
    w.asm.load(Width::B8, R4, FP, ARGUMENT);
    w.asm.load(Width::B8, R5, FP, ARGUMENT_2);
    w.tell(EventKind::State);
}

/// `tcp_destroy_sock(sk)`, called when the connection's socket goes.
fn destroyed(w: &mut Writer<'_>) {
    w.begin();
    w.asm.set(R4, 0);
    w.asm.set(R5, 0);
    w.tell(EventKind::Ended);
}

impl Writer<'_> {
    /// Keeps an argument of the tracepoint on the stack. To be called before [`Writer::begin`].
    fn keep_argument(&mut self, number: i16, at: i16) {
        self.asm.load(Width::B8, R2, R1, 8 * number);
        self.asm.store(Width::B8, FP, at, R2);
    }

    /// Ends the program unless the socket has subscribers.
    fn begin(&mut self) {
        self.asm.load(Width::B8, R6, R1, 0);
        // Most sockets have no storage at all, which one load tells; a look-up costs a call.
        self.layout.storage.load(&mut self.asm, R1, R6);
        let a = &mut self.asm;
        a.jump_if(If::Equal, R1, 0, self.leave);
        storage(a, self.maps.subscribers, R7, self.leave);
        // Subscriptions end without their sockets being at hand, so tokens may be dead.
        let fresh = a.label();
        a.only_value(R1, self.maps.epoch.as_raw_fd());
        a.load(Width::B8, R1, R1, 0);
        a.load(Width::B8, R2, R7, subscribers::EPOCH);
        a.jump_if(If::Equal, R1, R2, fresh);
        a.set(R1, R7);
        a.call_local(self.refresh);
        a.place(fresh);
        a.load(Width::B8, R1, R7, subscribers::ALIVE);
        a.jump_if(If::Equal, R1, 0, self.leave);
        storage(a, self.maps.memory, R8, self.leave);
        a.set(R1, R6);
        a.call(Helper::SkcToTcpSock);
        a.jump_if(If::Equal, R0, 0, self.leave);
        a.set(R6, R0);
    }

    /// Tells the subscribers, with the details in R4 (32 bits) and R5. Destroys R0 to R5.
    fn tell(&mut self, kind: EventKind) {
        let a = &mut self.asm;
        // Kind and first detail share an argument, since functions have five.
        a.alu(Op::ShiftLeft, R4, 32);
        a.alu(Op::Or, R4, kind as i32);
        a.set(R1, R6);
        a.set(R2, R7);
        a.set(R3, R8);
        a.call_local(self.emit);
    }

    /// Tells when the window has reached the threshold. One that shrinks to it does not count.
    fn threshold(&mut self) {
        let [past, below, shrinks] = [(); 3].map(|()| self.asm.label());
        self.layout.ca_state.load(&mut self.asm, R1, R6);
        self.layout.cwnd.load(&mut self.asm, R2, R6);
        self.layout.ssthresh.load(&mut self.asm, R3, R6);
        let a = &mut self.asm;
        a.jump_if(If::Equal, R1, CaState::Recovery as i32, shrinks);
        a.jump_if(If::Equal, R1, CaState::Reducing as i32, shrinks);
        a.jump_if(If::Below, R2, R3, below);
        a.load(Width::B4, R4, R8, memory::SIDE);
        a.store(Width::B4, R8, memory::SIDE, AT_THRESHOLD);
        a.jump_if(If::Differ, R4, BELOW_THRESHOLD, past);
        a.set(R4, 0);
        a.set(R5, 0);
        self.tell(EventKind::Threshold);
        self.asm.jump(past);
        self.asm.place(shrinks);
        self.asm.store(Width::B4, R8, memory::SIDE, AT_THRESHOLD);
        self.asm.jump(past);
        self.asm.place(below);
        self.asm.store(Width::B4, R8, memory::SIDE, BELOW_THRESHOLD);
        self.asm.place(past);
    }

    /// Tells when what limits the sender has changed, if the change before was long enough ago.
    fn phase(&mut self) {
        let [chosen, application, past] = [(); 3].map(|()| self.asm.label());
        self.layout.chrono_type.load(&mut self.asm, R1, R6);
        self.layout.app_limited.load(&mut self.asm, R2, R6);
        let a = &mut self.asm;
        // `enum tcp_chrono` of `linux/tcp.h`: what keeps the sender waiting.
        a.set(R9, Phase::Receiver as i32);
        a.jump_if(If::Equal, R1, 2, chosen);
        a.set(R9, Phase::SendBuffer as i32);
        a.jump_if(If::Equal, R1, 3, chosen);
        a.jump_if(If::Differ, R2, 0, application);
        a.set(R9, Phase::Network as i32);
        a.jump(chosen);
        a.place(application);
        a.set(R9, Phase::Application as i32);
        a.place(chosen);
        a.load(Width::B4, R4, R8, memory::PHASE);
        a.jump_if(If::Equal, R4, R9, past);
        a.call(Helper::KtimeGetNs);
        a.load(Width::B8, R2, R8, memory::PHASE_TIME);
        a.alu(Op::Add, R2, PHASE_LEAST);
        a.jump_if(If::Below, R0, R2, past);
        a.store(Width::B8, R8, memory::PHASE_TIME, R0);
        self.count(memory::PHASE_CHANGES);
        let a = &mut self.asm;
        a.load(Width::B4, R4, R8, memory::PHASE);
        a.store(Width::B4, R8, memory::PHASE, R9);
        a.set(R5, R9);
        self.tell(EventKind::Phase);
        self.asm.place(past);
    }

    /// Adds one to a counter of the socket, which is locked. Destroys R0.
    fn count(&mut self, counter: i16) {
        self.asm.load(Width::B8, R0, R8, counter);
        self.asm.alu(Op::Add, R0, 1);
        self.asm.store(Width::B8, R8, counter, R0);
    }
}

/// Looks up what hangs on the socket in R6, or goes to `leave`.
fn storage(a: &mut Asm, map: BorrowedFd<'_>, into: Reg, leave: Label) {
    a.map(R1, map.as_raw_fd());
    a.set(R2, R6);
    a.set(R3, 0);
    a.set(R4, 0);
    a.call(Helper::SkStorageGet);
    a.jump_if(If::Equal, R0, 0, leave);
    a.set(into, R0);
}

// The stack of a main function: two arguments of the tracepoint and a TCP header.
const ARGUMENT: i16 = -8;
const ARGUMENT_2: i16 = -16;
const HEADER: i16 = -40;

const BELOW_THRESHOLD: i32 = 1;
const AT_THRESHOLD: i32 = 2;

/// How long a phase lasts at least before the next is told, in ns, so that an application that
/// writes in small pieces gets no storm.
const PHASE_LEAST: i32 = 1_000_000;
