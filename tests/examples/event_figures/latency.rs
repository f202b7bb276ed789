//! Delay from the kernel's time stamp to the callback, and completeness of events.

use std::mem;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_kernel::{
    EventKind, EventRequest, EventSet, Events, Handler, Handlers, VariableSet, monotonic,
};

use crate::trace::Trace;
use crate::verdict::Verdict;
use crate::{median, quantiles, wait_until};

/// A thousand events per second into a callback, while another thread loads a core. The aims apply
/// to a thread that sleeps between events, the default.
pub(crate) fn at_a_thousand() -> Vec<Verdict> {
    let [asleep, ..] = [
        ("", Listening::Asleep),
        (", with real-time priority", Listening::First),
        (", with busy_poll", Listening::Looking),
    ]
    .map(|(how, listening)| {
        [1, 2, 3, 4, 5].map(|round| {
            let (times, _) = into_callback(&mut Flapper::new(), 1_000, listening);
            quantiles(&format!("round {round}, 1000 events/s{how}"), times)
        })
    });
    let within = |aim, most: f64, mut rounds: [f64; 5]| {
        let whole = rounds.iter().filter(|&&value| value <= most).count();
        let middle = median(&mut rounds);
        Verdict {
            aim,
            measured: format!("{middle:.1} µs median of five rounds, within the limit in {whole}"),
            holds: middle <= most,
        }
    };
    vec![
        within(
            "kernel to callback at 1,000 events/s, p50 at most 30 µs",
            30.0,
            asleep.map(|q| q.p50),
        ),
        within(
            "kernel to callback at 1,000 events/s, p99 at most 200 µs",
            200.0,
            asleep.map(|q| q.p99),
        ),
    ]
}

/// Ten thousand events per second, counted against a kernel trace.
pub(crate) fn at_ten_thousand() -> Vec<Verdict> {
    let (mut all, mut whole, mut traced_all) = (0, 0, true);
    for round in 1..=5 {
        let mut flapper = Flapper::new();
        let port = format!("dport == {}", flapper.port());
        let trace = Trace::start("sock", "inet_sock_set_state", &port);
        let (times, made) = into_callback(&mut flapper, 10_000, Listening::Asleep);
        let traced = trace.map(|trace| trace.times().len() as u64);
        println!(
            "round {round}: made {made}, traced by the kernel {traced:?}, seen {}",
            times.len()
        );
        let seen = times.len() as u64;
        all += made;
        traced_all &= traced.is_some();
        whole += u32::from(seen == made && traced == Some(made));
        quantiles("  and how late", times);
    }
    let rate = all as f64 / (5.0 * SPAN.as_secs_f64());
    let trace = if traced_all {
        ""
    } else {
        "; no trace available"
    };
    vec![Verdict {
        aim: "none lost at 10,000 events/s, against the kernel's own trace",
        measured: format!("{rate:.0} events/s, equal in {whole} of five rounds{trace}"),
        // Scheduling may have delayed it once or twice, but the mean rate suffices.
        holds: whole == 5 && rate >= 9_900.0,
    }]
}

/// All events of a thousand sockets of one process.
pub(crate) fn of_a_thousand_sockets() -> Vec<Verdict> {
    let events = Events::in_process().unwrap();
    let mut flappers: Vec<_> = (0..1_000).map(|_| Flapper::new()).collect();
    let start = Instant::now();
    for flapper in &flappers {
        events.subscribe(&flapper.socket, states()).unwrap();
    }
    let took = start.elapsed();
    let events = Arc::new(events);
    let reader = Arc::clone(&events);
    let reading = thread::spawn(move || {
        let mut seen = std::collections::BTreeMap::<_, u64>::new();
        while let Ok(Some(event)) = reader.next(Some(Duration::from_secs(2))) {
            *seen.entry(event.subscription).or_default() += 1;
        }
        seen
    });
    let (start, mut made) = (Instant::now(), 0_u32);
    for _ in 0..10 {
        for flapper in &mut flappers {
            let due = Duration::from_secs(1) * made / 10_000;
            wait_until(start, due);
            flapper.flap();
            made += 3;
        }
    }
    let took_all = start.elapsed().as_secs_f64();
    let seen = reading.join().unwrap();
    let whole = seen.values().filter(|&&n| n == 30).count();
    println!(
        "{} sockets subscribed in {} ms; of 30 events each, {:.0} per second, complete for {whole}",
        flappers.len(),
        took.as_millis(),
        f64::from(made) / took_all
    );
    vec![Verdict {
        aim: "1,000 sockets at once, with all their events",
        measured: format!("{whole} of {} sockets had all", flappers.len()),
        holds: whole == 1_000,
    }]
}

