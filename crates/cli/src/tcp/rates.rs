//! Target rates from and for other programs: in a file, or over a Unix socket. A line is a number of bits per second (`1500000`) or a rate (`1.5Mb/s`). An incoming
//! line may also be `drop`, which discards queued frames.

pub(super) mod file;

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tidegate_core::quantity;
use tidegate_core::session::tcp::Advice;
use tidegate_core::units::Rate;

use file::{LastLine, replace};

/// Channel for rates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// File; its last line counts.
    File(PathBuf),
    /// Unix stream socket on which this process listens.
    Unix(PathBuf),
}

impl Channel {
    /// The file, if it does not exist yet.
    pub(crate) fn missing(&self) -> Option<&Path> {
        match self {
            Self::File(path) if !path.exists() => Some(path),
            _ => None,
        }
    }
}

/// Parses `file:PATH` or `unix:PATH`; without a kind it is a file.
pub(crate) fn channel(text: &str) -> Result<Channel, String> {
    let (kind, path) = match text.split_once(':') {
        Some((kind @ ("file" | "unix"), path)) => (kind, path),
        Some((kind, path)) if is_kind(kind) => {
            return Err(format!(
                "unknown kind of channel \"{kind}\": write file:PATH or unix:PATH; for a file of \
                this name write file:{kind}:{path}"
            ));
        }
        _ => ("file", text),
    };
    if path.is_empty() {
        return Err(format!("\"{text}\" has no path: write it as {kind}:PATH"));
    }
    let path = PathBuf::from(path);
    Ok(if kind == "unix" {
        Channel::Unix(path)
    } else {
        Channel::File(path)
    })
}

/// Whether the text looks like the scheme of a URI (RFC 3986 section 3.1) rather than a path.
fn is_kind(text: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(rest)
}

/// Parses one line.
fn parse(line: &str) -> Result<Advice, String> {
    let line = line.trim();
    if line == "drop" {
        return Ok(Advice::Drop);
    }
    if let Ok(bps) = line.parse::<f64>()
        && bps.is_finite()
        && bps >= 0.0
    {
        return Ok(Advice::Rate(Rate::from_f64(bps)));
    }
    quantity::rate(line).map(Advice::Rate).map_err(|_| {
        format!(
            "\"{line}\" is not a rate: write bits per second, such as 1500000 or 1.5Mb/s, or \
        drop"
        )
    })
}

/// Incoming rates. Polled at each turn; never blocks.
#[derive(Debug)]
pub(crate) enum Incoming {
    File(LastLine),
    Unix {
        listener: UnixListener,
        clients: Vec<(UnixStream, String)>,
        _bound: Bound,
    },
}

impl Incoming {
    /// # Errors
    /// The socket cannot be created.
    pub(crate) fn open(channel: &Channel) -> Result<Self> {
        match channel {
            Channel::File(path) => Ok(Self::File(LastLine::of(path.clone()))),
            Channel::Unix(path) => {
                let (listener, bound) = bind(path)?;
                Ok(Self::Unix {
                    listener,
                    clients: Vec::new(),
                    _bound: bound,
                })
            }
        }
    }

    /// Lines since the last call, or errors for invalid ones.
    pub(crate) fn poll(&mut self) -> Vec<Result<Advice, String>> {
        match self {
            Self::File(file) => file.poll().into_iter().collect(),
            Self::Unix {
                listener, clients, ..
            } => {
                while let Ok((client, _)) = listener.accept() {
                    // A client that cannot be made non-blocking is dropped.
                    if client.set_nonblocking(true).is_ok() && clients.len() < MAX_CLIENTS {
                        clients.push((client, String::new()));
                    }
                }
                let mut said = Vec::new();
                clients.retain_mut(|(client, text)| {
                    let open = read_lines(client, text);
                    said.extend(complete(text));
                    open
                });
                said
            }
        }
    }
}

