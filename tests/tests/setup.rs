//! `scripts/setup` on machines without some of the dependencies. Stubs of the installers record
//! their arguments and create the requested programs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A machine: a folder with all programs on its PATH.
struct Machine {
    folder: PathBuf,
}

/// Result of the script.
struct Outcome {
    success: bool,
    /// Its output.
    said: String,
    /// Calls of the installers, one per line.
    did: String,
}

impl Machine {
    /// A complete machine, used by root.
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

    /// Makes the user unprivileged.
    fn by_a_user(self) -> Self {
        self.program("id", "echo 1000");
        self
    }

    fn set_up(&self) -> Outcome {
        self.set_up_for(&[])
    }

    fn set_up_for(&self, words: &[&str]) -> Outcome {
        // Only the dependencies removed by the test are missing.
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
        // A leftover temporary folder does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Writes a shell script as a program. Another process writes the file: children that other tests
/// start could have copies of a descriptor of this process that is open for writing, and until they
/// have executed their programs the script could not be executed ("Text file busy").
fn script(path: &Path, body: &str) {
    let text = format!("#!/bin/sh\ndid() {{ echo \"$@\" >> \"$HOME/did\"; }}\n{body}\n");
    let write = "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"";
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", write, "sh"]).arg(path).arg(text);
    assert!(shell.status().unwrap().success(), "{}", path.display());
}

/// Reports all libraries as installed, but x264 only after an installation if `lacks-x264` exists.
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
        .expect("the program is on the PATH")
}

impl Outcome {
    fn says(&self, text: &str) {
        assert!(
            self.said.contains(text),
            "the output lacks {text:?}: {}",
            self.said
        );
    }
}

#[test]
fn a_complete_machine_is_left_unchanged() {
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
fn the_demo_installs_the_ffmpeg_program_if_it_can() {
    let outcome = Machine::new("demo").set_up_for(&["--demo"]);
    assert!(outcome.success, "{}", outcome.said);
    outcome.says("== installing packages: ffmpeg\n");
    let machine = Machine::new("demo-whole");
    machine.program("ffmpeg", "");
    let outcome = machine.set_up_for(&["--demo"]);
    assert_eq!((outcome.said.as_str(), outcome.did.as_str()), ("", ""));
    // The demo runs without it.
    let restricted = [
        Machine::new("demo-user").by_a_user(),
        Machine::new("demo-other").without("apt-get"),
    ];
    for machine in restricted {
        let outcome = machine.set_up_for(&["--demo"]);
        assert!(
            outcome.success && outcome.did.is_empty(),
            "{}",
            outcome.said
        );
        outcome.says("install the package ffmpeg");
    }
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
    // No terminal is available for a password.
    assert!(
        outcome
            .did
            .starts_with("sudo -n\nsudo -n\napt-get update --error-on=any\n"),
        "{}",
        outcome.did
    );
}

#[test]
fn a_user_without_sudo_is_shown_the_command() {
    let outcome = Machine::new("rights").without("cc").by_a_user().set_up();
    assert!(!outcome.success);
    assert_eq!(outcome.did, "");
    outcome.says("Missing packages: gcc libc6-dev.");
    outcome.says(
        "\napt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev ffmpeg\n",
    );
}

#[test]
fn a_password_prompt_without_terminal_is_reported() {
    let machine = Machine::new("password").without("cc").by_a_user();
    machine.program("sudo", "exit 1");
    let outcome = machine.set_up();
    assert!(!outcome.success);
    assert_eq!(outcome.did, "");
    outcome.says("sudo requires a password, and there is no terminal");
}

#[test]
fn a_libclang_path_that_does_not_exist_is_rejected() {
    let outcome = Machine::new("libclang").set_up_with(&[], Path::new("/nonexistent"));
    assert!(!outcome.success);
    outcome.says("LIBCLANG_PATH is /nonexistent, which does not exist.");
}

#[test]
fn without_apt_the_packages_are_named() {
    let outcome = Machine::new("no-apt")
        .without("cc")
        .without("apt-get")
        .set_up();
    assert!(!outcome.success);
    outcome.says("in these packages of Debian and Ubuntu: gcc libc6-dev.");
}

#[test]
fn a_failed_installation_is_an_error() {
    let machine = Machine::new("broken-apt").without("cc");
    machine.program("apt-get", "[ \"$1\" = update ]");
    let outcome = machine.set_up();
    assert!(!outcome.success);
    outcome.says("Could not install: gcc libc6-dev.");
}

#[test]
fn an_old_ffmpeg_is_rejected() {
    let machine = Machine::new("ffmpeg");
    fs::write(machine.folder.join("old-ffmpeg"), "").unwrap();
    let outcome = machine.set_up();
    assert!(!outcome.success);
    outcome.says("FFmpeg 5.1 or later is needed (libavcodec 59.37); found libavcodec 58.134.100.");
}

#[test]
fn rust_is_installed_by_rustup() {
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
    // The first address is unreachable.
    assert_eq!(
        outcome.did,
        "curl\ncurl\ninstaller -y --profile minimal --default-toolchain stable --no-modify-path\n"
    );
}

#[test]
fn an_old_rust_is_updated_by_an_installed_rustup() {
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
fn an_unreachable_rust_installer_is_reported() {
    let machine = Machine::new("no-way").without("cargo");
    machine.program("curl", "exit 1");
    let outcome = machine.set_up();
    assert!(!outcome.success);
    outcome.says("Could not download the installer of Rust");
    outcome.says("or install Rust 1.95 or later by other means");
}
