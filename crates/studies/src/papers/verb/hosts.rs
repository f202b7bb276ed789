//! `tidegate papers hosts`: streams in each mode over real paths, to players that ssh starts on
//! other hosts.

mod background_jobs;
mod capture;
mod cross;
mod injector;
mod list;
mod outcome;
mod player;
mod remote_process;

use std::any::Any;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use crate::papers::OutageSchedule;
use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};
use tidegate_core::quantity;
use tidegate_core::units::Time;
use tidegate_live::tcp::SenderEnd;
use tidegate_record::RunReader;

use self::background_jobs::{BackgroundJobs, JobContext};
use self::cross::Cross;
use self::injector::{Cut, InjectorKind, InjectorShell};
use self::list::Host;
use self::outcome::{FrameStatistics, ModeSummary, Outcome};
use self::player::{Player, Ssh};
use super::bursts::BurstArgs;
use super::{Program, Sender, Streamed};
use tidegate_console::context::LiveContext;
use tidegate_console::exit::ENVIRONMENT;
use tidegate_console::output::{output, print_json};
use tidegate_console::progress::say;
use tidegate_console::signals::{self, CreatedFolders};

/// Options of `papers hosts`.
#[derive(Debug, clap::Args)]
pub(crate) struct HostsArgs {
    /// `[USER@]HOST[:PORT][,to=ADDRESS[:PORT]][,tidegate=PATH][,name=NAME]`: ssh login, destination
    /// of the video [default: port 5004 of the same host], and the program on the host
    #[arg(required_unless_present = "hosts")]
    host: Vec<Host>,
    /// A file with a host per line; `#` begins a comment
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// A mode of `send` with its own options, such as "iopt --law paper"; repeatable
    #[arg(long = "mode", value_name = "MODE", default_values = ["classic", "ioff", "iexp", "iopt"])]
    modes: Vec<String>,
    /// Runs of each mode to each host; the runs of all modes alternate
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Length of the video
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = quantity::duration)]
    duration: Duration,
    /// Maximum useful delay of a frame after its capture
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = quantity::duration)]
    delay_bound: Duration,
    /// Maximum duration of a run [default: the video and one minute]
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    limit: Option<Duration>,
    #[command(flatten)]
    bursts: BurstArgs,
    /// With --cut or --gap: method of cutting the path to the player. "route" blackholes this
    /// host's route; a command is run with the arguments "cut ADDRESS" and "mend ADDRESS" appended
    /// [default: route]
    #[arg(long, value_name = "route|COMMAND")]
    injector: Option<InjectorKind>,
    /// `[USER@]HOST[:PORT],rate=RATE[,on=TIME,off=TIME][,to=player|sender|ADDRESS][,tidegate=PATH][,name=NAME]`:
    /// a host that sends cross traffic over UDP during the video; repeatable
    #[arg(long, value_name = "HOST")]
    cross: Vec<Cross>,
    /// Capture packets at both ends if tcpdump is installed and has the rights
    #[arg(long)]
    capture: bool,
    /// ssh command with options, such as "ssh -i KEY"
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    ssh: String,
    /// Folder for the run folders of both sides and the results
    #[arg(long, value_name = "DIR", default_value = "runs/hosts")]
    out: PathBuf,
    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,
    /// Options of `tidegate send --transport tcp` for all runs, such as `--rate 1Mb/s --congestion
    /// reno`
    #[arg(last = true, value_name = "OPTIONS OF SEND")]
    stream: Vec<String>,
}

/// Runs the command. Hosts and runs that fail are reported, and the others continue. The exit code
/// is 1 if any has failed.
pub(super) fn run(args: &HostsArgs, program: &dyn Program) -> Result<ExitCode> {
    let hosts = list::all(&args.host, args.hosts.as_deref())?;
    let _ready = check(args, program)?;
    let made = CreatedFolders::by(&args.out);
    fs::create_dir_all(&args.out).with_context(|| {
        let dir = args.out.display();
        format!("cannot make the folder {dir}: choose another --out")
    })?;
    let exit = play_all(args, program, hosts);
    made.undo();
    exit
}