/// Reads available lines, of at most [`MAX_BYTES`]: a writer that never pauses must not hold the
/// stream. `false` at the end of the file.
fn read_lines(from: &mut impl io::Read, text: &mut String) -> bool {
    let mut buffer = [0; 1_024];
    let mut bytes = 0;
    while bytes < MAX_BYTES {
        match from.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => {
                bytes += count;
                text.push_str(&String::from_utf8_lossy(&buffer[..count]));
                if text.len() > MAX_LINE && !text.contains('\n') {
                    text.clear();
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return e.kind() == ErrorKind::WouldBlock,
        }
    }
    true
}

/// Removes and parses the complete lines.
fn complete(text: &mut String) -> Vec<Result<Advice, String>> {
    let Some(end) = text.rfind('\n') else {
        return Vec::new();
    };
    let rest = text.split_off(end + 1);
    let lines = std::mem::replace(text, rest);
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    lines.map(parse).collect()
}

/// Outgoing rates.
#[derive(Debug)]
pub(crate) struct Outgoing {
    way: Way,
    /// Last rate written to all readers.
    last: Option<Rate>,
}

#[derive(Debug)]
enum Way {
    File(PathBuf),
    Unix {
        listener: UnixListener,
        clients: Vec<UnixStream>,
        _bound: Bound,
    },
}

impl Outgoing {
    /// # Errors
    /// The socket cannot be created.
    pub(crate) fn open(channel: &Channel) -> Result<Self> {
        let way = match channel {
            Channel::File(path) => Way::File(path.clone()),
            Channel::Unix(path) => {
                let (listener, bound) = bind(path)?;
                Way::Unix {
                    listener,
                    clients: Vec::new(),
                    _bound: bound,
                }
            }
        };
        Ok(Self { way, last: None })
    }

    /// Writes the rate if it changed. New clients get it in any case.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn write(&mut self, rate: Rate) -> io::Result<()> {
        let line = format!("{}\n", rate.as_bps());
        let is_new = self.last.replace(rate) != Some(rate);
        match &mut self.way {
            Way::File(path) if is_new => replace(path, &line),
            Way::File(_) => Ok(()),
            Way::Unix {
                listener, clients, ..
            } => {
                if is_new {
                    clients.retain_mut(|client| client.write_all(line.as_bytes()).is_ok());
                }
                while let Ok((mut client, _)) = listener.accept() {
                    // At a constant rate no line shows which ones are closed. An empty write does.
                    clients.retain_mut(|known| known.write(&[]).is_ok());
                    let quiet = client.set_nonblocking(true).is_ok();
                    if quiet
                        && clients.len() < MAX_CLIENTS
                        && client.write_all(line.as_bytes()).is_ok()
                    {
                        clients.push(client);
                    }
                }
                Ok(())
            }
        }
    }
}

fn bind(path: &Path) -> Result<(UnixListener, Bound)> {
    let name = path.display();
    if fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        && UnixStream::connect(path).is_err()
    {
        // A socket left by a killed process.
        fs::remove_file(path).with_context(|| format!("cannot remove the old socket {name}"))?;
    }
    let listener = UnixListener::bind(path)
        .with_context(|| format!("cannot listen at {name}: choose an unused path"))?;
    listener.set_nonblocking(true)?;
    Ok((listener, Bound(path.to_owned())))
}

/// Removes the socket's file on drop.
#[derive(Debug)]
pub(crate) struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        // A missing file is not an error.
        let _ = fs::remove_file(&self.0);
    }
}

