//! The functions that tell subscribers, and look which of them are left.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::Writer;
use crate::bpf::asm::{
    Asm, FP, Helper, If, Op, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, Reg, Width,
};
use crate::bpf::layout::{Source, record, subscribers, subscription};
use crate::event::EventKind;
use crate::variables::COUNT;

impl Writer<'_> {
    /// The function that tells all subscribers: the connection in R1, their tokens in R2, what is
    /// remembered in R3, the kind and the first detail in R4, the second in R5.
    pub(super) fn deliver(&mut self) {
        self.snapshot();
        let [next, fits, end, lost] = [(); 4].map(|()| self.asm.label());
        let a = &mut self.asm;
        a.set(R7, 0);
        a.place(next);
        a.jump_if(If::Equal, R7, 8 * subscribers::MOST as i32, end);
        a.set(R1, R6);
        a.alu(Op::Add, R1, R7);
        a.alu(Op::Add, R7, 8);
        a.load(Width::B8, R8, R1, 0);
        a.jump_if(If::Equal, R8, 0, next);
        lookup(a, self.maps.subscriptions, R8);
        a.jump_if(If::Equal, R0, 0, next);
        a.set(R9, R0);
        a.load(Width::B8, R1, R9, subscription::TOKEN);
        a.jump_if(If::Differ, R1, R8, next);
        a.load(Width::B4, R1, FP, KIND);
        a.load(Width::B4, R2, R9, subscription::EVENTS);
        a.alu(Op::ShiftRight, R2, R1);
        a.alu(Op::And, R2, 1);
        a.jump_if(If::Equal, R2, 0, next);
        let stays = a.label();
        a.jump_if(If::Differ, R1, EventKind::Ended as i32, stays);
        a.store(Width::B4, R9, subscription::ENDED, 1);
        a.place(stays);
        a.set(R8, 1);
        a.fetch_add(R9, subscription::NUMBER, R8);
        a.alu(Op::Add, R8, 1);
        a.load(Width::B4, R1, R9, subscription::RING);
        lookup(a, self.maps.rings, R1);
        a.jump_if(If::Equal, R0, 0, lost);
        a.set(R1, R0);
        a.set(R2, record::SIZE as i32);
        a.set(R3, 0);
        a.call(Helper::RingbufReserve);
        a.jump_if(If::Differ, R0, 0, fits);
        a.place(lost);
        a.set(R1, 1);
        a.fetch_add(R9, subscription::LOST, R1);
        a.jump(next);
        a.place(fits);
        self.fill();
        let a = &mut self.asm;
        a.set(R1, R0);
        a.set(R2, 0);
        a.call(Helper::RingbufSubmit);
        a.jump(next);
        a.place(end);
        a.exit_with(0);
    }

    /// The function that notes which tokens in R1 are alive, and in which epoch. This process
    /// replaces tokens as a whole and never changes them in place, so nothing of its is
    /// overwritten.
    pub(super) fn look_at_tokens(&mut self) {
        let a = &mut self.asm;
        let [next, dead, end] = [(); 3].map(|()| a.label());
        a.set(R6, R1);
        a.only_value(R1, self.maps.epoch.as_raw_fd());
        // Before the tokens: what ends meanwhile begins another epoch.
        a.load(Width::B8, R8, R1, 0);
        a.set(R9, 0);
        a.set(R7, 0);
        a.place(next);
        a.jump_if(If::Equal, R7, 8 * subscribers::MOST as i32, end);
        a.set(R1, R6);
        a.alu(Op::Add, R1, R7);
        a.alu(Op::Add, R7, 8);
        a.load(Width::B8, R2, R1, 0);
        a.jump_if(If::Equal, R2, 0, next);
        a.store(Width::B8, FP, SLOT, R1);
        a.store(Width::B8, FP, TOKEN, R2);
        lookup(a, self.maps.subscriptions, R2);
        a.jump_if(If::Equal, R0, 0, dead);
        a.load(Width::B8, R1, R0, subscription::TOKEN);
        a.load(Width::B8, R2, FP, TOKEN);
        a.jump_if(If::Differ, R1, R2, dead);
        a.set(R9, 1);
        a.jump(next);
        a.place(dead);
        a.load(Width::B8, R1, FP, SLOT);
        a.store(Width::B8, R1, 0, 0);
        a.jump(next);
        a.place(end);
        a.store(Width::B8, R6, subscribers::EPOCH, R8);
        a.store(Width::B8, R6, subscribers::ALIVE, R9);
        a.exit_with(0);
    }

    /// Takes the time and the variables, and leaves the tokens in R6.
    fn snapshot(&mut self) {
        let a = &mut self.asm;
        a.set(R6, R2);
        a.set(R8, R1);
        a.set(R9, R3);
        a.store(Width::B8, FP, KIND, R4);
        a.store(Width::B8, FP, SECOND, R5);
        a.call(Helper::KtimeGetNs);
        a.store(Width::B8, FP, TIME, R0);
        for number in 0..COUNT {
            let at = VALUES + 8 * number as i16;
            if self.layout.sources[number] == Source::Absent {
                self.asm.store(Width::B8, FP, at, 0);
            } else {
                self.layout.load_variable(&mut self.asm, number, R1, R8, R9);
                self.asm.store(Width::B8, FP, at, R1);
            }
        }
    }

    /// Fills the record at R0 for the subscription at R9, with the number in R8. A variable that
    /// the subscriber may not read becomes zero, without a branch.
    fn fill(&mut self) {
        let a = &mut self.asm;
        for (from, to) in [
            (TIME, record::TIME),
            (KIND, record::KIND),
            (SECOND, record::SECOND),
        ] {
            a.load(Width::B8, R1, FP, from);
            a.store(Width::B8, R0, to, R1);
        }
        a.load(Width::B8, R1, R9, subscription::TOKEN);
        a.store(Width::B8, R0, record::TOKEN, R1);
        a.store(Width::B8, R0, record::NUMBER, R8);
        a.load(Width::B8, R2, R9, subscription::KNOWN);
        a.store(Width::B8, R0, record::KNOWN, R2);
        for number in 0..COUNT as i16 {
            a.load(Width::B8, R1, FP, VALUES + 8 * number);
            a.set(R3, R2);
            a.alu(Op::ShiftRight, R3, i32::from(number));
            a.alu(Op::And, R3, 1);
            a.alu(Op::Negate, R3, 0);
            a.alu(Op::And, R1, R3);
            a.store(Width::B8, R0, record::VALUES + 8 * number, R1);
        }
    }
}

/// Looks up the lower half of `key` in an array; R0 gets the place or zero.
fn lookup(a: &mut Asm, map: BorrowedFd<'_>, key: Reg) {
    a.store(Width::B4, FP, KEY, key);
    a.map(R1, map.as_raw_fd());
    a.set(R2, FP);
    a.alu(Op::Add, R2, i32::from(KEY));
    a.call(Helper::MapLookup);
}

// The stack of the function that tells. Kind and first detail are one number.
const KEY: i16 = -8;
const TIME: i16 = -16;
const KIND: i16 = -24;
const SECOND: i16 = -32;
const VALUES: i16 = -32 - 8 * COUNT as i16;

// The stack of the function that looks at tokens, which begins with a key too.
const SLOT: i16 = -16;
const TOKEN: i16 = -24;
