//! Picture window: `ffplay`, fed through a pipe.

use std::io::{self, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result};
use tidegate_core::media::FrameRate;
use tidegate_media::{Picture, Size};

/// Open window; closed on drop.
#[derive(Debug)]
pub(super) struct Window {
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
        Self::with("ffplay", rate).context(
            "--window needs ffplay: install FFmpeg's programs (package ffmpeg on Debian), or \
            leave --window out",
        )
    }

    fn with(player: &str, rate: FrameRate) -> io::Result<Self> {
        let mut command = Command::new(player);
        command.args(["-hide_banner", "-loglevel", "fatal", "-autoexit"]);
        command.args(["-fflags", "nobuffer", "-probesize", "32", "-sync", "ext"]);
        command.args(["-window_title", "tidegate", "-f", "yuv4mpegpipe", "-i"]);
        command.arg("pipe:0").stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn()?;
        Ok(Self {
            pipe: child.stdin.take(),
            child,
            rate,
            size: None,
        })
    }

    /// Shows a picture for one frame.
    ///
    /// # Errors
    /// The user closed the window, or the picture size changed.
    pub(super) fn show(&mut self, picture: &Picture) -> io::Result<()> {
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
        if self.size != Some(size) {
            return Err(io::Error::other("the picture size changed"));
        }
        pipe.write_all(b"FRAME\n")?;
        pipe.write_all(picture.as_i420())
    }
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

    #[test]
    fn a_closed_window_is_an_error_rather_than_a_hang() {
        let picture = Picture::black(Size::new(64, 48).unwrap());
        let mut window = Window::with("true", FrameRate::fps(30)).unwrap();
        window.child.wait().unwrap();
        assert!(window.show(&picture).is_err());
        assert!(Window::with("/nowhere/ffplay", FrameRate::fps(30)).is_err());
    }
}
