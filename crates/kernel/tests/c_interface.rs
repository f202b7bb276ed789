//! The C header compared with the library, C programs that use both, and their installation.

use std::os::fd::AsFd as _;
use std::os::unix::fs::symlink;
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
fn a_c_program_executes_programs_per_event() {
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
    // Socket paths have to be short.
    let path = env::temp_dir().join(format!("tg-{}-c.sock", std::process::id()));
    server.listen(&path).unwrap();
    let (stop, stopper) = io::pipe().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| server.run(stop.as_fd()).unwrap());
        // The server ends with this, also if the program fails.
        let _stopper = stopper;
        run("ring", &[&path]);
    });
}

#[test]
fn the_installation_is_found_by_pkg_config_and_can_be_removed() {
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("install");
    let _ = fs::remove_dir_all(&scratch);
    let (built, below) = (scratch.join("built"), scratch.join("below"));
    fs::create_dir_all(&built).unwrap();
    // Placeholders for the products of other packages, which may not be built.
    for program in ["tidegate", "tidegate-eventsd", "libtidegate_live.so"] {
        symlink("/bin/true", built.join(program)).unwrap();
    }
    symlink(libraries().join(LIBRARY), built.join(LIBRARY)).unwrap();
    let make = |target: &str| {
        let mut make = Command::new("make");
        make.arg(target)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .env("BUILT", &built)
            .env("DESTDIR", &below)
            .env("PREFIX", "/opt/tidegate");
        // An enclosing `make test` may have set them.
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        succeeds(&mut make);
    };
    make("install");
    let here = below.join("opt/tidegate");
    succeeds(&mut Command::new(here.join("bin/tidegate")));
    succeeds(&mut Command::new(here.join("bin/tidegate-eventsd")));
    let unit = here.join("lib/systemd/system/tidegate-events.service");
    let unit = fs::read_to_string(unit).unwrap();
    assert!(
        unit.contains("ExecStart=/opt/tidegate/bin/tidegate-eventsd --policy"),
        "{unit}"
    );
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "tidegate-kernel"])
        .env("PKG_CONFIG_LIBDIR", here.join("lib/pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", &below)
        .output()
        .unwrap();
    assert!(
        flags.status.success(),
        "{}",
        String::from_utf8_lossy(&flags.stderr)
    );
    let flags = String::from_utf8(flags.stdout).unwrap();
    let program = scratch.join("events");
    let flags: Vec<&str> = flags.split_whitespace().collect();
    succeeds(compiler("events", &program).args(flags));
    // By its soname, which is not the name of the file.
    succeeds(Command::new(&program).env("LD_LIBRARY_PATH", here.join("lib")));
    make("uninstall");
    assert_eq!(files(&below), Vec::<PathBuf>::new());
}

/// All files below a directory.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// Compiles a program against the header and the shared library, and runs it.
fn run(name: &str, arguments: &[&Path]) {
    let libraries = libraries();
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("c_{name}"));
    let mut compiler = compiler(name, &program);
    compiler
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg("-L")
        .arg(&libraries)
        .arg("-ltidegate_kernel")
        .arg(format!("-Wl,-rpath,{}", libraries.display()));
    succeeds(&mut compiler);
    succeeds(Command::new(&program).args(arguments));
}

/// The compiler command for a program of `tests/c`, without the options for Tidegate.
fn compiler(name: &str, program: &Path) -> Command {
    // Rust programs are linked with a C compiler, so there is one.
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .arg(format!("{}/tests/c/{name}.c", env!("CARGO_MANIFEST_DIR")))
        .arg("-o")
        .arg(program);
    compiler
}

/// The directory of the shared library, which has the library by its soname as well.
fn libraries() -> PathBuf {
    let program = env::current_exe().unwrap();
    // Cargo builds it beside the tests.
    let folder = program.parent().unwrap();
    let interface = match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => concat!("0.", env!("CARGO_PKG_VERSION_MINOR")),
        major => major,
    };
    let link = folder.join(format!("{LIBRARY}.{interface}"));
    match symlink(LIBRARY, &link) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.unwrap(),
    }
    folder.into()
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

const LIBRARY: &str = "libtidegate_kernel.so";
const HEADER: &str = include_str!("../include/tidegate_events.h");
