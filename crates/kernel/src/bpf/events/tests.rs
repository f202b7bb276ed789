//! Time-outs that the kernel does not show when they happen.
//!
//! Segments are lost where they arrive: a filter on the receiving socket drops them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};
use std::{env, thread};

use super::*;
use crate::event::{Happening, TcpState};
use crate::ring::Ring;
use crate::tcp::Info;
use crate::variables::Variable;

/// Each is told once, as it happens or with the next one, with its number in a row and the time that
/// ran out.
#[test]
fn time_outs_are_told_once_in_their_order() {
    let Some(watch) = Watch::without(&[]) else {
        return;
    };
    let last = watch.time_out(2);
    let told = watch.timeouts();
    let rows: Vec<u32> = told.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, (1..=last).collect::<Vec<_>>());
    assert!(
        told.windows(2).all(|two| two[1].1 == two[0].1 * 2),
        "{told:?}"
    );
}

/// A kernel that runs neither program at a time-out: what comes next tells it.
#[test]
fn a_time_out_that_no_program_saw_is_told_with_the_next_segment_or_write() {
    let blind = ["tcp_cong_state_set", "tcp_retransmit_skb"];
    let deaf = [
        "tcp_cong_state_set",
        "tcp_retransmit_skb",
        "sock_send_length",
    ];
    let mute = ["tcp_cong_state_set", "tcp_retransmit_skb", "tcp_probe"];
    for without in [&blind[..], &deaf, &mute] {
        let Some(mut watch) = Watch::without(without) else {
            return;
        };
        let first = watch.time_out(2);
        watch.exchange();
        let told = watch.timeouts();
        // Of a long series the last four.
        let rows: Vec<u32> = (1..=first).skip(first.saturating_sub(4) as usize).collect();
        assert_eq!(told.len(), rows.len(), "{told:?} without {without:?}");
        if without.contains(&"sock_send_length") {
            // Seen before the acknowledgement is acted on.
            let seen: Vec<u32> = told.iter().map(|(row, _)| *row).collect();
            assert_eq!(seen, rows, "{told:?}");
            let least = |row: u32| Duration::from_millis(200 << (row - 1));
            assert!(
                told.iter().all(|&(row, after)| after >= least(row)),
                "{told:?}"
            );
        }
        watch.exchange();
        assert_eq!(watch.timeouts(), [], "without {without:?}");
    }
}

/// Nor at the one after it: what comes next is another time-out, which tells of those before it.
#[test]
fn time_outs_that_no_program_saw_are_told_with_the_next_one() {
    for unseen in [1, 2] {
        let Some(mut watch) = Watch::without(&[]) else {
            return;
        };
        let before = watch.info().timeouts().unwrap();
        watch.filter(libc::SO_ATTACH_FILTER);
        watch.here.write_all(&[1]).unwrap();
        let counted = |least| move |info: &Info| info.timeouts().unwrap() >= before + least;
        watch.wait(counted(1));
        // The links to the two programs that see time-outs are the first two.
        let tracepoints = &watch.monitor.tracepoints[..2];
        assert_eq!(tracepoints, ["tcp_cong_state_set", "tcp_retransmit_skb"]);
        watch.monitor.links.drain(..2);
        watch.wait(counted(1 + unseen));
        watch.monitor.links = watch.monitor.object.attach(tracepoints).unwrap();
        watch.wait(counted(2 + unseen));
        let told = watch.timeouts();
        let rows: Vec<u32> = told.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, (1..=2 + unseen as u32).collect::<Vec<_>>());
        assert!(
            told.windows(2).all(|two| two[1].1 == two[0].1 * 2),
            "{told:?}"
        );
        watch.filter(libc::SO_DETACH_FILTER);
    }
}

/// Before Linux 6.7 the kernel counted only those in a row.
#[test]
fn without_a_count_of_all_time_outs_those_in_a_row_do() {
    let unseen = ["tcp_cong_state_set", "tcp_retransmit_skb"];
    for without in [&[][..], &unseen] {
        let Some(mut watch) = Watch::on("total_rto", without) else {
            return;
        };
        for _ in 0..2 {
            let last = watch.time_out(2);
            watch.exchange();
            let rows: Vec<u32> = watch.timeouts().iter().map(|(row, _)| *row).collect();
            let expected: Vec<u32> = (1..=last).skip(last.saturating_sub(4) as usize).collect();
            assert_eq!(rows.len(), expected.len(), "{rows:?} without {without:?}");
            if without.is_empty() {
                assert_eq!(rows, expected);
            }
        }
    }
}

