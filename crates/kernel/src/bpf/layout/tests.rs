//! Compares the layouts of the header, the built object and the Rust mirrors.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs, io};

use super::*;
use crate::bpf::events::OBJECT;
use crate::event::{CaState, EventKind, Phase};

/// A structure: its size, and name, offset and size of each member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) size: usize,
    pub(crate) members: Vec<(String, usize, usize)>,
}

/// Layout of a mirror. The compiler checks that all fields are listed.
macro_rules! mirror {
    ($type:ident $name:literal: $($field:ident)*) => {{
        let _all_fields_are_named = |$type { $($field: _),* }: &$type| ();
        let members = [$((
            stringify!($field).to_owned(),
            offset_of!($type, $field),
            $crate::bpf::layout::tests::field_size(|t: &$type| &t.$field),
        )),*];
        let layout = $crate::bpf::layout::tests::Layout {
            size: size_of::<$type>(),
            members: members.into(),
        };
        ($name.to_owned(), layout)
    }};
}

pub(crate) use mirror;

pub(crate) fn field_size<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

fn mirrors() -> BTreeMap<String, Layout> {
    BTreeMap::from([
        mirror!(Record "record": time token number kind first second known values),
        mirror!(Subscription "subscription":
            token events ended number lost ring unused known padding),
        mirror!(Subscribers "subscribers": tokens epoch alive),
        mirror!(Memory "memory": side phase phase_time row counters reported),
        mirror!(Service "service": epoch available),
    ])
}

/// Values of this library for the header's constants.
fn constants() -> BTreeMap<String, usize> {
    let name = |prefix, name: &str| format!("{prefix}_{}", name.to_uppercase().replace('-', "_"));
    let events = EventKind::ALL.map(|kind| (name("EVENT", kind.name()), kind as usize));
    let variables = Variable::ALL.iter();
    let variables = variables.map(|&v| (name("VAR", v.name()), v as usize));
    let phases = [
        ("network", Phase::Network),
        ("application", Phase::Application),
        ("send-buffer", Phase::SendBuffer),
        ("receiver", Phase::Receiver),
    ];
    let phases = phases.map(|(phase, number)| (name("PHASE", phase), number as usize));
    let others = [
        ("VARIABLES", COUNT),
        ("COUNTERS", COUNTERS.len()),
        ("MAX_SUBSCRIBERS", MAX_SUBSCRIBERS),
        ("PHASE_UNKNOWN", 0),
    ];
    let others = others.map(|(name, number)| (name.to_owned(), number));
    let all = events.into_iter().chain(variables).chain(phases);
    all.chain(others).collect()
}

#[test]
fn mirrors_have_the_layout_of_the_object() {
    let types = ObjectTypes::of(OBJECT);
    let mirrors = mirrors();
    assert_eq!(differences(&mirrors, &types), Vec::<String>::new());
    // Each kind of difference is detected.
    for change in [
        |layout: &mut Layout| layout.size += 8,
        |layout: &mut Layout| layout.members[0].1 += 8,
        |layout: &mut Layout| layout.members[0].2 += 4,
        |layout: &mut Layout| layout.members.truncate(1),
        |layout: &mut Layout| layout.members.swap(0, 1),
    ] {
        let mut changed = mirrors.clone();
        change(changed.get_mut("memory").unwrap());
        assert_eq!(differences(&changed, &types), ["memory"]);
    }
}

#[test]
fn constants_equal_those_of_the_object() {
    let types = ObjectTypes::of(OBJECT);
    let constants = constants();
    for (name, prefix) in [("event", "EVENT_"), ("phase", "PHASE_")] {
        let here = constants.iter().filter(|(n, _)| n.starts_with(prefix));
        let here: BTreeMap<String, usize> = here.map(|(n, &v)| (n.clone(), v)).collect();
        assert_eq!(types.enumeration(name), here);
    }
    let counters: Vec<Variable> = Variable::ALL[COUNT - COUNTERS.len()..].to_vec();
    assert_eq!(counters, COUNTERS);
}

/// Compares with the header by a C compiler.
#[test]
fn mirrors_and_constants_equal_those_of_the_header() {
    let (mirrors, constants) = (mirrors(), constants());
    let assertions = |mirrors: &BTreeMap<String, Layout>, constants: &BTreeMap<String, usize>| {
        let mut text = layout_assertions(mirrors);
        let mut expect = |what: String, number: usize| {
            writeln!(text, "_Static_assert({what} == {number}, \"{what}\");").unwrap();
        };
        for (name, &number) in constants {
            expect(name.clone(), number);
        }
        // From `net/tcp.h`, as used by the programs.
        for (name, state) in [
            ("TCP_CA_CWR", CaState::Reducing),
            ("TCP_CA_RECOVERY", CaState::Recovery),
            ("TCP_CA_LOSS", CaState::Loss),
        ] {
            expect(name.to_owned(), state as usize);
        }
        text
    };
    compile("right", &assertions(&mirrors, &constants)).unwrap();
    let mut moved = mirrors.clone();
    moved.get_mut("record").unwrap().members[3].1 += 4;
    let why = compile("moved", &assertions(&moved, &constants)).unwrap_err();
    assert!(why.contains("offsetof(struct record, kind)"), "{why}");
    let mut renumbered = constants.clone();
    *renumbered.get_mut("EVENT_TIMEOUT").unwrap() += 1;
    let why = compile("renumbered", &assertions(&mirrors, &renumbered)).unwrap_err();
    assert!(why.contains("EVENT_TIMEOUT"), "{why}");
}