/// Plays all runs in sequence.
fn play_all(args: &HostsArgs, program: &dyn Program, hosts: Vec<Host>) -> Result<ExitCode> {
    let mut play = Play {
        args,
        program,
        bursts: args.bursts.read(None, args.duration)?,
        ssh: Ssh::new(&args.ssh)?,
        around: LiveContext::enter()?,
        outcomes: Vec::new(),
        failed: Vec::new(),
        wanted: 0,
    };
    let mut there = play.reached(hosts)?;
    if play.interrupted() {
        say("interrupted in the login to the hosts: no run was started");
        return Ok(signals::exit_code());
    }
    let each = args.duration.as_secs_f64() * f64::from(args.runs) * args.modes.len() as f64;
    say(format_args!(
        "hosts: {}, modes: {}, runs of each: {}; {:.0} min at least, run folders in {}",
        there.len(),
        args.modes.len(),
        args.runs,
        (each * there.len() as f64 / 60.0).ceil(),
        args.out.display()
    ));
    play.wanted = there.len() * args.modes.len() * args.runs as usize;
    for run in 1..=args.runs {
        there.retain(|host| args.modes.iter().all(|mode| play.plays(host, mode, run)));
    }
    play.report()
}

/// Checks the options before the first run. The result must be kept until the end of the last run.
fn check(args: &HostsArgs, program: &dyn Program) -> Result<Vec<Box<dyn Any>>> {
    ensure!(
        !args.duration.is_zero(),
        "--duration 0 has no frames: use a positive duration"
    );
    ensure!(
        args.injector.is_none() || args.bursts != BurstArgs::default(),
        "--injector has no effect without --cut or --gap: add one of them, or remove --injector"
    );
    for own in OWN {
        let names = |word: &String| word == own || word.starts_with(&format!("{own}="));
        ensure!(
            !args.stream.iter().any(names),
            "{own} after --: `papers hosts` sets this option of `send` itself: remove it there{}",
            if HERE.contains(&own) {
                ", and use it before --"
            } else {
                ""
            }
        );
    }
    let mut all_ready = Vec::with_capacity(args.modes.len());
    for (n, mode) in args.modes.iter().enumerate() {
        let ready = words(args, mode, "127.0.0.1:9", Path::new("x"));
        let ready = program.sender(ready).and_then(|sender| sender.ready());
        all_ready.push(ready.with_context(|| format!("mode \"{mode}\""))?);
        let name = list::folder(mode);
        ensure!(
            args.modes[..n].iter().all(|m| list::folder(m) != name),
            "duplicate --mode \"{mode}\": remove one"
        );
    }
    Ok(all_ready)
}

/// Options of `send` that [`words`] sets.
const OWN: [&str; 7] = [
    "--transport",
    "--insecure",
    "--to",
    "--duration",
    "--delay-bound",
    "--run",
    "--mode",
];
/// Those that are options of `papers hosts` as well.
const HERE: [&str; 3] = ["--duration", "--delay-bound", "--mode"];

/// Arguments of `send`.
fn words(args: &HostsArgs, mode: &str, to: &str, dir: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["--transport", "tcp", "--to", to].map(Into::into).into();
    // Generated pictures; TLS would change what is measured.
    words.push("--insecure".into());
    words.extend(["--duration".into(), time(args.duration).into()]);
    words.extend(["--delay-bound".into(), time(args.delay_bound).into()]);
    words.extend(["--run".into(), dir.join("sender").into()]);
    words.extend(args.stream.iter().map(Into::into));
    words.push("--mode".into());
    words.extend(mode.split_whitespace().map(Into::into));
    words
}

/// A duration as an option value.
fn time(span: Duration) -> String {
    format!("{}ms", span.as_millis())
}

struct Play<'a> {
    args: &'a HostsArgs,
    program: &'a dyn Program,
    /// None without outages.
    bursts: Option<OutageSchedule>,
    ssh: Ssh,
    around: LiveContext,
    outcomes: Vec<Outcome>,
    /// Host, mode, run and reason of each failure.
    failed: Vec<Value>,
    /// Planned number of runs.
    wanted: usize,
}

