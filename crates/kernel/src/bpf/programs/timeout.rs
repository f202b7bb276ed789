//! Time-outs that no program saw as they happened.

use super::Writer;
use crate::bpf::asm::{If, Label, Op, R1, R2, R4, R5, R6, R8, R9, Width};
use crate::bpf::layout::memory;
use crate::event::EventKind;

impl Writer<'_> {
    /// Goes to `past` if all time-outs that the kernel has counted are told, and notes that they
    /// are otherwise. Destroys R1 and R2.
    pub(super) fn untold(&mut self, past: Label) {
        self.layout.timeouts.load(&mut self.asm, R1, R6);
        let a = &mut self.asm;
        a.load(Width::B8, R2, R8, memory::TOLD);
        a.jump_if(If::AtLeast, R2, R1, past);
        a.store(Width::B8, R8, memory::TOLD, R1);
    }

    /// Tells the last [`MOST`] of the time-outs at which the kernel ran none of the programs. It
    /// happens: once in some hundred time-outs, see `docs/itcp.md`. `present` is 1 where the kernel
    /// has counted one that is happening, which is not told here, and else 0. Destroys R9 too.
    pub(super) fn late_timeouts(&mut self, present: i32) {
        let [some, past] = [(); 2].map(|()| self.asm.label());
        self.first_look(present, past);
        self.layout.timeouts.load(&mut self.asm, R1, R6);
        let a = &mut self.asm;
        a.alu(Op::Sub, R1, present);
        a.load(Width::B8, R2, R8, memory::TOLD);
        a.set(R9, R1);
        a.alu(Op::Sub, R9, R2);
        a.jump_if(If::AboveSigned, R9, 0, some);
        a.jump(past);
        a.place(some);
        a.store(Width::B8, R8, memory::TOLD, R1);
        for back in (1..=MOST).rev() {
            let next = self.asm.label();
            self.asm.jump_if(If::Below, R9, back, next);
            self.late_timeout(back, present);
            self.asm.place(next);
        }
        self.asm.place(past);
    }

    /// On the first look since the socket has subscribers again, notes how many time-outs are nobody's
    /// and goes to `past`. It is done here because who subscribes cannot ask the kernel: it answers
    /// only once the socket is not locked, and the owner decides how long it is.
    fn first_look(&mut self, present: i32, past: Label) {
        let [known, all] = [(); 2].map(|()| self.asm.label());
        self.asm.load(Width::B8, R2, R8, memory::TOLD);
        self.asm
            .jump_if(If::Differ, R2, memory::NOT_LOOKED_AT, known);
        self.layout.timeouts.load(&mut self.asm, R1, R6);
        if present != 0 {
            // One is happening only in the timer's handler, which has taken the timer off the list.
            self.layout.pending.load(&mut self.asm, R2, R6);
            self.asm.jump_if(If::Differ, R2, 0, all);
            self.asm.alu(Op::Sub, R1, present);
        }
        self.asm.place(all);
        self.asm.store(Width::B8, R8, memory::TOLD, R1);
        self.asm.jump(past);
        self.asm.place(known);
    }

    /// Tells the time-out that is so many back from the last one but `present`.
    fn late_timeout(&mut self, back: i32, present: i32) {
        let [counted, undoubled] = [(); 2].map(|()| self.asm.label());
        self.layout.retransmits.load(&mut self.asm, R4, R6);
        self.asm.alu(Op::Sub, R4, present + back - 1);
        // An acknowledgement may have reset the row.
        self.asm.jump_if(If::AboveSigned, R4, 0, counted);
        self.asm.set(R4, 1);
        self.asm.place(counted);
        self.layout.rto.load(&mut self.asm, R5, R6);
        self.asm.alu(Op::Mul, R5, self.layout.tick as i32);
        // It was doubled after each.
        self.layout.backoff.load(&mut self.asm, R1, R6);
        self.asm.jump_if(If::Below, R1, back, undoubled);
        self.asm.alu(Op::ShiftRight, R5, back);
        self.asm.place(undoubled);
        self.tell(EventKind::Timeout);
    }
}

/// How many are told of a series that nobody saw. Of a longer one the numbers in a row tell.
const MOST: i32 = 4;
