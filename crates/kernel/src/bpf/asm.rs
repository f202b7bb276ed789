//! A small assembler for BPF.
//!
//! The programs are a few hundred instructions whose offsets are only known on the machine they run
//! on, so they are put together when they are loaded. That needs neither clang nor an object file,
//! and the offsets need no relocation. Encodings are those of RFC 9669.

/// One instruction as the kernel takes it (RFC 9669 section 3).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Insn {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg(u8);

/// Result of a call.
pub(crate) const R0: Reg = Reg(0);
/// First argument; calls destroy this and those up to [`R5`].
pub(crate) const R1: Reg = Reg(1);
/// Second argument.
pub(crate) const R2: Reg = Reg(2);
/// Third argument.
pub(crate) const R3: Reg = Reg(3);
/// Fourth argument.
pub(crate) const R4: Reg = Reg(4);
/// Fifth argument.
pub(crate) const R5: Reg = Reg(5);
/// Kept over calls, as are those up to [`R9`].
pub(crate) const R6: Reg = Reg(6);
/// Kept over calls.
pub(crate) const R7: Reg = Reg(7);
/// Kept over calls.
pub(crate) const R8: Reg = Reg(8);
/// Kept over calls.
pub(crate) const R9: Reg = Reg(9);
/// End of the stack frame.
pub(crate) const FP: Reg = Reg(10);

/// Width of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// One byte.
    B1,
    /// Two.
    B2,
    /// Four.
    B4,
    /// Eight.
    B8,
}

impl Width {
    /// That of so many bytes.
    pub(crate) fn of(bytes: u32) -> Option<Self> {
        Some(match bytes {
            1 => Self::B1,
            2 => Self::B2,
            4 => Self::B4,
            8 => Self::B8,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::B4 => 0x00,
            Self::B2 => 0x08,
            Self::B1 => 0x10,
            Self::B8 => 0x18,
        }
    }
}

/// What is computed (RFC 9669 section 4.1), on 64 bits unless it says otherwise.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Op {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Negate = 0x80,
    Move = 0xb0,
    ShiftRightSigned = 0xc0,
}

/// When a jump is taken (RFC 9669 section 4.3).
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum If {
    Equal = 0x10,
    Above = 0x20,
    AtLeast = 0x30,
    Differ = 0x50,
    AboveSigned = 0x60,
    Below = 0xa0,
}

/// A register or a constant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    /// The register's value.
    Reg(Reg),
    /// The constant, extended by its sign.
    Number(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Self {
        Self::Number(number)
    }
}

/// A place in a program, which may be placed after it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// Helpers of the kernel that the programs call, by their numbers in `linux/bpf.h`.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Helper {
    MapLookup = 1,
    KtimeGetNs = 5,
    SkStorageGet = 107,
    ProbeReadKernel = 113,
    RingbufReserve = 131,
    RingbufSubmit = 132,
    SkcToTcpSock = 137,
}

/// Puts a program together.
#[derive(Debug, Default)]
pub(crate) struct Asm {
    code: Vec<Insn>,
    /// Where each label is.
    labels: Vec<Option<usize>>,
    /// Jumps and calls whose target is to be filled in.
    open: Vec<(usize, Label)>,
}

impl Asm {
    /// A label without a place.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label here.
    pub(crate) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// Computes on 64 bits: `to = to op by`.
    pub(crate) fn alu(&mut self, op: Op, to: Reg, by: impl Into<Operand>) {
        self.compute(ALU64, op, to, by.into());
    }

    /// Computes on the lower 32 bits; the upper ones become zero.
    pub(crate) fn alu32(&mut self, op: Op, to: Reg, by: impl Into<Operand>) {
        self.compute(ALU32, op, to, by.into());
    }

    /// `to = from`.
    pub(crate) fn set(&mut self, to: Reg, from: impl Into<Operand>) {
        self.alu(Op::Move, to, from);
    }

    /// Turns the lowest 16 or 32 bits from network order into a number.
    pub(crate) fn network_to_host(&mut self, reg: Reg, bits: i32) {
        self.push(ALU32 | 0xd0 | FROM_REG, reg, Reg(0), 0, bits);
    }

    /// `to = *(from + offset)`, without a sign.
    pub(crate) fn load(&mut self, width: Width, to: Reg, from: Reg, offset: i16) {
        self.push(0x61 | width.bits(), to, from, offset, 0);
    }

    /// `*(to + offset) = from`.
    pub(crate) fn store(&mut self, width: Width, to: Reg, offset: i16, from: impl Into<Operand>) {
        match from.into() {
            Operand::Reg(from) => self.push(0x63 | width.bits(), to, from, offset, 0),
            Operand::Number(n) => self.push(0x62 | width.bits(), to, Reg(0), offset, n),
        }
    }

    /// Adds a register to eight bytes of memory, atomically; it gets what was there before.
    pub(crate) fn fetch_add(&mut self, to: Reg, offset: i16, by: Reg) {
        self.push(0xdb, to, by, offset, 0x01);
    }

