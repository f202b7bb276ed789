//! Connections over TLS.

use std::net::SocketAddr;

use tidegate_core::session::tcp::PlayerRtcp;

use super::*;
use crate::tls::tests::Files;

const LONG: Duration = Duration::from_mins(10);

/// A listener with the certificate of `files`.
fn listen(
    files: &Files,
    limit: Duration,
    limits: &RunLimits,
) -> (Listener<PlayerRtcp>, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    let listener = Listener::start(socket, limit, Some(files.server()), limits);
    (listener.unwrap(), at)
}

fn connect_to(at: SocketAddr, options: &TcpOptions) -> TcpSocket {
    TcpSocket::new(TcpStream::connect(at).unwrap(), options).unwrap()
}

/// A connecting socket, and the accepted one.
fn pair(test: &str, options: &TcpOptions) -> (TcpSocket, TcpSocket) {
    let (files, limits) = (Files::new(test), conditions());
    let (listener, at) = listen(&files, LONG, &limits);
    let mut near = connect_to(at, options);
    let secured = near.secure(&files.client(), "localhost", LONG, &limits, || false);
    assert!(secured.unwrap());
    near.send_first_report(1).unwrap();
    let far = listener
        .next(&limits, || false, |_, _| ())
        .unwrap()
        .unwrap();
    (near, far.socket)
}

#[test]
fn stream_over_tls_ends_with_a_bye() {
    let (mut near, mut far) = pair("stream", &TcpOptions::default());
    let receiving = thread::spawn(move || {
        let (mut receiver, mut frames) = (TcpReceiver::new(), Vec::new());
        let ended = receive(&mut receiver, &mut far, &conditions(), |receiver, _| {
            frames.extend(std::iter::from_fn(|| receiver.poll_frame()));
            ControlFlow::Continue(())
        });
        (ended.unwrap(), frames.len())
    });
    let mut stream = streamer(30);
    let sent = drive(&mut stream, &mut near, &conditions(), |_, _| {
        ControlFlow::Continue(())
    });
    assert_eq!(sent.unwrap(), EndReason::Done);
    let (ended, frames) = receiving.join().unwrap();
    assert_eq!(ended, EndReason::Done);
    let (mut rows, mut events) = (Vec::new(), Vec::new());
    stream.sender.drain(&mut rows, &mut events);
    assert_eq!(
        rows.iter().filter(|row| row.dropped.is_none()).count(),
        frames
    );
    assert!(frames > 0);
}

/// A player that does not read stops the sender as without TLS: the kernel holds little unsent
/// data, and what TLS holds is still in the application's queue.
#[test]
fn backlog_over_tls_stays_in_the_application() {
    let mark = Bytes(16_384);
    let options = TcpOptions {
        notsent_lowat: Some(mark),
        ..TcpOptions::default()
    };
    let (mut near, mut far) = pair("backlog", &options);
    let data: Vec<u8> = (0..8 << 20).map(|n| (n % 251) as u8).collect();
    let mut accepted = 0;
    // Twice in succession without room: the socket is full.
    let mut full = 0;
    while full < 2 {
        let count = near.write(&data[accepted..]).unwrap();
        accepted += count;
        full = if count == 0 { full + 1 } else { 0 };
    }
    let (unsent, unacknowledged) = near.backlog().unwrap();
    // One write may exceed the mark by its segment: 64 kB on loopback.
    assert!(unsent <= mark + Bytes(1 << 17), "{unsent:?}");
    let kernel = (unsent + unacknowledged).get() as usize;
    let mut heard = 0;
    let mut buffer = vec![0; 1 << 16];
    let mut read = |far: &mut TcpSocket| {
        while let Some(count) = far.read(&mut buffer).unwrap() {
            assert!(buffer[..count] == data[heard..heard + count]);
            heard += count;
        }
        heard
    };
    // What counts as accepted is what the peer can read, but for a begun record.
    let before = read(&mut far);
    assert!(before <= accepted, "{before} of {accepted}");
    assert!(kernel >= accepted - before, "{kernel} of {accepted}");
    while accepted < data.len() {
        let count = near.write(&data[accepted..]).unwrap();
        accepted += count;
        if count > 0 {
            continue;
        }
        read(&mut far);
        // A sender also reads, which passes on what is left of a record.
        assert_eq!(near.read(&mut [0]).unwrap(), None);
    }
    while read(&mut far) < data.len() {
        thread::yield_now();
    }
}

#[test]
fn leaving_over_tls_sends_the_last_bytes() {
    let (mut near, mut far) = pair("leaving", &TcpOptions::default());
    let words: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
    let leaving = {
        let words = words.clone();
        thread::spawn(move || near.leave(&words, Duration::from_mins(1), &conditions()))
    };
    let (mut heard, mut buffer) = (Vec::<u8>::new(), vec![0; 1 << 16]);
    loop {
        match far.read(&mut buffer).unwrap() {
            Some(0) => break,
            Some(count) => heard.extend(&buffer[..count]),
            None => thread::yield_now(),
        }
    }
    drop(far);
    assert!(heard == words);
    leaving.join().unwrap().unwrap();
}

#[test]
fn handshakes_have_a_time_limit() {
    let (files, limits) = (Files::new("limit"), conditions());
    let limit = Duration::from_millis(200);
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = connect_to(mute.local_addr().unwrap(), &TcpOptions::default());
    let late = near.secure(&files.client(), "localhost", limit, &limits, || false);
    assert!(
        matches!(&late, Err(TcpError::Tls { cause, .. }) if cause.kind() == io::ErrorKind::TimedOut),
        "{late:?}"
    );
    // Parts of a handshake do not extend the limit at the listening end.
    let (listener, at) = listen(&files, limit, &limits);
    let mut drip = TcpStream::connect(at).unwrap();
    let start = limits.clock.now();
    // A record of 16 kB, byte by byte.
    io::Write::write_all(&mut drip, &[22, 3, 1, 0x40, 0]).unwrap();
    while io::Write::write_all(&mut drip, &[1]).is_ok() {
        assert!(limits.clock.now().since(start) < LONG);
        thread::yield_now();
    }
    let mut said = Vec::new();
    let asked = std::cell::Cell::new(false);
    let refused = |refusal: &Refusal, _| {
        asked.set(true);
        said.push(refusal.to_string());
    };
    assert!(
        listener
            .next(&limits, || asked.get(), refused)
            .unwrap()
            .is_none()
    );
    assert!(said[0].contains("connected"), "{said:?}");
}

#[test]
fn interrupted_handshakes_end_at_once() {
    let (files, limits) = (Files::new("interrupted"), conditions());
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = connect_to(mute.local_addr().unwrap(), &TcpOptions::default());
    let secured = near.secure(&files.client(), "localhost", LONG, &limits, || true);
    assert!(!secured.unwrap());
}