/// Before Linux 5.17 programs had no loops by a helper.
#[test]
fn without_the_helper_for_loops_events_are_the_same() {
    let Some(watch) = Watch::on("BPF_FUNC_loop", &[]) else {
        return;
    };
    let last = watch.time_out(1);
    let rows: Vec<u32> = watch.timeouts().iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, (1..=last).collect::<Vec<_>>());
}

/// Before Linux 6.3 the kernel did not show what the application writes.
#[test]
fn without_the_optional_tracepoint_the_others_do() {
    let Some(mut watch) = Watch::on("btf_trace_sock_send_length", &[]) else {
        return;
    };
    assert!(!watch.monitor.tracepoints.contains(&OPTIONAL));
    assert_eq!(watch.monitor.tracepoints.len(), TRACEPOINTS.len() - 1);
    watch.exchange();
    assert!(!watch.ring.is_empty());
}

#[test]
fn what_programs_need_is_named_where_the_kernel_lacks_it() {
    if Watch::without(&[]).is_none() {
        return;
    }
    let load = |absent| Monitor::load_on(&types_without(absent).unwrap(), 4, 1).unwrap_err();
    let error = load("btf_trace_tcp_probe");
    assert!(
        matches!(error, LoadError::NoTracepoint("tcp_probe")),
        "{error}"
    );
    let error = load("sk_bpf_storage");
    assert!(
        matches!(&error, LoadError::NoField(line) if line.contains("sk->sk_bpf_storage")),
        "{error}"
    );
}

/// Those before a subscription are none of its business.
#[test]
fn old_time_outs_are_not_told_to_a_new_subscriber() {
    let Some(mut watch) = Watch::without(&[]) else {
        return;
    };
    watch.monitor.close(0);
    watch.time_out(1);
    watch.subscribe(1);
    watch.exchange();
    assert_eq!(watch.timeouts(), []);
    watch.time_out(1);
    assert!(!watch.timeouts().is_empty());
}

/// In the middle of a series, whichever program is the first to look: those before a subscription are
/// not told, and all behind it are.
#[test]
fn a_subscriber_in_an_outage_hears_of_the_next_time_out_first() {
    let first_to_look = ["tcp_cong_state_set"];
    for (missing, earlier) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let missing = &first_to_look[..missing];
        let Some(mut watch) = Watch::without(missing) else {
            return;
        };
        watch.monitor.close(0);
        let before = watch.info().timeouts().unwrap();
        let counted = |least| move |info: &Info| info.timeouts().unwrap() >= before + least;
        watch.filter(libc::SO_ATTACH_FILTER);
        watch.here.write_all(&[1]).unwrap();
        watch.wait(counted(earlier));
        let so_far = || (watch.info().timeouts().unwrap() - before) as u32;
        let least = so_far();
        watch.subscribe(1);
        let most = so_far();
        watch.wait(counted(u64::from(most) + 2));
        let told: Vec<u32> = watch.timeouts().iter().map(|(row, _)| *row).collect();
        let first = *told.first().expect("two are told at least");
        // Hardly ever one between the two looks.
        assert!(
            (least + 1..=most + 1).contains(&first),
            "{told:?}, {missing:?}"
        );
        assert!(told.windows(2).all(|two| two[1] == two[0] + 1), "{told:?}");
        watch.filter(libc::SO_DETACH_FILTER);
    }
}

