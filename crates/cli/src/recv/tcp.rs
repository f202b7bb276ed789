//! `tidegate recv --transport tcp`: a player with a discard threshold, which notes when each frame
//! came.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tidegate_core::media::{Codec, FrameRate};
use tidegate_core::session::assembler::ReceivedFrame;
use tidegate_core::session::tcp::{Punctuality, TcpReceiver};
use tidegate_core::units::{Bytes, Time};
use tidegate_live::driver::{Conditions, StopFlag};
use tidegate_live::tcp::{TcpOptions, TcpSocket, receive};
use tidegate_sim::cast::received_row;
use tidegate_sim::run::{ReceivedFrame as Row, ShownFrame, Side, Summary};

use super::numbering::Numbering;
use super::viewer::{Judged, Viewer, Watch};
use super::window::Window;
use super::{RecvArgs, flow_info};
use crate::live::{self, FLOW, Folder, Surroundings};
use crate::progress::{Progress, millis};
use crate::tcp::ends::End;

/// Plays one stream. The exit code is 1 when the sender leaves without a goodbye.
pub(super) fn run(args: &RecvArgs) -> Result<ExitCode> {
    ensure!(
        args.sdp.is_none() && args.feedback.is_none(),
        "--sdp and --feedback are for --transport rtp: leave them out"
    );
    let fps = args.fps.unwrap_or(FrameRate::fps(30));
    let around = Surroundings::enter()?;
    let end = End::new(args.from.as_deref(), args.listen.as_deref())?;
    let mut progress = Progress::new();
    if let Some(port) = end.port() {
        progress.say(&format!("waiting for a stream at port {port}"));
    }
    let conditions = Conditions {
        clock: around.clock,
        until: args.duration.map(|span| Time::ZERO + span),
        stop: around.stop.clone(),
    };
    let over = || {
        let late = conditions.until.is_some_and(|at| around.clock.now() >= at);
        around.interrupts.count() > 0 || late
    };
    let Some(stream) = end.open(&conditions, over)? else {
        ensure!(
            around.interrupts.count() > 0,
            "nobody connected in time: look whether the sender runs, and give it this address"
        );
        return Ok(ExitCode::SUCCESS);
    };
    let mut socket = TcpSocket::new(stream, &TcpOptions::default())?;
    let name = format!("receive from {} over TCP", socket.peer());
    let manifest = live::manifest(&name, args.duration, flow_info(args, fps));
    let folder = Folder::create(args.run.as_deref(), args.json, Side::Receiver, manifest)?;
    let mut player = Player::new(args, fps, folder, progress, around.stop.clone())?;
    let mut receiver = TcpReceiver::new();
    let mut idle = false;
    let ended = receive(&mut receiver, &mut socket, &conditions, |receiver, now| {
        player.turn(receiver, now);
        idle = player.is_idle(now, args.idle_timeout);
        if idle || player.failed.is_some() || around.interrupts.count() > 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    receiver.finish();
    player.turn(&mut receiver, around.clock.now());
    let failed = player.failed.take();
    let summary = player.finish(around.clock.now())?;
    live::print_json(summary.as_ref().filter(|_| args.json))?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    ended?;
    if idle {
        bail!(
            "nothing has come for {} s and the sender said no goodbye: it hangs, or the path is \
             dead",
            args.idle_timeout.as_secs_f64()
        );
    }
    Ok(ExitCode::SUCCESS)
}

struct Player<'a> {
    args: &'a RecvArgs,
    fps: FrameRate,
    progress: Progress,
    folder: Folder,
    stop: StopFlag,
    window: Option<Window>,
    viewer: Option<Viewer>,
    out: Option<(String, BufWriter<File>)>,
    numbering: Numbering,
    punctuality: Punctuality,
    /// The frame on the screen, and the one whose turn is next.
    on_screen: Option<u64>,
    next: u64,
    rows: Vec<Row>,
    shown: Vec<ShownFrame>,
    packets: u64,
    last_news: Time,
    recent: Recent,
    total: Total,
    told_misfit: bool,
    failed: Option<anyhow::Error>,
}

/// Since the last progress line.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    since: Time,
    frames: u64,
    bits: u64,
    discarded: u64,
    latest: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    whole: u64,
    discarded: u64,
    bits: u64,
    judged: u64,
    psnr: f64,
    span: Option<(Time, Time)>,
}

