//! Picture window: `ffplay`, fed through a pipe.

use std::io::{self, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result};
use tidegate_console::exit::EnvironmentError;
use tidegate_core::media::FrameRate;
use tidegate_media::{Picture, Size};

/// Open window; closed on drop.
#[derive(Debug)]
pub(super) struct Window {
    player: String,
    child: Child,
    pipe: Option<ChildStdin>,
    rate: FrameRate,
    /// Picture size in the header that was written to the player.
    size: Option<Size>,
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

    fn with(player: &str, rate: FrameRate) -> io::Result<Self> {
        let mut child = start(player)?;
        Ok(Self {
            player: player.to_owned(),
            pipe: child.stdin.take(),
            child,
            rate,
            size: None,
        })
    }

    /// Shows a picture for one frame. A picture of another size is shown in another window, since
    /// the player takes the size from the header of its input.
    ///
    /// # Errors
    /// The user closed the window.
    pub(super) fn show(&mut self, picture: &Picture) -> io::Result<()> {
        if self.size.is_some_and(|size| size != picture.size()) {
            // A player that has ended was closed by the user.
            if self.child.try_wait()?.is_some() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            *self = Self::with(&self.player, self.rate)?;
        }
        let Some(pipe) = &mut self.pipe else {
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

impl Drop for Window {
    fn drop(&mut self) {
        self.pipe = None;
        // The player may be paused, so kill it rather than wait. Killing an exited process fails
        // without harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        let first = window.child.id();
        window.show(&Picture::black(small)).unwrap();
        assert_eq!(window.child.id(), first);
        window.show(&Picture::black(large)).unwrap();
        assert_ne!(window.child.id(), first);
        assert_eq!(window.size, Some(large));
    }

    #[test]
    fn a_closed_window_is_an_error_rather_than_a_hang() {
        let picture = Picture::black(Size::new(64, 48).unwrap());
        let mut window = Window::with("true", FrameRate::fps(30)).unwrap();
        window.child.wait().unwrap();
        assert!(window.show(&picture).is_err());
        assert!(Window::with("/nowhere/ffplay", FrameRate::fps(30)).is_err());
    }
}
