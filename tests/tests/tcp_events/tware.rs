//! The T-ware of Figure 6 as a program of C, on a connection over a path with an outage.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use tidegate_core::link::{LossConfig, Outage};
use tidegate_core::units::Time;
use tidegate_kernel::{
    EventKind, EventRequest, EventSet, Executable, Handler, Handlers, VariableSet,
};
use tidegate_live::emulator::{Emulator, Host};

use super::{PORT, in_kernel, judged_in_lab, path};

/// Rate before the timeout, in b/s.
const NORMAL: u64 = 2_000_000;
const GUARD: Duration = Duration::from_secs(30);

fn compiled(folder: &Path) -> PathBuf {
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/kernel/examples/c/loss_tware.c"
    );
    let program = folder.join("loss_tware");
    let flags = [
        "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", source, "-o",
    ];
    let status = Command::new("cc")
        .args(flags)
        .arg(&program)
        .arg("-lm")
        .status();
    assert!(status.unwrap().success());
    program
}

fn rate(file: &Path) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    let number = text.trim().strip_suffix("b/s").unwrap();
    number.parse().unwrap_or_else(|_| panic!("{text}"))
}

/// Sends as fast as the connection carries until the file has the normal rate again after a lower
/// one. Returns the rates in order.
fn send(mut stream: &TcpStream, file: &Path) -> Vec<u64> {
    let mut rates = vec![rate(file)];
    let guard = Instant::now() + GUARD;
    while rates.len() < 3 || rates.last() != Some(&NORMAL) {
        assert!(Instant::now() < guard, "{rates:?}");
        stream.write_all(&[0; 4_096]).unwrap();
        let now = rate(file);
        if rates.last() != Some(&now) {
            rates.push(now);
        }
    }
    rates
}

#[test]
fn the_t_ware_of_figure_6_lowers_the_rate_and_raises_it_again() {
    judged_in_lab(
        "tware::the_t_ware_of_figure_6_lowers_the_rate_and_raises_it_again",
        play,
    );
}

fn play() {
    let Some((events, _alone)) = in_kernel() else {
        return;
    };
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tware");
    fs::create_dir_all(&folder).unwrap();
    let (program, file) = (compiled(&folder), folder.join("rate.par"));
    fs::write(&file, format!("{NORMAL}b/s\n")).unwrap();
    let outage = Outage {
        from: Time::from_secs(2),
        to: Time::from_millis(2_600),
    };
    let emulator = Emulator::start(&path(LossConfig::NONE, vec![outage])).unwrap();
    let listen = || TcpListener::bind((Host::B.address(), PORT)).unwrap();
    let listener = emulator.namespace(Host::B).within(listen).unwrap();
    let sink = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream, &mut std::io::sink())
    });
    let connect = || TcpStream::connect((Host::B.address(), PORT)).unwrap();
    let stream = emulator.namespace(Host::A).within(connect).unwrap();

    let handlers = Handlers::start(events).unwrap();
    let reports: Arc<Mutex<Vec<String>>> = Arc::default();
    let failed = Arc::clone(&reports);
    handlers.on_report(move |report| failed.lock().unwrap().push(report.to_string()));
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is valid for a write.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    assert_eq!(status, 0);
    let start = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    let tware = Executable {
        arguments: [
            "--printed".to_owned(),
            file.display().to_string(),
            NORMAL.to_string(),
            "0.5".to_owned(),
            start.to_string(),
        ]
        .to_vec(),
        limit: GUARD,
        ..Executable::new(&program)
    };
    let timeouts = EventRequest {
        events: EventSet::NONE.with(EventKind::Timeout),
        variables: VariableSet::NONE,
    };
    handlers
        .bind(stream.as_fd(), timeouts, Handler::Run(tware))
        .unwrap();
    let rates = send(&stream, &file);
    // Programs may hold copies of the socket.
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    sink.join().unwrap().unwrap();
    drop(handlers);
    // m = 2I/RTT is about 580 kb/s per second. Without a backlog h is 2.41 md, 700 kb/s, for 2.4 s.
    assert!(
        reports.lock().unwrap().is_empty(),
        "{:?}",
        reports.lock().unwrap()
    );
    assert!(rates.len() >= 3, "{rates:?}");
    assert!((300_000..1_000_000).contains(&rates[1]), "{rates:?}");
    assert_eq!(rates.last(), Some(&NORMAL), "{rates:?}");
}
