//! Packet rate of the emulator, compared in pairs with a plain forwarder in C.
//!
//! Run by `scripts/bench-emulator`. Both subjects have the same kind of namespaces and devices, the
//! same flood of small packets and the same delay. They take turns, so that other load of the
//! machine affects both.

use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, mem, thread};

use tidegate_core::link::LinkConfig;
use tidegate_live::emulator::{Emulator, EmulatorConfig, EmulatorReport, Host};
use tidegate_live::netns::{
    Availability, Interface, Namespace, availability, enter_user_namespace,
};
use tidegate_live::tun::Tun;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// From the command line: `FORWARDER [ROUNDS [SECONDS [DELAY_MS [PAYLOAD [PACE [free]]]]]]`.
struct Plan {
    forwarder: PathBuf,
    rounds: usize,
    window: Duration,
    delay: Duration,
    payload: usize,
    /// Sending rate in packets per second; `None` for the maximum.
    pace: Option<f64>,
    /// Whether the kernel may put source and subject on the same processor.
    free: bool,
}

/// The emulator or the forwarder, with two hosts.
struct Subject {
    hosts: [Namespace; 2],
    /// Thread id of its only thread.
    thread: libc::pid_t,
}

/// Measurements of a subject in one window.
#[derive(Clone, Copy)]
struct Passage {
    /// Packets per second received by the far host.
    rate: f64,
    /// Packets per second sent by the near host.
    offered: f64,
    /// CPU time per packet, in µs.
    cost: f64,
}