/// What is told of a connection is the same whichever protocol is below.
#[test]
fn connections_over_ipv6_are_watched_too() {
    let listener = match TcpListener::bind("[::1]:0") {
        Ok(listener) => listener,
        Err(why) => {
            println!("skipped: no IPv6 here ({why})");
            return;
        }
    };
    let Some(mut watch) = Watch::of(&listener, &[]) else {
        return;
    };
    assert!(watch.here.local_addr().unwrap().is_ipv6());
    let counted = |watch: &Watch| {
        let counters = watch.monitor.counters(watch.here.as_fd()).unwrap();
        let kinds = [Variable::AcksSlowStart, Variable::AcksAvoidance];
        kinds.map(|v| counters.get(v).unwrap()).iter().sum::<u64>()
    };
    // One was exchanged at the start.
    assert_eq!(counted(&watch), 1);
    watch.exchange();
    assert_eq!(counted(&watch), 2);
    let last = watch.time_out(2);
    let rows: Vec<u32> = watch.timeouts().iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, (1..=last).collect::<Vec<_>>());
    watch.exchange();
    // That of the repair may have come in while the kernel runs no programs.
    assert!((3..=4).contains(&counted(&watch)));
    watch.here.shutdown(std::net::Shutdown::Write).unwrap();
    let states: Vec<Happening> = std::iter::from_fn(|| watch.ring.next())
        .map(|event| event.what)
        .filter(|what| matches!(what, Happening::State { .. }))
        .collect();
    let (from, to) = (TcpState::Established, TcpState::FinWait1);
    assert_eq!(states.first(), Some(&Happening::State { from, to }));
    let Watch {
        monitor,
        ring,
        here,
        there,
    } = watch;
    drop((here, there));
    let end = Instant::now() + Duration::from_secs(20);
    while !monitor.has_ended(0) {
        assert!(Instant::now() < end, "the end is not told");
        thread::yield_now();
    }
    let last = std::iter::from_fn(|| ring.next()).last();
    assert_eq!(last.map(|event| event.what), Some(Happening::Ended));
}

/// Whether the window was below its threshold then, or a duplicate ACK in a row, is over.
#[test]
fn a_new_subscriber_finds_counters_of_earlier_ones_and_nothing_else() {
    let Some(watch) = Watch::without(&[]) else {
        return;
    };
    let remembered = || {
        let map = watch.monitor.object.map("tg_memory");
        let key = watch.here.as_raw_fd() as u32;
        raw::lookup::<Memory>(map, key).unwrap().unwrap()
    };
    let before = remembered();
    assert!(before.side != 0 && before.phase != 0 && before.counters != [0; _]);
    watch.monitor.close(0);
    watch.subscribe(1);
    let expected = Memory {
        counters: before.counters,
        reported: NOT_LOOKED_AT,
        ..Memory::default()
    };
    assert_eq!(remembered(), expected);
}

/// Neither from the start nor later: it would be told as known.
#[test]
fn what_the_kernel_does_not_have_is_not_wanted() {
    let Some(watch) = Watch::on("mss_cache", &[]) else {
        return;
    };
    let everything = Wanted {
        events: EventSet::ALL,
        variables: VariableSet::ALL,
    };
    let known = |watch: &Watch| {
        let bits = watch.monitor.entry(0).known.load(Ordering::Relaxed);
        VariableSet::from_bits(bits)
    };
    for _ in 0..2 {
        watch.monitor.change(0, everything);
        assert!(known(&watch).contains(Variable::Cwnd));
        assert!(!known(&watch).contains(Variable::Mss));
        watch.monitor.open(0, token(0, 9), 0, everything);
    }
}

/// A connection to ourselves, and the programs with some of them missing.
struct Watch {
    monitor: Monitor,
    ring: Ring,
    here: TcpStream,
    there: TcpStream,
}

