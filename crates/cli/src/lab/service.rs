//! TCP event service of the lab, shared by all of its connections.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result};
use tidegate_kernel::{Events, Limits, Policy, Server};

/// A daemon thread. Its BPF programs are loaded once for all connections.
#[derive(Debug)]
pub(crate) struct Service {
    /// Folder of its socket.
    folder: PathBuf,
    /// Closing this stops the daemon.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Service {
    /// Starts the service.
    ///
    /// # Errors
    /// The kernel does not support the BPF programs, or the process lacks the privilege (root) to
    /// load them.
    pub(crate) fn start() -> Result<Self> {
        let limits = Limits {
            clients: CLIENTS,
            ..Limits::default()
        };
        let mut server = Server::new(Policy::root_only().with_limits(limits), |_| ())
            .context("the TCP event service cannot start")?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-lab-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        server.listen(&folder.join(SOCKET))?;
        let (stop, stopped) = UnixStream::pair()?;
        let thread = thread::Builder::new().name("tcp-events".into());
        let thread = thread.spawn(move || server.run(stopped.as_fd()))?;
        Ok(Self {
            folder,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Connects a new client.
    ///
    /// # Errors
    /// The service has ended.
    pub(crate) fn open(&self) -> Result<Events> {
        Ok(Events::connect(&self.folder.join(SOCKET))?)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Clients observe its end themselves.
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Two clients for each video: the sender and the sampler. The slot of a closed client is not
/// reusable at once.
const CLIENTS: u32 = 4_096;
const SOCKET: &str = "events.sock";
/// Number of the next service of this process, for its folder name.
static NEXT: AtomicU32 = AtomicU32::new(0);
