use std::io::{Read as _, Write as _};
use std::thread;

use super::*;
use crate::clock::Clock;
use crate::driver::StopFlag;

/// Returns each line, and ends after `bye`.
#[derive(Debug, Default)]
struct Echo {
    refused: Vec<ServiceRefusal>,
    closed: usize,
    measured: usize,
}

#[derive(Debug)]
struct Line {
    output: Vec<u8>,
    is_over: bool,
    idle: Option<Time>,
}

impl Service for Echo {
    type Connection = Line;

    fn accept(&mut self, now: Time, local: SocketAddr, peer: SocketAddr) -> Line {
        assert!(local.ip().is_loopback() && peer.ip().is_loopback());
        Line {
            output: Vec::new(),
            is_over: false,
            idle: Some(now + Duration::from_mins(5)),
        }
    }

    fn on_refused(&mut self, _: Time, _: SocketAddr, refusal: ServiceRefusal) {
        self.refused.push(refusal);
    }

    fn room(&self, line: &Line) -> usize {
        if line.is_over { 0 } else { 100 }
    }

    fn on_rtt(&mut self, _: &mut Line, rtt: Duration) {
        // On loopback, on a busy machine.
        assert!(rtt < Duration::from_secs(10), "{rtt:?}");
        self.measured += 1;
    }

    fn on_bytes(&mut self, _: Time, line: &mut Line, bytes: &[u8]) {
        line.output.extend_from_slice(bytes);
        line.is_over |= bytes.ends_with(b"bye\n");
        if bytes.ends_with(b"wait\n") {
            line.idle = Some(Time::ZERO);
        }
    }

    fn output<'a>(&self, line: &'a Line) -> &'a [u8] {
        &line.output
    }

    fn on_written(&mut self, _: Time, line: &mut Line, count: usize) {
        line.output.drain(..count);
    }

    fn on_timeout(&mut self, _: Time, line: &mut Line) {
        line.is_over = true;
        line.idle = None;
    }

    fn next_timeout(&self, line: &Line) -> Option<Time> {
        line.idle
    }

    fn is_over(&self, line: &Line) -> bool {
        line.is_over
    }

    fn on_closed(&mut self, _: Time, _: Line) {
        self.closed += 1;
    }
}

/// Serves until `client` returns, and then while connections are open.
fn serve<T: Send + 'static>(
    limits: ServiceLimits,
    client: impl FnOnce(SocketAddr) -> T + Send + 'static,
) -> (Echo, T) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut connections = Connections::new(listener, limits).unwrap();
    let conditions = RunLimits {
        clock: Clock::start(),
        until: None,
        stop: StopFlag::new().unwrap(),
    };
    let client = thread::spawn(move || client(address));
    let mut echo = Echo::default();
    while !client.is_finished() || !connections.open.is_empty() {
        let until = conditions.clock.now() + Duration::from_millis(10);
        connections.turn(&mut echo, &conditions, until).unwrap();
    }
    (echo, client.join().unwrap())
}

const MANY: ServiceLimits = ServiceLimits {
    connections: 100,
    of_network: 100,
};

fn ask(stream: &mut TcpStream, line: &str) -> String {
    stream.write_all(line.as_bytes()).unwrap();
    let mut answer = vec![0; line.len()];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn several_clients_are_served_at_the_same_time() {
    let (echo, answers) = serve(MANY, |address| {
        let mut clients = [(); 3].map(|()| TcpStream::connect(address).unwrap());
        let first = clients.iter_mut().map(|client| ask(client, "one\n"));
        let first: Vec<String> = first.collect();
        let mut rest = Vec::new();
        for client in &mut clients {
            // Bytes after the end are discarded, and do not reset the connection.
            client.write_all(b"bye\n").unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).unwrap();
            rest.push(text);
        }
        (first, rest)
    });
    assert_eq!(answers.0, ["one\n"; 3]);
    assert_eq!(answers.1, ["bye\n"; 3]);
    assert_eq!(echo.closed, 3);
    assert!(echo.measured >= 3);
}

#[test]
fn connections_over_the_limit_are_closed_and_leave_room_when_others_end() {
    let limits = ServiceLimits {
        connections: 100,
        of_network: 2,
    };
    let (echo, ()) = serve(limits, |address| {
        let mut first = TcpStream::connect(address).unwrap();
        let mut second = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut first, "a\n"), "a\n");
        assert_eq!(ask(&mut second, "b\n"), "b\n");
        let mut third = TcpStream::connect(address).unwrap();
        let mut nothing = Vec::new();
        // The end of the stream, or a reset.
        assert_eq!(third.read_to_end(&mut nothing).unwrap_or(0), 0);
        first.write_all(b"bye\n").unwrap();
        let mut text = String::new();
        first.read_to_string(&mut text).unwrap();
        let mut fourth = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut fourth, "d\n"), "d\n");
    });
    assert_eq!(echo.refused, [ServiceRefusal::OfNetwork]);
    assert_eq!(echo.closed, 3);
}

#[test]
fn deadlines_end_connections() {
    let (echo, answer) = serve(MANY, |address| {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"wait\n").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!((answer.as_str(), echo.closed), ("wait\n", 1));
}