impl Watch {
    /// `None` where no programs can be loaded.
    fn without(tracepoints: &[&str]) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::of(&listener, tracepoints)
    }

    fn of(listener: &TcpListener, tracepoints: &[&str]) -> Option<Self> {
        let types = loader::kernel_types();
        Self::load(types, listener, tracepoints)
    }

    /// On a kernel without something.
    fn on(absent: &str, tracepoints: &[&str]) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::load(types_without(absent), &listener, tracepoints)
    }

    fn load(
        types: Result<Btf, LoadError>,
        listener: &TcpListener,
        tracepoints: &[&str],
    ) -> Option<Self> {
        let mut monitor = match types.and_then(|types| Monitor::load_on(&types, 4, 1)) {
            Ok(monitor) => monitor,
            Err(why) => {
                // SAFETY: it always succeeds and touches no memory.
                let root = unsafe { libc::geteuid() } == 0;
                let must = root && env::var_os("TIDEGATE_REQUIRE_NETNS").is_some();
                assert!(!must, "{why}");
                println!("skipped: {why}");
                return None;
            }
        };
        monitor
            .tracepoints
            .retain(|name| !tracepoints.contains(name));
        monitor.wake().unwrap();
        let fd = raw::create_ring(RING).unwrap();
        monitor.plug(0, fd.as_fd()).unwrap();
        let ring = Ring::map(fd, RING).unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let there = listener.accept().unwrap().0;
        let mut watch = Self {
            monitor,
            ring,
            here,
            there,
        };
        watch.subscribe(0);
        watch.exchange();
        Some(watch)
    }

    fn subscribe(&self, place: u32) {
        let wanted = Wanted {
            events: EventSet::ALL,
            variables: VariableSet::ALL,
        };
        let token = token(place, 1);
        self.monitor.open(place, token, 0, wanted);
        self.monitor.bind(self.here.as_fd(), token).unwrap();
    }

    /// A byte that arrives.
    fn exchange(&mut self) {
        self.here.write_all(&[1]).unwrap();
        self.there.read_exact(&mut [0]).unwrap();
        self.wait(|info| info.snapshot().get(Variable::PacketsOut) == Some(0));
    }

    /// A byte that is lost until the kernel has counted `least` more time-outs, or a few more: how
    /// many there were.
    fn time_out(&self, least: u64) -> u32 {
        let (mut here, mut there) = (&self.here, &self.there);
        let before = self.info().timeouts().unwrap();
        self.filter(libc::SO_ATTACH_FILTER);
        here.write_all(&[1]).unwrap();
        self.wait(|info| info.timeouts().unwrap() >= before + least);
        self.filter(libc::SO_DETACH_FILTER);
        there.read_exact(&mut [0]).unwrap();
        self.wait(|info| info.snapshot().get(Variable::PacketsOut) == Some(0));
        (self.info().timeouts().unwrap() - before) as u32
    }

    /// Drops all that comes to the other end, or no longer.
    fn filter(&self, option: libc::c_int) {
        // `BPF_RET | BPF_K` of `linux/filter.h`: nothing is kept of any packet.
        let mut drop_all = libc::sock_filter {
            code: 6,
            jt: 0,
            jf: 0,
            k: 0,
        };
        let program = libc::sock_fprog {
            len: 1,
            filter: &raw mut drop_all,
        };
        // SAFETY: the option is passed with its size, and points to one instruction.
        let done = unsafe {
            libc::setsockopt(
                self.there.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const program).cast(),
                mem::size_of_val(&program) as libc::socklen_t,
            )
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }

    fn wait(&self, until: impl Fn(&Info) -> bool) {
        let end = Instant::now() + Duration::from_secs(40);
        while !until(&self.info()) {
            assert!(Instant::now() < end, "{:?}", self.info().snapshot());
            thread::yield_now();
        }
    }

    fn info(&self) -> Info {
        Info::read(self.here.as_fd()).unwrap()
    }

    /// Those told since the last call: number in a row, and the time that ran out.
    fn timeouts(&self) -> Vec<(u32, Duration)> {
        let told = std::iter::from_fn(|| self.ring.next());
        let timeouts = told.filter_map(|event| match event.what {
            Happening::Timeout { in_a_row, after } => Some((in_a_row, after)),
            _ => None,
        });
        timeouts.collect()
    }
}

const RING: u32 = 1 << 16;

/// The types of a kernel like this one that does not have something by this name.
fn types_without(name: &str) -> Result<Btf, LoadError> {
    let mut types = std::fs::read("/sys/kernel/btf/vmlinux").map_err(LoadError::NoTypes)?;
    let string = [&[0], name.as_bytes(), &[0]].concat();
    let found = types.windows(string.len()).position(|w| w == string);
    let last = found.expect("this kernel has it") + name.len();
    types[last] = b'X';
    Ok(Btf::parse(&types, aya::Endianness::default()).unwrap())
}