/// `O_NONBLOCK` of Linux.
pub(super) const NONBLOCK: i32 = 0o4000;
const MAX_CLIENTS: usize = 16;
/// Bytes of a client that are read between two turns of the stream.
const MAX_BYTES: usize = 1 << 16;
/// In bytes, longer than any valid line.
const MAX_LINE: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    fn path(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("tidegate-rates-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    const fn rate(kbps: u64) -> Advice {
        Advice::Rate(Rate::kbps(kbps))
    }

    #[test]
    fn lines_are_rates_or_drop() {
        assert_eq!(parse(" 1500000 "), Ok(rate(1_500)));
        assert_eq!(parse("512240.0"), Ok(Advice::Rate(Rate::bps(512_240))));
        assert_eq!(parse("1.5Mb/s"), Ok(rate(1_500)));
        assert_eq!(parse("drop"), Ok(Advice::Drop));
        for wrong in ["-1", "fast", "inf", "1 2"] {
            assert!(parse(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn channels_are_parsed() {
        assert_eq!(channel("rate.par"), Ok(Channel::File("rate.par".into())));
        assert!(channel("pipe:p").unwrap_err().contains("unix:PATH"));
        assert_eq!(channel("unix:/x/s"), Ok(Channel::Unix("/x/s".into())));
        assert_eq!(channel("file:a:b"), Ok(Channel::File("a:b".into())));
        assert!(channel("unix:").unwrap_err().contains("unix:PATH"));
        assert!(channel("foo:/x").unwrap_err().contains("file:foo:/x"));
        assert_eq!(channel("./a:b"), Ok(Channel::File("./a:b".into())));
        let missing = channel("/nosuch/rate").unwrap();
        assert_eq!(missing.missing(), Some(Path::new("/nosuch/rate")));
        assert_eq!(channel("/").unwrap().missing(), None);
    }

    #[test]
    fn closed_clients_leave_their_places_to_new_ones() {
        let path = path("places");
        let mut outgoing = Outgoing::open(&Channel::Unix(path.clone())).unwrap();
        let connect = |outgoing: &mut Outgoing| {
            let client = UnixStream::connect(&path).unwrap();
            outgoing.write(Rate::kbps(500)).unwrap();
            client
        };
        let first_line = |client: UnixStream| BufReader::new(client).lines().next();
        // It reads, and writes nothing.
        let half = connect(&mut outgoing);
        half.shutdown(std::net::Shutdown::Write).unwrap();
        for _ in 0..2 * MAX_CLIENTS {
            let line = first_line(connect(&mut outgoing));
            assert_eq!(line.unwrap().unwrap(), "500000");
        }
        let open: Vec<_> = (1..MAX_CLIENTS).map(|_| connect(&mut outgoing)).collect();
        assert!(first_line(connect(&mut outgoing)).is_none(), "all are open");
        outgoing.write(Rate::kbps(700)).unwrap();
        for client in open.into_iter().chain([half]) {
            let lines = BufReader::new(client).lines().take(2);
            assert!(lines.map(Result::unwrap).eq(["500000", "700000"]));
        }
    }

    #[test]
    fn a_writer_that_never_pauses_is_read_in_parts() {
        let lines = "1000000\n700000\n".repeat(20_000);
        let mut rest = lines.as_bytes();
        let (mut text, mut said) = (String::new(), Vec::new());
        loop {
            let before = rest.len();
            let open = read_lines(&mut rest, &mut text);
            assert!(before - rest.len() <= MAX_BYTES);
            said.extend(complete(&mut text));
            if !open {
                break;
            }
        }
        assert_eq!(said.len(), 40_000);
        assert!(
            said.chunks(2)
                .all(|two| *two == [Ok(rate(1_000)), Ok(rate(700))])
        );
    }

    #[test]
    fn a_socket_writes_to_new_clients_and_reads_from_all() {
        let path = path("socket");
        let mut outgoing = Outgoing::open(&Channel::Unix(path.clone())).unwrap();
        outgoing.write(Rate::kbps(500)).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        outgoing.write(Rate::kbps(500)).unwrap();
        outgoing.write(Rate::kbps(700)).unwrap();
        let mut lines = BufReader::new(client).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "500000");
        assert_eq!(lines.next().unwrap().unwrap(), "700000");
        drop(outgoing);
        assert!(!path.exists(), "the file is removed with the socket");

        let mut incoming = Incoming::open(&Channel::Unix(path.clone())).unwrap();
        assert!(incoming.poll().is_empty());
        let mut clients = [(); 2].map(|()| UnixStream::connect(&path).unwrap());
        clients[0].write_all(b"1Mb/s\n").unwrap();
        clients[1].write_all(b"drop\n").unwrap();
        assert_eq!(incoming.poll(), [Ok(rate(1_000)), Ok(Advice::Drop)]);
    }
}
