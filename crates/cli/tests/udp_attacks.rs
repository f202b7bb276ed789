//! Attacks on a stream over UDP by hosts that reach a port, without a key.

#[expect(dead_code, reason = "the other tests use the rest")]
mod program;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use std::{fs, io, mem};

use program::{GUARD, Program};

/// A receiver at a free port.
fn receiver(options: &str) -> (Program, SocketAddr) {
    let options = format!("recv --listen 127.0.0.1:0 --idle-timeout 10s {options}");
    let mut receiver = Program::tidegate(&options);
    let port = receiver.number("waiting for a stream at port ");
    (receiver, ([127, 0, 0, 1], port).into())
}

fn sender(to: SocketAddr, options: &str) -> Program {
    let size = "--size 320x180 --ceiling 1Mb/s --preset ultrafast --adapt no";
    Program::tidegate(&format!("send --to {to} {size} {options}"))
}

/// A socket of another host.
fn stranger() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// A packet that resembles the expected stream, of an SSRC that it has not.
fn forged(sequence: u16, length: usize) -> Vec<u8> {
    let mut packet = vec![0x80, 96, 0, 0, 0, 0, 0, 0, 0x53, 0x74, 0x72, 0x61];
    packet[2..4].copy_from_slice(&sequence.to_be_bytes());
    packet.resize(length, 0);
    packet
}

/// Bytes that have arrived at a socket.
fn arrived(socket: &UdpSocket) -> usize {
    let mut buffer = [0; 2_048];
    let mut bytes = 0;
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => bytes += length,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return bytes,
            Err(e) => panic!("{e}"),
        }
    }
}

/// Sends `forged` packets at intervals of `every` until `is_over`. Returns the bytes sent.
fn flood(
    from: &UdpSocket,
    to: SocketAddr,
    every: Duration,
    mut is_over: impl FnMut(usize) -> bool,
) -> usize {
    let (began, mut sent) = (Instant::now(), 0);
    for sequence in 0_u32.. {
        if is_over(sent) {
            return sent;
        }
        assert!(began.elapsed() < GUARD, "the flood does not end");
        sent += from.send_to(&forged(sequence as u16, 12), to).unwrap_or(0);
        // Paces the traffic; no result depends on it.
        std::thread::sleep(
            (began + every * (sequence + 1)).saturating_duration_since(Instant::now()),
        );
    }
    unreachable!()
}

#[test]
fn a_first_stranger_with_a_packet_a_second_does_not_keep_the_stream_out() {
    let (mut receiver, address) = receiver("");
    let stranger = stranger();
    // The second packet in sequence is the first that is believed.
    for sequence in 0..2 {
        stranger.send_to(&forged(sequence, 12), address).unwrap();
    }
    receiver.wait_for_line("the stream has started");
    let mut sender = sender(address, "--duration 4s");
    let mut is_sending = true;
    flood(&stranger, address, Duration::from_secs(1), |sent| {
        if sent >= 4 * 12 {
            is_sending = false;
        }
        !is_sending
    });
    sender.wait_for_line("sent ");
    sender.wait().succeeded();
    let received = receiver.wait();
    received.succeeded();
    assert!(received.whole_frames() >= 60, "{}", received.said);
    assert!(received.frames_per_second() >= 15, "{}", received.said);
}

#[test]
fn a_stranger_during_a_stream_is_ignored() {
    let (mut receiver, address) = receiver("");
    let sender = sender(address, "--duration 5s");
    receiver.wait_for_line("the stream has started");
    let stranger = stranger();
    let mut lines = 0;
    flood(&stranger, address, Duration::from_millis(1), |sent| {
        if sent / 12 > 1_000 * (lines + 1) {
            receiver.wait_for_line("frames/s");
            lines += 1;
        }
        lines == 3
    });
    assert_eq!(arrived(&stranger), 0);
    sender.wait().succeeded();
    let received = receiver.wait();
    received.succeeded();
    // Half of five seconds.
    assert!(received.whole_frames() >= 75, "{}", received.said);
}

/// A stopped process, as after an interruption of the path.
fn signal(program: &Program, signal: libc::c_int) {
    let id = libc::pid_t::try_from(program.id()).unwrap();
    // SAFETY: takes numbers. The child has not been waited for, so the id is its own.
    assert_eq!(unsafe { libc::kill(id, signal) }, 0);
}