impl<'a> Player<'a> {
    fn new(
        args: &'a RecvArgs,
        fps: FrameRate,
        folder: Folder,
        progress: Progress,
        stop: StopFlag,
    ) -> Result<Self> {
        let out = args.out.as_ref().map(|path| {
            let name = path.display().to_string();
            let file = File::create(path).with_context(|| format!("cannot write {name}"))?;
            anyhow::Ok((name, BufWriter::new(file)))
        });
        Ok(Self {
            args,
            fps,
            progress,
            folder,
            stop,
            window: args.window.then(|| Window::open(fps)).transpose()?,
            viewer: None,
            out: out.transpose()?,
            numbering: Numbering::new(fps),
            punctuality: Punctuality::new(args.delay_bound),
            on_screen: None,
            next: 0,
            rows: Vec::new(),
            shown: Vec::new(),
            packets: 0,
            last_news: Time::ZERO,
            recent: Recent::default(),
            total: Total::default(),
            told_misfit: false,
            failed: None,
        })
    }

    fn turn(&mut self, receiver: &mut TcpReceiver, now: Time) {
        if self.packets == 0
            && let Some(codec) = receiver.codec()
            && let Err(e) = self.begin(codec)
        {
            self.failed = Some(e);
            return;
        }
        if receiver.packets() > self.packets {
            self.packets = receiver.packets();
            self.last_news = now;
        }
        while let Some(frame) = receiver.poll_frame() {
            self.take(frame);
        }
        while let Some(judged) = self.viewer.as_ref().and_then(Viewer::poll) {
            self.judged(judged);
        }
        self.keep(now);
        if self.packets > 0 && self.progress.is_due(now) {
            let line = self.line(now);
            self.progress.show(&line);
        }
    }

    /// The first packet tells the codec.
    fn begin(&mut self, codec: Codec) -> Result<()> {
        self.progress
            .say(&format!("the stream is there: {}", codec.name()));
        let reference = self.args.reference.as_deref();
        if reference.is_none() && self.window.is_none() {
            return Ok(());
        }
        let watch = Watch {
            reference,
            window: self.window.take(),
            codec,
            rate: self.fps,
        };
        self.viewer = Some(Viewer::start(watch, self.stop.clone())?);
        Ok(())
    }

    fn is_idle(&self, now: Time, patience: Duration) -> bool {
        self.packets > 0 && now.since(self.last_news) >= patience
    }

    fn take(&mut self, frame: ReceivedFrame) {
        let numbered = self.numbering.number(frame.timestamp, frame.first);
        if self.numbering.misfits() && !std::mem::replace(&mut self.told_misfit, true) {
            self.progress.say(
                "the time stamps do not fit the frame rate, so frame numbers are wrong: give \
                 --fps as the sender has it",
            );
        }
        let mut accepted = false;
        if let Some(complete) = frame.complete {
            let lateness = self.punctuality.lateness(frame.timestamp, complete);
            accepted = self.punctuality.accepts(lateness);
            self.count(&frame, complete, lateness, accepted);
        }
        if let Some((name, out)) = &mut self.out
            && let Err(e) = out.write_all(&frame.data)
        {
            self.progress.say(&format!("{name} ends here: {e}"));
            self.out = None;
        }
        let row = received_row(&frame, numbered.frame);
        let Some(viewer) = &mut self.viewer else {
            self.show(numbered.frame, accepted);
            self.rows.push(row);
            return;
        };
        let kept_up = viewer.keeps_up();
        if let Err(row) = viewer.show(row, frame.data, accepted) {
            self.rows.push(row);
            if kept_up {
                self.progress
                    .say("no more pictures: this machine decodes too slowly");
            }
        }
    }

