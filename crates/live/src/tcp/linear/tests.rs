//! The thread on a loopback connection.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;

use super::*;

fn user_timeout(socket: &TcpStream) -> u32 {
    get(socket.as_raw_fd(), libc::TCP_USER_TIMEOUT).unwrap()
}

#[test]
fn user_timeout_of_the_application_is_restored() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let fd = socket.as_raw_fd();
    for own in [0, 7_000] {
        set(fd, libc::TCP_USER_TIMEOUT, &u32::to_ne_bytes(own)).unwrap();
        let keeper = TimeoutThread {
            socket: socket.as_fd().try_clone_to_owned().unwrap(),
            usual: own,
            rto_max: None,
        };
        for (span, limit) in [
            (1_500, 1_500),
            (1_000_000, if own == 0 { PATIENCE } else { own }),
        ] {
            keeper.obey(UserTimeoutChange::Limit(Duration::from_millis(span)));
            assert_eq!(user_timeout(&socket), limit);
        }
        keeper.obey(UserTimeoutChange::Lift);
        let longest = if own == 0 { PATIENCE } else { own };
        assert_eq!(user_timeout(&socket), longest);
        keeper.obey(UserTimeoutChange::Restore);
        assert_eq!(user_timeout(&socket), own);
        // Dropping it during an outage restores the options.
        let linear = LinearTimeouts::start(socket.as_fd()).unwrap();
        assert_eq!(linear.until_next(), None);
        keeper.obey(UserTimeoutChange::Limit(Duration::from_millis(100)));
        drop(linear);
        assert_eq!(user_timeout(&socket), own);
    }
}
