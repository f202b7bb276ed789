//! pion: its GCC, pacer and transport-wide feedback, in a program of its own.
//!
//! pion reads clocks and starts goroutines, so the program (`peers/pion`) runs it where Go fakes
//! both, and moves its clock only when it is told to. Here the clock is told to stop at every
//! moment at which the library can do something by itself: its tickers have known periods. The
//! program refuses to go on if anything was sent in between.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tidegate_core::control::{Context, TimerReason, sooner};
use tidegate_core::endpoint::{Check, Datagram, Endpoint, Input, Output, Transmit};
use tidegate_core::units::{Rate, Time};

use crate::call::{Call, Part, Parts};
use crate::source::Source;

/// A sender and a receiver, a program each.
///
/// # Errors
/// When the program cannot be run.
pub fn parts(call: &Call, program: &Path) -> Result<Parts, PionError> {
    let rates = [call.first_rate, call.floor, call.ceiling].map(|rate| rate.as_bps().to_string());
    let rates: Vec<_> = rates.iter().map(String::as_str).collect();
    let feedback = FEEDBACK.as_millis().to_string();
    Ok(Parts {
        sender: Box::new(Sender {
            program: Program::run(program, "sender", &rates, call.start)?,
            source: Source::new(call),
            target: call.first_rate,
            pacer: call.start + PACER,
            outgoing: VecDeque::new(),
            failure: None,
        }),
        receiver: Box::new(Receiver {
            program: Program::run(program, "receiver", &[&feedback], call.start)?,
            report: None,
            outgoing: VecDeque::new(),
            failure: None,
        }),
    })
}

/// The version of the library in `program`.
///
/// # Errors
/// When the program cannot be run.
pub fn version(program: &Path) -> Result<String, PionError> {
    let output = Command::new(program).arg("version").output();
    let output = output.map_err(|error| PionError::new(program, error))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(PionError::new(program, io::Error::other(text)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[derive(Debug)]
struct Sender {
    program: Program,
    source: Source,
    target: Rate,
    /// When the pacer's ticker fires next.
    pacer: Time,
    outgoing: VecDeque<Vec<u8>>,
    failure: Option<String>,
}

impl Sender {
    fn ask(&mut self, now: Time, question: Question<'_>) {
        if self.failure.is_some() {
            return;
        }
        match self.program.ask(now, question) {
            Ok(answer) => {
                self.target = answer.target;
                self.outgoing.extend(answer.datagrams);
            }
            Err(error) => self.failure = Some(error.to_string()),
        }
    }
}

impl Sender {
    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        self.ask(cx.now, Question::Datagram(datagram.payload));
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.ask(cx.now, Question::Wake);
        while self.pacer <= cx.now {
            self.pacer += PACER;
        }
        if let Some(frame) = self.source.poll(cx.now, self.target) {
            let mut description = Vec::with_capacity(4 + 2 * frame.payloads.len());
            description.extend(frame.timestamp.to_le_bytes());
            for payload in &frame.payloads {
                description.extend((*payload as u16).to_le_bytes());
            }
            self.ask(cx.now, Question::Frame(&description));
        }
    }

    fn timer(&self) -> Option<(Time, TimerReason)> {
        if self.failure.is_some() {
            return None;
        }
        let frame = Some((self.source.next(), TimerReason::Capture));
        sooner(Some((self.pacer, TimerReason::Pacing)), frame)
    }
}

impl Endpoint for Sender {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) => self.on_datagram(cx, datagram),
            Input::PeerChanged | Input::PathChanged | Input::Stream(_) => {}
            Input::Timeout => self.on_timeout(cx),
        }
        Check::default()
    }

    fn poll(&mut self, _: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        let Some(datagram) = self.outgoing.pop_front() else {
            return Output::Wait(self.timer());
        };
        buffer.extend(datagram);
        Output::Send(Transmit::default())
    }
}

impl Part for Sender {
    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

#[derive(Debug)]
struct Receiver {
    program: Program,
    /// When the ticker of reports fires next; it starts with the first packet.
    report: Option<Time>,
    outgoing: VecDeque<Vec<u8>>,
    failure: Option<String>,
}

impl Receiver {
    fn ask(&mut self, now: Time, question: Question<'_>) {
        if self.failure.is_some() {
            return;
        }
        match self.program.ask(now, question) {
            Ok(answer) => self.outgoing.extend(answer.datagrams),
            Err(error) => self.failure = Some(error.to_string()),
        }
    }
}

impl Receiver {
    fn on_datagram(&mut self, cx: &mut Context<'_>, datagram: Datagram<'_>) {
        self.ask(cx.now, Question::Datagram(datagram.payload));
        self.report.get_or_insert(cx.now + FEEDBACK);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.ask(cx.now, Question::Wake);
        if let Some(report) = self.report.as_mut().filter(|at| **at <= cx.now) {
            *report += FEEDBACK;
        }
    }

