//! Loads BPF objects with `aya`, and reports why that fails.

use std::error::Error;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::{io, iter};

use aya::maps::{Map, MapError};
use aya::programs::tp_btf::BtfTracePointLink;
use aya::programs::{
    BtfTracePoint, Program, ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun as _,
};
use aya::{Btf, BtfError, Ebpf, EbpfError, EbpfLoader};

use super::raw;
use crate::system::{self, descriptors_left, is_short, more_descriptors};

/// A loaded object. Maps and programs are unloaded on drop.
#[derive(Debug)]
pub(crate) struct Object(Ebpf);

impl Object {
    /// Creates the maps of an object, some of them with given numbers of entries, and relocates
    /// field offsets to the kernel's types. Sets the tick length of the kernel.
    pub(crate) fn load(
        code: &[u8],
        types: &Btf,
        entries: &[(&str, u32)],
    ) -> Result<Self, LoadError> {
        // Both are checked first: `aya` probes kernel features once per process, and mistakes
        // missing privileges or descriptors for an old kernel.
        if descriptors_left() < DESCRIPTORS {
            let none = io::Error::from_raw_os_error(libc::EMFILE);
            return Err(LoadError::NoDescriptor(none));
        }
        raw::create_ring(SMALLEST_RING).map_err(|e| refused("a ring buffer", e))?;
        let tick = tick();
        let mut loader = EbpfLoader::new();
        loader.btf(Some(types));
        loader.override_global("tick_us", &tick, true);
        for &(map, many) in entries {
            loader.map_max_entries(map, many);
        }
        let ebpf = loader.load(code).map_err(|e| match &e {
            EbpfError::MapError(MapError::CreateError { name, .. }) => {
                failed(&format!("the map {name}"), &e)
            }
            _ => failed("the types of its maps (BTF)", &e),
        })?;
        Ok(Self(ebpf))
    }

    /// The descriptor of a map.
    pub(crate) fn map(&self, name: &str) -> BorrowedFd<'_> {
        match self.0.map(name) {
            Some(Map::Array(map) | Map::ArrayOfMaps(map) | Map::SkStorage(map)) => map.fd().as_fd(),
            other => unreachable!("map {name} of the object: {other:?}"),
        }
    }

    /// Loads the program of a tracepoint with the same name. Returns `false` if the tracepoint does
    /// not exist.
    pub(crate) fn load_tracepoint(
        &mut self,
        name: &'static str,
        types: &Btf,
    ) -> Result<bool, LoadError> {
        let program: &mut BtfTracePoint = program(&mut self.0, name);
        match program.load(name, types) {
            Ok(()) => Ok(true),
            Err(ProgramError::Btf(_)) => Ok(false),
            Err(e) => Err(rejected(name, &e)),
        }
    }

    /// Attaches loaded programs to their tracepoints until the result is dropped.
    pub(crate) fn attach(&mut self, names: &[&'static str]) -> Result<Vec<Link>, LoadError> {
        let mut attach = |&name| {
            let program: &mut BtfTracePoint = program(&mut self.0, name);
            let link = program.attach().and_then(|link| program.take_link(link));
            link.map_err(|e| failed(&format!("the link to {name}"), &e))
        };
        names.iter().map(&mut attach).collect()
    }

    /// Runs a program once, and unloads it.
    pub(crate) fn run(&mut self, name: &'static str) -> Result<(), LoadError> {
        let program: &mut RawTracePoint = program(&mut self.0, name);
        program.load().map_err(|e| rejected(name, &e))?;
        let run = program.test_run(RawTracePointRunOptions::new());
        run.map_err(|e| failed(&format!("a run of {name}"), &e))?;
        program.unload().map_err(|e| failed(name, &e))
    }
}

/// Type information (BTF) of the running kernel.
pub(crate) fn kernel_types() -> Result<Btf, LoadError> {
    Btf::from_sys_fs().map_err(no_types)
}

/// Keeps a program attached.
pub(crate) type Link = BtfTracePointLink;

/// The program of this name. Panics if it has another type.
fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut P
where
    &'a mut P: TryFrom<&'a mut Program>,
{
    let program = ebpf.program_mut(name).map(TryFrom::try_from);
    let Some(Ok(program)) = program else {
        unreachable!("program {name} of the object")
    };
    program
}

/// Error of loading the programs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The kernel's types cannot be read, or contradict each other.
    #[error(
        "the kernel's types ({TYPES}) cannot be read: {0}; use the unprivileged mode, and \
         report the version (uname -r) if the file is whole"
    )]
    BadTypes(String),
    /// The process, or the machine, has no descriptor left.
    #[error("no descriptor is left for the programs ({}): their process has to {}", .0, more_descriptors(.0))]
    NoDescriptor(io::Error),
    /// The kernel lacks a field that a line of a program reads.
    #[error(
        "this kernel has no field for `{0}`: {NEWER}; if this one is, its TCP is unsupported: \
         please report the version (uname -r)"
    )]
    NoField(String),
    /// A tracepoint is missing.
    #[error("this kernel has no tracepoint {0}: {NEWER}")]
    NoTracepoint(&'static str),
    /// The kernel does not publish its types.
    #[error(
        "the type information of the kernel is unavailable ({TYPES}: {0}): use one with \
         CONFIG_DEBUG_INFO_BTF=y, as distributions build it, and mount /sys"
    )]
    NoTypes(io::Error),
    /// The kernel refused an object.
    #[error("the kernel rejects {what} ({cause}): {}", advice(.cause))]
    Refused {
        /// Which.
        what: String,
        /// Reason.
        cause: io::Error,
    },
    /// Another system call failed.
    #[error("{0}")]
    System(io::Error),
    /// The verifier refuses a program.
    #[error(
        "this kernel's verifier rejects the program {program}; please report it with the \
         version (uname -r) and this:\n{log}"
    )]
    Verifier {
        /// Which.
        program: &'static str,
        /// The end of its log.
        log: String,
    },
}

