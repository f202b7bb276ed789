//! Picture window: `ffplay`, fed through a pipe.

use std::io::{self, Write as _};
use std::mem;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use tidegate_console::exit::EnvironmentError;
use tidegate_core::media::FrameRate;
use tidegate_media::{Picture, Size};

/// Open window; closed on drop.
#[derive(Debug)]
pub(super) struct Window {
    player: String,
    process: WindowHandle,
    pipe: Option<ChildStdin>,
    rate: FrameRate,
    /// Picture size in the header that was written to the player.
    size: Option<Size>,
}

/// Closes a window from another thread, also while [`Window::show`] waits for its player.
#[derive(Clone, Debug)]
pub(super) struct WindowHandle(Arc<Mutex<Process>>);

#[derive(Debug)]
struct Process {
    child: Child,
    /// Closed by the handle. No other player is started.
    is_closed: bool,
}

impl WindowHandle {
    /// Ends the player, as it may be paused. Later pictures are not shown.
    pub(super) fn close(&self) {
        let mut process = self.lock();
        process.is_closed = true;
        end(&mut process.child);
    }

    fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// A poisoned lock is usable: no critical section leaves a partial state.
    fn lock(&self) -> MutexGuard<'_, Process> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    /// Opens the window.
    ///
    /// # Errors
    /// `ffplay` is not installed.
    pub(super) fn open(rate: FrameRate) -> Result<Self> {
        let opened = Self::with("ffplay", rate).context(
            "--window needs ffplay: install FFmpeg's programs (package ffmpeg on Debian), or \
            leave --window out",
        );
        Ok(opened.map_err(EnvironmentError::of)?)
    }

    /// Opens the window of another player.
    ///
    /// # Errors
    /// There is no such program.
    pub(super) fn with(player: &str, rate: FrameRate) -> io::Result<Self> {
        let mut child = start(player)?;
        let pipe = child.stdin.take();
        let process = Process {
            child,
            is_closed: false,
        };
        Ok(Self {
            player: player.to_owned(),
            process: WindowHandle(Arc::new(Mutex::new(process))),
            pipe,
            rate,
            size: None,
        })
    }

    /// Handle that closes the window.
    pub(super) fn handle(&self) -> WindowHandle {
        self.process.clone()
    }

    /// Whether the handle has closed the window.
    pub(super) fn is_closed(&self) -> bool {
        self.process.is_closed()
    }

    /// Shows a picture for one frame. A picture of another size is shown in another window, since
    /// the player takes the size from the header of its input.
    ///
    /// # Errors
    /// The user closed the window.
    pub(super) fn show(&mut self, picture: &Picture) -> io::Result<()> {
        if self.size.is_some_and(|size| size != picture.size()) {
            self.restart()?;
        }
        // The pipe of a closed player may still be open: a process that it started can hold it.
        let Some(pipe) = self.pipe.as_mut().filter(|_| !self.process.is_closed()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let size = picture.size();
        if self.size.is_none() {
            let (width, height) = (size.width(), size.height());
            let FrameRate { num, den } = self.rate;
            writeln!(
                pipe,
                "YUV4MPEG2 W{width} H{height} F{num}:{den} Ip A1:1 C420mpeg2"
            )?;
            self.size = Some(size);
        }
        pipe.write_all(b"FRAME\n")?;
        pipe.write_all(picture.as_i420())
    }

    /// Replaces the player.
    fn restart(&mut self) -> io::Result<()> {
        let mut process = self.process.lock();
        // A player that has ended was closed by the user, or by the handle.
        if process.child.try_wait()?.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut next = start(&self.player)?;
        (self.pipe, self.size) = (next.stdin.take(), None);
        end(&mut mem::replace(&mut process.child, next));
        Ok(())
    }
}

/// Starts a player of a stream of pictures on its standard input.
fn start(player: &str) -> io::Result<Child> {
    let mut command = Command::new(player);
    command.args(["-hide_banner", "-loglevel", "fatal", "-autoexit"]);
    command.args(["-fflags", "nobuffer", "-probesize", "32", "-sync", "ext"]);
    command.args(["-window_title", "tidegate", "-f", "yuv4mpegpipe", "-i"]);
    command.arg("pipe:0").stdin(Stdio::piped());
    command.stdout(Stdio::null()).spawn()
}

/// The player may be paused, so it is killed. Its id is its own until it has been waited for; later
/// calls do nothing.
fn end(player: &mut Child) {
    let _ = player.kill();
    let _ = player.wait();
}

impl Drop for Window {
    fn drop(&mut self) {
        self.pipe = None;
        end(&mut self.process.lock().child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a way to behave in its name, it reads its input to the end.
    const PLAYER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile_decoder.sh");

    #[test]
    fn a_picture_of_another_size_is_shown_in_another_window() {
        let [small, large] = [(64, 48), (96, 64)].map(|(w, h)| Size::new(w, h).unwrap());
        let mut window = Window::with(PLAYER, FrameRate::fps(30)).unwrap();
        window.show(&Picture::black(small)).unwrap();
        let id = |window: &Window| window.process.lock().child.id();
        let first = id(&window);
        window.show(&Picture::black(small)).unwrap();
        assert_eq!(id(&window), first);
        window.show(&Picture::black(large)).unwrap();
        assert_ne!(id(&window), first);
        assert_eq!(window.size, Some(large));
    }

    #[test]
    fn a_closed_window_is_an_error_rather_than_a_hang() {
        let picture = Picture::black(Size::new(64, 48).unwrap());
        let mut window = Window::with("true", FrameRate::fps(30)).unwrap();
        window.process.lock().child.wait().unwrap();
        assert!(window.show(&picture).is_err());
        assert!(Window::with("/nowhere/ffplay", FrameRate::fps(30)).is_err());
    }

    #[test]
    fn a_window_closed_by_its_handle_stays_closed() {
        let [small, large] = [(64, 48), (96, 64)].map(|(w, h)| Size::new(w, h).unwrap());
        let mut window = Window::with(PLAYER, FrameRate::fps(30)).unwrap();
        window.show(&Picture::black(small)).unwrap();
        window.handle().close();
        for size in [small, large] {
            assert!(window.show(&Picture::black(size)).is_err());
        }
        assert!(window.is_closed());
    }
}
