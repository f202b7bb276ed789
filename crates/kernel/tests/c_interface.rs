//! The header against the library, and a C program that uses both.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io, thread};

use tidegate_kernel::{EventKind, EventSet, Policy, Server, Variable};

#[test]
fn the_header_has_the_numbers_of_the_library() {
    for kind in EventKind::ALL {
        let name = kind.name().to_uppercase().replace('-', "_");
        has(&format!("    TG_{name} = {},", kind as u32));
    }
    for &variable in Variable::ALL {
        let name = variable.name().to_uppercase();
        has(&format!("    TG_V_{name} = {},", variable as u8));
    }
    has(&format!("    TG_VARIABLES = {}", Variable::ALL.len()));
    let all = EventSet::ALL.bits();
    has(&format!("#define TG_ALL_EVENTS UINT32_C({all:#x})"));
}

#[test]
fn a_c_program_gets_events() {
    run("events", &[]);
}

#[test]
fn a_c_program_has_programs_started_per_event() {
    let notes = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("c_programs.txt");
    for event in ["state", "ended"] {
        let _ = fs::remove_file(notes.with_extension(format!("txt.{event}")));
    }
    run("programs", &[&notes]);
}

#[test]
fn a_c_program_chooses_the_size_of_its_ring() {
    let policy = Policy::everybody();
    let mut server = match Server::new(policy, |_| ()) {
        Ok(server) => server,
        Err(why) => {
            // SAFETY: takes nothing and touches no memory.
            let root = unsafe { libc::geteuid() } == 0;
            let must = root && env::var_os("TIDEGATE_REQUIRE_NETNS").is_some_and(|v| v == "1");
            assert!(!must, "required by TIDEGATE_REQUIRE_NETNS=1: {why}");
            println!("skipped: {why}");
            return;
        }
    };
    // Paths of sockets are short.
    let path = env::temp_dir().join(format!("tg-{}-c.sock", std::process::id()));
    server.listen(&path).unwrap();
    let (stop, stopper) = io::pipe().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| server.run(stop.as_fd()).unwrap());
        // It ends however the program does.
        let _stopper = stopper;
        run("ring", &[&path]);
    });
}

/// Compiles a program against the header and the shared library, and runs it.
fn run(name: &str, arguments: &[&Path]) {
    let library = env::current_exe().unwrap();
    // Cargo puts the shared library beside the tests.
    let library = library.parent().unwrap();
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("c_{name}"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The linker of Rust programs is a C compiler, so there is one.
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg(here.join(format!("tests/c/{name}.c")))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(library)
        .args(["-ltidegate_kernel", "-pthread"])
        .arg(format!("-Wl,-rpath,{}", library.display()));
    succeeds(&mut compiler);
    succeeds(Command::new(&program).args(arguments));
}

fn succeeds(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(
        out.status.success(),
        "{command:?}: {}{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
}

fn has(line: &str) {
    let found = HEADER.lines().any(|l| l == line);
    assert!(found, "the header has no line `{line}`");
}

const HEADER: &str = include_str!("../include/tidegate_events.h");