    /// Notes what is on the screen, as no decoder does it.
    fn show(&mut self, frame: u64, accepted: bool) {
        let from = self.next.max(frame.saturating_sub(LONGEST_GAP));
        for slot in from..=frame {
            let on_time = accepted && slot == frame;
            if on_time {
                self.on_screen = Some(frame);
            }
            self.shown.push(ShownFrame {
                frame: slot,
                shown_frame: self.on_screen,
                on_time,
                quality: None,
            });
        }
        self.next = self.next.max(frame + 1);
    }

    fn count(&mut self, frame: &ReceivedFrame, at: Time, lateness: Duration, accepted: bool) {
        let bits = frame.bytes * 8;
        let discarded = u64::from(!accepted);
        self.recent.frames += 1;
        self.recent.bits += bits;
        self.recent.discarded += discarded;
        self.recent.latest = self.recent.latest.max(lateness);
        self.total.whole += 1;
        self.total.bits += bits;
        self.total.discarded += discarded;
        let (first, _) = self.total.span.unwrap_or((at, at));
        self.total.span = Some((first, at));
    }

    fn judged(&mut self, judged: Judged) {
        if let Some(quality) = judged.row.quality {
            self.total.judged += 1;
            self.total.psnr += quality.psnr_y;
        }
        self.rows.push(judged.row);
        self.shown.extend(judged.shown);
        if let Some(note) = judged.note {
            self.progress.say(&note);
        }
    }

    fn keep(&mut self, now: Time) {
        let (rows, shown) = (&self.rows, &self.shown);
        let trouble = self.folder.record(now, &[], |writer| {
            rows.iter()
                .try_for_each(|row| writer.received_frame(FLOW, row))?;
            shown
                .iter()
                .try_for_each(|row| writer.shown_frame(FLOW, row))
        });
        self.rows.clear();
        self.shown.clear();
        if let Some(trouble) = trouble {
            self.progress.say(&trouble);
        }
    }

    fn line(&mut self, now: Time) -> String {
        let fresh = Recent {
            since: now,
            ..Recent::default()
        };
        let recent = std::mem::replace(&mut self.recent, fresh);
        let span = now.since(recent.since).max(Duration::from_millis(1));
        format!(
            "{:6.1} s  {}  {:.0} frames/s  discarded {}  late by {} of {}",
            now.as_secs_f64(),
            Bytes(recent.bits / 8) / span,
            recent.frames as f64 / span.as_secs_f64(),
            recent.discarded,
            millis(recent.latest),
            millis(self.args.delay_bound),
        )
    }

    /// The last rows and the last words.
    fn finish(mut self, now: Time) -> Result<Option<Summary>> {
        if let Some(viewer) = self.viewer.take() {
            for judged in viewer.finish() {
                self.judged(judged);
            }
        }
        self.keep(now);
        let total = self.total;
        let span = total
            .span
            .map_or(Duration::ZERO, |(first, last)| last.since(first));
        let rate = Bytes(total.bits / 8) / span.max(Duration::from_millis(1));
        let likeness = if total.judged > 0 {
            let psnr = total.psnr / total.judged as f64;
            format!("; PSNR {psnr:.1} dB over {} frames", total.judged)
        } else {
            String::new()
        };
        self.progress.say(&format!(
            "received {} whole frames in {:.1} s, {rate} of video; {} discarded, later than {}\
             {likeness}",
            total.whole,
            span.as_secs_f64(),
            total.discarded,
            millis(self.args.delay_bound),
        ));
        if let Some((name, mut out)) = self.out.take() {
            out.flush()
                .with_context(|| format!("cannot write {name}"))?;
        }
        self.folder.finish(now)
    }
}

/// Frames for which the last picture is noted, after which it is off the screen.
const LONGEST_GAP: u64 = 300;
