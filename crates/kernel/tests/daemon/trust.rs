//! Daemons of other users, which must not receive sockets.

use std::process::Stdio;

use super::*;

/// In a directory where any user may write, any user may create a listening socket.
#[test]
fn a_socket_of_another_user_receives_nothing() {
    // SAFETY: takes nothing and touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        return skip("planted", "it takes root to be another user");
    }
    let path = env::temp_dir().join(format!("tg-{}-planted.sock", std::process::id()));
    let planted = as_nobody(|| listen(&path));
    let error = Events::connect(&path).unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(
            error,
            EventsError::Untrusted {
                user: 65_534,
                own: 0,
                ..
            }
        ),
        "{text}"
    );
    assert!(
        text.contains("user 65534 serves at") && text.contains("tidegate events serve"),
        "{text}"
    );
    // No message was sent.
    assert_eq!(crowd::answer(&accept(&planted), GUARD), Some(0));
    // A daemon of the own user is trusted.
    let own = as_nobody(|| {
        thread::scope(|scope| {
            let client = scope.spawn(|| Events::connect(&path).unwrap_err());
            drop(accept(&planted));
            client.join().unwrap()
        })
    });
    assert!(matches!(own, EventsError::DaemonGone), "{own}");
    drop(planted);
    fs::remove_file(path).unwrap();
}

/// In a separate process, whose default path is that socket.
#[test]
fn without_a_trusted_daemon_events_come_unprivileged() {
    if env::var_os(AT).is_some() {
        let events = Events::open().unwrap();
        assert!(!events.from_kernel());
        let why = events.why_unprivileged().unwrap();
        assert!(why.contains("user 65534 serves at"), "{why}");
        return;
    }
    // SAFETY: takes nothing and touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        return skip("planted", "it takes root to be another user");
    }
    let path = env::temp_dir().join(format!("tg-{}-there.sock", std::process::id()));
    let planted = as_nobody(|| listen(&path));
    let name = "trust::without_a_trusted_daemon_events_come_unprivileged";
    let mut child = Command::new(env::current_exe().unwrap());
    let child = child.args(["--exact", name, "--nocapture"]).env(AT, "it");
    let child = child.env("TIDEGATE_EVENTS_SOCKET", &path);
    let child = spawn(child.stdout(Stdio::piped()));
    let ran = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    drop(planted);
    fs::remove_file(path).unwrap();
}

fn listen(path: &Path) -> OwnedFd {
    use std::os::fd::FromRawFd as _;
    let (address, size) = local_address(path);
    // SAFETY: the address is whole and passed with its size; the socket has no other owner.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
        assert_eq!(libc::bind(socket, (&raw const address).cast(), size), 0);
        assert_eq!(libc::listen(socket, 8), 0);
        OwnedFd::from_raw_fd(socket)
    }
}

fn accept(listener: &OwnedFd) -> OwnedFd {
    use std::os::fd::FromRawFd as _;
    // SAFETY: no address is requested; the socket has no other owner.
    unsafe {
        let (no_address, no_size) = (std::ptr::null_mut(), std::ptr::null_mut());
        let socket = libc::accept(listener.as_raw_fd(), no_address, no_size);
        assert!(socket >= 0);
        OwnedFd::from_raw_fd(socket)
    }
}
