//! BTF, the kernel's description of its own types: where a field lies on this kernel.

use std::fmt;

/// The types of a kernel.
#[derive(Debug)]
pub(crate) struct Btf {
    bytes: Vec<u8>,
    /// Where each type begins in `bytes`; type 0 is `void` and has no place.
    types: Vec<usize>,
    strings: usize,
}

impl Btf {
    /// Reads what `/sys/kernel/btf/vmlinux` has.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        // Kernels write in their own order of bytes, and only theirs is looked for.
        if word(&bytes, 0)? & 0xffff != 0xeb9f {
            return Err(BtfError::Malformed("it does not begin as BTF does"));
        }
        let header = word(&bytes, 4)? as usize;
        let first = header + word(&bytes, 8)? as usize;
        let end = first + word(&bytes, 12)? as usize;
        let strings = header + word(&bytes, 16)? as usize;
        let mut types = vec![0];
        let mut at = first;
        while at < end {
            types.push(at);
            at += 12 + tail(word(&bytes, at + 4)?)?;
        }
        Ok(Self {
            bytes,
            types,
            strings,
        })
    }

    /// The number of the type to which programs for this tracepoint attach.
    pub(crate) fn tracepoint(&self, name: &str) -> Option<u32> {
        self.find(&format!("btf_trace_{name}"), &[TYPEDEF])
    }

    /// Where a field lies, by the name of its structure and the way to it, as in
    /// `tcp_sock` and `inet_conn.icsk_rto`. A number is an index into an array.
    pub(crate) fn field(&self, structure: &str, path: &str) -> Option<Field> {
        let mut id = self.find(structure, &[STRUCT])?;
        let mut field = Field::default();
        for name in path.split('.') {
            let kind = self.kind(id)?;
            if kind == ARRAY {
                let at = self.at(id)? + 12;
                id = self.resolve(word(&self.bytes, at).ok()?)?;
                field.bit += name.parse::<u32>().ok()? * self.size(id)? * 8;
            } else {
                let (member, bit, bits) = self.member(id, name)?;
                field.bit += bit;
                field.bits = bits;
                id = self.resolve(member)?;
            }
        }
        field.size = self.size(id)?;
        Some(field)
    }

    /// A member of a structure, also of nameless ones within: its type, place and bits.
    fn member(&self, id: u32, name: &str) -> Option<(u32, u32, u32)> {
        let at = self.at(id)?;
        let info = word(&self.bytes, at + 4).ok()?;
        let with_bits = info >> 31 == 1;
        for number in 0..(info & 0xffff) as usize {
            let at = at + 12 + 12 * number;
            let [called, kind, place] = [0, 4, 8].map(|o| word(&self.bytes, at + o));
            let (called, kind, place) = (called.ok()?, kind.ok()?, place.ok()?);
            let (bit, bits) = if with_bits {
                (place & 0xff_ffff, place >> 24)
            } else {
                (place, 0)
            };
            if self.string(called) == name.as_bytes() {
                return Some((kind, bit, bits));
            }
            if called == 0 {
                let inner = self.resolve(kind)?;
                if let Some((kind, more, bits)) = self.member(inner, name) {
                    return Some((kind, bit + more, bits));
                }
            }
        }
        None
    }

    fn find(&self, name: &str, kinds: &[u32]) -> Option<u32> {
        (1..self.types.len() as u32).find(|&id| {
            let at = self.types[id as usize];
            let named = word(&self.bytes, at).is_ok_and(|n| self.string(n) == name.as_bytes());
            named && self.kind(id).is_some_and(|kind| kinds.contains(&kind))
        })
    }

    /// Past typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Option<u32> {
        while [TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG].contains(&self.kind(id)?) {
            id = word(&self.bytes, self.at(id)? + 8).ok()?;
        }
        Some(id)
    }

    /// In bytes.
    fn size(&self, id: u32) -> Option<u32> {
        if self.kind(id)? == POINTER {
            return Some(8);
        }
        word(&self.bytes, self.at(id)? + 8).ok()
    }

    fn kind(&self, id: u32) -> Option<u32> {
        let info = word(&self.bytes, self.at(id)? + 4).ok()?;
        Some(info >> 24 & 0x1f)
    }

    fn at(&self, id: u32) -> Option<usize> {
        (id != 0).then(|| self.types.get(id as usize).copied())?
    }

    fn string(&self, offset: u32) -> &[u8] {
        let from = self.strings + offset as usize;
        let rest = self.bytes.get(from..).unwrap_or_default();
        rest.split(|&b| b == 0).next().unwrap_or_default()
    }
}