fn main() -> ExitCode {
    match prepare().and_then(|plan| compare(&plan)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> Result<Plan, Error> {
    let words: Vec<String> = env::args().skip(1).collect();
    let number = |i: usize, default: f64| words.get(i).map_or(Ok(default), |word| word.parse());
    let forwarder = words.first().ok_or(
        "usage: emulator_rate FORWARDER [ROUNDS [SECONDS [DELAY_MS [PAYLOAD [PACE [free]]]]]]; \
         scripts/bench-emulator builds the forwarder",
    )?;
    let plan = Plan {
        forwarder: forwarder.into(),
        rounds: number(1, 15.0)? as usize,
        window: Duration::from_secs_f64(number(2, 0.5)?),
        delay: Duration::from_secs_f64(number(3, 20.0)? / 1e3),
        payload: number(4, 36.0)? as usize,
        pace: Some(number(5, 0.0)?).filter(|pace| *pace > 0.0),
        free: words.get(6).is_some_and(|word| word == "free"),
    };
    if plan.rounds == 0 || !(1..=1_472).contains(&plan.payload) {
        return Err("ROUNDS must be at least 1, and PAYLOAD from 1 to 1472 bytes".into());
    }
    match availability() {
        Availability::Root => {}
        Availability::UserNamespace => enter_user_namespace()?,
        Availability::Missing(missing) => {
            return Err(format!("no benchmark without network namespaces: {missing}").into());
        }
    }
    Ok(plan)
}

fn compare(plan: &Plan) -> Result<(), Error> {
    let emulator = start_emulator(plan.delay)?;
    let ours = Subject {
        hosts: [Host::A, Host::B].map(|host| emulator.namespace(host).clone()),
        thread: thread_of_emulator()?,
    };
    let (a, near) = furnish(Host::A)?;
    let (b, far) = furnish(Host::B)?;
    let mut forwarder = Forwarder::start(&plan.forwarder, [&near, &far], plan.delay)?;
    let theirs = Subject {
        hosts: [a, b],
        thread: forwarder.child.id() as libc::pid_t,
    };
    if !plan.free {
        for subject in [&ours, &theirs] {
            keep_on(subject.thread, Processors::First)?;
        }
    }
    announce(plan);
    let mut pairs = Vec::with_capacity(plan.rounds);
    for round in 0..plan.rounds {
        // The order alternates, so that a drift of the machine's speed affects both equally.
        let pair = if round % 2 == 0 {
            let first = flood(&ours, plan)?;
            [first, flood(&theirs, plan)?]
        } else {
            let first = flood(&theirs, plan)?;
            [flood(&ours, plan)?, first]
        };
        tell(round, pair);
        pairs.push(pair);
    }
    forwarder.stop()?;
    let report = emulator.stop()?.0;
    conclude(&pairs, &report);
    Ok(())
}

fn announce(plan: &Plan) {
    println!(
        "packets of {} bytes, {} ms of delay, windows of {} s",
        plan.payload + HEADERS,
        plan.delay.as_secs_f64() * 1e3,
        plan.window.as_secs_f64()
    );
    match plan.pace {
        Some(pace) => println!("sent: {pace} packets per second"),
        None => println!("sent: as many as the sender can"),
    }
    println!("round   packets per second              us per packet             sent per second");
    println!("       emulator  forwarder  ratio   emulator forwarder ratio   emulator forwarder");
}

fn tell(round: usize, [ours, theirs]: [Passage; 2]) {
    println!(
        "{:5}   {:8.0}   {:8.0} {:6.3}   {:8.2}  {:8.2} {:5.3}   {:8.0}  {:8.0}",
        round + 1,
        ours.rate,
        theirs.rate,
        ours.rate / theirs.rate,
        ours.cost,
        theirs.cost,
        ours.cost / theirs.cost,
        ours.offered,
        theirs.offered,
    );
}

fn conclude(pairs: &[[Passage; 2]], report: &EmulatorReport) {
    let quantiles = |ratio: &dyn Fn(&[Passage; 2]) -> f64| {
        let mut ratios: Vec<f64> = pairs.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let [least, median, most] = [0, ratios.len() / 2, ratios.len() - 1].map(|i| ratios[i]);
        format!("{median:.3} (from {least:.3} to {most:.3})")
    };
    let rate = quantiles(&|[ours, theirs]| ours.rate / theirs.rate);
    let cost = quantiles(&|[ours, theirs]| ours.cost / theirs.cost);
    println!("median ratio of rates: {rate}; of processor time per packet: {cost}");
    println!(
        "the emulator's report: {} packets, {} overruns, {} refused; late p50 {:?}, p99 {:?}, \
         worst {:?}; real-time priority: {}; kept up: {}",
        report.packets,
        report.overruns,
        report.write_failures,
        report.timing_p50,
        report.timing_p99,
        report.timing_worst,
        report.realtime_priority,
        report.kept_up
    );
}

fn start_emulator(delay: Duration) -> Result<Emulator, Error> {
    let link = LinkConfig {
        delay,
        ..LinkConfig::default()
    };
    Ok(Emulator::start(&EmulatorConfig::path(link.clone(), link))?)
}

/// Finds the thread of the emulator by its name, because the emulator does not expose it.
fn thread_of_emulator() -> Result<libc::pid_t, Error> {
    // A new thread may not have its name yet.
    let patience = Instant::now();
    while patience.elapsed() < Duration::from_secs(10) {
        for task in fs::read_dir("/proc/self/task")? {
            let task = task?;
            let name = fs::read_to_string(task.path().join("comm"));
            // Another thread may have ended meanwhile.
            if name.is_ok_and(|name| name.trim() == "emulator") {
                return Ok(task.file_name().to_string_lossy().parse()?);
            }
        }
        thread::yield_now();
    }
    Err("the emulator has no thread".into())
}

/// A host as created by the emulator.
fn furnish(host: Host) -> Result<(Namespace, Tun), Error> {
    let namespace = Namespace::new()?;
    let tun = Tun::open(&namespace, DEVICE)?;
    let interface = Interface {
        address: host.address(),
        prefix: 24,
        mtu: 1_500,
        queue: QUEUE,
    };
    namespace.configure(DEVICE, interface)?;
    Ok((namespace, tun))
}

struct Forwarder {
    child: Child,
}

impl Forwarder {
    fn start(program: &Path, tuns: [&Tun; 2], delay: Duration) -> Result<Self, Error> {
        let stdio = |tun: &Tun| tun.as_fd().try_clone_to_owned().map(Stdio::from);
        let child = Command::new(program)
            .arg(delay.as_micros().to_string())
            .stdin(stdio(tuns[0])?)
            .stdout(stdio(tuns[1])?)
            .spawn()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        Ok(Self { child })
    }

    fn stop(&mut self) -> io::Result<()> {
        // SAFETY: the child of this process has not been waited for.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        self.child.wait().map(drop)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // After `stop` the child has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Host A sends; counts what host B's device receives in the window.
fn flood(subject: &Subject, plan: &Plan) -> Result<Passage, Error> {
    let [near, far] = &subject.hosts;
    let done = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&done);
    let free = plan.free;
    let sink = far.run(move || {
        push_forward(free)?;
        swallow(&flag)
    })?;
    let (flag, payload, pace) = (Arc::clone(&done), plan.payload, plan.pace);
    let source = near.run(move || {
        push_forward(free)?;
        blast(&flag, payload, pace)
    })?;
    thread::sleep(WARM_UP + plan.delay);
    let reading = || -> Result<(f64, f64), Error> {
        let packets = far.within(received)??;
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", subject.thread))?;
        let nanos: u64 = stat.split(' ').next().unwrap_or_default().parse()?;
        Ok((packets as f64, nanos as f64))
    };
    let (start, from) = (Instant::now(), reading()?);
    thread::sleep(plan.window);
    let (took, to) = (start.elapsed(), reading()?);
    done.store(true, Ordering::SeqCst);
    let offered = source.join().map_err(|_| "the source panicked")??;
    sink.join().map_err(|_| "the sink panicked")??;
    thread::sleep(plan.delay * 2);
    let packets = to.0 - from.0;
    Ok(Passage {
        rate: packets / took.as_secs_f64(),
        offered,
        cost: (to.1 - from.1) / 1e3 / packets.max(1.0),
    })
}

/// Sends until `done`; returns packets per second.
fn blast(done: &AtomicBool, payload: usize, pace: Option<f64>) -> Result<f64, Error> {
    let socket = UdpSocket::bind((Host::A.address(), PORT))?;
    socket.connect((Host::B.address(), PORT))?;
    let mut batch = Batch::new(payload);
    let (mut sent, start) = (0, Instant::now());
    while !done.load(Ordering::SeqCst) {
        let due = match pace {
            Some(pace) => (start.elapsed().as_secs_f64() * pace) as usize - sent,
            None => BATCH,
        };
        if due == 0 {
            thread::sleep(NAP);
            continue;
        }
        // SAFETY: every message points to a buffer of the batch.
        let count = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                batch.messages.as_mut_ptr(),
                due.min(BATCH) as u32,
                0,
            )
        };
        // An error means that the queue of the device is full.
        sent += usize::try_from(count).unwrap_or(0);
    }
    Ok(sent as f64 / start.elapsed().as_secs_f64())
}

/// Receives until `done`.
fn swallow(done: &AtomicBool) -> Result<(), Error> {
    let socket = UdpSocket::bind((Host::B.address(), PORT))?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut batch = Batch::new(1_472);
    while !done.load(Ordering::SeqCst) {
        // SAFETY: every message points to a buffer of the batch; there is no timeout.
        unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                batch.messages.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_WAITFORONE,
                std::ptr::null_mut(),
            )
        };
    }
    Ok(())
}