    fn timer(&self) -> Option<(Time, TimerReason)> {
        let report = self.report.filter(|_| self.failure.is_none());
        report.map(|at| (at, TimerReason::Feedback))
    }
}

impl Endpoint for Receiver {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) -> Check {
        match input {
            Input::Datagram(datagram) => self.on_datagram(cx, datagram),
            Input::PeerChanged | Input::PathChanged | Input::Stream(_) => {}
            Input::Timeout => self.on_timeout(cx),
        }
        Check::default()
    }

    fn poll(&mut self, _: &mut Context<'_>, buffer: &mut Vec<u8>) -> Output {
        let Some(datagram) = self.outgoing.pop_front() else {
            return Output::Wait(self.timer());
        };
        buffer.extend(datagram);
        Output::Send(Transmit::default())
    }
}

impl Part for Receiver {
    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

/// A running program. It ends with its standard input.
#[derive(Debug)]
struct Program {
    path: PathBuf,
    zero: Time,
    child: Child,
    /// `None` once it is to end.
    questions: Option<BufWriter<ChildStdin>>,
    answers: BufReader<ChildStdout>,
}

/// What the program is told, after its clock was moved.
#[derive(Clone, Copy, Debug)]
enum Question<'a> {
    /// Nothing else.
    Wake,
    /// A frame to send: its RTP time, then the sizes of its payloads.
    Frame(&'a [u8]),
    /// What arrived.
    Datagram(&'a [u8]),
}

#[derive(Debug)]
struct Answer {
    target: Rate,
    datagrams: Vec<Vec<u8>>,
}

impl Program {
    /// Starts it; its clock begins at `zero`.
    fn run(path: &Path, role: &str, options: &[&str], zero: Time) -> Result<Self, PionError> {
        let mut command = Command::new(path);
        command.arg(role).args(options);
        // Go would interrupt a goroutine that takes longer than others, by the host's clock.
        command.env("GODEBUG", "asyncpreemptoff=1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| PionError::new(path, e))?;
        let missing = || PionError::new(path, io::Error::other("it has no pipes"));
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        Ok(Self {
            path: path.to_owned(),
            zero,
            child,
            questions: Some(BufWriter::new(stdin)),
            answers: BufReader::new(stdout),
        })
    }

    fn ask(&mut self, now: Time, question: Question<'_>) -> Result<Answer, PionError> {
        let answer = self.exchange(now, question);
        answer.map_err(|error| PionError::new(&self.path, error))
    }

    /// All numbers are little-endian. Question: kind, nanoseconds since the start, length, bytes.
    /// Answer: target in b/s, number of datagrams, each with its length; or the length of a
    /// complaint in place of the number, with its highest bit set.
    fn exchange(&mut self, now: Time, question: Question<'_>) -> io::Result<Answer> {
        let (kind, bytes): (u8, &[u8]) = match question {
            Question::Wake => (b'w', &[]),
            Question::Frame(bytes) => (b'f', bytes),
            Question::Datagram(bytes) => (b'd', bytes),
        };
        let questions = self.questions.as_mut();
        let questions = questions.ok_or_else(|| io::Error::other("it was told to end"))?;
        let elapsed = now.since(self.zero).as_nanos() as u64;
        questions.write_all(&[kind])?;
        questions.write_all(&elapsed.to_le_bytes())?;
        questions.write_all(&(bytes.len() as u32).to_le_bytes())?;
        questions.write_all(bytes)?;
        questions.flush()?;

        let target = Rate::bps(u64::from_le_bytes(self.read()?));
        let count = u32::from_le_bytes(self.read()?);
        if count & COMPLAINT != 0 {
            let text = self.read_bytes(count & !COMPLAINT)?;
            return Err(io::Error::other(String::from_utf8_lossy(&text)));
        }
        let mut datagrams = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let length = u32::from_le_bytes(self.read()?);
            datagrams.push(self.read_bytes(length)?);
        }
        Ok(Answer { target, datagrams })
    }

    fn read<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.answers.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn read_bytes(&mut self, length: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        self.answers.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.questions = None;
        // Its end is no news, and there is nobody to tell.
        self.child.wait().ok();
    }
}

/// The program fails.
#[derive(Debug)]
pub struct PionError {
    program: PathBuf,
    why: io::Error,
}

impl PionError {
    fn new(program: &Path, why: io::Error) -> Self {
        Self {
            program: program.to_owned(),
            why,
        }
    }
}

impl fmt::Display for PionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; is it the program of peers/pion, built by scripts/peers?",
            self.program.display(),
            self.why
        )
    }
}

impl core::error::Error for PionError {}

/// The interval of the pacer, which the library fixes.
const PACER: Duration = Duration::from_millis(5);
/// The interval of reports: that which str0m fixes, for the two to be compared. pion's own default
/// is 100 ms.
const FEEDBACK: Duration = Duration::from_millis(50);
/// Marks a complaint.
const COMPLAINT: u32 = 1 << 31;
