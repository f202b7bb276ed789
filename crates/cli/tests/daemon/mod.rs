//! The event daemon as a child process. Tests are skipped with a message where it is unavailable.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use tidegate_kernel::Events;

use crate::program::{Program, ProgramResult, Scratch, text};

pub(crate) const ANYTHING: &str =
    "[[allow]]\neverybody = true\nevents = ['all']\nvariables = ['all']\n";

/// A daemon whose socket is in folders that it must create.
pub(crate) struct Daemon {
    pub(crate) scratch: Scratch,
    pub(crate) program: Program,
}

impl Daemon {
    /// Starts a daemon with this policy and further options. `None` where it is unavailable.
    pub(crate) fn start(test: &str, policy: &str, options: &str) -> Option<Self> {
        if is_without_rights(test) {
            return None;
        }
        let scratch = Scratch::new(test);
        let file = policy_file(&scratch, policy);
        let (socket, file) = (socket(&scratch), text(&file));
        let socket = text(&socket);
        let command = format!("events serve --socket {socket} --policy {file} {options}");
        let mut program = Program::tidegate(&command);
        program.wait_for_line(&format!("events: serving at {socket}"));
        Some(Self { scratch, program })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket(&self.scratch)
    }

    /// Interrupts the daemon and asserts that it exits cleanly and removes its folders.
    pub(crate) fn interrupted(self) -> ProgramResult {
        let made = self.scratch.path("made");
        let (ended, _scratch) = self.interrupted_as_another_user();
        assert!(!made.exists(), "its folders remain");
        ended
    }

    /// The same of a daemon that may not remove its folders.
    pub(crate) fn interrupted_as_another_user(self) -> (ProgramResult, Scratch) {
        self.program.interrupt();
        let ended = self.program.wait();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.said);
        assert!(ended.said.contains("unloading the BPF programs"));
        (ended, self.scratch)
    }
}

/// Writes a policy that only this user can change, whatever the umask.
pub(crate) fn policy_file(scratch: &Scratch, policy: impl AsRef<[u8]>) -> PathBuf {
    let file = scratch.path("policy.toml");
    fs::write(&file, policy).unwrap();
    chmod(&file, 0o644);
    chmod(file.parent().unwrap(), 0o755);
    file
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn socket(scratch: &Scratch) -> PathBuf {
    scratch.path("made/here/events.sock")
}

/// `tidegate` with the arguments, separated by spaces. It connects to the daemon at `socket`.
pub(crate) fn client(arguments: &str, socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(arguments.split_whitespace())
        .env("TIDEGATE_EVENTS_SOCKET", socket);
    command
}

/// Whether a daemon is unavailable, so that the test named `test` must be skipped; prints a
/// message. With `TIDEGATE_REQUIRE_NETNS=1`, a test run by root fails instead.
pub(crate) fn is_without_rights(test: &str) -> bool {
    use std::io::Write as _;
    let Err(why) = Events::in_process() else {
        return false;
    };
    // SAFETY: takes nothing and touches no memory.
    let root = unsafe { libc::geteuid() } == 0;
    let required = root && env::var_os("TIDEGATE_REQUIRE_NETNS").is_some_and(|v| v == "1");
    assert!(!required, "required by TIDEGATE_REQUIRE_NETNS=1: {why}");
    // Written to standard error directly: the test harness captures the output of passing tests.
    let mut terminal = io::stderr();
    writeln!(terminal, "skipped {test}: {why}").unwrap();
    true
}
