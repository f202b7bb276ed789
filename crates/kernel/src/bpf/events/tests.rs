//! Time-outs that programs do not observe when they happen.
//!
//! A filter on the receiving socket drops all segments.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};
use std::{env, thread};

use super::*;
use crate::event::{EventDetails, TcpState};
use crate::ring::Ring;
use crate::tcp::Info;
use crate::variables::Variable;

/// Each time-out is reported once, at its time or with the next one, with its count in a row and
/// the expired interval.
#[test]
fn timeouts_are_reported_once_and_in_order() {
    let Some(watch) = Watch::without(&[]) else {
        return;
    };
    let last = watch.lose_until_timeouts(2);
    let events = watch.timeouts();
    let rows: Vec<u32> = events.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, (1..=last).collect::<Vec<_>>());
    assert!(
        events.windows(2).all(|two| two[1].1 == two[0].1 * 2),
        "{events:?}"
    );
}

/// If no program observes a time-out, the next segment or write reports it.
#[test]
fn an_unobserved_timeout_is_reported_with_the_next_segment_or_write() {
    let no_timeout_programs = ["tcp_cong_state_set", "tcp_retransmit_skb"];
    let no_write_program = [
        "tcp_cong_state_set",
        "tcp_retransmit_skb",
        "sock_send_length",
    ];
    let no_segment_program = ["tcp_cong_state_set", "tcp_retransmit_skb", "tcp_probe"];
    for without in [
        &no_timeout_programs[..],
        &no_write_program,
        &no_segment_program,
    ] {
        let Some(mut watch) = Watch::without(without) else {
            return;
        };
        let first = watch.lose_until_timeouts(2);
        watch.exchange();
        let events = watch.timeouts();
        // Only the last four of a long series are reported.
        let rows: Vec<u32> = (1..=first).skip(first.saturating_sub(4) as usize).collect();
        assert_eq!(events.len(), rows.len(), "{events:?} without {without:?}");
        if without.contains(&"sock_send_length") {
            // Reported before the kernel processes the acknowledgement.
            let seen: Vec<u32> = events.iter().map(|(row, _)| *row).collect();
            assert_eq!(seen, rows, "{events:?}");
            let least = |row: u32| Duration::from_millis(200 << (row - 1));
            assert!(
                events.iter().all(|&(row, after)| after >= least(row)),
                "{events:?}"
            );
        }
        watch.exchange();
        assert_eq!(watch.timeouts(), [], "without {without:?}");
    }
}

/// If no program observes a time-out, a later time-out also reports it.
#[test]
fn unobserved_timeouts_are_reported_with_the_next_one() {
    for unseen in [1, 2] {
        let Some(mut watch) = Watch::without(&[]) else {
            return;
        };
        let before = watch.info().timeouts().unwrap();
        watch.filter(libc::SO_ATTACH_FILTER);
        watch.here.write_all(&[1]).unwrap();
        let counted = |least| move |info: &Info| info.timeouts().unwrap() >= before + least;
        watch.wait(counted(1));
        // The first two links are those of the programs that observe time-outs.
        let tracepoints = &watch.monitor.tracepoints[..2];
        assert_eq!(tracepoints, ["tcp_cong_state_set", "tcp_retransmit_skb"]);
        watch.monitor.links.drain(..2);
        watch.wait(counted(1 + unseen));
        watch.monitor.links = watch.monitor.object.attach(tracepoints).unwrap();
        watch.wait(counted(2 + unseen));
        let events = watch.timeouts();
        let rows: Vec<u32> = events.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, (1..=2 + unseen as u32).collect::<Vec<_>>());
        assert!(
            events.windows(2).all(|two| two[1].1 == two[0].1 * 2),
            "{events:?}"
        );
        watch.filter(libc::SO_DETACH_FILTER);
    }
}

