//! `scripts/setup` on machines that lack something. Programs that would install are stand-ins: they
//! write down how they were called and bring what they were asked for.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A machine: a folder with all programs that there are.
struct Machine {
    folder: PathBuf,
}

/// What the script did.
struct Outcome {
    success: bool,
    /// What it said.
    said: String,
    /// What it had others do, a line per call.
    did: String,
}

impl Machine {
    /// With everything, used by root.
    fn new(name: &str) -> Self {
        let name = format!("tidegate-setup-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("bin")).unwrap();
        let machine = Self { folder };
        for program in [
            "bash", "cat", "chmod", "cut", "dirname", "env", "head", "mkdir", "mktemp", "rm",
            "sed", "sh", "sort", "touch",
        ] {
            let real = find(program);
            symlink(real, machine.bin(program)).unwrap();
        }
        machine.program("id", "echo 0");
        machine.program("cc", "");
        machine.program("pkg-config", PKG_CONFIG);
        machine.program("cargo", "echo cargo 99.0.0");
        machine.program("apt-get", "did apt-get \"$@\"; touch \"$HOME/installed\"");
        machine
    }

    fn bin(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    fn program(&self, name: &str, body: &str) {
        script(&self.bin(name), body);
    }

    fn without(self, program: &str) -> Self {
        fs::remove_file(self.bin(program)).unwrap();
        self
    }

    /// Used by somebody else than root.
    fn by_a_user(self) -> Self {
        self.program("id", "echo 1000");
        self
    }

    fn set_up(&self) -> Outcome {
        self.set_up_for(&[])
    }

    fn set_up_for(&self, words: &[&str]) -> Outcome {
        // So that only what is told here is missing.
        self.set_up_with(words, &self.folder)
    }

    fn set_up_with(&self, words: &[&str], libclang: &Path) -> Outcome {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/setup");
        let output = Command::new("bash")
            .arg(script)
            .args(words)
            .env_clear()
            .env("PATH", self.folder.join("bin"))
            .env("HOME", &self.folder)
            .env("LIBCLANG_PATH", libclang)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        Outcome {
            success: output.status.success(),
            said: String::from_utf8(text).unwrap(),
            did: fs::read_to_string(self.folder.join("did")).unwrap_or_default(),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // What is left in a folder for temporary files does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Writes a program for the shell.
fn script(path: &Path, body: &str) {
    let text = format!("#!/bin/sh\ndid() {{ echo \"$@\" >> \"$HOME/did\"; }}\n{body}\n");
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Knows all libraries, but x264 only once something was installed where `lacks-x264` lies.
const PKG_CONFIG: &str = r#"
[ "$2" = x264 ] && [ -e "$HOME/lacks-x264" ] && [ ! -e "$HOME/installed" ] && exit 1
[ -e "$HOME/old-ffmpeg" ] && case $1 in
    --atleast-version=*) exit 1 ;;
    --modversion) echo 58.134.100 ;;
esac
exit 0
"#;

fn find(program: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap();
    let places = path.split(':').map(|place| Path::new(place).join(program));
    places
        .into_iter()
        .find(|p| p.exists())
        .expect("a Unix has it")
}

impl Outcome {
    fn says(&self, text: &str) {
        assert!(
            self.said.contains(text),
            "{text:?} was expected: {}",
            self.said
        );
    }
}

#[test]
fn where_all_is_there_nothing_is_done_or_said() {
    let outcome = Machine::new("whole").set_up();
    assert!(outcome.success, "{}", outcome.said);
    assert_eq!((outcome.said.as_str(), outcome.did.as_str()), ("", ""));
}

#[test]
fn packages_are_named_and_installed() {
    let machine = Machine::new("packages").without("cc");
    fs::write(machine.folder.join("lacks-x264"), "").unwrap();
    let outcome = machine.set_up();
    assert!(outcome.success, "{}", outcome.said);
    outcome.says("== installing packages: gcc libc6-dev libx264-dev\n");
    assert_eq!(
        outcome.did,
        "apt-get update --error-on=any\n\
         apt-get install --yes --no-install-recommends gcc libc6-dev libx264-dev\n"
    );
}

#[test]
fn tests_need_the_ffmpeg_program_too() {
    let outcome = Machine::new("tests").set_up_for(&["--tests"]);
    assert!(outcome.success, "{}", outcome.said);
    outcome.says("== installing packages: ffmpeg\n");
}

#[test]
fn checks_need_one_version_of_clang() {
    let machine = Machine::new("clang");
    machine.program("clang", "echo clang version 99.0.0");
    machine.program("llvm-strip", "echo LLVM version 99.0.0");
    let outcome = machine.set_up_for(&["--bpf"]);
    assert!(outcome.success, "{}", outcome.said);
    outcome.says("== installing packages: clang-14 llvm-14\n");
    machine.program("clang-14", "echo clang version 14.0.6");
    machine.program("llvm-strip-14", "echo LLVM version 14.0.6");
    let outcome = machine.set_up_for(&["--bpf"]);
    assert!(
        outcome.success && outcome.said.is_empty(),
        "{}",
        outcome.said
    );
}

#[test]
fn a_user_installs_through_sudo() {
    let machine = Machine::new("sudo").without("cc").by_a_user();
    machine.program("sudo", "did sudo \"$1\"; shift; \"$@\"");
    let outcome = machine.set_up();
    assert!(outcome.success, "{}", outcome.said);
    // Nobody is there to type a password.
    assert!(
        outcome
            .did
            .starts_with("sudo -n\nsudo -n\napt-get update --error-on=any\n"),
        "{}",
        outcome.did
    );
}

#[test]
fn who_may_not_install_is_told_what_to_ask_for() {
    let outcome = Machine::new("rights").without("cc").by_a_user().set_up();
    assert!(!outcome.success);
    assert_eq!(outcome.did, "");
    outcome.says("Missing packages: gcc libc6-dev.");
    outcome.says(
        "\napt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev ffmpeg\n",
    );
}

#[test]
fn a_sudo_that_wants_a_password_is_no_failure_of_apt() {
    let machine = Machine::new("password").without("cc").by_a_user();
    machine.program("sudo", "exit 1");
    let outcome = machine.set_up();
    assert!(!outcome.success);
    assert_eq!(outcome.did, "");
    outcome.says("sudo wants a password, and there is no terminal");
}

#[test]
fn a_libclang_that_is_told_but_not_there_is_refused() {
    let outcome = Machine::new("libclang").set_up_with(&[], Path::new("/nonexistent"));
    assert!(!outcome.success);
    outcome.says("LIBCLANG_PATH is /nonexistent, which is not there.");
}

#[test]
fn without_apt_the_packages_are_named() {
    let outcome = Machine::new("no-apt")
        .without("cc")
        .without("apt-get")
        .set_up();
    assert!(!outcome.success);
    outcome.says("these packages of Debian and Ubuntu bring: gcc libc6-dev.");
}

#[test]
fn a_failing_apt_is_no_success() {
    let machine = Machine::new("broken-apt").without("cc");
    machine.program("apt-get", "[ \"$1\" = update ]");
    let outcome = machine.set_up();
    assert!(!outcome.success);
    outcome.says("Could not install: gcc libc6-dev.");
}

#[test]
fn an_ffmpeg_that_is_too_old_is_refused() {
    let machine = Machine::new("ffmpeg");
    fs::write(machine.folder.join("old-ffmpeg"), "").unwrap();
    let outcome = machine.set_up();
    assert!(!outcome.success);
    outcome
        .says("FFmpeg 5.1 or later is needed (libavcodec 59.37); here is libavcodec 58.134.100.");
}

#[test]
fn rust_comes_by_rustup() {
    let machine = Machine::new("no-rust").without("cargo");
    machine.program(
        "curl",
        "did curl; case $* in *sh.rustup.rs) exit 6 ;; esac; while [ \"$1\" != --output ]; do shift; done
         cp \"$HOME/installer\" \"$2\" 2>/dev/null || cat \"$HOME/installer\" > \"$2\"",
    );
    let cargo = "#!/bin/sh\\necho cargo 99.0.0\\n";
    script(
        &machine.folder.join("installer"),
        &format!(
            "did installer \"$@\"; mkdir -p \"$HOME/.cargo/bin\"
             printf '{cargo}' > \"$HOME/.cargo/bin/cargo\"; chmod +x \"$HOME/.cargo/bin/cargo\""
        ),
    );
    let outcome = machine.set_up();
    assert!(outcome.success, "{}", outcome.said);
    outcome.says("== installing Rust with rustup to");
    // The first address does not answer.
    assert_eq!(
        outcome.did,
        "curl\ncurl\ninstaller -y --profile minimal --default-toolchain stable --no-modify-path\n"
    );
}

#[test]
fn an_old_rust_is_renewed_by_the_rustup_that_is_there() {
    let machine = Machine::new("old-rust");
    machine.program(
        "cargo",
        "[ \"$RUSTUP_TOOLCHAIN\" = stable ] && [ -e \"$HOME/new\" ] && echo cargo 99.0.0 || echo cargo 1.70.0",
    );
    machine.program("rustup", "did rustup \"$@\"; touch \"$HOME/new\"");
    let outcome = machine.set_up();
    assert!(outcome.success, "{}", outcome.said);
    outcome.says("== installing Rust's stable toolchain with rustup");
    assert_eq!(
        outcome.did,
        "rustup toolchain install stable --profile minimal --no-self-update\n"
    );
}

#[test]
fn without_a_way_to_rust_it_is_said() {
    let machine = Machine::new("no-way").without("cargo");
    machine.program("curl", "exit 1");
    let outcome = machine.set_up();
    assert!(!outcome.success);
    outcome.says("Could not fetch the installer of Rust");
    outcome.says("or install Rust 1.95 or later by other means");
}
