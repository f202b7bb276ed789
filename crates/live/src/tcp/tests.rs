//! Senders and receivers on connections over loopback.

mod tls;

use std::io::Read as _;
use std::thread;

use tidegate_core::media::{Codec, EncodeError, Encoded, FrameEncoder, FrameOrder, FrameRate};
use tidegate_core::session::stream::Direct;
use tidegate_core::session::tcp::{
    Capture, Classic, Place, TcpSender, TcpSenderConfig, TcpStreamer,
};
use tidegate_core::units::{Bytes, Rate};
use tidegate_core::wire::ntp::Ntp;
use tidegate_core::wire::rtcp::Cname;

use super::*;
use crate::clock::Clock;
use crate::driver::StopFlag;

/// Produces pictures of the ordered size.
#[derive(Debug)]
struct Slices;

impl FrameEncoder for Slices {
    fn encode(&mut self, order: &FrameOrder) -> Result<Encoded, EncodeError> {
        let mut data = vec![0, 0, 1, 0xb3, 1, 0, 0, 1, 0, 0, 8, 9, 9, 9, 0, 0, 1, 1];
        data.resize(order.rate.as_bps() as usize / 100 / 8, 7);
        Ok(Encoded {
            frame: order.frame,
            captured: order.captured,
            key: true,
            leading: false,
            data,
            quality: None,
        })
    }

    fn frame_rate(&self) -> FrameRate {
        FrameRate::fps(100)
    }
}

fn streamer(frames: u64) -> TcpStreamer<Direct<Slices>> {
    let config = TcpSenderConfig {
        codec: Codec::Mpeg2,
        ssrc: 1,
        timestamp_base: 0,
        cname: Cname::new("test").unwrap(),
        epoch: Ntp(0),
        frame_rate: FrameRate::fps(100),
        capture: Capture::Clock {
            frames: Some(frames),
        },
        packet_size: Bytes(1_200),
        most_queued: Bytes(1 << 20),
        place: Place::Frames,
        most_pictures: 60,
    };
    let steering = Classic::new(Rate::kbps(8_000));
    TcpStreamer::new(
        TcpSender::new(config, Box::new(steering)),
        Direct::new(Slices),
    )
}

pub(super) fn conditions() -> RunLimits {
    RunLimits {
        clock: Clock::start(),
        until: None,
        stop: StopFlag::new().unwrap(),
    }
}

fn pair(options: &TcpOptions) -> (TcpSocket, TcpSocket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = accept(&listener, &conditions(), || false).unwrap().unwrap();
    let plain = TcpOptions::default();
    (
        TcpSocket::new(near, options).unwrap(),
        TcpSocket::new(far, &plain).unwrap(),
    )
}

#[test]
fn stream_arrives_and_ends_with_a_bye() {
    let (mut near, mut far) = pair(&TcpOptions {
        notsent_lowat: Some(Bytes(16_384)),
        congestion: Some("reno".into()),
        rto_max: None,
        paced: true,
    });
    let receiving = thread::spawn(move || {
        let mut receiver = TcpReceiver::new();
        let mut frames = Vec::new();
        let ended = receive(&mut receiver, &mut far, &conditions(), |receiver, _| {
            frames.extend(std::iter::from_fn(|| receiver.poll_frame()));
            ControlFlow::Continue(())
        });
        (ended.unwrap(), frames)
    });
    let mut stream = streamer(30);
    drive(&mut stream, &mut near, &conditions(), |_, _| {
        ControlFlow::Continue(())
    })
    .unwrap();
    let (ended, frames) = receiving.join().unwrap();
    assert_eq!(ended, EndReason::Done);
    let (mut rows, mut events) = (Vec::new(), Vec::new());
    stream.sender.drain(&mut rows, &mut events);
    // Some frames may be late on a loaded machine.
    let made = rows.iter().filter(|row| row.dropped.is_none()).count();
    assert_eq!((rows.len(), frames.len()), (30, made));
    assert!(made > 0);
    assert!(
        frames
            .iter()
            .all(|f| f.complete.is_some() && f.data.len() == 10_000)
    );
}