/// Before Linux 6.7, the kernel counted only time-outs in a row.
#[test]
fn without_a_total_count_timeouts_in_a_row_are_used() {
    let unseen = ["tcp_cong_state_set", "tcp_retransmit_skb"];
    for without in [&[][..], &unseen] {
        let Some(mut watch) = Watch::on("total_rto", without) else {
            return;
        };
        for _ in 0..2 {
            let last = watch.lose_until_timeouts(2);
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

/// Before Linux 5.17, the helper function for loops did not exist.
#[test]
fn events_are_equal_without_the_helper_for_loops() {
    let Some(watch) = Watch::on("BPF_FUNC_loop", &[]) else {
        return;
    };
    let last = watch.lose_until_timeouts(1);
    let rows: Vec<u32> = watch.timeouts().iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, (1..=last).collect::<Vec<_>>());
}

/// Before Linux 6.3, the tracepoint for writes did not exist.
#[test]
fn the_optional_tracepoint_may_be_missing() {
    let Some(mut watch) = Watch::on("btf_trace_sock_send_length", &[]) else {
        return;
    };
    assert!(!watch.monitor.tracepoints.contains(&OPTIONAL));
    assert_eq!(watch.monitor.tracepoints.len(), TRACEPOINTS.len() - 1);
    watch.exchange();
    assert!(!watch.ring.is_empty());
}

#[test]
fn missing_kernel_features_are_named() {
    if Watch::without(&[]).is_none() {
        return;
    }
    let load = |absent| EventPrograms::load_on(&types_without(absent).unwrap(), 4, 1).unwrap_err();
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

/// Time-outs before a subscription are not reported.
#[test]
fn earlier_timeouts_are_not_reported_to_a_new_subscriber() {
    let Some(mut watch) = Watch::without(&[]) else {
        return;
    };
    watch.monitor.close(0);
    watch.lose_until_timeouts(1);
    watch.subscribe(1);
    watch.exchange();
    assert_eq!(watch.timeouts(), []);
    watch.lose_until_timeouts(1);
    assert!(!watch.timeouts().is_empty());
}

/// A subscription within a series of time-outs, for each program that may run first: time-outs
/// before the subscription are not reported, and all later ones are. If the kernel runs no program at
/// the first one, which a test cannot prevent, nothing shows that it was later.
#[test]
fn a_subscription_in_an_outage_starts_with_the_next_timeout() {
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
        watch.wait(counted(u64::from(most) + 1));
        let unseen = u32::from(watch.remembered().reported == NOT_LOOKED_AT);
        watch.wait(counted(u64::from(most) + 2));
        let events: Vec<u32> = watch.timeouts().iter().map(|(row, _)| *row).collect();
        let first = *events.first().expect("at least two events are reported");
        // A time-out between the two readings is rare.
        assert!(
            (least + 1..=most + 1 + unseen).contains(&first),
            "{events:?}, {missing:?}, {unseen} unseen"
        );
        assert!(
            events.windows(2).all(|two| two[1] == two[0] + 1),
            "{events:?}"
        );
        watch.filter(libc::SO_DETACH_FILTER);
    }
}

/// Events are independent of the network protocol.
#[test]
fn connections_over_ipv6_are_supported() {
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
    // One segment was exchanged at the start.
    assert_eq!(counted(&watch), 1);
    watch.exchange();
    assert_eq!(counted(&watch), 2);
    let last = watch.lose_until_timeouts(2);
    let rows: Vec<u32> = watch.timeouts().iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, (1..=last).collect::<Vec<_>>());
    watch.exchange();
    // The ACK of the retransmission may arrive while the kernel runs no programs.
    assert!((3..=4).contains(&counted(&watch)));
    watch.here.shutdown(std::net::Shutdown::Write).unwrap();
    let states: Vec<EventDetails> = std::iter::from_fn(|| watch.ring.next())
        .map(|event| event.what)
        .filter(|what| matches!(what, EventDetails::State { .. }))
        .collect();
    let (from, to) = (TcpState::Established, TcpState::FinWait1);
    assert_eq!(states.first(), Some(&EventDetails::State { from, to }));
    let Watch {
        monitor,
        ring,
        here,
        there,
    } = watch;
    drop((here, there));
    let end = Instant::now() + Duration::from_secs(20);
    while !monitor.has_ended(0) {
        assert!(
            Instant::now() < end,
            "the end of the socket is not recorded"
        );
        thread::yield_now();
    }
    let last = std::iter::from_fn(|| ring.next()).last();
    assert_eq!(last.map(|event| event.what), Some(EventDetails::Ended));
}

/// Memory of the last side of the threshold or of a duplicate ACK is not carried over.
#[test]
fn only_counters_remain_for_a_new_subscriber() {
    let Some(watch) = Watch::without(&[]) else {
        return;
    };
    let before = watch.remembered();
    assert!(before.side != 0 && before.phase != 0 && before.counters != [0; _]);
    watch.monitor.close(0);
    watch.subscribe(1);
    let expected = Memory {
        counters: before.counters,
        reported: NOT_LOOKED_AT,
        ..Memory::default()
    };
    assert_eq!(watch.remembered(), expected);
}

/// Neither at the start nor after a change: missing variables would be reported as known.
#[test]
fn missing_variables_are_not_requested() {
    let Some(watch) = Watch::on("mss_cache", &[]) else {
        return;
    };
    let everything = EventRequest {
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

/// A connection over the loopback interface, and programs with some of them missing.
struct Watch {
    monitor: EventPrograms,
    ring: Ring,
    here: TcpStream,
    there: TcpStream,
}

impl Watch {
    /// `None` where programs cannot be loaded.
    fn without(tracepoints: &[&str]) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::of(&listener, tracepoints)
    }

    fn of(listener: &TcpListener, tracepoints: &[&str]) -> Option<Self> {
        let types = loader::kernel_types();
        Self::load(types, listener, tracepoints)
    }

    /// Without the named kernel symbol.
    fn on(absent: &str, tracepoints: &[&str]) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::load(types_without(absent), &listener, tracepoints)
    }

    fn load(
        types: Result<Btf, LoadError>,
        listener: &TcpListener,
        tracepoints: &[&str],
    ) -> Option<Self> {
        let mut monitor = match types.and_then(|types| EventPrograms::load_on(&types, 4, 1)) {
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
        monitor.attach().unwrap();
        let fd = raw::create_ring(RING).unwrap();
        monitor.add_ring(0, fd.as_fd()).unwrap();
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
        let wanted = EventRequest {
            events: EventSet::ALL,
            variables: VariableSet::ALL,
        };
        let token = token(place, 1);
        self.monitor.open(place, token, 0, wanted);
        self.monitor.bind(self.here.as_fd(), token).unwrap();
    }

    /// Sends a byte and waits for its acknowledgement.
    fn exchange(&mut self) {
        self.here.write_all(&[1]).unwrap();
        self.there.read_exact(&mut [0]).unwrap();
        self.wait(|info| info.snapshot().get(Variable::PacketsOut) == Some(0));
    }

    /// Sends a byte that is lost until the kernel has counted `least` more time-outs. Returns the
    /// number of time-outs.
    fn lose_until_timeouts(&self, least: u64) -> u32 {
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

    /// Attaches or detaches a filter that drops all segments at the receiver.
    fn filter(&self, option: libc::c_int) {
        // `BPF_RET | BPF_K` of `linux/filter.h` with a length of 0: drops each packet.
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

    /// Memory of the programs about the socket.
    fn remembered(&self) -> Memory {
        let map = self.monitor.object.map("tg_memory");
        let key = self.here.as_raw_fd() as u32;
        raw::lookup(map, key).unwrap().unwrap()
    }

    /// Time-outs reported since the last call: count in a row, and expired interval.
    fn timeouts(&self) -> Vec<(u32, Duration)> {
        let events = std::iter::from_fn(|| self.ring.next());
        let timeouts = events.filter_map(|event| match event.what {
            EventDetails::Timeout { in_a_row, after } => Some((in_a_row, after)),
            _ => None,
        });
        timeouts.collect()
    }
}

const RING: u32 = 1 << 16;

/// BTF of this kernel with one name removed.
fn types_without(name: &str) -> Result<Btf, LoadError> {
    let mut types = std::fs::read("/sys/kernel/btf/vmlinux").map_err(LoadError::NoTypes)?;
    let string = [&[0], name.as_bytes(), &[0]].concat();
    let found = types.windows(string.len()).position(|w| w == string);
    let last = found.expect("this kernel has the name") + name.len();
    types[last] = b'X';
    Ok(Btf::parse(&types, aya::Endianness::default()).unwrap())
}
