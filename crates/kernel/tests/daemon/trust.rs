//! Who serves, and may be handed sockets.

use std::process::Stdio;

use super::*;

/// Where everybody may write anybody may serve.
#[test]
fn a_socket_that_another_user_has_put_there_gets_nothing() {
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
    // Not even a word.
    assert_eq!(crowd::answer(&accept(&planted), GUARD), Some(0));
    // His own may be his own daemon.
    let own = as_nobody(|| {
        thread::scope(|scope| {
            let client = scope.spawn(|| Events::connect(&path).unwrap_err());
            drop(accept(&planted));
            client.join().unwrap()
        })
    });
    assert!(matches!(own, EventsError::Gone), "{own}");
    drop(planted);
    fs::remove_file(path).unwrap();
}

/// In a process of its own, which looks for the daemon there.
#[test]
fn without_a_daemon_to_be_trusted_it_goes_on_without_one() {
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
    let name = "trust::without_a_daemon_to_be_trusted_it_goes_on_without_one";
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
    // SAFETY: the address is whole and passed with its size; the socket is nobody else's.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
        assert_eq!(libc::bind(socket, (&raw const address).cast(), size), 0);
        assert_eq!(libc::listen(socket, 8), 0);
        OwnedFd::from_raw_fd(socket)
    }
}

fn accept(listener: &OwnedFd) -> OwnedFd {
    use std::os::fd::FromRawFd as _;
    // SAFETY: no address is asked for; the socket is nobody else's.
    unsafe {
        let (no_address, no_size) = (std::ptr::null_mut(), std::ptr::null_mut());
        let socket = libc::accept(listener.as_raw_fd(), no_address, no_size);
        assert!(socket >= 0);
        OwnedFd::from_raw_fd(socket)
    }
}