/// Where a field is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Field {
    /// First bit, from the start of the structure.
    pub(crate) bit: u32,
    /// Number of bits if it is not a whole type, else 0.
    pub(crate) bits: u32,
    /// Size of its type, in bytes.
    pub(crate) size: u32,
}

/// Why there are no types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BtfError {
    /// It is not BTF.
    Malformed(&'static str),
    /// It ends too early.
    Short,
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => f.write_str(why),
            Self::Short => f.write_str("it ends too early"),
        }
    }
}

/// Types with one signed number of 32 bits and an array of `words` of them: what socket storage
/// wants to know of its keys (type 1) and values (type 2).
pub(crate) fn number_and_array(words: u32) -> Vec<u8> {
    let types: [u32; 10] = [
        // Kind 1, a number; 32 bits, signed.
        1,
        1 << 24,
        4,
        1 << 24 | 32,
        // Kind 3, an array of type 1, indexed by type 1.
        0,
        3 << 24,
        0,
        1,
        1,
        words,
    ];
    let strings = b"\0int\0";
    let size = 4 * types.len() as u32;
    let header = [0x0001_eb9f, 24, 0, size, size, strings.len() as u32];
    let words = header.iter().chain(&types).flat_map(|w| w.to_ne_bytes());
    words.chain(strings.iter().copied()).collect()
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(Err(BtfError::Short), |&four| Ok(u32::from_ne_bytes(four)))
}

/// How many bytes follow the first twelve of a type.
fn tail(info: u32) -> Result<usize, BtfError> {
    let many = (info & 0xffff) as usize;
    Ok(match info >> 24 & 0x1f {
        POINTER | FORWARD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNCTION | FLOAT | TYPE_TAG => {
            0
        }
        INTEGER | VARIABLE | DECLARATION_TAG => 4,
        ARRAY => 12,
        STRUCT | UNION | SECTION | ENUM64 => 12 * many,
        ENUM | PROTOTYPE => 8 * many,
        _ => return Err(BtfError::Malformed("it has types of an unknown kind")),
    })
}

const INTEGER: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FORWARD: u32 = 7;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
const FLOAT: u32 = 16;
const DECLARATION_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure `s` with a number, three bits of another, and a nameless structure with an
    /// array.
    fn sample() -> Vec<u8> {
        // Offsets of names: s 1, a 3, b 5, c 7.
        let strings = b"\0s\0a\0b\0c\0";
        let types: &[u32] = &[
            // 1: a number of 32 bits
            0,
            1 << 24,
            4,
            32,
            // 2: an array of four of them
            0,
            3 << 24,
            0,
            1,
            1,
            4,
            // 3: a nameless structure with `c`, the array, after 4 bytes
            0,
            4 << 24 | 1,
            20,
            7,
            2,
            32,
            // 4: `s`, whose members may have bits: `a`; `b`, 3 bits at 37; the nameless one at 64
            1,
            1 << 31 | 4 << 24 | 3,
            28,
            3,
            1,
            0,
            5,
            1,
            (3 << 24) + 37,
            0,
            3,
            64,
        ];
        let size = 4 * types.len() as u32;
        let header = [0x0001_eb9f, 24, 0, size, size, strings.len() as u32];
        let words = header.iter().chain(types).flat_map(|w| w.to_ne_bytes());
        words.chain(strings.iter().copied()).collect()
    }

    #[test]
    fn fields_are_found_by_their_way() {
        let btf = Btf::parse(sample()).unwrap();
        let field = |path| btf.field("s", path).map(|f| (f.bit, f.bits, f.size));
        assert_eq!(field("a"), Some((0, 0, 4)));
        assert_eq!(field("b"), Some((37, 3, 4)));
        assert_eq!(field("c.2"), Some((64 + 32 + 64, 0, 4)));
        assert_eq!(field("d"), None);
        assert_eq!(btf.field("t", "a"), None);
    }

    #[test]
    fn what_is_cut_off_or_foreign_is_refused() {
        let whole = sample();
        for length in 0..whole.len() {
            // Names may be missing at the very end, types may not.
            if let Ok(btf) = Btf::parse(whole[..length].to_vec()) {
                assert_eq!(btf.types.len(), 5);
            }
        }
        assert_eq!(
            Btf::parse(b"ELF, perhaps, but not BTF".to_vec()).unwrap_err(),
            BtfError::Malformed("it does not begin as BTF does")
        );
    }

    #[test]
    fn what_is_written_can_be_read() {
        let btf = Btf::parse(number_and_array(16)).unwrap();
        assert_eq!((btf.size(1), btf.kind(2)), (Some(4), Some(ARRAY)));
    }
}
