//! The header against the library, and a C program that uses both.

use std::path::PathBuf;
use std::process::Command;

use tidegate_kernel::{EventKind, EventSet, Variable};

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
    let library = std::env::current_exe().unwrap();
    // Cargo puts the shared library beside the tests.
    let library = library.parent().unwrap();
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("c_interface");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/events.c");
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    // The linker of Rust programs is a C compiler, so there is one.
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", include])
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(library)
        .args(["-ltidegate_kernel", "-pthread"])
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let ran = Command::new(&program).output().unwrap();
    assert!(
        ran.status.success(),
        "{}{}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr)
    );
}

fn has(line: &str) {
    let found = HEADER.lines().any(|l| l == line);
    assert!(found, "the header has no line `{line}`");
}

const HEADER: &str = include_str!("../include/tidegate_events.h");