impl Play<'_> {
    fn sender(&self, mode: &str, to: &str, dir: &Path) -> Result<Box<dyn Sender>> {
        self.program.sender(words(self.args, mode, to, dir))
    }

    fn interrupted(&self) -> bool {
        self.around.interrupts.count() > 0
    }

    /// Method of cutting the paths.
    fn means(&self) -> &InjectorKind {
        self.args.injector.as_ref().unwrap_or(&InjectorKind::Route)
    }

    /// Hosts on which a player can be started.
    fn reached(&mut self, hosts: Vec<Host>) -> Result<Vec<Host>> {
        let crosses = self.args.cross.iter().map(|cross| &cross.host);
        let crosses: Vec<&Host> = crosses.collect();
        for checked in self.checked(&crosses) {
            checked.context("cross traffic")?;
        }
        let checked = self.checked(&hosts.iter().collect::<Vec<_>>());
        let mut there = Vec::with_capacity(hosts.len());
        for (host, checked) in hosts.into_iter().zip(checked) {
            let cut = self.bursts.as_ref().map(|_| self.means());
            let cut = cut.map_or(Ok(()), |means| injector::check(means, &host));
            match checked.and_then(|is_there| cut.map(|()| is_there)) {
                Ok(true) => there.push(host),
                // Interrupted.
                Ok(false) => {}
                Err(why) => self.fail(json!({ "host": host.name }), &why),
            }
        }
        ensure!(
            !there.is_empty() || self.interrupted(),
            "no player can be started on any host; see the errors above"
        );
        Ok(there)
    }

    /// Whether the login to these hosts succeeds and they have the program.
    fn checked(&self, hosts: &[&Host]) -> Vec<Result<bool>> {
        // Concurrently, because an unreachable host takes until its time-out.
        let (ssh, around) = (&self.ssh, &self.around);
        thread::scope(|scope| {
            let check = |host| scope.spawn(move || ssh.check(host, around));
            let checks: Vec<_> = hosts.iter().copied().map(check).collect();
            let panicked = |_| Err(anyhow!("the check of a host panicked"));
            let checks = checks.into_iter();
            checks
                .map(|check| check.join().unwrap_or_else(panicked))
                .collect()
        })
    }

    fn fail(&mut self, mut what: Value, why: &anyhow::Error) {
        let why = tidegate_console::describe(why);
        say(&why);
        what["why"] = json!(why);
        self.failed.push(what);
    }

    /// Plays a run. Returns whether further runs to this host are useful.
    fn plays(&mut self, host: &Host, mode: &str, run: u32) -> bool {
        if self.interrupted() {
            return false;
        }
        let what = json!({ "host": host.name, "mode": mode, "run": run });
        let mut begun = false;
        match self.play(host, mode, run, &mut begun) {
            Ok(Some(outcome)) => {
                let frames = &outcome.measured;
                let mut remarks = outcome.remarks();
                if !remarks.is_empty() {
                    remarks.insert_str(0, "; ");
                }
                say(format_args!(
                    "{}, {mode}, run {run}: {} of {} frames in time{remarks}",
                    host.name, frames.in_time, frames.made
                ));
                self.outcomes.push(outcome);
                true
            }
            Ok(None) => false,
            Err(why) => {
                self.fail(what, &why);
                if !begun {
                    say(format_args!("{}: no more runs to this host", host.name));
                }
                begun
            }
        }
    }

    /// Plays a run. Sets `begun` once the stream has started.
    fn play(
        &mut self,
        host: &Host,
        mode: &str,
        run: u32,
        begun: &mut bool,
    ) -> Result<Option<Outcome>> {
        let dir = self.args.out.join(list::folder(&host.name));
        let dir = dir.join(format!("{}-{run}", list::folder(mode).display()));
        self.around.renew();
        let limit = self.args.limit;
        let limit = limit.unwrap_or(self.args.duration + CATCH_UP);
        let mut player = self.start(host, mode, &dir, limit)?;
        let Some(port) = player.port(host, &self.around)? else {
            return Ok(None);
        };
        let at = JobContext {
            ssh: &self.ssh,
            player: host,
            port,
            dir: &dir,
            limit: limit + CATCH_UP,
            around: &self.around,
        };
        let Some(jobs) = BackgroundJobs::start(at, &self.args.cross, self.args.capture)? else {
            return Ok(None);
        };
        // The clock of the run folder starts now.
        self.around.renew();
        let until = Time::ZERO + limit;
        let (played, cuts) = self.stream(host, port, (mode, &dir), until)?;
        let played = played?;
        *begun = true;
        let cut_short = self.interrupted();
        let now = self.around.clock.now();
        let whole = matches!(played.ended, Ok(SenderEnd::Everything));
        let fetched = player.fetch(host, &dir, &self.around, if whole { until } else { now });
        let met = cuts.and_then(|cuts| jobs.end(cuts));
        let note = match &played.ended {
            Ok(SenderEnd::Everything) => None,
            Ok(SenderEnd::Callback) if cut_short => Some("cut short".to_owned()),
            Ok(SenderEnd::Callback) => Some(format!("given up after {} s", limit.as_secs_f64())),
            Ok(SenderEnd::PlayerLeft) => Some("the player closed the connection".to_owned()),
            Err(why) => return Err(anyhow!("{}: {why}", host.name)),
        };
        let [sent, seen] = [dir.join("sender"), fetched?].map(RunReader::load);
        Ok(Some(Outcome {
            host: host.name.clone(),
            mode: mode.to_owned(),
            run,
            measured: FrameStatistics::new(&sent?, &seen?, self.args.delay_bound),
            dir,
            answers: played.answers,
            cut_short,
            note,
            met: met.with_context(|| host.name.clone())?,
        }))
    }

    /// Starts the player of a run.
    fn start(&self, host: &Host, mode: &str, dir: &Path, limit: Duration) -> Result<Player> {
        let mut player = ["--transport", "tcp", "--insecure"]
            .map(str::to_owned)
            .to_vec();
        player.extend(["--listen".to_owned(), host.listen()]);
        player.extend(["--delay-bound".to_owned(), time(self.args.delay_bound)]);
        // Limit in case that the end of the connection does not reach the player.
        player.extend(["--duration".to_owned(), time(limit + CATCH_UP)]);
        let any = self.sender(mode, "127.0.0.1:9", dir)?;
        player.extend(any.fps().into_iter().flat_map(|fps| ["--fps".into(), fps]));
        Player::start(&self.ssh, host, &player, dir)
    }

    /// Streams to `port` of a host, with the requested outages of the path.
    fn stream(
        &self,
        host: &Host,
        port: u16,
        (mode, dir): (&str, &Path),
        until: Time,
    ) -> Result<(Result<Streamed>, Result<Vec<Cut>>)> {
        let to = match &self.bursts {
            // The injector cuts the path to this address, so the video must use the same one.
            Some(_) => SocketAddr::new(injector::address(host)?, port).to_string(),
            None => format!("{}:{port}", host.address),
        };
        let send = self.sender(mode, &to, dir)?;
        let send = || {
            send.play(&self.around, until).with_context(|| {
                format!(
                    "{}: no stream to {to}; if the address is wrong, set it with \",to=ADDRESS:PORT\"",
                    host.name
                )
            })
        };
        Ok(match &self.bursts {
            None => (send(), Ok(Vec::new())),
            Some(bursts) => {
                let guard = InjectorShell::start(self.means(), injector::address(host)?)?;
                guard.during(bursts, &self.around, send)
            }
        })
    }

    /// Writes the results and prints them.
    fn report(self) -> Result<ExitCode> {
        let kinds = ModeSummary::all(&self.outcomes);
        let figure = outcome::figure(&kinds, self.args.delay_bound);
        let mut results = serde_json::to_value(&figure)?;
        results["delay_bound_ms"] = json!(self.args.delay_bound.as_secs_f64() * 1e3);
        results["runs"] = self.outcomes.iter().map(Outcome::json).collect();
        results["failed"] = json!(self.failed);
        results["interrupted"] = json!(self.interrupted());
        let out = &self.args.out;
        let file = out.join("results.json");
        let text = serde_json::to_string_pretty(&results)?;
        fs::write(&file, text).with_context(|| file.display().to_string())?;
        if self.args.json {
            print_json(&results)?;
        } else {
            let mut out = output();
            write!(
                out,
                "{}",
                figure
                    .table
                    .as_ref()
                    .map_or_else(String::new, super::text::columns)
            )?;
            for note in &figure.notes {
                writeln!(out, "\n{note}")?;
            }
        }
        if self.interrupted() {
            say(format_args!(
                "interrupted: {} of {} runs are kept in {}",
                self.outcomes.len(),
                self.wanted,
                out.display()
            ));
            return Ok(signals::exit_code());
        }
        let lost = !self.failed.is_empty() || self.outcomes.is_empty();
        Ok(if lost {
            ExitCode::from(ENVIRONMENT)
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// Time for the backlog at the end of the video to arrive.
const CATCH_UP: Duration = Duration::from_mins(1);