/// Assertions in C that structures have these layouts.
pub(crate) fn layout_assertions(mirrors: &BTreeMap<String, Layout>) -> String {
    let mut text = String::new();
    let mut expect = |what: String, number: usize| {
        writeln!(text, "_Static_assert({what} == {number}, \"{what}\");").unwrap();
    };
    for (name, layout) in mirrors {
        expect(format!("sizeof(struct {name})"), layout.size);
        for (member, offset, size) in &layout.members {
            expect(format!("offsetof(struct {name}, {member})"), *offset);
            expect(format!("sizeof(((struct {name} *)0)->{member})"), *size);
        }
    }
    text
}

fn differences(mirrors: &BTreeMap<String, Layout>, types: &ObjectTypes) -> Vec<String> {
    let differs = |(name, layout): &(&String, &Layout)| types.structure(name) != **layout;
    let found = mirrors.iter().filter(differs);
    found.map(|(name, _)| name.clone()).collect()
}

fn compile(name: &str, text: &str) -> Result<(), String> {
    compile_with("events.h", name, text)
}

/// Compiles a C file that includes a header. The error is the compiler's output.
pub(crate) fn compile_with(header: &str, name: &str, text: &str) -> Result<(), String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let scratch = env::temp_dir();
    let file = scratch.join(format!("tidegate-layout-{}-{name}.c", std::process::id()));
    let headers = format!("#include <stddef.h>\n#include \"kernel.h\"\n#include \"{header}\"\n");
    fs::write(&file, format!("{headers}{text}")).unwrap();
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-fsyntax-only", "-I"])
        .args([&folder, &file])
        .stdin(Stdio::null())
        .output();
    let _ = fs::remove_file(&file);
    let output = output.unwrap_or_else(|e: io::Error| panic!("no C compiler: {e}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(said)
}

/// Types of an object in BTF (the kernel's `Documentation/bpf/btf.rst`).
struct ObjectTypes {
    words: Vec<u32>,
    /// Start of each type. The first type is `void`.
    starts: Vec<usize>,
    strings: Vec<u8>,
}

impl ObjectTypes {
    /// Finds the section by its header: magic, version 1, no flags, 24 bytes.
    fn of(object: &[u8]) -> Self {
        let header = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
        let start = object.windows(8).position(|w| w == header).unwrap();
        let words: Vec<u32> = object[start..]
            .chunks_exact(4)
            .map(|four| u32::from_le_bytes(four.try_into().unwrap()))
            .collect();
        let [types_length, strings_offset] = [3, 4].map(|at| words[at] as usize);
        let strings = object[start + 24 + strings_offset..].to_vec();
        let mut starts = vec![0];
        let mut at = 6;
        while at < 6 + types_length / 4 {
            starts.push(at);
            let many = (words[at + 1] & 0xffff) as usize;
            at += 3 + match words[at + 1] >> 24 & 0x1f {
                INTEGER | VARIABLE => 1,
                ARRAY => 3,
                STRUCT | UNION | SECTION => 3 * many,
                ENUM | PROTOTYPE => 2 * many,
                _ => 0,
            };
        }
        Self {
            words,
            starts,
            strings,
        }
    }

    fn structure(&self, name: &str) -> Layout {
        let at = self.find(name, STRUCT);
        let member = |three: &[u32]| {
            let (name, size) = (self.string(three[0]), self.size(three[1]));
            (name, three[2] as usize / 8, size)
        };
        Layout {
            size: self.words[at + 2] as usize,
            members: self.rest(at, 3).chunks_exact(3).map(member).collect(),
        }
    }

    fn enumeration(&self, name: &str) -> BTreeMap<String, usize> {
        let all = self.rest(self.find(name, ENUM), 2).chunks_exact(2);
        all.map(|two| (self.string(two[0]), two[1] as usize))
            .collect()
    }

    fn find(&self, name: &str, kind: u32) -> usize {
        let is_it = |&&at: &&usize| {
            self.words[at + 1] >> 24 & 0x1f == kind && self.string(self.words[at]) == name
        };
        *self.starts[1..].iter().find(is_it).expect(name)
    }

    /// The words after the first three of a type: `words` words per member.
    fn rest(&self, at: usize, words: usize) -> &[u32] {
        let many = (self.words[at + 1] & 0xffff) as usize;
        &self.words[at + 3..][..words * many]
    }

    fn size(&self, number: u32) -> usize {
        let at = self.starts[number as usize];
        match self.words[at + 1] >> 24 & 0x1f {
            TYPEDEF => self.size(self.words[at + 2]),
            ARRAY => self.size(self.words[at + 3]) * self.words[at + 5] as usize,
            _ => self.words[at + 2] as usize,
        }
    }

    fn string(&self, at: u32) -> String {
        let rest = self.strings[at as usize..].split(|&byte| byte == 0);
        String::from_utf8(rest.into_iter().next().unwrap().to_vec()).unwrap()
    }
}

const INTEGER: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