#[test]
fn close_in_mid_stream_names_the_peer() {
    let (mut near, far) = pair(&TcpOptions::default());
    let peer = near.peer();
    drop(far);
    let mut stream = streamer(1_000);
    let error = drive(&mut stream, &mut near, &conditions(), |_, _| {
        ControlFlow::Continue(())
    });
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains(&peer.to_string()) && error.contains("mid-stream"),
        "{error}"
    );

    let (near, mut far) = pair(&TcpOptions::default());
    drop(near);
    let error = receive(&mut TcpReceiver::new(), &mut far, &conditions(), |_, _| {
        ControlFlow::Continue(())
    });
    assert!(matches!(error, Err(TcpError::Silent { .. })), "{error:?}");

    let (mut near, mut far) = pair(&TcpOptions::default());
    near.write(&[0]).unwrap();
    drop(near);
    let error = receive(&mut TcpReceiver::new(), &mut far, &conditions(), |_, _| {
        ControlFlow::Continue(())
    });
    assert!(matches!(error, Err(TcpError::Closed { .. })), "{error:?}");
}

#[test]
fn a_player_that_left_before_its_turn_gets_no_data() {
    let (mut near, mut far) = pair(&TcpOptions::default());
    far.write(&[0, 8, 0x81, 203, 0, 1, 0, 0, 0, 1]).unwrap();
    while near.stream.peek(&mut [0]).is_err() {
        thread::yield_now();
    }
    let mut stream = streamer(1_000);
    let ended = drive(&mut stream, &mut near, &conditions(), |_, _| {
        ControlFlow::Continue(())
    });
    assert_eq!(ended.unwrap(), EndReason::Done);
    assert!(stream.has_player_left());
    assert_eq!(stream.sender.packets(), 0);
}

/// A player that reads a few bytes at a time: the kernel acknowledges what fits into its buffer, and
/// the rest stays.
#[test]
fn a_player_that_reads_too_slowly_is_dropped() {
    let (mut near, mut far) = pair(&TcpOptions::default());
    let conditions = conditions();
    near.limit_stall(Duration::from_millis(200));
    let mut stream = streamer(u64::MAX);
    let ended = drive(&mut stream, &mut near, &conditions, |_, _| {
        far.read(&mut [0; 14]).unwrap();
        ControlFlow::Continue(())
    });
    assert!(matches!(ended, Err(TcpError::Stalled { .. })), "{ended:?}");
}

