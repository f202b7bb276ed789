//! A daemon for each test, in its process.

use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use std::{env, fs, io};

use tidegate_kernel::{Policy, Server};

use super::{GUARD, skip};

/// A daemon in this process, with its own path.
pub(super) struct Daemon {
    pub(super) path: PathBuf,
    stop: Option<io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
    pub(super) log: Arc<Mutex<Vec<String>>>,
    _turn: Turn,
}

/// Tests in which a close blocks run alone. Child processes of other tests hold copies of all
/// descriptors until exec, and their close could be the last one.
enum Turn {
    Shared {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
}

static TURNS: RwLock<()> = RwLock::new(());

impl Daemon {
    /// Starts a daemon with this policy; `None` if this process may not load programs.
    pub(super) fn start(name: &str, policy: &str) -> Option<Self> {
        let guard = TURNS.read().unwrap_or_else(PoisonError::into_inner);
        Self::start_with(name, policy, Turn::Shared { _guard: guard })
    }

    /// Starts a daemon while no other one runs in this process.
    pub(super) fn start_alone(name: &str, policy: &str) -> Option<Self> {
        let guard = TURNS.write().unwrap_or_else(PoisonError::into_inner);
        Self::start_with(name, policy, Turn::Alone { _guard: guard })
    }

    fn start_with(name: &str, policy: &str, turn: Turn) -> Option<Self> {
        let file = env::temp_dir().join(format!("tg-{}-{name}.toml", std::process::id()));
        fs::write(&file, policy).unwrap();
        // Policies that others can write are refused, and the umask may allow it.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let its_log = Arc::clone(&log);
        let sink = move |line: &str| its_log.lock().unwrap().push(line.to_owned());
        // Socket paths have to be short.
        let path = env::temp_dir().join(format!("tg-{}-{name}.sock", std::process::id()));
        let (its_path, its_file) = (path.clone(), file.clone());
        let (stop, stopper) = io::pipe().unwrap();
        let number = stop.as_raw_fd();
        let (report, ready) = mpsc::channel();
        let thread = thread::spawn(move || {
            let stop = own_descriptors(number);
            match Server::new(Policy::load(&its_file).unwrap(), sink) {
                Ok(mut server) => {
                    server.listen(&its_path).unwrap();
                    report.send(None).unwrap();
                    server.run(stop.as_fd()).unwrap();
                }
                Err(why) => report.send(Some(why.to_string())).unwrap(),
            }
        });
        let why_not = ready.recv().unwrap();
        fs::remove_file(file).unwrap();
        drop(stop);
        if let Some(why) = why_not {
            thread.join().unwrap();
            skip(name, &why);
            return None;
        }
        Some(Self {
            path,
            stop: Some(stopper),
            thread: Some(thread),
            log,
            _turn: turn,
        })
    }

    /// Waits for a log line with this word, which another thread of the daemon writes.
    pub(super) fn logged(&self, word: &str) -> bool {
        let guard = Instant::now() + GUARD;
        let is_there = || self.log.lock().unwrap().iter().any(|l| l.contains(word));
        while !is_there() {
            if Instant::now() >= guard {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    /// Ends the daemon and returns its log.
    pub(super) fn wait(self) -> Vec<String> {
        let log = Arc::clone(&self.log);
        drop(self);
        let mut log = log.lock().unwrap();
        std::mem::take(&mut *log)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut stop) = self.stop.take() {
            stop.write_all(b"!").unwrap();
        }
        self.thread.take().unwrap().join().unwrap();
        assert!(!self.path.exists(), "the socket was not removed");
    }
}

/// Starts a program, whose process has copies of all descriptors until it executes.
pub(super) fn spawn(command: &mut Command) -> Child {
    let _turn = TURNS.read().unwrap_or_else(PoisonError::into_inner);
    command.spawn().unwrap()
}

/// Gives the daemon's thread its own descriptor table with a copy of one descriptor, as in a
/// separate process. Child processes of other tests then have no copies of the daemon's
/// descriptors.
fn own_descriptors(keep: RawFd) -> OwnedFd {
    let ranges = [
        (keep as u32 + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE),
        (3, keep as u32 - 1, 0),
    ];
    for (first, last, flags) in ranges.into_iter().filter(|r| r.0 <= r.1) {
        // SAFETY: takes numbers; the closed copies have no owner on this thread.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
    // SAFETY: the copy has no other owner.
    unsafe { OwnedFd::from_raw_fd(keep) }
}