    /// Goes to a label.
    pub(crate) fn jump(&mut self, to: Label) {
        self.open.push((self.code.len(), to));
        self.push(0x05, Reg(0), Reg(0), 0, 0);
    }

    /// Goes to a label if `left` compares so with `right`, as 64-bit numbers.
    pub(crate) fn jump_if(&mut self, when: If, left: Reg, right: impl Into<Operand>, to: Label) {
        self.open.push((self.code.len(), to));
        match right.into() {
            Operand::Reg(right) => self.push(0x05 | FROM_REG | when as u8, left, right, 0, 0),
            Operand::Number(n) => self.push(0x05 | when as u8, left, Reg(0), 0, n),
        }
    }

    /// Calls the kernel.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(0x85, Reg(0), Reg(0), 0, helper as i32);
    }

    /// Calls a function of the program itself.
    pub(crate) fn call_local(&mut self, function: Label) {
        self.open.push((self.code.len(), function));
        self.push(CALL, Reg(0), Reg(1), 0, 0);
    }

    /// Loads the address of the map with this descriptor.
    pub(crate) fn map(&mut self, to: Reg, fd: i32) {
        // Two slots of eight bytes; the source 1 says that the number is a descriptor of a map.
        self.push(0x18, to, Reg(1), 0, fd);
        self.push(0, Reg(0), Reg(0), 0, 0);
    }

    /// Loads the address of the value of the array with this descriptor, which has one.
    pub(crate) fn only_value(&mut self, to: Reg, fd: i32) {
        // As above; the source 2 says so, and the second number is an offset.
        self.push(0x18, to, Reg(2), 0, fd);
        self.push(0, Reg(0), Reg(0), 0, 0);
    }

    /// Ends the function.
    pub(crate) fn exit(&mut self) {
        self.push(0x95, Reg(0), Reg(0), 0, 0);
    }

    /// Ends the function with this result.
    pub(crate) fn exit_with(&mut self, result: i32) {
        self.set(R0, result);
        self.exit();
    }

    /// The program, with every target filled in.
    pub(crate) fn finish(mut self) -> Vec<Insn> {
        for (at, label) in self.open {
            let target = self.labels[label.0].expect("every label that is used has a place");
            let distance = target as i64 - at as i64 - 1;
            let insn = &mut self.code[at];
            if insn.code == CALL {
                insn.immediate = i32::try_from(distance).expect("programs are short");
            } else {
                insn.offset = i16::try_from(distance).expect("programs are short");
            }
        }
        self.code
    }

    fn compute(&mut self, class: u8, op: Op, to: Reg, by: Operand) {
        match by {
            Operand::Reg(by) => self.push(class | FROM_REG | op as u8, to, by, 0, 0),
            Operand::Number(n) => self.push(class | op as u8, to, Reg(0), 0, n),
        }
    }

    fn push(&mut self, code: u8, to: Reg, from: Reg, offset: i16, immediate: i32) {
        self.code.push(Insn {
            code,
            registers: to.0 | from.0 << 4,
            offset,
            immediate,
        });
    }
}

const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const FROM_REG: u8 = 0x08;
const CALL: u8 = 0x85;

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that `llvm-mc` writes for the same lines.
    #[test]
    fn encodings_are_those_of_other_assemblers() {
        let mut a = Asm::default();
        let end = a.label();
        a.set(R6, R1);
        a.load(Width::B8, R2, R6, 16);
        a.store(Width::B4, FP, -4, 7);
        a.alu32(Op::Sub, R2, R3);
        a.jump_if(If::Differ, R2, 3, end);
        a.fetch_add(R9, 16, R1);
        a.network_to_host(R4, 32);
        a.call(Helper::KtimeGetNs);
        a.place(end);
        a.exit_with(0);
        let bytes: Vec<[u8; 8]> = a.finish().into_iter().map(bytes).collect();
        assert_eq!(
            bytes,
            [
                [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
                [0x79, 0x62, 16, 0, 0, 0, 0, 0],
                [0x62, 0x0a, 0xfc, 0xff, 7, 0, 0, 0],
                [0x1c, 0x32, 0, 0, 0, 0, 0, 0],
                [0x55, 0x02, 3, 0, 3, 0, 0, 0],
                [0xdb, 0x19, 16, 0, 1, 0, 0, 0],
                [0xdc, 0x04, 0, 0, 32, 0, 0, 0],
                [0x85, 0, 0, 0, 5, 0, 0, 0],
                [0xb7, 0, 0, 0, 0, 0, 0, 0],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    fn bytes(insn: Insn) -> [u8; 8] {
        let [o0, o1] = insn.offset.to_le_bytes();
        let [i0, i1, i2, i3] = insn.immediate.to_le_bytes();
        [insn.code, insn.registers, o0, o1, i0, i1, i2, i3]
    }
}
