//! Pacing error of many streams from one `tidegate serve`.
//!
//! ```console
//! $ ffmpeg -f lavfi -i testsrc2=size=640x360:rate=25 -t 60 -c:v libx264 -g 50 -b:v 1M -maxrate 1M \
//!     -bufsize 1M titles/clip.mp4
//! $ cargo build --release -p tidegate
//! $ cargo run --release -p tidegate-tests --example many_streams -- target/release/tidegate titles \
//!     clip.mp4 100 30
//! ```
//!
//! The given number of clients on loopback play a title for the given number of seconds, at most 50.
//! Prints the packets and bytes that arrived, the processor time of the server, and its summary: the
//! 99th percentile of the time from the due departure of a packet to its departure is `pacing_p99_ms`.
//! Exit code 1 if a client gets nothing.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [program, dir, title, clients, seconds] = &arguments[..] else {
        eprintln!("usage: many_streams PROGRAM DIR TITLE CLIENTS SECONDS");
        return ExitCode::from(2);
    };
    let (Ok(count), Ok(seconds)) = (clients.parse::<usize>(), seconds.parse::<u64>()) else {
        eprintln!("many_streams: CLIENTS and SECONDS are whole numbers");
        return ExitCode::from(2);
    };
    let (mut server, port) = start(program, dir, count, seconds + START_TIME);
    let mut clients: Vec<Client> = (0..count).map(|_| Client::play(port, title)).collect();
    let before = processor_time(server.id());
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        clients.iter_mut().for_each(Client::read);
        thread::sleep(Duration::from_millis(5));
    }
    let used = processor_time(server.id()) - before;
    let packets: u64 = clients.iter().map(|client| client.packets).sum();
    let bytes: u64 = clients.iter().map(|client| client.bytes).sum();
    let silent = clients.iter().filter(|client| client.packets == 0).count();
    println!(
        "{count} clients: {packets} packets, {:.2} Mb/s each, {silent} without any; server: {:.0} % of a \
         processor",
        bytes as f64 * 8.0 / 1e6 / seconds as f64 / count as f64,
        used / seconds as f64 * 100.0
    );
    drop(clients);
    let mut summary = String::new();
    let output = server.stdout.take();
    let read = output.map(|mut output| output.read_to_string(&mut summary));
    let _ = server.wait();
    print!("{summary}");
    ExitCode::from(u8::from(silent > 0 || read.is_none()))
}

/// Starts the server, and returns its port.
fn start(program: &str, dir: &str, clients: usize, seconds: u64) -> (Child, u16) {
    let mut server = Command::new(program)
        .args(["serve", dir, "--listen", "127.0.0.1:0", "--json"])
        .args(["--max-streams", &clients.to_string()])
        .args(["--max-streams-per-client", &clients.to_string()])
        .args(["--duration", &format!("{seconds}s")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    let mut lines = BufReader::new(server.stderr.take().expect("a pipe")).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once(" at rtsp://127.0.0.1:")?;
        port.trim_end_matches('/').parse().ok()
    });
    let port = port.expect("the server listens");
    thread::spawn(move || lines.for_each(drop));
    (server, port)
}

/// A client that plays a title.
struct Client {
    /// The stream ends with this connection.
    _connection: TcpStream,
    media: UdpSocket,
    _control: UdpSocket,
    packets: u64,
    bytes: u64,
}

impl Client {
    fn play(port: u16, title: &str) -> Self {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let any = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let (media, control) = (any(), any());
        let [rtp, rtcp] = [&media, &control].map(|s| s.local_addr().expect("a port").port());
        let url = format!("rtsp://127.0.0.1:{port}/{title}");
        let transport = format!("Transport: RTP/AVP;unicast;client_port={rtp}-{rtcp}\r\n");
        let answer = ask(&mut connection, &format!("SETUP {url}"), &transport);
        let session = answer.split_once("Session: ");
        let (_, session) = session.unwrap_or_else(|| panic!("no session: {answer}"));
        let session = session.split(';').next().unwrap_or_default();
        let headers = format!("Session: {session}\r\n");
        ask(&mut connection, &format!("PLAY {url}"), &headers);
        media.set_nonblocking(true).expect("an option");
        Self {
            _connection: connection,
            media,
            _control: control,
            packets: 0,
            bytes: 0,
        }
    }

    fn read(&mut self) {
        let mut buffer = [0; 2_048];
        while let Ok(length) = self.media.recv(&mut buffer) {
            self.packets += 1;
            self.bytes += length as u64;
        }
    }
}

/// Sends a request and returns the header of the response.
fn ask(connection: &mut TcpStream, line: &str, headers: &str) -> String {
    let request = format!("{line} RTSP/1.0\r\nCSeq: 1\r\n{headers}\r\n");
    connection.write_all(request.as_bytes()).expect("a request");
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        connection.read_exact(&mut byte).expect("a response");
        answer.push(byte[0]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Processor time of a process in seconds.
fn processor_time(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    // Fields 14 and 15 of proc_pid_stat(5), in ticks of 10 ms.
    let fields = fields.split_whitespace().skip(11).take(2);
    let ticks = fields.filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// Seconds for all clients to connect, and for the last responses.
const START_TIME: u64 = 5;