#[test]
fn a_sender_that_returns_has_precedence_over_a_stranger() {
    let (mut receiver, address) = receiver("");
    let mut sender = sender(address, "");
    receiver.wait_for_line("frames/s");
    signal(&sender, libc::SIGSTOP);
    let stranger = stranger();
    let mut answered = 0;
    // The receiver answers its new peer.
    flood(&stranger, address, Duration::from_millis(20), |_| {
        answered += arrived(&stranger);
        answered > 0
    });
    signal(&sender, libc::SIGCONT);
    receiver.wait_for_line("frames/s");
    flood(&stranger, address, Duration::from_millis(20), |sent| {
        sent > 3_000
    });
    sender.wait_for_line(" of 400 ms");
    sender.interrupt();
    sender.wait().succeeded();
    let received = receiver.wait();
    received.succeeded();
    assert!(received.frames_per_second() >= 15, "{}", received.said);
}

/// The address of the stranger stands for that of a victim, which a spoofed packet names.
#[test]
fn no_more_than_three_times_the_bytes_of_an_address_are_sent_to_it() {
    let (receiver, address) = receiver("--duration 3s");
    let victim = stranger();
    // The second packet in sequence is the first that is believed.
    let sent = (0..2).map(|n| victim.send_to(&forged(n, 100), address).unwrap());
    let sent = sent.sum::<usize>();
    receiver.wait().succeeded();
    let got = arrived(&victim);
    assert!((1..=3 * sent).contains(&got), "{got} bytes for {sent}");
}

#[test]
fn only_the_host_of_the_option_from_may_send() {
    for (from, is_heard) in [("127.0.0.2", false), ("127.0.0.1", true)] {
        // The BYE ends a stream that is heard, however late it starts.
        let limit = if is_heard { "" } else { "--duration 1s" };
        let (receiver, address) = receiver(&format!("--from {from} {limit}"));
        let sender = sender(address, "--one-way --duration 2s").wait();
        let received = receiver.wait();
        if is_heard {
            sender.succeeded();
            received.succeeded();
        } else {
            received.failed_with("no packet of this stream arrived");
        }
    }
    let (receiver, address) = receiver("--from 127.0.0.1:9 --duration 1s");
    sender(address, "--one-way --duration 2s").wait();
    receiver
        .wait()
        .failed_with("no packet of this stream arrived");
}

#[test]
fn the_port_for_rtcp_without_multiplexing_is_closed_after_multiplexed_rtcp() {
    let (mut receiver, address) = receiver("");
    let mut sender = sender(address, "");
    let port = sender.number(" from port ") + 1;
    receiver.wait_for_line("the stream has started");
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.connect(("127.0.0.1", port)).unwrap();
    let began = Instant::now();
    // ICMP reports the closed port at the next call.
    while stranger.send(b"rtcp").is_ok() {
        assert!(began.elapsed() < GUARD, "the port stays open");
        receiver.wait_for_line("frames/s");
    }
    sender.interrupt();
    sender.wait().succeeded();
    receiver.wait().succeeded();
}

/// Processor time of a process in ticks, and the number of its open descriptors.
fn usage(program: &Program) -> (u64, usize) {
    let stat = fs::read_to_string(format!("/proc/{}/stat", program.id())).unwrap();
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    // User and system time are fields 14 and 15 of proc(5); the first one here is field 3.
    let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    let open = fs::read_dir(format!("/proc/{}/fd", program.id())).unwrap();
    (ticks, open.count())
}

/// Processor time of this thread in seconds.
fn own_time() -> f64 {
    // SAFETY: zero is a value of integers, and the call fills them in.
    let used = unsafe {
        let mut used: libc::rusage = mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut used), 0);
        used
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(used.ru_utime) + seconds(used.ru_stime)
}

/// Processors differ, so the cost is compared with that of sending the flood, a quarter of a core: the
/// receiver takes a third of that, and may take 0.2 of a core.
#[test]
fn a_flood_of_discarded_packets_costs_less_than_sending_it_and_no_descriptors() {
    let (receiver, address) = receiver("--from 127.0.0.1:9");
    let stranger = stranger();
    // The receiver prints its port before the driver has opened its descriptors.
    flood(&stranger, address, Duration::from_micros(100), |sent| {
        sent > 12 * 1_000
    });
    let (before, began) = (usage(&receiver), Instant::now());
    let before_flood = own_time();
    flood(&stranger, address, Duration::from_micros(100), |_| {
        began.elapsed() > Duration::from_secs(3)
    });
    let flood = own_time() - before_flood;
    let after = usage(&receiver);
    // SAFETY: takes a number and returns one.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let cost = (after.0 - before.0) as f64 / per_second;
    assert!(
        cost <= 0.8 * flood,
        "{cost:.2} s for a flood of {flood:.2} s"
    );
    assert_eq!(after.1, before.1);
    receiver.interrupt();
    receiver.wait().succeeded();
}
