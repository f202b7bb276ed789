//! What a segment that comes in acknowledges.

use super::{ARGUMENT, HEADER, Writer};
use crate::bpf::asm::{FP, Helper, If, Label, Op, R0, R1, R2, R3, R4, R5, R6, R8, R9, Width};
use crate::bpf::layout::memory;
use crate::event::{CaState, EventKind};

impl Writer<'_> {
    /// Counts what the segment at [`ARGUMENT`] acknowledges, and tells of the third duplicate.
    pub(super) fn acknowledgement(&mut self) {
        let [past, fresh, duplicate] = [(); 3].map(|()| self.asm.label());
        self.asm.load(Width::B8, R9, FP, ARGUMENT);
        self.layout.skb_data.load(&mut self.asm, R3, R9);
        self.layout.skb_len.load(&mut self.asm, R9, R9);
        let a = &mut self.asm;
        a.set(R1, FP);
        a.alu(Op::Add, R1, i32::from(HEADER));
        a.set(R2, 20);
        a.call(Helper::ProbeReadKernel);
        a.jump_if(If::Differ, R0, 0, past);
        // RFC 9293 section 3.1: flags are byte 13, ACK is 16; SYN, FIN and RST are 7.
        a.load(Width::B1, R1, FP, HEADER + 13);
        a.set(R2, R1);
        a.alu(Op::And, R2, 16);
        a.jump_if(If::Equal, R2, 0, past);
        a.load(Width::B4, R2, FP, HEADER + 8);
        a.network_to_host(R2, 32);
        self.layout.snd_una.load(&mut self.asm, R3, R6);
        let a = &mut self.asm;
        a.alu32(Op::Sub, R2, R3);
        a.jump_if(If::Equal, R2, 0, duplicate);
        // As a signed distance, because sequence numbers wrap.
        a.alu(Op::ShiftLeft, R2, 32);
        a.alu(Op::ShiftRightSigned, R2, 32);
        a.jump_if(If::AboveSigned, R2, 0, fresh);
        a.jump(past);

        self.asm.place(fresh);
        self.fresh(past);
        self.asm.place(duplicate);
        self.duplicate(past);
        self.asm.place(past);
    }

    /// An acknowledgement of something new, in the phase in which it finds the sender.
    fn fresh(&mut self, past: Label) {
        let [repair, slow] = [(); 2].map(|()| self.asm.label());
        self.asm.store(Width::B8, R8, memory::ROW, 0);
        if !self.layout.is_total {
            // The row begins anew.
            self.asm.store(Width::B8, R8, memory::TOLD, 0);
        }
        self.layout.ca_state.load(&mut self.asm, R1, R6);
        self.layout.cwnd.load(&mut self.asm, R2, R6);
        self.layout.ssthresh.load(&mut self.asm, R3, R6);
        let a = &mut self.asm;
        a.jump_if(If::Equal, R1, CaState::Recovery as i32, repair);
        a.jump_if(If::Equal, R1, CaState::Reducing as i32, repair);
        a.jump_if(If::Below, R2, R3, slow);
        self.count(memory::ACKS_AVOIDANCE);
        self.asm.jump(past);
        self.asm.place(slow);
        self.count(memory::ACKS_SLOW_START);
        self.asm.jump(past);
        self.asm.place(repair);
        self.count(memory::ACKS_REPAIR);
        self.asm.jump(past);
    }

    /// Perhaps a duplicate: no data, no flags, something is out, and either the header is longer
    /// than usual, which is to say that it acknowledges selectively (RFC 6675 section 2), or the
    /// window is the same (RFC 5681 section 2). Flags are in R1, the length of the segment in R9.
    fn duplicate(&mut self, past: Label) {
        let [is_one, further, third] = [(); 3].map(|()| self.asm.label());
        self.asm.alu(Op::And, R1, 7);
        self.asm.jump_if(If::Differ, R1, 0, past);
        self.asm.load(Width::B1, R1, FP, HEADER + 12);
        self.asm.alu(Op::ShiftRight, R1, 4);
        self.asm.alu(Op::ShiftLeft, R1, 2);
        self.asm.jump_if(If::Differ, R1, R9, past);
        self.layout.packets_out.load(&mut self.asm, R1, R6);
        self.asm.jump_if(If::Equal, R1, 0, past);
        self.layout.header_length.load(&mut self.asm, R1, R6);
        self.asm.jump_if(If::Above, R9, R1, is_one);
        self.asm.load(Width::B2, R1, FP, HEADER + 14);
        self.asm.network_to_host(R1, 16);
        self.layout.snd_wscale.load(&mut self.asm, R2, R6);
        self.layout.snd_wnd.load(&mut self.asm, R3, R6);
        let a = &mut self.asm;
        a.alu(Op::ShiftLeft, R1, R2);
        a.jump_if(If::Differ, R1, R3, past);
        a.place(is_one);
        self.count(memory::DUPLICATES);
        self.count(memory::ROW);
        self.asm.load(Width::B8, R1, R8, memory::ROW);
        self.asm.jump_if(If::Equal, R1, 3, third);
        self.asm.jump_if(If::Above, R1, 3, further);
        self.asm.jump(past);
        self.asm.place(further);
        self.count(memory::FURTHER_DUPLICATES);
        self.asm.jump(past);
        self.asm.place(third);
        self.asm.set(R4, 0);
        self.asm.set(R5, 0);
        self.tell(EventKind::ThirdDuplicate);
    }
}
