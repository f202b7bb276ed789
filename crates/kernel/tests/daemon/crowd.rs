//! Clients that would lock others out.

use super::*;

/// Who may nothing takes no place, and who may something no more than his, also if he comes and
/// goes as fast as he can.
#[test]
fn who_comes_and_goes_locks_nobody_out() {
    let few = "[limits]\nclients = 4\nclients-per-user = 2\n";
    for (name, rules) in [
        ("barred", "[[allow]]\nusers = [0]\nevents = ['state']\n"),
        ("hasty", ANYTHING),
    ] {
        let Some(daemon) = Daemon::start(name, &format!("{few}{rules}")) else {
            return;
        };
        as_nobody(|| {
            for _ in 0..200 {
                drop(raw_client(&daemon.path));
                drop(Events::connect(&daemon.path));
            }
        });
        let root = Events::connect(&daemon.path);
        assert!(root.is_ok(), "{root:?}");
        // Twenty in a second, and how many more there were; here within few seconds.
        let lines = daemon.log.lock().unwrap().len();
        assert!(lines < 300, "{lines}");
    }
}

#[test]
fn a_client_that_never_opens_is_thrown_out() {
    let Some(daemon) = Daemon::start("mute", ANYTHING) else {
        return;
    };
    let mute = raw_client(&daemon.path);
    assert_eq!(answer(&mute, Duration::from_secs(20)), Some(0));
    assert!(daemon.logged("it did not open in time"));
}

/// The length of the next message to a client, if one comes within `limit`.
pub(super) fn answer(client: &OwnedFd, limit: Duration) -> Option<isize> {
    let limit = libc::timeval {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_usec: limit.subsec_micros().into(),
    };
    let mut room = [0_u8; 4_096];
    let fd = client.as_raw_fd();
    // SAFETY: the time and the room are whole and passed with their sizes.
    let got = unsafe {
        let (value, size) = ((&raw const limit).cast(), mem::size_of_val(&limit) as u32);
        let set = libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, value, size);
        assert_eq!(set, 0);
        libc::recv(fd, room.as_mut_ptr().cast(), room.len(), 0)
    };
    (got >= 0).then_some(got)
}

/// Whatever it comes with, in a message or in one that is never read.
#[test]
fn the_daemon_waits_for_no_descriptor() {
    let policy = format!("[limits]\nrequests-per-second = 1\n{ANYTHING}");
    let Some(daemon) = Daemon::start_alone("linger", &policy) else {
        return;
    };
    let tally: &[u8] = br#"{"request":"tally","id":1}"#;
    for (message, many) in [(tally, 1), (tally, 40), (b"xyz", 1), (b"", 2)] {
        let bad = raw_client(&daemon.path);
        let (ends, peers): (Vec<_>, Vec<_>) = (0..many).map(|_| lingering()).unzip();
        let (more, more_peer) = lingering();
        // After this one it is not heard for a second, in which our copies go.
        assert!(hand_over(&bad, tally, &[]));
        assert!(answer(&bad, LINGER).is_some_and(|length| length > 0));
        assert!(hand_over(&bad, message, &ends));
        assert!(hand_over(&bad, tally, &[more]));
        drop(ends);
        let heard = answer(&bad, LINGER / 2);
        assert_eq!(heard.map(|l| l > 0), Some(message == tally), "{message:?}");
        drop(bad);
        Events::connect(&daemon.path).unwrap();
        drop((peers, more_peer));
    }
}

/// A socket whose closing takes `LINGER`, and its peer, which reads nothing.
fn lingering() -> (TcpStream, TcpStream) {
    let (ours, peer) = connection();
    ours.set_nonblocking(true).unwrap();
    while (&ours).write(&[0; 1 << 13]).is_ok() {}
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: LINGER.as_secs() as libc::c_int,
    };
    // SAFETY: the value is whole and passed with its size.
    let set = unsafe {
        let (value, size) = ((&raw const linger).cast(), mem::size_of_val(&linger) as u32);
        let fd = ours.as_raw_fd();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, size)
    };
    assert_eq!(set, 0);
    // Whoever does not wait for data does not wait for the end either.
    ours.set_nonblocking(false).unwrap();
    (ours, peer)
}

/// Whether a message went with descriptors along: not that of a client that was thrown out already.
fn hand_over(client: &OwnedFd, message: &[u8], along: &[TcpStream]) -> bool {
    let raw: Vec<i32> = along.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    let bytes = mem::size_of_val(raw.as_slice());
    let mut control = [0_u64; 129];
    // SAFETY: a message header is integers and pointers, for which zero is a value; all that it
    // points to outlives the call and is passed with its size.
    unsafe {
        let mut part = libc::iovec {
            iov_base: message.as_ptr().cast_mut().cast(),
            iov_len: message.len(),
        };
        let mut header: libc::msghdr = mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(bytes as u32) as _;
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(bytes as u32) as _;
        std::ptr::copy_nonoverlapping(raw.as_ptr().cast(), libc::CMSG_DATA(first), bytes);
        libc::sendmsg(client.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) >= 0
    }
}

const LINGER: Duration = Duration::from_secs(20);

#[test]
fn one_user_does_not_take_all_subscriptions() {
    let policy = format!("[limits]\nsubscriptions = 4\n{ANYTHING}");
    let Some(daemon) = Daemon::start("share", &policy) else {
        return;
    };
    let (socket, _peer) = connection();
    as_nobody(|| {
        let events = Events::connect(&daemon.path).unwrap();
        for _ in 0..2 {
            events.subscribe(&socket, states()).unwrap();
        }
        let third = events.subscribe(&socket, states()).unwrap_err().to_string();
        assert!(third.contains("limits.subscriptions-per-user"), "{third}");
    });
    let root = Events::connect(&daemon.path).unwrap();
    root.subscribe(&socket, states()).unwrap();
}
