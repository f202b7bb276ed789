//! The frames of a receiver as a byte stream in a file or on standard output.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, Error, Result};
use tidegate_console::output::is_unread;

use super::pipe::PipeWriter;

/// Byte stream of `--out`, if given.
pub(super) struct Recording {
    name: String,
    to: Option<Target>,
    /// The first write error, which ends the byte stream.
    cut_short: Option<Error>,
}

enum Target {
    File(BufWriter<File>),
    /// Each frame is passed on at once.
    Pipe(PipeWriter),
}

impl Recording {
    /// Creates the file of `--out`, if given; `-` is standard output.
    ///
    /// # Errors
    /// The file or the thread cannot be created.
    pub(super) fn create(out: Option<&Path>) -> Result<Self> {
        let (name, to) = match out {
            None => (String::new(), None),
            Some(path) if path.as_os_str() == "-" => {
                let pipe = PipeWriter::start()?;
                ("standard output".to_owned(), Some(Target::Pipe(pipe)))
            }
            Some(path) => {
                let name = path.display().to_string();
                let file = File::create(path)
                    .with_context(|| format!("cannot write {name}: choose another file for --out"));
                (name, Some(Target::File(BufWriter::new(file?))))
            }
        };
        Ok(Self {
            name,
            to,
            cut_short: None,
        })
    }

    /// Appends bytes. Returns a message if the byte stream ends here.
    pub(super) fn write(&mut self, unit: &[u8]) -> Option<String> {
        let written = match &mut self.to {
            Some(Target::File(file)) => file.write_all(unit),
            Some(Target::Pipe(pipe)) => pipe.write(unit),
            None => return None,
        };
        let error = written.err()?;
        if let Some(Target::File(file)) = self.to.take() {
            // What is left in the buffer has no space either, and a destructor would write it.
            let _ = file.into_parts();
        }
        self.cut(error)
    }

    /// Whether the reader has closed the pipe.
    pub(super) fn is_unread(&self) -> bool {
        self.cut_short.as_ref().is_some_and(is_unread)
    }

    /// Writes the rest. Standard output has a second to accept it once `hurry` returns true. Returns
    /// a message if the byte stream ends before the end, and whether it is complete.
    pub(super) fn finish(mut self, hurry: impl Fn() -> bool) -> (Option<String>, Result<()>) {
        let written = match self.to.take() {
            Some(Target::File(mut file)) => file.flush().inspect_err(|_| {
                let _ = file.into_parts();
            }),
            Some(Target::Pipe(pipe)) => pipe.finish(hurry),
            None => Ok(()),
        };
        let said = written.err().and_then(|error| self.cut(error));
        (said, self.cut_short.map_or(Ok(()), Err))
    }

    /// The byte stream ends after a write error. A reader that has closed the pipe needs no message.
    fn cut(&mut self, error: io::Error) -> Option<String> {
        let name = &self.name;
        let cut = Error::new(error).context(format!("the recording in {name} is cut short"));
        let cut = self.cut_short.insert(cut);
        let why = cut.root_cause();
        (!is_unread(cut)).then(|| format!("{name} is incomplete from here on: {why:#}"))
    }
}