/// How a thread waits for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listening {
    /// Sleeps between events, the default.
    Asleep,
    /// With real-time priority, which a callback may set.
    First,
    /// Busy-polls.
    Looking,
}

/// Delays of the events, and the number of events caused.
fn into_callback(flapper: &mut Flapper, rate: u32, listening: Listening) -> (Vec<Duration>, u64) {
    let (send, delays) = channel();
    let handlers = Handlers::start(Events::in_process().unwrap()).unwrap();
    if listening == Listening::Looking {
        handlers.events().busy_poll(Duration::from_millis(5));
    }
    let mut ordinary = listening == Listening::First;
    let call = Handler::Call(Box::new(move |event| {
        if mem::take(&mut ordinary) {
            let first = libc::sched_param { sched_priority: 1 };
            // SAFETY: 0 is this thread; the parameters are whole.
            unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
        }
        let late = monotonic().saturating_sub(event.time);
        if event.what.kind() == EventKind::State {
            // The receiver is dropped after the last event.
            let _ = send.send(late);
        }
    }));
    let id = handlers.bind(&flapper.socket, states(), call).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let busy = Arc::clone(&stop);
    let spinner = thread::spawn(move || {
        let work = AtomicU64::new(0);
        while !busy.load(Ordering::Relaxed) {
            work.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (start, mut made) = (Instant::now(), 0_u64);
    while start.elapsed() < SPAN {
        let due = Duration::from_secs_f64(made as f64 / f64::from(rate));
        wait_until(start, due);
        flapper.flap();
        made += 3;
    }
    let tally = handlers.events().tally(id).unwrap();
    assert_eq!((tally.events, tally.lost), (made, 0));
    let times = (0..made).map_while(|_| delays.recv_timeout(PATIENCE).ok());
    let mut times: Vec<_> = times.collect();
    times.extend(delays.try_iter());
    stop.store(true, Ordering::Relaxed);
    spinner.join().unwrap();
    (times, made)
}

fn states() -> EventRequest {
    EventRequest {
        events: EventSet::NONE.with(EventKind::State),
        variables: VariableSet::ALL,
    }
}

/// A socket that connects repeatedly: three changes of state each time.
struct Flapper {
    socket: TcpStream,
    listener: TcpListener,
    peer: TcpStream,
}

impl Flapper {
    fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        Self {
            socket,
            listener,
            peer,
        }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    fn flap(&mut self) {
        let nowhere = [0_u8; 16];
        // SAFETY: an address is integers, for which zero is a value; both are passed with their
        // sizes.
        unsafe {
            let mut to: libc::sockaddr_in = mem::zeroed();
            to.sin_family = libc::AF_INET as u16;
            to.sin_port = self.port().to_be();
            to.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
            let fd = self.socket.as_raw_fd();
            assert_eq!(libc::connect(fd, nowhere.as_ptr().cast(), 16), 0);
            assert_eq!(libc::connect(fd, (&raw const to).cast(), 16), 0);
        }
        self.peer = self.listener.accept().unwrap().0;
    }
}

/// Maximum delay of an event.
const PATIENCE: Duration = Duration::from_secs(2);
/// Duration of a measurement.
const SPAN: Duration = Duration::from_secs(4);