#[test]
fn other_protocol_is_an_error() {
    let (mut near, mut far) = pair(&TcpOptions::default());
    near.write(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    near.write(&vec![0; 30_000]).unwrap();
    let error = receive(&mut TcpReceiver::new(), &mut far, &conditions(), |_, _| {
        ControlFlow::Continue(())
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no stream of RTP packets"), "{error}");
}

/// The peer does not read: the unsent bytes in the kernel stay near the low-water mark, and the
/// rest of the backlog can be dropped.
#[test]
fn backlog_stays_in_the_application() {
    let mark = Bytes(16_384);
    let (mut near, far) = pair(&TcpOptions {
        notsent_lowat: Some(mark),
        ..TcpOptions::default()
    });
    let mut stream = streamer(u64::MAX);
    let mut seen = (Bytes(0), Bytes(0));
    drive(&mut stream, &mut near, &conditions(), |stream, _| {
        let backlog = stream.sender.backlog();
        seen = (seen.0.max(backlog.unsent), backlog.queued);
        if backlog.queued > Bytes(300_000) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })
    .unwrap();
    drop(far);
    // One write may exceed the mark by its segment: 64 kB on loopback.
    assert!(seen.0 <= mark + Bytes(1 << 17), "{seen:?}");
    assert!(seen.1 > Bytes(300_000));
}

/// The send buffer is full, because the peer has not read yet.
#[test]
fn bye_is_sent_once_the_send_buffer_has_room() {
    let (mut near, far) = pair(&TcpOptions::default());
    let conditions = conditions();
    let block = vec![7; 1 << 16];
    let mut before = 0;
    loop {
        match near.write(&block).unwrap() {
            0 => break,
            count => before += count,
        }
    }
    // Longer than the socket accepts in one write.
    let words: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
    let leaving = {
        let (words, conditions) = (words.clone(), conditions.clone());
        thread::spawn(move || near.leave(&words, Duration::from_mins(1), &conditions))
    };
    let mut heard = Vec::new();
    far.stream.set_nonblocking(false).unwrap();
    (&far.stream).read_to_end(&mut heard).unwrap();
    drop(far);
    assert_eq!(heard.len(), before + words.len());
    assert!(heard[before..] == words);
    leaving.join().unwrap().unwrap();
}

/// The player leaves before the stream has started.
#[test]
fn leaving_without_data_closes_the_connection() {
    let (mut near, far) = pair(&TcpOptions::default());
    let leaving = thread::spawn(move || near.leave(&[], Duration::from_mins(1), &conditions()));
    far.stream.set_nonblocking(false).unwrap();
    assert_eq!((&far.stream).read(&mut [0]).unwrap(), 0);
    drop(far);
    leaving.join().unwrap().unwrap();
}

#[test]
fn bye_that_the_peer_does_not_accept_is_an_error() {
    let (mut near, far) = pair(&TcpOptions::default());
    // More than the buffers of both ends.
    let words = vec![7; 1 << 25];
    let mut leave = |patience| near.leave(&words, patience, &conditions());
    let late = leave(Duration::from_millis(10)).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    drop(far);
    assert!(leave(Duration::from_mins(1)).is_err());
}

/// Resets a connection, as a port scan does.
pub(super) fn reset(stream: TcpStream) {
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: reads the initialised structure.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const at_once).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
    drop(stream);
}

#[test]
fn reset_before_accept_names_the_peer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let name = near.local_addr().unwrap();
    reset(near);
    let (far, peer) = accept(&listener, &conditions(), || false).unwrap().unwrap();
    assert_eq!(peer, name);
    let far = TcpSocket::of_peer(far, peer, &TcpOptions::default()).unwrap();
    let broken = far.connection_error().unwrap().to_string();
    assert!(
        broken.contains(&name.to_string()) && broken.contains("reset"),
        "{broken}"
    );
    let (_near, far) = pair(&TcpOptions::default());
    assert!(far.connection_error().is_none());
}

/// The error is a reset: the connection was neither refused nor timed out.
#[test]
fn reset_right_after_connect_is_reported_as_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = connect::begin(listener.local_addr().unwrap()).unwrap();
    reset(listener.accept().unwrap().0);
    let answer = connect::answer(near, Duration::from_secs(10), &conditions(), || false);
    assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn connect_is_interruptible_while_the_peer_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let patience = Duration::from_mins(1);
    // SAFETY: a system call with integer arguments. With this backlog only the first connection is
    // accepted.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let first = connect(at, patience, &conditions(), || false);
    let first = first.unwrap().unwrap();
    assert_eq!(first.peer_addr().unwrap(), at);
    let mut looks = 0;
    let asked = || {
        looks += 1;
        looks > 2
    };
    assert!(
        connect(at, patience, &conditions(), asked)
            .unwrap()
            .is_none()
    );
    let late = connect(at, Duration::from_millis(1), &conditions(), || false);
    assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    drop((first, listener));
    let refused = connect(at, patience, &conditions(), || false).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn unsupported_option_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let options = TcpOptions {
        congestion: Some("nosuch".into()),
        ..TcpOptions::default()
    };
    let error = TcpSocket::new(near, &options).unwrap_err().to_string();
    assert!(error.contains("TCP_CONGESTION"), "{error}");
}