/// What to do about a refusal.
fn advice(cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(libc::EPERM) => RIGHTS.into(),
        Some(libc::ENOMEM) => MEMORY.into(),
        Some(libc::ENOSYS) => "use one with CONFIG_BPF_SYSCALL=y".into(),
        Some(e) if UNKNOWN.contains(&e) => format!("{NEWER}; one that is new enough lacks {BUILT}"),
        _ => format!("{NEWER}; please report it with the version (uname -r) if it is one"),
    }
}

fn no_types(error: BtfError) -> LoadError {
    match error {
        BtfError::FileError { error, .. } => or_short(error, LoadError::NoTypes),
        other => LoadError::BadTypes(chain(&other)),
    }
}

/// An error of `aya`: the kernel's own answer, or else something in its types.
pub(crate) fn failed(what: &str, error: &(dyn Error + 'static)) -> LoadError {
    let number = causes(error)
        .filter_map(<dyn Error>::downcast_ref::<io::Error>)
        .find_map(io::Error::raw_os_error);
    number.map_or_else(
        || LoadError::BadTypes(chain(error)),
        |number| refused(what, io::Error::from_raw_os_error(number)),
    )
}

/// A program that was not loaded.
pub(crate) fn rejected(name: &'static str, error: &ProgramError) -> LoadError {
    let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = error
    else {
        return failed(&format!("the program {name}"), error);
    };
    let log = verifier_log.to_string();
    let number = io_error.raw_os_error();
    if log.is_empty() || !number.is_some_and(|e| VERDICTS.contains(&e) || UNKNOWN.contains(&e)) {
        return failed(&format!("the program {name}"), error);
    }
    let lines: Vec<&str> = log.trim_end().lines().collect();
    // Accesses to fields that the kernel lacks are turned into calls of this function.
    if log.contains(POISON) {
        let source = lines.iter().rev().find_map(|line| line.strip_prefix("; "));
        return LoadError::NoField(source.unwrap_or(name).to_owned());
    }
    LoadError::Verifier {
        program: name,
        log: lines[lines.len().saturating_sub(VERIFIER_LINES)..].join("\n"),
    }
}

fn refused(what: &str, cause: io::Error) -> LoadError {
    or_short(cause, |cause| LoadError::Refused {
        what: what.into(),
        cause,
    })
}

/// A lack of descriptors has the same remedy wherever it shows.
fn or_short(cause: io::Error, otherwise: impl FnOnce(io::Error) -> LoadError) -> LoadError {
    if is_short(&cause) {
        LoadError::NoDescriptor(cause)
    } else {
        otherwise(cause)
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |e| (*e).source())
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let words: Vec<String> = causes(error).map(ToString::to_string).collect();
    words.join(": ")
}

/// A tick of the kernel in µs: 1, 3⅓, 4 or 10 ms. The third of a microsecond does not matter.
fn tick() -> u32 {
    system::tick().as_micros() as u32
}

/// Number of descriptors used while an object is loaded, with a margin.
const DESCRIPTORS: u64 = 32;
const SMALLEST_RING: u32 = 4_096;

const TYPES: &str = "/sys/kernel/btf/vmlinux";
const NEWER: &str = "use Linux 6.1 or newer, or the unprivileged mode";
const RIGHTS: &str =
    "run as root or with CAP_BPF and CAP_PERFMON (in a container: --cap-add BPF --cap-add PERFMON)";
const MEMORY: &str = "lower limits.subscriptions, limits.clients or limits.ring-kib of the policy, or give the daemon more memory";
const BUILT: &str = "CONFIG_NET, CONFIG_PERF_EVENTS, CONFIG_BPF_EVENTS or CONFIG_DEBUG_INFO_BTF";

/// Error numbers for unknown commands: unknown number, larger structure, or feature not compiled
/// in. The last is the kernel's `ENOTSUPP`.
const UNKNOWN: [i32; 4] = [libc::EINVAL, libc::E2BIG, libc::EOPNOTSUPP, 524];
/// Other error numbers of the verifier. Further errors have other causes, even with a log.
const VERDICTS: [i32; 3] = [libc::EACCES, libc::EFAULT, libc::ENOENT];
/// 0xbad2310, in the notation of the log.
const POISON: &str = "unknown#195896080";
/// Number of lines of the verifier's log in messages: the last ones before the statistics.
const VERIFIER_LINES: usize = 12;

#[cfg(test)]
mod tests;