/// Requests real-time priority for this thread, if permitted. Otherwise other load of the machine
/// would determine the sending rate.
fn push_forward(free: bool) -> io::Result<()> {
    // SAFETY: takes integers and accesses no memory; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    if free {
        return Ok(());
    }
    keep_on(0, Processors::Others)
}

/// CPU affinity of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Processors {
    First,
    Others,
}

/// If source and subject share a CPU, the rate changes by a factor of three. With two CPUs the
/// subject therefore has its own CPU, as far as this benchmark is concerned.
fn keep_on(thread: libc::pid_t, processors: Processors) -> io::Result<()> {
    let count = thread::available_parallelism()?.get();
    if count < 2 {
        return Ok(());
    }
    // SAFETY: a cpu_set_t consists of bits, for which zero is valid. The CPU numbers are below its
    // size, which is passed with it.
    let result = unsafe {
        let mut allowed: libc::cpu_set_t = mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed);
        let mut chosen: libc::cpu_set_t = mem::zeroed();
        let mut numbers = (0..libc::CPU_SETSIZE as usize).filter(|i| libc::CPU_ISSET(*i, &allowed));
        let first = numbers.next();
        match processors {
            Processors::First => first.iter().for_each(|i| libc::CPU_SET(*i, &mut chosen)),
            Processors::Others => numbers.for_each(|i| libc::CPU_SET(i, &mut chosen)),
        }
        libc::sched_setaffinity(thread, size_of_val(&chosen), &raw const chosen)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Messages for `sendmmsg` and `recvmmsg`.
struct Batch {
    messages: Vec<libc::mmsghdr>,
    _parts: Vec<libc::iovec>,
    _bytes: Vec<u8>,
}

impl Batch {
    fn new(length: usize) -> Self {
        let mut bytes = vec![0; length * BATCH];
        let mut parts: Vec<_> = bytes
            .chunks_exact_mut(length)
            .map(|chunk| libc::iovec {
                iov_base: chunk.as_mut_ptr().cast(),
                iov_len: length,
            })
            .collect();
        let messages = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: a message consists of integers and pointers, for which zero is valid.
                let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        Self {
            messages,
            _parts: parts,
            _bytes: bytes,
        }
    }
}

/// Receive counter of the device in the namespace of this thread.
fn received() -> Result<u64, Error> {
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(DEVICE));
    let word = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().nth(1));
    Ok(word.ok_or("no such device")?.parse()?)
}

/// The emulator's device and its queue.
const DEVICE: &str = "tide0";
const QUEUE: u16 = 5_000;
/// IPv4 and UDP headers.
const HEADERS: usize = 28;
const WARM_UP: Duration = Duration::from_millis(150);
/// Sleep of a sender that is ahead of its pace.
const NAP: Duration = Duration::from_micros(20);
const BATCH: usize = 64;
const PORT: u16 = 5_000;
