//! The event service of a lab: one for all of its connections.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result};
use tidegate_kernel::{Events, Limits, Policy, Server};

/// A daemon in a thread, whose programs are in the kernel once, however many connections listen.
#[derive(Debug)]
pub(crate) struct Service {
    /// Of its socket, in a folder of its own.
    folder: PathBuf,
    /// It ends when this is closed.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Service {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel cannot tell of its sockets, or does not let us: that takes root.
    pub(crate) fn start() -> Result<Self> {
        let limits = Limits {
            clients: CLIENTS,
            ..Limits::default()
        };
        let mut server = Server::new(Policy::root_only().with_limits(limits), |_| ())
            .context("nobody tells what kernel TCP does")?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-lab-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        server.listen(&folder.join(SOCKET))?;
        let (stop, heard) = UnixStream::pair()?;
        let thread = thread::Builder::new().name("tcp-events".into());
        let thread = thread.spawn(move || server.run(heard.as_fd()))?;
        Ok(Self {
            folder,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// A client of it.
    ///
    /// # Errors
    /// It is gone.
    pub(crate) fn open(&self) -> Result<Events> {
        Ok(Events::connect(&self.folder.join(SOCKET))?)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Whoever used it has heard of its end already.
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Two for each video: its sender, and whoever writes down what there was. A place that was left stays
/// empty for a moment.
const CLIENTS: u32 = 4_096;
const SOCKET: &str = "events.sock";
/// Labs of this process have one each.
static NEXT: AtomicU32 = AtomicU32::new(0);
